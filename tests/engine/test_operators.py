"""What each operator does, on every platform."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import dataclass
from typing import Any, NamedTuple

import pytest

import penstock as pn

Run = Callable[..., pn.Job]


def test_none_from_map_is_a_value(run: Run) -> None:
    flow = pn.Flow("none")
    out = flow.source([1, 2]).map(lambda n: None).collect()
    run(flow)
    assert out == [None, None]


def test_flat_map_takes_any_iterable(run: Run) -> None:
    flow = pn.Flow("iterables")
    out = flow.source([0, 1, 2]).flat_map(lambda n: [(), "ab", {"k": 1}.items()][n]).collect()
    run(flow)
    assert out == ["a", "b", ("k", 1)]


@pytest.mark.parametrize("key", [lambda t: t["a"], "a", ["a", "b"]], ids=["function", "name", "names"])
def test_scan_keeps_a_state_per_key(run: Run, key: Any) -> None:
    flow = pn.Flow("scan")
    tuples = [{"a": n % 2, "b": 0, "n": n} for n in range(6)]
    out = flow.source(tuples).key_by(key).scan(lambda total, t: (total + t["n"], total + t["n"]), init=0).collect()
    run(flow)
    assert out == [0, 1, 2, 4, 6, 9]


class Point(NamedTuple):
    host: str
    n: int


@dataclass(frozen=True)
class Record:
    host: str
    n: int


@pytest.mark.parametrize("make", [Point, Record, lambda h, n: {"host": h, "n": n}], ids=["tuple", "object", "mapping"])
def test_attributes_are_found_by_name_on_mappings_and_objects(run: Run, make: Any) -> None:
    flow = pn.Flow("attributes")
    tuples = [make("ab"[n % 2], n) for n in range(4)]
    windows = flow.source(tuples).key_by("host").window(pn.tumbling(count=2))
    out = windows.aggregate(total=pn.sum("n")).collect()
    run(flow)
    assert out == [{"host": "a", "total": 2}, {"host": "b", "total": 4}]


def test_a_mutable_first_state_is_not_shared_between_keys(run: Run) -> None:
    flow = pn.Flow("lists")
    out = flow.source("abab").key_by(lambda c: c).scan(lambda seen, c: ([*seen, c], len(seen)), init=[]).collect()
    run(flow)
    assert out == [0, 0, 1, 1]


def test_a_callable_makes_the_first_state(run: Run) -> None:
    flow = pn.Flow("factory")
    out = flow.source("aab").key_by(lambda c: c).scan(lambda d, c: (d | {c: 1}, len(d)), init=dict).collect()
    run(flow)
    assert out == [0, 1, 0]


class Numbered(pn.Operator):
    """Yields (count so far, tuple): state in self is the state of one key."""

    def __init__(self) -> None:
        self.count = 0

    def process(self, t: Any, port: int) -> Iterator[Any]:
        self.count += 1
        yield (self.count, t)


def test_an_operator_has_a_state_of_its_own_per_key(run: Run) -> None:
    prototype = Numbered()
    flow = pn.Flow("operators")
    out = flow.source("aba").key_by(lambda c: c).process(prototype).collect()
    whole = flow.source("aba").process(prototype).collect()
    run(flow)
    assert out == [(1, "a"), (1, "b"), (2, "a")]
    assert whole == [(1, "a"), (2, "b"), (3, "a")]
    assert prototype.count == 0


class Returns(pn.Operator):
    def process(self, t: Any, port: int) -> Any:
        return t


def test_what_process_returns_is_nothing_many_or_one(run: Run) -> None:
    flow = pn.Flow("returns")
    out = flow.source([None, [1, 2], (3, 4), iter([5]), {"a": 6}, "bc"]).process(Returns()).collect()
    run(flow)
    assert out == [1, 2, (3, 4), 5, {"a": 6}, "bc"]


class Sorting(pn.Operator):
    """Sends small numbers to output 0, large ones to output 1, and a total at the end."""

    outputs = 2

    def open(self, ctx: pn.OperatorContext) -> None:
        self.ctx = ctx
        self.total = 0

    def process(self, t: int, port: int) -> None:
        self.total += t
        self.ctx.submit(t, 0 if t < 5 else 1)

    def on_punctuation(self, mark: pn.Punctuation, port: int) -> Any:
        if mark is pn.Punctuation.FINAL:
            return [("total", self.total)]
        return None


def test_an_operator_with_two_outputs_gives_two_streams(run: Run) -> None:
    flow = pn.Flow("outputs")
    small, large = flow.source(range(8)).process(Sorting())
    low, high = small.collect(), large.map(lambda n: -n).collect()
    run(flow)
    assert low == [0, 1, 2, 3, 4, ("total", 28)]
    assert high == [-5, -6, -7]


class Interleaving(pn.Operator):
    def open(self, ctx: pn.OperatorContext) -> None:
        self.ctx = ctx

    def process(self, t: int, port: int) -> Iterator[Any]:
        self.ctx.submit((t, "before"))
        yield (t, "yielded")
        self.ctx.submit((t, "after"))


def test_submitted_and_yielded_tuples_keep_the_order_of_the_code(run: Run) -> None:
    flow = pn.Flow("order")
    out = flow.source([1]).process(Interleaving()).collect()
    run(flow)
    assert out == [(1, "before"), (1, "yielded"), (1, "after")]


class Latest(pn.Operator):
    """Input 1 sets a value, input 0 reads it."""

    inputs = 2

    def __init__(self) -> None:
        self.value: Any = None

    def process(self, t: Any, port: int) -> Any:
        if port == 1:
            self.value = t[1]
            return None
        return (t, self.value)


def test_an_operator_with_two_keyed_inputs(run: Run) -> None:
    flow = pn.Flow("inputs")
    everything = flow.source([("set", 1, "a"), ("get", 1), ("set", 2, "b"), ("get", 2), ("get", 1)])
    sets, gets = everything.filter(lambda t: t[0] == "set", split=True)
    settings = sets.map(lambda t: (t[1], t[2])).key_by(lambda t: t[0])
    out = gets.map(lambda t: t[1]).key_by(lambda n: n).process(Latest(), settings).collect()
    run(flow)
    assert [key for key, _ in out] == [1, 2, 1]
    assert {value for key, value in out if key == 1} <= {None, "a"}, "a key sees only what was set for it"
    assert {value for key, value in out if key == 2} <= {None, "b"}


def test_union_of_a_stream_with_itself_gives_everything_twice(run: Run) -> None:
    flow = pn.Flow("twice")
    stream = flow.source([1, 2])
    out = stream.union(stream).collect()
    run(flow)
    assert sorted(out) == [1, 1, 2, 2]


def test_pair_takes_one_of_each_in_turn(run: Run) -> None:
    flow = pn.Flow("pair")
    out = flow.source([1, 2, 3]).pair(flow.source("ab")).collect()
    run(flow)
    assert out == [1, "a", 2, "b"]


def test_a_keyed_barrier_meets_within_a_key(run: Run) -> None:
    flow = pn.Flow("barrier")
    stream = flow.source([("x", 1), ("y", 2), ("x", 3)])
    mirrored = stream.map(lambda t: (t[0], -t[1]))
    out = stream.key_by(lambda t: t[0]).barrier(mirrored.key_by(lambda t: t[0])).collect()
    run(flow)
    assert [pair for pair in out if pair[0][0] == "x"] == [(("x", 1), ("x", -1)), (("x", 3), ("x", -3))]


def test_enrich_uses_the_latest_row_and_none_without(run: Run) -> None:
    flow = pn.Flow("enrich")
    events = flow.source([{"id": 1, "name": "a"}, {"src": 1}, {"id": 1, "name": "b"}, {"src": 1}, {"src": 2}])
    rows, calls = events.filter(lambda t: "id" in t, split=True)
    out = calls.map_batch(list).enrich(
        rows, key="src", table_key="id", with_=lambda call, row: (call["src"], row and row["name"])
    )
    got = out.collect()
    run(flow)
    assert [key for key, _ in got] == [1, 1, 2]
    assert got[-1] == (2, None)
    assert {name for key, name in got if key == 1} <= {None, "a", "b"}


def test_enrich_keeps_the_latest_row_of_each_key() -> None:
    class Rows(pn.Operator):
        """Lets the calls go only after all rows have been read."""

        inputs = 2
        outputs = 2

        def open(self, ctx: pn.OperatorContext) -> None:
            self.ctx, self.calls = ctx, []

        def process(self, t: Any, port: int) -> None:
            self.calls.append(t) if port == 0 else self.ctx.submit(t, 1)

        def on_punctuation(self, mark: pn.Punctuation, port: int) -> None:
            if port == 1:
                self.rows_ended = True
            for call in self.calls if getattr(self, "rows_ended", False) else []:
                self.ctx.submit(call, 0)

    flow = pn.Flow("enrich")
    rows = flow.source([(1, "old"), (1, "new"), (2, "other")])
    calls, table = flow.source([1, 2, 3]).process(Rows(), rows)
    joined = calls.enrich(table, key=lambda c: c, table_key=lambda r: r[0], with_=lambda c, r: (c, r and r[1]))
    out = joined.collect()
    pn.run(flow, on="local")
    assert dict(out) == {1: "new", 2: "other", 3: None}


def test_enrich_waits_for_the_whole_table_when_asked(run: Run) -> None:
    flow = pn.Flow("enrich")
    calls = flow.source([{"src": n % 7, "n": n} for n in range(500)])
    rows = flow.source([{"id": n % 5, "row": n} for n in range(1000)])
    joined = calls.enrich(rows, key="src", table_key="id", with_=lambda c, r: (c["n"], r and r["row"]), wait=True)
    out = joined.collect()
    run(flow)
    assert out == [(n, 995 + n % 7 if n % 7 < 5 else None) for n in range(500)]


def test_dynamic_filter_passes_what_is_in_its_set(run: Run) -> None:
    flow = pn.Flow("filter")
    control = flow.source([("remove", 9)])
    out = flow.source([1, 2, 3]).dynamic_filter(control, by=lambda n: n, initial=[1, 3]).collect()
    run(flow)
    assert out == [1, 3]


def test_dynamic_filter_is_changed_by_what_comes_back() -> None:
    """Every tuple that passes takes its value out of the set: the second of each kind is dropped."""
    flow = pn.Flow("filter")
    back = flow.feedback()
    passed = flow.source(iter([1, 2, 1, 2])).throttle(1e9).dynamic_filter(back, by=lambda n: n, initial=[1, 2])
    back.connect(passed.map(lambda n: ("remove", n)))
    out = passed.collect()
    pn.run(flow, on="local")
    assert out[:2] == [1, 2]


def test_a_control_tuple_of_the_wrong_shape_is_refused(run: Run) -> None:
    flow = pn.Flow("filter")
    flow.source([]).dynamic_filter(flow.source(["add 3"]), by="x", name="watch").collect()
    with pytest.raises(pn.OperatorError, match=r"'watch'(.|\n)*'add' or 'remove'"):
        run(flow)


def test_switch_holds_tuples_while_off_and_loses_none(run: Run) -> None:
    flow = pn.Flow("switch")
    script = flow.source([1, False, 2, 3, True, 4, False, 5])
    control, data = script.filter(lambda t: isinstance(t, bool), split=True)
    out = data.switch(control).collect()
    run(flow)
    assert out == [1, 2, 3, 4, 5]


def test_a_gate_fed_back_from_downstream_lets_everything_pass_in_order() -> None:
    flow = pn.Flow("gate")
    done = flow.feedback()
    passed = flow.source(range(100)).gate(done, limit=2).map(lambda n: n * 2)
    done.connect(passed)
    out = passed.collect()
    pn.run(flow, on="local")
    assert out == [n * 2 for n in range(100)]


def test_a_gate_without_acknowledgements_releases_the_rest_at_the_end(run: Run) -> None:
    flow = pn.Flow("gate")
    out = flow.source(range(5)).gate(flow.source([]), limit=2).collect()
    run(flow)
    assert out == [0, 1, 2, 3, 4]


def test_split_drops_negative_and_refuses_too_large_an_index(run: Run) -> None:
    flow = pn.Flow("split")
    streams = flow.source([0, 1, 2, -1]).split(3, lambda n: n)
    out = [stream.collect() for stream in streams]
    run(flow)
    assert out == [[0], [1], [2]]
    flow = pn.Flow("split")
    flow.source([7]).split(3, lambda n: n)[0].collect()
    with pytest.raises(pn.OperatorError, match="from 0 to 2"):
        run(flow)


def test_a_sink_may_be_a_function_a_list_or_a_sink(run: Run, tmp_path: Any) -> None:
    seen: list[int] = []
    listed: list[int] = []
    flow = pn.Flow("sinks")
    flow.source(range(3)).sink(seen.append).sink(listed).sink(pn.files.write(tmp_path / "out.txt"))
    run(flow)
    assert seen == listed == [0, 1, 2]
    assert (tmp_path / "out.txt").read_text() == "0\n1\n2\n"


def test_a_flow_runs_again_from_the_start(run: Run) -> None:
    flow = pn.Flow("again")
    out = flow.source([1, 2]).scan(lambda n, t: (n + t, n + t), init=0).collect()
    run(flow)
    run(flow)
    assert out == [1, 3]


def test_refused_tuples_go_where_the_user_said(run: Run) -> None:
    flow = pn.Flow("letters")
    letters = flow.dead_letters()
    stream = flow.source([4, 0, 2])
    inverted = stream.map(lambda n: 8 // n, on_error=letters, name="invert").collect()
    skipped = stream.flat_map(lambda n: [1, 8 // n], on_error="skip", name="skipping").collect()
    kept, rest = stream.filter(lambda n: 8 // n > 2, split=True, on_error=letters, name="testing")
    kept_out, rest_out = kept.collect(), rest.collect()
    refused = letters.map(lambda letter: (letter.operator, letter.item, letter.reason.split(":")[0])).collect()
    job = run(flow)
    assert inverted == [2, 4]
    assert skipped == [1, 2, 1, 4]
    assert (kept_out, rest_out) == ([2], [4])
    assert sorted(refused) == [("invert", 0, "ZeroDivisionError"), ("testing", 0, "ZeroDivisionError")]
    assert job.metrics().operators["skipping"].counters == {"skipped": 1}
