"""The model: against the printed recursions, by hand, and in what must never change its sign."""

from __future__ import annotations

import math
import random
from itertools import pairwise

import pytest
from hypothesis import given
from hypothesis import strategies as st

from penstock.optimizer import Config, ConfigError, Op, Region, evaluate, validate_config
from penstock.optimizer.model import normalize
from tests.optimizer.chains import random_op, random_problem


def literal(ops: list[Op], config: Config, cores: int, delta: float, cp: float) -> tuple[float, float, float]:
    """Eqs 1–14 as printed (with sums over all regions), in rates: throughput, unbounded throughput, utilization."""

    def product(start: int, stop: int) -> float:
        return math.prod(op.selectivity for op in ops[start:stop])

    rate, work, regions = math.inf, 0.0, config.regions
    for i, region in enumerate(regions, 1):
        inside, effort = math.inf, 0.0
        for j, (start, stop) in enumerate(region.pipelines, 1):
            cost = sum(product(start, k) * ops[k].cost for k in range(start, stop))  # 2
            h = delta * ((j > 1) + (j < len(region.pipelines)) * product(start, stop))  # 5
            alone = 1 / (cost + h) if cost + h else math.inf  # 4
            inside = product(start, stop) * min(inside, alone)  # 3
            effort += product(region.start, start) * (h + cost)
        inside /= product(region.start, region.stop)  # 6
        scale = min(min(region.replicas, op.bound) for op in ops[region.start : region.stop])  # 7
        parallel = 1 / (cp * math.log2(region.replicas) + 1 / (inside * scale))  # 8
        h = delta * ((i > 1) + (i < len(regions)) * product(region.start, region.stop))  # 10
        embedded = 1 / (h + 1 / parallel)  # 9
        rate = product(region.start, region.stop) * min(rate, embedded)  # 11
        work += product(0, region.start) * (cp * math.log2(region.replicas) + h + effort)
    rate /= product(0, len(ops))  # 12
    utilization = rate * work  # 14
    return rate * min(1, cores / utilization), rate, utilization  # 13


def random_config(rng: random.Random, ops: list[Op]) -> Config:
    cuts = sorted(rng.sample(range(1, len(ops)), rng.randint(0, len(ops) - 1)))
    bounds = [0, *cuts, len(ops)]
    regions: list[Region] = []
    for start, stop in pairwise(bounds):
        if regions and rng.random() < 0.5:
            regions[-1] = Region(regions[-1].replicas, (*regions[-1].pipelines, (start, stop)))
        else:
            regions.append(Region(rng.randint(1, 4), ((start, stop),)))
    return Config(tuple(regions))


@pytest.mark.parametrize("seed", range(200))
def test_agrees_with_the_equations_as_printed(seed: int) -> None:
    rng = random.Random(seed)
    ops = [Op(rng.uniform(1, 300), rng.uniform(0.1, 2), bound=rng.choice([2, 3, math.inf])) for _ in range(6)]
    config, delta, cp = random_config(rng, ops), rng.uniform(0, 50), rng.uniform(0, 50)
    result = evaluate(ops, config, 4, delta, cp)
    assert (result.throughput, result.unbounded, result.utilization) == pytest.approx(
        literal(ops, config, 4, delta, cp)
    )


def test_by_hand() -> None:
    ops = [Op(10, 0.5), Op(40, kind="partitioned", key={"k"}), Op(20, 2, kind="stateful")]
    config = Config([Region(4, [(0, 1), (1, 2)]), Region(1, [(2, 3)])])
    result = evaluate(ops, config, cores=2, delta=1, cp=3)
    # First region: pipelines 10 + ½·δ and ½·δ + ½·40, the slower shared by four; split 3·log2(4), handed on ½·δ.
    first = 20.5 / 4 + 6 + 0.5
    second = 0.5 + 0.5 * 20
    work = (10.5 + 20.5 + 6 + 0.5) + (0.5 + 10)
    assert result.unbounded == pytest.approx(1 / max(first, second))
    assert result.bottleneck == 0
    assert result.throughput == pytest.approx(2 / work)
    assert result.utilization == pytest.approx(work / max(first, second))
    assert result.threads == 9


def test_a_stream_that_dries_up_costs_nothing_below() -> None:
    ops = [Op(10, 0), Op(1_000_000)]
    assert evaluate(ops, Config([Region(1, [(0, 2)])]), 1, 0, 0).throughput == pytest.approx(0.1)


def test_free_operators_have_no_limit() -> None:
    assert evaluate([Op(0)], Config([Region(1, [(0, 1)])]), 1, 0, 0).throughput == math.inf


@given(st.integers(0, 10_000), st.integers(1, 8), st.floats(0, 50), st.floats(0, 50))
def test_never_better_with_more_overhead_or_fewer_cores(seed: int, cores: int, more: float, much: float) -> None:
    rng = random.Random(seed)
    ops = [random_op(rng) for _ in range(rng.randint(1, 8))]
    config = random_config(rng, ops)
    base = evaluate(ops, config, cores, 10, 10)
    assert evaluate(ops, config, cores + 1, 10, 10).throughput >= base.throughput
    assert evaluate(ops, config, cores, 10 + more, 10).throughput <= base.throughput * (1 + 1e-12)
    assert evaluate(ops, config, cores, 10, 10 + much).throughput <= base.throughput * (1 + 1e-12)
    dearer = [Op(op.cost + more, op.selectivity, op.kind, op.key, op.bound) for op in ops]
    assert evaluate(dearer, config, cores, 10, 10).throughput <= base.throughput * (1 + 1e-12)
    assert base.throughput <= base.unbounded
    assert base.throughput * max(base.utilization, cores) <= base.unbounded * cores * (1 + 1e-12)


@given(st.integers(0, 10_000))
def test_normalizing_gives_a_valid_configuration(seed: int) -> None:
    rng = random.Random(seed)
    ops = [random_op(rng) for _ in range(rng.randint(1, 8))]
    config = random_config(rng, ops)
    allowed = [
        Region(
            region.replicas if all(_replicable(op) for op in ops[region.start : region.stop]) else 1, region.pipelines
        )
        for region in config.regions
    ]
    result = normalize(ops, allowed)
    validate_config(ops, result)
    assert {start for region in allowed for start, _ in region.pipelines} <= {
        start for region in result.regions for start, _ in region.pipelines
    }
    assert normalize(ops, result.regions) == result


def _replicable(op: Op) -> bool:
    return op.kind == "stateless" or (op.kind == "partitioned" and bool(op.key))


@pytest.mark.parametrize(
    ("regions", "reason"),
    [
        ([], "cover 0 of 4"),
        ([Region(1, [(0, 3)])], "cover 3 of 4"),
        ([Region(1, [(0, 2), (3, 4)])], "should start at operator 2"),
        ([Region(1, [(0, 2), (2, 2), (2, 4)])], "not be empty"),
        ([Region(0, [(0, 4)])], "at least one replica"),
        ([Region(2, [(0, 4)])], "cannot be replicated together"),
        ([Region(2, [(0, 3)]), Region(1, [(3, 4)])], "cannot be replicated together"),
        ([Region(1, [(0, 1)]), Region(1, [(1, 4)])], "operators 0 to 1 all have 1 replica"),
        ([Region(2, [(0, 1)]), Region(2, [(1, 2)]), Region(1, [(2, 4)])], "all have 2 replicas"),
    ],
)
def test_what_the_rules_forbid(regions: list[Region], reason: str) -> None:
    ops = [Op(1), Op(1, kind="partitioned", key={"a"}), Op(1, kind="partitioned", key={"b"}), Op(1, kind="stateful")]
    with pytest.raises(ConfigError, match=reason):
        validate_config(ops, Config(regions))


def test_neighbours_with_different_keys_may_have_the_same_number_of_replicas() -> None:
    ops = [Op(1), Op(1, kind="partitioned", key={"a", "b"}), Op(1, kind="partitioned", key={"c"})]
    validate_config(ops, Config([Region(2, [(0, 2)]), Region(2, [(2, 3)])]))
    overlapping = [Op(1, kind="partitioned", key={"a", "b"}), Op(1, kind="partitioned", key={"b", "c"})]
    validate_config(overlapping, Config([Region(2, [(0, 2)])]))


@pytest.mark.parametrize(
    "bad", [{"cost": -1}, {"cost": math.nan}, {"cost": math.inf}, {"cost": "1"}, {"bound": 0.5}, {"kind": "odd"}]
)
def test_operators_that_cannot_be(bad: dict[str, object]) -> None:
    with pytest.raises(ValueError, match=next(iter(bad))):
        Op(**{"cost": 1, **bad})  # type: ignore[arg-type]


def test_machines_that_cannot_be() -> None:
    ops, config = [Op(1)], Config([Region(1, [(0, 1)])])
    for cores, delta, cp in [(0, 0, 0), (1, -1, 0), (1, 0, math.inf), (2.0, 0, 0), (math.nan, 0, 0), (True, 0, 0)]:
        with pytest.raises(ValueError, match="must be"):
            evaluate(ops, config, cores, delta, cp)  # type: ignore[arg-type]
    with pytest.raises(ValueError, match="too large"):
        evaluate([Op(1e308), Op(1e308)], Config([Region(1, [(0, 2)])]), 1, 0, 0)


def test_a_key_may_be_one_name() -> None:
    assert Op(1, kind="partitioned", key="host").key == {"host"}  # type: ignore[arg-type]


def test_problems_cover_all_kinds() -> None:
    ops = [op for seed in range(50) for op in random_problem(seed, 6, 4).ops]
    assert {op.kind for op in ops} == {"stateless", "partitioned", "stateful"}
    assert any(op.selectivity > 1 for op in ops)
    assert any(op.bound < math.inf for op in ops)
