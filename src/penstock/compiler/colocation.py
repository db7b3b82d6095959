"""What must share a PE, by what the user said and by the rule that PEs never feed each other in a circle.

Operators of a colocation group are one *unit*, and so are those of one `isolate()` block, which share a PE with nothing
else. Where two units feed each other, directly or through others, PEs of their own would do so too: everything in the
circle becomes one unit. Such a circle always passes a unit of several operators, as streams themselves have none: those
that a program closes with `feedback` come back into control ports, and are left out here.

So units form a graph without circles, and there is a way to place them as long as no unit holds two operators that must
not meet. If one does, the error names what the user said that led there.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from heapq import heappop, heappush
from itertools import combinations, pairwise

from penstock.errors import FlowError
from penstock.graph.graph import Graph, Node

Unit = tuple[int, ...]


def find_units(graph: Graph) -> list[Unit]:
    """The units of `graph`, each fed by earlier ones only. Raises `FlowError` where the constraints contradict.

    >>> import penstock as pn
    >>> flow = pn.Flow()
    >>> with flow.colocate("ends"):
    ...     stream = flow.source([1], name="in")
    >>> stream = stream.map(abs, name="between")
    >>> with flow.colocate("ends"):
    ...     _ = stream.map(abs, name="end").collect(name="out")
    >>> find_units(flow.graph())  # all of them: what is between the ends is fed by their PE and feeds it
    [(0, 1, 2, 3)]
    """
    said = _said(graph)
    for unit in said:
        _check(graph, unit)
    links = unit_links(graph, said)
    rank = {index: place for place, index in enumerate(graph.topological)}
    merged: dict[int, list[int]] = {}  # units in a circle, by the first
    gone: set[int] = set()
    for number, unit in enumerate(said):
        if len(unit) > 1 and number not in gone:
            circle = _reached(links, number) & _reached(_turned(links), number)
            if circle:
                _check_circle(graph, said, links, sorted(circle | {number}))
                merged[number] = sorted(circle | {number})
                gone |= circle | {number}
    units = [unit for number, unit in enumerate(said) if number not in gone]
    units += [tuple(index for number in numbers for index in said[number]) for numbers in merged.values()]
    return _in_order(graph, [tuple(sorted(unit, key=rank.__getitem__)) for unit in units], rank)


def drawn_in(graph: Graph) -> set[int]:
    """Operators that are in a unit with others not by what the user said of them, but by what they stand between."""
    said = {index for unit in _said(graph) if len(unit) > 1 for index in unit}
    return {index for unit in find_units(graph) if len(unit) > 1 for index in unit} - said


def unit_links(graph: Graph, units: Sequence[Unit]) -> list[set[int]]:
    """The other units that each unit feeds, but for feedback."""
    home = {index: number for number, unit in enumerate(units) for index in unit}
    links: list[set[int]] = [set() for _ in units]
    for node in graph:
        for feeder in graph.upstream(node):
            links[home[feeder]].add(home[node.index])
    return [below - {number} for number, below in enumerate(links)]


def _said(graph: Graph) -> list[Unit]:
    """Operators that the user wants together."""
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


def _turned(links: Sequence[set[int]]) -> list[set[int]]:
    turned: list[set[int]] = [set() for _ in links]
    for number, below in enumerate(links):
        for other in below:
            turned[other].add(number)
    return turned


def _reached(links: Sequence[set[int]], start: int) -> set[int]:
    """What can be reached from `start`, without it."""
    found, waiting = {start}, [start]
    while waiting:
        for other in links[waiting.pop()] - found:
            found.add(other)
            waiting.append(other)
    return found - {start}


def _in_order(graph: Graph, units: Sequence[Unit], rank: Mapping[int, int]) -> list[Unit]:
    """`units`, each after those that feed it, by their first operator where free."""
    links = unit_links(graph, units)
    waiting = [len(above) for above in _turned(links)]
    ready: list[tuple[int, int]] = []
    for number, unit in enumerate(units):
        if not waiting[number]:
            heappush(ready, (rank[unit[0]], number))
    order = []
    while ready:
        number = heappop(ready)[1]
        order.append(units[number])
        for other in links[number]:
            waiting[other] -= 1
            if not waiting[other]:
                heappush(ready, (rank[units[other][0]], other))
    return order


# ---------------------------------------------------------------------------------------------------- contradictions


def _check(graph: Graph, unit: Unit) -> None:
    """Raise an error if other constraints tear apart what the user wants together."""
    nodes = [graph.nodes[index] for index in unit]
    for one, two in combinations(nodes, 2):
        parted = _parted(one, two)
        if parted is not None:
            why = (
                "keeps one of them in a PE without the other"
                if parted == "isolate()"
                else "keeps them in different PEs"
            )
            raise FlowError(
                f"{' and '.join(_held(nodes))} and {parted} contradict: the first keeps {_at(one)} and {_at(two)} in "
                f"one PE, the second {why}"
            )


def _parted(one: Node, two: Node) -> str | None:
    """What the user said that keeps two operators apart."""
    shared = set(one.annotations.exlocate) & set(two.annotations.exlocate)
    if shared:
        return f"exlocate({min(shared)!r})"
    return "isolate()" if one.annotations.isolate != two.annotations.isolate else None


def _held(nodes: Iterable[Node]) -> list[str]:
    """What the user said that keeps operators of one unit together."""
    groups = sorted({group for node in nodes for group in node.annotations.colocate})
    return [f"colocate({group!r})" for group in groups] or ["isolate()"]


def _check_circle(graph: Graph, units: Sequence[Unit], links: Sequence[set[int]], circle: Sequence[int]) -> None:
    """Raise an error if operators of units that feed each other in a circle must not meet."""
    for first, second in combinations(circle, 2):
        for one in (graph.nodes[index] for index in units[first]):
            for two in (graph.nodes[index] for index in units[second]):
                parted = _parted(one, two)
                if parted is not None:
                    way = [*_way(links, first, second), *_way(links, second, first)[1:]]
                    raise _contradiction(graph, units, way, parted, one, two)


def _contradiction(
    graph: Graph, units: Sequence[Unit], way: Sequence[int], parted: str, one: Node, two: Node
) -> FlowError:
    held = [word for number in way for word in _held(graph.nodes[i] for i in units[number]) if len(units[number]) > 1]
    words = list(dict.fromkeys([*held, parted]))
    verdict = f"{words[0]} contradicts itself" if len(words) == 1 else f"{' and '.join(words)} contradict"
    feeds = "; ".join(_feed(graph, units[above], units[below]) for above, below in pairwise(way))
    return FlowError(
        f"{verdict}: {parted} keeps {_at(one)} and {_at(two)} in different PEs, but "
        f"{' and '.join(dict.fromkeys(held))} would make these PEs feed each other in a circle ({feeds}), where each "
        "can wait for the other"
    )


def _way(links: Sequence[set[int]], start: int, end: int) -> list[int]:
    """The shortest way from one unit to another."""
    came = {start: start}
    waiting = [start]
    for number in waiting:
        for other in sorted(links[number] - came.keys()):
            came[other] = number
            waiting.append(other)
    way = [end]
    while way[-1] != start:
        way.append(came[way[-1]])
    return way[::-1]


def _feed(graph: Graph, above: Unit, below: Unit) -> str:
    for index in below:
        for feeder in graph.upstream(graph.nodes[index]):
            if feeder in above:
                return f"'{graph.nodes[feeder].name}' feeds '{graph.nodes[index].name}'"
    raise AssertionError("these units are not linked")


def _at(node: Node) -> str:
    return f"operator '{node.name}' ({node.location})"
