"""map: one tuple out for each tuple in."""

from __future__ import annotations

from penstock.operators.base import Writer
from penstock.operators.tolerance import TolerantLogic


class MapLogic(TolerantLogic):
    """Writes `out = function(t)`."""

    def write(self, w: Writer, item: str, port: int) -> None:
        out = w.variable("t")
        self.write_guarded(w, item, f"{out} = {w.bind(self.function, 'map')}({item})", lambda: w.emit(0, out))
