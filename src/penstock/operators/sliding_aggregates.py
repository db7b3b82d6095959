"""Aggregates over windows that slide, without going through the window at each firing.

* count, sum, mean, stddev, and user-defined with `combine`: **two stacks**. Arriving tuples are folded into one running
  state; when the oldest must go, the waiting tuples are turned over once into suffix states. Each tuple is folded twice
  and combined once, and nothing is ever subtracted, so floats do not drift.
* min and max: a **monotone queue** of the values that can still become the result.
* count_distinct: a count per value.
* collect, first, last, user-defined without `combine`: the values themselves.

`PaneRules` does the same for panes of event time (see `windows.event_time`).
"""

from __future__ import annotations

from collections import deque
from functools import lru_cache
from typing import Any

from penstock.operators.accumulation import Accumulation, Named, State, accumulation_of
from penstock.operators.aggregates import Aggregate, Maximum


class TwoStacks:
    """A first-in first-out fold of several aggregates at once."""

    def __init__(self, aggregates: Named) -> None:
        self.fold = accumulation_of(aggregates)
        self.waiting: list[Any] = []  # tuples folded into `back`, oldest first
        self.back: State | None = None
        self.front: list[State] = []  # suffix states, the oldest tuple's last

    def insert(self, t: Any) -> None:
        self.waiting.append(t)
        if self.back is None:
            self.back = self.fold.start(t, 0)
        else:
            self.fold.add(self.back, t, 0)

    def evict(self) -> None:
        if not self.front:
            self._turn_over()
        self.front.pop()

    def _turn_over(self) -> None:
        fold, suffix = self.fold, None
        for t in reversed(self.waiting):
            single = fold.start(t, 0)
            suffix = single if suffix is None else fold.combine(single, suffix)
            self.front.append(suffix)
        self.waiting, self.back = [], None

    def results(self) -> list[Any]:
        if not self.front:
            assert self.back is not None, "an empty window never fires"
            return self.fold.finish(self.back)
        top = self.front[-1]
        return self.fold.finish(top if self.back is None else self.fold.combine(top, self.back))


class _Single:
    """One aggregate that follows the window in its own way."""

    def __init__(self, aggregate: Aggregate) -> None:
        self.aggregate = aggregate
        self.read = aggregate.value()

    def insert(self, t: Any) -> None:
        raise NotImplementedError

    def evict(self) -> None:
        raise NotImplementedError

    def results(self) -> list[Any]:
        raise NotImplementedError


class MonotoneQueue(_Single):
    """min or max: values that a later one beats can never be the result; they are dropped as it comes."""

    def __init__(self, aggregate: Aggregate) -> None:
        super().__init__(aggregate)
        self.largest = isinstance(aggregate, Maximum)
        self.queue: deque[tuple[int, Any]] = deque()  # (number of arrival, value)
        self.arrived = 0
        self.evicted = 0

    def insert(self, t: Any) -> None:
        value = self.read(t)
        queue = self.queue
        if self.largest:
            while queue and queue[-1][1] < value:
                queue.pop()
        else:
            while queue and queue[-1][1] > value:
                queue.pop()
        queue.append((self.arrived, value))
        self.arrived += 1

    def evict(self) -> None:
        if self.queue[0][0] == self.evicted:
            self.queue.popleft()
        self.evicted += 1

    def results(self) -> list[Any]:
        return [self.queue[0][1]]


class DistinctCounts(_Single):
    """count_distinct: how often each value is in the window."""

    def __init__(self, aggregate: Aggregate) -> None:
        super().__init__(aggregate)
        self.values: deque[Any] = deque()
        self.counts: dict[Any, int] = {}

    def insert(self, t: Any) -> None:
        value = self.read(t)
        self.values.append(value)
        self.counts[value] = self.counts.get(value, 0) + 1

    def evict(self) -> None:
        value = self.values.popleft()
        left = self.counts[value] - 1
        if left:
            self.counts[value] = left
        else:
            del self.counts[value]

    def results(self) -> list[Any]:
        return [len(self.counts)]


class HeldValues(_Single):
    """Aggregates that need the values in order of arrival."""

    def __init__(self, aggregate: Aggregate) -> None:
        super().__init__(aggregate)
        self.values: deque[Any] = deque()

    def insert(self, t: Any) -> None:
        self.values.append(self.read(t))

    def evict(self) -> None:
        self.values.popleft()

    def results(self) -> list[Any]:
        return [self.aggregate.of_values(self.values)]


_SINGLE: dict[str, type[_Single]] = {"monotone": MonotoneQueue, "distinct": DistinctCounts, "held": HeldValues}


class SlidingAggregates:
    """All aggregates of one sliding window.

    >>> from penstock.operators import aggregates
    >>> window = SlidingAggregates((("total", aggregates.sum()), ("top", aggregates.max())))
    >>> for n in [5, 1, 2]:
    ...     window.insert(n)
    >>> window.evict()
    >>> window.results()
    [3, 2]
    """

    def __init__(self, aggregates: Named) -> None:
        self.aggregates = aggregates
        self.places: list[int] = []  # where the results of `followers`, one after the other, belong
        self.followers: list[TwoStacks | _Single] = []
        stacked = [i for i, (_, aggregate) in enumerate(aggregates) if way_of(aggregate) == "stacks"]
        if stacked:
            self.places += stacked
            self.followers.append(TwoStacks(tuple(aggregates[i] for i in stacked)))
        for i, (_, aggregate) in enumerate(aggregates):
            if i not in stacked:
                self.places.append(i)
                self.followers.append(_SINGLE[way_of(aggregate)](aggregate))

    def insert(self, t: Any) -> None:
        for follower in self.followers:
            follower.insert(t)

    def evict(self) -> None:
        for follower in self.followers:
            follower.evict()

    def results(self) -> list[Any]:
        """The results for the window as it is now, in the order of the aggregates; it must not be empty."""
        found = [result for follower in self.followers for result in follower.results()]
        ordered: list[Any] = [None] * len(found)
        for place, result in zip(self.places, found, strict=True):
            ordered[place] = result
        return ordered


def way_of(aggregate: Aggregate) -> str:
    """How a sliding window follows an aggregate: by stacks, a monotone queue, counts per value, or the values held."""
    if aggregate.sliding == "stacks" and aggregate.merges is None:
        return "held"
    return aggregate.sliding


class PaneRules:
    """Panes of running aggregates. A pane is `[state of what merges, (order, tuple) of what must be replayed]`.

    Aggregates that cannot be merged see the tuples of all panes again at each firing, in order of arrival.
    """

    def __init__(self, aggregates: Named) -> None:
        self.aggregates = aggregates
        self.merged_places = [i for i, (_, aggregate) in enumerate(aggregates) if aggregate.merges is not None]
        self.replayed_places = [i for i, (_, aggregate) in enumerate(aggregates) if aggregate.merges is None]
        self.merged = self._part(self.merged_places)
        self.replayed = self._part(self.replayed_places)
        self.stacked = self.merged is not None

    def __reduce__(self) -> tuple[Any, ...]:
        return (pane_rules_of, (self.aggregates,))

    def _part(self, places: list[int]) -> Accumulation | None:
        return accumulation_of(tuple(self.aggregates[i] for i in places)) if places else None

    def start(self, t: Any, order: int) -> list[Any]:
        state = None if self.merged is None else self.merged.start(t, order)
        return [state, None if self.replayed is None else [(order, t)]]

    def add(self, pane: list[Any], t: Any, order: int) -> None:
        if self.merged is not None:
            self.merged.add(pane[0], t, order)
        if self.replayed is not None:
            pane[1].append((order, t))

    def combine(self, left: list[Any], right: list[Any]) -> list[Any]:
        assert self.merged is not None, "only stacked panes are combined"
        return [self.merged.combine(left[0], right[0]), None]

    def merge(self, left: list[Any], right: list[Any]) -> list[Any]:
        state = None if self.merged is None else self.merged.combine(left[0], right[0])
        return [state, None if self.replayed is None else [*left[1], *right[1]]]

    def results(self, combined: list[Any] | None, panes: list[list[Any]]) -> list[Any]:
        ordered: list[Any] = [None] * len(self.aggregates)
        if self.merged is not None:
            assert combined is not None
            for place, result in zip(self.merged_places, self.merged.finish(combined[0]), strict=True):
                ordered[place] = result
        if self.replayed is not None:
            entries = sorted((entry for pane in panes for entry in pane[1]), key=_arrival)
            results = self.replayed.of_tuples([t for _, t in entries])
            for place, result in zip(self.replayed_places, results, strict=True):
                ordered[place] = result
        return ordered


@lru_cache(maxsize=256)
def _cached(aggregates: Named) -> PaneRules:
    return PaneRules(aggregates)


def pane_rules_of(aggregates: Named) -> PaneRules:
    """The rules of these aggregates; the keys of an operator share them."""
    try:
        return _cached(aggregates)
    except TypeError:  # an attribute function that cannot be hashed
        return PaneRules(aggregates)


def _arrival(entry: tuple[int, Any]) -> int:
    return entry[0]
