"""`dedup`: drops tuples whose key was let through not long ago, in time or in number of tuples.

**Time.** The state of a key is the time from which its next tuple may pass. Each key follows only its own tuples, so
keys are independent and parallel runs stay exact. Tuples of one key are expected in order of time; one that comes out
of order counts as a repetition of a later one.

Memory: with the arrival clock, which is the same for all keys, keys that have run out are swept away, so that at most
about twice as many are kept as are in force. With an attribute (`on=`) nothing may be forgotten: the newer time of
another key says nothing about the tuples this key will still bring, so one number per distinct key is kept.

**Count.** One window over the whole stream; memory is bounded by `count`.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Callable
from datetime import datetime, timedelta
from typing import Any

from penstock.clock import Clock
from penstock.errors import FlowError
from penstock.graph.graph import Node
from penstock.graph.operations import Dedup
from penstock.operators.base import Emit, Partition, PartitionLogic, Writer
from penstock.windows.policies import seconds

# Sweeping is worth its while only from here on.
_FEWEST_KEYS = 1024


class _Recent(Partition):
    """The keys let through among the last `count` tuples."""

    def __init__(self, count: int, key_of: Callable[[Any], Any]) -> None:
        self.count = count
        self.key_of = key_of
        self.arrived = 0
        self.passed: deque[tuple[int, Any]] = deque()  # (number of arrival, key), oldest first
        self.keys: set[Any] = set()

    def process(self, t: Any, port: int) -> list[Any] | None:
        self.arrived += 1
        while self.passed and self.arrived - self.passed[0][0] > self.count:
            self.keys.discard(self.passed.popleft()[1])
        key = self.key_of(t)
        if key in self.keys:
            return None
        self.keys.add(key)
        self.passed.append((self.arrived, key))
        return [t]


class DedupLogic(PartitionLogic):
    """Time: one cell per key, in the segment's own code. Count: a single partition."""

    ends_segment = False

    def __init__(self, node: Node, clock: Clock | None = None) -> None:
        super().__init__(node, clock)
        operation = node.operation
        assert isinstance(operation, Dedup)
        self.on = operation.on
        self.count = operation.count
        self.span = seconds(operation.time)
        self.kept = 0  # keys the last sweep left
        number = self.span if self.count is None else self.count
        if isinstance(number, bool) or not isinstance(number, int | float) or not number > 0:
            raise FlowError(
                f"operator '{node.name}' (defined at {node.location}): dedup needs a time= or count= above 0, "
                f"not {number!r}"
            )

    def make(self, key: Any) -> Any:
        if self.count is None:
            self._sweep()
            return [None]
        spec = self.node.inputs[0].key
        assert spec is not None, "dedup always has a key"
        return _Recent(self.count, spec.getter())

    def write(self, w: Writer, item: str, port: int) -> None:
        if self.count is not None:
            super().write(w, item, port)
            return
        state, time = w.variable("state"), w.variable("time")
        w.line(f"{state} = {self.write_partition(w, item, port)}")
        if self.on is None:
            w.line(f"{time} = {w.bind(self.clock.now, 'now')}()")
        else:
            name = self.on if isinstance(self.on, str) else ""
            w.line(f"{time} = {w.attribute(item, self.on)}", attribute=name)
        with w.block(f"if {state}[0] is None or {time} >= {state}[0]:"):
            w.line(f"{state}[0] = {w.bind(self.until, 'until')}({time})")
            w.emit(0, item)

    def until(self, time: Any) -> Any:
        """When the next tuple of a key may pass that passed at `time`."""
        return time + (timedelta(seconds=self.span) if isinstance(time, datetime) else self.span)

    def _sweep(self) -> None:
        """Forget keys whose time has run out, whenever twice as many are there as the last sweep left."""
        if self.on is not None or len(self.partitions) < 2 * max(self.kept, _FEWEST_KEYS):
            return
        now = self.clock.now()
        for key in [key for key, cell in self.partitions.items() if cell[0] is None or cell[0] <= now]:
            del self.partitions[key]
        self.kept = len(self.partitions)

    # Cells per key have nothing to say between tuples, and neither has the single partition.

    def on_mark(self, port: int, emit: Emit) -> None:
        pass

    def on_port_final(self, port: int, emit: Emit) -> None:
        pass

    def on_final(self, emit: Emit) -> None:
        pass

    def deadline(self) -> float | None:
        return None

    def backlog(self, port: int) -> int:
        return 0
