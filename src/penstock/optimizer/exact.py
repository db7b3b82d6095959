"""The configuration with the highest throughput, without looking at all of them, and a bound that proves it.

Per tuple of the source, a configuration x takes  time(x) = max(M(x), W(x) / cores),  M its slowest region and W its
work (eqs 11–14). For a time limit t, let W(t) be the least work of all x with M(x) ≤ t, which `Least` finds, with an x
that has it. A higher limit never needs more work, and so each answer closes in on the best time from both sides:

* The best time is at most that of x, which is often far below t.
* The best time is at least t or W(t) / cores, whichever is less: what takes less than t has M < t, and so works W(t) at
  least.

No M is below the least of all, which is known (`Slowest`). It is the first limit, and often the best time. The next is
the best time known, less one part in 10¹²; then the interval is halved. What ends it is the question for less than the
best time known: once there is no configuration strictly below it, that configuration is the optimum. (Strictly means by
more than one part in 10¹²: sums of floating-point numbers are not better than that.) Each answer lowers the best time
to that of another configuration or is followed by that question, so this ends, whatever the intervals.

Numbers of replicas go up to that of the cores, unless the user says otherwise. Some limit is needed: with cp = 0 more
replicas may always do a little better.

Large problems are not solved to the end but to a `gap`. Whether there is an x with M(x) ≤ t and W(x) ≤ cores·t is then
what `Cheapest` answers. Configurations are sought among some numbers of replicas only, and the bound is proved with
ranges of them taken at their best, which only overestimates the throughput. Ranges are divided further until the gap is
reached; the last division leaves single numbers.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass

from penstock.optimizer.cheapest import Cheapest, Relaxed
from penstock.optimizer.labels import Option, Tail
from penstock.optimizer.least import Least
from penstock.optimizer.model import (
    Chain,
    Config,
    Op,
    Region,
    check_search,
    evaluate_chain,
    region_key,
    region_time,
)
from penstock.optimizer.regions import Regions
from penstock.optimizer.slowest import Slowest
from penstock.optimizer.tidy import fewer_threads

_LEAST = 1e-12  # relative difference below which two times are the same
_EXACT = 8_192  # operators times replicas up to which the search goes to the end, unless told otherwise
_GAP = 0.01
_PARTS, _WIDTH = 3, 4  # how coarse the first search is: ranges of replicas per doubling, labels per list


@dataclass(frozen=True, slots=True)
class Solution:
    """A configuration, its throughput, and a throughput that the search proved no configuration to exceed."""

    config: Config
    throughput: float
    bound: float

    @property
    def gap(self) -> float:
        """By which part of the throughput the best configuration might be better; 0 for a proved optimum."""
        return 0.0 if self.bound <= self.throughput else self.bound / self.throughput - 1


def optimal(
    ops: Sequence[Op], cores: int, delta: float, cp: float, *, max_replicas: int | None = None, gap: float | None = None
) -> Config:
    """The configuration with the highest throughput; of several, one with few threads.

    With `gap`, one that is proved to be so close to it; by default 0 for problems up to 8,192 (operators times
    replicas), and 0.01 beyond.

    >>> ops = [Op(10), Op(100), Op(10, kind="stateful")]
    >>> print(optimal(ops, cores=4, delta=1, cp=5))
    [0 | 1]x4 [2]
    """
    return optimal_with_bound(ops, cores, delta, cp, max_replicas=max_replicas, gap=gap).config


def optimal_with_bound(
    ops: Sequence[Op],
    cores: int,
    delta: float,
    cp: float,
    *,
    max_replicas: int | None = None,
    gap: float | None = None,
    pipelining: bool = True,
) -> Solution:
    """Like `optimal`, with the throughput reached and the bound proved.

    Without `pipelining`, only configurations whose regions are one pipeline each are considered.

    >>> solution = optimal_with_bound([Op(10), Op(30)], cores=2, delta=0, cp=0)
    >>> solution.throughput, solution.bound
    (0.05, 0.05)
    """
    most = check_search(ops, cores, delta, cp, max_replicas)
    if gap is None:
        gap = 0.0 if len(ops) * most <= _EXACT else _GAP
    search = _Search(Chain.of(ops), cores, delta, cp, most, pipelining)
    if gap <= 0:
        search.to_the_end()
    else:
        search.to_the_gap(gap)
    config = fewer_threads(search.chain, search.config, cores, delta, cp, pipelining=pipelining)
    throughput = evaluate_chain(search.chain, config, cores, delta, cp).throughput
    return Solution(config, throughput, max(throughput, 1 / search.low if search.low > 0 else math.inf))


class _Search:
    """Closes in on the best time: `low` is proved, `high` is reached by `config`."""

    def __init__(self, chain: Chain, cores: int, delta: float, cp: float, most: int, pipelining: bool) -> None:
        self.chain, self.cores, self.delta, self.cp, self.most = chain, cores, delta, cp, most
        self.pipelining = pipelining
        self.config = Config((Region(1, ((0, len(chain)),)),))
        self.high = self._time(self.config)
        self.low = min(self.high, max(chain.work[-1] / cores, slowest_operator(chain, cp, most)))

    def _time(self, config: Config) -> float:
        return 1 / evaluate_chain(self.chain, config, self.cores, self.delta, self.cp).throughput

    def _below(self, solver: Cheapest, time: float) -> Config | None:
        """A configuration that takes `time` at most, if there is one."""
        return solver.find(time, self.cores * time - self.chain.work[-1], self._tails(time))

    def _tails(self, time: float) -> dict[int, Tail]:
        """The ends of the best known, as long as their regions take `time` at most, by where they start."""
        arrivals, delta, regions = self.chain.arrivals, self.delta, self.config.regions
        found: dict[int, Tail] = {}
        cost = 0.0
        for number in reversed(range(1, len(regions))):
            region = regions[number]
            if region_time(self.chain, region, delta, self.cp) > time:
                break
            cost += arrivals[region.start] * self.cp * math.log2(region.replicas)
            cost += math.fsum(2 * delta * arrivals[start] for start, _ in region.pipelines[1:])
            found[region.start] = Tail(cost, regions[number:])
            cost += 2 * delta * arrivals[region.start]
        return found

    def _try(self, solver: Cheapest, time: float) -> bool:
        """Ask for a configuration that takes `time` at most, which is less than the best known, and keep it."""
        config = self._below(solver, time)
        return config is not None and self._better(config)

    def _better(self, config: Config) -> bool:
        """Keep `config` if it takes less time than the best known, by more than rounding."""
        time = self._time(config)
        if time >= self.high:
            return False
        self.config, self.high = config, time
        return True

    def _close_in(self, solver: Cheapest, gap: float) -> None:
        """Halve the interval, until it is as small as `gap` or shown to be empty.

        Steps grow at first, as the lower bound is often close.
        """
        low, step, patience, refused = self.low, 0.01, 1, 0
        while self.high > low * (1 + max(gap, _LEAST)):
            if refused >= patience:  # high has stood for some time: is it the best?
                if not self._try(solver, self.high * (1 - _LEAST)):
                    return
                patience, refused = patience * 2, 0
                continue
            time = (low + self.high) / 2
            if step < 1:
                time = min(time, low * (1 + step))
            if self._try(solver, time):
                step, refused = 1.0, 0
            else:
                refused += step >= 1
                low, step = time, step * 3

    def to_the_end(self) -> None:
        """Find the optimum."""
        regions = Regions(self.chain, self.delta, self.cp, self.most, pipelining=self.pipelining)
        self.low = min(self.high, Slowest(regions).least(self.low))
        least = Least(regions)
        time, first = self.low * (1 + _LEAST), True
        while self.high > self.low * (1 + _LEAST):
            found = least.find(time)
            better = found is not None and self._better(found[1])
            work = (self.chain.work[-1] + found[0]) * (1 - _LEAST) if found is not None else math.inf
            self.low = max(self.low, min(time, work / self.cores))
            last = self.high * (1 - _LEAST)
            if time >= last and not better:
                self.low = self.high
            time = (self.low + self.high) / 2 if better and not first else last
            first = False

    def to_the_gap(self, gap: float) -> None:
        """Find a configuration proved to be within `gap` of the optimum."""
        parts, width = _PARTS, _WIDTH
        while self.high > self.low * (1 + gap) * (1 + _LEAST):
            ranges = _ranges(self.most, parts)
            if len(ranges) == self.most and width > _WIDTH * 16:
                self.to_the_end()  # there is nothing left to leave out
                return
            some = [Option(r.most, r.most) for r in ranges]
            solver = Cheapest(self.chain, self.delta, self.cp, some, width=width, pipelining=self.pipelining)
            self._close_in(solver, gap / 4)
            prover = Relaxed(self.chain, self.delta, self.cp, ranges, width=width, pipelining=self.pipelining)
            for share in (1, 2, 4, 8):
                time = self.high / (1 + gap * share)
                if time > self.low and self._below(prover, time) is None:
                    self.low = time
                    break
            parts, width = parts * 2, width * 2


def slowest_operator(chain: Chain, cp: float, most: int) -> float:
    """A time that the region of the slowest operator takes at least, however it is cut and replicated."""
    slowest = 0.0
    arrivals = math.inf  # the fewest that a region with the operator could begin with
    for op, own, before, after in zip(chain.ops, chain.arrivals, chain.work, chain.work[1:], strict=False):
        cost = after - before
        if region_key([op]) == frozenset():
            slowest, arrivals = max(slowest, cost), math.inf
            continue
        arrivals = min(arrivals, own)
        if cost <= slowest:
            continue
        # cp·log2(r) + cost/r has one minimum, near r = cost·ln 2 / cp; beyond the bound it only rises
        limit = math.ceil(min(most, op.bound))
        enough = cost * math.log(2)
        ideal = limit if enough >= limit * arrivals * cp else max(1, int(enough / (arrivals * cp)))
        nearby = {1, ideal, min(limit, ideal + 1)}
        slowest = max(slowest, min(arrivals * cp * math.log2(r) + cost / min(r, op.bound) for r in nearby))
    return slowest


def _ranges(most: int, parts: int) -> list[Option]:
    """Numbers of replicas up to `most` in ranges: single ones at first, then `parts` ranges for each doubling."""
    ranges = []
    least = 1
    while least <= most:
        last = min(most, max(least, int(least * 2 ** (1 / parts))))
        ranges.append(Option(least, last))
        least = last + 1
    return ranges
