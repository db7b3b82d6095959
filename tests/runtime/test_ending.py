"""How runs end: by themselves, by cancel, by an error; in every threading model, with queues of any size."""

from __future__ import annotations

import threading
import time
from collections.abc import Callable, Iterator
from typing import Any

import pytest

import penstock as pn
from penstock.clock import ManualClock
from penstock.runtime.ending import PATIENCE
from penstock.runtime.pe import PE, Threading
from tests.runtime.forcing import LONG

MODELS: list[dict[str, Any]] = [
    {"threading": "manual"},
    {"threading": "dedicated", "queue": 1},
    {"threading": "dedicated"},
    {"threading": "dynamic", "threads": 1, "queue": 1},
    {"threading": "dynamic", "threads": 2, "queue": 5, "quantum": 1e-6},
    {"threading": "dynamic", "threads": 6},
]
models = pytest.mark.parametrize("options", MODELS, ids=lambda options: "-".join(str(v) for v in options.values()))


def until(true: Callable[[], bool]) -> None:
    limit = time.monotonic() + LONG
    while not true():
        assert time.monotonic() < limit, "never happened"
        time.sleep(0.001)


def advance_until(clock: ManualClock, true: Callable[[], bool]) -> None:
    def advanced() -> bool:
        clock.advance(10)
        return true()

    until(advanced)


def slowly(n: int) -> int:
    time.sleep(0.001)
    return n


class Recording:
    """A sink that notes how it was used."""

    def __init__(self) -> None:
        self.tuples: list[Any] = []
        self.calls: list[str] = []

    def open(self) -> None:
        self.calls.append("open")

    def write(self, chunk: list[Any]) -> None:
        assert self.calls == ["open"]
        self.tuples += chunk

    def close(self, failed: bool = False) -> None:
        self.calls.append("failed" if failed else "closed")


class Noting(pn.Operator):
    closed: list[str] = []  # noqa: RUF012  # shared by all copies

    def __init__(self, closed: list[str]) -> None:
        type(self).closed = closed

    def process(self, t: Any, port: int) -> Any:
        return t

    def close(self) -> None:
        self.closed.append("closed")


# --------------------------------------------------------------------------------------------------------- natural ends


@models
def test_a_run_ends_by_itself_and_closes_everything_once(options: dict[str, Any]) -> None:
    sink, closed = Recording(), list[str]()
    flow = pn.Flow("ends")
    merged = flow.source(range(300)).union(flow.source(range(300, 400)))
    merged.process(Noting(closed)).map(lambda n: n).sink(sink)
    pn.run(flow, on="local", **options)
    assert sorted(sink.tuples) == list(range(400))
    assert sink.calls == ["open", "closed"]
    assert closed == ["closed"]


class SlowEnd(pn.Operator):
    """Takes longer over the end of the stream than a stopped run waits for a thread."""

    outputs = 0

    def __init__(self, ended: list[str]) -> None:
        type(self).ended = ended  # type: ignore[attr-defined]

    def process(self, t: Any, port: int) -> Any:
        return None

    def on_punctuation(self, mark: pn.Punctuation, port: int) -> None:
        for _ in range(20):
            time.sleep(PATIENCE / 15)
        self.ended.append("ended")  # type: ignore[attr-defined]


@pytest.mark.parametrize("model", ["manual", "dynamic"])
def test_an_operator_may_take_its_time_over_the_end_of_the_stream(model: str) -> None:
    ended: list[str] = []
    flow = pn.Flow("slow")
    flow.source(range(3)).process(SlowEnd(ended))  # nothing follows: it is the last one that ends
    pn.run(flow, on="local", threading=model)
    assert ended == ["ended"]


@models
def test_marks_stay_between_the_tuples_they_were_between(options: dict[str, Any]) -> None:
    flow = pn.Flow("marks")
    marked = flow.source(range(1000)).punctuate(lambda n: n % 7 == 6).map(lambda n: n).filter(lambda n: True)
    out = marked.window(pn.tumbling(punctuation=True)).apply(list).collect()
    pn.run(flow, on="local", **options)
    assert out == [list(range(start, start + 7)) for start in range(0, 994, 7)]


@models
def test_dead_letters_arrive_however_the_run_is_threaded(options: dict[str, Any]) -> None:
    flow = pn.Flow("dead")
    bad = flow.dead_letters()
    good = flow.source([*"123x", "4", "y"]).map(int, on_error=bad).map(lambda n: 6 // (n - 3), on_error=bad).collect()
    refused = bad.map(lambda letter: letter.item).collect()
    pn.run(flow, on="local", **options)
    assert good == [-3, -6, 6]
    assert sorted(refused, key=str) == [3, "x", "y"]


@models
def test_delayed_tuples_follow_a_clock_moved_by_hand(options: dict[str, Any]) -> None:
    clock, go = ManualClock(), threading.Event()

    def source() -> Iterator[int]:
        yield from range(5)
        go.wait(LONG)
        yield 5

    flow = pn.Flow("delayed")
    out = flow.source(source).map(lambda n: n).delay(10).map(lambda n: n).collect()
    job = pn.submit(flow, on="local", clock=clock, **options)
    until(lambda: job.metrics().operators["delay"].received == 5)
    assert out == []
    advance_until(clock, lambda: len(out) == 5)  # a tuple that was received may not have been processed yet
    go.set()
    assert job.wait(LONG)
    assert out == list(range(6))


# --------------------------------------------------------------------------------------------------------------- cancel


@models
def test_a_cancel_ends_soon_closes_once_and_delivers_nothing_afterwards(options: dict[str, Any]) -> None:
    sink, closed = Recording(), list[str]()
    flow = pn.Flow("cancelled")
    numbers = flow.source(iter(int, 1))
    numbers.map(slowly).process(Noting(closed)).map(lambda n: n).sink(sink)
    numbers.flat_map(lambda n: range(20)).map_batch(list).collect()
    job = pn.submit(flow, on="local", **options)
    until(lambda: len(sink.tuples) > 10)
    start = time.monotonic()
    job.cancel()
    with pytest.raises(pn.Cancelled):
        job.wait(LONG)
    assert time.monotonic() - start < 2
    delivered = len(sink.tuples)
    assert sink.calls == ["open", "failed"]
    assert closed == ["closed"]
    time.sleep(0.02)
    assert len(sink.tuples) == delivered
    assert job.state == "cancelled"


@models
def test_a_cancel_does_not_wait_for_threads_inside_user_code(options: dict[str, Any]) -> None:
    """One is inside an operator, others wait for its lock, for its queue, for their turn."""
    go, inside = threading.Event(), threading.Event()

    def stuck(n: int) -> int:
        inside.set()
        go.wait()
        return n

    flow = pn.Flow("stuck")
    streams = [flow.source(iter(int, 1)).map(lambda n: n) for _ in range(3)]
    out = streams[0].union(*streams[1:]).map(stuck).map(lambda n: n).collect()
    job = pn.submit(flow, on="local", **options)
    assert inside.wait(LONG)
    start = time.monotonic()
    job.cancel()
    with pytest.raises(pn.Cancelled):
        job.wait(LONG)
    assert time.monotonic() - start < 2
    go.set()  # all of them have to end now: the check after each test sees to that
    time.sleep(0.02)
    assert out == []


def test_a_cancel_stops_the_workers_although_a_source_is_stuck() -> None:
    go, delivered = threading.Event(), threading.Event()

    def source() -> Iterator[int]:
        yield from range(200)
        go.wait()
        yield 200

    def slowly(n: int) -> int:
        time.sleep(0.005)
        return n

    out: list[int] = []

    def sink(n: int) -> None:
        out.append(n)
        delivered.set()

    flow = pn.Flow("stuck")
    flow.source(source).map(slowly).sink(sink)
    job = pn.submit(flow, on="local", threading="dynamic")
    assert delivered.wait(LONG)
    job.cancel()
    seen = len(out)
    with pytest.raises(pn.Cancelled):
        job.wait(LONG)
    go.set()
    assert len(out) <= seen + 32, "at most what threads had in their hands"


@models
def test_a_cancel_frees_what_waits_for_the_clock(options: dict[str, Any]) -> None:
    flow = pn.Flow("throttled")
    out = flow.source(range(10)).throttle(rate=1).map(lambda n: n).collect()
    job = pn.submit(flow, on="local", clock=ManualClock(), **options)
    until(lambda: len(job.metrics().threads) == 0 or job.metrics().operators["throttle"].received > 0)
    start = time.monotonic()
    job.cancel()
    with pytest.raises(pn.Cancelled):
        job.wait(LONG)
    assert time.monotonic() - start < 2
    assert len(out) < 10


# --------------------------------------------------------------------------------------------------------------- errors


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
    assert f"test_ending.py:{invert.__code__.co_firstlineno + 1}" in str(caught.value)
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
    start = time.monotonic()
    with pytest.raises(pn.OperatorError, match="'failing'"):
        pn.run(flow, on="local", **options)
    assert time.monotonic() - start < LONG


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


# ------------------------------------------------------------------------------------------------------ feedback loops


@models
@pytest.mark.parametrize("limit", [1, 7])
def test_a_gate_in_a_loop_lets_everything_pass_in_order(options: dict[str, Any], limit: int) -> None:
    flow = pn.Flow("loop")
    done = flow.feedback()
    passed = flow.source(range(500)).map(lambda n: n).gate(done, limit=limit).map(lambda n: n)
    done.connect(passed.filter(lambda n: True).map(lambda n: n))
    out = passed.flat_map(lambda n: [n]).collect()
    job = pn.submit(flow, on="local", **options)
    assert job.wait(LONG)
    assert out == list(range(500))


class Counting(pn.Operator):
    """Passes on input 0; counts what comes back. Says so if two threads are inside."""

    inputs = 2
    control = (1,)

    def open(self, ctx: Any) -> None:
        self.busy = False
        self.back = 0

    def process(self, t: Any, port: int) -> Any:
        assert not self.busy, "two threads at once"
        self.busy = True
        for _ in range(10):
            pass
        self.busy = False
        if port == 0:
            return t
        assert t == self.back, "out of order"
        self.back += 1
        return None


@pytest.mark.parametrize("queued", ["before", "in", "everywhere"])
def test_what_comes_back_meets_what_goes_on_under_a_lock(queued: str) -> None:
    """Feedback is delivered after the consumer flag is given back: another thread may have it by then."""
    for _ in range(15):
        flow = pn.Flow("loop")
        back = flow.feedback()
        source = flow.source(range(200))
        with flow.threading("dynamic" if queued != "in" else "manual"):
            before = source.map(lambda n: n)
        with flow.threading("dynamic" if queued == "everywhere" else "manual"):
            counted = before.process(Counting(), back)
        with flow.threading("dynamic" if queued != "before" else "manual"):
            after = counted.map(lambda n: n)
        back.connect(after)
        out = after.collect()
        job = pn.submit(flow, on="local", threading="manual", threads=3, queue=1)
        assert job.wait(LONG)
        assert out == list(range(200))


@pytest.mark.parametrize("model", ["dynamic", "dedicated"])
def test_a_gate_whose_acknowledgements_are_slow_slows_its_source(model: str) -> None:
    go = threading.Event()
    flow = pn.Flow("loop")
    done = flow.feedback()
    passed = flow.source(range(200_000)).gate(done, limit=1).map(lambda n: go.wait(LONG) and n)
    done.connect(passed)
    passed.collect()
    pe = PE(flow.graph(), threading_=Threading(model, threads=2))
    pe.start()
    gate = next(index for index, node in enumerate(pe.graph.nodes) if node.name == "gate")
    until(lambda: pe.logics[gate].backlog(0) > 8000)
    time.sleep(0.05)
    assert pe.logics[gate].backlog(0) < 20_000
    pe.cancel()
    go.set()
    with pytest.raises(pn.Cancelled):
        pe.wait(LONG)
