"""switch: passes tuples while it is on and holds them while it is off."""

from __future__ import annotations

from collections import deque
from collections.abc import Callable
from typing import Any

from penstock.graph.operations import Switch
from penstock.operators.base import Partition, PartitionLogic


class SwitchState(Partition):
    """On or off, and what came while it was off. What is held at the end of the stream is released."""

    __slots__ = ("held_back", "on", "status")

    def __init__(self, initially: bool, status: Callable[[Any], Any] | None) -> None:
        self.on = initially
        self.status = status
        self.held_back: deque[Any] = deque()

    def process(self, t: Any, port: int) -> list[Any] | None:
        if port == 0:
            if self.on:
                return [t]
            self.held_back.append(t)
            return None
        self.on = bool(t if self.status is None else self.status(t))
        return self.finish() if self.on else None

    def finish(self) -> list[Any] | None:
        released = list(self.held_back)
        self.held_back.clear()
        return released

    def held(self, port: int) -> int:
        return len(self.held_back) if port == 0 else 0


class SwitchLogic(PartitionLogic):
    """Input 0 carries tuples, input 1 (a control port) says on or off."""

    def make(self, key: Any) -> Partition:
        operation = self.node.operation
        assert isinstance(operation, Switch)
        return SwitchState(operation.initially, operation.status)
