"""SPL windows, which follow arrival: when tuples enter, when they leave, and when the window fires.

A driver here decides; the contents it drives do the rest: hold tuples for the user's callbacks, or only running
aggregates. So the rules of a policy are written once, and a mean over a million tuples holds no tuple.

Drivers never ask a clock. They are told the time, so their state can be pickled, moved and resumed elsewhere.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Callable
from datetime import timedelta
from typing import Any, Protocol

from penstock.tuples import attribute_getter
from penstock.windows.policies import Window


class Contents(Protocol):
    """What a driver drives."""

    def insert(self, t: Any) -> None:
        """A tuple enters."""
        ...

    def evict(self) -> None:
        """The oldest tuple leaves."""
        ...

    def remove(self, positions: list[int], kept: list[Any]) -> None:
        """The tuples at `positions`, oldest first, leave out of turn; `kept` are those that stay."""
        ...

    def trigger(self) -> None:
        """The window fires."""
        ...

    def clear(self) -> None:
        """All tuples leave."""
        ...


class Driver:
    """The rules of one policy for one partition."""

    def __init__(self, window: Window, contents: Contents) -> None:
        self.window = window
        self.contents = contents
        self.held = 0  # tuples in the window

    def insert(self, t: Any, now: float) -> None:
        """A tuple arrives at time `now`."""
        raise NotImplementedError

    def mark(self) -> None:
        """A window punctuation arrives."""

    def tick(self, now: float) -> None:
        """Time has passed."""

    def deadline(self) -> float | None:
        """When `tick` could matter next."""
        return None

    def finish(self) -> None:
        """The stream has ended."""
        if not self.window.sliding and self.window.partial:
            self.flush()

    def flush(self) -> None:
        """Fire and empty the window, unless it is empty."""
        if self.held:
            self.contents.trigger()
            self.contents.clear()
            self.held = 0

    def _enter(self, t: Any) -> None:
        self.contents.insert(t)
        self.held += 1

    def _leave(self) -> None:
        self.contents.evict()
        self.held -= 1


class TumblingCount(Driver):
    """Flushed by its n-th tuple."""

    def insert(self, t: Any, now: float) -> None:
        self._enter(t)
        if self.held >= self.window.size:
            self.flush()


class TumblingPunctuation(Driver):
    """Flushed by window punctuation."""

    def insert(self, t: Any, now: float) -> None:
        self._enter(t)

    def mark(self) -> None:
        self.flush()


class TumblingTime(Driver):
    """Flushed `size` seconds after its first tuple came."""

    opened = 0.0

    def insert(self, t: Any, now: float) -> None:
        self.tick(now)
        if not self.held:
            self.opened = now
        self._enter(t)

    def tick(self, now: float) -> None:
        if self.held and now >= self.opened + self.window.size:
            self.flush()

    def deadline(self) -> float | None:
        return self.opened + self.window.size if self.held else None


class _Measured(Driver):
    """A window in units of an attribute; datetimes are measured in seconds."""

    def __init__(self, window: Window, contents: Contents) -> None:
        super().__init__(window, contents)
        assert window.on is not None, "the policy made sure of it"
        self.measure: Callable[[Any], Any] = attribute_getter(window.on)


class TumblingDelta(_Measured):
    """Flushed by the first tuple more than `size` past its first tuple."""

    first: Any = None

    def insert(self, t: Any, now: float) -> None:
        x = self.measure(t)
        if self.held and distance(self.first, x) > self.window.size:
            self.flush()
        if not self.held:
            self.first = x
        self._enter(t)


class SlidingCount(Driver):
    """Holds the `size` newest tuples and fires at every `every`-th arrival."""

    def __init__(self, window: Window, contents: Contents) -> None:
        super().__init__(window, contents)
        self.every = 1 if window.every is None else window.every
        self.arrived = 0  # since the last multiple of `every`

    def insert(self, t: Any, now: float) -> None:
        self._enter(t)
        if self.held > self.window.size:
            self._leave()
        self.arrived += 1
        if self.arrived >= self.every:
            self.arrived = 0
            if self.held == self.window.size or self.window.partial:
                self.contents.trigger()


class SlidingDelta(_Measured):
    """Holds what is at most `size` behind the newest tuple."""

    def __init__(self, window: Window, contents: Contents) -> None:
        super().__init__(window, contents)
        self.entries: deque[tuple[Any, Any]] = deque()  # (x, tuple), in order of arrival
        self.in_order = True  # x never fell while the window was not empty: then the oldest are the farthest behind
        self.fired: Any = None  # x of the last firing; at first, x of the first tuple

    def insert(self, t: Any, now: float) -> None:
        x = self.measure(t)
        self._evict_behind(x)
        if not self.entries:
            self.in_order = True
        elif x < self.entries[-1][0]:
            self.in_order = False
        self.entries.append((x, t))
        self._enter(t)
        if self._is_due(x):
            self.fired = x
            self.contents.trigger()

    def _evict_behind(self, x: Any) -> None:
        entries, size = self.entries, self.window.size
        while entries and distance(entries[0][0], x) > size:
            entries.popleft()
            self._leave()
        if not self.in_order:
            self._evict_among(x)

    def _evict_among(self, x: Any) -> None:
        gone = [position for position, entry in enumerate(self.entries) if distance(entry[0], x) > self.window.size]
        if gone:
            self.entries = deque(entry for entry in self.entries if not distance(entry[0], x) > self.window.size)
            self.contents.remove(gone, [entry[1] for entry in self.entries])
            self.held = len(self.entries)

    def _is_due(self, x: Any) -> bool:
        if self.window.every is None:
            return True
        if self.fired is None:
            self.fired = x
        return bool(distance(self.fired, x) >= self.window.every)


class SlidingTime(Driver):
    """Holds what came less than `size` seconds ago; fires at each tuple, or every `every` seconds.

    Firing times are counted from the arrival of the first tuple. A window that is empty then does not fire.
    """

    def __init__(self, window: Window, contents: Contents) -> None:
        super().__init__(window, contents)
        self.arrivals: deque[float] = deque()
        self.first: float | None = None
        self.firings = 0  # firing times passed since `first`

    def insert(self, t: Any, now: float) -> None:
        self.tick(now)
        if self.first is None:
            self.first = now
        self.arrivals.append(now)
        self._enter(t)
        if self.window.every is None:
            self.contents.trigger()
        elif self.held == 1:
            self._skip_to(now)

    def tick(self, now: float) -> None:
        due = self.deadline()
        while due is not None and due <= now:
            self._evict_at(due)
            if self.held:
                self.contents.trigger()
            self.firings += 1
            due = self.deadline()
        self._evict_at(now)

    def deadline(self) -> float | None:
        if self.window.every is None or not self.held or self.first is None:
            return None
        return self.first + (self.firings + 1) * self.window.every

    def _evict_at(self, now: float) -> None:
        while self.arrivals and now >= self.arrivals[0] + self.window.size:
            self.arrivals.popleft()
            self._leave()

    def _skip_to(self, now: float) -> None:
        """Pass over the firing times at which the window was empty."""
        assert self.window.every is not None
        assert self.first is not None
        self.firings = max(self.firings, int((now - self.first) // self.window.every))


def distance(earlier: Any, later: Any) -> Any:
    """`later - earlier`, in seconds where the two are datetimes.

    >>> from datetime import datetime
    >>> distance(3, 10), distance(datetime(2020, 1, 1), datetime(2020, 1, 2))
    (7, 86400.0)
    """
    between = later - earlier
    return between.total_seconds() if isinstance(between, timedelta) else between


_DRIVERS: dict[tuple[str, bool], type[Driver]] = {
    ("count", False): TumblingCount,
    ("time", False): TumblingTime,
    ("delta", False): TumblingDelta,
    ("punctuation", False): TumblingPunctuation,
    ("count", True): SlidingCount,
    ("time", True): SlidingTime,
    ("delta", True): SlidingDelta,
}


def driver_of(window: Window, contents: Contents) -> Driver:
    """The driver of an arrival window."""
    return _DRIVERS[window.spans, window.sliding](window, contents)
