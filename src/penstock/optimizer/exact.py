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

Large problems are not solved to the end but to a `gap`. `Least` may then answer with an overhead above the least by a
part of it, the slack, which is much quicker and bounds W(t) from both sides. The slack is large at first, as often the
slowest region alone sets the time and any moderate overhead will do; where the answer does not tell whether W(t) is
above cores·t, it is made small enough for the gap.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass

from penstock.optimizer.least import Least
from penstock.optimizer.model import (
    Chain,
    Config,
    Op,
    Region,
    check_search,
    evaluate_chain,
    region_key,
)
from penstock.optimizer.regions import Regions
from penstock.optimizer.slowest import Slowest
from penstock.optimizer.tidy import fewer_threads

_LEAST = 1e-12  # relative difference below which two times are the same
_EXACT = 8_192  # operators times replicas up to which the search goes to the end, unless told otherwise
_GAP = 0.01
_SLACK = 10.0  # how many times the least an overhead may be above it, in the first question on the way to a gap


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
    search.close_in(gap)
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

    def _better(self, config: Config) -> bool:
        """Keep `config` if it takes less time than the best known, by more than rounding."""
        time = self._time(config)
        if time >= self.high:
            return False
        self.config, self.high = config, time
        return True

    def close_in(self, gap: float) -> None:
        """Find a configuration proved to be within `gap` of the optimum; with 0, the optimum."""
        regions = Regions(self.chain, self.delta, self.cp, self.most, pipelining=self.pipelining)
        slowest = Slowest(regions)
        self.low = min(self.high, slowest.least(self.low))
        least = Least(regions, slowest.best)
        own, step = self.chain.work[-1], max(gap / 2, _LEAST)
        time, slack, first = self.low * (1 + step), _SLACK if gap > 0 else 0.0, True
        while self.high > self.low * (1 + gap) * (1 + _LEAST):
            found = least.find(time, slack)
            better = found is not None and self._better(found[1])
            overhead = found[0] if found is not None else math.inf
            self.low = max(self.low, min(time, (own + overhead / (1 + slack)) * (1 - _LEAST) / self.cores))
            if slack > 0 and self.low < time < (own + overhead) / self.cores:
                slack = min(slack / 4, gap / 4 * own / overhead)
                continue
            last = self.high / (1 + step)
            if time >= last and not better and slack == 0:
                self.low = self.high
            time = (self.low + self.high) / 2 if better and not first else last
            first = False


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
