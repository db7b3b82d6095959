"""The profiler: which tuples go through the instrumented functions, and what their measurements say.

An instrumented function takes two to four times as long as a plain one. So under load `SAMPLE` tuples are measured of
every `PERIOD` chunks, which costs about half a per cent, and more of them at first, so that short runs have a profile
too. Chunks of a few tuples only come when there is little to do: the first thousands are all sampled, which makes the
counts of a quiet program exact.
"""

from __future__ import annotations

import time
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from functools import lru_cache
from typing import TYPE_CHECKING

from penstock.graph.graph import Graph
from penstock.optimizer.profile import OperatorProfile, Profile
from penstock.tuples import CHUNK

if TYPE_CHECKING:
    from penstock.runtime.segment import Segment

PERIOD = 128
SAMPLE = 128
_FEW = 4
_MANY = 4096  # small chunks that are measured without exception
# The first sample comes early, so that short runs have a profile too, but not first: first calls are not typical.
_WARM_UP = CHUNK // 4


class Sampler:
    """Decides for one segment which tuples are measured."""

    __slots__ = ("_few", "_gap", "_next")

    def __init__(self) -> None:
        self._next = _WARM_UP
        self._gap = 2 * CHUNK
        self._few = _MANY

    def wants(self, tuples: int) -> int:
        """How many of a chunk's tuples should be measured."""
        if tuples <= _FEW and self._few:
            self._few -= 1
            return tuples
        self._next -= tuples
        if self._next > 0:
            return 0
        self._next = self._gap = min(2 * self._gap, PERIOD * CHUNK)
        return SAMPLE


@lru_cache(maxsize=1)
def probe_costs() -> tuple[float, float]:
    """Seconds the probes themselves add, as the compiler writes them: for a tuple at an operator, and for one it sends.

    The best of several tries: noise only ever adds.
    """
    clock, seconds, received, sent = time.perf_counter, [0.0], [0], [0]
    visit = count = float("inf")
    for _ in range(20):
        start = last = clock()
        current = 0
        for _ in range(100):
            now = clock()
            seconds[current] += now - last
            last = now
            current = 0
            received[0] += 1
        middle = clock()
        for _ in range(100):
            sent[0] += 1
        visit, count = min(visit, (middle - start) / 100), min(count, (clock() - middle) / 100)
    return visit, count


def make_profile(graph: Graph, totals: Mapping[int, Counts]) -> Profile:
    """The profile of a run so far."""
    operators = {}
    for node, numbers in totals.items():
        if numbers.measured:
            selectivity = numbers.measured_sent / numbers.measured
            cost = numbers.seconds / numbers.measured
            operators[graph.nodes[node].name] = OperatorProfile(cost, selectivity, numbers.measured)
    return Profile(graph.name, operators)


@dataclass(frozen=True, slots=True)
class Counts:
    """Numbers of one operator of a segment: estimated `received` and `sent`, and what was measured."""

    received: int
    sent: int
    measured: int  # tuples behind `seconds`
    measured_sent: int
    seconds: float  # without those of the probes

    def __add__(self, other: Counts) -> Counts:
        return Counts(
            self.received + other.received,
            self.sent + other.sent,
            self.measured + other.measured,
            self.measured_sent + other.measured_sent,
            self.seconds + other.seconds,
        )


def counts(segment: Segment) -> dict[int, Counts]:
    """The numbers of every operator of a segment so far: exact at its entry, estimated from samples behind it."""
    probes = segment.probes
    entered = probes.received[0]
    scale = segment.received / entered if entered else 0.0
    result = {}
    for position, node in enumerate(segment.plan.nodes):
        measured, sent = probes.received[position], probes.sent[position]
        received = segment.received if position == 0 else round(measured * scale)
        seconds = max(0.0, probes.seconds[position] - _of_probes(segment, node, measured, sent))
        result[node] = Counts(received, round(sent * scale), measured, sent, seconds)
    return result


def _of_probes(segment: Segment, node: int, measured: int, sent: int) -> float:
    """Seconds that the probes of an operator took: for each tuple, or, where it takes whole chunks, for each result."""
    visit, count = probe_costs()
    if not segment.logics[node].whole_chunk:
        return visit * measured + count * sent
    inside = set(segment.plan.nodes)
    inline = any(reader.node in inside for reader in segment.graph.readers(node, 0))
    return (visit + count) * sent if inline else 0.0


def total_counts(segments: Iterable[Segment]) -> dict[int, Counts]:
    """The numbers of every operator over all segments it has been part of."""
    totals: dict[int, Counts] = {}
    for segment in segments:
        for node, numbers in counts(segment).items():
            known = totals.get(node)
            totals[node] = numbers if known is None else known + numbers
    return totals


class Tally:
    """The numbers of operators whose segments are cut anew now and then."""

    def __init__(self) -> None:
        self._retired: list[Segment] = []  # of the last cut, which may still have something to do
        self._past: dict[int, Counts] = {}  # numbers of those of earlier cuts

    def retire(self, segments: list[Segment]) -> None:
        """These segments are replaced. Of those replaced before, the numbers are kept and not the segments."""
        for node, numbers in total_counts(self._retired).items():
            self._past[node] = self._past[node] + numbers if node in self._past else numbers
        self._retired = list(segments)

    def counts(self, segments: list[Segment]) -> dict[int, Counts]:
        """The numbers of every operator, of which these are the segments now."""
        totals = total_counts([*self._retired, *segments])
        for node, numbers in self._past.items():
            totals[node] = totals[node] + numbers
        return totals
