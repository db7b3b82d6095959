"""barrier and pair: one tuple from each input at a time."""

from __future__ import annotations

from collections import deque
from typing import Any

from penstock.operators.base import Partition, PartitionLogic


class Meeting(Partition):
    """A queue per input; when every queue holds a tuple, one of each leaves."""

    __slots__ = ("queues", "together")

    def __init__(self, ways: int, together: bool) -> None:
        self.queues: list[deque[Any]] = [deque() for _ in range(ways)]
        self.together = together

    def process(self, t: Any, port: int) -> list[Any] | None:
        self.queues[port].append(t)
        if not all(self.queues):
            return None
        met = [queue.popleft() for queue in self.queues]
        return [tuple(met)] if self.together else met

    def held(self, port: int) -> int:
        return len(self.queues[port])


class BarrierLogic(PartitionLogic):
    """Emits a tuple of one tuple from each input."""

    together = True

    def make(self, key: Any) -> Partition:
        return Meeting(self.node.operation.inputs, self.together)


class PairLogic(BarrierLogic):
    """Emits the tuples themselves, one of each input in turn."""

    together = False
