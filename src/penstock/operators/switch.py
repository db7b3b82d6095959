"""switch: passes tuples while it is on and holds them while it is off."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from penstock.graph.operations import Switch
from penstock.operators.base import Partition, PartitionLogic
from penstock.operators.holding import Holding


class SwitchState(Holding):
    """On or off, and what came while it was off."""

    __slots__ = ("on", "status")

    def __init__(self, initially: bool, status: Callable[[Any], Any] | None) -> None:
        super().__init__()
        self.on = initially
        self.status = status

    def process(self, t: Any, port: int) -> list[Any] | None:
        if port == 0:
            if self.on:
                return [t]
            self.held_back.append(t)
            return None
        self.on = bool(t if self.status is None else self.status(t))
        return self.finish() if self.on else None


class SwitchLogic(PartitionLogic):
    """Input 0 carries tuples, input 1 (a control port) says on or off."""

    def make(self, key: Any) -> Partition:
        operation = self.node.operation
        assert isinstance(operation, Switch)
        return SwitchState(operation.initially, operation.status)
