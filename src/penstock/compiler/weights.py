"""What a graph costs where: the load of each operator, and the traffic of each stream, from a profile."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

from penstock.graph.graph import Graph, Node
from penstock.graph.operations import Feedback
from penstock.optimizer.profile import Profile

Link = tuple[int, int]  # from one operator to another


@dataclass(frozen=True)
class Weights:
    """Per unit of time: `arrivals` of tuples and busy time (`load`) of each operator, `tuples` and `traffic` of links.

    The traffic of a link is tuples times bytes. Operators that feed each other several times have one link.
    """

    arrivals: tuple[float, ...]
    load: tuple[float, ...]
    tuples: Mapping[Link, float]
    traffic: Mapping[Link, float]


def weigh(
    graph: Graph,
    profile: Profile | None = None,
    *,
    rates: Mapping[str, float] | None = None,
    sizes: Mapping[str, float] | None = None,
) -> Weights:
    """The weights of `graph`.

    `rates` are tuples per unit of time of sources by name, `sizes` bytes per tuple an operator sends, both 1 where
    nothing is said. Without a profile every operator takes one unit of time and sends what it receives. What an
    operator sends is taken to spread evenly over those of its outputs that somebody reads.

    >>> import penstock as pn
    >>> flow = pn.Flow()
    >>> _ = flow.source([1], name="numbers").filter(bool, name="some").collect(name="out")
    >>> weights = weigh(flow.graph(), rates={"numbers": 10}, sizes={"some": 8})
    >>> weights.load, weights.traffic
    ((10.0, 10.0, 10.0), {(0, 1): 10.0, (1, 2): 80.0})
    """
    measured = profile.operators if profile is not None else {}
    arrivals = [0.0] * len(graph)
    tuples: dict[Link, float] = {}
    traffic: dict[Link, float] = {}
    for index in graph.topological:
        node = graph.nodes[index]
        if node.is_source:
            arrivals[index] = float((rates or {}).get(node.name, 1.0))
        known = measured.get(node.name)
        sent = arrivals[index] * (1.0 if known is None or node.is_source else known.selectivity)
        size = float((sizes or {}).get(node.name, 1.0))
        for link, share in _shares(graph, node):
            tuples[link] = tuples.get(link, 0.0) + share * sent
            traffic[link] = traffic.get(link, 0.0) + share * sent * size
            if not isinstance(graph.nodes[link[1]].operation, Feedback):
                arrivals[link[1]] += share * sent
    costs = [measured[node.name].cost if node.name in measured else 1.0 for node in graph]
    load = tuple(count * cost for count, cost in zip(arrivals, costs, strict=True))
    return Weights(tuple(arrivals), load, tuples, traffic)


def _shares(graph: Graph, node: Node) -> list[tuple[Link, float]]:
    """Each link of `node`, with its share of what the node sends: all readers of an output get all of it."""
    outputs = [readers for port in range(node.operation.outputs) if (readers := graph.readers(node.index, port))]
    return [((node.index, reader.node), 1 / len(outputs)) for readers in outputs for reader in readers]
