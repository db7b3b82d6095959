"""Takes from a configuration the threads that do not make it faster.

Where one region or the number of cores limits the throughput, there is much freedom in all other regions, and a search
for throughput alone may leave them in more pieces than they need. Steps are tried from left to right, and each that
keeps the throughput and lessens the threads is taken.
"""

from __future__ import annotations

import math
from collections.abc import Iterator
from itertools import pairwise

from penstock.optimizer.model import (
    Chain,
    Config,
    Range,
    Region,
    can_replicate,
    evaluate_chain,
    normalize,
    scalability,
)

_SAME = 1 - 1e-12  # throughputs that differ by less are the same
_EFFORT = 20_000  # operators looked at before it is good enough


def fewer_threads(
    chain: Chain, config: Config, cores: int, delta: float, cp: float, *, pipelining: bool = True
) -> Config:
    """A configuration with the throughput of `config` and no more threads, if possible fewer.

    Without `pipelining`, regions stay one pipeline each.
    """
    goal = evaluate_chain(chain, config, cores, delta, cp).throughput * _SAME
    if not 0 < goal < math.inf:
        return config
    trials = max(10, _EFFORT // len(chain))
    at = 0
    while at < len(config.regions):
        for regions in _steps(chain, config, at, 1 / goal, delta, cp):
            if sum(region.threads for region in regions) >= config.threads:
                continue
            trials -= 1
            other = normalize(chain.ops, regions)
            if (pipelining or all(len(region.pipelines) == 1 for region in other.regions)) and evaluate_chain(
                chain, other, cores, delta, cp
            ).throughput >= goal:
                config = other
                at = max(0, at - 2)  # what was no gain before may be one now
                break
            if trials <= 0:
                return config
        else:
            at += 1
    return config


def _steps(chain: Chain, config: Config, at: int, limit: float, delta: float, cp: float) -> Iterator[list[Region]]:
    """Ways to have region `at` in fewer pieces: fewer replicas, one with its neighbour, fewer pipelines."""
    before, region, after = config.regions[:at], config.regions[at], config.regions[at + 1 :]
    count = region.replicas
    if after:
        for replicas in sorted({1, count, after[0].replicas}):
            joined = _region(chain, (region.start, after[0].stop), replicas, limit, delta, cp)
            if joined is not None:
                yield [*before, joined, *after[1:]]
    for replicas in sorted({1, count // 2, count - 1, count} - {0}):
        other = _region(chain, (region.start, region.stop), replicas, limit, delta, cp)
        if other is not None:
            yield [*before, other, *after]


def _region(chain: Chain, span: Range, replicas: int, limit: float, delta: float, cp: float) -> Region | None:
    """The region over `span` that keeps the time limit with few pipelines, made as long as they can be."""
    start, stop = span
    ops, work = chain.ops[start:stop], chain.work
    if replicas > 1 and not can_replicate(ops):
        return None
    hop = [delta * arrivals for arrivals in chain.arrivals]
    switching = (hop[start] if start > 0 else 0.0) + (hop[stop] if stop < len(chain) else 0.0)
    room = limit - switching - chain.arrivals[start] * cp * math.log2(replicas)
    most = scalability(ops, replicas) * room
    cuts = [start]
    while cuts[-1] < stop:
        at = cuts[-1]
        before = hop[at] if at > start else 0.0
        fitting = [
            end
            for end in range(at + 1, stop + 1)
            if work[end] - work[at] + before + (hop[end] if end < stop else 0.0) <= most
        ]
        if not fitting:
            return None
        cuts.append(fitting[-1])
    return Region(replicas, tuple(pairwise(cuts)))
