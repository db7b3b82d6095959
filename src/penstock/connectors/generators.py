"""Generated tuples: `beacon`, a source that needs no outside world."""

from __future__ import annotations

import math
from collections.abc import Callable
from typing import Any

from penstock.clock import Clock, SystemClock
from penstock.connectors.base import Batch, Offset, Source
from penstock.errors import FlowError

# Keeps a tuple due exactly now from being missed by rounding: 3 / 0.1 must be 30 tuples, not 29.
_ROUNDING = 1e-9


class Beacon(Source):
    """Tuple number `i` is `function(i)`. The offset is the number of tuples before, so replay is exact.

    With a `rate`, tuple `n` of a run is due `n / rate` seconds after its first read: a run that was held up catches
    up. `clock` may be replaced before the run.
    """

    def __init__(
        self,
        count: int | None = None,
        rate: float | None = None,
        function: Callable[[int], Any] | None = None,
        start: int = 0,
        clock: Clock | None = None,
    ) -> None:
        if count is not None and count < 0:
            raise FlowError(f"beacon(count=) must be a number from 0, or None for no end, not {count!r}")
        if rate is not None and not rate > 0:
            raise FlowError(f"beacon(rate=) must be above 0 tuples a second, or None for no limit, not {rate!r}")
        if function is not None and not callable(function):
            raise FlowError(f"beacon(function=) must be a function of the tuple's number, not {function!r}")
        self.name = "beacon"
        self.count = count
        self.rate = rate
        self.function = function
        self.start = start
        self.clock: Clock = clock if clock is not None else SystemClock()
        self._began: tuple[float, int] | None = None  # when pacing began, and with which tuple
        self._position = 0

    def fresh(self) -> Beacon:
        """An equal beacon with reading state of its own."""
        return Beacon(self.count, self.rate, self.function, self.start, self.clock)

    def initial(self) -> Offset:
        self._began = None
        return 0

    def read(self, offset: Offset, limit: int) -> Batch:
        number = min(limit, self._due(offset))
        if self.count is not None:
            number = min(number, self.count - offset)
        tuples: list[Any] = []
        if number > 0:
            wanted = range(self.start + offset, self.start + offset + number)
            try:
                self._make(wanted, tuples)
            except Exception:
                if not tuples:  # otherwise they go first, and the next read comes back to the failing one
                    raise
        self._position = offset = offset + len(tuples)
        return Batch(tuples, offset, done=self.count is not None and offset >= self.count)

    def _make(self, wanted: range, tuples: list[Any]) -> None:
        if self.function is None:
            tuples.extend(wanted)
            return
        for number in wanted:  # no map(): it would take a StopIteration of the function's for its own end
            tuples.append(self.function(number))  # noqa: PERF401 — what came before a failure must be kept

    def _due(self, offset: int) -> int:
        if self.rate is None:
            return 1 << 62
        now = self.clock.now()
        if self._began is None or offset != self._position:
            self._began = (now, offset)
        began, first = self._began
        return first + math.floor((now - began) * self.rate + _ROUNDING) + 1 - offset


def beacon(
    count: int | None = None,
    rate: float | None = None,
    function: Callable[[int], Any] | None = None,
    start: int = 0,
    *,
    clock: Clock | None = None,
) -> Beacon:
    """A source of `count` generated tuples (no end without it): `function(i)`, or `i`, for i from `start` on.

    At most `rate` tuples a second on average; without it, as fast as they are taken.

    >>> source = beacon(count=5, function=lambda i: i * i)
    >>> source.read(source.initial(), 10).tuples
    [0, 1, 4, 9, 16]
    """
    return Beacon(count, rate, function, start, clock)
