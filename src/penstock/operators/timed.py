"""Operators that follow the arrival clock: the generated code tells their partitions what time it is.

A partition that kept the clock could not be pickled, and would follow the wrong one after it was moved. So it is told
the time with each tuple, as it is told with each tick.
"""

from __future__ import annotations

import time
from typing import Any

from penstock.operators.base import Late, Partition, PartitionLogic, Writer


class TimedPartition(Partition):
    """A partition that may need the time of arrival."""

    __slots__ = ()

    def process_at(self, t: Any, port: int, now: float) -> list[Any] | Late | None:
        """One tuple arrived at input `port` when the clock showed `now`."""
        raise NotImplementedError

    def process(self, t: Any, port: int) -> list[Any] | Late | None:
        return self.process_at(t, port, time.monotonic())


class TimedLogic(PartitionLogic):
    """An operator of timed partitions; `follows_clock` says whether this one needs the time at all."""

    follows_clock: bool = False

    def write(self, w: Writer, item: str, port: int) -> None:
        partition = self.write_partition(w, item, port)
        now = f"{w.bind(self.clock.now, 'now')}()" if self.follows_clock else "0.0"
        result = w.variable("result")
        w.line(f"{result} = {partition}.process_at({item}, {port}, {now})")
        self.write_result(w, item, result)
