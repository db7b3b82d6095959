"""Calibration: the equations give back the costs that throughputs were made of, and measuring gives a whole table."""

from __future__ import annotations

import math
import random
from pathlib import Path

import pytest

from penstock.errors import PenstockError, PlatformError
from penstock.optimizer import Boundary, Calibration, Config, Op, Region, evaluate, replication_cost, switching_cost
from penstock.optimizer.calibrate import DEFAULTS, KINDS
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
    with pytest.raises(ValueError, match="keyed_cp"):
        Boundary(1e-6, 2e-6, -3.0)


def test_the_users_cache_is_read(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path))
    assert measuring.kept_calibration() == Calibration({})
    calibration = Calibration({"call": Boundary(1e-9)}, "here")
    measuring.keep(calibration)
    assert measuring.kept_calibration() == calibration


@pytest.mark.parametrize(
    "text",
    [
        "",
        "[]",
        "{}",
        '{"penstock_calibration": 9}',
        '{"penstock_calibration": 1, "machine": "", "boundaries": {"port": {"delta": -1, "cp": 0}}}',
        '{"penstock_calibration": 1, "machine": "", "boundaries": {"door": {"delta": 1, "cp": 0}}}',
    ],
)
def test_what_is_no_calibration_is_refused(text: str) -> None:
    with pytest.raises(PenstockError):
        Calibration.from_json(text)


def test_measuring_fills_the_table() -> None:
    found = measuring.calibrate(tuples=500, rounds=1)
    assert set(found.boundaries) == {"call", "port", "process"}
    assert found["port"].keyed_cp >= found["port"].cp
    assert found.machine
    with pytest.raises(PlatformError, match="tuples"):
        measuring.calibrate(tuples=0)
