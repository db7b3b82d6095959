"""Stages run as several pipelines deliver what one thread delivers: order, state, marks, ends and errors. No Spark."""

from __future__ import annotations

import random
import sys
import threading
from collections.abc import Callable, Iterator
from dataclasses import replace
from itertools import pairwise
from typing import Any

import pytest

import penstock as pn
from penstock.compiler.stage_plan import SparkPlan
from penstock.errors import OperatorError
from penstock.graph.graph import Graph
from penstock.platforms.spark import planning
from penstock.platforms.spark.program import make_program
from penstock.platforms.spark.stage_runner import StageRunner
from penstock.platforms.spark.state import ChannelState
from tests.interpreter import Interpreter
from tests.random_graphs import build, check
from tests.spark.in_memory import Cluster, Failed
from tests.spark.test_wire_and_state import Memory


def in_pipelines(graph: Graph, rng: random.Random | None = None, cores: int = 3) -> SparkPlan:
    """A plan of `graph` with stages cut anywhere and channels at random; without `rng`, cut everywhere."""
    plan = planning.plan(graph, cores=cores)
    groups = []
    for level, group in enumerate(plan.layout.groups):
        if level in plan.stages.single:
            nodes = group.nodes
            cuts = [at for at in range(1, len(nodes)) if rng is None or rng.random() < 0.5]
            lines = tuple(nodes[a:b] for a, b in pairwise([0, *cuts, len(nodes)]))
            groups.append(replace(group, pipelines=lines))
        elif 0 < level <= plan.stages.levels and rng is not None:
            groups.append(replace(group, width=rng.randint(1, cores)))
        else:
            groups.append(group)
    return planning.plan_of(graph, replace(plan.layout, groups=tuple(groups)))


def _threads(plan: SparkPlan) -> int:
    return sum(group.threads for group in plan.layout.groups if group.width == 1)


@pytest.fixture
def _restless() -> Iterator[None]:
    """Threads take turns as often as they can."""
    before = sys.getswitchinterval()
    sys.setswitchinterval(1e-6)
    yield
    sys.setswitchinterval(before)


@pytest.mark.usefixtures("_restless")
@pytest.mark.parametrize("block", range(6))
def test_random_programs_in_random_pipelines_deliver_what_the_interpreter_delivers(block: int) -> None:
    piped = 0
    for number in range(block * 10, block * 10 + 10):
        rng = random.Random(number)
        sizes = [rng.randrange(4000) for _ in range(rng.randint(1, 2))]
        flow, sinks = build(rng.randrange, sizes, rng.randint(3, 12))
        graph = flow.graph()
        plan = in_pipelines(graph, rng)
        piped += any(len(group.pipelines) > 1 for group in plan.layout.groups)
        delivered = Cluster(plan).run(rng.randint(1, 3))
        expected = Interpreter(graph).run()
        check({name: (delivered[name], ordered) for name, (_, ordered) in sinks.items()}, expected)
    assert piped > 2


def _count(n: int, t: Any) -> tuple[int, Any]:
    return n + 1, (n, t)


class Seen(pn.Operator):
    """Remembers, and speaks at marks and at the end."""

    kind = "stateful"

    def __init__(self) -> None:
        self.seen = 0

    def process(self, t: Any, port: int) -> Any:
        self.seen += 1
        return t

    def on_punctuation(self, mark: pn.Punctuation, port: int) -> Any:
        return [("seen", self.seen)]


def _met(a: Any, b: Any) -> Any:
    return a.map_batch(list).barrier(b.scan(_count, init=0))


PROGRAMS: dict[str, Callable[[Any], Any]] = {
    "scans and batches": lambda s: s.scan(_count, init=0).map_batch(list).scan(_count, init=0).map_batch(list),
    "windows": lambda s: s.window(pn.sliding(count=5, every=2)).apply(sum).map(str).scan(_count, init=0),
    "marks": lambda s: s.scan(_count, init=0).punctuate(lambda t: t[0] % 700 == 0).process(Seen()).map_batch(list),
    "ends": lambda s: s.process(Seen()).process(Seen()).window(pn.tumbling(count=64, partial=True)).apply(len),
    "prolific": lambda s: s.scan(_count, init=0).flat_map(lambda t: [t] * (t[0] % 4)).scan(_count, init=0),
    "parted": lambda s: _met(*s.scan(_count, init=0).split(2, lambda t: t[0] % 2)),
    "keyed behind": lambda s: s.scan(_count, init=0).map_batch(list).key_by(lambda t: t[0] % 7).scan(_count, init=0),
}


@pytest.mark.parametrize("name", PROGRAMS)
def test_every_operator_in_a_thread_of_its_own(name: str) -> None:
    flow = pn.Flow("threads")
    PROGRAMS[name](flow.source(range(9000))).collect(name="out")
    graph = flow.graph()
    one, many = planning.plan(graph, cores=2), in_pipelines(graph, cores=2)
    assert _threads(many) > _threads(one)
    before = threading.active_count()
    alone, together = Cluster(one), Cluster(many)
    for number in range(4):
        alone.batch(number, 4)
        together.batch(number, 4)
        # What is kept between batches is the same too: a run may go on with another plan.
        states = [{place: store.entries for place, store in run.stores.items()} for run in (alone, together)]
        assert states[0] == states[1]
    assert together.delivered == alone.delivered
    assert alone.delivered["out"]
    assert threading.active_count() == before


def test_operators_are_locked_where_threads_meet_and_nowhere_else() -> None:
    flow = pn.Flow("meeting")
    start = flow.source([1]).scan(_count, init=0, name="start")
    batch = start.map_batch(list, name="batch")
    batch.pair(start.scan(_count, init=0, name="other"), name="pair").scan(_count, init=0, name="end").collect()
    graph = flow.graph()
    program = make_program(in_pipelines(graph, cores=2), "locks")
    runner = StageRunner(program, 1, 0, state=ChannelState(Memory()))
    runner.close()
    locked = {graph.nodes[root].name for root, segment in runner.segments.items() if segment.lock is not None}
    assert locked == {"pair"}
    assert set(runner.segments) == {graph.node(name).index for name in ("start", "batch", "other", "pair", "end")}


@pytest.mark.parametrize("at", ["first", "second", "last"])
def test_an_error_is_that_of_one_thread(at: str) -> None:
    def fails(where: str, limit: int) -> Callable[[Any], Any]:
        def function(n: int) -> int:
            if where == at and n == limit:
                raise ValueError(f"not {n}")
            return n

        return function

    flow = pn.Flow("failing")
    numbers = flow.source(range(8000)).scan(lambda s, n: (s, n), init=0, name="start")
    for where, limit in (("first", 6000), ("second", 5000), ("last", 7001)):
        numbers = numbers.map(fails(where, limit), name=where).scan(lambda s, n: (s, n), init=0)
    numbers.collect(name="out")
    runs = [Cluster(planning.plan(flow.graph(), cores=2)), Cluster(in_pipelines(flow.graph(), cores=2))]
    for run in runs:
        with pytest.raises(Failed) as caught:
            run.run(1)
        assert isinstance(caught.value.error, OperatorError)
        assert caught.value.error.operator == at
    alone, together = (run.delivered["out"] for run in runs)
    assert together == alone == list(range(len(alone)))
    assert alone


GATE = threading.Event()  # the functions below are pickled by name, so that all of them share it


def _fails_at_2000(numbers: list[int]) -> list[int]:
    if 2000 in numbers:
        GATE.set()
        raise ValueError("the later tuple")
    return numbers


def _fails_at_10(numbers: list[int]) -> list[int]:
    if 10 in numbers:
        assert GATE.wait(20)
        raise ValueError("the earlier tuple")
    return numbers


def test_of_two_errors_that_of_the_earlier_tuple_is_reported() -> None:
    GATE.clear()
    flow = pn.Flow("failing")
    numbers = flow.source(range(3000)).scan(lambda s, n: (s, n), init=0).map_batch(_fails_at_2000)
    numbers.map_batch(_fails_at_10).collect(name="out")
    with pytest.raises(Failed, match="the earlier tuple"):
        Cluster(in_pipelines(flow.graph(), cores=2)).run(1)


def test_a_stage_cannot_be_given_threads_or_channels_that_change_the_output() -> None:
    flow = pn.Flow("refused")
    flow.source([1], name="in").key_by("a").scan(_count, init=0, name="keyed").scan(
        _count, init=0, name="whole"
    ).collect()
    graph = flow.graph()
    plan = planning.plan(graph, cores=2)
    read, keyed, whole, driver = plan.layout.groups
    for groups, reason in (
        ((read, keyed, replace(whole, width=2), driver), "stage 2 of this plan cannot run in 2 channels"),
        ((replace(read, width=0), keyed, whole, driver), "stage 0 of this plan cannot run in 0 channels"),
        ((read, keyed, driver), "other operators"),
        ((read, whole, keyed, driver), "other operators"),
        ((read, replace(keyed, pipelines=(*keyed.pipelines, ())), whole, driver), "cannot run"),
    ):
        with pytest.raises(pn.PenstockError, match=reason):
            planning.plan_of(graph, replace(plan.layout, groups=groups))
