"""Cuts a graph into segments: operators that one thread runs inline from one entry point, as one generated function.

A segment is a tree. Its root is an operator whose input comes from outside; everything that hangs on the root's outputs
and can be inlined belongs to it. A new segment starts at

* a source,
* an input port where several streams meet, and an operator with several inputs (every port is an entry of its own),
* an operator that takes whole chunks (map_batch, file sinks) or has threads of its own,
* what follows an operator that may also speak between tuples (`ends_segment`: windows, joins, …),
* a threaded port,
* a place where the function would grow too long or too deep for Python's compiler.

Between segments chunks are handed over, so a cut costs one list append per tuple.
"""

from __future__ import annotations

from collections.abc import Callable, Collection
from dataclasses import dataclass

from penstock.graph.graph import Graph, Node, Output, Target
from penstock.graph.operations import Feedback, Read

# Long enough that cuts cost nothing, short enough that compiling 10,000 operators stays linear and tracebacks readable.
MOST_OPERATORS = 64
# CPython allows 20 nested loops and try blocks and 100 levels of indentation; an operator may open two of each.
MOST_NESTED = 8


@dataclass(frozen=True, slots=True)
class SegmentPlan:
    """One segment: `nodes` in the order of the tree (root first), `outlets` the output ports read by other segments."""

    index: int
    root: int
    nodes: tuple[int, ...]
    outlets: tuple[Output, ...]


@dataclass(frozen=True, slots=True)
class Traits:
    """What the cut needs to know of an operator's logic."""

    ends_segment: bool
    starts_segment: bool
    nests: bool


@dataclass(frozen=True)
class Segments:
    """The segments of a graph, in topological order, and the segment each node is in."""

    plans: tuple[SegmentPlan, ...]
    of_node: tuple[int, ...]


def cut(graph: Graph, traits: Callable[[Node], Traits], threaded: Collection[Target] = ()) -> Segments:
    """Cut `graph` into segments; `threaded` are input ports that must be entries."""
    known = [traits(node) for node in graph.nodes]
    root_of: dict[int, int] = {}
    members: dict[int, list[int]] = {}
    depth: dict[int, int] = {}
    for index in graph.topological:
        node = graph.nodes[index]
        above = _inline_parent(graph, node, known, threaded)
        if above is not None:
            root = root_of[above]
            deeper = depth[above] + known[above].nests + (len(graph.readers(*node.inputs[0].streams[0])) > 1)
            if len(members[root]) < MOST_OPERATORS and deeper <= MOST_NESTED:
                root_of[index], depth[index] = root, deeper
                members[root].append(index)
                continue
        root_of[index], depth[index] = index, 0
        members[index] = [index]
    number = {root: position for position, root in enumerate(members)}
    plans = tuple(
        SegmentPlan(number[root], root, tuple(nodes), _outlets(graph, nodes, root_of))
        for root, nodes in members.items()
    )
    return Segments(plans, tuple(number[root_of[index]] for index in range(len(graph))))


def _inline_parent(graph: Graph, node: Node, known: list[Traits], threaded: Collection[Target]) -> int | None:
    """The operator whose segment `node` may join, or None where it must start one."""
    if isinstance(node.operation, Read | Feedback) or len(node.inputs) != 1 or len(node.inputs[0].streams) != 1:
        return None
    if known[node.index].starts_segment or Target(node.index, 0) in threaded:
        return None
    stream = node.inputs[0].streams[0]
    above = graph.nodes[stream.node]
    if isinstance(above.operation, Read):
        return above.index if stream.port == 0 else None
    if known[above.index].ends_segment or len(above.inputs) > 1:
        return None
    return above.index


def _outlets(graph: Graph, nodes: list[int], root_of: dict[int, int]) -> tuple[Output, ...]:
    found = []
    for index in nodes:
        for port in range(graph.nodes[index].operation.outputs):
            if any(root_of[reader.node] != root_of[index] for reader in graph.readers(index, port)):
                found.append(Output(index, port))  # noqa: PERF401  # a comprehension of three lines reads worse
    return tuple(found)
