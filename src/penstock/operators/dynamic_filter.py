"""dynamic_filter: passes tuples whose value is in a set that a control stream changes (language runtime §5.7)."""

from __future__ import annotations

from typing import Any

from penstock.clock import Clock
from penstock.graph.graph import Node
from penstock.graph.operations import DynamicFilter
from penstock.operators.base import Logic, Writer


class DynamicFilterLogic(Logic):
    """Input 0 carries tuples, input 1 (a control port) additions and removals."""

    nests = True

    def __init__(self, node: Node, clock: Clock | None = None) -> None:
        super().__init__(node, clock)
        assert isinstance(node.operation, DynamicFilter)
        self.operation: DynamicFilter = node.operation
        self.values = set(self.operation.initial)

    def snapshot(self) -> Any:
        return self.values

    def restore(self, saved: Any) -> None:
        self.values.clear()
        self.values.update(saved)

    def write(self, w: Writer, item: str, port: int) -> None:
        if port == 1:
            w.line(f"{w.bind(self.change, 'change')}({item})")
            return
        by = self.operation.by
        value = w.attribute(item, by)
        with w.block(f"if {value} in {w.bind(self.values, 'values')}:"):
            w.emit(0, item)

    def change(self, t: Any) -> None:
        action, value = self._parse(t)
        if action == "add":
            self.values.add(value)
        elif action == "remove":
            self.values.discard(value)
        else:
            raise ValueError(f"dynamic_filter's control stream carries ('add' or 'remove', value), not {t!r}")

    def _parse(self, t: Any) -> tuple[Any, Any]:
        pair = t if self.operation.update is None else self.operation.update(t)
        if not isinstance(pair, tuple | list) or len(pair) != 2:
            raise ValueError(f"dynamic_filter's control stream carries ('add' or 'remove', value), not {t!r}")
        return pair[0], pair[1]
