"""How fast the slowest region can be, whatever the work: a lower bound of the best time, and often the best time.

Region [a, b) with r replicas takes  δ·arrivals[a] + δ·arrivals[b] + cp·arrivals[a]·log2(r) + P / min(r, bound),  P the
time of its slowest pipeline. The least P does not depend on r: for one stop it follows from right to left for all
starts, or for one start for all stops, whichever is less to add; and it never falls as a region gets longer. With P the
best r is known, too: the time falls up to r = P·ln 2 / (cp·arrivals[a]) and rises from there, or from the bound.

From right to left, the least maximum from each cut on follows from those of the cuts behind it. Neighbours with the
same number of replicas may have to be one region (§3.1), and so the least with another number at its start is sought
where it is needed, and of each region the best two numbers that are allowed are tried. If no more tuples arrive at
a + 1, nothing from a on is faster than the best from there on (as in `Least`), and what is as fast is the best.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from itertools import accumulate, chain
from typing import NamedTuple

from penstock.optimizer.regions import Regions


class Start(NamedTuple):
    """The least time from a cut on, and the first region there: its number of replicas and where it stops."""

    time: float
    replicas: int
    stop: int


class _Pipelines:
    """The least time of the slowest pipeline of the regions with one stop, by length, as far as it was asked for."""

    def __init__(self, work: Sequence[float], hop: Sequence[float], stop: int) -> None:
        self.work, self.hop, self.stop = work, hop, stop
        self.times = [0.0]
        self._cut = [0.0]  # if there is a cut at the start, too

    def slowest(self, start: int) -> float:
        """The least for the region from `start`."""
        work, hop, stop = self.work, self.hop, self.stop
        for at in range(stop - len(self.times), start - 1, -1):
            begin, own = work[at], hop[at]
            best = work[stop] - begin
            best_cut = best + own
            for inner in range(at + 1, stop):
                time = work[inner] - begin
                if time >= best and time + own >= best_cut:
                    break
                after = self._cut[stop - inner]
                time += hop[inner]
                if after < best and time < best:
                    best = max(after, time)
                time += own
                if after < best_cut and time < best_cut:
                    best_cut = max(after, time)
            self.times.append(best)
            self._cut.append(best_cut)
        return self.times[stop - start]


class Slowest:
    """Finds the least time of the slowest region of a chain."""

    def __init__(self, regions: Regions) -> None:
        self.regions = regions
        count = regions.count
        self._by_stop = [_Pipelines(regions.work, regions.hop, stop) for stop in range(count + 1)]
        # The chain turned round, where starts are stops.
        self._turned = [regions.work[-1] - work for work in reversed(regions.work)], regions.hop[::-1]
        self.best = [Start(math.inf, 0, 0)] * count + [Start(0.0, 0, count)]
        self._other: dict[int, float] = {}
        self._enough = 0.0

    def least(self, enough: float) -> float:
        """The least time, or `enough` if that is more."""
        self._enough = enough
        for at in reversed(range(self.regions.count) if self.regions.most > 1 else range(1)):
            self.best[at] = self._search(at, 0)
        return max(enough, self.best[0].time)

    def _after(self, at: int, stop: int, replicas: int) -> float:
        """The least time after a region, which must not have to be one with the next."""
        start = self.best[stop]
        if start.replicas != replicas or (replicas > 1 and stop == self.regions.extent[at]):
            return start.time
        if stop not in self._other:
            self._other[stop] = self._search(stop, replicas).time
        return self._other[stop]

    def _search(self, at: int, barred: int) -> Start:
        """The least time from `at` on, if the first region does not have `barred` replicas."""
        regions, behind = self.regions, self.best
        hop, extent, arrivals = regions.hop, regions.extent[at], regions.arrivals[at]
        bounds = [*accumulate(regions.bounds[at:], min)]
        by_start = _Pipelines(*self._turned, regions.count - at)
        best = Start(math.inf, 0, 0)
        least, enough = math.inf, self._enough
        if hop[at + 1] <= hop[at] and regions.arrivals[at + 1] <= arrivals and regions.alike(at):
            enough = max(enough, behind[at + 1].time)
        likely = behind[at + 1].stop
        for stop in chain([likely] if likely > at else [], range(at + 1, regions.count + 1)):
            if behind[stop].time >= least:
                continue
            switching, bound = hop[at] + hop[stop], bounds[stop - at - 1]
            replicable, known = stop <= extent, self._at_least(at, stop, by_start)
            if not self._options(known, arrivals, bound, least - switching, replicable):
                continue
            pipeline = self._pipeline(at, stop, by_start, stop == likely)
            options = self._options(pipeline, arrivals, bound, least - switching, replicable)
            if not replicable and pipeline >= least:
                break
            times = [(arrivals * regions.splitting[r] + pipeline / min(r, bound), r) for r in options if r != barred]
            for time, r in sorted(times)[:2]:
                if switching + time >= least:
                    break
                time = max(switching + time, self._after(at, stop, r))
                if time < least:
                    least, best = time, Start(time, r, stop)
            if least <= enough:
                break
        return best

    def _at_least(self, at: int, stop: int, by_start: _Pipelines) -> float:
        """A lower bound of `_pipeline`: longer regions are not faster than those known."""
        by_stop, length = self._by_stop[stop], stop - at
        if not self.regions.pipelining or length < max(len(by_stop.times), len(by_start.times)):
            return 0.0
        return max(by_stop.times[-1], by_start.times[-1])

    def _pipeline(self, at: int, stop: int, by_start: _Pipelines, likely: bool) -> float:
        """The least time of the slowest pipeline of a region, by its start or, if `likely`, by its stop."""
        by_stop, length = self._by_stop[stop], stop - at
        if not self.regions.pipelining:
            return self.regions.work[stop] - self.regions.work[at]
        if likely or length < len(by_stop.times) or len(by_stop.times) > len(by_start.times):
            return by_stop.slowest(at)
        return by_start.slowest(self.regions.count - stop)

    def _options(self, pipeline: float, arrivals: float, bound: float, most: float, replicable: bool) -> range:
        """Numbers of replicas around the best; none if the time could not be below `most`."""
        if not replicable:
            return range(1, 2 if pipeline < most else 1)
        peak = min(bound, self.regions.most)
        if pipeline / peak >= most:
            return range(0)
        each = arrivals * self.regions.splitting[-1] / math.log(max(2, self.regions.most))
        if pipeline < peak * each:  # it rises before the bound
            peak = max(1.0, pipeline / each)
            if peak > 1 and each * (1 + math.log(peak)) >= most:
                return range(0)
        return range(max(1, int(peak) - 2), int(min(self.regions.most, peak + 3, bound + 2.99)) + 1)
