"""The frozen stream graph: nodes with ports, and the streams that connect them."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from functools import cached_property
from typing import NamedTuple

from penstock.errors import Location
from penstock.graph.annotations import Annotations
from penstock.graph.keys import Key
from penstock.graph.operations import Feedback, Operation, Punctuate, Read, Write
from penstock.graph.operator import Kind


class Output(NamedTuple):
    """An output port: the stream that leaves node `node` by its output `port`."""

    node: int
    port: int


class Target(NamedTuple):
    """An input port: input `port` of node `node`."""

    node: int
    port: int


@dataclass(frozen=True, slots=True)
class Input:
    """One input port: the streams that meet on it, and the key that partitions it (None: not partitioned)."""

    streams: tuple[Output, ...]
    key: Key | None = None


@dataclass(frozen=True, slots=True)
class Node:
    """One operator of the graph, as the user described it."""

    index: int
    name: str
    operation: Operation
    inputs: tuple[Input, ...]
    kind: Kind
    location: Location
    annotations: Annotations
    copy_of: str = ""  # the name of the operator that this is a copy of

    @property
    def user_name(self) -> str:
        """The name in the user's program, also of a copy."""
        return self.copy_of or self.name

    @property
    def key(self) -> Key | None:
        """The key of a partitioned operator: that of its first keyed input."""
        return next((port.key for port in self.inputs if port.key is not None), None)

    @property
    def is_source(self) -> bool:
        return isinstance(self.operation, Read)

    @property
    def is_sink(self) -> bool:
        return isinstance(self.operation, Write)


@dataclass(frozen=True)
class Graph:
    """A whole program: `nodes[i].index == i`."""

    name: str
    nodes: tuple[Node, ...]

    def __iter__(self) -> Iterator[Node]:
        return iter(self.nodes)

    def __len__(self) -> int:
        return len(self.nodes)

    @cached_property
    def consumers(self) -> dict[Output, tuple[Target, ...]]:
        """For each output port that somebody reads: the input ports it feeds, in the order they were connected."""
        found: dict[Output, list[Target]] = {}
        for node in self.nodes:
            for port, entry in enumerate(node.inputs):
                for stream in entry.streams:
                    found.setdefault(stream, []).append(Target(node.index, port))
        return {stream: tuple(targets) for stream, targets in found.items()}

    def readers(self, node: int, port: int = 0) -> tuple[Target, ...]:
        """The input ports fed by output `port` of `node`."""
        return self.consumers.get(Output(node, port), ())

    def upstream(self, node: Node) -> Iterator[int]:
        """The nodes that feed `node`, without what comes back through a feedback loop."""
        if isinstance(node.operation, Feedback):
            return
        for entry in node.inputs:
            for stream in entry.streams:
                yield stream.node

    @cached_property
    def topological(self) -> tuple[int, ...]:
        """Every node after all that feed it, feedback loops cut where they come back; by creation where free.

        Nodes on a cycle that is not cut are missing: `validate` reports them.
        """
        import heapq

        waiting = [len(set(self.upstream(node))) for node in self.nodes]
        below: list[list[int]] = [[] for _ in self.nodes]
        for node in self.nodes:
            for above in set(self.upstream(node)):
                below[above].append(node.index)
        ready = [index for index, count in enumerate(waiting) if count == 0]
        order = []
        while ready:
            index = heapq.heappop(ready)
            order.append(index)
            for after in below[index]:
                waiting[after] -= 1
                if waiting[after] == 0:
                    heapq.heappush(ready, after)
        return tuple(order)

    @cached_property
    def is_punctuated(self) -> bool:
        """Some operator marks window boundaries."""
        return any(isinstance(node.operation, Punctuate) for node in self.nodes)

    def node(self, name: str) -> Node:
        """The node called `name`."""
        for node in self.nodes:
            if node.name == name:
                return node
        raise KeyError(f"flow '{self.name}' has no operator '{name}'")
