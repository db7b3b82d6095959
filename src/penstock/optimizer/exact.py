"""The configuration with the highest throughput, without looking at all of them, and a bound that proves it.

Per tuple of the source, a configuration x takes  time(x) = max(M(x), W(x) / cores),  M its slowest region and W its
work (eqs 11–14). So x does better than t just when every region keeps the limit t and W(x) ≤ cores·t, and whether any x
does is what `Cheapest.find` answers. The answer is monotone in t, and so the best time can be closed in on:

* An answer "yes" comes with a configuration: the best time is at most its time, which is often far below t.
* An answer "no" proves that the best time is above t.

Halving the interval never ends by itself. What ends it is the question for the best time known: once there is no
configuration strictly below it, that configuration is the optimum. (Strictly means by more than one part in 10¹²:
sums of floating-point numbers are not better than that.) Each "yes" lowers the best time to that of another
configuration, so this ends, whatever the intervals.

Most questions are put to a search among some numbers of replicas, which may overlook a configuration, until the best
time is nearly known. Only then all numbers are looked at, and what holds the best configuration back decides how: if
its slowest region does, the least M of all is sought first, whatever the work (`Feasible`), as it is a lower bound; if
the cores do, the least W among those with an M below the best time is. Either often is the optimum already.

Numbers of replicas go up to that of the cores, unless the user says otherwise. Some limit is needed: with cp = 0 more
replicas may always do a little better.

Large problems are not solved to the end but to a `gap`. Configurations are then sought among some numbers of replicas
only, and the bound is proved with ranges of them taken at their best (see `Cheapest`), which only overestimates the
throughput. Ranges are divided further until the gap is reached; the last division leaves single numbers.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass

from penstock.optimizer.ahead import Ahead
from penstock.optimizer.cheapest import Cheapest, Relaxed
from penstock.optimizer.feasible import Feasible
from penstock.optimizer.labels import Option, Tail
from penstock.optimizer.model import (
    Chain,
    Config,
    Evaluation,
    Op,
    Region,
    check_chain,
    check_machine,
    evaluate_chain,
    region_key,
    region_time,
)
from penstock.optimizer.tidy import fewer_threads

_LEAST = 1e-12  # relative difference below which two times are the same
_EXACT = 8_192  # operators times replicas up to which the search goes to the end, unless told otherwise
_GAP = 0.01
_BUSY = 0.85  # part of the cores in use from which on costs matter
_NEAR, _CLOSE = 0.01, 1e-3  # how closely the first search closes in; where costs matter, more closely
_NARROW = 2  # labels per list of the first search
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
    check_machine(cores, delta, cp)
    check_chain(ops)
    most = max_replicas or cores
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
    """Closes in on the best time: `low` is proved, `high` is reached by `config`.

    `work` is the work of that configuration per tuple of the source and `slowest` the time of its slowest region.
    """

    def __init__(self, chain: Chain, cores: int, delta: float, cp: float, most: int, pipelining: bool) -> None:
        self.chain, self.cores, self.delta, self.cp, self.most = chain, cores, delta, cp, most
        self.pipelining = pipelining
        self.config = Config((Region(1, ((0, len(chain)),)),))
        self.high = self.slowest = self._time(self.config)
        self.work = self.high
        self.low = min(self.high, max(chain.work[-1] / cores, slowest_operator(chain, cp, most)))

    def _solver(self, options: list[Option], width: float, ahead: Ahead | None = None) -> Cheapest:
        return Cheapest(self.chain, self.delta, self.cp, options, width=width, pipelining=self.pipelining, ahead=ahead)

    def _evaluate(self, config: Config) -> Evaluation:
        return evaluate_chain(self.chain, config, self.cores, self.delta, self.cp)

    def _time(self, config: Config) -> float:
        return 1 / self._evaluate(config).throughput

    def _below(self, solver: Cheapest, time: float) -> Config | None:
        """A configuration that takes `time` at most, if there is one."""
        return solver.find(time, self.cores * time - self.chain.work[-1], tails=self._tails(self.config, time))

    def _tails(self, config: Config, time: float) -> dict[int, Tail]:
        """The ends of a configuration, as long as their regions take `time` at most, by where they start."""
        arrivals, delta, regions = self.chain.arrivals, self.delta, config.regions
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
        result = self._evaluate(config)
        if 1 / result.throughput >= self.high:
            return False
        self.config, self.high = config, 1 / result.throughput
        self.work, self.slowest = result.utilization / result.unbounded, 1 / result.unbounded
        return True

    def _close_in(self, blind: Cheapest, low: float, gap: float, guided: Cheapest | None = None) -> None:
        """Halve the interval above `low`, until it is as small as `gap` or shown to be empty.

        Steps grow at first, as the lower bound is often close. Where the cores hold the best back, or nearly so, costs
        matter and a solver that looks ahead is quicker.
        """
        step, patience, refused = 0.01, 1, 0
        while True:
            solver = blind
            if guided is not None and self.work > _BUSY * self.cores * self.high:
                solver, gap = guided, _CLOSE
            if self.high <= low * (1 + max(gap, _LEAST)):
                return
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

    def _descend(self, ahead: Ahead) -> float:
        """Like `_close_in`, for a time known to be close to the best, and with all numbers of replicas."""
        options = [Option(r, r) for r in range(1, self.most + 1)]
        solver = Cheapest(self.chain, self.delta, self.cp, options, pipelining=self.pipelining, ahead=ahead)
        feasible = Feasible(self.chain, self.delta, self.cp, self.most, self.pipelining, ahead)
        step, low, sought = _LEAST, self.low, False
        while self.high > low * (1 + _LEAST):
            # Nothing that takes less time has less work than the least within this limit.
            low = max(low, (self.chain.work[-1] + ahead.least(self.high)) / self.cores * (1 - _LEAST))
            if self.slowest < self.high and self.high < low * (1 + _CLOSE / 2):
                # The cores hold it back, so the least work of all is what is wanted, and bounds the time as well.
                limit = self.high * (1 - _LEAST)
                config = solver.find(limit, self.cores * limit - self.chain.work[-1], least=True)
                if config is None or not self._better(config):
                    return self.high
                low = max(low, self.work / self.cores * (1 - _LEAST))
                continue
            if not sought and self.slowest >= self.high:
                sought = True
                low = max(low, self._least_slowest(feasible, low))
                if self.high > low * (1 + _LEAST) and not self._try(solver, low * (1 + _LEAST)):
                    low = low * (1 + _LEAST)
                continue
            time = (low + self.high) / 2
            if self.slowest >= self.high:
                time = max(time, self.high * (1 - step))
            if self._try(solver, time):
                step = max(step * 10, 1e-4)
            elif time >= self.high * (1 - _LEAST):
                return self.high
            else:
                low, step = time, _LEAST
        return low

    def _least_slowest(self, feasible: Feasible, low: float) -> float:
        """The least time of the slowest region, whatever the work, if it is above `low`; at most the best time."""
        config, high, step = self.config, self.high, _LEAST
        while high > low * (1 + _LEAST):
            time = max(high * (1 - step), (low + high) / 2)
            found = feasible.keeping(time, self._tails(config, time))
            slowest = math.inf if found is None else 1 / self._evaluate(found).unbounded
            if found is not None and slowest < high:
                config, high, step = found, slowest, max(step * 10, 1e-4)
                self._better(found)
            elif step == _LEAST:
                return high
            else:
                low, step = time, _LEAST
        return low

    def to_the_end(self) -> None:
        """Find the optimum: first with some numbers of replicas, then see whether others do better."""
        some = [Option(r.most, r.most) for r in _ranges(self.most, _PARTS)]
        ahead = Ahead.of(self.chain, self.delta, self.cp, self.most, self.pipelining)
        self._close_in(self._solver(some, _NARROW), self.low, _NEAR, self._solver(some, _NARROW, ahead))
        self.low = self._descend(ahead)

    def to_the_gap(self, gap: float) -> None:
        """Find a configuration proved to be within `gap` of the optimum."""
        parts, width = _PARTS, _WIDTH
        while self.high > self.low * (1 + gap) * (1 + _LEAST):
            ranges = _ranges(self.most, parts)
            if len(ranges) == self.most and width > _WIDTH * 16:
                self.to_the_end()  # there is nothing left to leave out
                return
            some = [Option(r.most, r.most) for r in ranges]
            self._close_in(self._solver(some, width), self.low, gap / 4)
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
