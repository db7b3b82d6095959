"""Event-time windows of one partition: panes that collect tuples, and a watermark that closes windows.

    panes of gcd(size, step):   |--0--|--1--|--2--|--3--|--4--|      a tuple touches exactly one pane
    window 0                    [     0     1     2     )
    window 1                          [     1     2     3     )

The watermark is the newest time seen minus `late`. A window closes when the watermark reaches its end; it fires then
if it holds anything. The panes of the closed windows are combined by two stacks (`PaneStack`), so a firing costs a
constant number of combinations per pane when tuples come in order (general incremental sliding-window aggregation,
Tangwongsan et al., VLDB 2015).

What a pane holds is the business of `Rules`: running aggregates, or the tuples themselves.
"""

from __future__ import annotations

from bisect import bisect_left, insort
from typing import Any, NamedTuple, Protocol

from penstock.windows.policies import Window
from penstock.windows.times import Grid, Number, grid_of, number_of, time_of, units_in


class Rules(Protocol):
    """How panes (and sessions) hold tuples. A pane is whatever `start` makes of its first tuple."""

    @property
    def stacked(self) -> bool:
        """True when `results` wants the panes of a window combined; otherwise `combined` is None."""
        ...

    def start(self, t: Any, order: int) -> Any:
        """A pane of one tuple; `order` is the number of the tuple's arrival."""
        ...

    def add(self, pane: Any, t: Any, order: int) -> None:
        """One more tuple into the pane."""
        ...

    def combine(self, left: Any, right: Any) -> Any:
        """What `results` wants of two neighbouring panes together, as a new value; neither argument may change."""
        ...

    def merge(self, left: Any, right: Any) -> Any:
        """Two panes as one that can still be added to (sessions); neither is used afterwards."""
        ...

    def results(self, combined: Any, panes: list[Any]) -> Any:
        """The result of a window: `combined` is all its panes combined, `panes` are they one by one."""
        ...


class Closed(NamedTuple):
    """One window that has closed with tuples in it."""

    order: Any  # closed windows of different keys are sorted by it
    results: Any
    start: Any
    end: Any


class PaneStack:
    """Combines panes [a, b) for windows that only move forward, each pane a constant number of times.

    `front` holds, for each pane before `middle`, everything from it up to `middle`; the last entry is the first pane.
    `back` combines the panes from `middle` to `stop`.
    """

    __slots__ = ("back", "front", "middle", "stop")

    def __init__(self) -> None:
        self.front: list[tuple[int, Any]] = []
        self.back: Any = None
        self.middle: int | None = None
        self.stop = 0

    def touched(self, pane: int) -> None:
        """A tuple came into `pane`: what was combined with it is worth nothing any more."""
        if self.middle is not None and pane < self.stop:
            self.front = []
            self.back = None
            self.middle = None

    def combined(self, rules: Rules, panes: dict[int, Any], present: list[int]) -> Any:
        """The panes at `present` (not empty, ascending) combined, in order."""
        first, last = present[0], present[-1]
        while self.front and self.front[-1][0] < first:
            self.front.pop()
        if self.middle is None or self.middle < first:
            self._rebuild(rules, panes, present)
        elif last >= self.stop:
            for pane in present[bisect_left(present, self.stop) :]:
                self.back = panes[pane] if self.back is None else rules.combine(self.back, panes[pane])
            self.stop = last + 1
        if not self.front:
            return self.back
        return self.front[-1][1] if self.back is None else rules.combine(self.front[-1][1], self.back)

    def _rebuild(self, rules: Rules, panes: dict[int, Any], present: list[int]) -> None:
        self.front, self.back = [], None
        self.middle = self.stop = present[-1] + 1
        combined: Any = None
        for pane in reversed(present):
            combined = panes[pane] if combined is None else rules.combine(panes[pane], combined)
            self.front.append((pane, combined))


class PaneStore:
    """The panes of one key."""

    __slots__ = ("panes", "present", "stack")

    def __init__(self) -> None:
        self.panes: dict[int, Any] = {}
        self.present: list[int] = []  # the keys of `panes`, ascending
        self.stack = PaneStack()

    def add(self, rules: Rules, pane: int, t: Any, order: int) -> None:
        held = self.panes.get(pane)
        if held is None:
            self.panes[pane] = rules.start(t, order)
            insort(self.present, pane)
        else:
            rules.add(held, t, order)
        self.stack.touched(pane)

    def is_fresh(self, pane: int) -> bool:
        """True while no firing has combined `pane`, so that tuples may be added to it without telling the store."""
        return self.stack.middle is None or pane >= self.stack.stop

    def next_window(self, grid: Grid, opened: int) -> int | None:
        """The first window from `opened` on that holds anything."""
        if not self.present:
            return None
        first = grid.first_window(self.present[0])
        return first if first > opened else opened if self._reaches(grid, opened) else self._next_after(grid, opened)

    def _reaches(self, grid: Grid, window: int) -> bool:
        return self._position(window * grid.step) < self._position(window * grid.step + grid.size)

    def _next_after(self, grid: Grid, window: int) -> int | None:
        position = self._position(window * grid.step)
        return None if position == len(self.present) else grid.first_window(self.present[position])

    def _position(self, pane: int) -> int:
        return bisect_left(self.present, pane)

    def fire(self, rules: Rules, grid: Grid, window: int) -> Any:
        """The results of a window that holds something."""
        first = window * grid.step
        present = self.present[self._position(first) : self._position(first + grid.size)]
        combined = self.stack.combined(rules, self.panes, present) if rules.stacked else None
        return rules.results(combined, [self.panes[pane] for pane in present])

    def drop_before(self, pane: int) -> None:
        """Forget panes that no open window reaches."""
        position = self._position(pane)
        for gone in self.present[:position]:
            del self.panes[gone]
        del self.present[:position]


class EventTime:
    """Aligned event-time windows of one partition: of one key, or of all keys under one watermark."""

    __slots__ = (
        "arrived",
        "closes_at",
        "grid",
        "like",
        "newest",
        "opened",
        "pane",
        "pane_start",
        "pane_stop",
        "ranks",
        "stores",
        "window",
    )

    def __init__(self, window: Window) -> None:
        self.window = window
        self.grid: Grid | None = None
        self.like: Any = None  # the first time seen: bounds come out in its type and zone
        self.newest: Any = None
        self.opened = 0  # the first window that is not closed
        self.closes_at: Number = 0  # the newest time that closes it
        self.pane = 0  # the pane of the last tuple, and its bounds
        self.pane_start: Number = 0
        self.pane_stop: Number = 0
        self.arrived = 0
        self.stores: dict[Any, PaneStore] = {}
        self.ranks: dict[Any, int] = {}  # keys in order of their first arrival

    def insert(self, rules: Rules, key: Any, t: Any, time: Any) -> list[tuple[Any, Closed]] | None:
        """Handle a tuple; returns (key, closed window) pairs, or None for a late tuple."""
        number = number_of(time)
        closed: list[tuple[Any, Closed]] = []
        grid = self.grid
        if grid is None:
            grid = self._begin(number, time)
        elif number > self.newest:
            self.newest = number
            if number >= self.closes_at:
                closed = self._close_until(rules, grid.first_open(number))
        if not self.pane_start <= number < self.pane_stop:
            self._enter_pane(grid, number)
        pane = self.pane
        last = grid.last_window(pane)
        if last < self.opened:
            # No window reaches the gap between two hopping windows: such a tuple is in none, so it cannot be late.
            return None if grid.first_window(pane) <= last else closed
        if pane < last * grid.step + grid.size:
            self._store(key).add(rules, pane, t, self.arrived)
            self.arrived += 1
        return closed

    def finish(self, rules: Rules) -> list[tuple[Any, Closed]]:
        """Close every window."""
        return self._close_until(rules, None)

    def _begin(self, number: Any, time: Any) -> Grid:
        grid = self.grid = grid_of(self.window, units_in(time))
        self.like, self.newest = time, number
        self._open_from(grid, grid.first_open(number))
        return grid

    def _enter_pane(self, grid: Grid, number: Number) -> None:
        self.pane = grid.pane_of(number)
        self.pane_start, self.pane_stop = grid.bound(self.pane), grid.bound(self.pane + 1)

    def _open_from(self, grid: Grid, window: int) -> None:
        self.opened = window
        self.closes_at = grid.closes_at(window * grid.step + grid.size)

    def _store(self, key: Any) -> PaneStore:
        store = self.stores.get(key)
        if store is None:
            store = self.stores[key] = PaneStore()
            self.ranks.setdefault(key, len(self.ranks))
        return store

    def _close_until(self, rules: Rules, until: int | None) -> list[tuple[Any, Closed]]:
        """Fire every window before `until` that holds something (None: all of them)."""
        grid = self.grid
        if grid is None:
            return []
        closed = [
            (key, window) for key, store in self.stores.items() for window in self._close_key(rules, key, store, until)
        ]
        closed.sort(key=lambda pair: pair[1].order)
        self.stores = {key: store for key, store in self.stores.items() if store.present}
        if until is not None:
            self._open_from(grid, until)
        return closed

    def _close_key(self, rules: Rules, key: Any, store: PaneStore, until: int | None) -> list[Closed]:
        grid = self.grid
        assert grid is not None
        closed = []
        window = store.next_window(grid, self.opened)
        while window is not None and (until is None or window < until):
            results = store.fire(rules, grid, window)
            closed.append(Closed((window, self.ranks[key]), results, *self._bounds(grid, window)))
            store.drop_before((window + 1) * grid.step)
            window = store.next_window(grid, window + 1)
        if until is not None:
            store.drop_before(until * grid.step)
        return closed

    def _bounds(self, grid: Grid, window: int) -> tuple[Any, Any]:
        first = window * grid.step
        return time_of(grid.bound(first), self.like), time_of(grid.bound(first + grid.size), self.like)
