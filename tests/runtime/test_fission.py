"""Replicated regions deliver what one copy delivers, in the same order, whatever the width, model and schedule."""

from __future__ import annotations

import random
from collections.abc import Iterator
from typing import Any

import pytest

import penstock as pn
from penstock.compiler.fission import replicable_regions, replicate
from penstock.optimizer.profile import OperatorProfile
from penstock.runtime.pe import PE, Threading
from penstock.runtime.policies import POLICIES
from penstock.runtime.splitter import channel_of
from tests.interpreter import Interpreter
from tests.random_graphs import build, check
from tests.runtime.changing import run_changing
from tests.runtime.running import each_of
from tests.thorough import blocks

pytestmark = pytest.mark.usefixtures("switching_often")
models = each_of(
    [
        {"threading": "manual"},
        {"threading": "dedicated", "queue": 5},
        {"threading": "dynamic", "threads": 1, "queue": 1},
        {"threading": "dynamic", "threads": 5, "queue": 64, "quantum": 1e-6, "policy": "random"},
    ]
)


def random_pe(number: int) -> tuple[PE, dict[str, tuple[Any, bool]], random.Random]:
    """A random graph with random regions replicated, under a random threading model."""
    rng = random.Random(number)
    flow, sinks = build(rng.randrange, [rng.randrange(2000) for _ in range(rng.randint(1, 2))], rng.randint(2, 12))
    graph = flow.graph()
    widths = {region.entry: rng.randint(1, 4) for region in replicable_regions(graph).regions}
    model = rng.choice(["manual", "dedicated", "dynamic"])
    policy = rng.choice(sorted(POLICIES))
    chosen = Threading(model, threads=rng.choice([1, 2, 6]), policy=policy, capacity=rng.choice([1, 32, 4096]))
    return PE(graph, threading_=chosen, widths=widths), sinks, rng


@pytest.mark.parametrize("block", blocks(4, 8))
def test_random_regions_deliver_the_same(block: int) -> None:
    replicated = 0
    for number in range(block * 15, block * 15 + 15):
        pe, sinks, _ = random_pe(number)
        replicated += len(pe.graph) > len(pe.program)
        pe.start()
        assert pe.wait(60), f"graph {number} does not end"
        check(sinks, Interpreter(pe.program).run())
    assert replicated > 3


@pytest.mark.parametrize("block", blocks(2, 4))
def test_ports_may_change_around_and_inside_regions(block: int) -> None:
    for number in range(block * 8, block * 8 + 8):
        pe, sinks, rng = random_pe(number)
        run_changing(pe, rng, f"graph {number}")
        check(sinks, Interpreter(pe.program).run())


def keyed_flow(width: int) -> tuple[pn.Flow, Any, Any]:
    flow = pn.Flow("keyed")
    rows = flow.source(range(5000)).map(lambda n: {"user": n * 7 % 13, "n": n})
    with flow.parallel(width=width, by="user"):
        seen = rows.key_by("user").scan(lambda count, t: (count + 1, {**t, "seen": count}), init=0, name="seen")
        odd, even = seen.filter(lambda t: t["seen"] % 2, split=True)
        pairs = odd.key_by("user").window(pn.tumbling(count=2)).aggregate(n=pn.sum("n"))
    return flow, pairs.collect(), even.map(lambda t: t["n"]).collect()


@models
@pytest.mark.parametrize("width", [2, 3, 7])
def test_a_region_by_key_with_two_exits(options: dict[str, Any], width: int) -> None:
    single, pairs, even = keyed_flow(1)
    pn.run(single, on="local")
    flow, parallel_pairs, parallel_even = keyed_flow(width)
    job = pn.run(flow, on="local", **options)
    assert parallel_pairs == pairs
    assert parallel_even == even
    assert job.metrics().operators["seen"].received == 5000


@models
def test_punctuation_passes_once_and_in_place(options: dict[str, Any]) -> None:
    flow = pn.Flow("marks")
    numbers = flow.source(range(3000)).punctuate(lambda n: n % 100 == 99)
    with flow.parallel(width=3):
        kept = numbers.map(lambda n: n * 2).filter(lambda n: n % 3)
    sums = kept.window(pn.tumbling(punctuation=True)).apply(sum).collect()
    pn.run(flow, on="local", **options)
    assert sums == [sum(2 * n for n in range(start, start + 100) if 2 * n % 3) for start in range(0, 3000, 100)]


@models
def test_what_keys_release_at_the_end(options: dict[str, Any]) -> None:
    flow = pn.Flow("end")
    with flow.parallel(width=4):
        last = flow.source(range(1000)).key_by(lambda n: n % 50).window(pn.tumbling(count=7, partial=True))
        out = last.apply(lambda key, tuples: (key, tuples)).collect()
    pn.run(flow, on="local", **options)
    for key in range(50):
        mine = [tuples for k, tuples in out if k == key]
        assert [n for tuples in mine for n in tuples] == list(range(key, 1000, 50))
        assert [len(tuples) for tuples in mine] == [7, 7, 6]


@models
def test_dead_letters_name_the_operator_and_not_its_copy(options: dict[str, Any]) -> None:
    flow = pn.Flow("dead")
    dead = flow.dead_letters()
    with flow.parallel(width=3):
        good = flow.source(range(100)).map(lambda n: 1 // (n % 10), name="divide", on_error=dead)
    out, letters = good.collect(), dead.collect()
    pn.run(flow, on="local", **options)
    assert len(out) == 90
    assert [(letter.item, letter.operator) for letter in letters] == [(n, "divide") for n in range(0, 100, 10)]


@models
def test_an_error_in_a_channel_names_the_operator(options: dict[str, Any]) -> None:
    flow = pn.Flow("error")
    with flow.parallel(width=3):
        out = flow.source(range(10_000)).map(lambda n: 10 // (n - 5000), name="divide").collect()
    with pytest.raises(pn.OperatorError, match=r"divide.*\n?.*test_fission") as caught:
        pn.run(flow, on="local", **options)
    assert caught.value.operator == "divide"
    assert out == [10 // (n - 5000) for n in range(5000)]


def test_a_key_that_cannot_be_read_names_the_operator() -> None:
    flow = pn.Flow("error")
    with flow.parallel(width=2, by="user"):
        users = flow.source([{"user": 1}, {"user": 2}, {"name": 3}, {"user": 4}]).key_by("user")
        out = users.scan(lambda s, t: (s, t["user"]), init=0, name="keep").collect()
    with pytest.raises(pn.OperatorError, match="keep"):
        pn.run(flow, on="local")
    assert out == [1, 2]


def _stop_at(bad: int, n: int) -> Iterator[int]:
    yield n
    if n == bad:
        raise ValueError(n)
    yield -n


def _failing(seed: int, width: int) -> tuple[pn.Flow, list[Any]]:
    """A region by key in which one tuple fails, in one of several ways; what it sent before that counts."""
    rng = random.Random(seed)
    count = rng.choice([5, 300, 3000, 5000])
    bad, way, keys = rng.randrange(count), rng.randrange(4), rng.choice([1, 3, 50])

    def key(n: int) -> int:
        return n % keys

    flow = pn.Flow("failing")
    source = flow.source(range(count))
    with flow.parallel(width=width, by=key):
        numbers = source.key_by(key).scan(lambda seen, n: (seen + 1, n), init=0)
        if rng.random() < 0.5:
            numbers = numbers.filter(lambda n: n % 3 or n == bad)
        if way == 0:
            numbers = numbers.map(lambda n: n if n != bad else 1 // 0)
        elif way == 1:
            numbers = numbers.flat_map(lambda n: _stop_at(bad, n))
        elif way == 2:
            numbers = numbers.key_by(key).scan(lambda seen, n: (seen + 1 // (n != bad), (seen, n)), init=0)
        else:
            numbers = numbers.map(lambda n: 1 // (bad - n) if n <= bad else n)
        numbers = numbers.map(lambda n: n)
    return flow, numbers.collect()


@models
@pytest.mark.parametrize("seed", blocks(6, 12))
def test_all_that_came_before_an_error_in_a_channel_is_delivered(seed: int, options: dict[str, Any]) -> None:
    flow, wanted = _failing(seed, 1)
    with pytest.raises(pn.OperatorError):
        pn.run(flow, on="local", threading="manual")
    for width in (2, 5):
        flow, out = _failing(seed, width)
        with pytest.raises(pn.OperatorError):
            pn.run(flow, on="local", **options)
        assert out == wanted


class Answering(pn.Operator):
    """Keeps nothing, and answers punctuation."""

    kind = "stateless"

    def process(self, t: Any, port: int) -> Any:
        return t

    def on_punctuation(self, mark: pn.Punctuation, port: int) -> Any:
        return mark.name


def test_an_operator_that_answers_punctuation_has_one_copy() -> None:
    flow = pn.Flow("answers")
    out = (
        flow.source(range(5), name="in").map(abs, name="dear").process(Answering(), name="answers").collect(name="out")
    )
    costs = {"in": 1e-7, "dear": 1e-3, "answers": 1e-3, "out": 1e-7}
    profile = pn.Profile("answers", {name: OperatorProfile(cost, 1.0, 9) for name, cost in costs.items()})
    plan = pn.plan(flow, profile=profile, cores=8, gil=False)
    assert "answers cannot be replicated: it answers punctuation" in str(plan)
    pn.run(flow, on="local", plan=plan)
    assert out == [0, 1, 2, 3, 4, "FINAL"]
    refused = pn.Flow("refused")
    with refused.parallel(width=3):
        refused.source(range(5)).process(Answering(), name="answers").collect()
    with pytest.raises(pn.FlowError, match="it answers punctuation"):
        pn.run(refused, on="local")


def test_what_cannot_be_replicated_says_why() -> None:
    flow = pn.Flow("refused")
    left, right = (flow.source([{"k": n} for n in range(50)]).key_by("k") for _ in range(2))
    with flow.parallel(width=2, by="k"):
        joined = left.join(right, window=pn.sliding(count=50), name="j")
        out = joined.map(lambda pair: pair[0]["k"]).filter(lambda n: n % 2).collect()
    replicated = replicate(flow.graph())
    assert replicated.refused == {flow.graph().node("j").index: "it has several inputs"}
    assert len(replicated.graph) == len(flow.graph()) + 4  # a copy each of two operators, a split and a merge
    pn.run(flow, on="local")
    assert sorted(out) == list(range(1, 50, 2))


# ---------------------------------------------------------------------------------------------- streams that meet

Tagged = tuple[tuple[int, ...], int]  # the way that a tuple took, and what it is


def _way(t: Tagged) -> tuple[int, ...]:
    return t[0]


def _count(seen: int, t: Tagged) -> tuple[int, Tagged]:
    return seen + 1, (t[0], t[1] * 31 + seen)


def braid(seed: int, width: int) -> tuple[pn.Flow, Any]:
    """Streams that part and meet, again and again; each tuple knows its way, and those of one way keep their order."""
    rng = random.Random(seed)
    flow = pn.Flow("braid")
    stream: Any = flow.source([((), n) for n in range(rng.randrange(1200))])
    for _ in range(rng.randint(1, 3)):
        with flow.parallel(width):
            if rng.random() < 0.7:
                stream = stream.map(lambda t: (t[0], t[1] + 1))
            ways = stream.split(3, lambda t: t[1] % 4 - 1)
            tagged = [way.map(lambda t, number=number: ((*t[0], number), t[1])) for number, way in enumerate(ways)]
            if rng.random() < 0.5:
                tagged[0] = tagged[0].flat_map(lambda t: [t, (t[0], -t[1])])
            if rng.random() < 0.5:
                tagged[1] = tagged[1].map_batch(lambda ts: [t for t in ts if t[1] % 5])
            stream = tagged[0].union(*tagged[1:])
            if rng.random() < 0.5:
                stream = stream.filter(lambda t: t[1] % 6)
        if rng.random() < 0.6:
            with flow.parallel(width, by=_way):
                stream = stream.key_by(_way).scan(_count, init=0)
    return flow, stream.collect()


def by_way(tuples: Any) -> dict[tuple[int, ...], list[int]]:
    found: dict[tuple[int, ...], list[int]] = {}
    for way, n in tuples:
        found.setdefault(way, []).append(n)
    return found


@models
@pytest.mark.parametrize("seed", blocks(4, 8))
def test_streams_that_meet_keep_their_own_order(seed: int, options: dict[str, Any]) -> None:
    flow, out = braid(seed, 1)
    pn.run(flow, on="local")
    wanted = by_way(out)
    for width in (2, 3):
        flow, out = braid(seed, width)
        assert len(replicate(flow.graph()).graph) > len(flow.graph())
        pn.run(flow, on="local", **options)
        assert by_way(out) == wanted


def test_keys_spread_over_channels() -> None:
    for width in (2, 3, 8):
        for keys in (range(1000), [f"user{n}" for n in range(1000)]):
            counts = [0] * width
            for key in keys:
                counts[channel_of(key, width)] += 1
            assert min(counts) > 1000 / width * 0.5
