"""The searches: valid, and as good as they claim."""

from __future__ import annotations

import math
import random
from collections.abc import Callable

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from penstock.optimizer import (
    Config,
    Op,
    brute_force,
    evaluate,
    fission_only,
    heuristic,
    optimal,
    optimal_with_bound,
    pipelining_only,
    sequential,
    validate_config,
)
from penstock.optimizer.baselines import _may_follow, _shapes
from penstock.optimizer.model import Chain, Region
from tests.optimizer.chains import Problem, random_op, random_problem

SAME = pytest.approx


def throughput(problem: Problem, config: Config) -> float:
    validate_config(problem.ops, config)
    return evaluate(problem.ops, config, problem.cores, problem.delta, problem.cp).throughput


@pytest.mark.parametrize("block", range(20))
def test_optimal_equals_brute_force(block: int) -> None:
    for seed in range(block * 40, block * 40 + 40):
        problem = random_problem(seed, most_ops=6, most_cores=4)
        solution = optimal_with_bound(*problem)
        best = throughput(problem, brute_force(*problem))
        assert throughput(problem, solution.config) == SAME(best, rel=1e-10), f"seed {seed}"
        assert solution.throughput == throughput(problem, solution.config)
        assert solution.bound == SAME(best, rel=1e-10)


@pytest.mark.parametrize("seed", range(60))
def test_optimal_equals_brute_force_beyond_the_cores(seed: int) -> None:
    problem = random_problem(seed, most_ops=4, most_cores=3)
    best = throughput(problem, brute_force(*problem, max_replicas=7))
    assert throughput(problem, optimal(*problem, max_replicas=7)) == SAME(best, rel=1e-10)


@pytest.mark.parametrize("block", range(10))
def test_one_kind_of_parallelism_is_optimal_in_its_class(block: int) -> None:
    for seed in range(block * 20, block * 20 + 20):
        problem = random_problem(seed, most_ops=5, most_cores=4)
        fission, pipelining = fission_only(*problem), pipelining_only(*problem)
        assert all(len(region.pipelines) == 1 for region in fission.regions)
        assert [region.replicas for region in pipelining.regions] == [1]
        assert throughput(problem, fission) == SAME(_best(problem, problem.cores, 1), rel=1e-10), f"seed {seed}"
        assert throughput(problem, pipelining) == SAME(_best(problem, 1, len(problem.ops)), rel=1e-10), f"seed {seed}"


def _best(problem: Problem, replicas: int, pipelines: int) -> float:
    """The best throughput with so many replicas and pipelines in a region at most, by trying all."""
    ops, cores, delta, cp = problem
    chain = Chain.of(ops)
    best = math.inf

    def search(start: int, slowest: float, work: float, before: Region | None) -> None:
        nonlocal best
        if start == len(ops):
            best = min(best, max(slowest, work / cores))
            return
        for stop in range(start + 1, len(ops) + 1):
            for time, amount, region in _shapes(chain, start, stop, replicas, delta, cp):
                if len(region.pipelines) <= pipelines and (before is None or _may_follow(ops, before, region)):
                    search(stop, max(slowest, time), work + amount, region)

    search(0, 0.0, 0.0, None)
    return 1 / best if best else math.inf


@settings(max_examples=150)
@given(st.integers(0, 1_000_000), st.integers(1, 40), st.integers(1, 24))
def test_nothing_is_better_than_optimal(seed: int, most_ops: int, most_cores: int) -> None:
    problem = random_problem(seed, most_ops, most_cores)
    solution = optimal_with_bound(*problem)
    best = throughput(problem, solution.config) * (1 + 1e-10)
    for search in (sequential, heuristic, fission_only, pipelining_only):
        assert throughput(problem, search(*problem)) <= best, search.__name__
    assert solution.gap <= 1e-10


@pytest.mark.parametrize("seed", range(3))
def test_long_chains_stay_within_a_proved_bound(seed: int) -> None:
    rng = random.Random(seed)
    ops = [random_op(rng) for _ in range(200)]
    ops = [Op(op.cost, rng.uniform(0.97, 1.03), op.kind, op.key, op.bound) for op in ops]
    problem = Problem(ops, 96, 2, 20)
    solution = optimal_with_bound(*problem)
    reached = throughput(problem, solution.config)
    assert reached == solution.throughput
    assert solution.throughput <= solution.bound <= solution.throughput * 1.0101
    for search in (sequential, heuristic, pipelining_only):
        assert throughput(problem, search(*problem)) <= solution.bound * (1 + 1e-10)


@pytest.mark.parametrize("seed", range(40))
def test_a_gap_is_kept(seed: int) -> None:
    problem = random_problem(seed, most_ops=12, most_cores=16)
    best = throughput(problem, optimal(*problem))
    close = optimal_with_bound(*problem, gap=0.05)
    assert throughput(problem, close.config) >= best / 1.0501
    assert close.bound >= best * (1 - 1e-10)


def test_a_gap_that_rounding_could_keep_open() -> None:
    problem = random_problem(20823, most_ops=6, most_cores=4)
    assert optimal_with_bound(*problem, gap=0.02).gap <= 0.0201


@given(st.integers(0, 1_000_000))
def test_more_cores_are_never_worse(seed: int) -> None:
    ops, cores, delta, cp = random_problem(seed, most_ops=10, most_cores=6)
    fewer = throughput(Problem(ops, cores, delta, cp), optimal(ops, cores, delta, cp))
    more = throughput(Problem(ops, cores + 1, delta, cp), optimal(ops, cores + 1, delta, cp))
    assert more >= fewer * (1 - 1e-10)


def test_no_thread_is_wasted_on_what_is_fast_enough() -> None:
    ops = [Op(1), Op(1), Op(100, kind="stateful"), Op(1), Op(1)]
    assert str(optimal(ops, cores=64, delta=0.1, cp=1)) == "[0 1 | 2 | 3 4]"


def test_one_core_has_one_thread_where_switching_costs() -> None:
    assert optimal([Op(5), Op(7)], 1, 1, 1) == sequential([Op(5), Op(7)], 1, 1, 1)


def test_searches_refuse_an_empty_chain() -> None:
    for search in (sequential, heuristic, fission_only, pipelining_only, brute_force, optimal):
        with pytest.raises(ValueError, match="at least one operator"):
            search([], 1, 1, 1)


SEARCHES = [sequential, heuristic, fission_only, pipelining_only, brute_force, optimal]


@pytest.mark.parametrize("search", SEARCHES, ids=lambda search: search.__name__)
def test_searches_refuse_what_they_cannot_work_with(search: Callable[..., Config]) -> None:
    for cores in (0, -1, 2.0, math.nan, math.inf, True, "2", None):
        with pytest.raises(ValueError, match=r"cores= must be a whole number from 1, not"):
            search([Op(1)], cores, 1, 1)
    for times in ((math.nan, 0), (0, -1), (None, 0), (0, "1")):
        with pytest.raises(ValueError, match=r"(delta|cp)= must be a finite number from 0, not"):
            search([Op(1)], 2, *times)
    for ops in ([Op(1e308)] * 2, [Op(1, 1e200)] * 3, [Op(0, 1e308)] * 3):
        with pytest.raises(ValueError, match="too large"):
            search(ops, 2, 1, 1)
    if search not in (sequential, pipelining_only):
        for most in (0, -1, 2.0, math.nan, True, "2"):
            with pytest.raises(ValueError, match=r"max_replicas= must be a whole number from 1"):
                search([Op(1)], 2, 1, 1, max_replicas=most)
        assert search([Op(1)], 4, 0, 0, max_replicas=1).threads == 1


@pytest.mark.parametrize("search", SEARCHES, ids=lambda search: search.__name__)
@pytest.mark.parametrize("scale", [1e-320, 1e-306, 1e-200, 1.0, 1e200, 1e290])
def test_searches_find_something_for_any_scale(search: Callable[..., Config], scale: float) -> None:
    ops = [Op(scale), Op(2 * scale, kind="stateful"), Op(3 * scale)]
    validate_config(ops, search(ops, 4, 0.1 * scale, 0.1 * scale))


@given(st.integers(0, 1_000_000))
def test_brute_force_wastes_no_thread(seed: int) -> None:
    problem = random_problem(seed, most_ops=4, most_cores=3)
    assert brute_force(*problem).threads <= optimal(*problem).threads


def test_logwatch_is_close_to_twelve_cores() -> None:
    """Fig 17's operators: the stateful sink sees few tuples, so that nearly everything can be replicated."""
    host, user = {"host"}, {"user"}
    ops = [
        *(Op(1.52, kind="stateful"), Op(3.87), Op(15.15), Op(9.39, 0.87), Op(13.81)),
        *(Op(9.04, 0.20, "partitioned", host), Op(24.82, 0.99), Op(27.04), Op(17.33, 0.00027, "partitioned", user)),
        Op(493.17, kind="stateful"),
    ]
    problem = Problem(ops, 12, 0.1, 0.1)
    assert throughput(problem, optimal(*problem)) / throughput(problem, sequential(*problem)) > 9.7
