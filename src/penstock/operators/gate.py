"""gate: a limited number of tuples under way; acknowledgements let further ones pass."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from penstock.graph.operations import Gate
from penstock.operators.base import Partition, PartitionLogic
from penstock.operators.holding import Holding


class GateState(Holding):
    """How many tuples have passed unacknowledged, and the ones that wait for their turn."""

    __slots__ = ("count", "limit", "under_way")

    def __init__(self, limit: int, count: Callable[[Any], int] | None) -> None:
        super().__init__()
        self.limit = limit
        self.count = count
        self.under_way = 0

    def process(self, t: Any, port: int) -> list[Any] | None:
        if port == 0:
            self.held_back.append(t)
        else:
            acknowledged = 1 if self.count is None else self.count(t)
            self.under_way = max(0, self.under_way - acknowledged)
        return self._pass_on()

    def _pass_on(self) -> list[Any]:
        free = min(self.limit - self.under_way, len(self.held_back))
        self.under_way += free
        return [self.held_back.popleft() for _ in range(free)]


class GateLogic(PartitionLogic):
    """Input 0 carries tuples, input 1 (a control port) acknowledgements."""

    def make(self, key: Any) -> Partition:
        operation = self.node.operation
        assert isinstance(operation, Gate)
        return GateState(operation.limit, operation.acknowledges)
