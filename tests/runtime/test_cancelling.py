"""How cancelled runs end: soon, with everything closed once, and nothing delivered afterwards."""

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
from tests.runtime.running import Noting, Recording, Threads, models, until


def slowly(n: int) -> int:
    time.sleep(0.001)
    return n


@pytest.fixture
def patient(monkeypatch: pytest.MonkeyPatch) -> None:
    """No thread is given up: all of them have to end by themselves."""
    monkeypatch.setattr(ending, "PATIENCE", 10 * LONG)


@models
@pytest.mark.usefixtures("patient")
def test_a_cancel_ends_soon_closes_once_and_delivers_nothing_afterwards(options: dict[str, Any]) -> None:
    threads = Threads()
    sink, closed = Recording(), list[str]()
    flow = pn.Flow("cancelled")
    numbers = flow.source(iter(int, 1))
    numbers.map(slowly).process(Noting(closed)).map(lambda n: n).sink(sink)
    numbers.flat_map(lambda n: range(20)).map_batch(list).collect()
    job = pn.submit(flow, on="local", **options)
    until(lambda: len(sink.tuples) > 10)
    job.cancel()
    with pytest.raises(pn.Cancelled):
        job.wait(LONG)
    delivered = len(sink.tuples)
    assert sink.calls == ["open", "failed"]
    assert closed == ["closed"]
    threads.join()
    assert len(sink.tuples) == delivered
    assert job.state == "cancelled"


@models
def test_a_cancel_does_not_wait_for_threads_inside_user_code(
    options: dict[str, Any], monkeypatch: pytest.MonkeyPatch
) -> None:
    """One is inside an operator, others wait for its lock, for its queue, for their turn."""
    monkeypatch.setattr(ending, "PATIENCE", 0.2)
    go, inside = threading.Event(), threading.Event()

    def stuck(n: int) -> int:
        inside.set()
        go.wait()
        return n

    threads = Threads()
    flow = pn.Flow("stuck")
    streams = [flow.source(iter(int, 1)).map(lambda n: n) for _ in range(3)]
    out = streams[0].union(*streams[1:]).map(stuck).map(lambda n: n).collect()
    job = pn.submit(flow, on="local", **options)
    assert inside.wait(LONG)
    job.cancel()
    with pytest.raises(pn.Cancelled):
        job.wait(LONG)
    go.set()  # all of them have to end now
    threads.join()
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
@pytest.mark.usefixtures("patient")
def test_a_cancel_frees_what_waits_for_the_clock(options: dict[str, Any]) -> None:
    flow = pn.Flow("throttled")
    out = flow.source(range(10)).throttle(rate=1).map(lambda n: n).collect()
    job = pn.submit(flow, on="local", clock=ManualClock(), **options)
    until(lambda: len(job.metrics().threads) == 0 or job.metrics().operators["throttle"].received > 0)
    job.cancel()
    with pytest.raises(pn.Cancelled):
        job.wait(LONG)
    assert len(out) < 10
