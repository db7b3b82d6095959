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

from penstock.optimizer.cheapest import Cheapest, Option, Relaxed
from penstock.optimizer.model import (
    Chain,
    Config,
    Op,
    Region,
    check_chain,
    check_machine,
    evaluate_chain,
    region_key,
)
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
    """Closes in on the best time: `low` is proved, `high` is reached by `config`."""

    def __init__(self, chain: Chain, cores: int, delta: float, cp: float, most: int, pipelining: bool) -> None:
        self.chain, self.cores, self.delta, self.cp, self.most = chain, cores, delta, cp, most
        self.pipelining = pipelining
        self.config = Config((Region(1, ((0, len(chain)),)),))
        self.high = self._time(self.config)
        self.low = min(self.high, max(chain.work[-1] / cores, slowest_operator(chain, cp, most)))

    def _solver(self, options: list[Option], width: float = math.inf) -> Cheapest:
        return Cheapest(self.chain, self.delta, self.cp, options, width=width, pipelining=self.pipelining)

    def _time(self, config: Config) -> float:
        return 1 / evaluate_chain(self.chain, config, self.cores, self.delta, self.cp).throughput

    def _below(self, solver: Cheapest, time: float) -> Config | None:
        """A configuration that takes `time` at most, if there is one."""
        return solver.find(time, self.cores * time - self.chain.work[-1])

    def _try(self, solver: Cheapest, time: float) -> bool:
        """Ask for a configuration that takes `time` at most, which is less than the best known, and keep it."""
        config = self._below(solver, time)
        if config is None or (reached := self._time(config)) >= self.high:  # the same, but for rounding
            return False
        self.config, self.high = config, reached
        return True

    def _close_in(self, solver: Cheapest, low: float, gap: float, step: float = 0.01) -> float:
        """Halve the interval above `low`, until it is as small as `gap` or shown to be empty; gives the new low.

        A `step` below 1 starts near the lower bound, which is often close, with growing steps.
        """
        patience, refused = 1, int(step >= 1)
        while self.high > low * (1 + max(gap, _LEAST)):
            if refused >= patience:  # high has stood for some time: is it the best?
                if not self._try(solver, self.high * (1 - _LEAST)):
                    return self.high
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
        return low

    def _descend(self, solver: Cheapest) -> float:
        """Like `_close_in`, for a time known to be close to the best."""
        step, low = _LEAST, self.low
        while self.high > low * (1 + _LEAST):
            time = max(self.high * (1 - step), (low + self.high) / 2)
            if not self._try(solver, time):
                return self.high if step == _LEAST else self._close_in(solver, time, 0.0, step=1.0)
            step = max(step * 10, 1e-4)
        return low

    def to_the_end(self) -> None:
        """Find the optimum: first with some numbers of replicas, then see whether others do better."""
        some = [Option(r.most, r.most) for r in _ranges(self.most, _PARTS)]
        if len(some) < self.most:
            self._close_in(self._solver(some, _WIDTH), self.low, 1e-3)
        options = [Option(r, r) for r in range(1, self.most + 1)]
        self.low = self._descend(self._solver(options))

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
