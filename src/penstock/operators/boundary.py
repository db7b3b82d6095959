"""The ends of a replicated region: the runtime deals and gathers whole chunks there, so there is no logic per tuple."""

from __future__ import annotations

from penstock.operators.base import Logic, Writer


class BoundaryLogic(Logic):
    """Stands for `Deal` and `Gather` in the graph (`runtime.splitter`, `runtime.merger`)."""

    ends_segment = True
    whole_chunk = True

    def write(self, w: Writer, item: str, port: int) -> None:
        w.line("pass")
