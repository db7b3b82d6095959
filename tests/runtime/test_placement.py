"""Queues placed and removed while a program runs: order, state and errors stay as they are."""

from __future__ import annotations

import queue
import random
import threading
from collections.abc import Iterator
from typing import Any

import pytest

import penstock as pn
from penstock.graph.graph import Target
from penstock.runtime import ending
from penstock.runtime.pe import PE, Threading
from penstock.runtime.threading_models import queueable
from tests.runtime.forcing import LONG
from tests.runtime.running import Threads, until


def changed(pe: PE, add: dict[Target, str], remove: list[Target]) -> None:
    """Ask until it is done: a busy machine may need more than the time a change waits."""
    until(lambda: pe.change_ports(add, remove))


class Fed:
    """A source that gives what the test puts in, as it comes."""

    def __init__(self) -> None:
        self._inbox: queue.Queue[Any] = queue.Queue()

    def put(self, *items: Any) -> None:
        for item in items:
            self._inbox.put(item)

    def end(self) -> None:
        self._inbox.put(self)

    def __call__(self) -> Iterator[Any]:
        while (item := self._inbox.get()) is not self:
            yield item


def targets(pe: PE, *names: str) -> list[Target]:
    nodes = {node.name: node for node in pe.graph.nodes}
    return [target for name in names for target in queueable(pe.graph, nodes[name])]


def every_kind(fed: Fed) -> tuple[pn.Flow, Any, list[str]]:
    """A flow with state of several kinds, and its operators that may have queues."""
    flow = pn.Flow("every")
    numbers = flow.source(fed)
    a = numbers.map(lambda n: n + 1, name="a")
    b = a.flat_map(lambda n: [n, -n], name="b")
    c = b.key_by(lambda n: n % 5).scan(lambda total, n: (total + n, total + n), init=0, name="c")
    d = c.map_batch(lambda chunk: [2 * n for n in chunk], name="d")
    e = d.window(pn.tumbling(count=3)).apply(sum, name="e")
    f = e.barrier(a.filter(lambda n: True, name="g"), name="f")
    out = f.scan(lambda n, pair: (n + 1, (n, pair)), init=0, name="h").collect(name="i")
    return flow, out, list("abcdefghi")


def expected(size: int) -> list[Any]:
    fed = Fed()
    flow, out, _ = every_kind(fed)
    fed.put(*range(size))
    fed.end()
    pn.run(flow, on="local", threading="manual")
    return list(out)


@pytest.mark.parametrize("model", ["dynamic", "dedicated"])
@pytest.mark.parametrize("name", list("abcdefghi"))
def test_a_queue_before_any_operator_and_gone_again(name: str, model: str) -> None:
    fed = Fed()
    flow, out, _ = every_kind(fed)
    pe = PE(flow.graph(), threading_=Threading("manual", threads=2, capacity=8))
    pe.start()
    fed.put(*range(100))
    where = targets(pe, name)
    for start in range(100, 400, 100):
        changed(pe, dict.fromkeys(where, model), [])
        assert set(where) <= pe.ports.keys()
        fed.put(*range(start, start + 50))
        changed(pe, {}, where)
        assert not pe.ports
        fed.put(*range(start + 50, start + 100))
    fed.end()
    assert pe.wait(LONG)
    assert out == expected(400)


@pytest.mark.parametrize("model", ["manual", "dynamic", "dedicated"])
def test_all_queues_at_once_and_one_for_another(model: str) -> None:
    fed = Fed()
    flow, out, names = every_kind(fed)
    pe = PE(flow.graph(), threading_=Threading(model, threads=2, capacity=8))
    pe.start()
    everywhere = targets(pe, *names)
    some, others = everywhere[::2], everywhere[1::2]
    fed.put(*range(200))
    changed(pe, dict.fromkeys(some, "dynamic"), others)
    assert pe.ports.keys() == set(some)
    fed.put(*range(200, 400))
    changed(pe, dict.fromkeys(others, "dedicated"), some)
    assert pe.ports.keys() == set(others) == pe.dedicated.keys()
    fed.put(*range(400, 600))
    changed(pe, dict.fromkeys(everywhere, "dynamic"), everywhere)  # a dedicated thread for the scheduler
    assert pe.ports.keys() == set(everywhere)
    assert not pe.dedicated
    fed.put(*range(600, 700))
    changed(pe, {}, everywhere)
    assert not pe.ports
    fed.put(*range(700, 800))
    fed.end()
    assert pe.wait(LONG)
    assert out == expected(800)


@pytest.mark.parametrize("others", ["manual", "dynamic", "dedicated"])
def test_what_waited_in_a_removed_queue_does_not_wait_for_the_next_tuple(others: str) -> None:
    """The source is idle, the thread that runs the queue is held inside an operator behind the next one."""
    go, inside = threading.Event(), threading.Event()

    def wait(n: int) -> int:
        if n == 0:
            inside.set()
            go.wait(LONG)
        return n

    fed = Fed()
    flow = pn.Flow("idle")
    with flow.threading(others):
        numbers = flow.source(fed).map(lambda n: n, name="before")
    with flow.threading("dynamic"):
        waited = numbers.map(wait, name="waiting")
    total = waited.scan(lambda total, n: (total + n, total + n), init=0)
    out = total.collect()
    pe = PE(flow.graph(), threading_=Threading("manual", threads=2))
    port = pe.ports[targets(pe, "waiting")[0]]
    pe.start()
    fed.put(0)
    assert inside.wait(LONG)
    fed.put(*range(1, 20))
    until(lambda: port.length == 19)
    assert not pe.change_ports({}, targets(pe, "waiting")), "a thread is inside an operator"
    pe.set_pausing(True)  # the worker leaves after the tuple it has, with all others still in the queue
    go.set()
    until(lambda: len(out) == 1)
    changed(pe, {}, targets(pe, "waiting"))
    until(lambda: len(out) == 20)
    fed.end()
    assert pe.wait(LONG)
    assert out == [sum(range(n + 1)) for n in range(20)]


def stalled(flow: pn.Flow, *names: str, capacity: int = 1000) -> PE:
    """A PE whose scheduler has no threads: what is pushed into the queues of these operators stays there."""
    pe = PE(flow.graph(), threading_=Threading("manual", threads=1, capacity=capacity))
    pe.scheduler.set_threads = lambda count: None  # type: ignore[method-assign]
    pe.start()
    changed(pe, dict.fromkeys(targets(pe, *names), "dynamic"), [])
    return pe


def waiting(pe: PE) -> int:
    return sum(port.length for port in pe.ports.values())


def wait_until_waiting(pe: PE, tuples: int) -> None:
    until(lambda: waiting(pe) == tuples)


def test_the_rest_of_several_removed_queues_keeps_its_order() -> None:
    """Two queues in a row: what is in the second comes before what is in the first."""
    fed = Fed()
    flow = pn.Flow("rest")
    a = flow.source(fed).map(lambda n: n, name="a")
    b = a.map(lambda n: n, name="b").scan(lambda n, t: (n + 1, (n, t)), init=0, name="c")
    out = b.collect()
    pe = stalled(flow, "c")
    fed.put(*range(5))
    until(lambda: waiting(pe) == 5)
    changed(pe, dict.fromkeys(targets(pe, "a", "b"), "dynamic"), [])
    fed.put(*range(5, 10))
    until(lambda: waiting(pe) == 10)
    assert out == []
    changed(pe, {}, targets(pe, "a", "b", "c"))
    until(lambda: len(out) == 10)
    fed.put(10)
    fed.end()
    assert pe.wait(LONG)
    assert out == [(n, n) for n in range(11)]


def test_an_error_in_the_rest_of_one_queue_leaves_the_rest_of_others() -> None:
    fed = Fed()
    flow = pn.Flow("rest")
    numbers = flow.source(fed)
    failing = numbers.map(lambda n: 1 // (n - 3), name="failing").collect()
    other = numbers.map(lambda n: n, name="other").collect()
    pe = stalled(flow, "failing", "other")
    for n in range(6):  # one by one, so that each is an item of its own
        fed.put(n)
        wait_until_waiting(pe, 2 * (n + 1))
    until(lambda: pe.change_ports({}, targets(pe, "failing", "other")))
    with pytest.raises(pn.OperatorError, match="'failing'"):
        pe.wait(LONG)
    assert failing == [-1, -1, -1]
    assert other[:3] == [0, 1, 2]
    assert other == list(range(len(other)))
    fed.end()


def test_an_error_elsewhere_leaves_what_waited_in_a_removed_queue() -> None:
    """The error comes while the rest is being run: all of it came before."""
    fed, other = Fed(), Fed()
    failed = threading.Event()
    out: list[int] = []

    def deliver(n: int) -> None:
        if n == 2:
            other.put(0)
            failed.wait(LONG)
        out.append(n)

    flow = pn.Flow("rest")
    flow.source(fed).map(lambda n: n, name="map").sink(deliver, name="sink")
    flow.source(other).map(lambda n: 1 // n, name="failing").collect()
    pe = stalled(flow, "map", "sink")
    for n in range(10):
        fed.put(n)
        wait_until_waiting(pe, n + 1)

    def watch() -> None:
        until(lambda: pe.error is not None)
        failed.set()

    watcher = threading.Thread(target=watch)
    watcher.start()
    until(lambda: pe.change_ports({}, targets(pe, "map", "sink")))
    with pytest.raises(pn.OperatorError, match="'failing'"):
        pe.wait(LONG)
    watcher.join(LONG)
    assert out == list(range(10))
    fed.end()


def test_a_cancel_ends_a_change_and_what_it_still_runs(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(ending, "PATIENCE", 10 * LONG)  # no thread is given up: all have to end by themselves
    threads, fed = Threads(), Fed()
    inside, go = threading.Event(), threading.Event()
    out: list[int] = []

    def deliver(n: int) -> None:
        inside.set()
        go.wait(0.01)
        out.append(n)

    flow = pn.Flow("rest")
    flow.source(fed).map(lambda n: n, name="map").sink(deliver, name="sink")
    pe = stalled(flow, "map", "sink", capacity=10_000)
    for n in range(0, 2000, 4):
        fed.put(*range(n, n + 4))
    until(lambda: waiting(pe) == 2000)

    def change() -> None:
        until(lambda: pe.change_ports({}, targets(pe, "map", "sink")) or pe.stopping)

    changer = threading.Thread(target=change)
    changer.start()
    assert inside.wait(LONG)
    pe.cancel()
    fed.end()
    with pytest.raises(pn.Cancelled):
        pe.wait(LONG)
    changer.join(LONG)
    delivered = len(out)
    assert delivered < 2000
    threads.join()
    assert len(out) == delivered


def test_what_cannot_have_a_queue_is_refused() -> None:
    fed = Fed()
    flow = pn.Flow("refused")
    done = flow.feedback(name="back")
    passed = flow.source(fed, name="source").gate(done, limit=1, name="gate")
    done.connect(passed.map(lambda n: n))
    passed.collect()
    pe = PE(flow.graph())
    nodes = {node.name: node.index for node in pe.graph.nodes}
    assert not pe.change_ports({Target(nodes["gate"], 0): "dynamic"}), "it does not run yet"
    pe.start()
    for name, port in (("source", 0), ("back", 0), ("gate", 1)):
        with pytest.raises(pn.PlatformError, match=f"input {port} of '{name}'.*cannot have a queue"):
            pe.change_ports({Target(nodes[name], port): "dynamic"})
    with pytest.raises(pn.PlatformError, match="'dynamic' or 'dedicated' threads, not 'manual'"):
        pe.change_ports({Target(nodes["gate"], 0): "manual"})
    assert pe.change_ports({}, [Target(nodes["gate"], 0)]), "nothing to do"
    fed.end()
    assert pe.wait(LONG)
    assert not pe.change_ports({Target(nodes["gate"], 0): "dynamic"}), "it is over"


@pytest.mark.parametrize("model", ["manual", "dynamic"])
def test_a_stuck_function_makes_a_change_impossible_and_hurts_nobody(model: str) -> None:
    go, inside = threading.Event(), threading.Event()

    def stuck(n: int) -> int:
        if n == 3:
            inside.set()
            go.wait(LONG)
        return n

    fed = Fed()
    flow = pn.Flow("stuck")
    slow = flow.source(range(10)).map(stuck, name="stuck").collect()
    quick = flow.source(fed).map(lambda n: n, name="quick").map(lambda n: n, name="more").collect()
    pe = PE(flow.graph(), threading_=Threading(model, threads=3))
    pe.start()
    assert inside.wait(LONG)
    before, turns = pe.ports.keys(), len(pe.turns())
    for _ in range(3):
        assert not pe.change_ports(dict.fromkeys(targets(pe, "quick", "more"), "dedicated"), targets(pe, "quick"))
        fed.put(1)
    assert pe.ports.keys() == before
    assert len(pe.turns()) == turns, "threads that were not needed have left nothing behind"
    until(lambda: len(quick) == 3)
    go.set()
    fed.end()
    assert pe.wait(LONG)
    assert slow == list(range(10))


@pytest.mark.usefixtures("switching_often")
@pytest.mark.parametrize("seed", range(3))
def test_two_threads_change_ports_at_once(seed: int) -> None:
    fed = Fed()
    flow, out, names = every_kind(fed)
    pe = PE(flow.graph(), threading_=Threading("dynamic", threads=2, capacity=4))
    pe.start()
    everywhere = targets(pe, *names)
    done = threading.Semaphore(0)

    def change(seed: int) -> None:
        rng = random.Random(seed)
        while pe.state == "running":
            chosen = rng.sample(everywhere, rng.randint(1, 4))
            add = {target: rng.choice(["dynamic", "dedicated"]) for target in chosen[:2]}
            if pe.change_ports(add, chosen[1:]):
                done.release()

    changers = [threading.Thread(target=change, args=(10 * seed + n,)) for n in range(2)]
    for changer in changers:
        changer.start()
    for start in range(0, 1000, 50):
        fed.put(*range(start, start + 50))
        for _ in range(3):
            assert done.acquire(timeout=LONG), "no change was possible"
    fed.end()
    assert pe.wait(LONG)
    for changer in changers:
        changer.join(LONG)
    assert out == expected(1000)


def test_changes_leave_no_threads_and_turns_behind() -> None:
    fed = Fed()
    flow, _, names = every_kind(fed)
    pe = PE(flow.graph())
    pe.start()
    everywhere = targets(pe, *names)
    turns, threads = len(pe.turns()), threading.active_count()
    for _ in range(10):
        changed(pe, dict.fromkeys(everywhere, "dedicated"), [])
        changed(pe, {}, everywhere)
    until(lambda: threading.active_count() == threads)
    assert len(pe.turns()) == turns
    assert sum(1 for _ in pe.threads()) <= 2 * len(everywhere)
    fed.end()
    assert pe.wait(LONG)


def test_a_feedback_loop_whose_queues_change() -> None:
    fed = Fed()
    flow = pn.Flow("loop")
    done = flow.feedback()
    passed = flow.source(fed).gate(done, limit=2, name="gate").map(lambda n: n, name="work")
    done.connect(passed.filter(lambda n: True, name="acknowledge"))
    out = passed.collect()
    pe = PE(flow.graph(), threading_=Threading("manual", threads=2, capacity=1))
    pe.start()
    gate = next(node.index for node in pe.graph.nodes if node.name == "gate")
    where = [Target(gate, 0), *targets(pe, "work", "acknowledge")]
    rng = random.Random(3)
    for start in range(0, 600, 20):
        fed.put(*range(start, start + 20))
        chosen = rng.sample(where, 2)
        add = {target: rng.choice(["dynamic", "dedicated"]) for target in chosen if target not in pe.ports}
        pe.change_ports(add, [target for target in chosen if target in pe.ports])
    fed.end()
    assert pe.wait(LONG)
    assert out == list(range(600))
