"""A plain interpreter of graphs: one tuple at a time, one dispatch per operator, no generated code, no threads.

It shares nothing with the engine but the graph, so that agreement means something. Sources are read in turn, one tuple
each; what arrives at an operator is handled at once.
"""

from __future__ import annotations

import copy
from collections import deque
from typing import Any

from penstock.graph import operations as ops
from penstock.graph.graph import Graph, Node


class Interpreter:
    """Runs one graph and keeps what each sink received, by the sink's name."""

    def __init__(self, graph: Graph) -> None:
        self.graph = graph
        self.state: dict[int, Any] = {}
        self.sinks: dict[str, list[Any]] = {node.name: [] for node in graph if node.is_sink}

    def run(self) -> dict[str, list[Any]]:
        readers = {
            node.index: iter(node.operation.source) for node in self.graph if isinstance(node.operation, ops.Read)
        }
        while readers:
            for index, reader in list(readers.items()):
                try:
                    item = next(reader)
                except StopIteration:
                    del readers[index]
                else:
                    self.send(index, 0, item)
        return self.sinks

    def send(self, index: int, port: int, item: Any) -> None:
        pending = [(reader, item) for reader in reversed(self.graph.readers(index, port))]
        while pending:
            target, value = pending.pop()
            node = self.graph.nodes[target.node]
            outputs = list(self.handle(node, target.port, value))
            for output, result in reversed(outputs):
                pending += [(reader, result) for reader in reversed(self.graph.readers(node.index, output))]

    def handle(self, node: Node, port: int, item: Any) -> Any:
        operation = node.operation
        if isinstance(operation, ops.Map):
            yield 0, operation.function(item)
        elif isinstance(operation, ops.Filter):
            if operation.function(item):
                yield 0, item
            elif operation.split:
                yield 1, item
        elif isinstance(operation, ops.FlatMap):
            yield from ((0, result) for result in operation.function(item))
        elif isinstance(operation, ops.MapBatch):
            yield from ((0, result) for result in operation.function([item]))
        elif isinstance(operation, ops.Split):
            index = operation.function(item)
            if index >= 0:
                yield index, item
        elif isinstance(operation, ops.Union):
            yield 0, item
        elif isinstance(operation, ops.Scan):
            key = node.inputs[0].key.of_tuple(item) if node.inputs[0].key else None
            states = self.state.setdefault(node.index, {})
            if key not in states:
                states[key] = copy.deepcopy(operation.init)
            states[key], result = operation.function(states[key], item)
            yield 0, result
        elif isinstance(operation, ops.Barrier | ops.Pair):
            queues = self.state.setdefault(node.index, [deque() for _ in range(operation.ways)])
            queues[port].append(item)
            if all(queues):
                together = tuple(queue.popleft() for queue in queues)
                yield from [(0, together)] if isinstance(operation, ops.Barrier) else [(0, one) for one in together]
        elif isinstance(operation, ops.Apply):
            yield from self.apply(node, operation, item)
        elif isinstance(operation, ops.Write):
            self.sinks[node.name].append(item)
        else:
            raise NotImplementedError(type(operation).__name__)

    def apply(self, node: Node, operation: ops.Apply, item: Any) -> Any:
        """Count windows only."""
        window, spec = operation.window, node.inputs[0].key
        key = spec.of_tuple(item) if spec else None
        seen, contents = self.state.setdefault(node.index, {}).setdefault(key, ([0], []))
        seen[0] += 1
        contents.append(item)
        if window.sliding:
            del contents[: -window.size]
            due = len(contents) == window.size and seen[0] % (window.every or 1) == 0
        else:
            due = len(contents) == window.size
        if due:
            tuples = list(contents)
            yield 0, operation.function(key, tuples) if spec else operation.function(tuples)
            if not window.sliding:
                contents.clear()
