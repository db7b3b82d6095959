"""Searches to compare with: no parallelism, one kind of parallelism, and every configuration there is (§5)."""

from __future__ import annotations

import math
from collections.abc import Iterator, Sequence
from itertools import combinations

from penstock.optimizer.exact import optimal_with_bound
from penstock.optimizer.model import (
    Chain,
    Config,
    Op,
    Range,
    Region,
    can_replicate,
    check_search,
    joined_key,
    pipeline_times,
    region_key,
    scalability,
)

_SAME = 1e-12  # relative difference below which two times are the same


def sequential(ops: Sequence[Op], cores: int, delta: float, cp: float) -> Config:
    """One thread for everything.

    >>> print(sequential([Op(10), Op(20)], cores=4, delta=1, cp=5))
    [0 1]
    """
    check_search(ops, cores, delta, cp)
    return Config((Region(1, ((0, len(ops)),)),))


def fission_only(ops: Sequence[Op], cores: int, delta: float, cp: float, *, max_replicas: int | None = None) -> Config:
    """The best configuration without pipelines: each channel of each region is one thread.

    >>> print(fission_only([Op(10), Op(100), Op(10, kind="stateful")], cores=4, delta=1, cp=5))
    [0] [1]x4 [2]
    """
    return optimal_with_bound(ops, cores, delta, cp, max_replicas=max_replicas, pipelining=False).config


def pipelining_only(ops: Sequence[Op], cores: int, delta: float, cp: float) -> Config:
    """The best configuration without replicas.

    >>> print(pipelining_only([Op(10), Op(100), Op(10, kind="stateful")], cores=4, delta=1, cp=5))
    [0 | 1 | 2]
    """
    return optimal_with_bound(ops, cores, delta, cp, max_replicas=1).config


def brute_force(ops: Sequence[Op], cores: int, delta: float, cp: float, *, max_replicas: int | None = None) -> Config:
    """The best of all configurations, by looking at each: for chains of up to seven operators or so.

    Of those that are equally fast, as far as floating-point numbers tell, it is one with the fewest threads. A region
    has up to `max_replicas` replicas, by default one for each core.

    >>> print(brute_force([Op(10), Op(100), Op(10, kind="stateful")], cores=4, delta=1, cp=5))
    [0 | 1]x4 [2]
    """
    most = check_search(ops, cores, delta, cp, max_replicas)
    chain, count = Chain.of(ops), len(ops)
    shapes = {
        (start, stop): list(_shapes(chain, start, stop, most, delta, cp))
        for start in range(count)
        for stop in range(start + 1, count + 1)
    }
    best, fewest = math.inf, 0
    best_regions: tuple[Region, ...] = ()

    def search(start: int, slowest: float, work: float, regions: tuple[Region, ...]) -> None:
        nonlocal best, best_regions, fewest
        if start == count:
            time, threads = max(slowest, work / cores), sum(region.threads for region in regions)
            if time < best * (1 - _SAME) or (time <= best * (1 + _SAME) and threads < fewest):
                best, best_regions, fewest = time, regions, threads
            return
        for stop in range(start + 1, count + 1):
            for time, amount, region in shapes[start, stop]:
                if not regions or _may_follow(ops, regions[-1], region):
                    search(stop, max(slowest, time), work + amount, (*regions, region))

    search(0, 0.0, 0.0, ())
    return Config(best_regions)


def _shapes(
    chain: Chain, start: int, stop: int, most: int, delta: float, cp: float
) -> Iterator[tuple[float, float, Region]]:
    """Every region over [start, stop), with its time and its work."""
    ops = chain.ops[start:stop]
    before, after = start > 0, stop < len(chain)
    switching = delta * (before * chain.arrivals[start] + after * chain.arrivals[stop])
    for replicas in range(1, most + 1 if can_replicate(ops) else 2):
        splitting = chain.arrivals[start] * cp * math.log2(replicas)
        for pipelines in _partitions(start, stop):
            region = Region(replicas, pipelines)
            times = pipeline_times(chain, region, delta)
            time = switching + splitting + max(times) / scalability(ops, replicas)
            yield time, switching + splitting + sum(times), region


def _partitions(start: int, stop: int) -> Iterator[tuple[Range, ...]]:
    for number in range(stop - start):
        for cuts in combinations(range(start + 1, stop), number):
            yield tuple(zip((start, *cuts), (*cuts, stop), strict=True))


def _may_follow(ops: Sequence[Op], left: Region, right: Region) -> bool:
    """False if the rules make one region of the two."""
    if left.replicas != right.replicas:
        return True
    key = region_key(ops[left.start : left.stop])
    return left.replicas > 1 and joined_key(key, ops[right.start]) == frozenset()
