"""Several pipelines in one stage of a task: threads of the worker process, with a queue between each two of them.

A stage that keeps state over the whole stream has one channel, so one task works while the others' cores stand idle.
Where some of its operators free the GIL, they can overlap. The threads, queues, turns and locks are those of the local
runtime (`runtime.worker`, `runtime.port`, `runtime.turn`, `runtime.locks`). The task's own thread feeds the stage and
runs its first pipeline; each further one has a queue in front of it and a thread.

What it guarantees
* Order and state are those of one thread. A queue keeps its order and has one consumer at a time, who keeps its flag
  until all that came of an item has left its hands. An operator's state is touched by the pipeline it is in. The task's
  thread touches that of others (marks, times, ends, snapshots) only after `settle`, when all of them stand still.
* Nothing is lost. `settle` goes through the pipelines from the first to the last, and leaves each when its queue is
  empty, nobody has its consumer flag, and its thread has left its turn. Only pipelines before it could bring it more,
  and those stand still. A batch ends, and state is written back, after that and not before.
* It cannot deadlock. Threads take flags and locks in topological order only, and who finds a queue full works it off
  (`runtime.turn`). The task's thread waits in `settle` with nothing in its hands; a thread that has died is noticed.
* Memory is bounded: a queue holds as many tuples as one of a local run.
* Errors are those of one thread: a failing operator gets no more, what was sent before still goes its way, and of
  several errors the one furthest down is reported, as its tuple came first.

Leaving the stage and asking Spark's store are done by one thread at a time: both have a lock, held for no more than one
chunk or one question.
"""

from __future__ import annotations

import threading
from collections.abc import Iterator, Mapping

from penstock.errors import OperatorError
from penstock.graph.graph import Graph, Target
from penstock.platforms.spark.state import Entries
from penstock.runtime.ending import PATIENCE
from penstock.runtime.locks import place_locks
from penstock.runtime.port import LOOK_AGAIN, Port
from penstock.runtime.segment import Entry, Segment
from penstock.runtime.turn import Turn
from penstock.runtime.worker import DedicatedThread

_TASK = "task"  # the thread that feeds; no port is called so


class Pipelines:
    """The threads of one stage for one batch, and the queues they run."""

    pausing = False

    def __init__(self, graph: Graph, targets: frozenset[Target]) -> None:
        self.graph = graph
        rank = {index: place for place, index in enumerate(graph.topological)}
        self.ports: Mapping[Target, Port] = {
            target: Port(target, f"{graph.nodes[target.node].name}[{target.port}]")
            for target in sorted(targets, key=lambda target: (rank[target.node], target.port))
        }
        self._abandoned = False
        self._moved = threading.Event()
        self._errors: list[BaseException] = []
        self._rank = {graph.nodes[index].name: place for index, place in rank.items()}
        self._threads = [DedicatedThread(self, port) for port in self.ports.values()]

    def connect(self, segments: Mapping[int, Segment], fed: frozenset[Target]) -> None:
        """Put the queues before their segments. `fed` are the ports where the task's thread brings tuples in."""
        feeding = [Port(target, _TASK) for target in fed if target not in self.ports]
        for port in (*self.ports.values(), *feeding):
            port.entry = Entry(segments[port.target.node], port.target.port)
        place_locks(list(segments.values()), [*self.ports.values(), *feeding])

    def start(self) -> None:
        """Start the threads."""
        for thread in self._threads:
            thread.start()

    def drain(self, turn: Turn) -> None:
        """Let the task's thread carry what is in its hands, up to the next queues."""
        try:
            turn.drain()
        except BaseException as error:
            self.fail(error)
        if self._errors:
            self.settle()

    def settle(self) -> None:
        """Wait until nothing is under way; raises what went wrong in any thread."""
        for thread in self._threads:
            while not self._stands_still(thread):
                self._moved.wait(LOOK_AGAIN)  # freed by threads that have run items
        if self._errors:
            raise max(self._errors, key=self._place)

    def _stands_still(self, thread: DedicatedThread) -> bool:
        self._moved.clear()
        with thread.turn.guard:  # held by the thread while it is at work
            return thread.port.idle or not thread.thread.is_alive()

    def _place(self, error: BaseException) -> float:
        """How far down an error happened; a defect of ours comes before all others."""
        return self._rank.get(error.operator, -1) if isinstance(error, OperatorError) else float("inf")

    def close(self) -> None:
        """End the threads. What is still in queues, after an error of the task's own, is thrown away."""
        self._abandoned = True
        for thread in self._threads:
            thread.stopped = True
            thread.wake()
        for thread in self._threads:
            if thread.thread.ident is not None:
                thread.thread.join(PATIENCE)

    # -------------------------------------------------------------------------------------- what threads ask of it

    def make_turn(self) -> Turn:
        return Turn(lambda: self._abandoned)

    def forget_turn(self, turn: Turn) -> None:
        """Nobody keeps a list of turns here."""

    def enter(self, turn: Turn) -> None:
        turn.guard.acquire()

    def leave(self, turn: Turn) -> None:
        turn.guard.release()

    def after_items(self) -> None:
        self._moved.set()

    def fail(self, error: BaseException) -> None:
        self._errors.append(error)
        self._moved.set()


class OneAtATime:
    """Entries of Spark's store for several threads: it answers one question after the other."""

    def __init__(self, entries: Entries) -> None:
        self._entries = entries
        self._lock = threading.Lock()

    def get(self, operator: int, number: int) -> bytes | None:
        with self._lock:
            return self._entries.get(operator, number)

    def put(self, operator: int, number: int, value: bytes) -> None:
        with self._lock:
            self._entries.put(operator, number, value)

    def remove(self, operator: int, number: int) -> None:
        with self._lock:
            self._entries.remove(operator, number)

    def items(self) -> Iterator[tuple[int, int, bytes]]:
        with self._lock:
            return iter(list(self._entries.items()))
