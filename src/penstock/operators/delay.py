"""delay: every tuple a fixed time later, in the same order."""

from __future__ import annotations

import threading
from collections import deque
from typing import Any

from penstock.clock import Clock
from penstock.graph.graph import Node
from penstock.graph.operations import Delay
from penstock.operators.base import Partition, PartitionLogic, Writer
from penstock.tuples import CHUNK

# The most tuples that wait at once; then the source has to wait with them.
CAPACITY = 64 * CHUNK


class Waiting(Partition):
    """Tuples with the time at which each may go. At the end of the stream all go at once."""

    __slots__ = ("clock", "seconds", "waiting")

    def __init__(self, seconds: float, clock: Clock) -> None:
        self.seconds = seconds
        self.clock = clock
        self.waiting: deque[tuple[float, Any]] = deque()

    def process(self, t: Any, port: int) -> list[Any] | None:
        now = self.clock.now()
        self.waiting.append((now + self.seconds, t))
        return self.tick(now)

    def tick(self, now: float) -> list[Any] | None:
        released = []
        while self.waiting and self.waiting[0][0] <= now:
            released.append(self.waiting.popleft()[1])
        return released

    def deadline(self) -> float | None:
        return self.waiting[0][0] if self.waiting else None

    def finish(self) -> list[Any] | None:
        released = [t for _, t in self.waiting]
        self.waiting.clear()
        return released


class DelayLogic(PartitionLogic):
    """One queue for the whole stream, also where it is keyed: a delay keeps the order of the stream.

    When it is full, the calling thread waits here until the oldest tuple may go: that is the back-pressure. It is
    freed by the clock, or by `interrupt` when the job is stopped.
    """

    timed = True

    def __init__(self, node: Node, clock: Clock | None = None) -> None:
        super().__init__(node, clock)
        self.wake = threading.Condition()
        self.stopped = False

    def write(self, w: Writer, item: str, port: int) -> None:
        super().write(w, item, port)
        released = w.variable("released")
        with w.block(f"if {w.bind(self.is_full, 'is_full')}():"):
            w.flush()
            w.line(f"{released} = {w.bind(self.wait, 'wait')}()")
            w.emit_all(0, released)

    def is_full(self) -> bool:
        return len(self.partitions[None].waiting) > CAPACITY

    def wait(self) -> list[Any] | None:
        """Wait until the oldest tuple may go; returns what may go then."""
        queue: Waiting = self.partitions[None]
        with self.wake:
            while not self.stopped and self.clock.now() < queue.waiting[0][0]:
                self.clock.wait(queue.waiting[0][0], self.wake)
        return None if self.stopped else queue.tick(self.clock.now())

    def interrupt(self) -> None:
        with self.wake:
            self.stopped = True
            self.wake.notify_all()

    def make(self, key: Any) -> Partition:
        operation = self.node.operation
        assert isinstance(operation, Delay)
        return Waiting(operation.seconds, self.clock)
