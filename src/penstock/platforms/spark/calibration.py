"""Measures what a tuple pays on Spark at a worker boundary and in a shuffle, and what a batch costs Spark of itself.

Small programs run on Spark as any program of a user does, in batches of a fixed size. Spark says how long each batch
took, and the quickest of a run counts: noise only ever adds. Programs that differ in one thing tell what that costs,
by the model of `compiler.batches`, all per tuple, with c cores and w channels behind a shuffle:

    A  tuples are read, and dropped              r / c
    D  they are delivered instead                A + δ / c + δ                            δ of a worker boundary
    S  they pass a shuffle and an operator       A + δ / c + δ + s                        δ of a shuffle
    T  they pass the operator twice              S + s
    W  as S, with w channels behind the shuffle  A + δ / c + (δ + s + c_p · log₂ w) / w

where r is what reading costs, whatever that is, and s what the operator costs. The time of a tuple is what a large
batch takes longer than a small one, over its tuples. Small batches show what a batch costs whatever it holds: those of
programs with none, one and two shuffles. There the middle one counts, as batches of a user's program are no quicker.
"""

from __future__ import annotations

import math
import statistics
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from typing import Any

from penstock.connectors.sinks import Nowhere
from penstock.errors import PlatformError
from penstock.graph.flow import Flow
from penstock.graph.graph import Graph
from penstock.optimizer.calibrate import BatchTime, Boundary
from penstock.platforms.spark.options import SparkOptions
from penstock.platforms.spark.run import SparkRun
from penstock.platforms.spark.session import get_session

TUPLES, BATCHES = 400_000, 5  # of a large batch for each core; large batches of each program
SMALL, SMALL_BATCHES = 64, 12  # tuples of a small batch for each core
KEYS = 32  # few: a small batch meets them all, so both sizes read and write the same state
_WARM = 3  # batches of a program that start workers and compile


@dataclass(frozen=True, slots=True)
class Times:
    """Seconds per tuple of the programs A, D, S, T and W."""

    dropped: float
    delivered: float
    shuffled: float
    twice: float
    split: float

    def boundaries(self, cores: int, width: int) -> dict[str, Boundary]:
        """What these times say of the boundaries "stage" and "shuffle".

        >>> times = Times(dropped=1e-6, delivered=4e-6, shuffled=7e-6, twice=10e-6, split=5e-6)
        >>> found = times.boundaries(cores=2, width=2)
        >>> found["stage"].delta, found["shuffle"].delta, found["shuffle"].cp
        (2e-06, 2e-06, 1e-06)
        """
        sides = 1 + 1 / cores
        work = max(0.0, self.twice - self.shuffled)
        stage = max(0.0, self.delivered - self.dropped) / sides
        shuffle = max(0.0, self.shuffled - self.dropped - work) / sides
        behind = (self.split - self.dropped - shuffle / cores) * min(width, cores)
        cp = max(0.0, behind - work - shuffle) / math.log2(width)
        return {"stage": Boundary(_rounded(stage)), "shuffle": Boundary(_rounded(shuffle), _rounded(cp))}


def measure_spark(
    tell: Callable[[str], None] = lambda _: None,
    *,
    tuples: int = TUPLES,
    batches: int = BATCHES,
    small_batches: int = SMALL_BATCHES,
) -> tuple[dict[str, Boundary], BatchTime]:
    """The boundaries "stage" and "shuffle", as far as noise does not hide them, and Spark's own part of a batch.

    Starts Spark where it does not run yet, and leaves it running. `tell` hears what is measured next; `tuples` are
    those of a large batch for each core.
    """
    tell("Spark: starting")
    cores: int = max(1, get_session(None, None, None).sparkContext.defaultParallelism)
    width = max(2, cores)

    def run(what: str, size: int, count: int, **program: Any) -> list[float]:
        tell(f"Spark: {what}")
        return _batches(_program(size * cores * count, **program), size, cores)

    def large(what: str, **program: Any) -> list[float]:
        return run(what, tuples, batches, **program)

    def small(shuffles: int, width: int) -> list[float]:
        what = f"small batches with {shuffles} shuffle{'' if shuffles == 1 else 's'}, {width} wide"
        return run(what, SMALL, small_batches, shuffles=shuffles, width=width)

    def per_tuple(full: list[float], empty: list[float]) -> float:
        return max(0.0, min(full) - min(empty)) / (tuples * cores)

    run("warming up", SMALL, small_batches, shuffles=2, width=width)
    dropped = large("tuples that are read", shuffles=0)
    delivered = large("tuples that are delivered", shuffles=0, deliver=True)
    shuffled = large("a shuffle", shuffles=1)
    twice = large("two operators behind a shuffle", shuffles=1, operators=2)
    split = large(f"a shuffle into {width} channels", shuffles=1, width=width)
    two, one, narrow, none = small(2, width), small(1, width), small(1, 1), small(0, width)  # last: Spark is warm now
    times = Times(
        per_tuple(dropped, none),
        per_tuple(delivered, none),
        per_tuple(shuffled, narrow),
        per_tuple(twice, narrow),
        per_tuple(split, one),
    )
    own = {shuffles: statistics.median(seconds[_WARM:] or seconds) for shuffles, seconds in enumerate((none, one, two))}
    return heard(times.boundaries(cores, width)), BatchTime.fitted(own)


def heard(boundaries: dict[str, Boundary]) -> dict[str, Boundary]:
    """Without those that are lost in noise: no tuple changes hands for nothing, so a δ of zero was not measured.

    >>> list(heard({"stage": Boundary(2e-7), "shuffle": Boundary(0.0, 1e-7)}))
    ['stage']
    """
    return {kind: boundary for kind, boundary in boundaries.items() if boundary.delta > 0}


def _batches(graph: Graph, tuples: int, cores: int) -> list[float]:
    """Runs a program in batches of `tuples` for each core: seconds of each that had so many."""
    conf = {"penstock.item.tuples": str(tuples), "penstock.batch.items": str(cores)}
    run = SparkRun(graph, SparkOptions(conf=conf))
    run.start()
    try:
        run.wait()
    except KeyboardInterrupt:
        run.cancel()
        raise
    full = [seconds for count, seconds in run.batch_seconds() if count == tuples * cores]
    if not full:
        raise PlatformError("Spark reported on no batch that could be measured")
    return full


# ------------------------------------------------------------------------------------------------------- the programs


def _program(tuples: int, shuffles: int, width: int = 1, operators: int = 1, deliver: bool = False) -> Graph:
    """Tuples through so many shuffles, with so many operators behind each; dropped at the end or delivered."""
    flow = Flow("calibration")
    stream: Any = flow.source(_Records(tuples))
    for key in (_key, _other_key)[:shuffles]:
        with flow.parallel(width, by=key):
            for _ in range(operators):
                stream = stream.key_by(key).scan(_count, init=0)
    stream.filter(_is_record if deliver else _is_none).sink(Nowhere())
    return flow.graph()


class _Records:
    """So many small tuples."""

    def __init__(self, count: int) -> None:
        self._count = count

    def __iter__(self) -> Iterator[tuple[str, int]]:
        names = [f"key {number}" for number in range(KEYS)]
        return ((names[n % KEYS], n) for n in range(self._count))


def _key(item: tuple[str, int]) -> str:
    return item[0]


def _other_key(item: tuple[str, int]) -> int:
    return item[1] % KEYS


def _count(state: int, item: tuple[str, int]) -> tuple[int, tuple[str, int]]:
    return state + 1, item


def _is_record(item: tuple[str, int] | None) -> bool:
    return item is not None


def _is_none(item: tuple[str, int] | None) -> bool:
    return item is None


def _rounded(seconds: float) -> float:
    """To a hundredth of a nanosecond: no run tells more."""
    return round(seconds, 11)
