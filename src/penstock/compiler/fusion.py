"""Divides a graph into PEs: as little traffic between them as possible, and no PE loaded beyond a limit.

Top down (language runtime §6.1): everything starts in one PE. A PE with too much load, or with operators that must not
be together, is divided where the least traffic is cut for the load that is parted; then its parts are. At the end
single operators move to other PEs and whole PEs are united, as long as that saves traffic.

What must stay together is one *unit*: operators of a colocation group, and those of one `isolate()` block, which share
a PE with nothing else. A unit that is over the limit by itself gets a PE of its own; nothing could be done about it.
"""

from __future__ import annotations

import math
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from itertools import combinations

from penstock.compiler.weights import Weights
from penstock.errors import FlowError
from penstock.graph.graph import Graph, Node

Part = frozenset[int]  # units


@dataclass(frozen=True)
class Fusion:
    """The PEs of a graph: operators of each in topological order, and what crosses from one to another."""

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
    units = _units(graph)
    _check(graph, units)
    problem = _Problem(graph, weights, units, limit)
    parts = problem.improve(problem.divide(problem.start()))
    place = {index: at for at, index in enumerate(graph.topological)}
    pes = [tuple(sorted((i for unit in part for i in units[unit]), key=place.__getitem__)) for part in parts]
    pes.sort(key=lambda pe: place[pe[0]])
    loads = tuple(math.fsum(weights.load[i] for i in pe) for pe in pes)
    return Fusion(tuple(pes), loads, problem.crossing(parts))


# ------------------------------------------------------------------------------------------------------- constraints


def _units(graph: Graph) -> list[tuple[int, ...]]:
    """Operators that must stay together, in topological order of the first."""
    leader = list(range(len(graph)))

    def find(index: int) -> int:
        while leader[index] != index:
            index = leader[index]
        return index

    groups: dict[object, int] = {}
    for node in graph:
        for group in _together(node):
            first = groups.setdefault(group, node.index)
            leader[find(node.index)] = find(first)
    members: dict[int, list[int]] = {}
    for index in graph.topological:
        members.setdefault(find(index), []).append(index)
    return [tuple(unit) for unit in members.values()]


def _together(node: Node) -> list[object]:
    groups: list[object] = [("colocate", group) for group in node.annotations.colocate]
    if node.annotations.isolate is not None:
        groups.append(("isolate", node.annotations.isolate))
    return groups


def _check(graph: Graph, units: Iterable[tuple[int, ...]]) -> None:
    """Raise one error for the first unit that other constraints tear apart."""
    for unit in units:
        nodes = [graph.nodes[index] for index in unit]
        groups = sorted({group for node in nodes for group in node.annotations.colocate})
        held = " and ".join(f"colocate({group!r})" for group in groups) or "isolate()"
        for one, two in combinations(nodes, 2):
            shared = set(one.annotations.exlocate) & set(two.annotations.exlocate)
            if shared:
                raise _conflict(held, f"exlocate({min(shared)!r})", one, two, "keeps them in different PEs")
            if one.annotations.isolate != two.annotations.isolate:
                raise _conflict(held, "isolate()", one, two, "keeps one of them in a PE without the other")


def _conflict(held: str, parted: str, one: Node, two: Node, why: str) -> FlowError:
    return FlowError(
        f"{held} and {parted} contradict: the first keeps operator '{one.name}' ({one.location}) and operator "
        f"'{two.name}' ({two.location}) in one PE, the second {why}"
    )


# ---------------------------------------------------------------------------------------------------------- division


class _Problem:
    """Units with their loads, the traffic between them, and which of them must not meet."""

    def __init__(self, graph: Graph, weights: Weights, units: Sequence[tuple[int, ...]], limit: float) -> None:
        self.limit = limit * (1 + 1e-9)
        self.count = len(units)
        self.load = [math.fsum(weights.load[i] for i in unit) for unit in units]
        unit_of = {index: number for number, unit in enumerate(units) for index in unit}
        self.links: list[dict[int, float]] = [{} for _ in units]
        for (source, target), amount in weights.traffic.items():
            one, two = unit_of[source], unit_of[target]
            if one != two:
                self.links[one][two] = self.links[one].get(two, 0.0) + amount
                self.links[two][one] = self.links[two].get(one, 0.0) + amount
        apart = [{group for i in unit for group in graph.nodes[i].annotations.exlocate} for unit in units]
        self.isolated = [graph.nodes[unit[0]].annotations.isolate is not None for unit in units]
        self.enemies = [
            {other for other in range(self.count) if other != unit and apart[unit] & apart[other]}
            for unit in range(self.count)
        ]

    def start(self) -> list[Part]:
        """Everything in one PE, but for what is isolated."""
        alone = [frozenset({unit}) for unit in range(self.count) if self.isolated[unit]]
        rest = frozenset(unit for unit in range(self.count) if not self.isolated[unit])
        return [*alone, *([rest] if rest else [])]

    def load_of(self, part: Iterable[int]) -> float:
        return math.fsum(self.load[unit] for unit in part)

    def conflicts(self, part: Part) -> int:
        return sum(len(self.enemies[unit] & part) for unit in part)

    def allowed(self, part: Part) -> bool:
        if len(part) == 1:
            return True
        alone = any(self.isolated[unit] for unit in part)
        return not alone and self.load_of(part) <= self.limit and not self.conflicts(part)

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

    def divide(self, parts: Iterable[Part]) -> list[Part]:
        """Divide until every part is allowed."""
        waiting, done = list(parts), []
        while waiting:
            part = waiting.pop()
            if self.allowed(part):
                done.append(part)
            else:
                waiting += self.halve(part)
        return done

    def halve(self, part: Part) -> tuple[Part, Part]:
        """Two parts: fewest conflicts left in them first, then least traffic cut for the load that is parted."""
        order = sorted(part)  # units are numbered in topological order
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
                before = cut.badness()
                cut.move(unit)
                if cut.badness() < before:
                    moved = True
                else:
                    cut.move(unit)
        one = frozenset(cut.one)
        return one, part - one

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
        for one, two in combinations(parts, 2):
            saved = math.fsum(self.between(unit, two) for unit in one)
            if saved > gain and self.allowed(one | two):
                best, gain = (one, two), saved
        if best is None:
            return None
        return [*(part for part in parts if part not in best), best[0] | best[1]]

    def _moved(self, parts: list[Part]) -> list[Part] | None:
        for home in parts:
            for unit in sorted(home):
                stay = self.between(unit, home)
                for other in parts:
                    if other is home or self.between(unit, other) <= stay * (1 + 1e-9) + 1e-12:
                        continue
                    if self.allowed(other | {unit}):
                        rest = [part for part in parts if part not in (home, other)]
                        return [*rest, other | {unit}, *([home - {unit}] if len(home) > 1 else [])]
        return None


class _Cut:
    """A part divided in two, by moving single units to `one` and back; what a move changes is kept up to date."""

    def __init__(self, problem: _Problem, part: Part) -> None:
        self.problem, self.part = problem, part
        self.one: set[int] = set()
        self.whole = problem.load_of(part)
        self.load = self.traffic = 0.0
        self.clashes = problem.conflicts(part) // 2

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
