"""Finds the regions of a graph: groups of operators that can be replicated as a whole.

Operators are visited from the sources down. One joins the region of what feeds it as long as it may be replicated and
one split at the entry serves them all (`safety`); else it starts a region of its own. Regions so are as long as they
can be, from left to right, which is best where streams get thinner on their way (language runtime §6.3). A region may
branch, and streams may meet in it again; what it needs is a single entry.

A region the user asked for, `with flow.parallel(width, by):`, is taken as it is, or refused with the reason. There,
`by` is the user's word that the attributes are the same all through the region. With a width of 1 nothing is to be
replicated, so nothing is refused: such operators run in one copy.
"""

from __future__ import annotations

import math
from collections.abc import Collection, Iterable, Mapping
from dataclasses import dataclass, replace

from penstock.compiler.safety import ALL, Kept, kept_by, why_not
from penstock.compiler.weights import Weights
from penstock.errors import FlowError
from penstock.graph.annotations import Parallel
from penstock.graph.graph import Graph, Node
from penstock.graph.keys import Key
from penstock.graph.operations import Feedback
from penstock.optimizer.graphs import Link, OpGraph
from penstock.optimizer.model import Op

ONE_COPY = "parallel(width=1) asks for one copy"


@dataclass(frozen=True, slots=True)
class ParallelRegion:
    """Operators that are replicated together: `nodes` in topological order, split by `key` (None: dealt in turn).

    `width` is what the user asked for, None where the optimizer may choose. An operator with keyed inputs of different
    attributes is split by those, each input by its own: `key` is None and `own_keys` true.
    """

    nodes: tuple[int, ...]
    key: Key | None = None
    width: int | None = None
    own_keys: bool = False

    @property
    def entry(self) -> int:
        """The operator before which the stream is split."""
        return self.nodes[0]


@dataclass(frozen=True)
class Regions:
    """The regions of a graph, in topological order of their entries.

    `of_node` maps an operator to the index of its region; `alone` says why an operator is in none.
    """

    regions: tuple[ParallelRegion, ...]
    of_node: Mapping[int, int]
    alone: Mapping[int, str]


def find_regions(graph: Graph) -> Regions:
    """The longest regions of `graph`. Raises `FlowError` for a region of the user that would change the output."""
    found = Finder(graph).run()
    _check_wishes(graph, found.regions, found.of_node)
    return found


def part_of(graph: Graph, nodes: Iterable[int]) -> ParallelRegion:
    """`nodes`, which are a region of `graph` or a part of one, as a region; raises `FlowError` where they are none.

    >>> import penstock as pn
    >>> flow = pn.Flow()
    >>> _ = flow.source([{}]).filter(bool).key_by("a").scan(lambda n, t: (n, t), init=0).map(str).collect()
    >>> graph = flow.graph()
    >>> part_of(graph, [1, 2]).key, part_of(graph, [3]).key
    (Key(names=('a',), function=None), None)
    """
    wanted = set(nodes)
    found = Finder(graph).run(wanted)
    if len(found.regions) != 1 or found.alone:
        names = ", ".join(f"'{graph.nodes[index].name}'" for index in sorted(wanted))
        reason = "".join(f": {graph.nodes[index].name}: {reason}" for index, reason in found.alone.items())
        raise FlowError(f"{names} cannot be replicated together{reason}")
    return found.regions[0]


def wish_of(node: Node) -> Parallel | None:
    """The copies of `node` that the user asked for; None also where it is the one there is anyway."""
    wish = node.annotations.parallel
    return wish if wish is not None and wish.width > 1 else None


class Finder:
    """Visits operators from the sources down and takes each into a region, or says why it is in none."""

    def __init__(self, graph: Graph) -> None:
        self.graph = graph
        self.regions: list[ParallelRegion] = []
        self.of_node: dict[int, int] = {}
        self.alone: dict[int, str] = {}
        self._wishes: list[Parallel | None] = []  # by region: the one of the user that it is, or is a part of
        self._by: list[Key | None] = []  # by region: the key that the user vouches for
        self._kept: dict[int, Kept] = {}  # what is left of the entry's attributes after each operator

    def run(self, nodes: Collection[int] | None = None) -> Regions:
        """The regions of these operators, of the whole graph by default."""
        for index in self.graph.topological:
            if nodes is None or index in nodes:
                self._visit(self.graph.nodes[index])
        return Regions(tuple(self.regions), self.of_node, self.alone)

    def _visit(self, node: Node) -> None:
        """Find a region for `node`, after all that feed it."""
        wish = wish_of(node)
        reason = why_not(node)
        if reason is not None and wish is not None and not (node.is_source or node.is_sink):
            raise FlowError(_refusal(node, wish, reason))
        if reason is None and wish is None and node.annotations.parallel is not None:
            reason = ONE_COPY
        if reason is None:
            reason = self._bar(node, wish)
        if reason is not None:
            self.alone[node.index] = reason
        else:
            self._place(node, wish)

    def _bar(self, node: Node, wish: Parallel | None) -> str | None:
        """Why `node`, which may be replicated by itself, still is not; None if it is."""
        return None

    def _place(self, node: Node, wish: Parallel | None) -> None:
        if wish is not None:
            self._join_wish(node, wish)
        elif not self._join(node, None):
            self._start(node, None)

    def _start(self, node: Node, wish: Parallel | None) -> None:
        keys = {entry.key for entry in node.inputs} if node.kind == "partitioned" else set()
        key = next(iter(keys)) if len(keys) == 1 else None
        width = None if wish is None else wish.width
        by = None if wish is None or not self._enters(node, wish) else wish.by
        key = key if by is None else by
        self.of_node[node.index] = len(self.regions)
        self.regions.append(ParallelRegion((node.index,), key, width, own_keys=len(keys) > 1))
        self._wishes.append(wish)
        self._by.append(by)
        self._kept[node.index] = kept_by(node)

    def _enters(self, node: Node, wish: Parallel) -> bool:
        """Whether tuples reach `node` from outside the user's region, so that they have what it is to be split by.

        Inside it they may have lost that: a part of the region that starts there is split as its operators need it.
        """
        feeders = (self.graph.nodes[feeder] for feeder in self.graph.upstream(node))
        return any(feeder.is_source or wish_of(feeder) != wish for feeder in feeders)

    def _add(self, node: Node, number: int, key: Key | None, above: Kept) -> None:
        region = self.regions[number]
        self.regions[number] = replace(region, nodes=(*region.nodes, node.index), key=key)
        self.of_node[node.index] = number
        self._kept[node.index] = above & kept_by(node)

    def _above(self, node: Node) -> tuple[set[int | None], Kept]:
        """The regions that feed `node`, and what is left of the attributes of their entries."""
        feeders = set(self.graph.upstream(node))
        kept = ALL
        for feeder in feeders:
            kept &= self._kept.get(feeder, ALL)
        return {self.of_node.get(feeder) for feeder in feeders}, kept

    def _join(self, node: Node, wish: Parallel | None) -> bool:
        """Take `node` into the region of what feeds it, if that is one region and its split can serve `node` too."""
        numbers, kept = self._above(node)
        number = numbers.pop() if len(numbers) == 1 else None
        if number is None or self._wishes[number] != wish:
            return False
        region = self.regions[number]
        key = region.key
        if node.kind == "partitioned" and self._by[number] is None:
            wanted = {entry.key for entry in node.inputs}
            joined = _joined_key(key, wanted.pop(), kept) if len(wanted) == 1 and not region.own_keys else None
            if joined is None:
                return False
            key = joined
        if not self._suits(node, number, key):
            return False
        self._add(node, number, key, kept)
        return True

    def _suits(self, node: Node, number: int, key: Key | None) -> bool:
        """Whether `node` may join region `number`, which is split by `key` then."""
        return True

    def _join_wish(self, node: Node, wish: Parallel) -> None:
        number = self._wishes.index(wish) if wish in self._wishes else None
        if node.kind == "partitioned" and wish.by is not None:
            for entry in node.inputs:
                if entry.key is not None and not serves(wish.by, entry.key):
                    raise FlowError(
                        _refusal(node, wish, f"tuples with the same {entry.key} may differ in {wish.by} and be parted")
                    )
        if number is None:
            self._start(node, wish)
            return
        region = self.regions[number]
        numbers, kept = self._above(node)
        if numbers != {number}:
            kept = ALL  # another entry of the region: its tuples are split here
        key = region.key
        if node.kind == "partitioned" and self._by[number] is None:
            wanted = {entry.key for entry in node.inputs}
            joined = _joined_key(key, wanted.pop(), kept) if len(wanted) == 1 and not region.own_keys else None
            if joined is None:
                raise FlowError(
                    _refusal(
                        node,
                        wish,
                        f"its key {node.key} cannot be read where the region splits the stream"
                        + (f" by {key}" if key is not None else "")
                        + "; if it can, say so with by=",
                    )
                )
            key = joined
        self._add(node, number, key, kept)


def as_op(node: Node, regions: Regions, cost: float, selectivity: float, bound: float = math.inf) -> Op:
    """`node` for the optimizer.

    The optimizer compares keys but knows nothing of attributes that get lost on the way. So all operators of a region
    share one made-up key, stateless ones too: parts of a region may be replicated, but nothing across its ends.
    """
    number = regions.of_node.get(node.index)
    if number is None:
        return Op(cost, selectivity, "stateful", bound=bound)
    return Op(cost, selectivity, "partitioned", frozenset({number}), bound)


def as_op_graph(graph: Graph, regions: Regions, weights: Weights, bounds: Mapping[str, float] | None = None) -> OpGraph:
    """`graph` for the optimizer: operators by index, with the costs and rates of `weights`.

    `bounds` are by operator name: more replicas than that do not help. Feedback is left out, which carries little.
    """
    ops = []
    for node in graph:
        arrivals = weights.arrivals[node.index]
        cost = weights.load[node.index] / arrivals if arrivals else 0.0
        ops.append(as_op(node, regions, cost, 1.0, (bounds or {}).get(node.name, math.inf)))
    links = tuple(
        Link(source, target, amount / weights.arrivals[source] if weights.arrivals[source] else 0.0)
        for (source, target), amount in weights.tuples.items()
        if not {type(graph.nodes[source].operation), type(graph.nodes[target].operation)} & {Feedback}
    )
    rates = {node.index: weights.arrivals[node.index] for node in graph if node.is_source}
    return OpGraph(tuple(ops), links, {} if set(rates.values()) == {1.0} else rates)


def serves(split: Key, wanted: Key) -> bool:
    """Tuples split by `split` are all together for an operator keyed by `wanted`."""
    return split == wanted or (bool(split.names) and set(split.names) <= set(wanted.names))


def _joined_key(key: Key | None, wanted: Key | None, kept: Kept) -> Key | None:
    """The key to split by for operators that share `key` so far and one that needs `wanted`; None if there is none."""
    if wanted is None:
        return None
    if wanted.function is not None:
        return wanted if kept.everything and key in (None, wanted) else None
    if key is not None and key.function is not None:
        return None
    names = tuple(name for name in wanted.names if kept.has(name) and (key is None or name in key.names))
    return Key(names=names) if names else None


def _refusal(node: Node, wish: Parallel, reason: str) -> str:
    by = f", by={wish.by}" if wish.by is not None else ""
    return (
        f"operator '{node.name}' ({node.location}) stands inside parallel(width={wish.width}{by}) but cannot be "
        f"replicated: {reason}"
    )


def _check_wishes(graph: Graph, regions: Iterable[ParallelRegion], of_node: Mapping[int, int]) -> None:
    """A region of the user must not be left and entered again: its copies would wait for each other in a circle."""
    place = {index: position for position, index in enumerate(graph.topological)}
    for number, region in enumerate(regions):
        if region.width is None:
            continue
        outside: set[int] = set()  # what comes after the region
        places = [place[index] for index in region.nodes]
        for index in graph.topological[min(places) : max(places) + 1]:  # nothing before or behind leads out and back
            feeders = set(graph.upstream(graph.nodes[index]))
            inside = of_node.get(index) == number
            after = any(feeder in outside or (of_node.get(feeder) == number and not inside) for feeder in feeders)
            if after and inside:
                node = graph.nodes[index]
                wish = node.annotations.parallel
                assert wish is not None
                raise FlowError(_refusal(node, wish, "the stream leaves the region and comes back to it here"))
            if after:
                outside.add(index)
