"""`join`: each arriving tuple meets the other side's current window.

Each side keeps its own sliding window. A tuple first evicts what must go, then meets the other side's window in order
of arrival, then enters its own. A tuple that leaves without ever having met one comes out of an outer join with None.

With event time a pair matches when the two times differ by less than `time`. A tuple leaves only when both sides have
come at least `time` (and `late`) past it; so as long as each side is in order of time, which pairs come out does not
depend on how the two sides interleave. When one side has ended, only the other one counts.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Callable
from typing import Any

from penstock.clock import Clock
from penstock.errors import FlowError
from penstock.graph.graph import Node
from penstock.graph.operations import Join
from penstock.operators.base import Emit
from penstock.operators.timed import TimedLogic, TimedPartition
from penstock.tuples import attribute_getter
from penstock.windows.arrival import distance
from penstock.windows.policies import Window

LEFT = 0


class Entry:
    """A tuple in a window. `place` is its time or attribute, where the policy asks for one."""

    __slots__ = ("matched", "place", "t")

    def __init__(self, t: Any, place: Any) -> None:
        self.t = t
        self.place = place
        self.matched = False


class Side:
    """The window of one input, in order of arrival."""

    __slots__ = ("entries", "in_order", "newest")

    def __init__(self) -> None:
        self.entries: deque[Entry] = deque()
        self.in_order = True  # places never fell while the window was not empty: then the first leave first
        self.newest: Any = None

    def insert(self, entry: Entry) -> None:
        if not self.entries:
            self.in_order = True
        elif entry.place is not None and entry.place < self.entries[-1].place:
            self.in_order = False
        self.entries.append(entry)

    def saw(self, place: Any) -> None:
        """Remember the newest place of all tuples that came."""
        if self.newest is None or place > self.newest:
            self.newest = place

    def take_while(self, leaves: Callable[[Entry], bool]) -> list[Entry]:
        """Remove and return the entries that leave."""
        gone = []
        while self.entries and leaves(self.entries[0]):
            gone.append(self.entries.popleft())
        if not self.in_order:
            among = [entry for entry in self.entries if leaves(entry)]
            if among:
                self.entries = deque(entry for entry in self.entries if not leaves(entry))
                gone += among
        return gone


class JoinPartition(TimedPartition):
    """Both windows of one key; subclasses know the policy."""

    def __init__(self, window: Window, how: str, where: Callable[[Any, Any], Any] | None, final: set[int]) -> None:
        self.size = window.size
        self.late = window.late
        self.place_of = None if window.on is None else attribute_getter(window.on)
        self.outer = {"inner": (False, False), "left": (True, False), "right": (False, True)}.get(how, (True, True))
        self.where = where
        self.sides = (Side(), Side())
        self.final = set(final)

    def process_at(self, t: Any, port: int, now: float) -> list[Any] | None:
        entry = Entry(t, self.place(t, now))
        outputs = self.evict(entry, port)
        self._meet(entry, port, outputs)
        self.sides[port].insert(entry)
        return outputs or None

    def place(self, t: Any, now: float) -> Any:
        """Where the tuple stands in its window."""
        return None if self.place_of is None else self.place_of(t)

    def evict(self, entry: Entry, port: int) -> list[Any]:
        """Make room for `entry`; the outputs for tuples that leave unmatched."""
        raise NotImplementedError

    def matches(self, left: Entry, right: Entry) -> bool:
        """Whether the window lets the two meet."""
        return True

    def finish(self) -> list[Any] | None:
        outputs = []
        for port, side in enumerate(self.sides):
            outputs += self._unmatched(list(side.entries), port)
            side.entries.clear()
        return outputs or None

    def _meet(self, entry: Entry, port: int, outputs: list[Any]) -> None:
        where = self.where
        for other in self.sides[1 - port].entries:
            left, right = (entry, other) if port == LEFT else (other, entry)
            if self.matches(left, right) and (where is None or where(left.t, right.t)):
                entry.matched = other.matched = True
                outputs.append((left.t, right.t))

    def _unmatched(self, gone: list[Entry], port: int) -> list[Any]:
        if not self.outer[port]:
            return []
        return [(entry.t, None) if port == LEFT else (None, entry.t) for entry in gone if not entry.matched]


class CountJoin(JoinPartition):
    """The n newest tuples of each side."""

    def evict(self, entry: Entry, port: int) -> list[Any]:
        side = self.sides[port]
        return self._unmatched([side.entries.popleft()] if len(side.entries) >= self.size else [], port)


class DeltaJoin(JoinPartition):
    """Of each side, what is at most `delta` behind the tuple that came to it last."""

    def evict(self, entry: Entry, port: int) -> list[Any]:
        gone = self.sides[port].take_while(lambda held: bool(distance(held.place, entry.place) > self.size))
        return self._unmatched(gone, port)


class ArrivalJoin(JoinPartition):
    """Of each side, what came less than `time` seconds ago."""

    def place(self, t: Any, now: float) -> float:
        return now

    def evict(self, entry: Entry, port: int) -> list[Any]:
        return self.tick(entry.place) or []

    def tick(self, now: float) -> list[Any] | None:
        outputs = []
        for port, side in enumerate(self.sides):
            outputs += self._unmatched(side.take_while(lambda held: now >= held.place + self.size), port)
        return outputs or None

    def deadline(self) -> float | None:
        """Only outer joins have something to say when a tuple leaves."""
        waiting = [s.entries[0].place for s, outer in zip(self.sides, self.outer, strict=True) if outer and s.entries]
        return min(waiting) + self.size if waiting else None


class EventJoin(JoinPartition):
    """Pairs whose times differ by less than `time`."""

    def matches(self, left: Entry, right: Entry) -> bool:
        return bool(-self.size < distance(left.place, right.place) < self.size)

    def evict(self, entry: Entry, port: int) -> list[Any]:
        self.sides[port].saw(entry.place)
        return self._evict_passed()

    def port_final(self, port: int) -> list[Any] | None:
        self.final.add(port)
        return self._evict_passed() or None

    def _evict_passed(self) -> list[Any]:
        newest = [side.newest for port, side in enumerate(self.sides) if port not in self.final]
        if not newest or any(place is None for place in newest):
            return []
        horizon, span = min(newest), self.size + self.late
        outputs = []
        for port, side in enumerate(self.sides):
            gone = side.take_while(lambda held: bool(distance(held.place, horizon) >= span))
            outputs += self._unmatched(gone, port)
        return outputs


_PARTITIONS: dict[str, type[JoinPartition]] = {
    "count": CountJoin,
    "delta": DeltaJoin,
    "time": ArrivalJoin,
    "event": EventJoin,
}


class JoinLogic(TimedLogic):
    """Port 0 is the left side, port 1 the right one."""

    def __init__(self, node: Node, clock: Clock | None = None) -> None:
        super().__init__(node, clock)
        assert isinstance(node.operation, Join)
        self.operation = node.operation
        self.window: Window = node.operation.window
        self.timed = self.follows_clock = self.window.spans == "time"
        self.final: set[int] = set()
        self._check()

    def _check(self) -> None:
        place = f"operator '{self.node.name}' (defined at {self.node.location})"
        if not self.window.sliding:
            raise FlowError(f"{place}: join needs a sliding window such as pn.sliding(count=10), not {self.window}")
        if self.window.every is not None:
            raise FlowError(f"{place}: each tuple of a join meets the other side; leave every= out of {self.window}")
        if self.window.watermark == "stream" and self.keyed:
            raise FlowError(f"{place}: join follows each key's own time; leave out watermark='stream'")

    def make(self, key: Any) -> JoinPartition:
        partition = _PARTITIONS[self.window.spans]
        return partition(self.window, self.operation.how, self.operation.where, self.final)

    def on_port_final(self, port: int, emit: Emit) -> None:
        self.final.add(port)  # keys that are first met from now on must know it too
        super().on_port_final(port, emit)
