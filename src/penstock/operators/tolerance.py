"""What a per-tuple function does about tuples it fails on: stop the job, skip them, or make dead letters of them."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from penstock.clock import Clock
from penstock.graph.graph import Node
from penstock.graph.operations import Tolerant
from penstock.operators.base import Logic, Writer
from penstock.tuples import DeadLetter


class TolerantLogic(Logic):
    """Base of map, filter and flat_map."""

    def __init__(self, node: Node, clock: Clock | None = None) -> None:
        super().__init__(node, clock)
        assert isinstance(node.operation, Tolerant)
        self.tolerant: Tolerant = node.operation
        self.function = node.operation.function
        self.on_error = node.operation.on_error
        self.skipped = [0]  # a cell that generated code counts in
        self.nests = self.nests or self.on_error != "raise"

    def write_guarded(self, w: Writer, item: str, statement: str, then: Callable[[], None], hint: str = "") -> None:
        """`statement`, then the code `then` writes; a failure of `statement` alone is handled as the user asked."""
        if self.on_error == "raise":
            w.line(statement, hint=hint)
            then()
            return
        with w.block("try:"):
            w.line(statement)
        with w.block("except Exception as error:"):
            if self.on_error == "skip":
                w.line(f"{w.bind(self.skipped, 'skipped')}[0] += 1")
            else:
                letter = w.variable("letter")
                w.line(f"{letter} = {w.bind(self.refuse, 'refuse')}({item}, error)")
                w.emit(self.tolerant.dead_port, letter, last=False)
        with w.block("else:"):
            then()

    def refuse(self, item: Any, error: Exception) -> DeadLetter:
        return DeadLetter(item, self.node.user_name, f"{type(error).__name__}: {error}")

    def counters(self) -> dict[str, int]:
        return {"skipped": self.skipped[0]} if self.on_error == "skip" else {}
