"""The three-phase heuristic of pipelined fission (paper 003 §4, algorithms 1–4).

Regions first, as long as operators are compatible; then pipelines, by halving the slowest one again and again; then
replicas, by giving the slowest region one more. The last two phases are repeated with another share of the cores for
pipelines each time, and the best result counts.

Where the listings slip, the text is followed: runs of operators left over by the first phase are regions of their own,
also the last one, and never swallow operators that have a region. Only regions formed in the first phase are
replicated. What the rules call one region (neighbours without replicas, above all) is one in the result, and the
second phase is done once more for it: the first has cut it where nothing was gained by it.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from penstock.optimizer.model import (
    Chain,
    Config,
    Evaluation,
    Op,
    Range,
    Region,
    check_search,
    evaluate_chain,
    normalize,
    pipeline_times,
)


def heuristic(
    ops: Sequence[Op],
    cores: int,
    delta: float,
    cp: float,
    *,
    max_replicas: int | None = None,
    threshold: float | None = None,
) -> Config:
    """A good configuration, found quickly (algorithm 1).

    Regions that cost less than `threshold` per tuple (α in the paper) are not replicated. By default it is `cp`,
    what splitting for two replicas costs.

    >>> print(heuristic([Op(10), Op(100), Op(10, kind="stateful")], cores=4, delta=1, cp=5))
    [0 | 1]x4 [2]
    """
    most = check_search(ops, cores, delta, cp, max_replicas)
    phases = _Phases(Chain.of(ops), cores, delta, cp, most)
    regions = _regions(ops, cp if threshold is None else threshold)
    found = []
    for tenth in range(11):
        pipelines, replicas = phases.both(regions, tenth / 10 * cores)
        found.append(normalize(ops, phases.joined(pipelines, replicas)))
        merged = _merged(regions, replicas)
        if len(merged) < len(regions):
            found.append(normalize(ops, phases.joined(*phases.both(merged, tenth / 10 * cores))))
    return max(found, key=lambda config: phases.evaluate(config).throughput)


def _merged(regions: Sequence[tuple[Range, bool]], replicas: Sequence[int]) -> list[tuple[Range, bool]]:
    """The regions once neighbours that got no replicas are one, which need not be cut where they met."""
    result: list[tuple[Range, bool]] = []
    plain = False
    for ((start, stop), replicable), count in zip(regions, replicas, strict=True):
        if plain and count == 1:
            result[-1] = ((result[-1][0][0], stop), False)
        else:
            result.append(((start, stop), replicable))
        plain = count == 1
    return result


def _regions(ops: Sequence[Op], threshold: float) -> list[tuple[Range, bool]]:
    """Operator ranges from left to right, and whether each may be replicated (algorithm 2)."""
    found: list[Range] = []
    start = 0
    key: frozenset[Any] | None = None
    for i, op in enumerate(ops):
        if op.kind == "stateless":
            continue
        if op.kind == "partitioned" and op.key and (key is None or op.key <= key):
            key = op.key  # the same, or a broader one
            continue
        found.append((start, i))
        # A partitioned operator starts over; a stateful one belongs to no region.
        start, key = (i, op.key) if op.kind == "partitioned" and op.key else (i + 1, None)
    found.append((start, len(ops)))
    worthwhile = [(start, stop) for start, stop in found if start < stop and _cost(ops[start:stop]) > threshold]
    regions: list[tuple[Range, bool]] = []
    at = 0
    for start, stop in worthwhile:
        if at < start:
            regions.append(((at, start), False))
        regions.append(((start, stop), True))
        at = stop
    if at < len(ops):
        regions.append(((at, len(ops)), False))
    return regions


def _cost(ops: Sequence[Op]) -> float:
    """Cost of a region per tuple it receives (eq 2)."""
    return Chain.of(ops).work[-1]


class _Phases:
    """The second and third phase, on one chain and machine."""

    def __init__(self, chain: Chain, cores: int, delta: float, cp: float, most: int) -> None:
        self.chain, self.cores, self.delta, self.cp, self.most = chain, cores, delta, cp, most

    def evaluate(self, config: Config) -> Evaluation:
        return evaluate_chain(self.chain, config, self.cores, self.delta, self.cp)

    @staticmethod
    def joined(pipelines: list[list[Range]], replicas: list[int]) -> list[Region]:
        return [Region(count, tuple(inside)) for count, inside in zip(replicas, pipelines, strict=True)]

    def _config(self, pipelines: list[list[Range]], replicas: list[int]) -> Config:
        return Config(tuple(self.joined(pipelines, replicas)))

    def both(self, regions: Sequence[tuple[Range, bool]], limit: float) -> tuple[list[list[Range]], list[int]]:
        """Pipelines for up to `limit` cores, then replicas."""
        pipelines = self.pipelines([span for span, _ in regions], limit)
        return pipelines, self.replicas(pipelines, [replicable for _, replicable in regions])

    def pipelines(self, spans: list[Range], limit: float) -> list[list[Range]]:
        """Divide the slowest pipeline until `limit` cores are busy or it does not help (algorithm 3)."""
        pipelines = [[span] for span in spans]
        plain = [1] * len(spans)
        while self.evaluate(config := self._config(pipelines, plain)).utilization <= limit:
            region, at, time = self._slowest_pipeline(config)
            start, stop = pipelines[region][at]
            halves = {cut: self._divided(pipelines[region], at, cut) for cut in range(start + 1, stop)}
            if not halves:
                break
            best = min(halves, key=halves.__getitem__)
            if halves[best] >= time:
                break
            pipelines[region][at : at + 1] = [(start, best), (best, stop)]
        return pipelines

    def _slowest_pipeline(self, config: Config) -> tuple[int, int, float]:
        """Region and position of the pipeline that lowers the throughput last, and its own time."""
        region = self.evaluate(config).bottleneck
        times = pipeline_times(self.chain, config.regions[region], self.delta)
        slowest = max(times)
        return region, times.index(slowest), slowest

    def _divided(self, pipelines: list[Range], at: int, cut: int) -> float:
        """The time of the slower half if the pipeline is cut there."""
        start, stop = pipelines[at]
        divided = [*pipelines[:at], (start, cut), (cut, stop), *pipelines[at + 1 :]]
        return max(pipeline_times(self.chain, Region(1, tuple(divided)), self.delta)[at : at + 2])

    def replicas(self, pipelines: list[list[Range]], replicable: list[bool]) -> list[int]:
        """Add replicas to the slowest region until all cores are busy or it does not help (algorithm 4)."""
        replicas = [1] * len(pipelines)
        now = self.evaluate(self._config(pipelines, replicas))
        while now.utilization <= self.cores:
            slowest = now.bottleneck
            if not replicable[slowest] or replicas[slowest] >= self.most:
                break
            replicas[slowest] += 1
            then = self.evaluate(self._config(pipelines, replicas))
            if then.unbounded < now.unbounded:
                replicas[slowest] -= 1
                break
            now = then
        return replicas
