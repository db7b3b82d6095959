"""Cuts a graph into stages: what a tuple passes without changing its channel is one stage in one Python worker.

Stages stand in a row of *levels*. Level 0 runs where sources are read. Each further level is one shuffle and one
stateful Spark operator: tuples are sent to the channel their key belongs to, and everything that keeps state for that
key runs there. An operator without state runs wherever its tuples are, so it costs no level; it may be present at
several. An operator with state has exactly one level:

* it joins the level of what feeds it when the tuples are where it needs them already: partitioned by the same
  attributes and not changed since (filters, splits, dedup and the like pass tuples on as they are, an aggregate keeps
  the key's attributes by name, and inside a `flow.parallel(by=...)` region the user says so), or all in the single
  channel;
* else it opens the next level.

Un-keyed state needs the whole stream in order: such a level has a single channel.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass, field

from penstock.compiler.regions import serves
from penstock.compiler.safety import answers_marks
from penstock.graph import operations as ops
from penstock.graph.graph import Graph, Node
from penstock.graph.keys import Key

# Operators that pass tuples on as they are, so that whatever key they had, they still have.
_FORWARDING = (ops.Filter, ops.Split, ops.Union, ops.Dedup, ops.Sort, ops.DynamicFilter, ops.Punctuate)
# Operators that send at most one tuple for each that arrives; the others need room between two origins.
_AT_MOST_ONE = (
    *(ops.Map, ops.Filter, ops.Scan, ops.Split, ops.Union, ops.Enrich, ops.Dedup, ops.DynamicFilter),
    *(ops.Barrier, ops.Write),
)


@dataclass(frozen=True, slots=True)
class Place:
    """How the tuples of a stream lie: at which levels, and there by which key (None: any way).

    `single` means that all of them are in the one channel of an un-keyed level.
    """

    levels: frozenset[int]
    key: Key | None = None
    single: bool = False
    region: int | None = None  # the parallel(by=...) region whose key they are placed by


@dataclass(frozen=True)
class Stages:
    """The stages of a graph. `level` is that of operators with state; `present` where each operator runs."""

    level: dict[int, int]
    present: dict[int, frozenset[int]]
    single: frozenset[int]  # levels with a single channel
    prolific: frozenset[int] = field(default_factory=frozenset)  # levels that may send many tuples for one

    @property
    def levels(self) -> int:
        """Number of levels, without level 0."""
        return max(self.level.values(), default=0)

    def is_local(self, level: int, target: Node) -> bool:
        """True if a tuple at `level` meets operator `target` right there."""
        if target.is_sink:
            return False
        own = self.level.get(target.index)
        return own is None or own == level


def find_stages(graph: Graph) -> Stages:
    """Place every operator of `graph`."""
    places: dict[int, Place] = {}
    level: dict[int, int] = {}
    singles: dict[int, bool] = {}
    for index in graph.topological:
        node = graph.nodes[index]
        if node.is_source:
            places[index] = Place(frozenset({0}))
            continue
        above = [places[stream.node] for entry in node.inputs for stream in entry.streams]
        if not needs_state(node) and not _needs_order(node, above):
            places[index] = _stay(node, above)
            continue
        own = _join_level(node, above, singles)
        if own is None:
            own = _open_level(node, above, singles)
        level[index] = own
        places[index] = _place_of(node, own)
    present = {index: place.levels for index, place in places.items()}
    prolific = {at for index, place in places.items() for at in place.levels if _is_prolific(graph.nodes[index])}
    single = frozenset(at for at, is_single in singles.items() if is_single)
    return Stages(level, present, single, frozenset(prolific))


def needs_state(node: Node) -> bool:
    """True for operators that must be in one place: for their state, or for the punctuation they answer."""
    if node.is_sink or node.is_source:
        return False
    return node.kind != "stateless" or len(node.inputs) > 1 or answers_marks(node)


def _needs_order(node: Node, above: Iterable[Place]) -> bool:
    """Marks made in one channel would be missing in the others: they are made where the whole stream is."""
    return isinstance(node.operation, ops.Punctuate) and any(place.levels != {0} for place in above)


def _stay(node: Node, above: list[Place]) -> Place:
    levels = frozenset().union(*(place.levels for place in above))
    first = above[0]
    alike = all((place.key, place.single, place.region) == (first.key, first.single, first.region) for place in above)
    if not alike or len(levels) != 1:
        return Place(levels)
    region = node.annotations.parallel.region if node.annotations.parallel is not None else None
    if first.single or isinstance(node.operation, _FORWARDING) or (region is not None and region == first.region):
        return Place(levels, first.key, first.single, first.region if region == first.region else None)
    return Place(levels)


def _keyed(node: Node) -> bool:
    return node.kind == "partitioned"


def _join_level(node: Node, above: list[Place], singles: dict[int, bool]) -> int | None:
    """The level of what feeds `node`, if the tuples already lie there as `node` needs them."""
    levels = frozenset().union(*(place.levels for place in above))
    if len(levels) != 1 or levels == {0}:
        return None
    (at,) = levels
    if singles[at]:
        return at if all(place.single for place in above) and not _keyed(node) else None
    if not _keyed(node):
        return None
    for place, entry in zip(_per_input(node, above), node.inputs, strict=True):
        if place is None or place.key is None or entry.key is None or not serves(place.key, entry.key):
            return None
    return at


def _per_input(node: Node, above: list[Place]) -> list[Place | None]:
    """The place of each input; None where streams that lie differently meet on it."""
    result: list[Place | None] = []
    rest = iter(above)
    for entry in node.inputs:
        places = [next(rest) for _ in entry.streams]
        result.append(places[0] if all(place.key == places[0].key for place in places) else None)
    return result


def _open_level(node: Node, above: list[Place], singles: dict[int, bool]) -> int:
    """The first level after everything that feeds `node` whose channels suit it."""
    at = 1 + max(max(place.levels) for place in above)
    while singles.setdefault(at, not _keyed(node)) != (not _keyed(node)):
        at += 1
    return at


def _place_of(node: Node, at: int) -> Place:
    levels = frozenset({at})
    if not _keyed(node):
        return Place(levels, single=True)
    region = node.annotations.parallel
    if region is not None and region.by is not None and node.key is not None and serves(region.by, node.key):
        return Place(levels, node.key, region=region.region)
    if isinstance(node.operation, _FORWARDING) or (
        isinstance(node.operation, ops.Aggregate) and node.key is not None and node.key.names
    ):
        return Place(levels, node.key)
    return Place(levels)


def _is_prolific(node: Node) -> bool:
    return not isinstance(node.operation, _AT_MOST_ONE)
