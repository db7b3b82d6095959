"""The numbers of a job on Spark: what workers reported, added up in the driver."""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping
from dataclasses import dataclass, field

from penstock.graph.graph import Graph
from penstock.optimizer.profile import OperatorProfile, Profile
from penstock.platforms.job import OperatorMetrics
from penstock.runtime.profiler import Counts


@dataclass(frozen=True, slots=True)
class Report:
    """What one task did for one batch: its level, the seconds it was at work, and the numbers of its operators."""

    level: int
    seconds: float
    operators: Mapping[int, tuple[Counts, dict[str, int]]]


@dataclass
class _Sum:
    received: int = 0
    sent: int = 0
    measured: int = 0
    measured_sent: int = 0
    seconds: float = 0.0
    counters: Counter[str] = field(default_factory=Counter)

    def add(self, counts: Counts, counters: dict[str, int]) -> None:
        self.received += counts.received
        self.sent += counts.sent
        self.measured += counts.measured
        self.measured_sent += counts.measured_sent
        self.seconds += counts.seconds
        self.counters.update(counters)

    @property
    def cost(self) -> float | None:
        return self.seconds / self.measured if self.measured else None


class Numbers:
    """Sums of the reports of delivered batches."""

    def __init__(self, graph: Graph) -> None:
        self._graph = graph
        self._sums: dict[int, _Sum] = {}
        self.batches = 0

    def add(self, report: Report) -> int:
        """Add what one task reported for one batch; returns the tuples it read from sources."""
        read = 0
        for index, (counts, counters) in report.operators.items():
            self._sums.setdefault(index, _Sum()).add(counts, counters)
            read += counts.received if self._graph.nodes[index].is_source else 0
        return read

    def add_sink(self, index: int, tuples: int, seconds: float) -> None:
        """The driver delivered so many tuples of a batch."""
        self._sums.setdefault(index, _Sum()).add(Counts(tuples, 0, tuples, 0, seconds), {})

    @property
    def tuples(self) -> int:
        """Tuples read from all sources."""
        return sum(total.received for index, total in self._sums.items() if self._graph.nodes[index].is_source)

    def shares(self) -> dict[str, float]:
        """The part of all tuples that each source gave, by its name."""
        total = self.tuples
        return {
            self._graph.nodes[index].name: one.received / total
            for index, one in sorted(self._sums.items())
            if self._graph.nodes[index].is_source and total
        }

    def operators(self) -> dict[str, OperatorMetrics]:
        """By operator name."""
        return {
            self._graph.nodes[index].name: OperatorMetrics(
                total.received, total.sent, total.cost, {name: n for name, n in total.counters.items() if n}
            )
            for index, total in sorted(self._sums.items())
        }

    def profile(self) -> Profile:
        """Costs and selectivities, as far as chunks were sampled."""
        operators = {
            self._graph.nodes[index].name: OperatorProfile(
                total.cost or 0.0, total.measured_sent / total.measured, total.measured
            )
            for index, total in sorted(self._sums.items())
            if total.measured
        }
        return Profile(self._graph.name, operators)
