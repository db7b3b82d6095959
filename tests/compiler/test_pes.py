"""PEs in plans: divided by load and traffic, with what the user said, and what to expect of them; as text, JSON and
picture.
"""

from __future__ import annotations

import json
import math
import random
from dataclasses import replace

import pytest

import penstock as pn
from penstock.compiler.pe_layout import cut_at_pes
from penstock.compiler.pes import homes_of, plan_pes
from penstock.compiler.physical import Expected, Group, Physical, arrange
from penstock.compiler.plan import Plan
from penstock.compiler.planner import held_shares, with_keys
from penstock.compiler.weights import SIZE, Weights, weigh
from penstock.graph.graph import Graph
from penstock.optimizer.calibrate import Boundary, Calibration
from penstock.optimizer.profile import OperatorProfile, Profile
from tests.compiler.programs import random_program
from tests.random_graphs import build


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


# -------------------------------------------------------------------------------------------------- what is expected


def chain_of_four() -> tuple[pn.Flow, Profile]:
    flow = pn.Flow("four")
    flow.source([1], name="in").map(abs, name="a").filter(bool, name="b").collect(name="out")
    costs = {"in": (2e-6, 1.0), "a": (4e-6, 1.0), "b": (5e-6, 0.5), "out": (1e-6, 1.0)}
    return flow, Profile("four", {name: OperatorProfile(cost, share, 9) for name, (cost, share) in costs.items()})


CALIBRATION = Calibration({"port": Boundary(0.1e-6, 0.2e-6), "process": Boundary(1e-6)})


def planned(pes: int, cores: int, gil: bool = True) -> Plan:
    flow, profile = chain_of_four()
    return pn.plan(flow, profile=profile, pes=pes, cores=cores, gil=gil, calibration=CALIBRATION)


def expected_of(plan: Plan) -> Expected:
    assert plan.physical is not None
    assert plan.physical.expected is not None
    return plan.physical.expected


def test_each_pe_has_a_gil_of_its_own() -> None:
    one, two = expected_of(planned(1, 4)), expected_of(planned(2, 4))
    assert one.throughput == pytest.approx(1 / 11.5e-6)
    assert one.pe_times == ()
    # (in, a) and (b, out), with a hand-over of 1 µs on each side.
    assert two.pe_times == pytest.approx((7e-6, 6.5e-6))
    assert two.throughput == pytest.approx(1 / 7e-6)
    assert (two.limit, two.slowest_pe) == ("gil", 0)
    assert two.busy == pytest.approx(13.5 / 7)


def test_pes_share_the_cores() -> None:
    expected = expected_of(planned(2, 1))
    assert expected.limit == "cores"
    assert expected.throughput == pytest.approx(1 / 13.5e-6)  # slower than one PE: handing over costs


def test_without_a_gil_the_slowest_region_rules() -> None:
    expected = expected_of(planned(2, 16, gil=False))
    assert expected.limit == "region"
    assert max(expected.pe_times) == pytest.approx(max(expected.times)) == pytest.approx(1 / expected.throughput)


def by_hand(graph: Graph, physical: Physical, weights: Weights, held: list[float], home: tuple[int, ...]) -> float:
    """The throughput of a layout in PEs, one operator and one link at a time."""
    machine = physical.machine
    group_of = {
        i: (g, p) for g, group in enumerate(physical.groups) for p, line in enumerate(group.pipelines) for i in line
    }
    shared = dict.fromkeys(group_of.values(), 0.0)  # work of a pipeline, which its copies share
    whole = dict.fromkeys(range(len(physical.groups)), 0.0)  # work at the ends of a region
    python = dict.fromkeys(home, 0.0)
    for node in graph:
        shared[group_of[node.index]] += weights.load[node.index]
        python[home[node.index]] += weights.load[node.index] * held[node.index]
    for (source, target), tuples in weights.tuples.items():
        for end in (source, target):
            if group_of[source][0] != group_of[target][0]:
                price = tuples * (machine.delta if home[source] == home[target] else machine.pe_delta)
                whole[group_of[end][0]] += price
            elif group_of[source] != group_of[target]:
                price = tuples * machine.delta
                shared[group_of[end]] += price
            else:
                continue
            python[home[end]] += price
    for number, group in enumerate(physical.groups):
        price = weights.arrivals[group.entry] * (machine.keyed_cp if group.key else machine.cp) * math.log2(group.width)
        whole[number] += price
        python[home[group.entry]] += price
    times = [
        whole[number] + max(shared[number, line] for line in range(len(group.pipelines))) / group.width
        for number, group in enumerate(physical.groups)
    ]
    work = sum(shared.values()) + sum(whole.values())
    busy = {place: time + (whole[place[0]] if place[1] == 0 else 0) for place, time in shared.items()}
    threads = [busy[g, p] / group.width for g, p in busy for group in [physical.groups[g]] for _ in range(group.width)]
    count = work**2 / sum(time**2 for time in threads)
    idle = machine.crowding * max(0, 1 - machine.cores / count) if machine.cores > 1 else 0
    return 1 / max(*times, work * (1 + idle) / machine.cores, *(python.values() if machine.gil else ()))


@pytest.mark.parametrize("seed", range(60))
def test_plans_of_any_graph(seed: int) -> None:
    rng = random.Random(seed)
    flow, _ = build(rng.randrange, [5] * rng.randint(1, 2), rng.randint(2, 12))
    graph = flow.graph()
    operators = {
        node.name: OperatorProfile(
            rng.uniform(1e-7, 2e-5), rng.uniform(0, 2), 9, rng.choice([None, 0.9]), rng.choice([None, 9.0])
        )
        for node in graph
    }
    profile = Profile(graph.name, operators)
    plan = pn.plan(
        flow, profile=profile, pes=rng.randint(2, 5), cores=rng.randint(1, 8), gil=seed % 3 > 0, calibration=CALIBRATION
    )
    assert plan.physical is not None
    home = homes_of(plan.pes)
    if not home:
        return
    for group in plan.physical.groups:
        assert len({home[index] for index in group.nodes}) == 1
    weights = weigh(graph, profile)
    expected = expected_of(plan)
    wanted = by_hand(graph, plan.physical, weights, held_shares(graph, profile), home)
    assert expected.throughput == pytest.approx(wanted)
    assert expected.throughput <= (1 + 1e-9) / max(expected.pe_times)
    again = Plan.from_json(plan.to_json(), flow)
    assert (str(again), again.physical, again.pes) == (str(plan), plan.physical, plan.pes)
    assert again.picture() == plan.picture()


def test_a_region_that_pes_part_is_replicated_in_each() -> None:
    flow = pn.Flow("region")
    stream = flow.source([{"k": 1}], name="in")
    with flow.parallel(width=3):
        stream = stream.filter(bool, name="a").key_by("k").scan(lambda n, t: (n, t), init=0, name="b")
    stream.collect(name="out")
    costs = {"in": 1e-7, "a": 2e-5, "b": 2e-5, "out": 1e-7}
    profile = Profile("region", {name: OperatorProfile(cost, 1.0, 9) for name, cost in costs.items()})
    one = pn.plan(flow, profile=profile, pes=1, cores=8).physical
    two = pn.plan(flow, profile=profile, pes=2, cores=8).physical
    assert one is not None
    assert two is not None
    assert [(group.nodes, group.width, group.key) for group in one.groups if group.width > 1] == [((1, 2), 3, "k")]
    copies = [(group.nodes, group.width, group.key) for group in two.groups if group.width > 1]
    assert copies == [((1,), 3, ""), ((2,), 3, "k")]


def test_what_pes_part_may_need_several_splits() -> None:
    flow = pn.Flow("region")
    stream = flow.source([{"k": 1}], name="in")
    with flow.parallel(width=3, by="k"):
        stream = stream.map(dict, name="a").map(dict, name="b")
        stream = stream.key_by("k").scan(lambda n, t: (n, t), init=0, name="c").map(dict, name="d")
    stream.collect(name="out")
    graph = flow.graph()
    groups = [Group(((0,),)), Group(((1, 2), (3, 4)), 3), Group(((5,),))]
    cut = with_keys(graph, cut_at_pes(graph, groups, [0, 0, 1, 1, 1, 1]))
    assert [(group.pipelines, group.width, group.key) for group in cut if group.width > 1] == [
        (((1,),), 3, "k"),
        (((2,),), 3, ""),
        (((3, 4),), 3, "k"),
    ]
    arrange(graph, cut)


def test_what_is_expected_is_in_text_json_and_picture() -> None:
    plan = planned(2, 4)
    text = str(plan)
    assert "PE 1:  52% of the load, sends 64 bytes, up to 143 k tuples/s: in, a" in text
    assert "held back by the GIL of PE 1" in text
    assert "PE 2, 1 thread" in text
    assert "to another PE 1 µs" in text
    data = json.loads(plan.to_json())
    assert data["layout"]["expected"]["pe_times"] == pytest.approx([7e-6, 6.5e-6])
    picture = plan.picture()
    assert "PE 1: 52%, ≤ 143 k tuples/s" in picture
    assert "held back by the GIL of PE 1" in picture
    assert picture.count('class="pe slow"') == picture.count('class="pe"') == 1


def test_plans_that_were_kept_before_there_were_sizes_are_read() -> None:
    flow, _ = chain_of_four()
    data = json.loads(planned(2, 4).to_json())
    for pe in data["pes"]:
        del pe["guessed"]
    del data["layout"]["expected"]["pe_times"]
    del data["layout"]["machine"]["pe_delta"]
    plan = Plan.from_json(json.dumps(data), flow)
    assert expected_of(plan).pe_times == ()
    assert "held back by the GIL: " in str(plan)
    assert "up to" not in str(plan)
    assert plan.picture().count('class="pe"') == 2
    del data["pes"]
    assert Plan.from_json(json.dumps(data), flow).pes == ()


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
