"""Graphs that are no chains: rates follow the links, chains share the cores, a pure chain is as before.

A search of a large graph asks for few configurations of chains, and what it knows of them is what `Least` says.
"""

from __future__ import annotations

import math
import random
from collections.abc import Iterator, Sequence
from itertools import product

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

import penstock as pn
from penstock.compiler.regions import as_op_graph, find_regions
from penstock.compiler.weights import weigh
from penstock.optimizer import Config, ConfigError, Op, evaluate, optimal, validate_config
from penstock.optimizer.baselines import _partitions
from penstock.optimizer.graphs import GraphSearch, Link, OpGraph, optimal_graph
from penstock.optimizer.least import Least
from penstock.optimizer.model import Region, evaluate_chain, joined_key, normalize
from penstock.optimizer.pieces import Answer, Machine, Piece, Place
from penstock.optimizer.regions import Regions
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
    search = GraphSearch(graph, Machine(cores, delta, cp, cores))
    work = sum(place.load for piece in search.pieces.values() for place in piece.places)
    assert work == 0 or plan.throughput * work <= cores * (1 + 1e-9)
    assert GraphSearch(graph, Machine(cores + 1, delta, cp, cores + 1)).time <= search.time * (1 + 1e-6)


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
    machine = Machine(rng.randint(1, 4), rng.choice([0, 1, 20]), rng.choice([0, 1, 20]), 2)
    search = GraphSearch(OpGraph(ops, links), machine)
    pieces = list(search.pieces.values())
    assert [[place.members for place in piece.places] for piece in pieces] == [[(0,)], [(1,), (3,)], [(2,), (4,)]]
    every = product(*(list(_configs(piece.chain.ops, machine.most)) for piece in pieces))
    assert search.time == pytest.approx(min(_time(machine, pieces, configs) for configs in every), rel=1e-6)


def _time(machine: Machine, pieces: Sequence[Piece], configs: Sequence[Config]) -> float:
    """Time per multiple: the slowest region, or all work over the cores."""
    slowest = work = 0.0
    for piece, config in zip(pieces, configs, strict=True):
        result = evaluate_chain(piece.chain, config, machine.cores, machine.delta, machine.cp, piece.ends)
        if result.utilization:
            slowest = max(slowest, 1 / result.unbounded)
            work += result.utilization / result.unbounded
    return max(slowest, work / machine.cores)


@pytest.mark.parametrize("seed", range(40))
def test_the_throughput_of_a_plan_is_that_of_its_configurations(seed: int) -> None:
    rng = random.Random(seed)
    graph = random_graph(seed, 12)
    machine = Machine(rng.randint(1, 8), rng.choice([0, 1, 20]), rng.choice([0, 1, 20]), 8)
    search = GraphSearch(graph, machine)
    first = search.time
    while search.step():
        assert search.time <= first
    plan = search.plan()
    pieces = {tuple(place.members for place in piece.places): piece for piece in search.pieces.values()}
    time = _time(machine, [pieces[chain.operators] for chain in plan.chains], [chain.config for chain in plan.chains])
    assert time == pytest.approx(1 / plan.throughput, rel=1e-9)
    assert time <= search.time * (1 + 1e-9)


def _places(rng: random.Random) -> tuple[Place, ...]:
    ops = [random_op(rng) for _ in range(rng.randint(1, 6))]
    rates = [rng.choice([1.0, rng.random()]) for _ in ops]
    return tuple(
        Place((i,), rate, rate * op.cost, joined_key(None, op), op.bound)
        for i, (op, rate) in enumerate(zip(ops, rates, strict=True))
    )


@pytest.mark.parametrize("seed", range(150))
def test_what_is_known_of_a_chain_is_what_a_search_would_find(seed: int) -> None:
    rng = random.Random(seed)
    machine = Machine(8, rng.choice([0, 1, 20]), rng.choice([0, 1, 20]), rng.choice([1, 3, 8]))
    places, fed, sent = _places(rng), rng.random() < 0.5, rng.uniform(0, 3)
    easier = Piece(machine, places, fed, sent)
    places = (*places[:-1], places[-1].with_all(_places(rng)[: rng.randint(0, 2)]))
    piece = Piece(machine, places, fed, sent + rng.choice([0, 1]), easier)
    for _ in range(12):
        limit = piece.fixed * rng.random()
        least = Least(Regions(piece.chain, machine.delta, machine.cp, machine.most, ends=piece.ends)).find(limit)
        bound, answer = piece.at_least(limit), piece.within(limit)
        if least is None or answer is None:
            assert least is answer is None
            continue
        assert answer.slowest <= limit * (1 + 1e-9)
        assert answer.work == pytest.approx(piece.fixed + least[0], rel=1e-9)
        assert answer.work == pytest.approx(_work(piece, answer.config), rel=1e-9)
        assert bound <= answer.work * (1 + 1e-9)
        validate_config(piece.chain.ops, answer.config)


def _work(piece: Piece, config: Config) -> float:
    machine = piece.machine
    result = evaluate_chain(piece.chain, config, machine.cores, machine.delta, machine.cp, piece.ends)
    return result.utilization / result.unbounded


def _comb(teeth: int) -> OpGraph:
    """A long chain with a branch of two operators after each of its own."""
    rng = random.Random(teeth)
    ops, links, last = [Op(1, kind="stateful")], [], 0
    for _ in range(teeth):
        ops += [Op(rng.uniform(1, 100)), Op(rng.uniform(1, 100)), Op(rng.uniform(1, 100), kind="stateful")]
        links += [Link(last, len(ops) - 3), Link(len(ops) - 3, len(ops) - 2), Link(len(ops) - 2, len(ops) - 1)]
        last = len(ops) - 3
    return OpGraph(tuple(ops), tuple(links))


@pytest.mark.parametrize("cores", [1, 16, 64])
@pytest.mark.parametrize("delta", [0.05, 2.0])
def test_a_large_graph_asks_for_few_configurations(cores: int, delta: float, monkeypatch: pytest.MonkeyPatch) -> None:
    solve, asked = Piece.solve, []

    def counted(piece: Piece, limit: float) -> Answer | None:
        asked.append(limit)
        return solve(piece, limit)

    monkeypatch.setattr(Piece, "solve", counted)
    graph = _comb(30)
    assert optimal_graph(graph, cores, delta, 0.5).throughput < math.inf
    assert len(asked) <= 2 * len(graph.ops)


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
