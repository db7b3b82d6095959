"""punctuate: marks window boundaries in a stream where a function says so."""

from __future__ import annotations

from penstock.graph.operations import Punctuate
from penstock.operators.base import Logic, Writer


class PunctuateLogic(Logic):
    """Sends the tuple, and a window punctuation after (or before) it."""

    ends_segment = True

    def write(self, w: Writer, item: str, port: int) -> None:
        operation = self.node.operation
        assert isinstance(operation, Punctuate)
        marked = w.variable("marked")
        w.line(f"{marked} = {w.bind(operation.function, 'punctuate')}({item})")
        if not operation.before:
            w.emit(0, item, last=False)
        with w.block(f"if {marked}:"):
            w.mark(0)
        if operation.before:
            w.emit(0, item, last=False)
