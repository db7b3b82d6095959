"""What the exact search has to know of the regions of a chain, whatever the limit: sums, bounds, where keys part."""

from __future__ import annotations

import math
from collections.abc import Sequence

from penstock.optimizer.model import Chain, Op, joined_key

Ends = tuple[float, float]


class Regions:
    """The regions of one chain, with up to `most` replicas.

    `hop` is δ·arrivals of each cut; at the ends of the chain it is `ends`, what is handed over where the chain is part
    of a graph. A region that starts with operator i can be replicated if it stops at `extent[i]` or before, and
    `spans[i]` divides those stops by the least bound of the operators: (the last stop, the bound), in order.
    """

    def __init__(
        self, chain: Chain, delta: float, cp: float, most: int, *, pipelining: bool = True, ends: Ends = (0.0, 0.0)
    ) -> None:
        self.count, self.most, self.pipelining = len(chain), most, pipelining
        self.arrivals, self.work = chain.arrivals, chain.work
        self.hop = [delta * arrivals for arrivals in chain.arrivals]
        self.hop[0], self.hop[-1] = ends
        self.splitting = [0.0, *(cp * math.log2(r) for r in range(1, most + 1))]  # by replicas, per tuple that arrives
        self.bounds = [op.bound for op in chain.ops]
        self.extent = extents(chain.ops)
        self.spans: list[list[tuple[int, float]]] = [[] for _ in chain.ops]
        for start in reversed(range(self.count)):
            after = self.spans[start + 1] if start + 1 < self.count else []
            self.spans[start] = self._span(start, after)

    def alike(self, at: int) -> bool:
        """True if replicated regions from `at`, if they go on, must stop where those from `at` + 1 must."""
        return self.most > 1 and (self.extent[at] <= at + 1 or self.extent[at] == self.extent[at + 1])

    def _span(self, start: int, after: list[tuple[int, float]]) -> list[tuple[int, float]]:
        """The stops for `start` from those for the operator after it."""
        extent, bound = self.extent[start], self.bounds[start]
        found = [(start + 1, bound)] if extent > start else []
        for stop, own in after:
            if found[-1:] and found[-1][0] < extent:
                if own >= bound:
                    found.pop()
                found.append((min(stop, extent), min(own, bound)))
        return found


def extents(ops: Sequence[Op]) -> list[int]:
    """For each operator: where the longest replicated region that starts with it ends; itself if there is none."""
    found = [0] * len(ops)
    for start in reversed(range(len(ops))):
        key, stop = joined_key(None, ops[start]), start
        after = ops[start + 1] if start + 1 < len(ops) else None
        if after is not None and (key is None or (key and key == joined_key(None, after))):
            stop = max(start + 1, found[start + 1])
        else:
            while key != frozenset() and (stop := stop + 1) < len(ops):
                key = joined_key(key, ops[stop])
        found[start] = stop
    return found
