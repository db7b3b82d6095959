"""Regions: as long as is safe, from left to right; the user's own are taken or refused with the reason."""

from __future__ import annotations

import random
from collections.abc import Callable

import pytest

import penstock as pn
from penstock.compiler.fission import replicable_regions, why_single
from penstock.compiler.regions import Regions, as_op, find_regions, part_of
from penstock.errors import FlowError
from penstock.optimizer import optimal, validate_config
from tests.random_graphs import build as random_flow


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


def test_a_source_may_stand_inside_the_users_region() -> None:
    flow = pn.Flow()
    with flow.parallel(3, by="user"):
        users = flow.source([{}]).map(dict, name="m").key_by("user", "host")
        users.scan(count, init=0, name="scan").collect()
    assert names(flow) == parts(flow) == [(["m", "scan"], "user")]


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


# ---------------------------------------------------------------------------------------------- of width 1


@pytest.mark.parametrize("by", [None, "user"])
def test_a_width_of_one_asks_for_no_copies_and_is_never_refused(by: str | None) -> None:
    flow = pn.Flow()
    with flow.parallel(1, by=by):
        stream = flow.source([{}]).map(dict, name="m").scan(count, init=0, name="total")
        stream.map(dict).key_by("host").scan(count, init=0, name="per_host").punctuate(bool).collect()
    graph = flow.graph()
    for found in (find_regions(graph), replicable_regions(graph)):
        assert found.regions == ()
        why = {graph.nodes[i].name: reason for i, reason in found.alone.items()}
        assert why["total"] == "it keeps state over the whole stream"
        assert why["m"] == why["per_host"] == "parallel(width=1) asks for one copy"


# --------------------------------------------------------------------------------------------- in one process


def parts(flow: pn.Flow) -> list[tuple[list[str], str | None]]:
    """The regions that can be replicated in one process, by operator names and key."""
    graph = flow.graph()
    return [
        ([graph.nodes[i].name for i in region.nodes], None if region.key is None else str(region.key))
        for region in replicable_regions(graph).regions
    ]


def test_where_streams_meet_a_region_ends_and_another_starts() -> None:
    flow = pn.Flow()
    left, right = flow.source([1]).map(abs, name="m").filter(bool, split=True, name="f")
    left.map(abs, name="l").union(right.map(abs, name="r"), name="u").map(abs, name="after").collect()
    assert parts(flow) == [(["m", "f", "l", "r"], None), (["u", "after"], None)]


def test_each_part_has_a_key_of_its_own() -> None:
    flow = pn.Flow()
    seen = flow.source([{}]).key_by("a", "b").scan(count, init=0, name="by both").filter(bool, name="f")
    both = seen.union(seen.filter(bool, name="g"), name="u").filter(bool, name="h")
    both.key_by("b").dedup("b", time=5, name="by b").collect()
    assert parts(flow) == [(["by both", "f", "g"], "a, b"), (["u", "h", "by b"], "b")]


def test_what_follows_a_join_is_a_region() -> None:
    flow = pn.Flow()
    left, right = flow.source([{}], name="a").key_by("k"), flow.source([{}], name="b").key_by("k")
    joined = left.join(right, window=pn.sliding(count=5), name="j").map(dict, name="m").filter(bool, name="f")
    joined.key_by("k").scan(count, init=0, name="scan").collect(name="out")
    assert parts(flow) == [(["m", "f"], None), (["scan"], "k")]
    graph = flow.graph()
    assert replicable_regions(graph).alone[graph.node("j").index] == "it has several inputs"


class Answering(pn.Operator):
    def process(self, t: object, port: int) -> object:
        return t

    def on_punctuation(self, *_: object) -> None: ...


def test_what_answers_punctuation_and_keeps_nothing_is_in_no_region() -> None:
    flow = pn.Flow()
    marked = flow.source([{}]).punctuate(bool).filter(bool, name="f")
    answered = marked.process(Answering(), kind="stateless", name="answers").filter(bool, name="g")
    answered.key_by("a").scan(count, init=0, name="scan").collect()
    assert parts(flow) == [(["f"], None), (["g", "scan"], "a")]


@pytest.mark.parametrize("seed", range(60))
def test_every_part_is_a_region_and_can_be_replicated(seed: int) -> None:
    rng = random.Random(seed)
    flow, _ = random_flow(rng.randrange, [0, 0], rng.randint(2, 20))
    graph = flow.graph()
    found = replicable_regions(graph)
    assert sorted([*found.of_node, *found.alone]) == list(range(len(graph)))
    for number, region in enumerate(found.regions):
        assert [index for index in graph.topological if found.of_node.get(index) == number] == list(region.nodes)
        assert part_of(graph, region.nodes) == region
        assert why_single(graph, region) is None
    for region in find_regions(graph).regions:  # and nothing gets lost
        if why_single(graph, region) is None:
            assert set(region.nodes) <= set(found.of_node)


def test_the_users_region_is_several_where_streams_meet_in_it() -> None:
    flow = pn.Flow()
    source = flow.source([{}])
    with flow.parallel(3):
        left, right = source.map(abs, name="m").filter(bool, split=True, name="f")
        left.union(right, name="u").map(abs, name="n").union(source.map(abs, name="second"), name="v").collect()
    assert parts(flow) == [(["m", "f"], None), (["u", "n"], None), (["second"], None), (["v"], None)]
    assert {region.width for region in replicable_regions(flow.graph()).regions} == {3}


def test_inside_the_users_region_tuples_may_have_lost_what_it_is_split_by() -> None:
    flow = pn.Flow()
    left, right = flow.source([{}], name="a").map(dict, name="before"), flow.source([{}], name="b")
    with flow.parallel(3, by="k"):
        seen = left.filter(bool, name="f").key_by("k").scan(count, init=0, name="scan")
        pairs = seen.key_by("k").join(right.key_by("k"), window=pn.sliding(count=5), name="j")
        pairs.map(dict, name="m").key_by("k", "l").scan(count, init=0, name="again").map(dict, name="n").collect()
    assert parts(flow) == [
        (["before"], None),
        (["f", "scan"], "k"),
        (["m"], None),
        (["again", "n"], "k, l"),
    ]
    graph = flow.graph()
    for region in replicable_regions(graph).regions:
        assert part_of(graph, region.nodes) == region


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
