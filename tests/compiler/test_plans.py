"""Plans by a profile: the model they follow, their text, JSON and picture, and that any of them gives the same output.

Snapshots are written anew by `python -m tests.compiler.test_plans`.
"""

from __future__ import annotations

import json
import random
import sys
import xml.etree.ElementTree as ET
from dataclasses import replace
from itertools import pairwise
from pathlib import Path
from typing import Any

import pytest

import penstock as pn
from penstock.compiler.fission import why_single
from penstock.compiler.layout_text import layout_lines
from penstock.compiler.physical import CROWDING, Group, Machine, Physical, arrange, expect
from penstock.compiler.planner import decide, with_keys
from penstock.compiler.regions import as_op_graph, find_regions, part_of
from penstock.compiler.weights import weigh
from penstock.errors import FlowError
from penstock.graph.graph import Graph
from penstock.optimizer import Config, Region, evaluate, optimal
from penstock.optimizer.graphs import optimal_graph
from penstock.optimizer.profile import OperatorProfile, Profile
from penstock.runtime.pe import PE, Threading
from tests.compiler.programs import random_program
from tests.interpreter import Interpreter
from tests.random_graphs import build
from tests.runtime.test_random_schedules import check
from tests.thorough import blocks

SNAPSHOTS = Path(__file__).parent / "snapshots"
EXAMPLES = ["cdr", "logwatch", "packets", "vwap", "wikiwords", "wordcount"]


# ---------------------------------------------------------------------------------------------------------- programs


def random_chain(rng: random.Random) -> tuple[pn.Flow, Any]:
    """A chain of all kinds of operators on numbers."""
    flow = pn.Flow("chain")
    stream: Any = flow.source(range(rng.randint(0, 3000)))
    for _ in range(rng.randint(1, 8)):
        step = rng.randrange(7)
        if step == 0:
            stream = stream.map(lambda n: n + 1)
        elif step == 1:
            stream = stream.filter(lambda n: n % 3)
        elif step == 2:
            stream = stream.flat_map(lambda n: [n, -n] if n % 2 else [])
        elif step == 3:
            stream = stream.map_batch(lambda ns: [n * 2 for n in ns])
        elif step == 4:
            stream = stream.key_by(lambda n: n % 13).scan(lambda total, n: (total + n, total + n), init=0)
        elif step == 5:
            stream = stream.scan(lambda total, n: (total + 1, n + total), init=0)
        else:
            stream = stream.key_by(lambda n: n % 5).window(pn.tumbling(count=3)).apply(lambda key, ns: sum(ns))
    return flow, stream.collect()


def random_layout(graph: Graph, rng: random.Random) -> list[Group]:
    """Any layout of a chain: cut anywhere, and replicated wherever that is allowed."""
    cuts = sorted({0, len(graph), *(i for i in range(1, len(graph)) if rng.random() < 0.6)})
    groups: list[Group] = []
    for start, stop in pairwise(cuts):
        run = list(graph.topological[start:stop])
        width = rng.randint(2, 4)
        try:
            allowed = why_single(graph, part_of(graph, run)) is None
        except FlowError:
            allowed = False
        inner = sorted({0, len(run), *(i for i in range(1, len(run)) if rng.random() < 0.3)})
        lines = tuple(tuple(run[a:b]) for a, b in pairwise(inner))
        groups.append(Group(lines, width if allowed and rng.random() < 0.8 else 1))
    return groups


def random_profile(graph: Graph, rng: random.Random) -> Profile:
    operators = {
        node.name: OperatorProfile(rng.choice([0.0, 1e-6, rng.uniform(0, 5e-5)]), rng.uniform(0, 2), 10)
        for node in graph
    }
    return Profile(graph.name, operators)


# ------------------------------------------------------------------------------------------------------- same output


@pytest.mark.parametrize("block", blocks(3, 6))
def test_any_plan_of_a_chain_delivers_the_same(block: int) -> None:
    replicated = 0
    for number in range(block * 15, block * 15 + 15):
        rng = random.Random(number)
        flow, out = random_chain(rng)
        pn.run(flow, on="local")
        expected = list(out)
        layout = random_layout(flow.graph(), rng)
        replicated += any(group.width > 1 for group in layout)
        job = pn.run(flow, on="local", plan=_with(pn.plan(flow), layout))
        assert out == expected, number
        assert str(job.plan)
    assert replicated > 4


def _with(plan: pn.Plan, layout: list[Group]) -> pn.Plan:
    return replace(plan, physical=Physical(tuple(layout), Machine(2, 0.0, 0.0)))


@pytest.mark.parametrize("block", blocks(3, 6))
def test_the_plan_of_any_graph_delivers_the_same(block: int) -> None:
    parallel = 0
    for number in range(block * 10, block * 10 + 10):
        rng = random.Random(number)
        flow, sinks = build(rng.randrange, [rng.randrange(1500) for _ in range(rng.randint(1, 2))], rng.randint(2, 12))
        graph = flow.graph()
        machine = Machine(rng.randint(2, 8), rng.choice([0.0, 1e-7]), rng.choice([0.0, 1e-7]))
        physical = decide(graph, random_profile(graph, rng), machine)
        parallel += physical.threads > sum(node.is_source for node in graph)
        pe = PE(graph, threading_=Threading(), replicated=arrange(graph, physical.groups))
        pe.start()
        assert pe.wait(60), f"graph {number} does not end"
        check(sinks, Interpreter(graph).run())
    assert parallel > 3


def _flow_of_all_kinds() -> pn.Flow:
    flow = pn.Flow("kinds")
    events = flow.source([{"host": "a"}], name="in").map(dict, name="parse").filter(bool, name="some")
    counted = events.key_by("host").scan(lambda n, e: (n + 1, n), init=0, name="count").map(str, name="text")
    counted.collect(name="counts")
    events.scan(lambda n, e: (n + 1, n), init=0, name="total").collect(name="totals")
    with flow.parallel(width=3):
        worked = events.map_batch(list, name="work")
    worked.collect(name="out")
    return flow


def _layout(plan: pn.Plan) -> list[str]:
    """The part of a plan's text that explains its regions."""
    parts = str(plan).split("\n\n")
    return next(part for part in parts if part.startswith("without a profile")).splitlines()


def test_a_plan_without_a_profile_explains_what_needs_none() -> None:
    flow = _flow_of_all_kinds()
    assert _layout(pn.plan(flow, cores=8))[:-1] == [
        (
            "without a profile: 1 PE, 1 source thread and 4 dedicated threads, one copy of each operator but where "
            "parallel() asks for more"
        ),
        "  region 1:  1 copy    may have more, dealt in turn           parse, some",
        "  region 2:  1 copy    may have more, split by host           count, text",
        "  region 3:  3 copies  as parallel() asks for, dealt in turn  work",
        "  total cannot be replicated: it keeps state over the whole stream",
    ]
    call = "pn.plan(flow, cores=8, profile=pn.profile(flow))"
    command = "penstock plan --cores 8 --profile"
    assert _layout(pn.plan(flow, cores=8))[-1] == f"  (to choose copies and threads by costs: {call}, or {command})"
    assert "1 source thread and " in _layout(pn.plan(flow, threading="dynamic"))[0]
    assert "scheduler" in _layout(pn.plan(flow, threading="dynamic"))[0]
    assert "pn.plan(flow, profile=pn.profile(flow))" in _layout(pn.plan(flow))[-1]
    assert not any("without a profile" in line for line in str(pn.plan(flow, profile=Profile("none"))).splitlines())


def test_a_plan_without_a_profile_names_all_that_stand_alone() -> None:
    flow = pn.Flow("alone")
    left = flow.source([1], name="left").scan(lambda n, t: (n, t), init=0, name="one")
    right = flow.source([1], name="right").scan(lambda n, t: (n, t), init=0, name="two")
    keyed = left.key_by(abs).join(right.key_by(abs), window=pn.sliding(count=1), name="both")
    keyed.collect(name="out")
    first, *lines = _layout(pn.plan(flow))
    assert first == "without a profile: 1 PE, 2 threads, one copy of each operator"
    assert lines[:-1] == [
        "  one, two cannot be replicated: it keeps state over the whole stream",
        "  both cannot be replicated: it has several inputs",
    ]
    empty = pn.Flow("empty")
    empty.source([1]).collect()
    assert "nothing to replicate but sources and sinks" in _layout(pn.plan(empty))[1]


def test_regions_of_a_plan_without_a_profile_end_with_their_pe() -> None:
    flow = pn.Flow("parted")
    numbers: Any = flow.source([1], name="in")
    for name in "abcd":
        numbers = numbers.map(abs, name=name)
    numbers.collect(name="out")
    first, *lines = _layout(pn.plan(flow, pes=2))
    assert first == "without a profile: 2 PEs, one copy of each operator"
    assert [line.split()[-1] for line in lines[:-1]] == ["b", "d"]
    assert [line.split(",")[0].split(":  ")[1] for line in lines[:-1]] == ["PE 1", "PE 2"]
    assert "pes=2" in lines[-1]


@pytest.mark.parametrize("on", ["local", "spark"])
def test_a_profile_of_another_program_is_refused(on: str) -> None:
    flow = _flow_of_all_kinds()
    profile = Profile("other", {f"op_{n}": OperatorProfile(1e-6, 1, 1) for n in range(7)})
    with pytest.raises(
        pn.PenstockError, match=r"of flow 'other', knows no operator of flow 'kinds': it has op_0, .* 2 more"
    ):
        pn.plan(flow, on=on, profile=profile)
    one = Profile("other", {**profile.operators, "total": OperatorProfile(1e-6, 1, 1)})
    assert pn.plan(flow, on=on, profile=one).physical is not None


@pytest.mark.parametrize("on", ["local", "spark"])
@pytest.mark.parametrize("pes", [None, 2])
def test_costs_beyond_all_measure_are_refused_or_nothing(on: str, pes: int | None) -> None:
    flow = _flow_of_all_kinds()
    options: dict[str, Any] = {"on": on, "cores": 4} | ({"pes": pes} if on == "local" else {})

    def planned(cost: float, selectivity: float) -> pn.Plan:
        names = [node.name for node in flow.graph()]
        profile = Profile("kinds", {name: OperatorProfile(cost, selectivity, 1) for name in names})
        return pn.plan(flow, profile=profile, **options)

    for cost, selectivity in ((1e308, 1.0), (1.0, 1e308), (1e308, 1e308), (1e-6, 1e60)):
        with pytest.raises(pn.PenstockError, match=r"operator '.*' .* cannot be planned for"):
            planned(cost, selectivity)
    for cost, selectivity in ((1e-6, 1e-200), (1e-320, 1.0), (1e-99, 1.0), (1e80, 1.0), (0.0, 1.0), (1e-320, 1e-320)):
        assert str(planned(cost, selectivity))


@pytest.mark.parametrize("on", ["local", "spark"])
@pytest.mark.parametrize("wrong", [0, -1, 2.5, "3", True])
def test_what_is_no_number_of_cores_is_refused(on: str, wrong: Any) -> None:
    for profile in (None, Profile("any")):
        with pytest.raises(pn.PlatformError, match="cores must be a number from 1"):
            pn.plan(_flow_of_all_kinds(), on=on, cores=wrong, profile=profile)


@pytest.mark.parametrize("model", ["manual", "dedicated", "dynamic"])
def test_a_plan_without_a_profile_runs_too(model: str) -> None:
    flow = pn.Flow("wished")
    numbers = flow.source(range(2000))
    with flow.parallel(width=3):
        numbers = numbers.map(lambda n: n * 2)
    out = numbers.scan(lambda total, n: (total + n, total + n), init=0).collect()
    plan = pn.plan(flow, threading=model)
    job = pn.run(flow, on="local", plan=pn.Plan.from_json(plan.to_json(), flow))
    assert out[-1] == 2 * sum(range(2000))
    assert job.plan.ports == plan.ports  # type: ignore[attr-defined]


def test_a_run_plans_by_the_profile_it_is_given() -> None:
    flow = pn.Flow("batches")
    out = (
        flow.source(range(3000), name="in").map_batch(lambda ns: [n * n for n in ns], name="batch").collect(name="out")
    )
    costs = {"in": 1e-7, "batch": 5e-5, "out": 1e-7}
    profile = Profile("batches", {name: OperatorProfile(cost, 1.0, 9) for name, cost in costs.items()})
    job = pn.run(flow, on="local", profile=profile)
    assert isinstance(job.plan, pn.Plan)
    assert job.plan.physical is not None
    assert out == [n * n for n in range(3000)]


def test_plans_of_other_programs_are_refused() -> None:
    one, other = pn.Flow("one"), pn.Flow("other")
    one.source([1]).map(abs, name="a").collect()
    other.source([1]).map(abs, name="b").collect()
    plan = pn.plan(one)
    with pytest.raises(pn.PlatformError, match="other operators"):
        pn.run(other, on="local", plan=plan)
    with pytest.raises(pn.PenstockError, match="other operators"):
        pn.Plan.from_json(plan.to_json(), other)
    with pytest.raises(pn.PlatformError, match="threading="):
        pn.run(one, on="local", plan=plan, threading="manual")
    profile = Profile("one")
    with pytest.raises(pn.PlatformError, match="cores"):
        pn.plan(one, profile=profile, cores=0)
    with pytest.raises(pn.PlatformError, match="threading="):
        pn.plan(one, profile=profile, threading="dynamic")
    with pytest.raises(pn.PlatformError, match="threading="):
        pn.plan(one, on="spark", threading="dynamic")
    with pytest.raises(pn.PlatformError, match="made for on='spark'"):
        pn.run(one, on="local", plan=pn.plan(one, on="spark"))
    with pytest.raises(pn.PlatformError, match="leave profile= out"):
        pn.run(one, on="local", plan=plan, profile=profile)


# --------------------------------------------------------------------------------------------------------- the model


@pytest.mark.parametrize("seed", range(60))
def test_on_a_chain_the_model_is_that_of_the_paper(seed: int) -> None:
    rng = random.Random(seed)
    flow, _ = random_chain(rng)
    graph = flow.graph()
    weights = weigh(graph, random_profile(graph, rng))
    graph_ops = as_op_graph(graph, find_regions(graph), weights)
    shares = {link.source: link.share for link in graph_ops.links}
    ops = [_with_selectivity(op, shares.get(i, 1.0)) for i, op in enumerate(graph_ops.ops)]
    cores, delta, cp = rng.randint(1, 6), rng.uniform(0, 1e-5), rng.uniform(0, 1e-5)
    for config in (optimal(ops, cores, delta, cp), _random_config(len(ops), rng)):
        groups = [
            Group(tuple(tuple(range(*line)) for line in region.pipelines), region.replicas) for region in config.regions
        ]
        expected = expect(groups, weights, Machine(cores, delta, cp))
        wanted = evaluate(ops, config, cores, delta, cp)
        if expected is None:
            assert wanted.utilization == 0
            continue
        assert expected.throughput == pytest.approx(wanted.throughput)
        assert max(expected.times) == pytest.approx(1 / wanted.unbounded)


def _with_selectivity(op: Any, share: float) -> Any:
    return replace(op, selectivity=share)


def _random_config(count: int, rng: random.Random) -> Config:
    cuts = sorted({0, count, *rng.sample(range(count), rng.randint(0, count))})
    ranges = list(pairwise(cuts))
    return Config([Region(rng.randint(1, 3), [line]) for line in ranges])


@pytest.mark.parametrize("seed", range(40))
def test_on_a_graph_the_model_is_that_of_the_search(seed: int) -> None:
    graph, weights = random_program(seed)
    machine = Machine(4, 0.05, 0.1)
    plan = optimal_graph(as_op_graph(graph, find_regions(graph), weights), 4, 0.05, 0.1)
    rank = {index: place for place, index in enumerate(graph.topological)}
    groups = [
        Group(
            tuple(
                tuple(sorted((i for members in chain.operators[a:b] for i in members), key=rank.__getitem__))
                for a, b in region.pipelines
            ),
            region.replicas,
        )
        for chain in plan.chains
        for region in chain.config.regions
    ]
    expected = expect(groups, weights, machine)
    assert expected is not None
    assert expected.throughput == pytest.approx(plan.throughput)


def test_threads_lose_time_where_more_are_busy_than_there_are_cores() -> None:
    flow = pn.Flow("busy")
    flow.source([1]).map(abs).map(abs).sink(print)
    weights = weigh(flow.graph())  # one second each
    four, two = [Group(((0,), (1,), (2,), (3,)))], [Group(((0, 1), (2, 3)))]
    for layout, cores, time in ((two, 2, 2.0), (four, 4, 1.0), (four, 8, 1.0), (four, 2, 2.2), (two, 1, 4.0)):
        expected = expect(layout, weights, Machine(cores, 0.0, 0.0, crowding=0.2))
        assert expected is not None
        assert 1 / expected.throughput == pytest.approx(time)
    light = replace(weights, load=(2.0, 2.0, 1e-6, 1e-6))
    expected = expect(four, light, Machine(2, 0.0, 0.0, crowding=0.2))
    assert expected is not None
    assert 1 / expected.throughput == pytest.approx(2.0, rel=1e-5)  # threads with next to nothing to do are not busy


def test_a_region_that_is_split_by_key_pays_the_price_of_that() -> None:
    flow = pn.Flow("keys")
    counted = flow.source([{"a": 1}], name="in").map(dict, name="plain").key_by("a")
    counted.scan(lambda n, t: (n + 1, t), init=0, name="keyed").collect(name="out")
    graph = flow.graph()
    weights = weigh(graph)
    machine = Machine(8, 0.01, 0.1, keyed_cp=0.3)
    layout = [Group(((0,),)), Group(((1,),), 2), Group(((2,),), 2), Group(((3,),))]
    dealt, split = with_keys(graph, layout)[1:3]
    assert (dealt.key, split.key) == ("", "a")
    expected = expect(with_keys(graph, layout), weights, machine)
    assert expected is not None
    assert expected.times[1:3] == pytest.approx([0.02 + 0.1 + 0.5, 0.02 + 0.3 + 0.5])
    costs = {"in": 1e-7, "plain": 1e-7, "keyed": 1e-6, "out": 1e-7}
    profile = Profile("keys", {name: OperatorProfile(cost, 1.0, 9) for name, cost in costs.items()})
    cheap = decide(graph, profile, Machine(8, 1e-9, 1e-9))
    dear = decide(graph, profile, Machine(8, 1e-9, 1e-9, keyed_cp=1e-6))
    assert max(group.width for group in cheap.groups) > 1
    assert all(group.width == 1 for group in dear.groups)


def _batches(cost: float, free: float | None = None) -> tuple[Graph, Profile]:
    flow = pn.Flow("batches")
    flow.source([1], name="in").map(abs, name="python").map_batch(list, name="batch").collect(name="out")
    operators = {"in": OperatorProfile(1e-7, 1.0, 9), "python": OperatorProfile(2e-6, 1.0, 9)}
    operators |= {"batch": OperatorProfile(cost, 1.0, 9, free), "out": OperatorProfile(1e-7, 1.0, 9)}
    return flow.graph(), Profile("batches", operators)


def test_the_gil_bounds_python_code_and_not_batches() -> None:
    graph, profile = _batches(2e-5)
    physical = decide(graph, profile, Machine(4, 1e-8, 1e-8, gil=True))
    (batch,) = [group for group in physical.groups if 2 in group.nodes]
    assert batch.width >= 3
    assert physical.expected is not None
    graph, profile = _batches(2e-5, free=0.0)
    physical = decide(graph, profile, Machine(4, 1e-8, 1e-8, gil=True))
    assert physical.threads == 1
    assert physical.expected is not None
    assert physical.expected.limit == "gil"
    assert physical.expected.throughput == pytest.approx(1 / 2.22e-5)
    assert decide(graph, profile, Machine(4, 1e-8, 1e-8)).expected.throughput > 1.5e5  # type: ignore[union-attr]


def test_threads_that_add_nothing_are_left_out() -> None:
    graph, profile = _batches(1e-9)
    slow = Profile("slow", {**profile.operators, "in": OperatorProfile(1e-4, 1.0, 9)})
    physical = decide(graph, slow, Machine(8, 1e-9, 1e-9))
    assert physical.threads <= 2
    assert physical.expected is not None
    assert physical.expected.limit == "region"


def _plan(flow: pn.Flow, cores: int = 8, **costs: float) -> pn.Plan:
    """The plan without a GIL, by costs in seconds; what is not named costs a microsecond."""
    operators = {node.name: OperatorProfile(costs.get(node.name, 1e-6), 1.0, 10) for node in flow.graph()}
    return pn.plan(flow, profile=Profile(flow.name, operators), cores=cores, gil=False)


def _widths(plan: pn.Plan) -> dict[str, int]:
    assert plan.physical is not None
    return {plan.program.nodes[i].name: group.width for group in plan.physical.groups for i in group.nodes}


def test_what_stands_before_and_behind_a_meeting_is_replicated() -> None:
    flow = pn.Flow("diamond")
    left, right = flow.source([1], name="in").map(abs, name="A").filter(bool, split=True, name="F")
    left.union(right, name="U").map(abs, name="B").collect(name="out")
    plan = _plan(flow, A=1e-3, B=1e-3)
    assert _widths(plan)["A"] == _widths(plan)["B"] == 4
    assert plan.physical is not None
    assert plan.physical.expected is not None
    assert plan.physical.expected.throughput > 3900
    assert "cannot be replicated" not in str(plan)


def test_what_stands_behind_a_join_is_replicated() -> None:
    flow = pn.Flow("joined")
    left, right = flow.source([{}], name="a").key_by("k"), flow.source([{}], name="b").key_by("k")
    left.join(right, window=pn.sliding(count=5), name="J").map(dict, name="M").filter(bool, name="F").collect()
    plan = _plan(flow, M=1e-3, F=1e-3)
    assert _widths(plan)["M"] == 8
    assert "J cannot be replicated: it has several inputs" in str(plan)
    assert "M cannot" not in str(plan)


def test_a_plan_says_what_becomes_of_the_users_regions() -> None:
    flow = pn.Flow("wished")
    source, other = flow.source([{"k": 1}], name="in"), flow.source([{"k": 1}], name="other").key_by("k")
    with flow.parallel(2, by="k"):
        left, right = source.map(dict, name="A").filter(bool, split=True, name="F")
        met = left.union(right, name="U").key_by("k")
        met.join(other, window=pn.sliding(count=5), name="J").map(str, name="B").collect(name="out")
    for plan in (pn.plan(flow), _plan(flow)):
        text = str(pn.Plan.from_json(plan.to_json(), flow))
        assert text == str(plan)
        assert "parallel(width=2) is 3 regions here, from 'A', 'U' and 'B', each replicated by itself" in text
        assert "it has several inputs" in text
    assert "'J', inside parallel(width=2), runs in one copy here: it has several inputs." in str(pn.plan(flow))
    assert _widths(_plan(flow)) == {"in": 1, "other": 1, "A": 2, "F": 2, "U": 2, "J": 1, "B": 2, "out": 1}


def test_a_width_of_one_stays_one() -> None:
    flow = pn.Flow("one")
    with flow.parallel(1):
        stream = flow.source([1], name="in").map(abs, name="A").scan(lambda n, t: (n, t), init=0, name="S")
    stream.map(abs, name="B").collect(name="out")
    plan = _plan(flow, A=1e-3, B=2e-3)
    assert _widths(plan) == {"in": 1, "A": 1, "S": 1, "B": 2, "out": 1}
    assert "one copy: A: parallel(width=1) asks for one copy" in str(plan)
    assert "A cannot be replicated" not in str(plan)


def test_nothing_measured_is_no_reason_for_threads() -> None:
    graph, _ = _batches(1.0)
    physical = decide(graph, Profile("empty"), Machine(4, 1e-7, 1e-7))
    assert physical.expected is None
    assert physical.threads == 1
    assert "no throughput is known" in "\n".join(layout_lines(graph, physical))


# ------------------------------------------------------------------------------------------- text, JSON and pictures


@pytest.mark.parametrize("seed", range(25))
def test_json_and_back(seed: int) -> None:
    rng = random.Random(seed)
    flow, _ = build(rng.randrange, [rng.randrange(100)], rng.randint(2, 12))
    for profile in (None, random_profile(flow.graph(), rng)):
        plan = pn.plan(flow, cores=3, profile=profile, gil=False)
        again = pn.Plan.from_json(plan.to_json(), flow)
        assert again.to_json() == plan.to_json()
        assert again.physical == plan.physical
        assert str(again) == str(plan)
        assert again.code() == plan.code()
        assert again.picture() == plan.picture()
        boxes = [one for one in ET.fromstring(plan.picture()).iter() if "box" in one.get("class", "").split()]
        assert len({(box.get("x"), box.get("y")) for box in boxes}) == len(boxes) == len(flow.graph())


def test_what_is_no_plan_is_refused() -> None:
    flow = pn.Flow("any")
    flow.source([1]).map(abs).collect()
    text = pn.plan(flow, profile=Profile("any"), gil=False).to_json()
    for change in (
        {"penstock_plan": 7},
        {"operators": 3},
        {"segments": []},
        {"layout": {}},
        {"layout": {**json.loads(text)["layout"], "regions": []}},
    ):
        with pytest.raises(pn.PenstockError):
            pn.Plan.from_json(json.dumps({**json.loads(text), **change}), flow)
    with pytest.raises(pn.PenstockError, match="no Penstock plan"):
        pn.Plan.from_json("nonsense", flow)


def _example(name: str) -> Graph:
    import importlib

    folder = str(Path(__file__).parents[2] / "examples")
    if folder not in sys.path:
        sys.path.insert(0, folder)
    flow: pn.Flow = importlib.import_module(name).flow
    return flow.graph()


def _snapshot(name: str) -> str:
    graph, profile = _example(name), Profile.load(SNAPSHOTS / f"{name}.profile.json")
    parts = []
    for title, machine in {
        "4 cores, no GIL": Machine(4, 5e-8, 1.7e-7, crowding=CROWDING),
        "16 cores, no GIL": Machine(16, 5e-8, 1.7e-7, crowding=CROWDING),
        "4 cores, with a GIL": Machine(4, 5e-8, 1.7e-7, gil=True, crowding=CROWDING),
    }.items():
        parts += [f"--- {title}", *layout_lines(graph, decide(graph, profile, machine))]
    return "\n".join(parts) + "\n"


@pytest.mark.parametrize("name", EXAMPLES)
def test_plans_of_the_examples_stay_as_they_are(name: str) -> None:
    assert _snapshot(name) == (SNAPSHOTS / f"{name}.txt").read_text(encoding="utf-8")


if __name__ == "__main__":
    for name in EXAMPLES:
        (SNAPSHOTS / f"{name}.txt").write_text(_snapshot(name), encoding="utf-8")
