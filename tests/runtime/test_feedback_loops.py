"""Loops: what comes back meets what goes on, in every threading model; and loops end."""

from __future__ import annotations

import itertools
import threading
from collections.abc import Callable
from typing import Any

import pytest

import penstock as pn
from penstock.runtime.pacing import Watched
from penstock.runtime.pe import PE, Threading
from tests.runtime.forcing import LONG
from tests.runtime.running import models, until


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
def test_a_gate_whose_acknowledgements_are_slow_slows_its_source(model: str, monkeypatch: pytest.MonkeyPatch) -> None:
    go, looks = threading.Event(), itertools.count()
    seen = 0

    def moves(entry: Watched, moves: Callable[[Watched], bool] = Watched.moves) -> bool:
        nonlocal seen
        seen = next(looks)
        return moves(entry)

    monkeypatch.setattr(Watched, "moves", moves)  # the source waits, and asks whether it has to go on waiting
    flow = pn.Flow("loop")
    done = flow.feedback()
    passed = flow.source(range(200_000)).gate(done, limit=1).map(lambda n: go.wait(LONG) and n)
    done.connect(passed)
    passed.collect()
    pe = PE(flow.graph(), threading_=Threading(model, threads=2))
    pe.start()
    gate = next(index for index, node in enumerate(pe.graph.nodes) if node.name == "gate")
    until(lambda: pe.pacer.wake() or seen > 20)
    assert 8000 < pe.logics[gate].backlog(0) < 20_000
    pe.cancel()
    go.set()
    with pytest.raises(pn.Cancelled):
        pe.wait(LONG)
