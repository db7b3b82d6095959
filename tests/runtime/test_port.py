"""Threaded ports: order, bound and nothing stranded, in every order of the steps on flags and queue."""

from __future__ import annotations

import threading
from collections import deque
from collections.abc import Callable
from typing import Any, cast

import pytest

import penstock as pn
from penstock.graph.graph import Target
from penstock.graph.operator import CoContext
from penstock.runtime.pe import PE, Threading
from penstock.runtime.policies import LeastRecentlyRun
from penstock.runtime.port import Item, Port
from penstock.runtime.scheduler import Scheduler
from penstock.runtime.segment import Entry, Segment
from penstock.runtime.turn import Turn
from penstock.tuples import CHUNK, Punctuation
from tests.runtime.forcing import LONG, Controller, Holds, explore, stepping


class Recorder:
    """Stands in for a segment: notes what it gets, and that one thread at a time gives it something."""

    def __init__(self, controller: Controller, index: int = 1, onto: Entry | None = None) -> None:
        self.index = index
        self.lock = None
        self.failed = self.is_feedback = False
        self.old: deque[Any] = deque()
        self.leftover: deque[Any] = deque()
        self.seen: list[Any] = []
        self.marks: list[Item] = []
        self._controller = controller
        self._onto = onto
        self._inside = False

    def run(self, item: Item, port: int, turn: Turn) -> None:
        assert not self._inside, "two threads at once"
        self._inside = True
        self._controller.step()
        if isinstance(item, list):
            self.seen += item
        else:
            self.marks.append(item)
        if self._onto is not None:
            turn.push(self._onto, item)
        self._inside = False


class Rig:
    """A scheduler, one port, what is behind it, and threads that do what those of a PE do."""

    def __init__(self, controller: Controller, capacity: int) -> None:
        self.scheduler = Scheduler(cast("PE", None), LeastRecentlyRun())
        self.behind = Recorder(controller)
        self.port = stepping(controller)(Target(0, 0), "port", capacity)
        self.port.limit = 1
        self.port.entry = Entry(cast("Segment", self.behind), 0)
        self.port.announce = self.scheduler.announce
        self.done = False

    def pusher(self, *items: Item) -> Callable[[], None]:
        def push_all() -> None:
            turn = Turn()
            for item in items:
                turn.push(Entry(cast("Segment", self.behind), 0, self.port), item)
                turn.drain()

        return push_all

    def worker(self, rounds: int, items: int = 100) -> Callable[[], None]:
        """Look for work so many times, and take so many items each time."""

        def work() -> None:
            for _ in range(rounds):
                self.work_once(items)

        return work

    def work_once(self, items: int = 100) -> bool:
        port = self.scheduler.find_work()
        if port is None:
            return False
        turn = Turn()
        while items and (queued := port.pop()) is not None:
            turn.push(port.entry, queued[0])
            turn.run_pending()
            items -= 1
        port.release_consumer()
        self.scheduler.put_back(port)
        return True

    def finish(self) -> None:
        """After all threads: whatever is still there must be found."""
        while self.work_once():
            pass
        assert self.port.length == 0, "stranded"


def test_a_pusher_and_a_worker_meet_on_one_port() -> None:
    def scenario(controller: Controller) -> None:
        rig = Rig(controller, capacity=2)
        controller.run({"pusher": rig.pusher([1], [2], [3]), "worker": rig.worker(2)})
        rig.finish()
        assert rig.behind.seen == [1, 2, 3]

    assert explore(scenario, preemptions=2) > 100


def test_a_pusher_works_off_a_full_queue_while_a_worker_wants_it() -> None:
    def scenario(controller: Controller) -> None:
        rig = Rig(controller, capacity=1)
        controller.run({"pusher": rig.pusher([1], [2], Punctuation.FINAL), "worker": rig.worker(2)})
        rig.finish()
        assert rig.behind.seen == [1, 2]
        assert rig.behind.marks == [Punctuation.FINAL]

    assert explore(scenario, preemptions=2) > 100


def test_two_pushers_keep_the_order_of_their_streams() -> None:
    def scenario(controller: Controller) -> None:
        rig = Rig(controller, capacity=1)
        controller.run({"one": rig.pusher([1], [2]), "two": rig.pusher([10], [20]), "worker": rig.worker(1, items=1)})
        rig.finish()
        assert [n for n in rig.behind.seen if n < 10] == [1, 2]
        assert [n for n in rig.behind.seen if n >= 10] == [10, 20]

    assert explore(scenario, preemptions=1) > 50


def test_two_workers_never_run_one_port_at_once() -> None:
    def scenario(controller: Controller) -> None:
        rig = Rig(controller, capacity=8)
        for n in range(4):
            assert rig.port.push([n])
        controller.run({"one": rig.worker(3, items=1), "two": rig.worker(3, items=1), "pusher": rig.pusher([4])})
        rig.finish()
        assert rig.behind.seen == [0, 1, 2, 3, 4]

    assert explore(scenario, preemptions=2, most=500) > 100


def test_a_worker_that_leaves_after_each_item_leaves_nothing_behind() -> None:
    """What a suspended worker does: it takes one item and gives the port back."""

    def scenario(controller: Controller) -> None:
        rig = Rig(controller, capacity=3)
        controller.run({"pusher": rig.pusher([1], [2], [3]), "leaving": rig.worker(1, items=0), "other": rig.worker(1)})
        rig.finish()
        assert rig.behind.seen == [1, 2, 3]

    assert explore(scenario, preemptions=1) > 50


def test_a_dedicated_thread_is_called_in_any_order_of_push_and_look() -> None:
    """The protocol of `DedicatedThread`: clear, look, wait; the pusher: put in, call."""

    def scenario(controller: Controller) -> None:
        rig = Rig(controller, capacity=10)
        called = threading.Event()
        missed: list[bool] = []

        def announce(port: Port) -> None:
            controller.step()
            if not called.is_set():
                controller.step()
                called.set()

        rig.port.announce = announce

        def look() -> None:
            turn = Turn()
            for _ in range(2):
                called.clear()
                controller.step()
                if rig.port.length and rig.port.try_consume():
                    while (queued := rig.port.pop()) is not None:
                        turn.push(rig.port.entry, queued[0])
                        turn.run_pending()
                    rig.port.release_consumer()
                controller.step()
            missed.append(rig.port.length > 0 and not called.is_set() and not pushing.is_set())

        pushing = threading.Event()

        def push() -> None:
            pushing.set()
            rig.pusher([1], [2])()
            pushing.clear()

        controller.run({"pusher": push, "thread": look})
        assert missed == [False], "it would wait although something is there and nobody calls any more"
        assert rig.port.length == 0 or called.is_set()

    assert explore(scenario, preemptions=2) > 50


# ------------------------------------------------------------------------------------------------------ without threads


def plain_port(capacity: int = 100) -> Port:
    port = Port(Target(0, 0), "port", capacity)
    port.limit = 16
    return port


def test_capacity_counts_tuples() -> None:
    port = plain_port(10)
    assert port.push([0] * 6)
    assert not port.push([0] * 5)
    assert port.push([0] * 4)
    assert (port.length, port.space) == (10, 0)
    assert not port.push(Punctuation.WINDOW), "marks count too"


def test_a_chunk_larger_than_the_queue_is_taken_into_an_empty_one_only() -> None:
    port = plain_port(10)
    assert port.push([0] * 50)
    assert not port.push([0])
    port.limit = 50
    assert port.pop() is not None
    assert port.push([0] * 50)


def test_what_is_taken_is_cut_and_joined_to_the_limit() -> None:
    port = plain_port()
    for chunk in ([1, 2, 3, 4, 5], [6], [7]):
        assert port.push(chunk)
    port.limit = 3
    taken = [port.pop() for _ in range(3)]
    assert [queued[0] for queued in taken if queued] == [[1, 2, 3], [4, 5, 6], [7]]
    assert port.pop() is None
    assert port.length == 0


def test_marks_keep_their_place_between_chunks() -> None:
    port = plain_port()
    items: list[Item] = [[1], [2], Punctuation.WINDOW, [3], Punctuation.FINAL]
    for item in items:
        assert port.push(item)
    taken = [port.pop() for _ in range(4)]
    assert [queued[0] for queued in taken if queued] == [[1, 2], Punctuation.WINDOW, [3], Punctuation.FINAL]


def test_a_shared_chunk_is_never_changed() -> None:
    port, chunk, following = plain_port(), [1], [2]
    port.push(chunk)
    port.push(following)
    queued = port.pop()
    assert queued is not None
    assert (queued[0], chunk, following) == ([1, 2], [1], [2])


def test_the_limit_follows_the_time_tuples_take() -> None:
    port = plain_port()
    port.note_run(port.limit, 0.5, 1.0)
    assert port.limit == 1
    for _ in range(20):
        port.note_run(port.limit, 0.0, 1.0)
    assert port.limit == CHUNK


# ----------------------------------------------------------------------------------------------------- in a running PE


def held_pe(flow: pn.Flow, holds: Holds, threads: int = 2, model: str = "dynamic", capacity: int = 4) -> PE:
    return PE(
        flow.graph(), threading_=Threading(model, threads=threads, capacity=capacity), port_class=holds.port_class
    )


@pytest.mark.parametrize("step", ["pop", "popped", "release_consumer", "released_consumer"])
def test_a_thread_is_suspended_during_a_drain(step: str) -> None:
    flow = pn.Flow("suspended")
    out = flow.source(range(200)).map(lambda n: n, name="first").map(lambda n: n, name="second").collect()
    holds = Holds()
    pe = held_pe(flow, holds, threads=2, capacity=1000)  # never full: only workers run ports
    held: list[threading.Thread] = []

    def note() -> bool:
        held.append(threading.current_thread())
        return True

    with holds.hold("second", step, when=note) as hold:
        pe.start()
        assert hold.reached.wait(LONG)
        workers = pe.scheduler.workers
        workers.sort(key=lambda worker: worker.thread is held[0])  # the last ones are suspended
        pe.scheduler.set_threads(1)
        assert [worker.suspended for worker in workers] == [False, True]
        hold.let_go()
    assert pe.wait(LONG)
    assert out == list(range(200))


@pytest.mark.parametrize("model", ["dynamic", "dedicated"])
@pytest.mark.parametrize("step", ["push", "pushed", "release_producer", "pop", "popped", "release_consumer"])
def test_the_last_tuple_against_the_end_of_the_run(model: str, step: str) -> None:
    flow = pn.Flow("last")
    out = flow.source([1]).map(lambda n: n, name="first").collect(name="out")
    holds = Holds()
    pe = held_pe(flow, holds, model=model)
    with holds.hold("out", step) as hold:
        pe.start()
        assert hold.reached.wait(LONG)
        if step != "release_consumer":
            assert not pe.wait(0.03), "a tuple is still under way"
        hold.let_go()
    assert pe.wait(LONG)
    assert out == [1]


@pytest.mark.parametrize(
    "step", ["push", "pushed", "release_producer", "try_consume", "pop", "popped", "release_consumer"]
)
def test_a_placement_is_not_changed_while_a_thread_is_at_a_port(step: str) -> None:
    flow = pn.Flow("swap")
    out = flow.source(range(500)).map(lambda n: n, name="first").map(lambda n: n + 1, name="second").collect()
    holds = Holds()
    pe = held_pe(flow, holds)
    first, second = (
        next(target for target, port in pe.ports.items() if port.name == name) for name in ("first", "second")
    )
    with holds.hold("second", step) as hold:
        pe.start()
        assert hold.reached.wait(LONG)
        assert not pe.change_ports({}, [second])
        assert not pe.change_ports({}, [first])
        assert second in pe.ports
        hold.let_go()
    assert pe.wait(LONG)
    assert out == list(range(1, 501))


class Meet(pn.CoOperator):
    inputs = 2

    async def run(self, ctx: CoContext) -> None:
        while await ctx.wait_all({0: 1, 1: 1}):
            await ctx.push((ctx.pop(0), ctx.pop(1)))
        await ctx.push("closed")


@pytest.mark.parametrize("late", [0, 1])
@pytest.mark.parametrize("step", ["push", "pop", "popped", "release_consumer"])
def test_an_input_closes_while_the_operator_waits_for_the_other(late: int, step: str) -> None:
    flow = pn.Flow("close")
    out = flow.source([1, 2, 3]).process(Meet(), flow.source("ab"), name="meet").collect()
    holds = Holds()
    pe = held_pe(flow, holds, threads=3)
    early = next(port for port in pe.ports.values() if port.name == f"meet[{1 - late}]")
    with holds.hold(f"meet[{late}]", step) as hold:
        pe.start()
        assert hold.reached.wait(LONG)
        if step in ("push", "pop"):  # what it holds up has no lock: the other input comes to its end meanwhile
            waiting = threading.Event()
            while early.pushed < (3, 2)[1 - late] + 1 or not early.idle:
                waiting.wait(0.001)
        hold.let_go()
    assert pe.wait(LONG)
    assert out == [(1, "a"), (2, "b"), "closed"]
