"""PEs in plans: divided by load and traffic, with what the user said; as text, JSON and picture."""

from __future__ import annotations

import json
from dataclasses import replace

import pytest

import penstock as pn
from penstock.compiler.pes import plan_pes
from penstock.compiler.plan import Plan
from penstock.compiler.weights import SIZE, weigh
from penstock.optimizer.profile import OperatorProfile, Profile
from tests.compiler.programs import random_program


def flow_of_five() -> pn.Flow:
    flow = pn.Flow("five")
    stream = flow.source([1, 2], name="in").map(abs, name="a")
    with flow.exlocate("far"):
        stream = stream.map(abs, name="b")
    with flow.colocate("near"):
        stream = stream.map(abs, name="c")
    with flow.exlocate("far"), flow.colocate("near"):
        stream = stream.map(abs, name="d")
    stream.collect(name="out")
    return flow


def test_what_the_user_said_holds_and_is_the_reason() -> None:
    plan = pn.plan(flow_of_five(), pes=2)
    names = [[plan.program.nodes[index].name for index in pe.nodes] for pe in plan.pes]
    assert [{"b"} <= set(pe) for pe in names] == [True, False]
    assert {"c", "d"} <= set(names[1])
    assert "exlocate('far') keeps it apart from PE 2" in plan.pes[0].reason
    assert plan.pes[1].reason.endswith("colocate('near') keeps c and d together")
    assert sum(pe.load for pe in plan.pes) == pytest.approx(1)


def test_what_is_between_colocated_operators_is_the_reason_why_it_is_with_them() -> None:
    flow = pn.Flow("between")
    with flow.colocate("near"):
        stream = flow.source([1], name="first")
    stream = stream.map(abs, name="between")
    with flow.colocate("near"):
        stream = stream.map(abs, name="second")
    stream.collect(name="out")
    plan = pn.plan(flow, pes=2)
    assert [pe.nodes for pe in plan.pes] == [(0, 1, 2), (3,)]
    assert plan.pes[0].reason == "colocate('near') keeps first and second together, and what is between them: between"


def test_too_few_pes_and_contradictions_are_errors_that_name_what_was_said() -> None:
    with pytest.raises(pn.FlowError, match=r"exlocate\('far'\) need 2 PEs, more than the 1 asked for"):
        pn.plan(flow_of_five(), pes=1)
    flow = pn.Flow("chain")
    stream = flow.source([1], name="in")
    with flow.isolate():
        stream = stream.map(abs, name="alone")
    stream.collect(name="out")
    with pytest.raises(pn.FlowError, match=r"isolate\(\) need 3 PEs, .* 'in' .*, one with operator 'alone' .* circle"):
        pn.plan(flow, pes=2)
    flow = pn.Flow("contradiction")
    with flow.exlocate("x"), flow.colocate("y"):
        flow.source([1], name="in").map(abs, name="one").collect(name="out")
    with pytest.raises(pn.FlowError, match=r"colocate\('y'\) and exlocate\('x'\) contradict"):
        pn.plan(flow, pes=2)
    for wrong in (0, True, "two"):
        with pytest.raises(pn.PlatformError, match="pes must be"):
            pn.plan(flow_of_five(), pes=wrong)  # type: ignore[arg-type]
    with pytest.raises(pn.PlatformError, match="for on='local'"):
        pn.plan(flow_of_five(), pes=2, on="spark")


@pytest.mark.parametrize("seed", range(30))
def test_every_operator_has_one_pe_and_more_pes_never_load_the_busiest_more(seed: int) -> None:
    graph, weights = random_program(seed)
    before = 1.0 + 1e-9
    for count in (1, 2, 4):
        pes = plan_pes(graph, weights, count)
        assert sorted(index for pe in pes for index in pe.nodes) == list(range(len(graph)))
        assert len(pes) <= count
        assert max(pe.load for pe in pes) <= before * 1.3
        before = max(pe.load for pe in pes)


def test_the_profile_decides_where_to_cut() -> None:
    flow = pn.Flow("costs")
    flow.source([1], name="in").flat_map(lambda n: [n] * 9, name="many").filter(bool, name="few").collect(name="out")
    costs = {"in": (2.5e-6, 1), "many": (1e-6, 9), "few": (2e-7, 0.01), "out": (1e-5, 1)}
    profile = Profile("costs", {name: OperatorProfile(cost, share, 9) for name, (cost, share) in costs.items()})
    first, second = pn.plan(flow, profile=profile, pes=2, cores=2).pes
    assert (first.nodes, second.nodes) == ((0,), (1, 2, 3))  # nine tuples go from one to the other
    assert (first.sends, first.guessed) == (SIZE, True)
    assert (second.sends, second.guessed) == (0, False)
    assert "unknown size counts as 64 bytes" in str(pn.plan(flow, profile=profile, pes=2))
    # Where those nine are tiny, and what the source sends is not, even loads are worth it.
    sizes = {"in": 5000.0, "many": 2.0, "few": 2.0}
    known = {name: replace(one, size=sizes.get(name)) for name, one in profile.operators.items()}
    plan = pn.plan(flow, profile=Profile("costs", known), pes=2, cores=2)
    assert [pe.nodes for pe in plan.pes] == [(0, 1), (2, 3)]
    assert (plan.pes[0].sends, plan.pes[0].guessed) == (18, False)
    assert "18 bytes per source tuple between them\n" in str(plan)


def test_pes_as_json_text_and_picture() -> None:
    flow = flow_of_five()
    plan = pn.plan(flow, pes=3)
    again = Plan.from_json(plan.to_json(), flow)
    assert again.pes == plan.pes
    assert str(again) == str(plan)
    assert "PE 1: " in str(plan)
    assert "of the load" in str(plan)
    assert plan.picture().count('class="pe"') == len(plan.pes)
    assert pn.plan(flow).pes == ()
    assert pn.plan(flow).picture().count('class="pe"') == 1
    data = json.loads(plan.to_json())
    data["pes"][0]["operators"].pop()
    with pytest.raises(pn.PenstockError, match="each operator must be in one PE"):
        Plan.from_json(json.dumps(data), flow)


def test_several_pes_do_not_run_yet() -> None:
    flow = flow_of_five()
    with pytest.raises(pn.PlatformError, match="cannot run yet"):
        pn.run(flow, on="local", plan=pn.plan(flow, pes=2))
    with pytest.raises(pn.PlatformError, match="cannot run yet"):
        pn.run(flow, on="local", pes=2)


def test_nothing_to_divide() -> None:
    flow = pn.Flow("free")
    flow.source([1], name="in").collect(name="out")
    profile = Profile("free", {name: OperatorProfile(0.0, 1.0, 1) for name in ("in", "out")})
    graph = flow.graph()
    (only,) = plan_pes(graph, weigh(graph, profile), 4)
    assert (only.load, only.reason) == (0.0, "nothing asks for another")
