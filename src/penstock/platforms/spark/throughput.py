"""The throughput of a run's batches beside what the model says of them.

Measured: the tuples of the sources, divided by the time from the start of a batch to its commit, as Spark reports it.
That excludes the start of Spark, and waiting for the next batch; and the first batch, which starts the Python workers
and compiles, where there are others. Spark keeps its reports of a hundred batches, so a long run shows its latest.

The model knows what operators cost in this run, and what boundaries cost (`compiler.batches`). What it cannot know from
a profile is how long Spark needs for a batch whatever it holds. So this is measured too: the time of a batch in which
neither the tasks of its slowest way through the stages nor the driver were at work for Penstock.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field

from penstock.compiler.batches import throughput_of
from penstock.compiler.physical import Expected
from penstock.platforms.job import Throughput

MOST = 200  # batches whose numbers are kept: more than Spark keeps


@dataclass
class _Batch:
    tuples: int = 0
    delivering: float = 0.0
    tasks: dict[int, list[float]] = field(default_factory=dict)  # seconds of each task, by level

    def working(self, cores: int) -> float:
        """Seconds in which tasks or the driver were at work: levels follow each other, tasks of one share the cores."""
        return self.delivering + sum(max(*times, sum(times) / cores) for times in self.tasks.values())


class Batches:
    """What the driver notes of each batch."""

    def __init__(self, cores: int) -> None:
        self._cores = cores
        self._batches: dict[int, _Batch] = {}
        self._first: int | None = None  # of this run, which may go on with an earlier one

    def _get(self, batch: int) -> _Batch:
        if self._first is None:
            self._first = batch
        while len(self._batches) > MOST:
            del self._batches[next(iter(self._batches))]
        return self._batches.setdefault(batch, _Batch())

    def note_task(self, batch: int, level: int, seconds: float, tuples: int) -> None:
        """A task has reported."""
        noted = self._get(batch)
        noted.tuples += tuples
        noted.tasks.setdefault(level, []).append(seconds)

    def note_delivery(self, batch: int, seconds: float) -> None:
        """The driver has delivered."""
        self._get(batch).delivering += seconds

    def seconds(self, durations: Mapping[int, float]) -> list[tuple[int, float]]:
        """Tuples and seconds of the batches that Spark has reported on, in order."""
        return [(one.tuples, durations[number]) for number, one in sorted(self._batches.items()) if number in durations]

    def compare(self, durations: Mapping[int, float], model: Callable[[], Expected | None]) -> Throughput | None:
        """The throughput of the batches that Spark has reported on: `durations` are seconds by batch number."""
        known = {number: one for number, one in sorted(self._batches.items()) if one.tuples and number in durations}
        if not known:
            return None
        if len(known) > 1 and self._first is not None:
            known.pop(self._first, None)
        tuples = sum(one.tuples for one in known.values())
        seconds = sum(durations[number] for number in known)
        fixed = sum(max(0.0, durations[number] - one.working(self._cores)) for number, one in known.items())
        expected = model()
        return Throughput(
            None if expected is None else throughput_of(expected, tuples, fixed),
            tuples / seconds if seconds > 0 else 0.0,
            tuples,
            len(known),
            seconds,
            fixed,
            first=self._first in known,
            per_tuple=None if expected is None else sum(expected.times),
        )
