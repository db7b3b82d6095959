"""Calibration: the equations give back the costs that throughputs were made of, and measuring gives a whole table."""

from __future__ import annotations

import math
import random
from pathlib import Path

import pytest

from penstock.errors import PenstockError, PlatformError
from penstock.optimizer import (
    BatchTime,
    Boundary,
    Calibration,
    Config,
    Op,
    Region,
    evaluate,
    replication_cost,
    switching_cost,
)
from penstock.optimizer.calibrate import DEFAULT_BATCH, DEFAULTS, KINDS
from penstock.platforms import calibration as measuring

SEEDS = range(20)


@pytest.mark.parametrize("seed", SEEDS)
def test_delta_comes_back_from_the_model(seed: int) -> None:
    rng = random.Random(seed)
    cost, delta = rng.uniform(1, 10), rng.uniform(0, 3)
    ops = [Op(cost), Op(cost)]
    one = evaluate(ops, Config([Region(1, [(0, 2)])]), 8, delta, 0).throughput
    two = evaluate(ops, Config([Region(1, [(0, 1), (1, 2)])]), 8, delta, 0).throughput
    assert switching_cost(one, two) == pytest.approx(delta)


@pytest.mark.parametrize("seed", SEEDS)
def test_cp_comes_back_from_the_model(seed: int) -> None:
    rng = random.Random(seed)
    cost, cp = rng.uniform(50, 100), rng.uniform(0, 3)
    ops = [Op(0, kind="stateful"), Op(cost), Op(0, kind="stateful")]

    def throughput(n: int) -> float:
        # Without switching, which eq 18 lets the channels share and eq 9 does not.
        config = Config([Region(1, [(0, 1)]), Region(n, [(1, 2)]), Region(1, [(2, 3)])])
        return evaluate(ops, config, 64, 0, cp).unbounded

    few, many = rng.sample(range(2, 12), 2)
    assert replication_cost({few: throughput(few), many: throughput(many)}) == pytest.approx(cp)
    assert replication_cost({n: throughput(n) for n in (2, 5, 9)}) == pytest.approx(cp)


def test_cp_is_eq_19_with_its_denominator_put_right() -> None:
    times = {3: 4.0, 5: 3.0}
    (n1, t1), (n2, t2) = times.items()
    wanted = (t1 / n2 - t2 / n1) / (math.log2(n1) / n2 - math.log2(n2) / n1)
    assert replication_cost({n: 1 / time for n, time in times.items()}) == pytest.approx(wanted)


def test_noise_never_makes_a_cost_negative() -> None:
    assert switching_cost(1.0, 3.0) == 0
    assert replication_cost({1: 1.0, 2: 5.0}) == 0
    with pytest.raises(ValueError, match="two different numbers"):
        replication_cost({2: 1.0})


def test_a_calibration_is_kept(tmp_path: Path) -> None:
    calibration = Calibration({"port": Boundary(1e-6, 2e-6)}, "here")
    path = tmp_path / "cache" / "calibration.json"
    assert measuring.keep(calibration, path) == path
    assert Calibration.load(path) == calibration
    assert calibration["port"].cp == 2e-6
    assert calibration["shuffle"] == DEFAULTS["shuffle"]
    assert set(DEFAULTS) == set(KINDS)


def test_a_split_by_key_has_a_price_of_its_own() -> None:
    calibration = Calibration({"port": Boundary(1e-6, 2e-6, 5e-6)}, "here")
    assert Calibration.from_json(calibration.to_json())["port"].keyed_cp == 5e-6
    older = '{"penstock_calibration": 1, "machine": "", "boundaries": {"port": {"delta": 1e-6, "cp": 2e-6}}}'
    assert Calibration.from_json(older)["port"].keyed_cp == 2e-6
    for wrong in (-3.0, -1.0):
        with pytest.raises(ValueError, match="keyed_cp"):
            Boundary(1e-6, 2e-6, wrong)
    null = older.replace('"cp": 2e-6', '"cp": 2e-6, "keyed_cp": null')
    assert Calibration.from_json(null) == Calibration.from_json(older)


def test_the_users_cache_is_read(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path))
    assert measuring.kept_calibration() == Calibration({})
    calibration = Calibration({"call": Boundary(1e-9)}, "here")
    measuring.keep(calibration)
    assert measuring.kept_calibration() == calibration


def test_what_a_batch_costs_is_kept(tmp_path: Path) -> None:
    calibration = Calibration({}, "here", BatchTime(0.25, 0.125))
    calibration.save(tmp_path / "kept.json")
    assert Calibration.load(tmp_path / "kept.json") == calibration
    assert calibration.batch_time.seconds(shuffles=3) == 0.625
    older = '{"penstock_calibration": 1, "machine": "", "boundaries": {}}'
    assert Calibration.from_json(older).batch is None
    assert Calibration.from_json(older).batch_time == DEFAULT_BATCH


@pytest.mark.parametrize("seed", SEEDS)
def test_a_batch_costs_more_with_every_shuffle_and_never_less_than_nothing(seed: int) -> None:
    rng = random.Random(seed)
    base, shuffle = rng.uniform(0, 1), rng.uniform(0, 1)
    found = BatchTime.fitted({number: base + number * shuffle for number in range(3)})
    assert (found.base, found.shuffle) == pytest.approx((base, shuffle))
    noisy = BatchTime.fitted({number: rng.uniform(0, 1) for number in range(3)})
    assert noisy.base >= 0
    assert noisy.shuffle >= 0
    assert BatchTime.fitted({1: 0.5}) == BatchTime(0.5)


def test_spark_stays_known_when_only_the_rest_is_measured_again(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path))
    measuring.keep(Calibration({"port": Boundary(1e-6), "shuffle": Boundary(2e-6)}, "here", BatchTime(0.3)))
    measuring.keep(Calibration({"port": Boundary(5e-6)}, "here"))
    kept = measuring.kept_calibration()
    assert kept == Calibration({"port": Boundary(5e-6), "shuffle": Boundary(2e-6)}, "here", BatchTime(0.3))
    measuring.keep(Calibration({"port": Boundary(6e-6)}, "elsewhere"))
    assert measuring.kept_calibration() == Calibration({"port": Boundary(6e-6)}, "elsewhere")
    (tmp_path / "penstock" / "calibration.json").write_text("{")
    measuring.keep(Calibration({"port": Boundary(7e-6)}, "here"))
    assert measuring.kept_calibration()["port"].delta == 7e-6


@pytest.mark.parametrize(
    "text",
    [
        "",
        "[]",
        "{}",
        '{"penstock_calibration": 9}',
        '{"penstock_calibration": 1, "machine": "", "boundaries": {"port": {"delta": -1, "cp": 0}}}',
        '{"penstock_calibration": 1, "machine": "", "boundaries": {"door": {"delta": 1, "cp": 0}}}',
        '{"penstock_calibration": 1, "machine": "", "boundaries": {}, "batch": {"base": -1}}',
        '{"penstock_calibration": 1, "machine": "", "boundaries": {}, "batch": 3}',
    ],
)
def test_what_is_no_calibration_is_refused(text: str) -> None:
    with pytest.raises(PenstockError):
        Calibration.from_json(text)


def test_measuring_fills_the_table() -> None:
    told: list[str] = []
    found = measuring.calibrate(tuples=500, rounds=1, tell=told.append)
    assert told == ["boundary: call", "boundary: port", "boundary: process"]
    assert set(found.boundaries) == {"call", "port", "process"}
    assert found["port"].keyed_cp >= found["port"].cp
    assert found.machine
    with pytest.raises(PlatformError, match="tuples"):
        measuring.calibrate(tuples=0)
