"""How runs end by themselves; in every threading model, with queues of any size."""

from __future__ import annotations

import threading
import time
from collections.abc import Iterator
from typing import Any

import pytest

import penstock as pn
from penstock.clock import ManualClock
from penstock.runtime import ending
from tests.runtime.forcing import LONG
from tests.runtime.running import Noting, Recording, advance_until, models, until


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
            time.sleep(ending.PATIENCE / 15)
        self.ended.append("ended")  # type: ignore[attr-defined]


@pytest.mark.parametrize("model", ["manual", "dynamic"])
def test_an_operator_may_take_its_time_over_the_end_of_the_stream(model: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(ending, "PATIENCE", 0.1)
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
