"""Plans for Spark: the model of a batch, channels and pipelines of stages, JSON, pictures; the examples."""

from __future__ import annotations

import json
import math
import random
import xml.etree.ElementTree as ET
from pathlib import Path
from typing import Any

import pytest

import penstock as pn
from penstock.compiler.batches import Cluster, StageLoad, expect_batches, stage_loads, stage_time, throughput_of
from penstock.compiler.physical import Group
from penstock.compiler.stage_plan import SparkPlan
from penstock.compiler.stage_planner import decide_stages, expect_stages, stage_nodes
from penstock.compiler.stages import find_stages
from penstock.compiler.weights import weigh
from penstock.graph.graph import Graph
from penstock.optimizer.calibrate import BatchTime, Boundary, Calibration
from penstock.optimizer.profile import OperatorProfile, Profile
from penstock.platforms.spark import planning
from penstock.platforms.spark.calibration import Times
from tests.compiler.test_plans import EXAMPLES, SNAPSHOTS, _example, random_profile
from tests.random_graphs import build


def _profile(**operators: tuple[float, float] | float) -> Profile:
    """Costs in microseconds, and selectivities."""
    pairs = {name: one if isinstance(one, tuple) else (one, 1.0) for name, one in operators.items()}
    return Profile("any", {name: OperatorProfile(cost * 1e-6, share, 100) for name, (cost, share) in pairs.items()})


def _step(state: Any, t: Any) -> tuple[Any, Any]:
    return state, t


def _two_shuffles() -> Graph:
    return _flow_of_two_shuffles().graph()


def test_a_plan_without_a_profile_says_how_to_get_more_and_names_all_that_stand_alone() -> None:
    flow = pn.Flow("alone")
    first = flow.source([1], name="in").scan(lambda n, t: (n, t), init=0, name="one")
    first.scan(lambda n, t: (n, t), init=0, name="two").collect(name="out")
    text = str(pn.plan(flow, on="spark", cores=4))
    assert "(one channel: one, two: it keeps state over the whole stream)" in text
    assert "pn.plan(flow, on='spark', cores=4, profile=pn.profile(flow))" in text
    assert "penstock plan --on spark --cores 4 --profile" in text
    assert "to choose channels" not in str(pn.plan(flow, on="spark", cores=4, profile=Profile("none")))


def _flow_of_two_shuffles() -> pn.Flow:
    flow = pn.Flow("shuffles")
    parsed = flow.source([1], name="in").map(abs, name="parse")
    keyed = parsed.key_by("a").scan(_step, init=0, name="keyed").map(abs, name="after")
    keyed.scan(_step, init=0, name="whole").sink(print, name="out")
    return flow


# --------------------------------------------------------------------------------------------------------- the model


def test_the_stages_of_a_batch_add_up() -> None:
    graph = _two_shuffles()
    profile = _profile(**{"in": 1, "parse": (4, 0.5), "keyed": 8, "after": 2, "whole": 3, "out": 6})
    cluster = Cluster(2, delta=0.5e-6, cp=0.25e-6, stage=0.125e-6)
    expected = expect_stages(graph, decide_stages(graph, None, cluster).groups, profile, cluster)
    assert expected is not None
    # All per tuple of the source, in microseconds: work, hand-overs on both sides, splits; over the cores in use.
    read = (1 + 4 + 1 * 0.125 + 0.5 * 0.5) / 2
    keyed = (0.5 * (8 + 2) + 0.5 * 0.5 + 0.5 * 0.5 + 0.5 * 0.25 * math.log2(2)) / 2
    whole = 0.5 * 3 + 0.5 * 0.5 + 0.5 * 0.125
    driver = 0.5 * 6 + 0.5 * 0.125
    assert [time * 1e6 for time in expected.times] == pytest.approx([read, keyed, whole, driver])
    assert expected.throughput == pytest.approx(1e6 / (read + keyed + whole + driver))
    assert expected.bottleneck == 3
    assert expected.busy == pytest.approx((2 * read + 2 * keyed + whole + driver) / (read + keyed + whole + driver))


def test_sparks_own_time_is_lost_of_every_batch() -> None:
    graph = _two_shuffles()
    profile = _profile(**{"in": 1, "parse": 4, "keyed": 8, "after": 2, "whole": 3, "out": 6})
    free, real = Cluster(2, 0.0, 0.0), Cluster(2, 0.0, 0.0, batch=0.5, fill=2.0)
    fast, slow = (decide_stages(graph, profile, cluster).expected for cluster in (free, real))
    assert fast is not None
    assert slow is not None
    assert slow.throughput == pytest.approx(0.75 * fast.throughput)
    assert throughput_of(slow, 1e9, 0.0) == pytest.approx(fast.throughput)
    assert throughput_of(slow, 1.5 * fast.throughput, 0.5) == pytest.approx(slow.throughput)


def test_a_source_that_the_driver_reads_is_a_pipeline_of_its_own() -> None:
    graph = _two_shuffles()
    profile = _profile(**{"in": 30, "parse": 4, "keyed": 8, "after": 2, "whole": 3, "out": 6})
    cluster = Cluster(2, 0.0, 0.0)
    beside, inside = (decide_stages(graph, profile, cluster, ahead).expected for ahead in ({0}, ()))
    assert beside is not None
    assert inside is not None
    assert (inside.limit, inside.reading) == ("stage", 0.0)
    assert inside.throughput == pytest.approx(1e6 / (34 / 2 + 10 / 2 + 3 + 6))
    assert (beside.limit, beside.reading) == ("source", pytest.approx(30e-6))
    assert beside.throughput == pytest.approx(1e6 / 30)
    assert sum(beside.times) == pytest.approx(16e-6)


def test_sources_count_by_their_rates() -> None:
    flow = pn.Flow("two")
    left, right = flow.source([1], name="left"), flow.source([1], name="right").map(abs, name="costly")
    left.union(right, name="both").collect(name="out")
    graph, cluster = flow.graph(), Cluster(1, 0.0, 0.0)
    profile = _profile(left=1, right=1, costly=8, both=1, out=1)
    groups = decide_stages(graph, None, cluster).groups
    each = expect_stages(graph, groups, profile, cluster)
    together = expect_stages(graph, groups, profile, cluster, rates={"left": 0.75, "right": 0.25})
    assert each is not None
    assert together is not None
    assert each.throughput == pytest.approx(1e6 / (3 + 11))
    assert together.throughput == pytest.approx(1e6 / (0.75 * 3 + 0.25 * 11))
    assert "from each source" in str(_plan(flow, profile))


def test_files_are_read_by_workers_and_iterables_by_the_driver(tmp_path: Path) -> None:
    flow = pn.Flow("sources")
    whole = flow.source(pn.files.lines(tmp_path / "whole"), name="whole")
    growing = flow.source(pn.files.lines(tmp_path / "growing", follow=True), name="growing")
    numbers = flow.source(iter([1, 2]), name="numbers")
    frame = flow.source(pn.spark.source(lambda spark: None), name="frame")
    whole.union(growing, numbers, frame).collect()
    graph = flow.graph()
    assert {graph.nodes[index].name for index in planning.read_ahead(graph)} == {"growing", "numbers"}


@pytest.mark.parametrize("seed", range(40))
def test_loads_of_stages_are_those_of_the_operators(seed: int) -> None:
    rng = random.Random(seed)
    flow, _ = build(rng.randrange, [10] * rng.randint(1, 3), rng.randint(2, 14))
    graph = flow.graph()
    stages = find_stages(graph)
    weights = weigh(graph, random_profile(graph, rng))
    loads = stage_loads(graph, stages, weights)
    for index in range(len(graph)):
        assert sum(load.load.get(index, 0.0) for load in loads) == pytest.approx(weights.load[index])
    assert sum(load.received for load in loads) == pytest.approx(sum(load.shuffled for load in loads))
    assert 2 * loads[-1].delivered == pytest.approx(sum(load.delivered for load in loads))
    assert loads[0].received == loads[-1].received == 0
    # One core does all work there is, whatever the channels.
    groups = [Group((nodes,), 1) for nodes in stage_nodes(graph, stages)]
    expected = expect_batches(groups, loads, Cluster(1, 1e-7, 1e-7, stage=1e-7), {})
    if expected is not None:
        assert expected.busy == pytest.approx(1.0)
        handed = sum(load.handing(Cluster(1, 1e-7, 1e-7, stage=1e-7)) for load in loads)
        assert sum(expected.times) == pytest.approx(sum(weights.load) + handed)


@pytest.mark.parametrize("seed", range(25))
def test_more_cores_never_make_a_plan_slower(seed: int) -> None:
    rng = random.Random(seed)
    flow, _ = build(rng.randrange, [10], rng.randint(2, 12))
    profile = random_profile(flow.graph(), rng)
    before = 0.0
    for cores in (1, 2, 3, 8):
        expected = decide_stages(flow.graph(), profile, Cluster(cores, 4e-7, 7e-7, gil=True, port=5e-8)).expected
        if expected is not None:
            assert expected.throughput >= before * 0.99
            before = expected.throughput


# ------------------------------------------------------------------------------------------------------ the decisions


def test_a_keyed_stage_gets_the_channels_that_pay() -> None:
    graph = _two_shuffles()
    cluster = Cluster(8, delta=1e-7, cp=5e-6)
    costly = _profile(**{"in": 1, "parse": 1, "keyed": 90, "after": 10, "whole": 1, "out": 1})
    cheap = _profile(**{"in": 1, "parse": 1, "keyed": 0.5, "after": 0.1, "whole": 1, "out": 1})
    assert decide_stages(graph, costly, cluster).groups[1].width == 8
    chosen = decide_stages(graph, cheap, cluster).groups[1]
    assert chosen.width == 1
    assert "one channel keeps up" in chosen.reason
    assert decide_stages(graph, None, cluster).groups[1].width == 8


def test_a_width_that_the_user_asks_for_is_honoured() -> None:
    flow = pn.Flow("wished")
    numbers = flow.source([{}], name="in")
    with flow.parallel(width=3, by="a"):
        numbers = numbers.key_by("a").scan(_step, init=0, name="keyed")
    numbers.collect(name="out")
    for profile in (None, _profile(**{"in": 1, "keyed": 0.001, "out": 0.001})):
        group = decide_stages(flow.graph(), profile, Cluster(8, 1e-7, 1e-7)).groups[1]
        assert (group.width, group.reason) == (3, "as parallel() asks for")


def _wished(width: int, by: str | None, key: str | None) -> pn.Flow:
    flow = pn.Flow("wished")
    stream: Any = flow.source([{"k": 1, "j": 1}], name="in")
    with flow.parallel(width, by=by):
        keyed = stream if key is None else stream.key_by(key)
        keyed.scan(_step, init=0, name="state").collect(name="out")
    return flow


@pytest.mark.parametrize(("by", "key", "reason"), [(None, None, "whole stream"), ("j", "k", "may differ in j")])
def test_a_region_that_is_refused_locally_is_refused_on_spark(by: str | None, key: str | None, reason: str) -> None:
    flow, kept = _wished(4, by, key), pn.plan(_wished(1, by, key), on="spark")
    refusals = []
    for attempt in (
        lambda: pn.plan(flow),
        lambda: pn.plan(flow, on="spark"),
        lambda: pn.submit(flow, on="spark"),
        lambda: pn.submit(flow, on="spark", plan=kept),
    ):
        with pytest.raises(pn.FlowError, match=rf"'state' \(.*test_stage_plans.py:\d+\).*{reason}") as refusal:
            attempt()
        refusals.append(str(refusal.value))
    assert len(set(refusals)) == 1
    assert "parallel(width" not in str(kept)  # one copy is what it has anyway


def test_a_plan_says_where_a_width_is_another_one() -> None:
    flow = pn.Flow("wished")
    stream = flow.source([{}], name="in")
    with flow.parallel(2):
        stream = stream.map(dict, name="m").map(dict, name="n")
    with flow.parallel(3):
        stream.key_by("a").scan(_step, init=0, name="three").collect()
    assert "parallel(width=3)" not in str(pn.plan(flow, on="spark", cores=4))
    with flow.parallel(5):
        five = stream.key_by("a").scan(_step, init=0, name="five").map(dict, name="after")
    five.collect()
    text = str(pn.plan(flow, on="spark", cores=4))
    where = "operators without state run where their tuples are."
    assert f"parallel(width=2) does not hold here for 'm', 'n', in stage 0 (4 tasks): {where}" in text
    shared = "all operators of a stage share it."
    assert f"parallel(width=3) does not hold here for 'three', in stage 1 (5 channels): {shared}" in text
    assert "parallel(width=5)" not in text
    assert "parallel(width=2)" not in str(pn.plan(flow, on="spark", cores=2))  # as many tasks by chance


def _single() -> Graph:
    flow = pn.Flow("single")
    start = flow.source([1], name="in").scan(_step, init=0, name="whole")
    start.map_batch(list, name="one").map(abs, name="python").map_batch(list, name="two").collect(name="out")
    return flow.graph()


def test_a_stage_that_cannot_be_replicated_runs_as_pipelines_where_that_pays() -> None:
    graph = _single()
    profile = _profile(**{"in": 0.1, "whole": 2, "one": 20, "python": 2, "two": 20, "out": 0.1})
    physical = decide_stages(graph, profile, Cluster(4, 4e-7, 7e-7, gil=True, port=5e-8))
    stage = physical.groups[1]
    home = {graph.nodes[i].name: number for number, line in enumerate(stage.pipelines) for i in line}
    assert home["whole"] == 0
    assert home["one"] < home["two"]
    one = decide_stages(graph, profile, Cluster(1, 4e-7, 7e-7, gil=True, port=5e-8))
    assert one.groups[1].threads == 1
    assert physical.expected is not None
    assert one.expected is not None
    assert physical.expected.times[1] < 0.6 * one.expected.times[1]
    assert set(physical.cuts) == {line[0] for line in stage.pipelines[1:]}


@pytest.mark.parametrize(
    "cluster",
    [
        Cluster(1, 4e-7, 7e-7, gil=True, port=5e-8),  # nowhere to overlap
        Cluster(4, 4e-7, 7e-7, gil=True, port=5e-5),  # queues that cost more than they gain
    ],
)
def test_pipelines_that_do_not_pay_are_left_out(cluster: Cluster) -> None:
    profile = _profile(**{"in": 0.1, "whole": 2, "one": 20, "python": 2, "two": 20, "out": 0.1})
    assert decide_stages(_single(), profile, cluster).groups[1].threads == 1


def test_python_code_is_not_parted_under_a_gil() -> None:
    flow = pn.Flow("python")
    flow.source([1], name="in").scan(_step, init=0, name="a").scan(_step, init=0, name="b").collect(name="out")
    profile = _profile(**{"in": 0.1, "a": 20, "b": 20, "out": 0.1})
    assert decide_stages(flow.graph(), profile, Cluster(4, 4e-7, 7e-7, gil=True, port=5e-8)).groups[1].threads == 1
    assert decide_stages(flow.graph(), profile, Cluster(4, 4e-7, 7e-7, port=5e-8)).groups[1].threads == 2


def test_what_boundaries_cost_is_that_of_the_calibration() -> None:
    measured = Calibration({"shuffle": Boundary(1e-6, 2e-6), "stage": Boundary(3e-6), "port": Boundary(4e-6, 5e-6)})
    cluster = planning.cluster_of(2, measured)
    assert (cluster.delta, cluster.cp, cluster.stage, cluster.port) == (1e-6, 2e-6, 3e-6, 4e-6)
    assert planning.cluster_of(2, Calibration({})).delta == Calibration({})["shuffle"].delta


def test_what_a_batch_costs_is_that_of_the_calibration() -> None:
    assumed = planning.cluster_of(2, Calibration({}), shuffles=3)
    assert (assumed.batch, assumed.fill) == (0.5, planning.TARGET_SECONDS)
    assert assumed.origin == "assumed; penstock calibrate --spark measures them here"
    costs = {kind: Boundary(1e-6) for kind in ("shuffle", "stage", "port")}
    measured = Calibration(costs, "mine", BatchTime(0.25, 0.5))
    few, many = (planning.cluster_of(2, measured, shuffles=shuffles) for shuffles in (1, 3))
    assert few.origin == "measured on mine"
    assert (few.batch, few.fill) == (0.75, 2.0)
    assert (many.batch, many.fill) == (1.75, 3.5)  # batches last longer where Spark takes more than half of them
    graph = _two_shuffles()
    plan = planning.plan(graph, cores=2, calibration=measured)
    assert "in batches of 2.5 s of which Spark takes 1.2 s itself" in str(plan)
    assert "(boundaries and batches: measured on mine)" in str(plan)
    assert str(pn.Plan.from_json(plan.to_json(), _flow_of_two_shuffles())) == str(plan)


@pytest.mark.parametrize("seed", range(20))
def test_costs_of_spark_come_back_from_the_model(seed: int) -> None:
    rng = random.Random(seed)
    cores = rng.randint(1, 8)
    width = max(2, cores)
    cluster = Cluster(cores, rng.uniform(0, 2e-6), rng.uniform(0, 2e-6), stage=rng.uniform(0, 2e-6))
    read, work = rng.uniform(0, 5e-6), rng.uniform(0, 5e-6)

    def time(channels: int, operators: int, delivered: float) -> float:
        """Seconds per tuple of a program with operators behind a shuffle, or none."""
        shuffled = float(operators > 0)
        first = StageLoad({0: read}, shuffled=shuffled, delivered=delivered)
        behind = StageLoad({1: operators * work}, received=shuffled)
        driver = StageLoad({2: 0.0}, delivered=delivered)
        stages = [(Group(((0,),), cores), first), (Group(((1,),), channels), behind), (Group(((2,),)), driver)]
        return sum(stage_time(group, load, cluster, {}) for group, load in stages)

    times = Times(time(1, 0, 0), time(1, 0, 1), time(1, 1, 0), time(1, 2, 0), time(width, 1, 0))
    found = times.boundaries(cores, width)
    assert found["stage"].delta == pytest.approx(cluster.stage, abs=1e-10)
    assert (found["shuffle"].delta, found["shuffle"].cp) == pytest.approx((cluster.delta, cluster.cp), abs=1e-10)
    assert Times(1e-6, 0.0, 0.0, 0.0, 0.0).boundaries(cores, width)["shuffle"] == Boundary(0.0)


# ------------------------------------------------------------------------------------------- text, JSON and pictures


def _plan(flow: pn.Flow, profile: Profile | None, cores: int = 4) -> SparkPlan:
    plan = pn.plan(flow, on="spark", cores=cores, profile=profile, calibration=Calibration({}), gil=True)
    assert isinstance(plan, SparkPlan)
    return plan


@pytest.mark.parametrize("seed", range(25))
def test_json_and_back(seed: int) -> None:
    rng = random.Random(seed)
    flow, _ = build(rng.randrange, [rng.randrange(100)], rng.randint(2, 12))
    for profile in (None, random_profile(flow.graph(), rng)):
        plan = _plan(flow, profile)
        again = pn.Plan.from_json(plan.to_json(), flow)
        assert isinstance(again, SparkPlan)
        assert again.to_json() == plan.to_json()
        assert again.physical == plan.physical
        assert again.segments == plan.segments
        assert str(again) == str(plan)
        assert again.code() == plan.code()
        assert again.picture() == plan.picture()
        ET.fromstring(plan.picture())


def test_what_is_no_plan_for_spark_is_refused() -> None:
    flow = pn.Flow("any")
    flow.source([1]).scan(_step, init=0).collect()
    text = _plan(flow, None).to_json()
    layout = json.loads(text)["layout"]
    wider = [{**one, "width": 2} for one in layout["regions"]]
    for change in (
        {"platform": "the moon"},
        {"layout": None},
        {"layout": {**layout, "regions": layout["regions"][:-1]}},
        {"layout": {**layout, "regions": wider}},
        {"platform": "local"},
    ):
        with pytest.raises(pn.PenstockError):
            pn.Plan.from_json(json.dumps({**json.loads(text), **change}), flow)


def test_the_text_says_what_is_expected_and_why() -> None:
    flow = pn.Flow("said")
    start = flow.source([1], name="in").scan(_step, init=0, name="whole")
    start.map_batch(list, name="work").collect(name="out")
    text = str(_plan(flow, _profile(**{"in": 1, "whole": 9, "work": 20, "out": 1})))
    assert "expected: " in text
    assert "tuples/s on 4 cores" in text
    assert "stage 1 takes" in text
    assert "a shuffle costs 0.4 µs" in text
    assert "one channel: whole: it keeps state over the whole stream" in text
    assert "2 threads" in text
    assert "a thread of its own from here on: 9 µs per source tuple before it and 20 µs from it on overlap" in text
    picture = _plan(flow, None).picture()
    assert "2 stages" in picture
    assert "0 µs" not in picture


def _snapshot(name: str) -> str:
    graph, profile = _example(name), Profile.load(SNAPSHOTS / f"{name}.profile.json")
    parts = []
    for cores in (2, 16):
        plan = planning.plan(graph, cores=cores, profile=profile, calibration=Calibration({}), gil=True)
        parts += [f"--- {cores} cores", str(plan)]
    return "\n".join(parts) + "\n"


def _path(name: str) -> Path:
    return SNAPSHOTS / f"{name}.spark.txt"


@pytest.mark.parametrize("name", EXAMPLES)
def test_plans_of_the_examples_stay_as_they_are(name: str) -> None:
    assert _snapshot(name) == _path(name).read_text(encoding="utf-8")


if __name__ == "__main__":
    for name in EXAMPLES:
        _path(name).write_text(_snapshot(name), encoding="utf-8")
