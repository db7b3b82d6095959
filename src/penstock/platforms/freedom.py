"""How long a batch operator lets other threads run Python code: the part of its time with the GIL free.

While the operator works on a chunk it was seen with, another thread does nothing but sleep as briefly as it can and
count. Waking up takes the GIL, so it counts fast while the GIL is free and hardly at all while it is held (Python takes
the GIL from its holder every few milliseconds). How fast it counts, compared with a time in which nobody needs the GIL,
is the answer. The operator and that idle time take turns, and the middle one of several answers counts.

Other ways are easily misled. Processor times do not tell: a holder and a waiter of the GIL take turns and get the same.
Two busy threads on the clock only tell on a machine with two idle cores. Here the other thread needs next to no
processor time, and what else runs on the machine slows it down alike in both times. What it cannot see are stretches
shorter than its sleep, some 60 µs: an operator that takes and frees the GIL faster than that seems more free than it
is. Operators that work on one chunk in one or a few calls do not.
"""

from __future__ import annotations

import statistics
import threading
import time
from collections.abc import Callable
from typing import Any

_NAP = 2e-5  # the timer of the machine adds to it
_PIECE = 0.02  # seconds of one try
_TRIES = 5


class Keeper:
    """A function of an operator that keeps the largest chunk it was called with."""

    def __init__(self, function: Callable[[list[Any]], Any]) -> None:
        self.function = function
        self.chunk: list[Any] = []

    def __call__(self, tuples: list[Any]) -> Any:
        if len(tuples) > len(self.chunk):
            self.chunk = list(tuples)
        return self.function(tuples)

    def again(self) -> None:
        """Call the function with that chunk."""
        self.function(list(self.chunk))


def freedom(function: Callable[[], object], tries: int = _TRIES) -> float:
    """The part of the time of `function` in which other threads may run Python code, from 0 to 1.

    >>> freedom(lambda: time.sleep(0.005)) > 0.5  # sleeping frees the GIL
    True
    """
    with _Counter() as counter:
        found = []
        for _ in range(tries):
            idle = counter.rate(lambda: time.sleep(_PIECE))
            found.append(counter.rate(function) / idle if idle > 0 else 0.0)
    return min(1.0, max(0.0, statistics.median(found)))


class _Counter:
    """A thread that counts whenever it gets the GIL, with a nap in between."""

    def __init__(self) -> None:
        self._count = 0
        self._ended = False
        self._thread = threading.Thread(target=self._run, name="penstock-freedom", daemon=True)

    def __enter__(self) -> _Counter:
        self._thread.start()
        return self

    def __exit__(self, *error: object) -> None:
        self._ended = True
        self._thread.join()

    def _run(self) -> None:
        while not self._ended:
            time.sleep(_NAP)
            self._count += 1

    def rate(self, function: Callable[[], object]) -> float:
        """Counts per second while `function` runs, as often as fits into one try."""
        before, start = self._count, time.perf_counter()
        while (now := time.perf_counter()) - start < _PIECE:
            function()
        return (self._count - before) / (now - start)
