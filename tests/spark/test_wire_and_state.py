"""What stages send and keep, without Spark: hashes, channels, origins, buckets."""

from __future__ import annotations

import subprocess
import sys
from collections.abc import Iterator
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta, timezone
from decimal import Decimal
from fractions import Fraction
from typing import Any, NamedTuple

import pytest
from hypothesis import given
from hypothesis import strategies as st

import penstock as pn
from penstock.operators.registry import logic_of
from penstock.platforms.spark.channels import channel_names, murmur3
from penstock.platforms.spark.processor import merged
from penstock.platforms.spark.state import GROWTH, KEYS_PER_BUCKET, Buckets, ChannelState, Shared
from penstock.platforms.spark.wire import decode, encode, stable_hash

KEYS = st.recursive(
    st.one_of(st.text(), st.integers(), st.floats(allow_nan=False), st.booleans(), st.none(), st.binary()),
    lambda inner: st.lists(inner, max_size=3).map(tuple),
    max_leaves=5,
)


class Pair(NamedTuple):
    a: str
    b: int


@dataclass(frozen=True)
class Host:
    name: str


@given(KEYS, KEYS)
def test_equal_keys_have_equal_hashes(a: Any, b: Any) -> None:
    if a == b:
        assert stable_hash(a) == stable_hash(b)
    assert 0 <= stable_hash(a) < 1 << 32


def test_keys_that_are_equal_across_types_go_to_one_channel() -> None:
    assert len({stable_hash(key) for key in (1, 1.0, True, Decimal(1), Fraction(1))}) == 1
    assert stable_hash(Pair("a", 1)) == stable_hash(("a", 1))
    noon = datetime(2020, 1, 1, 12, tzinfo=UTC)
    assert stable_hash(noon) == stable_hash(noon.astimezone(timezone(timedelta(hours=2))))


def test_a_hash_is_the_same_in_another_process() -> None:
    keys = ["a", ("b", 2), 3.5, None, b"x", datetime(2020, 1, 1)]  # noqa: DTZ001 — naive on purpose
    code = (
        "from datetime import datetime; from penstock.platforms.spark.wire import stable_hash;"
        f"print([stable_hash(key) for key in {keys!r}])".replace("datetime.datetime(", "datetime(")
    )
    shown = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True).stdout
    assert shown.strip() == str([stable_hash(key) for key in keys])


def test_a_key_that_cannot_be_placed_is_refused() -> None:
    with pytest.raises(TypeError, match="cannot be placed on Spark"):
        stable_hash(object())
    assert stable_hash(Host("a")) == stable_hash(Host("a"))


def test_murmur3_is_that_of_spark() -> None:
    # select hash(0), hash(1), hash(-1), hash(42) in Spark SQL
    assert [murmur3(n) for n in (0, 1, -1, 42)] == [933211791, -559580957, -1604776387, 29417773]


@pytest.mark.parametrize("count", [1, 2, 3, 8, 16, 100])
def test_every_channel_has_a_partition_of_its_own(count: int) -> None:
    names = channel_names(count)
    assert len(set(names)) == count
    assert {murmur3(name) % count for name in names} == set(range(count))


@given(st.lists(st.integers(0, 1 << 100)), st.data())
def test_payloads_keep_origins_of_any_size(origins: list[int], data: st.DataObject) -> None:
    tuples = list(range(len(origins)))
    found, items = decode(encode(origins, tuples))
    assert list(found) == origins
    assert items == tuples


@pytest.mark.parametrize(
    "tuples", [[Pair("a", 1), Pair("b", 2)], [Pair("a", 1), ("b", 2)], [("a", 1)], [Host("a")], [pn.Punctuation.WINDOW]]
)
def test_payloads_keep_the_classes_of_tuples(tuples: list[Any]) -> None:
    _, items = decode(encode(range(len(tuples)), tuples))
    assert items == tuples
    assert [type(item) for item in items] == [type(item) for item in tuples]


@given(st.lists(st.lists(st.integers(0, 1000), max_size=20).map(sorted), max_size=5))
def test_payloads_are_merged_by_origin(runs: list[list[int]]) -> None:
    payloads = {3 * 64: [encode(run, list(run)) for run in runs]}
    result = [item for _, _, tuples in merged(payloads) for item in tuples]
    assert result == sorted(item for run in runs for item in run)


def test_a_mark_passed_on_by_every_channel_counts_once() -> None:
    mark = pn.Punctuation.WINDOW
    payloads = {64: [encode([1, 5], ["a", mark]), encode([2, 5, 6], ["b", mark, "c"])]}
    assert [item for _, _, tuples in merged(payloads) for item in tuples] == ["a", "b", mark, "c"]


class Memory(dict[tuple[int, int], bytes]):
    """Entries in memory, which count how often they are asked."""

    def __init__(self) -> None:
        super().__init__()
        self.calls = 0

    def get(self, operator: int, number: int) -> bytes | None:  # type: ignore[override]
        self.calls += 1
        return dict.get(self, (operator, number))

    def put(self, operator: int, number: int, value: bytes) -> None:
        self.calls += 1
        self[operator, number] = value

    def remove(self, operator: int, number: int) -> None:
        self.pop((operator, number), None)

    def items(self) -> Iterator[tuple[int, int, bytes]]:  # type: ignore[override]
        yield from ((operator, number, value) for (operator, number), value in dict.items(self))


@given(st.lists(st.tuples(st.integers(0, 3000), st.sampled_from(["put", "remove"])), max_size=300), st.integers(1, 40))
def test_buckets_hold_what_was_put(steps: list[tuple[int, str]], flush_every: int) -> None:
    entries, expected = Memory(), {}
    buckets = Buckets(entries, 7)
    for number, (key, action) in enumerate(steps):
        if action == "put":
            buckets.put(key, b"%d" % number)
            expected[key] = b"%d" % number
        else:
            buckets.remove(key)
            expected.pop(key, None)
        if number % flush_every == 0:
            buckets.flush()
            buckets = Buckets(entries, 7)
    buckets.flush()
    assert dict(Buckets(entries, 7).items()) == expected


def test_touching_few_keys_of_many_costs_few_calls() -> None:
    entries = Memory()
    buckets = Buckets(entries, 1)
    for key in range(50_000):
        buckets.put(key, b"state")
    buckets.flush()
    assert len(entries) > 50_000 / KEYS_PER_BUCKET / GROWTH
    entries.calls = 0
    buckets = Buckets(entries, 1)
    for key in range(0, 50_000, 5000):
        buckets.put(key, b"changed")
    buckets.flush()
    assert entries.calls <= 2 * 10 + 2


def _driven(make: Any, chunks: list[list[Any]]) -> list[Any]:
    """Run chunks through a flow's only operator with state, storing and loading everything between them."""
    from penstock.graph.graph import Target
    from penstock.platforms.spark import planning
    from penstock.platforms.spark.program import make_program
    from penstock.platforms.spark.stage_runner import StageRunner

    flow = pn.Flow("stored")
    make(flow.source([])).collect()
    program = make_program(planning.plan(flow.graph(), cores=1), "test")
    entries, out = Memory(), []
    for number, chunk in enumerate([*chunks, None]):
        state = ChannelState(entries)
        runner = StageRunner(program, 1, 0, state=state)
        if chunk is None:
            runner.finish(frozenset(), frozenset({0}))
        else:
            runner.feed(Target(1, 0), range(number * 100, number * 100 + len(chunk)), chunk)
        state.flush()
        for _, _, payload in runner.outbox.rows():
            out += decode(payload)[1]
    return out


class Total(pn.Operator):
    def __init__(self) -> None:
        self.total = 0

    def open(self, ctx: pn.OperatorContext) -> None:
        self.ctx = ctx

    def process(self, t: Any, port: int) -> Any:
        self.total += t["v"]
        return (self.ctx.key, self.total)


STATEFUL = {
    "scan": lambda s: s.scan(lambda n, t: (n + t["v"], n + t["v"]), init=0),
    "keyed scan": lambda s: s.key_by("k").scan(lambda n, t: (n + t["v"], n + t["v"]), init=0),
    "operator": lambda s: s.process(Total()),
    "keyed operator": lambda s: s.key_by("k").process(Total()),
    "count window": lambda s: s.key_by("k").window(pn.tumbling(count=3)).aggregate(n=pn.count(), s=pn.sum("v")),
    "event time": lambda s: s.key_by("k").window(pn.tumbling(time=4, on="t")).aggregate(s=pn.stddev("v")),
    "sliding event time": lambda s: s.key_by("k").window(pn.sliding(time=4, every=2, on="t")).aggregate(m=pn.max("v")),
    "sliding count": lambda s: s.key_by("k").window(pn.sliding(count=3)).aggregate(m=pn.mean("v")),
    "session": lambda s: s.key_by("k").window(pn.session(gap=3, on="t")).aggregate(s=pn.sum("v")),
    "apply with a lambda": lambda s: s.key_by("k").window(pn.tumbling(count=2)).apply(lambda k, ts: (k, len(ts))),
    "stream watermark": lambda s: (
        s.key_by("k").window(pn.tumbling(time=4, on="t", watermark="stream")).aggregate(s=pn.sum(lambda t: t["v"]))
    ),
    "dedup by time": lambda s: s.dedup("v", time=5, on="t"),
    "dedup by count": lambda s: s.dedup(lambda t: t["v"] % 4, count=3),
    "sort": lambda s: s.sort("v", pn.sliding(count=3)),
    "aggregator of lambdas": lambda s: s.window(pn.tumbling(count=4)).aggregate(
        s=pn.aggregator(lambda: 0, lambda n, t: n + t["v"], lambda n: -n)
    ),
}


@pytest.mark.parametrize("case", STATEFUL)
def test_state_that_is_stored_between_chunks_goes_on_as_if_it_had_not_been(case: str) -> None:
    tuples = [{"k": "ab"[i % 2], "v": i * 7 % 10, "t": i - (i % 3 == 2) * 2} for i in range(24)]
    flow = pn.Flow("plain")
    expected = STATEFUL[case](flow.source(tuples)).collect()
    pn.run(flow, on="local")
    got = _driven(STATEFUL[case], [tuples[i : i + 5] for i in range(0, 24, 5)])
    assert sorted(map(repr, got)) == sorted(map(repr, expected))


def test_stored_state_refers_to_the_users_functions_instead_of_containing_them() -> None:
    flow = pn.Flow("shared")
    marker = "x" * 5000
    flow.source([]).key_by("k").window(pn.tumbling(count=9)).apply(lambda k, ts: (marker, k, ts)).collect()
    logic = logic_of(flow.graph().nodes[1])
    partition = logic.make("a")  # type: ignore[attr-defined]
    partition.process({"k": "a"}, 0)
    shared = Shared(logic)
    data = shared.dumps(partition)
    assert len(data) < 1000
    again = shared.loads(data)
    assert type(again) is type(partition)
