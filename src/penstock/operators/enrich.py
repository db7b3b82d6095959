"""enrich: each tuple together with the latest tuple of its key on a second stream (the CDR program's Enricher)."""

from __future__ import annotations

from typing import Any

from penstock.clock import Clock
from penstock.graph.graph import Node
from penstock.graph.operations import Enrich
from penstock.operators.base import KeyedState, Logic, Writer
from penstock.operators.keys import write_key


def _nothing(_key: Any) -> None:
    return None


class EnrichLogic(Logic):
    """Input 0 carries tuples, input 1 the rows of the table. Only rows take memory, not keys that were looked up."""

    def __init__(self, node: Node, clock: Clock | None = None) -> None:
        super().__init__(node, clock)
        assert isinstance(node.operation, Enrich)
        self.function = node.operation.function
        self.rows = KeyedState(_nothing)

    def write(self, w: Writer, item: str, port: int) -> None:
        key = write_key(w, item, self.node.inputs[port].key)
        rows = w.bind(self.rows, "rows")
        if port == 1:
            w.line(f"{rows}[{key}] = {item}")
            return
        out = w.variable("t")
        w.line(f"{out} = {w.bind(self.function, 'enrich')}({item}, {rows}.get({key}))")
        w.emit(0, out)
