"""Graphs that are no chains: rates follow the links, chains share the cores, a pure chain is as before."""

from __future__ import annotations

import random
from collections.abc import Iterator
from itertools import product

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

import penstock as pn
from penstock.compiler.regions import as_op_graph, find_regions
from penstock.compiler.weights import weigh
from penstock.optimizer import Config, ConfigError, Op, evaluate, optimal, validate_config
from penstock.optimizer.baselines import _partitions
from penstock.optimizer.graphs import Link, OpGraph, _Machine, _Pieces, optimal_graph
from penstock.optimizer.model import Region, normalize
from tests.optimizer.chains import random_op, random_problem


def random_graph(seed: int, most: int) -> OpGraph:
    rng = random.Random(seed)
    ops = tuple(random_op(rng) for _ in range(rng.randint(1, most)))
    links = {}
    for target in range(1, len(ops)):
        for source in rng.sample(range(target), min(target, rng.choice([0, 1, 1, 1, 2]))):
            links[source, target] = Link(source, target, rng.choice([1, rng.random(), rng.uniform(0, 2)]))
    return OpGraph(ops, tuple(links.values()), rng.choice([{}, {0: 3.0}]))


@pytest.mark.parametrize("seed", range(60))
def test_a_pure_chain_is_optimal(seed: int) -> None:
    ops, cores, delta, cp = random_problem(seed, most_ops=10, most_cores=8)
    graph = OpGraph(tuple(ops), tuple(Link(i, i + 1, op.selectivity) for i, op in enumerate(ops[:-1])))
    plan = optimal_graph(graph, cores, delta, cp)
    (chain,) = plan.chains
    best = optimal(ops, cores, delta, cp)
    assert chain.operators == tuple((i,) for i in range(len(ops)))
    assert chain.config == best
    assert plan.throughput == pytest.approx(evaluate(ops, best, cores, delta, cp).throughput)


@settings(max_examples=60)
@given(st.integers(0, 100_000), st.integers(1, 8), st.floats(0, 20), st.floats(0, 20))
def test_plans_are_whole_valid_and_better_with_more_cores(seed: int, cores: int, delta: float, cp: float) -> None:
    graph = random_graph(seed, 8)
    plan = optimal_graph(graph, cores, delta, cp)
    members = sorted(index for chain in plan.chains for place in chain.operators for index in place)
    assert members == list(range(len(graph.ops)))
    for chain in plan.chains:
        replicated = [
            graph.ops[index]
            for region in chain.config.regions
            if region.replicas > 1
            for place in chain.operators[region.start : region.stop]
            for index in place
        ]
        assert all(op.kind != "stateful" for op in replicated)
    pieces = _Pieces(graph, tuple((i,) for i in range(len(graph.ops))))
    work = sum(one.chain.work[-1] for one in pieces.chains(delta))
    assert work == 0 or plan.throughput * work <= cores * (1 + 1e-9)
    apart = _Machine(cores + 1, delta, cp, cores + 1).solve(pieces).throughput
    assert _Machine(cores, delta, cp, cores).solve(pieces).throughput <= apart * (1 + 1e-6)


def _configs(ops: tuple[Op, ...], most: int) -> Iterator[Config]:
    """Every configuration of a chain."""
    for cuts in _partitions(0, len(ops)):
        for counts in product(range(1, most + 1), repeat=len(cuts)):
            for joins in product([False, True], repeat=len(cuts) - 1):
                regions = [Region(counts[0], (cuts[0],))]
                for pipeline, count, join in zip(cuts[1:], counts[1:], joins, strict=True):
                    if join:
                        regions[-1] = Region(regions[-1].replicas, (*regions[-1].pipelines, pipeline))
                    else:
                        regions.append(Region(count, (pipeline,)))
                config = Config(tuple(regions))
                try:
                    validate_config(ops, config)
                except ConfigError:
                    continue
                yield config


@pytest.mark.parametrize("seed", range(40))
def test_cores_are_shared_as_well_as_can_be(seed: int) -> None:
    """Against every combination of configurations of the chains."""
    rng = random.Random(seed)
    ops = tuple(random_op(rng) for _ in range(5))
    links = (Link(0, 1, rng.random()), Link(0, 2, rng.random()), Link(1, 3), Link(2, 4, 0.5))
    pieces = _Pieces(OpGraph(ops, links), tuple((i,) for i in range(5)))
    machine = _Machine(rng.randint(1, 4), rng.choice([0, 1, 20]), rng.choice([0, 1, 20]), 2)
    chains = pieces.chains(machine.delta)
    assert [one.nodes for one in chains] == [(0,), (1, 3), (2, 4)]
    every = product(*(list(_configs(one.chain.ops, machine.most)) for one in chains))
    best = min(machine.time(chains, configs) for configs in every)
    assert 1 / machine.solve(pieces).throughput == pytest.approx(best, rel=1e-6)


def test_one_core_runs_a_whole_tree_in_one_thread() -> None:
    graph = OpGraph((Op(5), Op(3), Op(2), Op(1)), (Link(0, 1), Link(0, 2, 0.5), Link(1, 3), Link(2, 3)))
    plan = optimal_graph(graph, 1, 1, 1)
    assert plan.threads == 1
    assert 1 / plan.throughput == pytest.approx(5 + 3 + 1 + 1.5)


def test_the_heavier_branch_gets_more_cores() -> None:
    graph = OpGraph((Op(1, kind="stateful"), Op(30), Op(10)), (Link(0, 1), Link(0, 2)))
    plan = optimal_graph(graph, 8, 0.01, 0.01)
    replicas = {chain.operators[0][0]: chain.config.regions[0].replicas for chain in plan.chains}
    assert replicas[1] > replicas[2] > 1


def test_rates_of_sources_scale_together() -> None:
    ops = (Op(1, kind="stateful"), Op(1, kind="stateful"), Op(2, kind="stateful"))
    links = (Link(0, 2), Link(1, 2))
    assert optimal_graph(OpGraph(ops, links), 8, 0, 0).throughput == pytest.approx(1 / 4)
    assert optimal_graph(OpGraph(ops, links, {0: 3.0}), 8, 0, 0).throughput == pytest.approx(1 / 8)


def test_graphs_that_cannot_be() -> None:
    with pytest.raises(ValueError, match="cycle"):
        optimal_graph(OpGraph((Op(1), Op(1)), (Link(0, 1), Link(1, 0))), 1, 0, 0)
    with pytest.raises(ValueError, match="at least one operator"):
        optimal_graph(OpGraph((), ()), 1, 0, 0)


def test_from_a_program_to_its_plan() -> None:
    flow = pn.Flow()
    left, right = flow.source([1], name="s").filter(bool, split=True, name="f")
    left.map(abs, name="heavy").union(right, name="u").sink(print, name="out")
    graph = flow.graph()
    model = as_op_graph(graph, find_regions(graph), weigh(graph))
    assert [op.kind for op in model.ops] == ["stateful", "partitioned", "partitioned", "partitioned", "stateful"]
    assert {(link.source, link.target): link.share for link in model.links} == {
        (0, 1): 1.0,
        (1, 2): 0.5,
        (1, 3): 0.5,
        (2, 3): 1.0,
        (3, 4): 1.0,
    }
    assert optimal_graph(model, 4, 0.01, 0.01).throughput > 0.87


def test_normalized_regions_of_the_oracle() -> None:
    ops = (Op(1), Op(1))
    assert {str(normalize(ops, config.regions)) for config in _configs(ops, 2)} == {str(c) for c in _configs(ops, 2)}
