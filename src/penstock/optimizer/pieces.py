"""One chain of a graph: its cheapest configuration for any time limit, each found once.

The work of the cheapest configuration never grows with the limit. So what is found for a limit t, with M the slowest
region of it, is the answer for all limits from M to t; and where the answers for two limits work the same, so does any
between them. Few questions are new where a search closes in on one time. Of those, one operator alone needs no search:
the fewest replicas that keep the limit are the cheapest.

Many chains are like an easier one but for the last operator, which has more to do or hands over more. Any configuration
of theirs is one of the easier chain, where no region is slower: their overhead is not below that of the easier chain.
And its best configuration is the best of theirs too, if it keeps the limit there.
"""

from __future__ import annotations

import math
from bisect import bisect_right
from collections.abc import Sequence
from dataclasses import dataclass
from functools import cached_property
from itertools import accumulate
from typing import Any, NamedTuple

from penstock.graph.operator import Kind
from penstock.optimizer.least import Least
from penstock.optimizer.model import Chain, Config, Op, Region, evaluate_chain
from penstock.optimizer.regions import Regions
from penstock.optimizer.slowest import Slowest

_ROUNDING = 1e-12


@dataclass(frozen=True, slots=True)
class Machine:
    """What a graph runs on; `most` is the number of replicas a region may have."""

    cores: int
    delta: float
    cp: float
    most: int


class Place(NamedTuple):
    """Operators that are one composite, or one operator: `arrivals` tuples reach the first of them.

    `key` is what their stream can be split by, None if that is anything, as of `joined_key`.
    """

    members: tuple[int, ...]
    arrivals: float
    load: float
    key: frozenset[Any] | None
    bound: float

    def with_all(self, others: Sequence[Place]) -> Place:
        """This and others as one composite."""
        members, load, key, bound = self.members, self.load, self.key, self.bound
        for other in others:
            members += other.members
            load += other.load
            key = other.key if key is None else key if other.key is None else key & other.key
            bound = min(bound, other.bound)
        return Place(members, self.arrivals, load, key, bound)

    def op(self) -> Op:
        """What can be done with it; costs and rates are those of the chain."""
        kind: Kind = "stateless" if self.key is None else "partitioned" if self.key else "stateful"
        return Op(0.0, 1.0, kind, self.key or frozenset(), self.bound)


class Answer(NamedTuple):
    """A configuration, its work with all that is handed over, and the time of its slowest region."""

    config: Config
    work: float
    slowest: float
    threads: int


class Piece:
    """A chain of a graph. `fed` if another chain feeds it, `sent` is what it hands over to others.

    `easier` is a chain with the same operators but for the last, which has no more to do there and hands over no more.
    """

    def __init__(
        self, machine: Machine, places: tuple[Place, ...], fed: bool, sent: float, easier: Piece | None = None
    ) -> None:
        self.machine, self.places, self.fed, self.sent = machine, places, fed, sent
        self.ends = (machine.delta * places[0].arrivals if fed else 0.0, machine.delta * sent)
        self.fixed = sum(self.ends) + sum(place.load for place in places)  # work without overhead
        # Answers by limit: each for those from its floor to its ceiling. Nothing keeps `_never`.
        self._floors, self._ceilings, self._answers = [self.fixed], [math.inf], [_alone(len(places), self.fixed)]
        self._never = -math.inf
        # A key that is another one may part regions that have to be one elsewhere (§3.1): they do not compare.
        self._easier = easier if easier is not None and easier.places[-1].key == places[-1].key else None

    @cached_property
    def chain(self) -> Chain:
        if self._easier is not None:
            known, last = self._easier.chain, self.places[-1]
            ops, arrivals = (*known.ops[:-1], last.op()), (*known.arrivals[:-1], self.sent)
            return Chain(ops, arrivals, (*known.work[:-1], known.work[-2] + last.load))
        sums = (0.0, *accumulate(place.load for place in self.places))
        return Chain(
            tuple(place.op() for place in self.places), (*(place.arrivals for place in self.places), self.sent), sums
        )

    @cached_property
    def _regions(self) -> Regions:
        machine = self.machine
        most = machine.most if any(place.key != frozenset() for place in self.places) else 1
        return Regions(self.chain, machine.delta, machine.cp, most, ends=self.ends)

    @cached_property
    def _least(self) -> Least:
        return Least(self._regions)

    def within(self, limit: float) -> Answer | None:
        """The configuration with the least work whose regions all keep `limit`; None if there is none."""
        place = bisect_right(self._floors, limit) - 1
        if place >= 0:
            answer = self._answers[place]
            if limit <= self._ceilings[place]:
                return answer
            if self._answers[place + 1].work >= answer.work:
                self._ceilings[place] = limit
                return answer
        elif limit <= self._never:
            return None
        found = self.solve(limit)
        if found is None:
            self._never = limit
            return None
        if place >= 0 and found.slowest <= self._floors[place]:
            self._ceilings[place] = limit
            return self._answers[place]
        self._floors.insert(place + 1, min(limit, found.slowest))
        self._ceilings.insert(place + 1, limit)
        self._answers.insert(place + 1, found)
        return found

    def solve(self, limit: float) -> Answer | None:
        """What `within` answers where one thread is not enough, whatever is known."""
        if len(self.places) == 1:
            return self._single(limit)
        if self._easier is not None:
            known = self._easier.within(limit)
            if known is None:
                return None
            answer = self._answer(known.config, known.work - self._easier.fixed)
            if answer.slowest <= limit:
                return answer
        found = self._least.find(limit)
        return None if found is None else self._answer(found[1], found[0])

    def _answer(self, config: Config, overhead: float) -> Answer:
        machine = self.machine
        result = evaluate_chain(self.chain, config, machine.cores, machine.delta, machine.cp, self.ends)
        return Answer(config, self.fixed + overhead, 1 / result.unbounded, config.threads)

    def settle(self) -> None:
        """Forget the easier chain: this one is there to stay."""
        self._easier = None

    def at_least(self, limit: float) -> float:
        """Work that no configuration within `limit` is below; often known without a look at any."""
        if self._easier is None:
            return self.fixed
        least = self._easier.within(limit)
        return math.inf if least is None else self.fixed + (least.work - self._easier.fixed) * (1 - _ROUNDING)

    def _single(self, limit: float) -> Answer | None:
        """The fewest replicas of the only operator that keep the limit."""
        (_, arrivals, load, key, bound), (before, after) = self.places[0], self.ends
        if key == frozenset():
            return None
        split, switching = arrivals * self.machine.cp, before + after
        most, replicas = min(self.machine.most, math.ceil(min(bound, self.machine.most))), 2
        while replicas <= most:
            paid = split * math.log2(replicas)
            time = switching + paid + load / min(replicas, bound)
            if time <= limit:
                config = Config((Region(replicas, ((0, 1),)),))
                return Answer(config, self.fixed + paid, time, replicas)
            room = limit - switching - paid  # what more replicas have, at most
            if room <= 0 or load > most * room * (1 + _ROUNDING):
                return None
            replicas = max(replicas + 1, math.ceil(load / room * (1 - _ROUNDING)))
        return None

    def least_time(self, enough: float) -> float:
        """A time that no configuration is below, or `enough` if that is more."""
        if self.fixed <= enough:
            return enough
        if len(self.places) > 1:
            return min(self.fixed, Slowest(self._regions).least(enough))
        (_, _, load, key, bound), switching = self.places[0], sum(self.ends)
        fastest = 1.0 if key == frozenset() else min(self.machine.most, bound)
        return max(enough, switching + load / fastest)


def _alone(count: int, fixed: float) -> Answer:
    """All in one thread: nothing works less."""
    return Answer(Config((Region(1, ((0, count),)),)), fixed, fixed, 1)
