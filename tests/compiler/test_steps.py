"""The planner's walk through layouts: each step is a layout that delivers the same, and it ends near the best one."""

from __future__ import annotations

import random
from collections.abc import Iterator
from itertools import combinations, pairwise, product

import pytest

import penstock as pn
from penstock.compiler.fission import replicable_regions
from penstock.compiler.physical import CROWDING, Expected, Group, Machine, arrange, check_layout, expect
from penstock.compiler.planner import completed, decide, held_shares, with_keys
from penstock.compiler.regions import Regions, find_regions
from penstock.compiler.steps import Steps, improved
from penstock.compiler.weights import Weights, weigh
from penstock.graph.graph import Graph
from penstock.optimizer.profile import OperatorProfile, Profile
from penstock.runtime.pe import PE, Threading
from tests.compiler.test_plans import random_profile
from tests.interpreter import Interpreter
from tests.random_graphs import build
from tests.runtime.test_random_schedules import check
from tests.thorough import blocks


@pytest.mark.parametrize("block", blocks(3, 6))
def test_wherever_steps_lead_the_output_is_the_same(block: int) -> None:
    walked = 0
    for number in range(block * 10, block * 10 + 10):
        rng = random.Random(number)
        flow, sinks = build(rng.randrange, [rng.randrange(1500) for _ in range(rng.randint(1, 2))], rng.randint(2, 12))
        graph = flow.graph()
        steps = Steps(graph, replicable_regions(graph), 4)
        layout = list(decide(graph, random_profile(graph, rng), Machine(2, 1e-7, 1e-7)).groups)
        for _ in range(rng.randint(1, 8)):
            away = list(steps.away_from(layout))
            if not away:
                break
            layout = rng.choice(away)
            walked += 1
        pe = PE(graph, threading_=Threading(), replicated=arrange(graph, layout))
        pe.start()
        assert pe.wait(60), f"graph {number} does not end"
        check(sinks, Interpreter(graph).run())
    assert walked > 10


@pytest.mark.parametrize("seed", range(40))
def test_every_step_is_a_layout(seed: int) -> None:
    rng = random.Random(seed)
    flow, _ = build(rng.randrange, [0, 0], rng.randint(2, 12))
    graph = flow.graph()
    layout = list(decide(graph, random_profile(graph, rng), Machine(4, 1e-8, 1e-8)).groups)
    for away in Steps(graph, replicable_regions(graph), 4).away_from(layout):
        check_layout(graph, away)
        arrange(graph, away)


def test_what_the_user_gave_a_width_stays() -> None:
    flow = pn.Flow("wished")
    numbers = flow.source([1], name="in").map(abs, name="before")
    with flow.parallel(width=2):
        numbers = numbers.map(abs, name="wished").map(abs, name="too")
    numbers.map(abs, name="after").collect(name="out")
    graph = flow.graph()
    layout = [Group(((0, 1),)), Group(((2, 3),), 2), Group(((4, 5),))]
    for away in Steps(graph, find_regions(graph), 4).away_from(layout):
        (wished,) = [group for group in away if group.width == 2]
        assert wished.nodes == (2, 3)
        assert all(group.width == 1 or group is wished or 2 not in group.nodes for group in away)


def test_regions_of_one_copy_that_follow_each_other_are_one() -> None:
    flow = pn.Flow("chain")
    flow.source([1]).map(abs).map(abs).map(abs).map(abs).collect()
    graph = flow.graph()
    layout = [Group(((0,),)), Group(((1, 2),)), Group(((3,),), 2), Group(((4,),)), Group(((5,),))]
    joined = Steps(graph, find_regions(graph), 4).joined(layout)
    assert joined == [Group(((0,), (1, 2))), Group(((3,),), 2), Group(((4,), (5,)))]
    apart = Steps(graph, find_regions(graph), 4, [0, 1, 1, 1, 1, 2]).joined(layout)
    assert apart == layout


# --------------------------------------------------------------------------------------------------- how far it goes


def _chain(rng: random.Random) -> tuple[Graph, Profile]:
    """A chain of batch operators, some with state, and what they cost."""
    flow = pn.Flow("chain")
    stream = flow.source([1], name="in")
    for number in range(rng.randint(2, 4)):
        if rng.random() < 0.75:
            stream = stream.map_batch(list, name=f"batch {number}")
        else:
            stream = stream.scan(lambda count, n: (count + 1, n), init=0, name=f"scan {number}")
    stream.collect(name="out")
    graph = flow.graph()
    light, heavy = (1e-8, 3e-7), (5e-7, 8e-6)
    costs = {node.name: rng.uniform(*(light if node.is_source or node.is_sink else heavy)) for node in graph}
    return graph, Profile(
        "chain", {name: OperatorProfile(cost, rng.choice([1, 0.5]), 9) for name, cost in costs.items()}
    )


def _all_layouts(graph: Graph, regions: Regions, most: int) -> Iterator[list[Group]]:
    """Every layout of a chain whose regions in several copies run in one thread each."""
    count = len(graph)
    for size in range(count):
        for cuts in combinations(range(1, count), size):
            lines = [tuple(graph.topological[a:b]) for a, b in pairwise((0, *cuts, count))]
            numbers = [{regions.of_node.get(index) for index in line} for line in lines]
            choices = [range(1, most + 1) if len(some) == 1 and None not in some else (1,) for some in numbers]
            for widths in product(*choices):
                yield [Group((line,), width) for line, width in zip(lines, widths, strict=True)]


@pytest.mark.parametrize("seed", range(30))
def test_the_choice_is_near_the_best_of_all(seed: int) -> None:
    rng = random.Random(seed)
    graph, profile = _chain(rng)
    machine = Machine(rng.choice([2, 2, 3, 4]), 2e-8, 2e-7, gil=rng.random() < 0.5, crowding=CROWDING)
    weights, held = weigh(graph, completed(graph, profile)), held_shares(graph, profile)
    rated = [
        expect(with_keys(graph, layout), weights, machine, held)
        for layout in _all_layouts(graph, replicable_regions(graph), machine.cores)
    ]
    best = max(expected.throughput for expected in rated if expected is not None)
    chosen = decide(graph, profile, machine).expected
    assert chosen is not None
    assert chosen.throughput >= 0.97 * best


def test_a_walk_only_gains_and_ends() -> None:
    for seed in range(40):
        rng = random.Random(seed)
        graph, profile = _chain(rng)
        weights, regions = weigh(graph, completed(graph, profile)), replicable_regions(graph)
        ratings = 0

        def rating(layout: list[Group], weights: Weights = weights) -> Expected | None:
            nonlocal ratings
            ratings += 1
            return expect(layout, weights, Machine(4, 2e-8, 2e-7, crowding=CROWDING))

        start = [Group((tuple(graph.topological),))]
        end = improved(start, Steps(graph, regions, 4), rating)
        before, after = rating(start), rating(end)
        assert before is not None
        assert after is not None
        assert after.throughput >= before.throughput
        assert ratings < 20_000
