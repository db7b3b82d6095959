"""`aggregate` and `apply`: keys, bounds, late tuples, time, moves in the middle, and all of it against the slow way."""

import operator
from datetime import datetime, timedelta

import pytest
from hypothesis import given
from hypothesis import strategies as st

import penstock as pn
from penstock.errors import FlowError
from penstock.windows.policies import session, sliding, tumbling
from tests.operators.drive import drive
from tests.operators.test_aggregates import EVERYTHING, naive
from tests.windows import oracles

tuples = st.lists(
    st.builds(
        lambda k, ts, v, gap: {"k": k, "ts": ts, "v": v, "gap": gap},
        st.sampled_from("ab"),
        st.integers(0, 40),
        st.integers(-5, 5),
        st.integers(0, 4),
    ),
    max_size=30,
)
sizes = st.integers(1, 8)
moves = st.integers(0, 35)


def play(driven, items, move):
    """Feed, letting `gap` seconds pass before each tuple, with all state pickled after `move` tuples."""
    for number, t in enumerate(items):
        if number == move:
            driven.move()
        driven.advance(t["gap"])
        driven.feed(t)
    driven.finish()
    return driven


def per_key(items):
    return {k: [t for t in items if t["k"] == k] for k in dict.fromkeys(t["k"] for t in items)}


def arrived(items):
    at, found = 0, []
    for t in items:
        at += t["gap"]
        found.append({**t, "at": at})
    return found


def check_rows(rows, expected_per_key):
    """Rows are those expected, in order for each key."""
    for key, windows in expected_per_key.items():
        mine = [row for row in rows if row["k"] == key]
        assert [next(iter(row)) for row in mine] == ["k"] * len(mine)
        assert mine == [{"k": key, **chosen(held, mine[0]), **bounds} for held, bounds in windows]
    assert len(rows) == sum(len(windows) for windows in expected_per_key.values())


def chosen(held, row):
    """The results of a window that `row` has names for."""
    return {name: result for name, result in naive([t["v"] for t in held]).items() if name in row}


def aggregated(window, aggregates=EVERYTHING):
    return drive(lambda s: s.key_by("k").window(window).aggregate(**aggregates))


# Which code follows a window depends on its aggregates: some can only be replayed, some are merged, some stacked.
REPLAYED = ("values", "own")
MERGED = {name: aggregate for name, aggregate in EVERYTHING.items() if name not in REPLAYED}
STACKED = {name: aggregate for name, aggregate in MERGED.items() if name not in ("first", "last", "distinct")}
some = st.sampled_from([EVERYTHING, MERGED, STACKED, {"n": pn.count()}])


@given(tuples, sizes, sizes, st.booleans(), moves, some)
def test_keyed_windows_of_count(items, size, every, partial, move, aggregates):
    for window, oracle in (
        (tumbling(count=size, partial=partial), lambda ts: oracles.tumbling_count(ts, size, partial)),
        (sliding(count=size, every=every, partial=partial), lambda ts: oracles.sliding_count(ts, size, every, partial)),
    ):
        expected = {k: [(held, {}) for held in oracle(ts)] for k, ts in per_key(items).items()}
        check_rows(play(aggregated(window, aggregates), items, move).out, expected)


@given(tuples, sizes, st.none() | sizes, st.booleans(), moves)
def test_keyed_windows_of_delta(items, size, every, partial, move):
    for window, oracle in (
        (tumbling(delta=size, on="ts", partial=partial), lambda ts: oracles.tumbling_delta(ts, size, partial)),
        (sliding(delta=size, on="ts", every=every), lambda ts: oracles.sliding_delta(ts, size, every)),
    ):
        expected = {k: [(held, {}) for held in oracle(ts)] for k, ts in per_key(items).items()}
        check_rows(play(aggregated(window), items, move).out, expected)


@given(tuples, sizes, moves)
def test_windows_of_arrival_time(items, size, move):
    driven = drive(lambda s: s.window(tumbling(time=size, partial=True)).apply(list))
    assert play(driven, items, move).out == [
        [{k: v for k, v in t.items() if k != "at"} for t in held]
        for held in oracles.tumbling_time(arrived(items), size, True)
    ]


@given(tuples, sizes, st.none() | sizes, moves)
def test_keyed_sliding_windows_of_arrival_time(items, size, every, move):
    driven = aggregated(sliding(time=size, every=every))
    for number, t in enumerate(items):
        if number == move:
            driven.move()
        driven.advance(t["gap"])
        driven.feed(t)
    stamped = arrived(items)
    expected = {}
    for k, ts in per_key(stamped).items():
        # A key's windows fire by time, so also after its last tuple: go on to the end of the whole stream.
        end = {"at": stamped[-1]["at"], "v": None}
        fired = oracles.sliding_time([*ts, end] if every is not None else ts, size, every)
        expected[k] = [(held, {}) for held in fired]
    check_rows(driven.out, expected)


def check_timed(driven, found):
    """Per key: the windows, and the tuples that came too late."""
    check_rows(
        driven.out,
        {
            k: [(held, {"window_start": start, "window_end": end}) for start, end, held in windows]
            for k, (windows, _) in found.items()
        },
    )
    for k, (_, dropped) in found.items():
        assert [t for t in driven.late if t["k"] == k] == dropped


@given(tuples, sizes, sizes, st.sampled_from([0, 0, 3, 12]), moves, st.booleans(), some)
def test_keyed_windows_of_event_time(items, size, step, late, move, is_tumbling, aggregates):
    step = size if is_tumbling else step
    window = (
        tumbling(time=size, on="ts", late=late) if is_tumbling else sliding(time=size, every=step, on="ts", late=late)
    )
    driven = play(aggregated(window, aggregates), items, move)
    found = {k: oracles.event_time(ts, size, step, late) for k, ts in per_key(items).items()}
    check_timed(driven, found)
    assert driven.logic.counters() == {"late": len(driven.late)}


@given(tuples, sizes, st.sampled_from([0, 0, 3, 12]), moves)
def test_keyed_sessions(items, gap, late, move):
    driven = play(aggregated(session(gap=gap, on="ts", late=late)), items, move)
    found = {k: oracles.sessions(ts, gap, late) for k, ts in per_key(items).items()}
    check_timed(driven, found)


@given(tuples, sizes, sizes, st.integers(0, 5), moves)
def test_one_watermark_for_all_keys_closes_windows_as_the_whole_stream_goes_on(items, size, step, late, move):
    """The slow way: the un-keyed windows of the stream, each then divided by key in order of first arrival."""
    window = sliding(time=size, every=step, on="ts", late=late, watermark="stream")
    driven = play(drive(lambda s: s.key_by("k").window(window).aggregate(vs=pn.collect("v"))), items, move)
    windows, dropped = oracles.event_time(items, size, step, late)
    kept = [t["k"] for t in items if any(t in held for _, _, held in windows)]
    order = list(dict.fromkeys(kept))
    expected = []
    for start, end, held in windows:
        groups = per_key(held)
        for k in sorted(groups, key=order.index):
            values = [t["v"] for t in groups[k]]
            expected.append({"k": k, "vs": values, "window_start": start, "window_end": end})
    assert driven.out == expected
    assert driven.late == dropped


def test_one_watermark_for_all_keys_closes_sessions_of_quiet_keys():
    window = session(gap=5, on="ts", watermark="stream")
    driven = drive(lambda s: s.key_by("k").window(window).aggregate(n=pn.count()))
    driven.feed({"k": "a", "ts": 0}, {"k": "b", "ts": 1}, {"k": "b", "ts": 5})
    assert driven.out == [{"k": "a", "n": 1, "window_start": 0, "window_end": 5}]
    driven.feed({"k": "a", "ts": 0})
    assert driven.late == [{"k": "a", "ts": 0}]


@given(tuples, sizes, sizes, moves)
def test_code_and_partitions_give_the_same_rows_for_tumbling_event_time(items, size, late, move):
    """A sliding window that moves by its size is a tumbling one, but goes through panes."""
    epoch = datetime(2024, 1, 1)  # noqa: DTZ001 - naive times are allowed
    items = [{**t, "ts": epoch + timedelta(seconds=t["ts"])} for t in items]
    by_code = play(aggregated(tumbling(time=size, on="ts", late=late)), items, move)
    by_panes = play(aggregated(sliding(time=size, every=size, on="ts", late=late)), items, move)
    assert by_code.out == by_panes.out
    assert by_code.late == by_panes.late


# ------------------------------------------------------------------------------------------------- small cases


def test_the_columns_of_each_kind_of_key():
    row = {"host": "a", "port": 22}
    for key, columns in (
        (("host",), {"host": "a"}),
        (("host", "port"), {"host": "a", "port": 22}),
        ((lambda t: t["port"],), {"key": 22}),
    ):
        for window in (tumbling(count=1), sliding(count=1)):
            driven = drive(lambda s, key=key, window=window: s.key_by(*key).window(window).aggregate(n=pn.count()))
            driven.feed(row)
            assert driven.out == [{**columns, "n": 1}]
            assert list(driven.out[0]) == [*columns, "n"]


def test_a_result_may_not_have_the_name_of_a_key():
    with pytest.raises(FlowError, match="the result host= has the name of a key attribute"):
        drive(lambda s: s.key_by("host").window(tumbling(count=1)).aggregate(host=pn.count()))


def test_apply_gets_the_key_and_a_fresh_list():
    seen = []

    def pair(key, held):
        seen.append(held)
        return key, list(held)

    driven = drive(lambda s: s.key_by(lambda n: n % 2).window(sliding(count=2)).apply(pair))
    driven.feed(1, 2, 3, 4, 5)
    assert driven.out == [(1, [1, 3]), (0, [2, 4]), (1, [3, 5])]
    seen[0].append("changed by the user")
    assert driven.out[2] == (1, [3, 5])


def test_punctuation_flushes_every_key():
    driven = drive(lambda s: s.key_by(lambda n: n % 2).window(tumbling(punctuation=True)).aggregate(n=pn.count()))
    driven.feed(1, 2, 3).mark().feed(4).mark()
    assert driven.out == [{"key": 1, "n": 2}, {"key": 0, "n": 1}, {"key": 0, "n": 1}]


def test_arrival_windows_fire_when_their_time_has_come_without_another_tuple():
    driven = drive(lambda s: s.window(tumbling(time=10)).aggregate(n=pn.count()))
    assert driven.logic.deadline() is None
    driven.feed("a").advance(4).feed("b").advance(5)
    assert driven.out == []
    driven.advance(1)
    assert driven.out == [{"n": 2}]
    driven = drive(lambda s: s.window(sliding(time=3, every=2)).apply(list))
    driven.feed("a").advance(1).feed("b").advance(10).feed("c").advance(1)
    assert driven.out == [["a", "b"], ["c"]]


def test_each_key_is_woken_at_its_own_time_also_after_a_move():
    driven = drive(lambda s: s.key_by(abs).window(tumbling(time=10)).aggregate(n=pn.count()))
    driven.feed(1).advance(2).feed(2).advance(2).feed(3, -1).move().advance(6)
    assert driven.out == [{"key": 1, "n": 2}]
    driven.advance(2)
    assert driven.out[1:] == [{"key": 2, "n": 1}]
    driven.feed(2).advance(10)
    assert driven.out[2:] == [{"key": 3, "n": 1}, {"key": 2, "n": 1}]
    assert driven.logic.deadline() is None


def test_a_move_keeps_the_windows_of_the_arrival_clock():
    driven = drive(lambda s: s.window(tumbling(time=10)).aggregate(n=pn.count()))
    driven.feed("a").advance(4).move().feed("b").advance(6)
    assert driven.out == [{"n": 2}]


def test_sums_of_ints_stay_exact_and_event_times_of_floats_stay_floats():
    driven = drive(lambda s: s.window(tumbling(time=60, on="ts")).aggregate(s=pn.sum("v")))
    driven.feed({"ts": 1.5, "v": 2**60}, {"ts": 59.75, "v": 1}, {"ts": 130.0, "v": 1})
    assert driven.out == [{"s": 2**60 + 1, "window_start": 0.0, "window_end": 60.0}]
    assert all(isinstance(driven.out[0][name], float) for name in ("window_start", "window_end"))


def test_very_large_times_and_fractions_of_seconds_fall_into_their_windows():
    for size, times in ((1, [2.0**50, 2.0**51 + 0.5]), (0.1, [0.3, 0.6, 0.7]), (7, [-1.5, -1, 0, 6.999999999999999])):
        driven = drive(lambda s, size=size: s.window(tumbling(time=size, on=float)).aggregate(ts=pn.collect()))
        rows = driven.feed(*times).finish()
        assert [t for row in rows for t in row["ts"]] == times
        assert all(row["window_start"] <= t < row["window_end"] for row in rows for t in row["ts"])


@pytest.mark.parametrize("make", [tumbling, sliding])
def test_datetimes_at_a_bound_between_microseconds_fall_into_their_windows(make):
    """1/3 s starts the second window after 333,333 µs and before 333,334: rounding the bound put one too many in it."""
    epoch = datetime(2024, 1, 1)  # noqa: DTZ001 - naive times are allowed
    micros = [0, 333_332, 333_334, 333_333, 333_335, 666_666, 666_667]
    options = {"every": 1 / 3} if make is sliding else {}
    driven = drive(
        lambda s: s.window(make(time=1 / 3, on=lambda t: t, late=1, **options)).aggregate(n=pn.count(), last=pn.max())
    )
    rows = driven.feed(*[epoch + timedelta(microseconds=n) for n in micros]).finish()
    assert [row["n"] for row in rows] == [3, 3, 1]


@pytest.mark.parametrize("panes", [5, 50, 500])
@pytest.mark.parametrize("every", [1, 5])
def test_sliding_count_combines_each_tuple_a_constant_number_of_times(panes, every):
    calls = [0]

    def combine(a, b):
        calls[0] += 1
        return a + b

    own = pn.aggregator(0, operator.add, combine=combine)
    driven = drive(lambda s: s.window(sliding(count=panes * every, every=every)).aggregate(total=own))
    rows = driven.feed(*range(5 * panes * every)).finish()
    assert [row["total"] for row in rows] == [
        sum(range(stop - panes * every, stop)) for stop in range(panes * every, 5 * panes * every + 1, every)
    ]
    assert calls[0] <= 3 * 5 * panes


def test_sums_of_floats_do_not_drift_when_large_values_leave_a_window():
    driven = drive(lambda s: s.window(sliding(count=2)).aggregate(total=pn.sum(), top=pn.max()))
    assert driven.feed(1e16, 1.0, 1.0).out[-1] == {"total": 2.0, "top": 1.0}


@pytest.mark.parametrize("panes", [5, 50, 500])
def test_sliding_event_time_combines_each_pane_a_constant_number_of_times(panes):
    calls = [0]

    def combine(a, b):
        calls[0] += 1
        return a + b

    own = pn.aggregator(0, operator.add, combine=combine)
    driven = drive(lambda s: s.window(sliding(time=panes, every=1, on=lambda n: n)).aggregate(total=own))
    rows = driven.feed(*range(5 * panes)).finish()
    assert rows[panes]["total"] == sum(range(1, panes + 1))
    assert calls[0] <= 3 * 6 * panes


def test_a_late_tuple_in_a_combined_pane_counts_in_the_windows_that_are_still_open():
    window = sliding(time=4, every=1, on=lambda n: n)
    driven = drive(lambda s: s.window(window).aggregate(n=pn.count(), all=pn.collect()))
    driven.feed(0, 1, 2, 3, 4, 3, 5, 2, 7)
    by_end = {row["window_end"]: row["all"] for row in driven.out}
    assert by_end[5] == [1, 2, 3, 4, 3]
    assert by_end[6] == [2, 3, 4, 3, 5, 2]
    assert by_end[7] == [3, 4, 3, 5]


def test_late_tuples_leave_by_the_late_stream_of_a_flow(run):
    flow = pn.Flow()
    windowed = flow.source([1, 12, 3, 25]).window(tumbling(time=10, on=lambda n: n))
    late = windowed.late_stream().collect()
    out = windowed.aggregate(n=pn.count()).collect()
    run(flow)
    assert [row["window_start"] for row in out] == [0, 10, 20]
    assert late == [3]
