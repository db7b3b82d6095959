"""`sort`: orders tuples within a window; ties keep their order of arrival, and nothing is ever dropped.

A tumbling window is sorted and released as it closes (a late tuple of an event-time window at once, by itself). A
sliding window holds back as much as it spans:

* count: the n tuples that arrived and were not released; each further one releases the smallest;
* delta, or time of an attribute: what is less than the span behind the newest; the rest goes, in sort order;
* arrival time: a tuple goes when it was held for the span, and everything that sorts before it goes first.
"""

from __future__ import annotations

import dataclasses
import functools
from collections import deque
from collections.abc import Callable
from heapq import heappop, heappush
from typing import Any

from penstock.clock import Clock
from penstock.errors import FlowError
from penstock.graph.graph import Node
from penstock.graph.operations import Sort
from penstock.operators.aggregates import Collect
from penstock.operators.base import Late
from penstock.operators.timed import TimedLogic, TimedPartition
from penstock.operators.windowed import ArrivalPartition, EventPartition
from penstock.tuples import attribute_getter
from penstock.windows.arrival import distance
from penstock.windows.policies import Window


@functools.total_ordering
class _Descending:
    """A value that sorts the other way round."""

    __slots__ = ("value",)

    def __init__(self, value: Any) -> None:
        self.value = value

    def __lt__(self, other: _Descending) -> bool:
        return bool(other.value < self.value)

    def __eq__(self, other: object) -> bool:
        return isinstance(other, _Descending) and bool(self.value == other.value)

    __hash__ = None  # type: ignore[assignment]  # values need not be hashable


class SortOrder:
    """The order asked for."""

    def __init__(self, by: Any, reverse: bool) -> None:
        self.read: Callable[[Any], Any] = attribute_getter(by)
        self.reverse = reverse

    def of(self, t: Any) -> Any:
        """A value that sorts as the tuple shall."""
        value = self.read(t)
        return _Descending(value) if self.reverse else value

    def sorted(self, tuples: list[Any]) -> list[Any]:
        """The tuples in order; Python's sort keeps ties as they came, also in reverse."""
        return sorted(tuples, key=self.read, reverse=self.reverse)

    def row(self, key: Any, results: list[Any], start: Any, end: Any) -> list[Any]:
        """The batch of a tumbling window."""
        return self.sorted(results[0])


class SortedWindows(TimedPartition):
    """Tumbling windows and sessions: a batch for each."""

    def __init__(self, window: Window, order: SortOrder) -> None:
        collected = (("tuples", Collect()),)
        self.windows: ArrivalPartition | EventPartition
        if window.event_time:
            self.windows = EventPartition(window, collected, order, None, None)
        else:
            self.windows = ArrivalPartition(window, collected, order, None)

    def process_at(self, t: Any, port: int, now: float) -> list[Any] | None:
        batches = self.windows.process_at(t, port, now)
        return [t] if isinstance(batches, Late) else _flat(batches)

    def mark(self, port: int) -> list[Any] | None:
        return _flat(self.windows.mark(port))

    def tick(self, now: float) -> list[Any] | None:
        return _flat(self.windows.tick(now))

    def deadline(self) -> float | None:
        return self.windows.deadline()

    def finish(self) -> list[Any] | None:
        return _flat(self.windows.finish())


def _flat(batches: list[Any] | None) -> list[Any] | None:
    return [t for batch in batches for t in batch] if batches else None


class _Heap(TimedPartition):
    """Tuples held back, smallest first: entries are (rank, number of arrival, tuple)."""

    def __init__(self, window: Window, order: SortOrder) -> None:
        self.window = window
        self.order = order
        self.entries: list[tuple[Any, int, Any]] = []
        self.arrived = 0

    def hold(self, rank: Any, t: Any) -> None:
        heappush(self.entries, (rank, self.arrived, t))
        self.arrived += 1

    def finish(self) -> list[Any] | None:
        entries, self.entries = sorted(self.entries, key=lambda entry: entry[1]), []
        return self.order.sorted([t for _, _, t in entries]) or None


class SortedCount(_Heap):
    """Holds n tuples."""

    def process_at(self, t: Any, port: int, now: float) -> list[Any] | None:
        self.hold(self.order.of(t), t)
        return [heappop(self.entries)[2]] if len(self.entries) > self.window.size else None


class SortedSpan(_Heap):
    """Holds what is less than (time) or at most (delta) the span behind the newest value of the attribute."""

    def __init__(self, window: Window, order: SortOrder) -> None:
        super().__init__(window, order)
        assert window.on is not None, "the policy made sure of it"
        self.measure = attribute_getter(window.on)
        self.newest: Any = None

    def process_at(self, t: Any, port: int, now: float) -> list[Any] | None:
        x = self.measure(t)
        self.hold(x, t)
        if self.newest is None or x > self.newest:
            self.newest = x
        released = []
        while self.entries and self._is_past(distance(self.entries[0][0], self.newest)):
            released.append(heappop(self.entries))
        released.sort(key=lambda entry: entry[1])
        return self.order.sorted([t for _, _, t in released]) or None

    def _is_past(self, behind: Any) -> bool:
        if self.window.spans == "delta":
            return bool(behind > self.window.size)
        return bool(behind >= self.window.size + self.window.late)


class SortedTime(_Heap):
    """Holds what arrived less than the span ago."""

    def __init__(self, window: Window, order: SortOrder) -> None:
        super().__init__(window, order)
        self.arrivals: deque[tuple[float, int]] = deque()  # when each tuple came; released ones may still be here
        self.ranks: dict[int, Any] = {}  # of the tuples that are held

    def process_at(self, t: Any, port: int, now: float) -> list[Any] | None:
        released = self.tick(now)
        rank = self.order.of(t)
        self.arrivals.append((now, self.arrived))
        self.ranks[self.arrived] = rank
        self.hold(rank, t)
        return released

    def tick(self, now: float) -> list[Any] | None:
        released = []
        while self.arrivals and now >= self.arrivals[0][0] + self.window.size:
            due = self.arrivals.popleft()[1]
            while due in self.ranks:  # everything up to it goes, smallest first
                _, number, t = heappop(self.entries)
                del self.ranks[number]
                released.append(t)
        return released or None

    def deadline(self) -> float | None:
        while self.arrivals and self.arrivals[0][1] not in self.ranks:
            self.arrivals.popleft()
        return self.arrivals[0][0] + self.window.size if self.arrivals else None

    def finish(self) -> list[Any] | None:
        self.arrivals.clear()
        self.ranks.clear()
        return super().finish()


class SortLogic(TimedLogic):
    """Chooses the partition that fits the window."""

    def __init__(self, node: Node, clock: Clock | None = None) -> None:
        super().__init__(node, clock)
        assert isinstance(node.operation, Sort)
        self.window: Window = node.operation.window
        self.order = SortOrder(node.operation.by, node.operation.reverse)
        self.timed = self.follows_clock = self.window.spans == "time"
        if self.window.sliding and self.window.every is not None:
            raise FlowError(
                f"operator '{node.name}' (defined at {node.location}): sort releases tuples one by one; "
                f"leave every= out of {self.window}"
            )
        if self.window.watermark == "stream" and node.inputs[0].key is not None:
            raise FlowError(
                f"operator '{node.name}' (defined at {node.location}): sort on a keyed stream follows each key's own "
                "time; leave out watermark='stream'"
            )

    def make(self, key: Any) -> TimedPartition:
        if not self.window.sliding:
            return SortedWindows(_with_the_rest(self.window), self.order)
        kinds: dict[str, type[_Heap]] = {"count": SortedCount, "time": SortedTime}
        return kinds.get(self.window.spans, SortedSpan)(self.window, self.order)


def _with_the_rest(window: Window) -> Window:
    """The same window, the last one released at the end of the stream even if it is not full."""
    return dataclasses.replace(window, partial=True)
