"""How graphs are cut into stages, without Spark: levels, keys that fit together, single channels."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest

import penstock as pn
from penstock.compiler.stages import Stages, find_stages


def _stages(build: Callable[[Any], Any]) -> tuple[Stages, dict[str, int]]:
    flow = pn.Flow("stages")
    build(flow.source([], name="in")).collect()
    graph = flow.graph()
    stages = find_stages(graph)
    return stages, {graph.nodes[index].name: level for index, level in stages.level.items()}


def _count(n: int, t: Any) -> tuple[int, Any]:
    return n + 1, t


CASES: dict[str, tuple[Callable[[Any], Any], dict[str, int]]] = {
    "without state there is one stage": (lambda s: s.map(str).filter(bool).map_batch(list), {}),
    "a key needs one shuffle": (lambda s: s.key_by("a").scan(_count, name="one"), {"one": 1}),
    "the same key needs no second one where tuples pass unchanged": (
        lambda s: s.dedup("a", time=3, on="ts", name="one").filter(bool).key_by("a").scan(_count, name="two"),
        {"one": 1, "two": 1},
    ),
    "a finer key is served by a coarser one": (
        lambda s: s.dedup("a", time=3, on="ts", name="one").key_by("a", "b").scan(_count, name="two"),
        {"one": 1, "two": 1},
    ),
    "a coarser key is not served by a finer one": (
        lambda s: s.dedup(["a", "b"], time=3, on="ts", name="one").key_by("a").scan(_count, name="two"),
        {"one": 1, "two": 2},
    ),
    "a map may have changed the key": (
        lambda s: s.dedup("a", time=3, on="ts", name="one").map(str).key_by("a").scan(_count, name="two"),
        {"one": 1, "two": 2},
    ),
    "an aggregate keeps its key by name": (
        lambda s: (
            s.key_by("a")
            .window(pn.tumbling(count=2))
            .aggregate(n=pn.count(), name="one")
            .key_by("a")
            .window(pn.tumbling(count=3))
            .aggregate(m=pn.sum("n"), name="two")
        ),
        {"one": 1, "two": 1},
    ),
    "another key needs another shuffle": (
        lambda s: s.key_by("a").scan(_count, name="one").key_by("b").scan(_count, name="two"),
        {"one": 1, "two": 2},
    ),
    "un-keyed state shares the single channel": (
        lambda s: s.scan(_count, name="one").map(str).window(pn.tumbling(count=2)).apply(len, name="two"),
        {"one": 1, "two": 1},
    ),
    "a keyed operator leaves the single channel": (
        lambda s: s.scan(_count, name="one").key_by("a").scan(_count, name="two"),
        {"one": 1, "two": 2},
    ),
    "punctuation behind a shuffle is made where the whole stream is": (
        lambda s: s.key_by("a").scan(_count, name="one").punctuate(bool, name="marks"),
        {"one": 1, "marks": 2},
    ),
    "punctuation at the source needs no shuffle": (lambda s: s.punctuate(bool), {}),
}


@pytest.mark.parametrize("case", CASES)
def test_levels(case: str) -> None:
    build, expected = CASES[case]
    _, levels = _stages(build)
    assert levels == expected


def test_a_parallel_region_is_one_stage_because_the_user_says_so() -> None:
    flow = pn.Flow("region")
    stream = flow.source([])
    with flow.parallel(width=2, by="a"):
        stream = stream.key_by("a").scan(_count, name="one").map(str).key_by("a").scan(_count, name="two")
    stream.collect()
    assert find_stages(flow.graph()).levels == 1


def test_keyed_and_single_operators_do_not_share_a_level() -> None:
    flow = pn.Flow("mixed")
    stream = flow.source([])
    stream.key_by("a").scan(_count, name="keyed").collect()
    stream.scan(_count, name="whole").collect()
    graph = flow.graph()
    stages = find_stages(graph)
    levels = {graph.nodes[index].name: level for index, level in stages.level.items()}
    assert levels["keyed"] != levels["whole"]
    assert stages.single == {levels["whole"]}


def test_an_operator_without_state_runs_wherever_its_tuples_are() -> None:
    flow = pn.Flow("places")
    stream = flow.source([])
    counted = stream.key_by("a").scan(_count)
    counted.union(stream, name="both").map(str, name="text").collect()
    graph = flow.graph()
    assert find_stages(graph).present[graph.node("text").index] == {0, 1}


def test_the_plan_names_stages_keys_and_shuffles() -> None:
    flow = pn.Flow("explained")
    flow.source([], name="in").map(str, name="text").key_by("a").scan(_count, name="count").collect(name="out")
    text = str(pn.plan(flow, cores=4, on="spark"))
    assert "4 operators in 2 stages, 1 shuffle, 4 channels" in text
    assert "one shuffle by a" in text
    assert text.index("text") < text.index("count") < text.index("out")
    assert "def segment_0" in pn.plan(flow, on="spark").code()
