"""Event times: numbers and datetimes counted exactly, and the grid of panes that aligned windows are made of.

Inside the engines a time is a plain number: the number itself, or microseconds since 1970 for a datetime. Naive
datetimes count as UTC; aware ones come back in the zone of the first time seen.

Window bounds are multiples of decimal steps such as 0.1, which floats cannot hold. So bounds are computed as exact
fractions and rounded once: the end of one window and the start of the next are the same float, every time lies in
[start, end) of its window, and the bounds print as the user expects (0.6, not 0.6000000000000001).
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta
from fractions import Fraction
from functools import lru_cache
from numbers import Real
from typing import Any

from penstock.windows.policies import Window

Number = int | float
Exact = int | Fraction

_NAIVE_EPOCH = datetime(1970, 1, 1)  # noqa: DTZ001 - naive on purpose
_AWARE_EPOCH = datetime(1970, 1, 1, tzinfo=UTC)
_MICROSECOND = timedelta(microseconds=1)
_MICROSECONDS = 1_000_000


def number_of(time: Any) -> Any:
    """A time as a number.

    >>> number_of(5), number_of(datetime(1970, 1, 1, 0, 0, 1))
    (5, 1000000)
    """
    if time.__class__ is int or (time.__class__ is float and math.isfinite(time)):
        return time
    if isinstance(time, datetime):
        epoch = _NAIVE_EPOCH if time.tzinfo is None else _AWARE_EPOCH
        return (time - epoch) // _MICROSECOND
    if isinstance(time, Real) and math.isfinite(time):
        return time
    raise TypeError(f"an event time must be a finite number or a datetime, not {time!r}")


def time_of(number: Number, like: Any) -> Any:
    """The number as a time of the type of `like`; whole numbers stay whole for ints.

    >>> time_of(60, 5), time_of(60, 5.0), time_of(1_000_000, datetime(2020, 5, 1))
    (60, 60.0, datetime.datetime(1970, 1, 1, 0, 0, 1))
    """
    if isinstance(like, datetime):
        since = timedelta(microseconds=number)
        if like.tzinfo is None:
            return _NAIVE_EPOCH + since
        return (_AWARE_EPOCH + since).astimezone(like.tzinfo)
    if isinstance(like, float):
        return float(number)
    return int(number) if number == int(number) else number


def comparable(bound: Number, like: Any) -> Any:
    """A bound as something that times like this can be compared with: as exact as the bound itself.

    Datetimes have whole microseconds: those from a bound on are those from the next whole microsecond on.

    >>> comparable(333_333.3, datetime(2020, 5, 1)).microsecond
    333334
    """
    return time_of(math.ceil(bound), like) if isinstance(like, datetime) else time_of(bound, like)


def units_in(like: Any) -> int:
    """How many of our numbers make a second of a time like this."""
    return _MICROSECONDS if isinstance(like, datetime) else 1


def exact(value: Number) -> Exact:
    """The decimal number the user wrote, without the error of its float.

    >>> exact(0.1), exact(60.0)
    (Fraction(1, 10), 60)
    """
    return _simplest(Fraction(repr(value))) if isinstance(value, float) else value


def rounded(value: Exact) -> Number:
    """The nearest number a tuple can be compared with quickly."""
    return value if isinstance(value, int) else float(value)


def scaled(value: Number, units: int) -> Number:
    """A span of seconds in `units` per second."""
    return rounded(_simplest(Fraction(exact(value) * units)))


def _simplest(value: Fraction) -> Exact:
    return value.numerator if value.denominator == 1 else value


def _greatest_common_divisor(left: Exact, right: Exact) -> Exact:
    a, b = Fraction(left), Fraction(right)
    common = math.gcd(a.numerator * b.denominator, b.numerator * a.denominator)
    return _simplest(Fraction(common, a.denominator * b.denominator))


@dataclass(frozen=True)
class Grid:
    """Aligned windows as whole numbers of panes: window w covers panes [w * step, w * step + size).

    >>> grid = grid_of(Window("event", 10, sliding=True, every=4, on="ts"), 1)
    >>> grid.pane, grid.step, grid.size
    (2, 2, 5)
    >>> [grid.bound(3 * grid.step + pane) for pane in range(grid.size)]
    [12, 14, 16, 18, 20]
    """

    pane: Exact
    step: int
    size: int
    late: Exact

    def bound(self, pane: int) -> Number:
        """Where a pane starts."""
        return rounded(pane * self.pane)

    def closes_at(self, pane: int) -> Number:
        """The newest time that closes the windows ending before `pane`."""
        return rounded(pane * self.pane + self.late)

    def pane_of(self, number: Number) -> int:
        """The pane that holds a time: the last one that starts at or before it.

        The first guess is off by float rounding only. But where panes are much smaller than the distance between floats
        (a size of 0.1 * 3 and a step of 0.1 have panes of 4e-17), that may be very many panes: so the steps double.
        """
        low = int(number // self.pane)
        step = 1
        while self.bound(low) > number:
            low, step = low - step, 2 * step
        high, step = low + 1, 1
        while self.bound(high) <= number:
            low, high, step = high, high + step, 2 * step
        while high - low > 1:
            middle = (low + high) // 2
            low, high = (middle, high) if self.bound(middle) <= number else (low, middle)
        return low

    def first_window(self, pane: int) -> int:
        """The first window that reaches over `pane`."""
        return (pane - self.size) // self.step + 1

    def last_window(self, pane: int) -> int:
        """The last window that starts at or before `pane`."""
        return pane // self.step

    def first_open(self, newest: Number) -> int:
        """The first window that is still open when `newest` is the newest time seen."""
        window = self.first_window(self.pane_of(newest - rounded(self.late)))
        while newest >= self.closes_at(window * self.step + self.size):
            window += 1
        while newest < self.closes_at((window - 1) * self.step + self.size):
            window -= 1
        return window


@lru_cache(maxsize=256)
def grid_of(window: Window, units: int) -> Grid:
    """The grid of an event-time window, for times of `units` per second."""
    size, step, late = exact(window.size) * units, exact(window.step) * units, exact(window.late) * units
    pane = _greatest_common_divisor(size, step)
    return Grid(pane, int(Fraction(step) / pane), int(Fraction(size) / pane), late)
