"""Is there a configuration in which every region keeps a time limit, within a budget? For chains too long for `Least`.

Per tuple of the source, a configuration works  work[N] + 2·δ·Σ arrivals[c] + cp·Σ arrivals[a]·log2(r),  the first sum
over all cuts c (between pipelines as between regions: both sides of a cut pay δ), the second over the regions, which
start at a and have r replicas. Only the two sums, the *overhead*, depend on the configuration. A region [a, b) keeps
the limit when each of its pipelines [u, v) keeps

    work[v] - work[u] + δ·(arrivals[u], if u > a) + δ·(arrivals[v], if v < b)  ≤  f(r)·(room - δ·arrivals[b])
    where  room = limit - δ·arrivals[a] - cp·arrivals[a]·log2(r)     (no δ at the ends of the chain; eqs 4–10)

So a configuration is a path from 0 to N over cuts, its overhead the length, and the question one of shortest paths
whose states remember what the region being built still needs: a `Label`. Cuts are visited from left to right. Labels of
one number of replicas stand in one list, and only those are kept that no other beats in every respect. Three
observations keep the lists at a handful, and none of them loses a configuration that could be within the budget:

* A finished region is remembered by its overhead alone, except that it must not be followed by a region it would have
  to be merged with (§3.1); for that, the best with a second number of replicas is kept too (`Ends`). For the same
  reason a number of replicas is not tried where two smaller ones reach at least as far.
* An end of the region costs room, but only the δ·arrivals of the cuts still ahead matter: what the finished pipelines
  leave for it (`spare`) is rounded down to one of these.
* Whatever can be afforded in any case is as good as free: overheads are rounded up to what leaves enough of the budget
  for the dearest way to go on.

For very long chains, `width` limits the lists. A "yes" stays true, but a "no" may be wrong (`Cheapest`) — or the other
way round (`Relaxed`): there labels are not dropped but united, the best of both in every respect, and an `Option` is
not one number of replicas but a range taken at its best, as cheap as the lowest, as fast as the highest and free of the
merging rule. What is impossible even so is impossible.
"""

from __future__ import annotations

import math
from bisect import bisect_right
from collections.abc import Mapping, Sequence
from itertools import accumulate
from typing import Any

from penstock.optimizer.labels import End, Ends, Label, Option, Tail, best_of, config_of, insert
from penstock.optimizer.model import Chain, Config, Op, joined_key
from penstock.optimizer.regions import extents

_NOTHING: frozenset[Any] = frozenset()


class Cheapest:
    """Answers for one chain and any time limit, from lists of up to `width` labels.

    Without `pipelining`, regions are one pipeline each.
    """

    def __init__(
        self,
        chain: Chain,
        delta: float,
        cp: float,
        options: Sequence[Option],
        *,
        width: float = math.inf,
        pipelining: bool = True,
    ) -> None:
        self.chain = chain
        self.width = width
        self.pipelining = pipelining
        self.work = chain.work
        self.options = [(option, cp * math.log2(option.least)) for option in options]
        self.hop = [delta * arrivals for arrivals in chain.arrivals]  # δ at each cut
        self.hop[0] = self.hop[-1] = 0.0
        self.steps = sorted(set(self.hop))
        self.hop_ahead = [*_from_the_right(self.hop[1:], max), 0.0]  # the most δ at a cut after this one
        self.bound_ahead = _bounds_ahead(chain.ops)
        # The dearest way to go on after a cut: cut everywhere, with as many replicas as there can be.
        dearest = [
            2 * hop + arrivals * self.options[-1][1] for hop, arrivals in zip(self.hop, chain.arrivals, strict=True)
        ]
        margin = 1e-9 * math.fsum(dearest)  # sums come out a little differently in another order
        self.cost_ahead = [total + margin for total in _from_the_right(dearest[1:], float.__add__)] + [0.0]
        self.extent = extents(chain.ops)

    def find(self, limit: float, budget: float, tails: Mapping[int, Tail]) -> Config | None:
        """A configuration whose every region keeps `limit`, with an overhead up to `budget`; None if there is none.

        `tails` are known ways to go on after a cut that keep the limit; the search is over as soon as one of them can
        be afforded.
        """
        lists: dict[Option, list[Label]] = {}
        self._begin(lists, 0, limit, budget, None)
        for cut in range(1, len(self.chain)):
            ends = self._extend(lists, cut, budget)
            if ends.last() is not None:
                tail = tails.get(cut)
                if tail is not None:
                    best = ends.before(Option(tail.regions[0].replicas, tail.regions[0].replicas))
                    if best is not None and best.cost + tail.cost <= budget:
                        return Config((*config_of(best).regions, *tail.regions))
                self._begin(lists, cut, limit, budget, ends)
            elif not any(lists.values()):
                return None
        last = self._extend(lists, len(self.chain), budget).last()
        return None if last is None else config_of(last)

    def _begin(
        self, lists: dict[Option, list[Label]], cut: int, limit: float, budget: float, ends: Ends | None
    ) -> None:
        """Start a region at `cut` with each number of replicas that makes sense."""
        op, start, needed = self.chain.ops[cut], self.work[cut], self.work[cut + 1]
        arrivals, hop, hop_ahead = self.chain.arrivals[cut], self.hop[cut], self.hop_ahead[cut]
        extent = self.extent[cut]
        whole = self.work[extent]
        key = joined_key(None, op)
        barred = ends.barred if ends is not None else None
        usual = ends.before(Option(2, 3)) if ends is not None else None  # for more than one replica, if not barred
        best: list[tuple[float, float]] = []  # reach and cost of the two that reach farthest
        for option, log_cost in self.options:
            least, most = option
            if most > 1 and (key == _NOTHING or (len(best) == 2 and best[1][0] == math.inf)):
                break
            room = limit - hop - arrivals * log_cost
            if room < 0:
                break
            factor = min(float(most), op.bound)
            reach = start + factor * room
            # Three numbers of replicas from the bound on are enough to differ from both neighbours.
            if reach < needed or least >= op.bound + 3:
                continue
            after = None
            cost = arrivals * log_cost
            if ends is not None:
                after = usual if most > 1 and option != barred else ends.before(option)
                if after is None:
                    continue
                cost += after.cost
            if cost > budget:
                continue
            cost = max(cost, budget - self.cost_ahead[cut])
            if most > 1:
                if len(best) == 2 and reach <= best[1][0] and cost >= best[0][1] and cost >= best[1][1]:
                    continue
                enough = reach >= whole + (1 + factor) * hop_ahead
                best = sorted([*best, (math.inf if enough else reach, cost)], reverse=True)[:2]
            bounded = self.bound_ahead[cut] < most
            spare = room if bounded else hop_ahead
            label = Label(cost, reach, room, spare, factor, key if most > 1 else None, cut, None, after)
            insert(lists.setdefault(option, []), label, bounded)

    def _narrow(self, labels: list[Label], bounded: bool) -> None:
        """Drop the label that gains least over a cheaper one, until there are not too many."""
        labels.sort(key=lambda label: label.cost)
        while len(labels) > self.width:
            least = min(range(1, len(labels)), key=lambda i: labels[i].reach - labels[i - 1].reach)
            del labels[least]

    def _extend(self, lists: dict[Option, list[Label]], cut: int, budget: float) -> Ends:
        """Take the operator before `cut` into every open pipeline; then cut there, or end the region there."""
        op = self.chain.ops[cut - 1]
        following = self.chain.ops[cut] if cut < len(self.chain) else None
        hop, here, steps = self.hop[cut], self.work[cut], self.steps
        cutting = 2 * hop if following is not None else 0.0
        beyond = self.work[cut + 1] if following is not None else math.inf  # to be reached by what goes on
        least_cost = budget - self.cost_ahead[cut]
        ends = Ends()
        for option, labels in lists.items():
            if not labels:
                continue
            most = option.most
            labels = _joined(labels, option, op, here)
            bounded = self.bound_ahead[cut] < most
            most_spare = math.inf if bounded else self.hop_ahead[cut]
            kept: list[Label] = []
            fresh: list[Label] = []
            for label in labels:
                cost, reach, room, spare, factor, key, at, before, after = label
                if reach >= beyond:
                    if cost < least_cost or spare > most_spare:
                        cost_now, spare_now = max(cost, least_cost), min(spare, most_spare)
                        kept.append(Label(cost_now, reach, room, spare_now, factor, key, at, before, after))
                    else:
                        kept.append(label)
                cost += cutting
                if cost > budget:
                    continue
                if hop <= spare and here + factor * hop <= reach:
                    closed = most > 1 and following is not None and joined_key(key, following) == _NOTHING
                    ends.add(End(cost, option, cut, label), closed)
                next_reach = here - hop + factor * room
                if self.pipelining and here + hop <= reach and next_reach >= beyond:
                    spare = min(spare, (reach - here - hop) / factor, most_spare)
                    if not bounded:
                        spare = steps[bisect_right(steps, spare) - 1]
                    cost = max(cost, least_cost)
                    fresh.append(Label(cost, next_reach, room, spare, factor, key, cut, label, after))
            for label in fresh:
                insert(kept, label, bounded)
            if len(kept) > self.width:
                self._narrow(kept, bounded)
            lists[option] = kept
        return ends


class Relaxed(Cheapest):
    """Answers that are "no" only if there is no configuration at all; a "yes" means nothing."""

    def _narrow(self, labels: list[Label], bounded: bool) -> None:
        labels.sort(key=lambda label: label.cost)
        while len(labels) > self.width:
            pairs = [i for i in range(1, len(labels)) if labels[i].key == labels[i - 1].key]
            if not pairs:
                return
            least = min(pairs, key=lambda i: labels[i].reach - labels[i - 1].reach)
            labels[least - 1 : least + 1] = [best_of(labels[least - 1], labels[least], bounded)]


def _joined(labels: list[Label], option: Option, op: Op, here: float) -> list[Label]:
    """The labels that `op` can join: partitioned alike, and fast enough if `op` lowers f(r)."""
    if option.most > 1 and op.kind != "stateless":
        keyed = [(label, joined_key(label.key, op)) for label in labels]
        labels = [label if label.key == key else label._replace(key=key) for label, key in keyed if key]
    if op.bound >= option.most:
        return labels
    if option.least >= op.bound + 3:
        return []
    return [
        label for label in (_bounded(label, op.bound) for label in labels) if label.reach >= here and label.spare >= 0
    ]


def _bounded(label: Label, bound: float) -> Label:
    if label.factor <= bound:
        return label
    reach = label.reach - (label.factor - bound) * label.room
    spare = label.room - (label.room - label.spare) * label.factor / bound
    return label._replace(reach=reach, spare=spare, factor=bound)


def _from_the_right(values: Sequence[float], combine: Any) -> list[float]:
    return list(accumulate(reversed(values), combine))[::-1]


def _bounds_ahead(ops: Sequence[Op]) -> list[float]:
    """For each operator, and the end: the least bound that a replicated region may meet from there on."""
    ahead = [math.inf] * (len(ops) + 1)
    for index in reversed(range(len(ops))):
        ahead[index] = math.inf if ops[index].kind == "stateful" else min(ops[index].bound, ahead[index + 1])
    return ahead
