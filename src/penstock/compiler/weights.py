"""What a graph costs where: the load of each operator, and the traffic of each stream, from a profile."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

from penstock.errors import PenstockError
from penstock.graph.graph import Graph, Node
from penstock.graph.operations import Feedback
from penstock.optimizer.profile import OperatorProfile, Profile

Link = tuple[int, int]  # from one operator to another
SIZE = 64.0  # bytes of a tuple that nobody has measured: a small record
_NOTHING, _TOO_MUCH = 1e-100, 1e100  # what is less counts as nothing; more cannot be reckoned with


@dataclass(frozen=True)
class Weights:
    """Per unit of time: `arrivals` of tuples and busy time (`load`) of each operator, `tuples` and `traffic` of links.

    The traffic of a link is tuples times bytes. Operators that feed each other several times have one link. The sizes
    of what operators send that are `guessed` are `SIZE`.
    """

    arrivals: tuple[float, ...]
    load: tuple[float, ...]
    tuples: Mapping[Link, float]
    traffic: Mapping[Link, float]
    guessed: frozenset[int] = frozenset()


def weigh(
    graph: Graph,
    profile: Profile | None = None,
    *,
    rates: Mapping[str, float] | None = None,
    sizes: Mapping[str, float] | None = None,
) -> Weights:
    """The weights of `graph`.

    `rates` are tuples per unit of time of sources by name, 1 where nothing is said; `sizes` bytes per tuple an operator
    sends, or else what the profile says of it, or else `SIZE`. Without a profile every operator takes one unit of time
    and sends what it receives. What an operator sends is taken to spread evenly over those of its outputs that somebody
    reads. Feedback sends on what it receives, which is no load for anybody: control ports get little. Raises
    `PenstockError` for a profile of which a load or rate becomes too large to reckon with.

    >>> import penstock as pn
    >>> flow = pn.Flow()
    >>> _ = flow.source([1], name="numbers").filter(bool, name="some").collect(name="out")
    >>> weights = weigh(flow.graph(), rates={"numbers": 10}, sizes={"some": 8})
    >>> weights.load, weights.traffic
    ((10.0, 10.0, 10.0), {(0, 1): 640.0, (1, 2): 80.0})
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
        sent = _checked(arrivals[index] * (1.0 if known is None or node.is_source else known.selectivity), node, known)
        size = _size(known) if sizes is None or node.name not in sizes else float(sizes[node.name])
        for link, share in _shares(graph, node):
            tuples[link] = tuples.get(link, 0.0) + share * sent
            traffic[link] = traffic.get(link, 0.0) + share * sent * size
            if not isinstance(graph.nodes[link[1]].operation, Feedback):
                arrivals[link[1]] += share * sent
    for node in graph:
        if isinstance(node.operation, Feedback):
            for link, share in _shares(graph, node):
                for amounts in (tuples, traffic):
                    amounts[link] += share * sum(amounts.get((feeder, node.index), 0.0) for feeder in _feeders(node))
    costs = [measured[node.name].cost if node.name in measured else 1.0 for node in graph]
    load = tuple(
        _checked(count * cost, node, measured.get(node.name))
        for node, count, cost in zip(graph, arrivals, costs, strict=True)
    )
    return Weights(tuple(arrivals), load, tuples, traffic, _guessed(graph, measured, sizes or {}))


def _checked(amount: float, node: Node, known: OperatorProfile | None) -> float:
    """What an operator does or sends per unit of time, as far as it has been measured: a number to reckon with."""
    if known is None:
        return amount
    if not amount < _TOO_MUCH:
        raise PenstockError(
            f"operator '{node.name}' ({node.location}) cannot be planned for: its profile, with a cost of "
            f"{known.cost:.3g} s and a selectivity of {known.selectivity:.3g}, makes {amount:.3g} per source tuple"
        )
    return amount if amount > _NOTHING else 0.0


def _guessed(graph: Graph, measured: Mapping[str, OperatorProfile], sizes: Mapping[str, float]) -> frozenset[int]:
    known = {name for name, one in measured.items() if one.size is not None} | sizes.keys()
    return frozenset(node.index for node in graph if node.name not in known)


def _size(known: OperatorProfile | None) -> float:
    return SIZE if known is None or known.size is None else known.size


def _feeders(node: Node) -> set[int]:
    return {stream.node for entry in node.inputs for stream in entry.streams}


def _shares(graph: Graph, node: Node) -> list[tuple[Link, float]]:
    """Each link of `node`, with its share of what the node sends: all readers of an output get all of it."""
    outputs = [readers for port in range(node.operation.outputs) if (readers := graph.readers(node.index, port))]
    return [((node.index, reader.node), 1 / len(outputs)) for readers in outputs for reader in readers]
