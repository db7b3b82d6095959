"""Putting a flow together: names, kinds, keys, annotations, and the errors of a wrong call."""

from __future__ import annotations

import dataclasses
from contextlib import AbstractContextManager

import pytest

import penstock as pn
from penstock.graph.annotations import Consistent


def parse(line: str) -> str:
    return line


class Two(pn.Operator):
    inputs = 2

    def process(self, t: object, port: int) -> object:
        return t


def test_names_come_from_functions_and_verbs_and_stay_unique() -> None:
    flow = pn.Flow("names")
    stream = flow.source([], name="in").map(parse).map(parse).map(lambda t: t).filter(lambda t: t).map(lambda t: t)
    stream.process(Two(), stream).collect()
    names = [node.name for node in flow.graph()]
    assert names == ["in", "parse", "parse_2", "map", "filter", "map_2", "Two", "collect"]


def test_a_default_name_never_takes_a_name_the_user_gave() -> None:
    flow = pn.Flow("names")
    flow.source([]).map(lambda t: t, name="map_2").map(lambda t: t).map(lambda t: t).map(lambda t: t).collect()
    assert [node.name for node in flow.graph()] == ["source", "map_2", "map", "map_3", "map_4", "collect"]


@pytest.mark.parametrize(
    ("make", "kind"),
    [
        (lambda s: s.map(parse), "stateless"),
        (lambda s: s.key_by("a").map(parse), "stateless"),
        (lambda s: s.map(parse, kind="stateful"), "stateful"),
        (lambda s: s.scan(parse), "stateful"),
        (lambda s: s.key_by("a").scan(parse), "partitioned"),
        (lambda s: s.window(pn.tumbling(count=2)).apply(parse), "stateful"),
        (lambda s: s.key_by("a").window(pn.tumbling(count=2)).apply(parse), "partitioned"),
        (lambda s: s.key_by("a").window(pn.tumbling(time=2, on="t", watermark="stream")).apply(parse), "stateful"),
        (lambda s: s.process(Two(), s), "stateful"),
        (lambda s: s.key_by("a").process(Two(), s.key_by("a")), "partitioned"),
        (lambda s: s.process(Two(), s, kind="stateless"), "stateless"),
        (lambda s: s.dedup("a", time=3), "partitioned"),
        (lambda s: s.dedup("a", count=3), "stateful"),
        (lambda s: s.enrich(s, key="a"), "partitioned"),
        (lambda s: s.union(s), "stateless"),
        (lambda s: s.delay(1), "stateful"),
    ],
)
def test_kind_is_inferred_and_can_be_overridden(make: object, kind: str) -> None:
    flow = pn.Flow("kinds")
    make(flow.source([])).collect()  # type: ignore[operator]
    assert flow.graph().nodes[1].kind == kind


def test_keys_by_name_compare_and_keys_by_function_equal_only_themselves() -> None:
    first, second = (lambda t: t), (lambda t: t)
    assert pn.Key.of("a") == pn.Key.of("a")
    assert pn.Key.of("a") != pn.Key.of("b")
    assert pn.Key.of(first) == pn.Key.of(first)
    assert pn.Key.of(first) != pn.Key.of(second)
    assert pn.Key.of(first) != pn.Key.of("a")


def test_annotations_hold_inside_their_block() -> None:
    flow = pn.Flow("annotated")
    stream = flow.source([])
    with flow.parallel(width=4, by="user"), flow.threading("dynamic"):
        stream = stream.map(parse)
        with flow.colocate("a"), flow.exlocate("b"), flow.isolate(), flow.consistent(every=5):
            stream = stream.map(parse)
    stream.collect()
    outer, inner, after = (node.annotations for node in flow.graph().nodes[1:])
    assert (outer.parallel.width, outer.parallel.by, outer.threading) == (4, pn.Key.of("user"), "dynamic")
    assert inner.parallel == outer.parallel
    assert (inner.colocate, inner.exlocate) == (("a",), ("b",))
    assert inner.isolate is not None
    assert isinstance(inner.consistent, Consistent)
    assert not after


def test_a_graph_is_frozen_and_apart_from_the_flow() -> None:
    flow = pn.Flow("frozen")
    flow.source([]).collect()
    graph = flow.graph()
    flow.source([]).collect()
    assert len(graph) == 2
    with pytest.raises(dataclasses.FrozenInstanceError):
        graph.nodes[0].name = "other"  # type: ignore[misc]


WRONG_CALLS = {
    "a source that cannot be iterated": lambda s: s.flow.source(3),
    "map without a function": lambda s: s.map(3),
    "an operator class": lambda s: s.process(Two),
    "no operator": lambda s: s.process("x"),
    "too few inputs": lambda s: s.process(Two()),
    "an unknown error policy": lambda s: s.map(parse, on_error="ignore"),
    "a stream of another flow": lambda s: s.union(pn.Flow("other").source([])),
    "a split into nothing": lambda s: s.split(0, parse),
    "a join of one keyed side": lambda s: s.key_by("a").join(s, window=pn.sliding(count=2)),
    "a join without window": lambda s: s.join(s, window=None),
    "an unknown join": lambda s: s.join(s, window=pn.sliding(count=2), how="outer"),
    "dedup without a limit": lambda s: s.dedup("a"),
    "a window that is none": lambda s: s.window(5),
    "no aggregates": lambda s: s.window(pn.tumbling(count=2)).aggregate(),
    "an aggregate that is none": lambda s: s.window(pn.tumbling(count=2)).aggregate(n=len),
    "a sink that is none": lambda s: s.sink(3),
    "a negative delay": lambda s: s.delay(-1),
    "a rate of nothing": lambda s: s.throttle(0),
    "a key that is none": lambda s: s.key_by(3),
    "an empty name": lambda s: s.map(parse, name=""),
    "an unknown kind": lambda s: s.map(parse, kind="sometimes"),
    "a width of nothing": lambda s: _enter(s.flow.parallel(0)),
    "a width that is true": lambda s: _enter(s.flow.parallel(True)),
    "a width in words": lambda s: _enter(s.flow.parallel("two")),
    "a region by a number": lambda s: _enter(s.flow.parallel(2, by=5)),
    "a region by numbers": lambda s: _enter(s.flow.parallel(2, by=[5])),
    "a region by nothing": lambda s: _enter(s.flow.parallel(2, by=[])),
    "an unknown threading model": lambda s: _enter(s.flow.threading("many")),
    "a threading model that is a list": lambda s: _enter(s.flow.threading(["manual"])),
    "no colocation group": lambda s: _enter(s.flow.colocate(None)),
    "a colocation group without a name": lambda s: _enter(s.flow.colocate("")),
    "an exlocation group by number": lambda s: _enter(s.flow.exlocate(1)),
    "checkpoints in words": lambda s: _enter(s.flow.consistent(every="minute")),
    "checkpoints all the time": lambda s: _enter(s.flow.consistent(every=0)),
}


def _enter(block: AbstractContextManager[None]) -> None:
    with block:
        pass


@pytest.mark.parametrize("case", WRONG_CALLS)
def test_a_wrong_call_says_what_is_wrong_and_where(case: str) -> None:
    stream = pn.Flow("wrong").source([])
    with pytest.raises(pn.FlowError) as caught:
        WRONG_CALLS[case](stream)
    assert "test_flow.py" in str(caught.value) or "flows meet" in str(caught.value)


def test_iterating_a_stream_says_what_to_do_instead() -> None:
    with pytest.raises(TypeError, match="collect"):
        list(pn.Flow("x").source([1]))
