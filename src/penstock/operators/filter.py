"""filter: the tuples for which a function is true, and maybe the rest as a second stream."""

from __future__ import annotations

from penstock.graph.operations import Filter
from penstock.operators.base import Writer
from penstock.operators.tolerance import TolerantLogic


class FilterLogic(TolerantLogic):
    """Writes `if function(t): …`, or `continue` where nothing else follows in the loop."""

    def write(self, w: Writer, item: str, port: int) -> None:
        assert isinstance(self.tolerant, Filter)
        test = f"{w.bind(self.function, 'filter')}({item})"
        if self.on_error != "raise":
            passed = w.variable("passed")
            self.write_guarded(w, item, f"{passed} = {test}", lambda: self._branch(w, item, passed))
        else:
            self._branch(w, item, test)

    def _branch(self, w: Writer, item: str, test: str) -> None:
        rest = isinstance(self.tolerant, Filter) and self.tolerant.split and w.wanted(1)
        if not rest and w.may_continue:
            w.line(f"if not {test}: continue")
            w.emit(0, item)
            return
        with w.block(f"if {test}:"):
            w.emit(0, item)
        if rest:
            with w.block("else:"):
                w.emit(1, item)
