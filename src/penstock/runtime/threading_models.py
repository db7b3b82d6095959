"""Threading models: which input ports get a queue, and who runs what waits there (scheduler paper §2.2).

* *manual*: none. Each source's thread runs everything downstream of it.
* *dedicated*: every input port has a queue and a thread of its own.
* *dynamic*: every input port has a queue; any thread of the scheduler runs any port.

A model is chosen for a flow and, by `flow.threading(...)`, for parts of it: `with flow.threading("dedicated"):` around
an operator of an otherwise manual flow is a threaded port in front of it. The channels of a replicated region have
threads under any model. Deciding is a pure function of the graph.
"""

from __future__ import annotations

from penstock.graph.graph import Graph, Node, Target
from penstock.graph.operations import Deal, Feedback, Gather, Process
from penstock.graph.operator import Operator

MANUAL, DEDICATED, DYNAMIC = "manual", "dedicated", "dynamic"


def place_ports(graph: Graph, model: str) -> dict[Target, str]:
    """The threaded ports of `graph` under `model`: for each, whether a thread of its own or the scheduler runs it."""
    placed: dict[Target, str] = {}
    for node in graph.nodes:
        wish = node.annotations.threading
        chosen = model if wish in (None, "auto") else wish
        if chosen == MANUAL and _is_edge(graph, node):
            chosen = DEDICATED
        if chosen in (DEDICATED, DYNAMIC):
            for target in queueable(graph, node):
                placed[target] = chosen
    return placed


def _is_edge(graph: Graph, node: Node) -> bool:
    """The first operator of a channel, or what follows a replicated region: without threads there is no gain."""
    return any(
        isinstance(graph.nodes[stream.node].operation, Deal | Gather)
        for entry in node.inputs
        for stream in entry.streams
    ) and not isinstance(node.operation, Gather)


def queueable(graph: Graph, node: Node) -> list[Target]:
    """The input ports of `node` that may have a queue.

    What comes back through a feedback loop must never wait for room, so it has a mailbox and no queue. Where channels
    are gathered, their threads bring what they have themselves.
    """
    if node.is_source or isinstance(node.operation, Feedback | Gather):
        return []
    return [
        Target(node.index, port)
        for port, entry in enumerate(node.inputs)
        if not any(isinstance(graph.nodes[stream.node].operation, Feedback) for stream in entry.streams)
    ]


def fewest_threads(graph: Graph, placed: dict[Target, str]) -> int:
    """The fewest scheduler threads that cannot starve: one more than the inputs of any operator that may wait inside.

    Built-in operators never wait for another of their inputs while they hold a thread. An operator of the user's with
    several inputs may: then each of them may hold a thread, and one more is needed for all others.
    """
    most = 0
    for target, model in placed.items():
        operation = graph.nodes[target.node].operation
        if model == DYNAMIC and isinstance(operation, Process) and isinstance(operation.operator, Operator):
            most = max(most, operation.inputs if operation.inputs > 1 else 0)
    return most + 1
