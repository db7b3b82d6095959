"""`PartitionWindow`: the contents of one window partition, for operators that users write (language runtime §5.3).

It holds tuples, says which are in the window, and reports what happens by return values, by callbacks, or both:
`on_insert(t)` and `on_evict(t)` as tuples enter and leave, `on_trigger(tuples)` as the window fires.

Callbacks are part of what is pickled and copied. An operator that keeps its window in `self` and lets the system copy
it (`snapshot`, `restore`) should use the return values: a bound method of the operator would be copied with a copy of
the operator. The clock is never pickled; a window that was unpickled follows the machine's clock until its `clock` is
set.
"""

from __future__ import annotations

import copy
from collections import deque
from collections.abc import Callable, Iterator
from typing import Any

from penstock.clock import Clock, SystemClock
from penstock.tuples import attribute_getter
from penstock.windows.arrival import driver_of
from penstock.windows.event_time import EventTime
from penstock.windows.policies import Window
from penstock.windows.sessions import Sessions

Callback = Callable[[Any], object]


class Fired(list[Any]):
    """The tuples of a window that fired, in order of arrival; `start` and `end` for event-time windows."""

    start: Any = None
    end: Any = None


class TupleRules:
    """Panes that hold the tuples themselves, with the number of their arrival."""

    stacked = False

    def start(self, t: Any, order: int) -> list[tuple[int, Any]]:
        return [(order, t)]

    def add(self, pane: list[tuple[int, Any]], t: Any, order: int) -> None:
        pane.append((order, t))

    def combine(self, left: list[tuple[int, Any]], right: list[tuple[int, Any]]) -> list[tuple[int, Any]]:
        return [*left, *right]

    merge = combine

    def results(self, combined: Any, panes: list[list[tuple[int, Any]]]) -> list[Any]:
        return [t for _, t in sorted((entry for pane in panes for entry in pane), key=_arrival)]


def _arrival(entry: tuple[int, Any]) -> int:
    return entry[0]


class PartitionWindow:
    """One partition of a window.

    >>> from penstock.windows.policies import sliding, tumbling
    >>> window = PartitionWindow(sliding(count=2), on_evict=lambda t: print("out", t))
    >>> [window.insert(t) for t in "abc"]
    out a
    [[], [['a', 'b']], [['b', 'c']]]
    >>> list(window)
    ['b', 'c']
    >>> PartitionWindow(tumbling(count=2, partial=True)).insert("a")
    []
    """

    def __init__(
        self,
        policy: Window,
        on_insert: Callback | None = None,
        on_evict: Callback | None = None,
        on_trigger: Callback | None = None,
        clock: Clock | None = None,
    ) -> None:
        self.policy = policy
        self.clock: Clock = clock if clock is not None else SystemClock()
        contents = _TupleContents(on_insert, on_evict, on_trigger)
        self._engine: _ArrivalEngine | _EventEngine = (
            _EventEngine(policy, contents) if policy.event_time else _ArrivalEngine(policy, contents)
        )

    @property
    def late(self) -> int:
        """How many tuples came after all of their windows had closed."""
        return self._engine.late

    def insert(self, t: Any) -> list[Fired]:
        """A tuple arrives; returns the windows that fired."""
        return self._engine.insert(t, self.clock.now())

    def mark(self) -> list[Fired]:
        """A window punctuation arrives."""
        return self._engine.mark()

    def tick(self, now: float) -> list[Fired]:
        """The arrival clock shows `now`."""
        return self._engine.tick(now)

    def deadline(self) -> float | None:
        """When `tick` should be called, or None."""
        return self._engine.deadline()

    def finish(self) -> list[Fired]:
        """The stream has ended."""
        return self._engine.finish()

    def __iter__(self) -> Iterator[Any]:
        return iter(self._engine.tuples())

    def __len__(self) -> int:
        return len(self._engine.tuples())

    def __getstate__(self) -> dict[str, Any]:
        return {name: value for name, value in self.__dict__.items() if name != "clock"}

    def __setstate__(self, state: dict[str, Any]) -> None:
        self.__dict__.update(state)
        self.clock = SystemClock()

    def __deepcopy__(self, memo: dict[int, Any]) -> PartitionWindow:
        twin = memo[id(self)] = PartitionWindow.__new__(PartitionWindow)
        twin.__dict__.update(copy.deepcopy(self.__getstate__(), memo))
        twin.clock = self.clock
        return twin


class _TupleContents:
    """Tuples in order of arrival; tells the callbacks, and remembers what fired until it is taken."""

    def __init__(self, on_insert: Callback | None, on_evict: Callback | None, on_trigger: Callback | None) -> None:
        self.tuples: deque[Any] = deque()
        self.fired: list[Fired] = []
        self.on_insert = on_insert
        self.on_evict = on_evict
        self.on_trigger = on_trigger

    def insert(self, t: Any) -> None:
        self.tuples.append(t)
        if self.on_insert is not None:
            self.on_insert(t)

    def evict(self) -> None:
        self._report_gone([self.tuples.popleft()])

    def remove(self, positions: list[int], kept: list[Any]) -> None:
        gone = [self.tuples[position] for position in positions]
        self.tuples = deque(kept)
        self._report_gone(gone)

    def trigger(self) -> None:
        self.report(Fired(self.tuples))

    def clear(self) -> None:
        gone, self.tuples = self.tuples, deque()
        self._report_gone(list(gone))

    def report(self, fired: Fired) -> None:
        self.fired.append(fired)
        if self.on_trigger is not None:
            self.on_trigger(fired)

    def take_fired(self) -> list[Fired]:
        fired, self.fired = self.fired, []
        return fired

    def _report_gone(self, gone: list[Any]) -> None:
        if self.on_evict is not None:
            for t in gone:
                self.on_evict(t)


class _ArrivalEngine:
    """Windows that follow arrival."""

    late = 0

    def __init__(self, policy: Window, contents: _TupleContents) -> None:
        self.contents = contents
        self.driver = driver_of(policy, contents)

    def insert(self, t: Any, now: float) -> list[Fired]:
        self.driver.insert(t, now)
        return self.contents.take_fired()

    def mark(self) -> list[Fired]:
        self.driver.mark()
        return self.contents.take_fired()

    def tick(self, now: float) -> list[Fired]:
        self.driver.tick(now)
        return self.contents.take_fired()

    def deadline(self) -> float | None:
        return self.driver.deadline()

    def finish(self) -> list[Fired]:
        self.driver.finish()
        return self.contents.take_fired()

    def tuples(self) -> list[Any]:
        return list(self.contents.tuples)


class _EventEngine:
    """Windows that follow event time. Tuples leave when no open window holds them any more."""

    def __init__(self, policy: Window, contents: _TupleContents) -> None:
        assert policy.on is not None, "the policy made sure of it"
        self.time_of: Callable[[Any], Any] = attribute_getter(policy.on)
        self.contents = contents
        self.rules = TupleRules()
        self.windows: EventTime | Sessions = Sessions(policy) if policy.spans == "session" else EventTime(policy)
        self.late = 0

    def insert(self, t: Any, now: float) -> list[Fired]:
        before = self._entries() if self.contents.on_evict is not None else []
        arrived = self.windows.arrived
        closed = self.windows.insert(self.rules, None, t, self.time_of(t))
        if closed is None:
            self.late += 1
            return []
        fired = self._report(before, closed)
        if self.windows.arrived > arrived and self.contents.on_insert is not None:
            self.contents.on_insert(t)
        return fired

    def mark(self) -> list[Fired]:
        return []

    def tick(self, now: float) -> list[Fired]:
        return []

    def deadline(self) -> float | None:
        return None

    def finish(self) -> list[Fired]:
        return self._report(self._entries(), self.windows.finish(self.rules))

    def tuples(self) -> list[Any]:
        return [t for _, t in self._entries()]

    def _report(self, before: list[tuple[int, Any]], closed: list[Any]) -> list[Fired]:
        for _, window in closed:
            fired = Fired(window.results)
            fired.start, fired.end = window.start, window.end
            self.contents.report(fired)
        self._report_gone(before)
        return self.contents.take_fired()

    def _report_gone(self, before: list[tuple[int, Any]]) -> None:
        if self.contents.on_evict is not None:
            left = {order for order, _ in self._entries()}
            for order, t in before:
                if order not in left:
                    self.contents.on_evict(t)

    def _entries(self) -> list[tuple[int, Any]]:
        """All tuples of open windows, in order of arrival."""
        if isinstance(self.windows, Sessions):
            panes = [session.pane for sessions in self.windows.open.values() for session in sessions]
        else:
            panes = [pane for store in self.windows.stores.values() for pane in store.panes.values()]
        return sorted((entry for pane in panes for entry in pane), key=_arrival)
