"""Whether a time limit can be kept at all, whatever the work: `Cheapest` where costs do not matter.

A region [a, b) with r replicas keeps the limit when each of its pipelines takes at most

    g(r) = f(r)·(limit - δ·arrivals[a] - δ·arrivals[b] - cp·arrivals[a]·log2(r)),   f(r) = min(r, bound)

with the ends of the chain as they are. So of all numbers of replicas only those with the highest g are of interest: a
region with another one may have one of the best three instead, namely one that neither neighbour has (neighbours with
the same number might have to be merged, §3.1). Up to the bound g is concave and beyond it falls, so the best three lie
side by side around the peak, at r = 2^(x - 1 / ln 2), x = (limit - …) / (cp·arrivals[a]), or at the bound.
"""

from __future__ import annotations

import math
from collections.abc import Mapping

from penstock.optimizer.ahead import Ahead
from penstock.optimizer.cheapest import Cheapest
from penstock.optimizer.labels import Option, Tail
from penstock.optimizer.model import Chain, Config

_FAR = 10.0  # by so many doublings the peak may lie beyond the bound, and the order of the best does not change
_MUCH = 4.0  # budgets so many times the dearest configuration are as good as none


class Feasible(Cheapest):
    """Answers for one chain and any time limit, with up to `most` replicas."""

    def __init__(self, chain: Chain, delta: float, cp: float, most: int, pipelining: bool, ahead: Ahead) -> None:
        options = [Option(r, r) for r in range(1, most + 1)]
        super().__init__(chain, delta, cp, options, pipelining=pipelining, ahead=ahead)
        self.cp, self.most = cp, most
        self.worthwhile: list[list[tuple[Option, float]]] = []

    def keeping(self, limit: float, tails: Mapping[int, Tail] | None = None) -> Config | None:
        """A configuration whose every region keeps `limit`; None if there is none. For `tails` see `find`."""
        self.worthwhile = [self._worthwhile(cut, limit) for cut in range(len(self.chain))]
        return self.find(limit, _MUCH * self.dearest, tails=tails)

    def _options(self, cut: int) -> list[tuple[Option, float]]:
        return self.worthwhile[cut]

    def _worthwhile(self, cut: int, limit: float) -> list[tuple[Option, float]]:
        """Numbers of replicas for regions that begin at `cut`: for each end they may have, those around the peak."""
        each, most = self.cp * self.chain.arrivals[cut], self.most
        found = {1}
        bound = math.inf
        tried: set[tuple[float, float]] = set()
        for end in range(cut + 1, self.extent[cut] + 1):
            bound = min(bound, self.chain.ops[end - 1].bound)
            room = limit - self.hop[cut] - self.hop[end]
            highest = min(float(most), bound)
            power = room / each - 1 / math.log(2) if each > 0 else math.inf
            plenty = power > math.log2(highest) + _FAR  # the peak is at the bound, and the best three are those there
            if room < 0 or (known := (bound, 0.0 if plenty else room)) in tried:
                continue
            tried.add(known)
            peak = int(highest if power >= math.log2(highest) else max(1.0, 2.0**power))
            around = range(max(1, peak - 2), min(most, peak + 3) + 1)
            reached = [(min(r, bound) * (room - self.options[r - 1][1] * self.chain.arrivals[cut]), r) for r in around]
            found.update(r for _, r in sorted(reached)[-3:])
        return [self.options[r - 1] for r in sorted(found)]
