"""Fission: regions of a graph replicated, as a rewriting of the graph (language runtime §6.3, DESIGN §6).

Before the entry of a region stands a `Deal`, which numbers what it deals to the channels; behind each stream that
leaves the region stands a `Gather`, which puts what the channels answer back into that order. Between them are the
channels, each a copy of the region's operators with state of its own. The result is a graph like any other: the rest of
the system neither knows nor cares that some of its operators are copies.

A region can be replicated so if it is a tree: one entry, operators with one input each, no streams that meet in it.
Where streams meet one region ends and another one starts, whose split takes in all of them.
"""

from __future__ import annotations

from collections.abc import Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import cached_property

from penstock.compiler.regions import Finder, ParallelRegion, Regions, find_regions, wish_of
from penstock.compiler.safety import answers_marks
from penstock.errors import FlowError
from penstock.graph.annotations import Parallel
from penstock.graph.graph import Graph, Input, Node, Output
from penstock.graph.keys import Key
from penstock.graph.operations import Deal, Gather


@dataclass(frozen=True)
class Replicated:
    """A graph with replicated regions: `origin[i]` is the operator of the user's graph that node i does the work of.

    `tracked` are the nodes whose tuples carry their place in the order; `refused` says of operators that were to be
    replicated why they are not.
    """

    graph: Graph
    origin: tuple[int, ...]
    tracked: frozenset[int]
    refused: Mapping[int, str]  # by operator of the user's graph

    @cached_property
    def copies(self) -> dict[int, list[int]]:
        """The nodes that do the work of each operator of the user's graph."""
        found: dict[int, list[int]] = {}
        for node, like in enumerate(self.origin):
            found.setdefault(like, []).append(node)
        return found


def replicate(graph: Graph, widths: Mapping[int, int] | None = None) -> Replicated:
    """Replicate regions: those the user gave a width, and those `widths` gives one, by the index of their entry."""
    wanted: list[tuple[ParallelRegion, int]] = []
    refused: dict[int, str] = {}
    if widths or any(node.annotations.parallel is not None for node in graph):
        found = replicable_regions(graph)
        for region in found.regions:
            width = (widths or {}).get(region.entry, region.width or 1)
            if width > 1:
                wanted.append((region, width))
        asked = {node.index for node in graph if wish_of(node) is not None and not (node.is_source or node.is_sink)}
        asked |= {entry for entry, width in (widths or {}).items() if width > 1}
        refused = {index: reason for index, reason in found.alone.items() if index in asked}
    if not wanted:
        return Replicated(graph, tuple(range(len(graph))), frozenset(), refused)
    return _Rewriter(graph, wanted).run(refused)


def replicate_parts(graph: Graph, parts: Sequence[tuple[ParallelRegion, int]]) -> Replicated:
    """Replicate these regions, or parts of regions, and no others: each in so many channels."""
    wanted = [(region, width) for region, width in parts if width > 1]
    for region, _ in wanted:
        reason = why_single(graph, region)
        if reason is not None:
            raise FlowError(f"the region at '{graph.nodes[region.entry].name}' cannot be replicated: {reason}")
    if not wanted:
        return Replicated(graph, tuple(range(len(graph))), frozenset(), {})
    return _Rewriter(graph, wanted).run({})


def replicable_regions(graph: Graph) -> Regions:
    """The longest regions of `graph` that can be replicated in one process.

    A region the user asked for may be several of these. Raises `FlowError` as `find_regions` does.

    >>> import penstock as pn
    >>> flow = pn.Flow()
    >>> odd, even = flow.source([1]).map(abs).filter(bool, split=True)
    >>> _ = odd.union(even.map(abs)).map(abs).collect()
    >>> [region.nodes for region in find_regions(flow.graph()).regions]
    [(1, 2, 3, 4, 5)]
    >>> [region.nodes for region in replicable_regions(flow.graph()).regions]
    [(1, 2, 3), (4, 5)]
    """
    find_regions(graph)
    return _Trees(graph).run()


def replicable_parts(graph: Graph, nodes: Collection[int]) -> Regions:
    """The regions of some operators only: what feeds those from elsewhere is outside."""
    return _Trees(graph).run(nodes)


class _Trees(Finder):
    """Finds regions that `why_single` has nothing against."""

    def __init__(self, graph: Graph) -> None:
        super().__init__(graph)
        self._listening: set[int] = set()  # regions in which an operator answers punctuation

    def _bar(self, node: Node, wish: Parallel | None) -> str | None:
        if len(node.inputs) != 1:
            return "it has several inputs"
        keyed = node.kind == "partitioned" or (wish is not None and wish.by is not None)
        if _fires_on_punctuation(node) or (keyed and self._answers(node)):
            return "it answers punctuation, for all keys at once"
        return None

    def _place(self, node: Node, wish: Parallel | None) -> None:
        if len(node.inputs[0].streams) > 1 or not self._join(node, wish):
            self._start(node, wish)
        if self._answers(node):
            self._listening.add(self.of_node[node.index])

    def _suits(self, node: Node, number: int, key: Key | None) -> bool:
        return key is None or not (number in self._listening or self._answers(node))

    def _answers(self, node: Node) -> bool:
        return answers_marks(node) and self.graph.is_punctuated


def why_single(graph: Graph, region: ParallelRegion) -> str | None:
    """Why `region` cannot be replicated in one process, as the end of a sentence; None if it can."""
    inside = set(region.nodes)
    for index in region.nodes:
        node = graph.nodes[index]
        if len(node.inputs) != 1:
            return f"'{node.name}' has several inputs"
        streams = node.inputs[0].streams
        if index != region.entry and len(streams) > 1:
            return f"streams meet at '{node.name}'"
        if index != region.entry and streams[0].node not in inside:
            return f"it has a second entry at '{node.name}'"
        if _fires_on_punctuation(node) or (region.key is not None and answers_marks(node) and graph.is_punctuated):
            return f"'{node.name}' answers punctuation, for all keys at once"
    return None


def _fires_on_punctuation(node: Node) -> bool:
    return getattr(getattr(node.operation, "window", None), "spans", None) == "punctuation"


class _Rewriter:
    def __init__(self, graph: Graph, wanted: Sequence[tuple[ParallelRegion, int]]) -> None:
        self._graph = graph
        self._region = {index: (region, width) for region, width in wanted for index in region.nodes}
        self._nodes: list[Node] = []
        self._origin: list[int] = []
        self._tracked: set[int] = set()
        self._now: dict[Output, Output] = {}  # where a stream of the user's graph is found
        self._inside: dict[tuple[Output, int], Output] = {}  # and inside a region, by channel

    def run(self, refused: Mapping[int, str]) -> Replicated:
        for index in self._graph.topological:
            node = self._graph.nodes[index]
            if index not in self._region:
                self._keep(node)
            elif self._region[index][0].entry == index:
                self._replicate(*self._region[index])
        self._close_loops()
        graph = Graph(self._graph.name, tuple(self._nodes))
        return Replicated(graph, tuple(self._origin), frozenset(self._tracked), dict(refused))

    def _add(self, node: Node, like: int) -> int:
        self._nodes.append(replace(node, index=len(self._nodes)))
        self._origin.append(like)
        return len(self._nodes) - 1

    def _moved(self, streams: Iterable[Output]) -> tuple[Output, ...]:
        # What comes back through a feedback loop is not placed yet: it is put right at the end.
        return tuple(self._now.get(stream, Output(~stream.node, stream.port)) for stream in streams)

    def _keep(self, node: Node) -> None:
        inputs = tuple(replace(entry, streams=self._moved(entry.streams)) for entry in node.inputs)
        index = self._add(replace(node, inputs=inputs), node.index)
        for port in range(node.operation.outputs):
            self._now[Output(node.index, port)] = Output(index, port)

    def _close_loops(self) -> None:
        for index, node in enumerate(self._nodes):
            if any(stream.node < 0 for entry in node.inputs for stream in entry.streams):
                inputs = tuple(
                    replace(entry, streams=tuple(self._found(stream) for stream in entry.streams))
                    for entry in node.inputs
                )
                self._nodes[index] = replace(node, inputs=inputs)

    def _found(self, stream: Output) -> Output:
        return self._now[Output(~stream.node, stream.port)] if stream.node < 0 else stream

    def _replicate(self, region: ParallelRegion, width: int) -> None:
        graph = self._graph
        entry = graph.nodes[region.entry]
        deal = self._add(
            replace(
                entry,
                name=f"{entry.name} ⋔",
                operation=Deal(width=width, key=region.key),
                inputs=(Input(self._moved(entry.inputs[0].streams)),),
                kind="stateful",
            ),
            entry.index,
        )
        for channel in range(width):
            for index in region.nodes:
                self._copy(graph.nodes[index], region, channel, deal)
        inside = set(region.nodes)
        for index in region.nodes:
            for port in range(graph.nodes[index].operation.outputs):
                if any(reader.node not in inside for reader in graph.readers(index, port)):
                    self._gather(graph.nodes[index], port, width, region.key is not None)

    def _copy(self, node: Node, region: ParallelRegion, channel: int, deal: int) -> None:
        if node.index == region.entry:
            stream = Output(deal, channel)
        else:
            stream = self._inside[node.inputs[0].streams[0], channel]
        inputs = (replace(node.inputs[0], streams=(stream,)),)
        index = self._add(replace(node, name=f"{node.name}[{channel}]", inputs=inputs, copy_of=node.name), node.index)
        if region.key is not None:
            self._tracked.add(index)
        for port in range(node.operation.outputs):
            self._inside[Output(node.index, port), channel] = Output(index, port)

    def _gather(self, node: Node, port: int, width: int, keyed: bool) -> None:
        leaving = Output(node.index, port)
        gather = self._add(
            replace(
                node,
                name=f"{node.name} ⋕" + (f"{port}" if port else ""),
                operation=Gather(width=width, keyed=keyed),
                inputs=tuple(Input((self._inside[leaving, channel],)) for channel in range(width)),
                kind="stateful",
            ),
            node.index,
        )
        self._now[leaving] = Output(gather, 0)
