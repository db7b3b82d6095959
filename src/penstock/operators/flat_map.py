"""flat_map: any number of tuples out for each tuple in."""

from __future__ import annotations

from penstock.operators.base import Writer
from penstock.operators.tolerance import TolerantLogic

_HINT = "flat_map's function must return an iterable of tuples"


class FlatMapLogic(TolerantLogic):
    """Writes `for out in function(t): …`."""

    nests = True

    def write(self, w: Writer, item: str, port: int) -> None:
        out = w.variable("t")
        call = f"{w.bind(self.function, 'flat_map')}({item})"
        if self.on_error == "raise":
            with w.loop(f"for {out} in {call}:"):
                w.emit(0, out)
            return
        # A generator may fail half way: only when all of it is there has the tuple succeeded.
        results = w.variable("results")
        self.write_guarded(w, item, f"{results} = list({call})", lambda: w.emit_all(0, results), hint=_HINT)
