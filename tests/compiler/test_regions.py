"""Regions: as long as is safe, from left to right; the user's own are taken or refused with the reason."""

from __future__ import annotations

from collections.abc import Callable

import pytest

import penstock as pn
from penstock.compiler.regions import Regions, as_op, find_regions
from penstock.errors import FlowError
from penstock.optimizer import optimal, validate_config


def first(t: dict[str, int]) -> int:
    return t["a"]


def count(n: int, t: object) -> tuple[int, object]:
    return n + 1, t


def names(flow: pn.Flow) -> list[tuple[list[str], str | None]]:
    """The regions by operator names and key."""
    graph = flow.graph()
    found = find_regions(graph)
    return [
        ([graph.nodes[i].name for i in region.nodes], None if region.key is None else str(region.key))
        for region in found.regions
    ]


def test_sources_sinks_and_state_are_alone() -> None:
    flow = pn.Flow()
    flow.source([1], name="s").map(abs, name="m").scan(count, init=0, name="total").filter(bool, name="f").sink(
        print, name="out"
    )
    graph = flow.graph()
    found = find_regions(graph)
    assert names(flow) == [(["m"], None), (["f"], None)]
    why = {graph.nodes[i].name: reason for i, reason in found.alone.items()}
    assert why["total"] == "it keeps state over the whole stream"
    assert "order" in why["s"]
    assert "order" in why["out"]


def test_a_keyed_operator_joins_what_forwards_its_key() -> None:
    flow = pn.Flow()
    kept = flow.source([{"a": 1}]).filter(bool, name="f")
    kept.key_by("a").scan(count, init=0, name="scan").map(abs, name="m").collect()
    assert names(flow) == [(["f", "scan", "m"], "a")]


def test_a_keyed_operator_starts_a_region_after_a_map() -> None:
    flow = pn.Flow()
    flow.source([1]).map(abs, name="m").key_by("a").scan(count, init=0, name="scan").collect()
    assert names(flow) == [(["m"], None), (["scan"], "a")]


def test_overlapping_keys_share_a_region_split_by_what_they_share() -> None:
    flow = pn.Flow()
    stream = flow.source([{"a": 1}]).key_by("a", "b").dedup(["a", "b"], time=5, name="d")
    stream.key_by("b", "c").dedup(["b", "c"], time=5, name="e").collect()
    assert names(flow) == [(["d", "e"], "b")]


def test_different_keys_part_regions() -> None:
    flow = pn.Flow()
    flow.source([{}]).dedup("a", time=5, name="d").dedup("b", time=5, name="e").collect()
    assert names(flow) == [(["d"], "a"), (["e"], "b")]


def test_an_aggregate_keeps_the_attributes_of_its_key() -> None:
    flow = pn.Flow()
    means = flow.source([{}]).key_by("a").window(pn.tumbling(count=2)).aggregate(n=pn.count(), name="agg")
    means.key_by("a").scan(count, init=0, name="scan").collect()
    assert names(flow) == [(["agg", "scan"], "a")]


def test_a_key_by_a_function_equals_only_itself() -> None:
    flow = pn.Flow()
    stream = flow.source([{}]).dedup(first, time=5, name="d").filter(bool, name="f").dedup(first, time=5, name="e")
    stream.dedup(lambda t: t["a"], time=5, name="g").collect()
    assert names(flow) == [(["d", "f", "e"], "first()"), (["g"], "<lambda>()")]


def test_regions_inside_branches_and_where_they_meet() -> None:
    flow = pn.Flow()
    left, right = flow.source([1]).map(abs, name="m").filter(bool, split=True, name="f")
    left.map(abs, name="l").union(right.map(abs, name="r"), name="u").map(abs, name="after").collect()
    other = flow.source([2], name="second").map(abs, name="x")
    other.union(flow.source([3], name="third"), name="mixed").map(abs, name="y").collect()
    assert names(flow) == [(["m", "f", "l", "r", "u", "after"], None), (["x"], None), (["mixed", "y"], None)]


def test_a_join_is_split_by_the_keys_of_its_inputs() -> None:
    flow = pn.Flow()
    left, right = flow.source([{}], name="a").key_by("src"), flow.source([{}], name="b").key_by("id")
    left.join(right, window=pn.sliding(count=5), name="j").map(abs, name="m").collect()
    found = find_regions(flow.graph())
    assert names(flow) == [(["j", "m"], None)]
    assert found.regions[0].own_keys


def test_the_users_region_is_taken() -> None:
    flow = pn.Flow()
    lines = flow.source([{}]).map(abs, name="before")
    with flow.parallel(3, by="user"):
        lines.map(abs, name="m").key_by("user", "host").scan(count, init=0, name="scan").map(abs, name="n").collect(
            name="out"
        )
    found = find_regions(flow.graph())
    assert names(flow) == [(["before"], None), (["m", "scan", "n"], "user")]
    assert [region.width for region in found.regions] == [None, 3]


def test_two_regions_of_the_user_side_by_side() -> None:
    flow = pn.Flow()
    stream = flow.source([1])
    with flow.parallel(2):
        stream = stream.map(abs, name="a")
    with flow.parallel(4):
        stream = stream.map(abs, name="b")
    stream.map(abs, name="c").collect()
    assert names(flow) == [(["a"], None), (["b"], None), (["c"], None)]


def refusal(build: Callable[[pn.Flow, pn.Stream], None]) -> str:
    flow = pn.Flow()
    stream = flow.source([{}])
    build(flow, stream)
    graph = flow.graph()
    with pytest.raises(FlowError) as error:
        find_regions(graph)
    return str(error.value)


def test_state_in_the_users_region_is_refused() -> None:
    def build(flow: pn.Flow, stream: pn.Stream) -> None:
        with flow.parallel(2):
            stream.scan(count, init=0, name="total").collect()

    text = refusal(build)
    assert "operator 'total'" in text
    assert "test_regions.py:" in text
    assert "state over the whole stream" in text


def test_a_split_that_parts_a_key_is_refused() -> None:
    def build(flow: pn.Flow, stream: pn.Stream) -> None:
        with flow.parallel(2, by="user"):
            stream.key_by("host").scan(count, init=0, name="per_host").collect()

    text = refusal(build)
    assert "'per_host'" in text
    assert "same host may differ in user" in text


def test_a_key_that_got_lost_is_refused_unless_the_user_vouches_for_it() -> None:
    def build(flow: pn.Flow, stream: pn.Stream) -> None:
        with flow.parallel(2):
            stream.map(abs).key_by("host").scan(count, init=0, name="per_host").collect()

    assert "say so with by=" in refusal(build)


def test_a_region_that_is_left_and_entered_again_is_refused() -> None:
    def build(flow: pn.Flow, stream: pn.Stream) -> None:
        with flow.parallel(2):
            stream = stream.map(abs)
        middle = stream.scan(count, init=0)
        flow._annotations.append(flow._drafts[1].annotations)  # no program can say so; a later pass might
        middle.map(abs, name="again").collect()
        flow._annotations.pop()

    assert "comes back" in refusal(build)


def chain(flow: pn.Flow) -> tuple[list[int], Regions]:
    graph = flow.graph()
    return list(graph.topological), find_regions(graph)


def test_the_optimizer_never_joins_what_is_not_safe() -> None:
    flow = pn.Flow()
    stream = flow.source([{}]).map(abs).key_by("a").scan(count, init=0).map(abs).filter(bool)
    stream.key_by("a").scan(count, init=0).collect()
    graph = flow.graph()
    order, regions = chain(flow)
    ops = [as_op(graph.nodes[i], regions, 10.0, 1.0) for i in order]
    config = optimal(ops, 16, 0.1, 0.1)
    validate_config(ops, config)
    for region in config.regions:
        if region.replicas > 1:
            assert len({regions.of_node[order[i]] for i in range(region.start, region.stop)}) == 1
