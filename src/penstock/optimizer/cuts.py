"""Where to cut a region into pipelines: the cheapest cuts that leave no pipeline above a limit.

A cut at c costs 2·δ·arrivals[c], both sides pay δ, and a pipeline [u, v) of the region [a, b) takes

    work[v] - work[u] + δ·(arrivals[u], if u > a) + δ·(arrivals[v], if v < b)  ≤  limit

So the cheapest cuts are a shortest path, found from the right for one stop and limit and all starts (`Paths`). What has
been found answers other questions too: a lower limit never makes cuts cheaper, so that it is a lower bound for every
lower limit, and it is the answer itself for those that its own pipelines keep.

Most questions are whether cuts may cost less than so much, and most answers are no. A bound often says so before any
path is looked for: from either end, pipelines as long as the limit lets them be with the least δ·arrivals of all cuts
that come into question. No cuts are fewer, and none of them is cheaper.
"""

from __future__ import annotations

import math
from bisect import bisect_left, bisect_right
from itertools import accumulate

from penstock.optimizer.regions import Regions

_ROUNDING = 1e-12  # part of the whole work by which bounds are generous


class Paths:
    """The cheapest cuts of the regions with one stop, within one limit: what they cost and the slowest pipeline.

    Both are by length of the region, as far as `extend` has got.
    """

    def __init__(self, regions: Regions, stop: int, limit: float) -> None:
        self.regions, self.stop, self.limit = regions, stop, limit
        self.costs, self.slowest = [0.0], [0.0]
        self._next = [stop]  # by length: the first cut
        self._next_cut = [stop]  # by length, if there is a cut at the start: the next
        # Cuts a pipeline may end at, by -(work + δ·arrivals). One that reaches farther costs more, or the others are
        # dropped.
        self._keys = [-regions.work[stop]]
        self._cuts = [(0.0, 0.0, stop)]  # the cost and the slowest pipeline from it on, the cut

    def cuts(self, start: int) -> tuple[int, ...]:
        """The cuts of the region from `start`."""
        found = []
        at = self._next[self.stop - start]
        while at < self.stop:
            found.append(at)
            at = self._next_cut[self.stop - at]
        return tuple(found)

    def extend(self, start: int) -> None:
        """Know all regions from `start` on."""
        work, hop, limit, keys, cuts = self.regions.work, self.regions.hop, self.limit, self._keys, self._cuts
        for at in range(self.stop - len(self.costs), start - 1, -1):
            done, own = -work[at], hop[at]
            place = bisect_left(keys, done - limit)
            if place == len(keys):
                missing = at + 1 - start
                self.costs += [math.inf] * missing
                self.slowest += [-math.inf] * missing
                return
            cost, slow, cut = cuts[place]
            self.costs.append(cost)
            self.slowest.append(max(slow, done - keys[place]))
            self._next.append(cut)
            place = bisect_left(keys, done + own - limit, place)
            if place == len(keys) or not self.regions.pipelining:
                self._next_cut.append(0)
                continue
            cost, slow, cut = cuts[place]
            self._next_cut.append(cut)
            cost += 2 * own
            new = (cost, max(slow, done + own - keys[place]), at)
            place = bisect_right(keys, done - own)
            if place == len(keys) or cuts[place][0] > cost:
                first = place
                while first and cuts[first - 1][0] >= cost:
                    first -= 1
                keys[first:place], cuts[first:place] = [done - own], [new]


class Cuts:
    """The cheapest cuts for any region of a chain and any limit."""

    def __init__(self, regions: Regions) -> None:
        self.regions, self.work, self.hop = regions, regions.work, regions.hop
        self.rounding = _ROUNDING * regions.work[-1]
        self._paths: list[list[Paths]] = [[] for _ in self.work]  # by stop, sorted by limit
        self._from_left: dict[int, list[float]] = {}
        self._from_right: dict[int, list[float]] = {}

    def cheapest(self, start: int, stop: int, limit: float, most: float) -> Paths | None:
        """Paths with the cheapest cuts for a region and limit, if they cost less than `most`."""
        known, length = self._paths[stop], stop - start
        place = bisect_left(known, limit, key=_limit)
        new = place == len(known) or length >= len(known[place].costs)
        if new and self._at_least(start, stop, limit + self.rounding, most):
            return None
        if place < len(known):
            paths = known[place]
            paths.extend(start)
            if paths.costs[length] >= most:
                return None
            if paths.slowest[length] <= limit:
                return paths
        paths = Paths(self.regions, stop, limit)
        paths.extend(start)
        known.insert(place, paths)
        return paths if paths.costs[length] < most else None

    def _at_least(self, start: int, stop: int, limit: float, most: float) -> bool:
        """True if the cuts of a region cost `most` at least, or if there are none."""
        work = self.work
        if work[stop] - work[start] <= limit:
            return most <= 0
        if not self.regions.pipelining:
            return True
        if self.hop[start + 1] > self.hop[stop - 1]:  # the more tuples there are, the better the bound
            return self._left(start, stop, limit, most) or self._right(start, stop, limit, most)
        return self._right(start, stop, limit, most) or self._left(start, stop, limit, most)

    def _left(self, start: int, stop: int, limit: float, most: float) -> bool:
        """`_at_least` by the farthest that pipelines reach from the start."""
        work = self.work
        least = self._from_left.get(start)  # the least δ·arrivals from the start to a cut
        if least is None:
            least = self._from_left[start] = [0.0, *accumulate(self.hop[start + 1 : -1], min), 0.0]
        cost, reach, goal = 0.0, work[start] + limit, work[stop]
        while reach < goal:
            end = bisect_right(work, reach, start) - 1
            cut = bisect_right(work, reach - least[end - start], start) - 1
            own = least[cut - start]
            cost += 2 * own
            farther = work[cut] - own + limit
            if cut <= start or cost >= most or farther <= reach:
                return True
            reach = farther
        return False

    def _right(self, start: int, stop: int, limit: float, most: float) -> bool:
        """`_at_least` by the farthest that pipelines reach back from the stop."""
        work = self.work
        least = self._from_right.get(stop)  # the least δ·arrivals from a cut to the stop
        if least is None:
            least = self._from_right[stop] = [math.inf, *accumulate(reversed(self.hop[1:stop]), min)]
        cost, reach, goal = 0.0, work[stop] - limit, work[start]
        while reach > goal:
            end = max(bisect_left(work, reach), start + 1)
            cut = max(bisect_left(work, reach + least[stop - end]), start + 1) if end < stop else stop
            if cut >= stop:
                return True
            own = least[stop - cut]
            cost += 2 * own
            farther = work[cut] + own - limit
            if cost >= most or farther >= reach:
                return True
            reach = farther
        return False


def _limit(paths: Paths) -> float:
    return paths.limit
