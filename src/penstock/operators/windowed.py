"""Partitions of windowed operators: what enters a window, and what the operator makes of a window that fires.

`Shape` turns the results of a firing into one output tuple. Together with aggregates and a policy it is all a partition
needs, so `aggregate` and `apply` differ in nothing else.
"""

from __future__ import annotations

from typing import Any, Protocol

from penstock.graph.keys import Key
from penstock.graph.operations import Windowed
from penstock.operators.accumulation import Accumulation, Named, State, accumulation_of
from penstock.operators.base import LATE, Late, Partition
from penstock.operators.sliding_aggregates import SlidingAggregates, pane_rules_of
from penstock.operators.timed import TimedLogic, TimedPartition
from penstock.tuples import attribute_getter
from penstock.windows.arrival import driver_of
from penstock.windows.event_time import Closed, EventTime
from penstock.windows.policies import Window
from penstock.windows.sessions import Sessions


class Shape(Protocol):
    """What a firing looks like as an output tuple."""

    def row(self, key: Any, results: list[Any], start: Any, end: Any) -> Any:
        """The output tuple; `start` and `end` are None except for event-time windows."""
        ...


class _Outputs:
    """Rows of the windows of one key that fired, until they are taken."""

    def __init__(self, shape: Shape, key: Any) -> None:
        self.shape = shape
        self.key = key
        self.rows: list[Any] = []

    def put(self, results: list[Any]) -> None:
        self.rows.append(self.shape.row(self.key, results, None, None))

    def take(self) -> list[Any] | None:
        if not self.rows:
            return None
        rows, self.rows = self.rows, []
        return rows


class TumblingContents:
    """Running aggregates of a window whose tuples all leave at once: no tuple is held."""

    def __init__(self, fold: Accumulation, outputs: _Outputs) -> None:
        self.fold = fold
        self.outputs = outputs
        self.state: State | None = None

    def insert(self, t: Any) -> None:
        if self.state is None:
            self.state = self.fold.start(t, 0)
        else:
            self.fold.add(self.state, t, 0)

    def trigger(self) -> None:
        assert self.state is not None, "an empty window never fires"
        self.outputs.put(self.fold.finish(self.state))

    def clear(self) -> None:
        self.state = None

    def evict(self) -> None:
        raise AssertionError("tuples of a tumbling window leave together")

    def remove(self, positions: list[int], kept: list[Any]) -> None:
        raise AssertionError("tuples of a tumbling window leave together")


class SlidingContents:
    """Aggregates of a window that slides."""

    def __init__(self, aggregates: Named, outputs: _Outputs) -> None:
        self.aggregates = aggregates
        self.outputs = outputs
        self.clear()

    def clear(self) -> None:
        self.window = SlidingAggregates(self.aggregates)

    def insert(self, t: Any) -> None:
        self.window.insert(t)

    def evict(self) -> None:
        self.window.evict()

    def remove(self, positions: list[int], kept: list[Any]) -> None:
        self.clear()
        for t in kept:
            self.window.insert(t)

    def trigger(self) -> None:
        self.outputs.put(self.window.results())


class ArrivalPartition(TimedPartition):
    """One key of a window that follows arrival."""

    def __init__(self, window: Window, aggregates: Named, shape: Shape, key: Any) -> None:
        self.outputs = _Outputs(shape, key)
        contents: TumblingContents | SlidingContents
        if window.sliding:
            contents = SlidingContents(aggregates, self.outputs)
        else:
            contents = TumblingContents(accumulation_of(aggregates), self.outputs)
        self.driver = driver_of(window, contents)

    def process_at(self, t: Any, port: int, now: float) -> list[Any] | None:
        self.driver.insert(t, now)
        return self.outputs.take()

    def mark(self, port: int) -> list[Any] | None:
        self.driver.mark()
        return self.outputs.take()

    def tick(self, now: float) -> list[Any] | None:
        self.driver.tick(now)
        return self.outputs.take()

    def deadline(self) -> float | None:
        return self.driver.deadline()

    def finish(self) -> list[Any] | None:
        self.driver.finish()
        return self.outputs.take()


class EventPartition(TimedPartition):
    """Event-time windows or sessions: of one key, or of all keys of a stream with one watermark.

    With `keyed_by` this one partition reads the key of each tuple itself; without, all tuples belong to `key`.
    """

    def __init__(self, window: Window, aggregates: Named, shape: Shape, key: Any, keyed_by: Key | None) -> None:
        assert window.on is not None, "the policy made sure of it"
        self.time_of = attribute_getter(window.on)
        self.rules = pane_rules_of(aggregates)
        self.shape = shape
        self.key = key
        self.key_of = None if keyed_by is None else keyed_by.getter()
        self.windows: EventTime | Sessions = Sessions(window) if window.spans == "session" else EventTime(window)

    def process_at(self, t: Any, port: int, now: float) -> list[Any] | Late | None:
        key = self.key if self.key_of is None else self.key_of(t)
        closed = self.windows.insert(self.rules, key, t, self.time_of(t))
        return LATE if closed is None else self._rows(closed)

    def process(self, t: Any, port: int) -> list[Any] | Late | None:
        return self.process_at(t, port, 0.0)

    def finish(self) -> list[Any] | None:
        return self._rows(self.windows.finish(self.rules))

    def _rows(self, closed: list[tuple[Any, Closed]]) -> list[Any] | None:
        if not closed:
            return None
        return [self.shape.row(key, window.results, window.start, window.end) for key, window in closed]


class WindowedLogic(TimedLogic):
    """What `aggregate` and `apply` share; subclasses set `aggregates` and `shape` before anything is made."""

    aggregates: Named
    shape: Shape

    @property
    def window(self) -> Window:
        operation = self.node.operation
        assert isinstance(operation, Windowed)
        window: Window = operation.window
        return window

    @property
    def stream_key(self) -> Key | None:
        """The key that the single partition of a keyed stream with one watermark reads itself."""
        return None if self.keyed else self.node.inputs[0].key

    def follow(self) -> None:
        """Set what depends on the policy; subclasses call it at the end of their construction."""
        self.may_be_late = self.window.event_time
        self.timed = self.follows_clock = self.window.spans == "time"

    def make(self, key: Any) -> Partition:
        if self.window.event_time:
            return EventPartition(self.window, self.aggregates, self.shape, key, self.stream_key)
        return ArrivalPartition(self.window, self.aggregates, self.shape, key)
