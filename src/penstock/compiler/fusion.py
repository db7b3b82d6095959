"""Divides a graph into PEs: as little traffic between them as possible, and no PE loaded beyond a limit.

Top down (language runtime §6.1): everything starts in one PE. A PE with too much load, or with operators that must not
be together, is divided where the least traffic is cut for the load that is parted; then its parts are. At the end
single operators move to other PEs and whole PEs are united, as long as that saves traffic.

PEs never feed each other in a circle. Each has bounded buffers: two that send to each other can both stand before a
full one, each waiting for the other to read, for good; and a tuple that goes back and forth is late. The circles a
program itself has, through `feedback`, are another matter: what they carry goes to control ports. So a PE is divided
into operators that come first and those that follow: all streams between the two lead one way. Whatever else stood
between PEs before still does, so no circle can come about; and every division into PEs without circles can be reached
by such steps. Moves and unions that would close a circle are not made.

What must stay together is one *unit* (`colocation`). A unit that is over the limit by itself gets a PE of its own;
nothing could be done about it.
"""

from __future__ import annotations

import math
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from itertools import combinations

from penstock.compiler.colocation import Unit, find_units, unit_links
from penstock.compiler.weights import Weights
from penstock.graph.graph import Graph

Part = frozenset[int]  # units


@dataclass(frozen=True)
class Fusion:
    """The PEs of a graph, each fed by earlier ones only (but for feedback), and what crosses from one to another.

    The operators of each are in topological order.
    """

    pes: tuple[tuple[int, ...], ...]
    loads: tuple[float, ...]
    traffic: float

    @property
    def busiest(self) -> float:
        """The load of the busiest PE."""
        return max(self.loads)

    @property
    def of_node(self) -> dict[int, int]:
        """The PE of each operator."""
        return {index: number for number, pe in enumerate(self.pes) for index in pe}


def fuse(graph: Graph, weights: Weights, limit: float = math.inf) -> Fusion:
    """The PEs for `graph`, each with a load up to `limit`. Raises `FlowError` where the constraints contradict."""
    units = find_units(graph)
    problem = _Problem(graph, weights, units, limit)
    parts = problem.improve(problem.divide(frozenset(range(len(units)))))
    place = {index: at for at, index in enumerate(graph.topological)}
    pes = [
        tuple(sorted((i for unit in part for i in units[unit]), key=place.__getitem__))
        for part in problem.sorted(parts)
    ]
    loads = tuple(math.fsum(weights.load[i] for i in pe) for pe in pes)
    return Fusion(tuple(pes), loads, problem.crossing(parts))


class _Problem:
    """Units with their loads, who feeds whom with how much traffic, and which of them must not meet."""

    def __init__(self, graph: Graph, weights: Weights, units: Sequence[Unit], limit: float) -> None:
        self.limit = limit * (1 + 1e-9)
        self.load = [math.fsum(weights.load[i] for i in unit) for unit in units]
        self.below = unit_links(graph, units)
        self.above: list[set[int]] = [set() for _ in units]
        for unit, readers in enumerate(self.below):
            for reader in readers:
                self.above[reader].add(unit)
        unit_of = {index: number for number, unit in enumerate(units) for index in unit}
        self.links: list[dict[int, float]] = [{} for _ in units]
        for (source, target), amount in weights.traffic.items():
            one, two = unit_of[source], unit_of[target]
            if one != two:
                self.links[one][two] = self.links[one].get(two, 0.0) + amount
                self.links[two][one] = self.links[two].get(one, 0.0) + amount
        self.enemies = _enemies(graph, units)

    def load_of(self, part: Iterable[int]) -> float:
        return math.fsum(self.load[unit] for unit in part)

    def conflicts(self, part: Part) -> int:
        return sum(len(self.enemies[unit] & part) for unit in part)

    def allowed(self, part: Part) -> bool:
        return len(part) == 1 or (self.load_of(part) <= self.limit and not self.conflicts(part))

    def between(self, unit: int, part: Part) -> float:
        return math.fsum(amount for other, amount in self.links[unit].items() if other in part)

    def crossing(self, parts: Iterable[Part]) -> float:
        """Traffic between parts."""
        home = {unit: part for part in parts for unit in part}
        return (
            math.fsum(
                amount
                for unit, links in enumerate(self.links)
                for other, amount in links.items()
                if home[unit] is not home[other]
            )
            / 2
        )

    # ------------------------------------------------------------------------------------------------------- division

    def divide(self, part: Part) -> list[Part]:
        """Divide until every part is allowed."""
        waiting, done = [part], []
        while waiting:
            part = waiting.pop()
            if self.allowed(part):
                done.append(part)
            else:
                waiting += self.halve(part)
        return done

    def halve(self, part: Part) -> tuple[Part, Part]:
        """Two parts, the first of which is fed by nothing in the second.

        Fewest conflicts left in them come first, then least traffic cut for the load that is parted.
        """
        cuts = [self._cut(part, order) for order in (sorted(part), self._deep(part))]
        one = frozenset(min(cuts, key=_Cut.badness).one)
        return one, part - one

    def _deep(self, part: Part) -> list[int]:
        """The units of `part`, each after those that feed it, branch by branch."""
        waiting = {unit: len(self.above[unit] & part) for unit in part}
        ready = sorted((unit for unit, count in waiting.items() if not count), reverse=True)
        order = []
        while ready:
            unit = ready.pop()
            order.append(unit)
            for reader in sorted(self.below[unit] & part, reverse=True):
                waiting[reader] -= 1
                if not waiting[reader]:
                    ready.append(reader)
        return order

    def _cut(self, part: Part, order: Sequence[int]) -> _Cut:
        """The best place to cut `order`, which is a topological one, with single units moved while that is better."""
        cut = _Cut(self, part)
        prefixes = []
        for unit in order[:-1]:
            cut.move(unit)
            prefixes.append(cut.badness())
        best = prefixes.index(min(prefixes))
        for unit in order[best + 1 : -1]:
            cut.move(unit)  # back
        moved = True
        while moved:
            moved = False
            for unit in order:
                if cut.may_move(unit):
                    before = cut.badness()
                    cut.move(unit)
                    if cut.badness() < before:
                        moved = True
                    else:
                        cut.move(unit)
        return cut

    # ---------------------------------------------------------------------------------------------------- improvement

    def improve(self, parts: list[Part]) -> list[Part]:
        """Unite parts and move units while that saves traffic (or parts, at no cost)."""
        while True:
            better = self._united(parts) or self._moved(parts)
            if better is None:
                return parts
            parts = better

    def _united(self, parts: list[Part]) -> list[Part] | None:
        best, gain = None, -1.0
        below = self._parts_below(parts)
        reach = _reach(below)
        for one, two in combinations(range(len(parts)), 2):
            if _around(below, reach, one, two):
                continue
            saved = math.fsum(self.between(unit, parts[two]) for unit in parts[one])
            if saved > gain and self.allowed(parts[one] | parts[two]):
                best, gain = (one, two), saved
        if best is None:
            return None
        rest = [part for number, part in enumerate(parts) if number not in best]
        return [*rest, parts[best[0]] | parts[best[1]]]

    def _moved(self, parts: list[Part]) -> list[Part] | None:
        home = {unit: part for part in parts for unit in part}
        for part in parts:
            for unit in sorted(part):
                stay = self.between(unit, part)
                for other in {id(home[near]): home[near] for near in sorted(self.links[unit])}.values():
                    if other is part or self.between(unit, other) <= stay * (1 + 1e-9) + 1e-12:
                        continue
                    if self.allowed(other | {unit}):
                        rest = [one for one in parts if one not in (part, other)]
                        tried = [*rest, other | {unit}, *([part - {unit}] if len(part) > 1 else [])]
                        if len(self.sorted(tried)) == len(tried):
                            return tried
        return None

    # -------------------------------------------------------------------------------------------------------- circles

    def _parts_below(self, parts: Sequence[Part]) -> list[set[int]]:
        """The parts that each part feeds."""
        home = {unit: number for number, part in enumerate(parts) for unit in part}
        return [
            {home[reader] for unit in part for reader in self.below[unit]} - {number}
            for number, part in enumerate(parts)
        ]

    def sorted(self, parts: Sequence[Part]) -> list[Part]:
        """`parts`, each after those that feed it, by their first unit where free; without those in a circle."""
        return [parts[number] for number in _topological(self._parts_below(parts), [min(part) for part in parts])]


def _enemies(graph: Graph, units: Sequence[Unit]) -> list[set[int]]:
    """The units that each unit must not meet."""
    enemies: list[set[int]] = [set() for _ in units]
    members: dict[str, set[int]] = {}
    for number, unit in enumerate(units):
        for group in {group for i in unit for group in graph.nodes[i].annotations.exlocate}:
            members.setdefault(group, set()).add(number)
        if graph.nodes[unit[0]].annotations.isolate is not None:
            enemies[number] |= set(range(len(units)))
            for other in enemies:
                other.add(number)
    for foes in members.values():
        for number in foes:
            enemies[number] |= foes
    return [others - {number} for number, others in enumerate(enemies)]


def _topological(below: Sequence[set[int]], rank: Sequence[int]) -> Iterator[int]:
    waiting = [0] * len(below)
    for readers in below:
        for reader in readers:
            waiting[reader] += 1
    ready = [number for number, count in enumerate(waiting) if not count]
    while ready:
        number = min(ready, key=rank.__getitem__)
        ready.remove(number)
        yield number
        for reader in below[number]:
            waiting[reader] -= 1
            if not waiting[reader]:
                ready.append(reader)


def _reach(below: Sequence[set[int]]) -> list[int]:
    """What each part feeds, directly or through others: bit by bit."""
    reach = [0] * len(below)
    for number in reversed(list(_topological(below, range(len(below))))):
        for reader in below[number]:
            reach[number] |= reach[reader] | 1 << reader
    return reach


def _around(below: Sequence[set[int]], reach: Sequence[int], one: int, two: int) -> bool:
    """One part feeds the other through a third: united, they would feed that one and be fed by it."""
    return any(
        reach[between] >> end & 1
        for start, end in ((one, two), (two, one))
        for between in below[start]
        if between != end
    )


class _Cut:
    """A part divided in two, by moving single units to `one` and back; what a move changes is kept up to date."""

    def __init__(self, problem: _Problem, part: Part) -> None:
        self.problem, self.part = problem, part
        self.one: set[int] = set()
        self.whole = problem.load_of(part)
        self.load = self.traffic = 0.0
        self.clashes = problem.conflicts(part) // 2

    def may_move(self, unit: int) -> bool:
        """Nothing on the other side would feed this side then."""
        if unit in self.one:
            return self.one.isdisjoint(self.problem.below[unit])
        return (self.problem.above[unit] & self.part) <= self.one

    def move(self, unit: int) -> None:
        """Move `unit` to the other side."""
        leaving = unit in self.one
        for other, amount in self.problem.links[unit].items():
            if other in self.part:
                self.traffic += amount if (other in self.one) == leaving else -amount
        for other in self.problem.enemies[unit] & self.part:
            self.clashes -= 1 if (other in self.one) == leaving else -1
        self.load += -self.problem.load[unit] if leaving else self.problem.load[unit]
        self.one ^= {unit}

    def badness(self) -> tuple[int, float]:
        if not 0 < len(self.one) < len(self.part):
            return len(self.part) ** 2, math.inf
        parted = min(self.load, self.whole - self.load)
        return self.clashes, (max(self.traffic, 0.0) + 1e-12) / (max(parted, 0.0) + 1e-12)
