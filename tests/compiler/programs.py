"""Random programs to compile: trees of maps with unions, and weights."""

from __future__ import annotations

import random
from collections.abc import Callable
from contextlib import ExitStack, nullcontext

import penstock as pn
from penstock.compiler.weights import Weights, weigh
from penstock.graph.graph import Graph
from penstock.optimizer.profile import OperatorProfile, Profile

Constrain = Callable[[random.Random, pn.Flow, ExitStack], None]


def random_program(seed: int, constrain: Constrain | None = None, *, deep: bool = False) -> tuple[Graph, Weights]:
    """A random graph; a `deep` one has few branches."""
    rng = random.Random(seed)
    flow = pn.Flow("random")
    streams = [flow.source([1], name=f"source{i}") for i in range(rng.randint(1, 3))]
    for number in range(rng.randint(1, 14)):
        with ExitStack() as stack:
            stack.enter_context(nullcontext())
            if constrain is not None:
                constrain(rng, flow, stack)
            stream = rng.choice(streams[-2:] if deep else streams)
            if rng.random() < 0.2 and len(streams) > 1:
                streams.append(stream.union(rng.choice([s for s in streams if s is not stream]), name=f"op{number}"))
            else:
                streams.append(stream.map(abs, name=f"op{number}"))
    for number, stream in enumerate(streams):
        stream.sink(print, name=f"sink{number}")
    graph = flow.graph()
    operators = {
        node.name: OperatorProfile(rng.choice([1.0, rng.uniform(0.1, 5)]), rng.choice([1.0, rng.random()]), 100)
        for node in graph
    }
    sizes = {node.name: rng.uniform(1, 100) for node in graph}
    return graph, weigh(graph, Profile("random", operators), sizes=sizes)


def long_chain() -> Graph:
    """A source, three hundred operators that cost the same, and a sink."""
    flow = pn.Flow()
    stream = flow.source([1])
    for _ in range(300):
        stream = stream.map(abs)
    stream.sink(print)
    return flow.graph()
