"""split: each tuple to one of several outputs, chosen by a function."""

from __future__ import annotations

from typing import Any

from penstock.graph.operations import Split
from penstock.operators.base import Logic, Writer

# More outputs than this are looked up, where all of them lead out of the segment.
_FEW = 4
# Python's compiler takes chains of some hundred `elif`s; longer ones are cut into groups.
_GROUP = 64


class SplitLogic(Logic):
    """Writes a look-up, or a chain of `if index == 0: … elif index == 1: …`, in groups where there are many outputs."""

    nests = True

    def write(self, w: Writer, item: str, port: int) -> None:
        operation = self.node.operation
        assert isinstance(operation, Split)
        index = w.variable("index")
        w.line(f"{index} = {w.bind(operation.function, 'split')}({item})")
        unknown = w.emit_to_one(index, operation.ways, item) if operation.ways > _FEW else None
        if unknown is not None:
            with w.block(f"elif {unknown} and not {index} < 0:"):
                w.line(f"{w.bind(self.refuse, 'refuse')}({index})")
            return
        if operation.ways <= _GROUP:
            self._write_outputs(w, item, index, range(operation.ways))
            return
        for start in range(0, operation.ways, _GROUP):
            with w.block(f"{'el' if start else ''}if {index} < {start + _GROUP}:"):
                self._write_outputs(w, item, index, range(start, min(start + _GROUP, operation.ways)))
        with w.block("else:"):
            w.line(f"{w.bind(self.refuse, 'refuse')}({index})")

    def _write_outputs(self, w: Writer, item: str, index: str, outputs: range) -> None:
        for output in outputs:
            with w.block(f"{'' if output == outputs.start else 'el'}if {index} == {output}:"):
                w.emit(output, item) if w.wanted(output) else w.line("pass")
        with w.block(f"elif not {index} < 0:"):
            w.line(f"{w.bind(self.refuse, 'refuse')}({index})")

    def refuse(self, index: Any) -> None:
        ways = self.node.operation.outputs
        raise IndexError(f"split's function must return an index from 0 to {ways - 1}, or a negative one: {index!r}")
