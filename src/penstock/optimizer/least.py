"""The least overhead of a chain within a time limit: a shortest path over the cuts between regions.

Per tuple of the source, a configuration works  work[N] + 2·δ·Σ arrivals[c] + cp·Σ arrivals[a]·log2(r),  the first sum
over all cuts c (between pipelines as between regions: both sides of a cut pay δ), the second over the regions, which
start at a and have r replicas. Only the two sums, the *overhead*, depend on the configuration. A region [a, b) keeps
the limit if its pipelines keep the limit of `Cuts` that is

    min(r, bound)·(limit - δ·arrivals[a] - δ·arrivals[b] - cp·arrivals[a]·log2(r))    (no δ at the ends; eqs 4–10)

and so from right to left, the least overhead from each cut a on is the least, over b and r, of what splitting and
cutting [a, b) costs, 2·δ·arrivals[b], and the least overhead from b on. Two neighbours with the same number of replicas
may have to be one region (§3.1): if the best from b on begins with r replicas, the best that does not is sought, too.

All b and r are too many to look at. Those that cannot do better than the best known are passed over, and none of the
following can lose the best:

* Numbers of replicas ascend, and so does what splitting costs: with what follows at the least, it may be too much.
* k pipelines of a region hold k times the limit at most. So many replicas are needed to get to the nearest b from where
  on the rest is cheap enough for k pipelines; numbers up to there are left out (`_needed`).
* With k pipelines no b is reached beyond that of the longest k pipelines there could be (`_walk`).
* `Cuts` has bounds of its own.
* If no more tuples arrive at a + 1, then the overhead from there on is not more than from a on: leave an operator out
  of a region, and it keeps the limit at no higher cost. (Unless it could then be joined with the next; that is so only
  if keys part elsewhere.) Once that overhead is met, nothing can be better.
* A higher limit never raises the overhead. What is known for limits above and below is a bound, and a first guess.
* The best region from `Slowest` is tried early, and where even that is too slow, there is no way at all.

Overheads that differ by less than rounding are the same. With slack s, what a first region costs, with the cut after
it, counts 1 + s times when it is compared with the best known. So the overhead from each cut on is at most 1 + s times
the least: by induction that of the rest is, and a first region was passed over only if 1 + s times its own were too
much.
"""

from __future__ import annotations

import math
from bisect import bisect_left, bisect_right
from collections.abc import Sequence
from itertools import accumulate, pairwise
from typing import NamedTuple

from penstock.optimizer.cuts import Cuts, Paths
from penstock.optimizer.model import Config, Region
from penstock.optimizer.regions import Regions
from penstock.optimizer.slowest import Start

_ROUNDING = 1e-12  # relative error that all comparisons together may make, and by which bounds are generous
_MANY = 12  # pipelines up to which `_needed` looks


class _Way(NamedTuple):
    """Regions from a cut to the end of the chain and their overhead: the first region, and the way after it."""

    cost: float
    replicas: int
    stop: int
    paths: Paths | None  # with the cuts of the first region
    after: _Way | None


_NO_WAY = _Way(math.inf, 0, 0, None, None)


class _Table:
    """The best way from each cut on within a limit, and the best that begins with other replicas, where it was needed.

    What a region costs counts `dear` times where ways are compared; `rest` is the overhead of the best way and, counted
    so, of the cut. `far` and `low` are those cuts, negated, and their `rest`
    that no nearer cut is as cheap as: the nearest come last.
    """

    def __init__(self, limit: float, slack: float, count: int) -> None:
        self.limit, self.dear = limit, 1 + slack
        self.best = [_NO_WAY] * count + [_Way(0.0, 0, count, None, None)]
        self.other: dict[int, _Way] = {}
        self.rest = [math.inf] * count + [0.0]
        self.far, self.low = [-count], [0.0]

    def add(self, at: int, way: _Way, cut: float) -> None:
        self.best[at] = way
        rest = self.rest[at] = way.cost + cut
        while self.low and self.low[-1] >= rest:
            self.low.pop()
            self.far.pop()
        self.far.append(-at)
        self.low.append(rest)

    def lowest(self, stop: int) -> float:
        """A lower bound of `rest` for all cuts up to `stop`."""
        place = bisect_right(self.far, -stop - 1)
        return self.low[place] if place < len(self.low) else math.inf


class Least:
    """The least overhead of a chain for any limit."""

    def __init__(self, regions: Regions, starts: Sequence[Start] = ()) -> None:
        self.regions, self.cuts = regions, Cuts(regions)
        self.work, self.hop = regions.work, regions.hop
        self._same = _ROUNDING / 2 / regions.count * regions.work[-1]  # overheads that differ by less are the same
        self._generous = _ROUNDING * regions.work[-1]
        self._starts = starts
        self._tables: list[_Table] = []  # by limit
        self._now = _Table(0.0, 0.0, regions.count)

    def find(self, limit: float, slack: float = 0.0) -> tuple[float, Config] | None:
        """The least overhead if every region keeps `limit`, and a configuration with it; None if there is none.

        With `slack`, it may be more than the least by this part of it.
        """
        regions, arrivals, hop, count = self.regions, self.regions.arrivals, self.hop, self.regions.count
        place = bisect_left(self._tables, limit, key=lambda table: table.limit)
        below = self._tables[place - 1] if place > 0 else None
        above = self._tables[place] if place < len(self._tables) else None
        now = self._now = _Table(limit, slack, count)
        for at in reversed(range(count) if regions.most > 1 else range(1)):
            known = below.best[at] if below is not None else _NO_WAY
            guess = above.best[at] if above is not None else _NO_WAY
            least = guess.cost * min(1.0, now.dear / above.dear) if above is not None else 0.0
            if hop[at + 1] <= hop[at] and arrivals[at + 1] <= arrivals[at] and regions.alike(at):
                least = max(least, now.best[at + 1].cost)
            possible = not self._starts or self._starts[at].time <= limit + self._generous
            if possible and known.cost > least + self._same:
                known = self._search(at, 0, least, known, guess)
            now.add(at, known, 2 * hop[at] * now.dear)
        self._tables.insert(place, now)
        return (now.best[0].cost, _config(now.best[0])) if now.best[0].cost < math.inf else None

    def _search(self, at: int, barred: int, least: float, best: _Way, guess: _Way) -> _Way:
        """The best way from `at` on that does not begin with `barred` replicas.

        None costs less than `least`; `best` is known, and a first region like that of `guess` may be good.
        """
        regions, now, extent = self.regions, self._now, self.regions.extent[at]
        arrivals, splitting, spans = regions.arrivals[at], regions.splitting, regions.spans[at]
        whole = now.limit - self.hop[at]
        likely: list[_Way | Start] = [guess, now.best[at + 1], *self._starts[at : at + 1]]
        for way in likely:
            r, stop = way.replicas, way.stop
            if r not in (0, barred) and (r == 1 or stop <= extent):
                factor = min(r, *regions.bounds[at:stop])
                best = self._try(at, stop, r, factor, whole - arrivals * splitting[r], best)
        hops = [math.inf, *accumulate(self.hop[at + 1 : -1], min)]  # the least up to each cut
        if barred != 1 and best.cost > least + self._same:
            best = self._walk(at, at, regions.count, 1, 1.0, whole, best, hops)
        place, stop, lowest = len(spans), extent, math.inf
        r = 1
        while (r := r + 1) <= regions.most and best.cost > least + self._same:
            pays = arrivals * splitting[r]
            # Three numbers of replicas from the bound on are enough to differ from both neighbours.
            if place == len(spans) or r >= spans[place][1] + 3:
                place = next((i for i in reversed(range(place)) if r < spans[i][1] + 3), -1)
                if place < 0:
                    break
                stop = spans[place][0]
                lowest = now.lowest(stop)
            if pays > whole or pays * now.dear + lowest >= best.cost - self._same:
                break
            if r == barred:
                continue
            inner = hops[min(stop - at, len(hops) - 1)]
            needed = self._needed(at, r, whole - pays, best.cost - self._same - pays * now.dear, inner, lowest)
            if needed > r:
                r = needed - 1
                continue
            start = at
            for index in range(place + 1):
                end, bound = spans[index]
                if index == place or spans[index + 1][1] < r:
                    best = self._walk(at, start, end, r, min(r, bound), whole - pays, best, hops)
                    start = end
        return best

    def _try(self, at: int, stop: int, replicas: int, factor: float, room: float, best: _Way) -> _Way:
        """The way that begins with this region, or `best` if that costs less."""
        regions, now = self.regions, self._now
        after = now.best[stop]
        if after.replicas == replicas and (replicas == 1 or stop < regions.extent[at]):  # they would be one region
            if stop not in now.other:
                now.other[stop] = self._search(stop, replicas, after.cost, _NO_WAY, _NO_WAY)
            after = now.other[stop]
        cut = 2 * self.hop[stop] if stop < regions.count else 0.0
        paid = regions.arrivals[at] * regions.splitting[replicas] + cut
        left = (best.cost - self._same - after.cost) / now.dear - paid
        paths = self.cuts.cheapest(at, stop, factor * (room - self.hop[stop]), left)
        return best if paths is None else _Way(paid + paths.costs[stop - at] + after.cost, replicas, stop, paths, after)

    def _needed(self, at: int, replicas: int, room: float, left: float, hop: float, lowest: float) -> int:
        """A number of replicas, for regions from `at`, below which none costs less than `left` with what follows.

        So it is if they have `replicas` at least, which leave `room` of the limit; `hop` is the least δ·arrivals of the
        cuts they may have, `lowest` the least that follows.
        """
        work, spans, low, far = self.work, self.regions.spans[at], self._now.low, self._now.far
        begin = work[at] + self._generous
        end, last_bound = spans[-1]
        whole = work[end] - begin if end == self.regions.count else math.inf  # up to the end of the chain
        inner = hop if hop < math.inf else 0.0
        room, last_room = room - inner, room - self.hop[-1]
        needed, paid, place, dear = math.inf, 0.0, 0, self._now.dear
        for pieces in range(1, _MANY):
            if left - paid * dear <= lowest:
                return math.ceil(min(needed, self.regions.most + 1))
            if needed <= replicas:
                break
            nearest = -far[bisect_left(low, left - paid * dear) - 1]
            amount = (work[nearest] - begin + paid) / pieces
            if amount < needed * room:
                while nearest > spans[place][0]:
                    place += 1
                if amount <= spans[place][1] * room:
                    needed = amount / room
            amount = (whole + paid) / pieces
            if amount < needed * last_room and amount <= last_bound * last_room:
                needed = amount / last_room
            paid += 2 * inner
        return replicas

    def _walk(
        self, at: int, start: int, end: int, replicas: int, factor: float, room: float, best: _Way, hops: list[float]
    ) -> _Way:
        """The best way that begins with a region from `at` that stops after `start` and up to `end`, or `best`."""
        work, now, rest = self.work, self._now, self._now.rest
        if end == self.regions.count:
            best = self._try(at, end, replicas, factor, room, best)
            end -= 1
            if end <= start:
                return best
        cost = self.regions.arrivals[at] * self.regions.splitting[replicas]
        most = best.cost - self._same
        lowest = now.lowest(end)
        limit = factor * (room - hops[end - at]) + self._generous
        reach, done = work[at] + limit, start
        while cost * now.dear + lowest < most:
            far = min(end, bisect_right(work, reach, at) - 1)
            if far > done:
                if cost * now.dear + now.lowest(far) < most:
                    for stop in range(far, done, -1):
                        if cost * now.dear + rest[stop] < most:
                            best = self._try(at, stop, replicas, factor, room, best)
                            most = best.cost - self._same
                done = far
            if far in (at, end) or not self.regions.pipelining:
                break
            # Another pipeline: the last cut is here at most, and no cut up to here costs less.
            cut = bisect_right(work, reach - hops[far - at], at) - 1
            if cut <= at or (farther := work[cut] - hops[cut - at] + limit) <= reach:
                break
            cost += 2 * hops[cut - at]
            reach = farther
        return best


def _config(way: _Way | None) -> Config:
    """The configuration of a way from the start of the chain."""
    found = []
    at = 0
    while way is not None and way.paths is not None:
        found.append(Region(way.replicas, tuple(pairwise((at, *way.paths.cuts(at), way.stop)))))
        at, way = way.stop, way.after
    return Config(tuple(found))
