"""What a configuration has still to pay from a cut on, at least: lower bounds that let `Cheapest` drop labels early.

Beyond a cut three things matter here: whether a region begins there or goes on, and if it goes on, its number of
replicas and where it must stop (`extent`: at operators that cannot be replicated with it). Numbers of replicas are
taken together in classes, each as cheap as its least and as fast as its most, and a region that goes on is taken to
have begun where that was cheapest. All else is as in `Cheapest`, so what is found never exceeds what any configuration
pays:

    New(u)        = min over classes k of  cp·arrivals[u]·log2(r_k) + min over v of T(k, extent(u), v)
    Goes(k, s, u) = min over v of T(k, s, v)
    T(k, s, w)    = 2·δ·arrivals[w] + min(New(w), Goes(k, s, w)),   T(k, s, N) = 0

with v as far as one pipeline from u can reach within the time limit. A higher limit only lowers the bounds: tables for
one limit hold for every lower limit.
"""

from __future__ import annotations

import math
from bisect import bisect_right
from collections.abc import Sequence
from itertools import accumulate
from typing import NamedTuple

from penstock.optimizer.model import Chain, Op, joined_key

_CLOSE = 3e-3  # tables of a limit that is higher by this part will do
_ALIKE = 2  # numbers of replicas that differ by this factor at most are one class
_ROUNDING = 1e-11  # sums come out a little differently in another order


class _Class(NamedTuple):
    """Numbers of replicas from `least` to `most`, and cp·log2(least)."""

    least: int
    most: int
    log_cost: float


class _Way(NamedTuple):
    """One class of regions at a cut, where they begin or go on."""

    table: int  # number of the table of T for this class and stop
    most: int
    paid: float  # the least of their time limit that went where they began
    pays: float  # what beginning one here adds to the overhead
    stop: int  # the last cut that a pipeline from here may go to, the end of the chain apart
    loss: float  # what must be left at the end of a pipeline, all replicas together
    end: float  # the same for one replica, at the end of the region
    whole: tuple[float, float] | None  # if they may go to the end of the chain: f(r), and what it takes


class Ahead:
    """The lower bounds for one chain and numbers of replicas up to `most`; `look` fills them for a limit.

    `hop` is δ·arrivals of each cut, with what is handed over at the ends of the chain. `extent` says for each operator
    where the longest replicated region that starts with it ends. `end_hop` is, by cut and stop, the least δ·arrivals
    where a region that begins or goes on there may end.
    """

    def __init__(self, chain: Chain, hop: Sequence[float], cp: float, most: int, pipelining: bool) -> None:
        self.chain, self.hop, self.pipelining = chain, hop, pipelining
        self.extent = extents(chain.ops)
        self.end_hop: list[dict[int, float]] = [{} for _ in range(len(chain))]
        self._inner_hop = [*[*accumulate(reversed(hop[1:-1]), min)][::-1], math.inf]  # the least after each cut
        self._hops: list[dict[int, tuple[float, float]]] = [{} for _ in range(len(chain))]
        self.limit = -math.inf
        dearest = cp * math.log2(most) * math.fsum(chain.arrivals) + 2 * math.fsum(hop)
        self.rounding = 1e-9 * dearest  # costs that differ by less are the same
        self.new: list[float] = []  # New, by cut
        self.tables: list[list[float]] = []  # T, by table and cut
        self._classes = _classes(most, cp)
        self._class_of = [k for k, one in enumerate(self._classes) for _ in range(one.least, one.most + 1)]
        self._numbers: dict[tuple[int, int], int] = {}  # the tables, by class and stop
        bounds = [op.bound for op in chain.ops]
        self._bound_to_the_end = list(accumulate(reversed(bounds), min))[::-1]
        bounded = [(i, bound) for i, bound in enumerate(bounds) if bound < most]
        self._bounded = [[one for one in bounded if one[0] >= at] for at in range(len(chain))] if bounded else []
        self._beginning, self._going = self._ways()

    @staticmethod
    def of(chain: Chain, delta: float, cp: float, most: int, pipelining: bool) -> Ahead:
        """The bounds for a chain that is not part of a graph."""
        hop = [delta * arrivals for arrivals in chain.arrivals]
        return Ahead(chain, [0.0, *hop[1:-1], 0.0], cp, most, pipelining)

    def by_stop(self, least: int) -> dict[int, list[float]]:
        """T for regions with `least` replicas, by where they stop at the latest."""
        own = self._class_of[least - 1]
        return {stop: self.tables[number] for (k, stop), number in self._numbers.items() if k == own}

    def look(self, limit: float) -> None:
        """Have tables that hold for `limit`, if possible those there are."""
        if not limit <= self.limit <= limit * (1 + _CLOSE):
            self._fill(limit)

    def least(self, limit: float) -> float:
        """An overhead that no configuration which keeps `limit` can be below; infinite if there is no such."""
        self.look(limit)
        return self.new[0] - self.rounding

    def _fill(self, limit: float) -> None:
        hop, work, count = self.hop, self.chain.work, len(self.chain)
        slack = _ROUNDING * (limit + work[-1])
        self.limit = limit
        new = self.new = [math.inf] * count + [0.0]
        tables = self.tables = [[math.inf] * count + [0.0] for _ in self._numbers]
        # For each table the cuts worth going to, nearest last: one farther off must be cheaper. Cuts are negated, so
        # that they ascend.
        worth: list[tuple[list[int], list[float]]] = [([], []) for _ in tables]
        for at in reversed(range(count)):
            start, begun = work[at] + slack, math.inf
            for way in self._beginning[at]:
                if limit >= way.paid and way.pays < begun:
                    begun = min(begun, way.pays + self._cheapest(worth[way.table], way, at, start, limit))
            new[at] = begun
            for way in self._going[at]:
                cost = begun
                if limit >= way.paid and self.pipelining:
                    cost = min(cost, self._cheapest(worth[way.table], way, at, start - hop[at], limit))
                cost = tables[way.table][at] = 2 * hop[at] + cost
                cuts, costs = worth[way.table]
                while costs and costs[-1] >= cost:
                    costs.pop()
                    cuts.pop()
                cuts.append(-at)
                costs.append(cost)

    def _cheapest(self, worth: tuple[list[int], list[float]], way: _Way, at: int, start: float, limit: float) -> float:
        """What is paid from the best cut on that one pipeline from `at` can reach."""
        _, most, paid, _, stop, loss, end, whole = way
        room, work = limit - paid, self.chain.work
        if whole is not None and start + whole[0] * room >= whole[1]:
            return 0.0
        far = bisect_right(work, start + most * room - loss, at) - 1
        far = min(far, stop)
        if most > 1 and self._bounded:
            for index, bound in self._bounded[at]:
                if index >= far:
                    break
                if bound < most:
                    far = min(far, max(index, bisect_right(work, start + bound * (room - end), at) - 1))
        if far <= at:
            return math.inf
        cuts, costs = worth
        place = bisect_right(cuts, -far - 1)  # the first not beyond `far`
        return costs[place] if place < len(costs) else math.inf

    def _ways(self) -> tuple[list[list[_Way]], list[list[_Way]]]:
        """For each cut, the regions that may begin there, and those that may go on there."""
        count, hop, arrivals = len(self.chain), self.hop, self.chain.arrivals
        beginning, going = [], []
        least_hop = math.inf
        begun: dict[int, tuple[float, float]] = {}  # by stop, the least δ·arrivals and arrivals where they may begin
        for at, extent in enumerate(self.extent):
            here = [
                self._way(k, at, count if k == 0 else extent, hop[at], arrivals[at])
                for k in range(len(self._classes))
                if k == 0 or extent > at
            ]
            begun = {stop: pays for stop, pays in begun.items() if stop >= at}
            along = [self._way(0, at, count, least_hop, 0.0)] if at else []
            along += [
                self._way(k, at, stop, *pays) for k in range(1, len(self._classes)) for stop, pays in begun.items()
            ]
            beginning.append(here)
            going.append(along)
            least_hop = min(least_hop, hop[at])
            before = begun.get(extent, (math.inf, math.inf))
            begun[extent] = (min(before[0], hop[at]), min(before[1], arrivals[at]))
        return beginning, going

    def _way(self, k: int, at: int, stop: int, hop: float, arrivals: float) -> _Way:
        """Regions of class `k` at a cut that stop at `stop` and have begun where δ·arrivals and arrivals were so."""
        count, most, pays = len(self.chain), self._classes[k].most, arrivals * self._classes[k].log_cost
        inner, end = self._least_hops(at, stop)
        # A region that ends at v pays f·δ·arrivals[v]; one that is cut at v pays δ·arrivals[v], and at its end as much.
        loss = min(most * inner, inner + most * end)
        whole = None
        if stop == count:
            factor = float(min(most, self._bound_to_the_end[at])) if most > 1 else 1.0
            whole = (factor, self.chain.work[count] + factor * self.hop[count])
        number = self._numbers.setdefault((k, stop), len(self._numbers))
        return _Way(number, most, hop + pays, pays, min(stop, count - 1), loss, end, whole)

    def _least_hops(self, at: int, stop: int) -> tuple[float, float]:
        """The least δ·arrivals at a cut after `at` within the chain, and where a region may end; both up to `stop`."""
        known = self._hops[at].get(stop)
        if known is None:
            inner = self._inner_hop[at]
            if stop < len(self.chain):
                inner = min(self.hop[at + 1 : stop + 1], default=math.inf)
            end = inner if stop < len(self.chain) else min(inner, self.hop[-1])
            known = self._hops[at][stop] = (inner, end)
            self.end_hop[at][stop] = end
        return known


def _classes(most: int, cp: float) -> list[_Class]:
    """Numbers of replicas up to `most` in classes; one replica stands alone."""
    found = [_Class(1, 1, 0.0)]
    while (least := found[-1].most + 1) <= most:
        found.append(_Class(least, min(most, max(least, int(least * _ALIKE) - 1)), cp * math.log2(least)))
    return found


def extents(ops: Sequence[Op]) -> list[int]:
    """For each operator: where the longest replicated region that starts with it ends."""
    found = [0] * len(ops)
    for start in reversed(range(len(ops))):
        op = ops[start]
        after = ops[start + 1] if start + 1 < len(ops) else None
        if after is not None and (op.kind == "stateless" or (op.kind, op.key) == (after.kind, after.key)):
            found[start] = max(start + 1, found[start + 1])
            continue
        key, stop = joined_key(None, op), start
        while key != frozenset() and (stop := stop + 1) < len(ops):
            key = joined_key(key, ops[stop])
        found[start] = stop
    return found
