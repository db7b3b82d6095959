"""How runs end by an error: it is named, and what came before it is delivered."""

from __future__ import annotations

import threading
import time
from collections.abc import Iterator
from typing import Any

import pytest

import penstock as pn
from penstock.clock import ManualClock
from tests.runtime.forcing import LONG
from tests.runtime.running import Recording, advance_until, models, until


def invert(n: int) -> float:
    return 1 / (n - 700)  # the line the error must name


@models
def test_what_came_before_an_error_is_delivered_to_every_sink(options: dict[str, Any]) -> None:
    flow = pn.Flow("failing")
    numbers = flow.source(range(1000)).map(lambda n: n)
    before = numbers.map(lambda n: n).collect()
    after = numbers.map(invert, name="inverse").map(lambda n: n).collect()
    batched = numbers.map_batch(lambda chunk: [-n for n in chunk]).collect()
    with pytest.raises(pn.OperatorError) as caught:
        pn.run(flow, on="local", **options)
    assert caught.value.operator == "inverse"
    assert f"test_failing.py:{invert.__code__.co_firstlineno + 1}" in str(caught.value)
    assert isinstance(caught.value.__cause__, ZeroDivisionError)
    assert len(after) == 700
    assert before[:700] == list(range(700))
    assert before == list(range(len(before)))
    assert batched == [-n for n in range(len(batched))]
    assert len(batched) >= 700


@models
def test_slow_sinks_get_what_came_before_an_error_however_long_that_takes(options: dict[str, Any]) -> None:
    def slowly(n: int) -> None:
        time.sleep(0.004)
        out.append(n)

    out: list[int] = []
    flow = pn.Flow("slow")
    numbers = flow.source(range(400))
    numbers.sink(slowly)
    numbers.map(lambda n: 1 // (n - 350)).collect()
    with pytest.raises(pn.OperatorError):
        pn.run(flow, on="local", **{**options, "queue": 1000} if "queue" in options else options)
    assert out[:350] == list(range(350))


@models
def test_errors_while_others_wait_inside_end_all_threads(options: dict[str, Any]) -> None:
    flow = pn.Flow("failing")
    failing = flow.source(range(10)).map(lambda n: 1 // (n - 5), name="failing")
    other = flow.source(iter(int, 1)).map(lambda n: n)
    failing.union(other).map(lambda n: n).collect()
    job = pn.submit(flow, on="local", **options)
    with pytest.raises(pn.OperatorError, match="'failing'"):
        job.wait(LONG)


@models
def test_a_source_that_fails_delivers_what_it_gave_before(options: dict[str, Any]) -> None:
    def source() -> Iterator[int]:
        yield from range(50)
        raise OSError("gone")

    flow = pn.Flow("failing")
    out = flow.source(source, name="numbers").map(lambda n: n).map(lambda n: n).collect()
    with pytest.raises(pn.SourceError, match=r"(?s)'numbers'.*gone"):
        pn.run(flow, on="local", **options)
    assert out == list(range(50))


@models
def test_a_sink_that_fails_is_named(options: dict[str, Any]) -> None:
    class Failing(Recording):
        def write(self, chunk: list[Any]) -> None:
            super().write([n for n in chunk if n < 20])
            if any(n >= 20 for n in chunk):
                raise OSError("disk full")

    sink = Failing()
    flow = pn.Flow("failing")
    flow.source(range(100)).map(lambda n: n).sink(sink, name="disk")
    with pytest.raises(pn.SinkError, match=r"(?s)'disk'.*disk full"):
        pn.run(flow, on="local", **options)
    assert sink.tuples == list(range(20))
    assert sink.calls == ["open", "failed"]


@models
@pytest.mark.parametrize("when", ["open", "close"])
def test_an_operator_that_cannot_be_opened_or_closed_is_named(options: dict[str, Any], when: str) -> None:
    class Broken(pn.Operator):
        def open(self, ctx: Any) -> None:
            if when == "open":
                raise OSError("broken")

        def process(self, t: Any, port: int) -> Any:
            return t

        def close(self) -> None:
            if when == "close":
                raise OSError("broken")

    sink = Recording()
    flow = pn.Flow("failing")
    flow.source(range(10)).process(Broken(), name="operator").sink(sink)
    with pytest.raises(pn.OperatorError, match=r"(?s)'operator'.*broken"):
        pn.run(flow, on="local", **options)
    assert sink.tuples == ([] if when == "open" else list(range(10)))
    assert [call for call in sink.calls if call != "open"] in ([], ["closed"], ["failed"])


@models
def test_an_error_at_the_end_of_the_stream(options: dict[str, Any]) -> None:
    class Broken(pn.Operator):
        def process(self, t: Any, port: int) -> Any:
            return t

        def on_punctuation(self, mark: pn.Punctuation, port: int) -> Any:
            raise OSError("broken")

    flow = pn.Flow("failing")
    out = flow.source(range(100)).process(Broken(), name="operator").map(lambda n: n).collect()
    with pytest.raises(pn.OperatorError, match=r"(?s)'operator'.*broken"):
        pn.run(flow, on="local", **options)
    assert out == list(range(100))


@models
def test_what_is_no_exception_ends_the_run_too(options: dict[str, Any]) -> None:
    def leave(n: int) -> int:
        if n == 5:
            raise SystemExit(3)
        return n

    flow = pn.Flow("leaving")
    source = flow.source(range(100))
    other = source.map(lambda n: n).collect()
    out = source.map(leave).map(lambda n: n).collect()
    with pytest.raises(SystemExit):
        pn.run(flow, on="local", **options)
    assert out == list(range(5))
    assert other[:5] == list(range(5))


def test_an_error_by_time_stops_the_operator_it_happened_in() -> None:
    clock, go = ManualClock(), threading.Event()

    def source() -> Iterator[int]:
        yield 1
        go.wait(LONG)

    def broken(tuples: list[int]) -> int:
        raise ValueError("broken")

    flow = pn.Flow("timed")
    flow.source(source).map(lambda n: n).window(pn.tumbling(time=5)).apply(broken, name="apply").collect()
    job = pn.submit(flow, on="local", clock=clock, threading="dynamic")
    until(lambda: job.metrics().operators["apply"].received == 1)
    advance_until(clock, lambda: job.state == "failed")  # a tuple that was received may not have been processed yet
    with pytest.raises(pn.OperatorError, match="'apply'"):
        job.wait(LONG)
    go.set()
