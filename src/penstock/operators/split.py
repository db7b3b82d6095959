"""split: each tuple to one of several outputs, chosen by a function."""

from __future__ import annotations

from typing import Any

from penstock.graph.operations import Split
from penstock.operators.base import Logic, Writer


class SplitLogic(Logic):
    """Writes a chain of `if index == 0: … elif index == 1: …`."""

    nests = True

    def write(self, w: Writer, item: str, port: int) -> None:
        operation = self.node.operation
        assert isinstance(operation, Split)
        index = w.variable("index")
        w.line(f"{index} = {w.bind(operation.function, 'split')}({item})")
        for output in range(operation.ways):
            with w.block(f"{'el' if output else ''}if {index} == {output}:"):
                w.emit(output, item) if w.wanted(output) else w.line("pass")
        with w.block(f"elif not {index} < 0:"):
            w.line(f"{w.bind(self.refuse, 'refuse')}({index})")

    def refuse(self, index: Any) -> None:
        ways = self.node.operation.outputs
        raise IndexError(f"split's function must return an index from 0 to {ways - 1}, or a negative one: {index!r}")
