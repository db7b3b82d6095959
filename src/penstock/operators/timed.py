"""Operators that follow the arrival clock: their partitions are told the time, and woken when they asked for it.

A partition that kept the clock could not be pickled, and would follow the wrong one after it was moved. So the
generated code tells it the time with each tuple, as `tick` does.

With many keys, asking each partition for its deadline would cost more than the tuples do. So the logic keeps an agenda,
a heap with at most one alarm per key. An alarm may ring early (the window it was set for was flushed by a tuple since):
then the partition has nothing to say and is noted down again. It never rings late, because the deadline of a partition
only moves forward.
"""

from __future__ import annotations

import time
from heapq import heappop, heappush
from typing import Any

from penstock.clock import Clock
from penstock.graph.graph import Node
from penstock.operators.base import Emit, Late, Partition, PartitionLogic, Writer
from penstock.operators.keys import write_key


class TimedPartition(Partition):
    """A partition that may need the time of arrival."""

    alarm: float | None = None  # when the logic that holds this partition will wake it; no part of its state

    def process_at(self, t: Any, port: int, now: float) -> list[Any] | Late | None:
        """One tuple arrived at input `port` when the clock showed `now`."""
        raise NotImplementedError

    def process(self, t: Any, port: int) -> list[Any] | Late | None:
        return self.process_at(t, port, time.monotonic())

    def __getstate__(self) -> dict[str, Any]:
        return {name: value for name, value in self.__dict__.items() if name != "alarm"}


class TimedLogic(PartitionLogic):
    """An operator of timed partitions; `follows_clock` says whether this one needs the time at all."""

    follows_clock: bool = False

    def __init__(self, node: Node, clock: Clock | None = None) -> None:
        super().__init__(node, clock)
        self.partitions.make = self._make_counted
        self.known = 0  # partitions made here, or noted down since they were put here
        self.agenda: list[tuple[float, int, Any]] = []  # (when, a number that settles ties, key)
        self.alarms = 0

    def _make_counted(self, key: Any) -> Partition:
        self.known += 1
        return self.make(key)

    def write(self, w: Writer, item: str, port: int) -> None:
        result = w.variable("result")
        if not self.follows_clock:
            w.line(f"{result} = {self.write_partition(w, item, port)}.process_at({item}, {port}, 0.0)")
            self.write_result(w, item, result)
            return
        key = write_key(w, item, self.node.inputs[port].key) if self.keyed else "None"
        partition = w.variable("partition")
        w.line(f"{partition} = {w.bind(self.partitions, 'partitions')}[{key}]")
        w.line(f"{result} = {partition}.process_at({item}, {port}, {w.bind(self.clock.now, 'now')}())")
        with w.block(f"if {partition}.alarm is None:"):
            w.line(f"{w.bind(self.note, 'note')}({key}, {partition})")
        self.write_result(w, item, result)

    def note(self, key: Any, partition: TimedPartition) -> None:
        """Write the deadline of a partition into the agenda, if it has one."""
        due = partition.deadline()
        if due is not None:
            partition.alarm = due
            heappush(self.agenda, (due, self.alarms, key))
            self.alarms += 1

    def deadline(self) -> float | None:
        if not self.follows_clock:
            return None
        if len(self.partitions) != self.known:  # partitions came or went by another way than by their tuples
            self.known = len(self.partitions)
            for key, partition in self.partitions.items():
                if partition.alarm is None:
                    self.note(key, partition)
        return self.agenda[0][0] if self.agenda else None

    def on_tick(self, now: float, emit: Emit) -> None:
        due = []
        while self.agenda and self.agenda[0][0] <= now:
            due.append(heappop(self.agenda)[2])
        for key in due:
            partition = self.partitions.get(key)
            if partition is None:
                continue  # its key has been moved elsewhere
            partition.alarm = None
            outputs = partition.tick(now)
            if outputs:
                emit(0, outputs)
            self.note(key, partition)

    def backlog(self, port: int) -> int:
        """Nothing here waits for another input to catch up before it can be evicted."""
        return 0
