"""delay: every tuple a fixed time later, in the same order."""

from __future__ import annotations

from collections import deque
from typing import Any

from penstock.clock import Clock
from penstock.graph.operations import Delay
from penstock.operators.base import Partition, PartitionLogic


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
    """One queue for the whole stream, also where it is keyed: a delay keeps the order of the stream."""

    timed = True

    def make(self, key: Any) -> Partition:
        operation = self.node.operation
        assert isinstance(operation, Delay)
        return Waiting(operation.seconds, self.clock)
