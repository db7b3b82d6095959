"""The parts of the exact search, each against all configurations there are."""

from __future__ import annotations

import math
import random
from itertools import combinations, pairwise

import pytest

from penstock.optimizer import Config, evaluate, validate_config
from penstock.optimizer.baselines import _may_follow, _shapes
from penstock.optimizer.cuts import Cuts
from penstock.optimizer.least import Least
from penstock.optimizer.model import Chain, Op, Region, pipeline_times
from penstock.optimizer.regions import Regions, extents
from penstock.optimizer.slowest import Slowest
from tests.optimizer.chains import Problem, random_problem


def all_configurations(problem: Problem) -> list[tuple[float, float, Config]]:
    """Every configuration: its slowest region, its overhead (the work beyond that of the operators), itself."""
    ops, cores, delta, cp = problem
    chain = Chain.of(ops)
    found = []

    def search(start: int, slowest: float, work: float, regions: tuple[Region, ...]) -> None:
        if start == len(ops):
            found.append((slowest, work - chain.work[-1], Config(regions)))
            return
        for stop in range(start + 1, len(ops) + 1):
            for time, amount, region in _shapes(chain, start, stop, cores, delta, cp):
                if not regions or _may_follow(ops, regions[-1], region):
                    search(stop, max(slowest, time), work + amount, (*regions, region))

    search(0, 0.0, 0.0, ())
    return found


def regions_of(problem: Problem) -> Regions:
    return Regions(Chain.of(problem.ops), problem.delta, problem.cp, problem.cores)


@pytest.mark.parametrize("seed", range(120))
def test_the_least_overhead_for_any_limit(seed: int) -> None:
    problem = random_problem(seed, most_ops=5, most_cores=4)
    configurations = all_configurations(problem)
    limits = sorted({slowest for slowest, _, _ in configurations})
    least = Least(regions_of(problem))
    for limit in random.Random(seed).sample(limits, min(8, len(limits))):  # in any order, as it remembers
        found = least.find(limit * (1 + 1e-11))
        assert found is not None
        overhead, config = found
        expected = min(overhead for slowest, overhead, _ in configurations if slowest <= limit * (1 + 1e-11))
        assert overhead == pytest.approx(expected, rel=1e-9, abs=1e-9)
        validate_config(problem.ops, config)
        result = evaluate(problem.ops, config, problem.cores, problem.delta, problem.cp)
        assert limit == 0 or 1 / result.unbounded <= limit * (1 + 1e-10)
    assert limits[0] == 0 or least.find(limits[0] * (1 - 1e-9)) is None


@pytest.mark.parametrize("seed", range(120))
def test_the_least_time_of_the_slowest_region(seed: int) -> None:
    problem = random_problem(seed, most_ops=5, most_cores=4)
    least = min(slowest for slowest, _, _ in all_configurations(problem))
    assert Slowest(regions_of(problem)).least(0.0) == pytest.approx(least)
    assert Slowest(regions_of(problem)).least(least + 1) == least + 1


@pytest.mark.parametrize("seed", range(60))
def test_the_cheapest_cuts_of_a_region(seed: int) -> None:
    problem = random_problem(seed, most_ops=7, most_cores=4)
    chain, rng = Chain.of(problem.ops), random.Random(seed)
    start = rng.randrange(len(chain))
    stop = rng.randint(start + 1, len(chain))
    hop = [problem.delta * arrivals for arrivals in chain.arrivals]
    ways = []
    for number in range(stop - start):
        for cuts in combinations(range(start + 1, stop), number):
            region = Region(1, tuple(pairwise((start, *cuts, stop))))
            ways.append((max(pipeline_times(chain, region, problem.delta)), 2 * sum(hop[cut] for cut in cuts)))
    cuts_of = Cuts(regions_of(problem))
    for limit, _ in rng.sample(ways, min(6, len(ways))):
        limit *= 1 + 1e-11
        best = min(cost for slowest, cost in ways if slowest <= limit)
        paths = cuts_of.cheapest(start, stop, limit, math.inf)
        assert paths is not None
        assert paths.costs[stop - start] == pytest.approx(best)
        assert 2 * sum(hop[cut] for cut in paths.cuts(start)) == pytest.approx(best)
        assert best == 0 or cuts_of.cheapest(start, stop, limit, best * (1 - 1e-9)) is None
        assert Cuts(regions_of(problem)).cheapest(start, stop, limit, best * (1 - 1e-9)) is None
        assert Cuts(regions_of(problem)).cheapest(start, stop, limit, best * (1 + 1e-9) + 1e-9) is not None


def test_extents_stop_where_keys_part() -> None:
    ops = [Op(1), Op(1, 1, "partitioned", {"a", "b"}), Op(1, 1, "partitioned", {"b"}), Op(1, 1, "partitioned", {"a"})]
    assert extents(ops) == [3, 3, 3, 4]
    assert extents([Op(1), Op(1, 1, "stateful"), Op(1)]) == [1, 1, 3]
    stateful = Op(1, 1, "stateful", {"a"})
    assert extents([stateful, stateful, Op(1, 1, "partitioned"), Op(1)]) == [0, 1, 2, 4]


def test_an_operator_left_out_may_join_regions() -> None:
    """Leave out the first operator, and the other two share a key and would have to be one region."""
    ops = [
        Op(4, 1, "partitioned", {"a"}),
        Op(4, 1, "partitioned", {"a", "b"}),
        Op(8, 10, "partitioned", {"b"}, 2),
        Op(0.1, 1, "stateful"),
    ]
    problem = Problem(ops, 4, 0.2, 0.1)
    configurations = all_configurations(problem)
    for limit in sorted({slowest for slowest, _, _ in configurations}):
        found = Least(regions_of(problem)).find(limit * (1 + 1e-11))
        assert found is not None
        expected = min(overhead for slowest, overhead, _ in configurations if slowest <= limit * (1 + 1e-11))
        assert found[0] == pytest.approx(expected, rel=1e-9)
