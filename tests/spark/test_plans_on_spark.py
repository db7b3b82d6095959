"""Runs on Spark by plans of the optimizer: pipelines inside a stage, restarts, given plans, model and measurement."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
from click.testing import CliRunner

import penstock as pn
from penstock.cli.main import FAILED, cli
from penstock.compiler.stage_plan import SparkPlan
from penstock.optimizer.profile import OperatorProfile, Profile

pytestmark = pytest.mark.usefixtures("spark_session")

SMALL = {"penstock.item.tuples": "2000", "penstock.batch.items": "2"}


def _flow(invert: Any = lambda n: n) -> tuple[pn.Flow, Any]:
    """Everything behind the first total is one stage with one channel, and has state at both of its ends."""
    flow = pn.Flow("single")
    totals = flow.source(list(range(12_000)), name="in").scan(lambda s, n: (s + n, s + n), init=0, name="total")
    worked = totals.map_batch(lambda ns: [n % 1009 for n in ns], name="work").map(invert, name="invert")
    windows = worked.window(pn.sliding(count=5, every=3)).apply(sum, name="windows")
    return flow, windows.scan(lambda s, n: (s + 1, (s, n)), init=0, name="number").collect(name="out")


def _profile(flow: pn.Flow) -> Profile:
    costs = {"in": 1e-7, "total": 2e-5, "work": 3e-5, "invert": 1e-6, "windows": 1e-6, "number": 1e-6, "out": 1e-7}
    return Profile(flow.name, {name: OperatorProfile(cost, 1.0, 100) for name, cost in costs.items()})


def _expected() -> list[Any]:
    flow, out = _flow()
    pn.run(flow, on="local")
    return list(out)


def _plan(flow: pn.Flow) -> SparkPlan:
    plan = pn.plan(flow, on="spark", cores=2, profile=_profile(flow))
    assert isinstance(plan, SparkPlan)
    assert len(plan.layout.groups[1].pipelines) > 1
    return plan


def test_a_stage_of_several_pipelines_delivers_what_one_thread_delivers() -> None:
    flow, out = _flow()
    job = pn.run(flow, on="spark", profile=_profile(flow), conf=SMALL)
    assert isinstance(job.plan, SparkPlan)
    assert len(job.plan.layout.groups[1].pipelines) > 1
    assert job.metrics().batches > 1
    assert out == _expected()
    flow, out = _flow()
    plan = pn.Plan.from_json(_plan(flow).to_json(), flow)
    pn.run(flow, on="spark", plan=plan)
    assert out == _expected()


def test_a_stage_of_several_pipelines_goes_on_after_an_error(tmp_path: Path) -> None:
    flow, out = _flow(lambda n: 1 // (n - 17) * 0 + n)
    with pytest.raises(pn.OperatorError, match="'invert'") as caught:
        pn.run(flow, on="spark", plan=_plan(flow), checkpoint=tmp_path / "c", conf=SMALL)
    assert isinstance(caught.value.__cause__, ZeroDivisionError)
    assert len(out) < len(_expected())
    flow, out = _flow()
    pn.run(flow, on="spark", plan=_plan(flow), checkpoint=tmp_path / "c", conf=SMALL)
    assert out == _expected()


def test_a_checkpoint_keeps_its_channels_whatever_the_plan(tmp_path: Path) -> None:
    def flow_with(invert: Any) -> tuple[pn.Flow, Any]:
        flow = pn.Flow("keyed")
        numbers = flow.source(list(range(300)), name="in").map(invert, name="invert")
        return flow, numbers.key_by(lambda n: n % 7).scan(lambda s, n: (s + n, s + n), init=0, name="sum").collect()

    def plan(flow: pn.Flow, cost: float) -> pn.Plan:
        costs = {"in": 1e-5, "invert": 1e-5, "sum": cost, "collect": 1e-9}
        profile = Profile("keyed", {name: OperatorProfile(cost, 1.0, 9) for name, cost in costs.items()})
        return pn.plan(flow, on="spark", cores=2, profile=profile)

    conf = {"penstock.item.tuples": "40", "penstock.batch.items": "2"}
    flow, _ = flow_with(lambda n: 1 // (n - 200) * 0 + n)
    with pytest.raises(pn.OperatorError):
        pn.run(flow, plan=plan(flow, 1e-4), checkpoint=tmp_path / "c", conf=conf)
    flow, out = flow_with(lambda n: n)
    job = pn.run(flow, plan=plan(flow, 1e-9), checkpoint=tmp_path / "c", conf=conf)
    assert plan(flow, 1e-9).widths == [2, 1]  # type: ignore[attr-defined]
    assert job.plan.widths == [2, 2]  # type: ignore[attr-defined]
    flow, expected = flow_with(lambda n: n)
    pn.run(flow, on="local")
    assert out == expected


def test_plans_that_are_not_for_this_are_refused() -> None:
    flow, _ = _flow()
    other = pn.Flow("other")
    other.source([1]).scan(lambda s, n: (s, n), init=0).collect()
    for plan, reason in (
        (pn.plan(flow), "made for on='local'"),
        (pn.plan(other, on="spark"), "made for flow 'other'"),
    ):
        with pytest.raises(pn.PlatformError, match=reason):
            pn.run(flow, on="spark", plan=plan)
    with pytest.raises(pn.PlatformError, match="leave profile= out"):
        pn.run(flow, on="spark", plan=_plan(flow), profile=_profile(flow))
    with pytest.raises(pn.PlatformError, match=r"profile= must be a pn\.Profile, not"):
        pn.run(flow, on="spark", profile=True)


PROGRAM = """
import penstock as pn
flow = pn.Flow('squares')
total = flow.source(range(9000), name='numbers').scan(lambda s, n: (s + n, s + n), init=0, name='total')
total.map_batch(lambda ns: [n * n for n in ns], name='square').filter(lambda n: n % 1000 == 1).sink(print, name='out')
"""


def test_the_command_shows_the_model_beside_what_was_measured(tmp_path: Path) -> None:
    program, plan, local = tmp_path / "program.py", tmp_path / "plan.json", tmp_path / "local.json"
    program.write_text(PROGRAM)
    call = CliRunner().invoke
    costs = {"numbers": 1e-7, "total": 2e-5, "square": 3e-5, "filter": 1e-7, "out": 1e-7}
    profile = Profile("squares", {name: OperatorProfile(cost, 1.0, 9) for name, cost in costs.items()})
    profile.save(tmp_path / "profile.json")
    planned = ["plan", str(program), "--profile-from", str(tmp_path / "profile.json"), "--cores", "2"]
    plan.write_text(call(cli, [*planned, "--on", "spark", "--json"]).stdout)
    local.write_text(call(cli, [*planned, "--json"]).stdout)
    refused = call(cli, ["run", str(program), "--plan-from", str(local)])
    assert refused.exit_code == FAILED
    assert "made for on='local'" in " ".join(refused.stderr.split())
    done = call(cli, ["run", str(program), "--plan-from", str(plan), "--plan", "--operators"])
    assert done.exit_code == 0, done.stderr
    assert "a thread of its own from here on" in done.stdout
    assert "expected: " in done.stdout
    (both,) = [line for line in done.stderr.splitlines() if "throughput in batches" in line]
    assert "model " in both
    assert "measured " in both
    assert both.count("tuples/s") == 2
    assert "9,000 tuples in 1 batch" in done.stderr
    assert "start-up is left out" in done.stderr
