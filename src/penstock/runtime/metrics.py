"""What a PE shows of its ports and threads, and the latency from source to sink where that was asked for."""

from __future__ import annotations

import threading
import time
from bisect import bisect_left
from dataclasses import dataclass

from penstock.graph.graph import Graph
from penstock.operators.sink import WriteLogic
from penstock.runtime.segment import Segment


@dataclass(frozen=True, slots=True)
class PortMetrics:
    """A threaded port at one moment.

    `length` of `capacity` tuples wait; `pushed` came in all; `waiting` is the mean time in the queue in seconds;
    `write_blocked` the part of the run during which some producer had to wait for room or made it.
    """

    length: int
    capacity: int
    pushed: int
    waiting: float
    write_blocked: float


@dataclass(frozen=True, slots=True)
class ThreadMetrics:
    """A thread: the part of its life it was inside operators, whether it is suspended, and the port it is at."""

    utilization: float
    suspended: bool
    port: str | None


# Bounds of the latency histogram in seconds: 1 µs to 100 s, ten to a decade.
BOUNDS = tuple(10 ** (step / 10 - 6) for step in range(81))


@dataclass(frozen=True)
class Latency:
    """How long tuples took from source to sink: `counts[i]` of them at most `BOUNDS[i]` seconds.

    What an operator sends counts from the arrival of the tuple that made it send.
    """

    counts: tuple[int, ...]
    total: float

    @property
    def tuples(self) -> int:
        return sum(self.counts)

    @property
    def mean(self) -> float:
        """Seconds, on average."""
        return self.total / self.tuples if self.tuples else 0.0

    def percentile(self, share: float) -> float:
        """The latency that `share` per cent of the tuples stayed within, to a quarter of its size."""
        wanted, seen = share / 100 * self.tuples, 0
        for place, count in enumerate(self.counts):
            seen += count
            if seen >= wanted and seen:
                return BOUNDS[min(place, len(BOUNDS) - 1)]
        return 0.0


class LatencyRecorder:
    """Collects latencies. Each segment with sinks is run by one thread at a time; the lock is for those that share."""

    def __init__(self, graph: Graph) -> None:
        self._lock = threading.Lock()
        self._counts = [0] * (len(BOUNDS) + 1)
        self._total = 0.0
        self._delivered: dict[int, int] = {node.index: 0 for node in graph if node.is_sink}

    def note(self, segment: Segment, born: float) -> None:
        """A segment is done with a chunk that entered the PE at `born`."""
        if not born:
            return
        for node in segment.plan.nodes:
            if node in self._delivered:
                self._note_sink(segment, node, born)

    def _note_sink(self, segment: Segment, node: int, born: float) -> None:
        logic = segment.logics[node]
        assert isinstance(logic, WriteLogic)
        delivered = logic.delivered()
        if delivered is None:  # a sink that takes whole chunks is a segment of its own
            delivered = segment.received
        new = delivered - self._delivered[node]
        if new > 0:
            self._delivered[node] = delivered
            seconds = time.perf_counter() - born
            with self._lock:
                self._counts[bisect_left(BOUNDS, seconds)] += new
                self._total += new * seconds

    def read(self) -> Latency:
        """What was collected so far."""
        with self._lock:
            return Latency(tuple(self._counts), self._total)
