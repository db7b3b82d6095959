"""Fusion: constraints hold, loads stay below the limit, and little crosses from PE to PE."""

from __future__ import annotations

import math
import random
from collections.abc import Iterator
from contextlib import ExitStack
from itertools import combinations

import pytest
from hypothesis import given
from hypothesis import strategies as st

import penstock as pn
from penstock.compiler.fusion import fuse
from penstock.compiler.weights import Weights, weigh
from penstock.errors import FlowError
from penstock.graph.graph import Graph
from penstock.optimizer.profile import OperatorProfile, Profile
from tests.compiler.programs import long_chain, random_program


def constrain(rng: random.Random, flow: pn.Flow, stack: ExitStack) -> None:
    chance = rng.random()
    if chance < 0.2:
        stack.enter_context(flow.colocate(rng.choice("ab")))
    elif chance < 0.4:
        stack.enter_context(flow.exlocate(rng.choice("xy")))
    elif chance < 0.5:
        stack.enter_context(flow.isolate())


@given(st.integers(0, 100_000), st.floats(0.5, 60))
def test_constraints_and_limits_hold(seed: int, limit: float) -> None:
    graph, weights = random_program(seed, constrain)
    fusion = fuse(graph, weights, limit)
    assert sorted(index for pe in fusion.pes for index in pe) == list(range(len(graph)))
    of_node = fusion.of_node
    for one, two in combinations(graph.nodes, 2):
        mine, other = one.annotations, two.annotations
        together = of_node[one.index] == of_node[two.index]
        if set(mine.colocate) & set(other.colocate):
            assert together
        if set(mine.exlocate) & set(other.exlocate):
            assert not together
        if mine.isolate != other.isolate:
            assert not together
    for pe, load in zip(fusion.pes, fusion.loads, strict=True):
        units = {graph.nodes[i].annotations.colocate or i for i in pe}
        assert load <= limit * (1 + 1e-6) or len(units) == 1
    crossing = sum(amount for (a, b), amount in weights.traffic.items() if of_node[a] != of_node[b])
    assert fusion.traffic == pytest.approx(crossing, abs=1e-9)


@given(st.integers(0, 100_000))
def test_without_limit_everything_is_one_pe(seed: int) -> None:
    graph, weights = random_program(seed)
    fusion = fuse(graph, weights)
    assert len(fusion.pes) == 1
    assert fusion.traffic == 0


def _partitions(count: int) -> Iterator[list[int]]:
    """Every way to put so many operators into PEs, as PE numbers."""

    def extend(numbers: list[int]) -> Iterator[list[int]]:
        if len(numbers) == count:
            yield numbers
            return
        for number in range(max(numbers, default=-1) + 2):
            yield from extend([*numbers, number])

    return extend([])


def _best(graph: Graph, weights: Weights, limit: float) -> float:
    best = math.inf
    for numbers in _partitions(len(graph)):
        loads = [0.0] * (max(numbers) + 1)
        for index, number in enumerate(numbers):
            loads[number] += weights.load[index]
        if max(loads) <= limit:
            best = min(best, sum(v for (a, b), v in weights.traffic.items() if numbers[a] != numbers[b]))
    return best


def test_close_to_the_best_partition_of_small_graphs() -> None:
    ratios = []
    seed = 0
    while len(ratios) < 40:
        graph, weights = random_program(seed := seed + 1)
        if len(graph) <= 8:
            limit = max(*weights.load, sum(weights.load) / 2.5)
            best, found = _best(graph, weights, limit), fuse(graph, weights, limit).traffic
            assert found >= best - 1e-9
            ratios.append((found + 1) / (best + 1))
    assert sum(ratios) / len(ratios) < 1.1


def test_the_cut_is_where_the_stream_is_thin() -> None:
    flow = pn.Flow()
    stream = flow.source([1], name="s")
    for i in range(6):
        stream = stream.filter(bool, name=f"f{i}") if i == 2 else stream.map(abs, name=f"m{i}")
    stream.sink(print, name="out")
    graph = flow.graph()
    profile = Profile(
        "", {"f2": OperatorProfile(1.0, 0.01, 1)} | {f"m{i}": OperatorProfile(60.0, 1, 1) for i in (3, 4, 5)}
    )
    fusion = fuse(graph, weigh(graph, profile), limit=5)
    assert fusion.pes == ((0, 1, 2, 3), (4, 5, 6, 7))
    assert fusion.traffic == pytest.approx(0.01)


def test_contradicting_constraints_are_named() -> None:
    flow = pn.Flow()
    stream = flow.source([1])
    with flow.colocate("near"):
        stream = stream.map(abs, name="one")
        with flow.exlocate("far"):
            stream = stream.map(abs, name="two")
    with flow.exlocate("far"), flow.colocate("near"):
        stream.map(abs, name="three").collect()
    graph = flow.graph()
    with pytest.raises(FlowError) as error:
        fuse(graph, weigh(graph))
    text = str(error.value)
    for part in ("colocate('near')", "exlocate('far')", "'two'", "'three'", "test_fusion.py:"):
        assert part in text


def test_isolation_that_colocation_contradicts_is_named() -> None:
    flow = pn.Flow()
    stream = flow.source([1])
    with flow.colocate("near"):
        stream = stream.map(abs, name="one")
        with flow.isolate():
            stream.map(abs, name="two").collect()
    graph = flow.graph()
    with pytest.raises(FlowError, match=r"colocate\('near'\) and isolate\(\) contradict"):
        fuse(graph, weigh(graph))


def test_a_long_chain_is_divided_evenly() -> None:
    graph = long_chain()
    fusion = fuse(graph, weigh(graph), limit=40)
    assert 8 <= len(fusion.pes) <= 12
    assert fusion.traffic == len(fusion.pes) - 1
