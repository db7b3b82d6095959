"""Where to put threaded ports: auto thread placement (language runtime §6.2), as a pure function.

A source has a thread, and so has a threaded port: it runs the operator behind the port and all that follows, up to the
next threaded ports. An operator that several threads reach is run by each, for the tuples that come with it. A threaded
port costs `delta` for each tuple, on both sides.

Throughput follows the busiest thread. Relieving one of several that are equally busy changes nothing, and a search that
looks at one port at a time gets stuck there. So a step adds a port for each of the busiest threads, and only steps that
relieve all of them are taken.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Collection, Iterator, Mapping
from dataclasses import dataclass

from penstock.compiler.weights import Weights
from penstock.graph.graph import Graph, Target
from penstock.graph.operations import Feedback

Thread = int | Target  # the index of a source, or a threaded port
_Inputs = dict[int, list[tuple[Target, int, float]]]


@dataclass(frozen=True)
class Placement:
    """Threaded ports in the order they were placed, and the load of every thread."""

    ports: tuple[Target, ...]
    loads: Mapping[Thread, float]

    @property
    def busiest(self) -> float:
        """The load that limits the throughput."""
        return max(self.loads.values(), default=0.0)


def place_threads(
    graph: Graph, weights: Weights, threads: int, *, delta: float = 0.0, avoid: Collection[Target] = ()
) -> Placement:
    """Threaded ports for up to `threads` threads, those of the sources included; never at ports to `avoid`.

    >>> import penstock as pn
    >>> from penstock.compiler.weights import weigh
    >>> flow = pn.Flow()
    >>> _ = flow.source([1]).map(abs).map(abs).map(abs).collect()
    >>> graph = flow.graph()
    >>> place_threads(graph, weigh(graph), 2).loads
    {0: 2.0, Target(node=2, port=0): 3.0}
    """
    placement = Placement((), thread_loads(graph, weights, (), delta))
    while (more := next_step(graph, weights, placement, threads, delta=delta, avoid=avoid)) is not None:
        placement = more
    return placement


def next_step(
    graph: Graph,
    weights: Weights,
    now: Placement,
    threads: int,
    *,
    delta: float = 0.0,
    avoid: Collection[Target] = (),
    alike: float = 0.05,
) -> Placement | None:
    """The placement that relieves all of the busiest threads of `now`, or None if they cannot be relieved.

    Threads are among the busiest if their load differs from the most by the part `alike` at most.
    """
    ports, loads = now.ports, now.loads
    inputs = _all_inputs(graph, weights)
    for thread in [thread for thread, load in loads.items() if load >= now.busiest * (1 - alike)]:
        if loads[thread] < now.loads[thread]:
            continue  # a port for another thread has relieved this one too
        if len(loads) >= threads:
            return None
        streams = _Streams(graph, weights, ports, delta, inputs)
        choices = [
            (max(loads[thread] - relief, taken), port)
            for port, relief, taken in streams.choices(thread)
            if port not in avoid
        ]
        least, port = min(choices, default=(loads[thread], None))
        if port is None or least >= loads[thread]:
            return None
        ports = (*ports, port)
        loads = _Streams(graph, weights, ports, delta, inputs).loads()
    after = Placement(ports, loads)
    return after if after.busiest < now.busiest else None


def thread_loads(graph: Graph, weights: Weights, ports: Collection[Target], delta: float = 0.0) -> dict[Thread, float]:
    """The load of each thread."""
    return _Streams(graph, weights, ports, delta, _all_inputs(graph, weights)).loads()


class _Streams:
    """How tuples flow through a graph with these threaded ports, and which threads carry them."""

    def __init__(
        self, graph: Graph, weights: Weights, ports: Collection[Target], delta: float, inputs: _Inputs
    ) -> None:
        self.graph, self.weights, self.delta, self.inputs = graph, weights, delta, inputs
        self.ports = frozenset(ports)
        # For each operator: the threads that run it, each with its share of the tuples.
        self.shares: dict[int, dict[Thread, float]] = {}
        for index in graph.topological:
            self.shares[index] = self._shares(index)

    def _shares(self, index: int) -> dict[Thread, float]:
        if self.graph.nodes[index].is_source:
            return {index: 1.0}
        amounts: dict[Thread, float] = {}
        for port, source, flow in self.inputs[index]:
            carriers = {port: 1.0} if port in self.ports else self.shares[source]
            for thread, share in carriers.items():
                amounts[thread] = amounts.get(thread, 0.0) + flow * share
        total = sum(amounts.values())
        return {thread: amount / total if total else 1 / len(amounts) for thread, amount in amounts.items()}

    def loads(self) -> dict[Thread, float]:
        loads: dict[Thread, float] = {}
        for index, shares in self.shares.items():
            for thread, share in shares.items():
                loads[thread] = loads.get(thread, 0.0) + share * self.weights.load[index]
            for port, source, flow in self.inputs[index]:
                if port in self.ports:
                    loads[port] += self.delta * flow
                    for thread, share in self.shares[source].items():
                        loads[thread] += self.delta * flow * share
        return loads

    def choices(self, thread: Thread) -> Iterator[tuple[Target, float, float]]:
        """Ports that would part `thread`: the load it would lose, and the load of the new thread.

        Tuples of one stream are taken to be alike, whichever thread carries them.
        """
        below = self._below()
        for index, inputs in self.inputs.items():
            for port in sorted({port for port, _, _ in inputs} - self.ports):
                flows = [(flow, self.shares[source].get(thread, 0.0)) for at, source, flow in inputs if at == port]
                own, total = sum(flow * share for flow, share in flows), sum(flow for flow, _ in flows)
                if own > 0:
                    yield port, own * (below[index] - self.delta), total * (below[index] + self.delta)

    def _below(self) -> dict[int, float]:
        """The load that a tuple arriving at each operator causes there and further down, in the same thread."""
        below = {
            index: self.weights.load[index] / arrivals if (arrivals := self.weights.arrivals[index]) else 0.0
            for index in self.inputs
        }
        for index in reversed(self.graph.topological):
            for port, source, flow in self.inputs[index]:
                if arrivals := self.weights.arrivals[source]:
                    below[source] += (self.delta if port in self.ports else below[index]) * flow / arrivals
        return below


def _all_inputs(graph: Graph, weights: Weights) -> _Inputs:
    return {index: list(_inputs(graph, weights, index)) for index in graph.topological}


def _inputs(graph: Graph, weights: Weights, index: int) -> Iterator[tuple[Target, int, float]]:
    """The input ports of an operator, once for each stream that ends there, with its source and flow."""
    node = graph.nodes[index]
    if isinstance(node.operation, Feedback):
        return
    sources = [(port, stream.node) for port, entry in enumerate(node.inputs) for stream in entry.streams]
    times = Counter(source for _, source in sources)
    for port, source in sources:
        yield Target(index, port), source, weights.tuples.get((source, index), 0.0) / times[source]
