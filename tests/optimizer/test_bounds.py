"""The bounds that the exact search prunes by: never above what a configuration pays, and no better than possible."""

from __future__ import annotations

import math
import random
from itertools import pairwise

import pytest

from penstock.optimizer import Config, evaluate
from penstock.optimizer.ahead import Ahead, extents
from penstock.optimizer.baselines import _may_follow, _shapes
from penstock.optimizer.feasible import Feasible
from penstock.optimizer.model import Chain, Op, Region
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


@pytest.mark.parametrize("seed", range(60))
def test_no_configuration_pays_less_than_the_bound(seed: int) -> None:
    problem = random_problem(seed, most_ops=5, most_cores=4)
    ops, cores, delta, cp = problem
    ahead = Ahead.of(Chain.of(ops), delta, cp, cores, True)
    configurations = all_configurations(problem)
    limits = sorted({slowest for slowest, _, _ in configurations})
    for limit in random.Random(seed).sample(limits, min(6, len(limits))):
        least = min(overhead for slowest, overhead, _ in configurations if slowest <= limit)
        assert ahead.least(limit) <= least + 1e-9 * (1 + least)


@pytest.mark.parametrize("seed", range(60))
def test_what_can_be_kept_is_kept(seed: int) -> None:
    problem = random_problem(seed, most_ops=5, most_cores=4)
    ops, cores, delta, cp = problem
    feasible = Feasible(Chain.of(ops), delta, cp, cores, True, Ahead.of(Chain.of(ops), delta, cp, cores, True))
    least = min(slowest for slowest, _, _ in all_configurations(problem))
    found = feasible.keeping(least * (1 + 1e-9))
    assert found is not None
    assert least == 0 or 1 / evaluate(ops, found, cores, delta, cp).unbounded == pytest.approx(least)
    assert least == 0 or feasible.keeping(least * (1 - 1e-9)) is None


def test_extents_stop_where_keys_part() -> None:
    ops = [Op(1), Op(1, 1, "partitioned", {"a", "b"}), Op(1, 1, "partitioned", {"b"}), Op(1, 1, "partitioned", {"a"})]
    assert extents(ops) == [3, 3, 3, 4]
    assert extents([Op(1), Op(1, 1, "stateful"), Op(1)]) == [1, 1, 3]


def test_a_higher_limit_never_raises_the_bound() -> None:
    for seed in range(40):
        ops, cores, delta, cp = random_problem(seed, most_ops=12, most_cores=16)
        ahead = Ahead.of(Chain.of(ops), delta, cp, cores, True)
        total = Chain.of(ops).work[-1] + 1
        bounds = [ahead.least(total * share) for share in (0.1, 0.3, 0.6, 1, 3)]
        assert all(left >= right or math.isclose(left, right) for left, right in pairwise(bounds))
