"""How large tuples are where they leave an operator: the bytes they would take on their way to another process.

For a short run, each stream of a program gets one more reader, a sink that pickles some of what passes: a chunk at a
time, as it would be sent, so that what tuples of a chunk share counts once. Of ever fewer chunks (the first, second,
fourth, eighth …) up to `_MOST` tuples are pickled, so the whole stream has its say and a long run costs little more
than a short one. The bytes are counted, not kept. Programs that are run for their results have no such readers.
"""

from __future__ import annotations

import pickle
from collections.abc import Mapping
from dataclasses import replace
from typing import Any

from penstock.graph.annotations import NONE
from penstock.graph.graph import Graph, Input, Node, Output
from penstock.graph.operations import Feedback, Write

_MOST = 256  # tuples of a chunk that are pickled


class Scale:
    """A sink that knows how large the tuples it received are, in the mean."""

    def __init__(self) -> None:
        self.received = 0
        self._chunks = self._tuples = self._bytes = 0
        self._fails = False

    def open(self) -> None: ...
    def close(self, failed: bool = False) -> None: ...

    def write(self, tuples: list[Any]) -> None:
        self.received += len(tuples)
        self._chunks += 1
        if self._chunks & (self._chunks - 1) or self._fails:
            return
        piece = tuples[:_MOST]
        try:
            self._bytes += pickled_size(piece)
        except Exception:  # whatever the user's objects raise
            self._fails = True
        self._tuples += len(piece)

    @property
    def size(self) -> float | None:
        """Bytes per tuple; None where nothing came, or something that cannot be pickled."""
        return None if self._fails or not self._tuples else self._bytes / self._tuples


class _Counter:
    def __init__(self) -> None:
        self.total = 0

    def write(self, data: Any) -> None:
        self.total += memoryview(data).nbytes


def pickled_size(value: Any) -> int:
    """The bytes of `value` when it is pickled.

    >>> pickled_size([1, 2, 3]) == len(pickle.dumps([1, 2, 3], pickle.HIGHEST_PROTOCOL))
    True
    """
    counter = _Counter()
    pickle.Pickler(counter, pickle.HIGHEST_PROTOCOL).dump(value)
    return counter.total


def with_scales(graph: Graph) -> tuple[Graph, dict[int, list[Scale]]]:
    """`graph` with a scale on each stream that somebody reads, and the scales of each operator."""
    nodes = list(graph.nodes)
    scales: dict[int, list[Scale]] = {}
    for node in graph:
        # What comes back through a loop may go to control ports only; it was weighed where it entered the loop.
        ports = () if isinstance(node.operation, Feedback) else range(node.operation.outputs)
        for port in ports:
            if graph.readers(node.index, port):
                scale = Scale()
                scales.setdefault(node.index, []).append(scale)
                nodes.append(_reader(node, port, scale, len(nodes)))
    return replace(graph, nodes=tuple(nodes)), scales


def _reader(node: Node, port: int, scale: Scale, index: int) -> Node:
    name = f"scale of {node.name}" + (f", output {port}" if port else "")
    streams = (Output(node.index, port),)
    return Node(index, name, Write(target=scale), (Input(streams),), "stateful", node.location, NONE)


def sizes(graph: Graph, scales: Mapping[int, list[Scale]]) -> dict[str, float]:
    """Bytes per tuple that operators sent, by name, where that is known."""
    found: dict[str, float] = {}
    for index in graph.topological:
        node = graph.nodes[index]
        known = [(scale.received, scale.size) for scale in scales.get(index, ()) if scale.received]
        if known and None not in (size for _, size in known):
            total = sum(count * size for count, size in known if size is not None)
            found[node.name] = round(total / sum(count for count, _ in known), 1)
    for node in graph:
        if isinstance(node.operation, Feedback):
            feeders = [graph.nodes[stream.node].name for entry in node.inputs for stream in entry.streams]
            if feeders and all(name in found for name in feeders):
                found[node.name] = max(found[name] for name in feeders)
    return found
