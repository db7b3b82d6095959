"""Finds what is wrong with a graph before anything runs; each mistake names the operator and the user's line."""

from __future__ import annotations

from collections.abc import Iterator

from penstock.errors import FlowError
from penstock.graph.graph import Graph, Node
from penstock.graph.operations import Feedback

_MOST_SHOWN = 10


def validate(graph: Graph) -> None:
    """Raise one `FlowError` that lists every mistake of `graph`; return when there is none."""
    problems = [*_empty(graph), *_duplicate_names(graph), *_dangling(graph), *_missing_keys(graph), *_cycles(graph)]
    if problems:
        shown = problems[:_MOST_SHOWN]
        if len(problems) > len(shown):
            shown.append(f"… and {len(problems) - len(shown)} more")
        raise FlowError(f"flow '{graph.name}' cannot run:\n" + "\n".join(f"  - {problem}" for problem in shown))


def _at(node: Node) -> str:
    return f"operator '{node.name}' ({node.location})"


def _empty(graph: Graph) -> Iterator[str]:
    if not any(node.is_source for node in graph):
        yield "it has no source; start with flow.source(...)"


def _duplicate_names(graph: Graph) -> Iterator[str]:
    seen: dict[str, Node] = {}
    for node in graph:
        first = seen.setdefault(node.name, node)
        if first is not node:
            yield f"{_at(node)} has the name of another operator, made at {first.location}; give it another name="


def _dangling(graph: Graph) -> Iterator[str]:
    for node in graph:
        for port, entry in enumerate(node.inputs):
            if entry.streams:
                continue
            if isinstance(node.operation, Feedback):
                yield f"{_at(node)} was never connected; call its connect(stream)"
            elif node.name.startswith("dead_letters"):
                yield f"{_at(node)} receives nothing; name it as on_error= of a source or operator"
            else:
                yield f"input {port} of {_at(node)} is connected to no stream"


def _missing_keys(graph: Graph) -> Iterator[str]:
    for node in graph:
        for port, entry in enumerate(node.inputs if node.kind == "partitioned" else ()):
            if entry.key is None:
                which = "its input" if len(node.inputs) == 1 else f"its input {port}"
                yield f"{_at(node)} is partitioned but {which} has no key; put key_by(...) before it"


def _cycles(graph: Graph) -> Iterator[str]:
    for node in graph:
        if isinstance(node.operation, Feedback):
            for reader in graph.readers(node.index):
                target = graph.nodes[reader.node]
                if reader.port not in target.operation.control:
                    yield (
                        f"feedback '{node.name}' ({node.location}) enters input {reader.port} of {_at(target)}, which "
                        "is no control port; only control ports may close a cycle"
                    )
    reached = set(graph.topological)
    for node in graph:
        if node.index not in reached:
            yield f"{_at(node)} is part of a cycle that passes no control port"
            return
