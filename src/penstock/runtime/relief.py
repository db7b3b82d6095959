"""The relief thread: when an iterator blocks in the middle of a read, it carries on with what was already pulled.

Without it, a burst of 700 tuples followed by silence would leave the last ones inside a half-filled chunk for as long
as the silence lasts. It exists only where a source reads an iterator, and looks every few milliseconds, which costs
less than a hundredth of a core.
"""

from __future__ import annotations

import threading
import time
from typing import TYPE_CHECKING

from penstock.runtime.source_loop import SourceLoop

if TYPE_CHECKING:
    from penstock.runtime.pe import PE

INTERVAL = 0.005  # seconds between looks: the longest a pulled tuple waits is this and `source_loop.SLOW`


class Relief:
    """Watches the sources that read iterators."""

    def __init__(self, pe: PE, sources: list[SourceLoop]) -> None:
        self._pe = pe
        self._sources = sources
        self.thread = threading.Thread(target=self._run, name=f"{pe.graph.name}: relief", daemon=True)

    def start(self) -> None:
        self.thread.start()

    def _run(self) -> None:
        try:
            while not self._pe.stopping and not all(source.ended for source in self._sources):
                self._pe.idle(INTERVAL)
                now = time.perf_counter()
                for source in self._sources:
                    source.relieve(now)
        except BaseException as error:  # whatever the program raised while being carried
            self._pe.fail(error)
