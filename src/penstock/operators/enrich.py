"""enrich: each tuple together with the latest tuple of its key on a second stream (the CDR program's Enricher)."""

from __future__ import annotations

from collections import deque
from typing import Any

from penstock.clock import Clock
from penstock.graph.graph import Node
from penstock.graph.operations import Enrich
from penstock.operators.base import Emit, KeyedState, Logic, Writer
from penstock.operators.keys import write_key


def _nothing(_key: Any) -> None:
    return None


class EnrichLogic(Logic):
    """Input 0 carries tuples, input 1 the rows of the table. Only rows take memory, not keys that were looked up.

    Where it waits for the whole table, tuples are held in the order in which they came until input 1 has ended.
    """

    def __init__(self, node: Node, clock: Clock | None = None) -> None:
        super().__init__(node, clock)
        assert isinstance(node.operation, Enrich)
        self.function = node.operation.function
        self.waits = self.ends_segment = node.operation.waits
        self.rows = KeyedState(_nothing)
        self.open_table = [True]  # emptied when the table has ended; a list, because generated code looks at it
        self.held: deque[Any] = deque()

    def write(self, w: Writer, item: str, port: int) -> None:
        if port == 0 and self.waits:
            with w.block(f"if {w.bind(self.open_table, 'open_table')}:"):
                w.line(f"{w.bind(self.held.append, 'hold')}({item})")
            with w.block("else:"):
                self._write_look_up(w, item)
        elif port == 0:
            self._write_look_up(w, item)
        else:
            key = write_key(w, item, self.node.inputs[1].key)
            w.line(f"{w.bind(self.rows, 'rows')}[{key}] = {item}")

    def _write_look_up(self, w: Writer, item: str) -> None:
        key = write_key(w, item, self.node.inputs[0].key)
        out, rows = w.variable("t"), w.bind(self.rows, "rows")
        w.line(f"{out} = {w.bind(self.function, 'enrich')}({item}, {rows}.get({key}))")
        w.emit(0, out)

    def on_port_final(self, port: int, emit: Emit) -> None:
        if port == 1 and self.waits:
            self.open_table.clear()
            key = self.node.inputs[0].key
            assert key is not None, "both inputs have keys"
            key_of, rows, enrich = key.getter(), self.rows, self.function
            while self.held:
                item = self.held.popleft()
                emit(0, [enrich(item, rows.get(key_of(item)))])

    def backlog(self, port: int) -> int:
        return len(self.held) if port == 0 else 0

    def snapshot(self) -> Any:
        return (bool(self.open_table), list(self.held)) if self.waits else None

    def restore(self, saved: Any) -> None:
        waiting, held = saved
        self.open_table[:] = [True] if waiting else []
        self.held.clear()
        self.held.extend(held)
