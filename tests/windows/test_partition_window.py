"""`PartitionWindow`: each policy by small cases, and all of them against the slow way."""

import copy
import pickle
from datetime import UTC, datetime, timedelta, timezone

import pytest
from hypothesis import given
from hypothesis import strategies as st

from penstock.clock import ManualClock
from penstock.windows.engine import PartitionWindow
from penstock.windows.policies import session, sliding, tumbling
from penstock.windows.times import Grid
from tests.windows import oracles


def value(t):
    return t


def feed(window, tuples):
    fired = [f for t in tuples for f in window.insert(t)]
    return [list(f) for f in [*fired, *window.finish()]]


@pytest.mark.parametrize(
    ("name", "policy", "tuples", "expected"),
    [
        ("the n-th tuple fires", tumbling(count=2), [1, 2, 3, 4, 5], [[1, 2], [3, 4]]),
        ("the rest fires if partial", tumbling(count=2, partial=True), [1, 2, 3], [[1, 2], [3]]),
        ("nothing fires without tuples", tumbling(count=2, partial=True), [], []),
        ("exactly delta stays in", tumbling(delta=5, on=value), [0, 5, 6, 11, 12], [[0, 5], [6, 11]]),
        ("delta looks at the first tuple", tumbling(delta=2, on=value), [0, 2, 1, 3], [[0, 2, 1]]),
        ("fires once full", sliding(count=3), [1, 2, 3, 4], [[1, 2, 3], [2, 3, 4]]),
        ("fires from the start if partial", sliding(count=2, partial=True), [1, 2, 3], [[1], [1, 2], [2, 3]]),
        ("every counts from the start", sliding(count=3, every=2), [1, 2, 3, 4, 5, 6], [[2, 3, 4], [4, 5, 6]]),
        ("every may skip tuples", sliding(count=1, every=3), [1, 2, 3, 4, 5, 6], [[3], [6]]),
        ("exactly delta behind stays", sliding(delta=2, on=value), [0, 2, 3], [[0], [0, 2], [2, 3]]),
        ("delta with a trigger", sliding(delta=10, on=value, every=5), [0, 4, 5, 9, 10], [[0, 4, 5], [0, 4, 5, 9, 10]]),
        ("out of order delta evicts inside", sliding(delta=2, on=value), [5, 3, 6], [[5], [5, 3], [5, 6]]),
        ("event time is half open", tumbling(time=10, on=value), [0, 9, 10], [[0, 9], [10]]),
        ("event time waits for late", tumbling(time=10, on=value, late=5), [0, 14, 9, 15, 8], [[0, 9], [14, 15]]),
        ("hopping windows overlap", sliding(time=4, every=2, on=value), [0, 3, 4], [[0], [0, 3], [3, 4], [4]]),
        ("gaps between hops swallow", sliding(time=2, every=5, on=value), [0, 3, 6], [[0], [6]]),
        ("sessions are half open", session(gap=5, on=value), [0, 4, 9, 13], [[0, 4], [9, 13]]),
        ("sessions merge", session(gap=5, on=value, late=100), [0, 8, 4], [[0, 8, 4]]),
    ],
    ids=lambda v: v if isinstance(v, str) else "",
)
def test_small_cases(name, policy, tuples, expected):
    assert feed(PartitionWindow(policy), tuples) == expected


def test_punctuation_fires_what_there_is_and_nothing_if_there_is_nothing():
    window = PartitionWindow(tumbling(punctuation=True))
    assert window.mark() == []
    window.insert(1)
    window.insert(2)
    assert window.mark() == [[1, 2]]
    assert window.mark() == []
    window.insert(3)
    assert window.finish() == []


def test_a_tumbling_time_window_is_flushed_by_time_or_by_the_next_tuple():
    clock = ManualClock(100)
    window = PartitionWindow(tumbling(time=10, partial=True), clock=clock)
    assert window.deadline() is None
    window.insert("a")
    assert window.deadline() == 110
    clock.advance(9)
    assert window.tick(109) == []
    window.insert("b")
    clock.advance(1)
    assert window.insert("c") == [["a", "b"]]
    assert window.deadline() == 120
    assert window.tick(120) == [["c"]]
    assert window.deadline() is None


def test_a_sliding_time_window_fires_by_time_and_skips_times_when_it_is_empty():
    clock = ManualClock()
    window = PartitionWindow(sliding(time=3, every=2), clock=clock)
    window.insert("a")
    assert window.deadline() == 2
    clock.advance(1)
    window.insert("b")
    assert window.tick(2) == [["a", "b"]]
    assert window.tick(4) == []  # a left at 3, b at 4
    assert window.deadline() is None
    clock.advance(8)
    assert window.insert("c") == []
    assert window.deadline() == 10
    assert window.tick(10) == [["c"]]


def test_callbacks_see_tuples_enter_leave_and_fire():
    seen = []
    window = PartitionWindow(
        sliding(count=2),
        on_insert=lambda t: seen.append(("in", t)),
        on_evict=lambda t: seen.append(("out", t)),
        on_trigger=lambda ts: seen.append(("fire", list(ts))),
    )
    for t in "abc":
        window.insert(t)
    assert seen == [("in", "a"), ("in", "b"), ("fire", ["a", "b"]), ("in", "c"), ("out", "a"), ("fire", ["b", "c"])]
    assert list(window) == ["b", "c"]
    assert len(window) == 2


def test_callbacks_of_event_time_windows():
    seen = []
    window = PartitionWindow(sliding(time=4, every=2, on=value), on_evict=seen.append)
    fired = [f for t in [0, 1, 3, 5] for f in window.insert(t)]
    assert [(list(f), f.start, f.end) for f in fired] == [([0, 1], -2, 2), ([0, 1, 3], 0, 4)]
    assert seen == [0, 1]
    assert list(window) == [3, 5]
    assert window.insert(-10) == []
    assert window.late == 1


class Recorder:
    def __init__(self):
        self.fired = []
        self.window = PartitionWindow(sliding(count=2), on_trigger=self.fire)

    def fire(self, tuples):
        self.fired.append(list(tuples))


@pytest.mark.parametrize("twin_of", [copy.deepcopy, lambda r: pickle.loads(pickle.dumps(r))], ids=["copy", "pickle"])
def test_a_copied_owner_has_a_window_that_calls_the_copy(twin_of):
    owner = Recorder()
    owner.window.insert(1)
    twin = twin_of(owner)
    twin.window.insert(2)
    assert (owner.fired, twin.fired) == ([], [[1, 2]])


def test_a_copy_keeps_the_clock_and_a_pickle_leaves_it_behind():
    clock = ManualClock(5)
    window = PartitionWindow(tumbling(time=1), clock=clock)
    window.insert("a")
    assert copy.deepcopy(window).clock is clock
    assert pickle.loads(pickle.dumps(window)).deadline() == 6


# ------------------------------------------------------------------------------------------------------- times


def naive(*clock):
    return datetime(2024, 5, 1, *clock)  # noqa: DTZ001 - naive times are allowed


@pytest.mark.parametrize(
    ("times", "bounds"),
    [
        ([1, 61], [(0, 60), (60, 120)]),
        ([-1.0], [(-60.0, 0.0)]),
        ([naive(10, 0, 59)], [(naive(10), naive(10, 1))]),
        (
            [datetime(2024, 5, 1, 10, 0, 59, tzinfo=UTC)],
            [(datetime(2024, 5, 1, 10, tzinfo=UTC), datetime(2024, 5, 1, 10, 1, tzinfo=UTC))],
        ),
    ],
    ids=["ints", "floats", "naive datetimes", "aware datetimes"],
)
def test_bounds_come_out_in_the_type_of_the_attribute(times, bounds):
    window = PartitionWindow(tumbling(time=60, on=value))
    fired = [*(f for t in times for f in window.insert(t)), *window.finish()]
    found = [(f.start, f.end) for f in fired]
    assert found == bounds
    assert [type(start) for start, _ in found] == [type(times[0])] * len(found)


def test_aware_datetimes_keep_their_zone():
    zone = timezone(timedelta(hours=5, minutes=30))
    window = PartitionWindow(tumbling(time=timedelta(hours=1), on=value))
    window.insert(datetime(2024, 5, 1, 10, 45, tzinfo=zone))
    (fired,) = window.finish()
    assert fired.start.tzinfo is zone
    assert fired.start == datetime(2024, 5, 1, 5, 0, tzinfo=UTC)


@pytest.mark.parametrize("bad", ["10:00", None, float("nan"), float("inf")])
def test_a_time_that_is_none_is_refused_by_name(bad):
    with pytest.raises(TypeError, match="finite number or a datetime"):
        PartitionWindow(tumbling(time=60, on=value)).insert(bad)


@given(
    st.floats(-1e6, 1e6),
    st.sampled_from([0.1, 0.3, 0.7, 1.1, 60, 2.5, 1e-3]),
    st.sampled_from([1, 2, 3, 0.5]),
)
def test_every_float_lies_within_the_bounds_of_each_of_its_windows(time, step, spans):
    size = step * spans
    window = PartitionWindow(sliding(time=size, every=step, on=value))
    window.insert(time)
    fired = window.finish()
    assert all(f.start <= time < f.end for f in fired)
    if spans >= 1:
        assert fired


@pytest.mark.parametrize("time", [9157.0, -9157.3, 1e6, 123456.789])
def test_panes_much_smaller_than_floats_are_apart_are_not_walked_one_by_one(time, monkeypatch):
    looks, bound = [], Grid.bound
    monkeypatch.setattr(Grid, "bound", lambda grid, pane: looks.append(pane) or bound(grid, pane))
    window = PartitionWindow(sliding(time=0.1 * 3, every=0.1, on=value))  # 0.1 * 3 is a little more than 0.3
    window.insert(time)
    assert all(f.start <= time < f.end for f in window.finish())
    assert len(looks) < 500


@given(st.floats(0, 100), st.sampled_from([0.1, 0.3, 0.7]))
def test_neighbouring_float_windows_share_their_bound(time, size):
    window = PartitionWindow(tumbling(time=size, on=value))
    window.insert(time)
    (first,) = window.insert(time + size)
    (second,) = window.finish()
    assert second.start >= first.end
    again = PartitionWindow(tumbling(time=size, on=value))
    again.insert(first.end)
    assert again.finish()[0].start == first.end


# --------------------------------------------------------------------------------------- against the slow way

tuples = st.lists(st.builds(lambda ts, v: {"ts": ts, "v": v}, st.integers(0, 40), st.integers(-5, 5)), max_size=30)
sizes = st.integers(1, 8)


def arriving(items, gaps):
    at, found = 0, []
    for t, gap in zip(items, gaps, strict=False):
        at += gap
        found.append({**t, "at": at})
    return found


def collect(policy, items, *, move=None):
    """All firings; with `move`, the window is pickled after that many tuples."""
    clock = ManualClock()
    window = PartitionWindow(policy, clock=clock)
    fired = []
    for number, t in enumerate(items):
        if number == move:
            window = pickle.loads(pickle.dumps(window))
            window.clock = clock
        clock.advance(t.get("at", 0) - clock.now())
        fired += window.insert(t)
    return fired, window


@given(tuples, sizes, sizes, st.booleans(), st.integers(0, 30))
def test_windows_of_count(items, size, every, partial, move):
    fired, window = collect(tumbling(count=size, partial=partial), items, move=move)
    assert [*fired, *window.finish()] == oracles.tumbling_count(items, size, partial)
    fired, window = collect(sliding(count=size, every=every, partial=partial), items, move=move)
    assert [*fired, *window.finish()] == oracles.sliding_count(items, size, every, partial)


@given(tuples, sizes, st.none() | sizes, st.booleans(), st.integers(0, 30))
def test_windows_of_delta(items, size, every, partial, move):
    fired, window = collect(tumbling(delta=size, on="ts", partial=partial), items, move=move)
    assert [*fired, *window.finish()] == oracles.tumbling_delta(items, size, partial)
    fired, window = collect(sliding(delta=size, on="ts", every=every), items, move=move)
    assert fired == oracles.sliding_delta(items, size, every)


@given(tuples, st.lists(st.integers(0, 5), min_size=30), sizes, st.none() | sizes, st.booleans(), st.integers(0, 30))
def test_windows_of_arrival_time(items, gaps, size, every, partial, move):
    items = arriving(items, gaps)
    fired, window = collect(tumbling(time=size, partial=partial), items, move=move)
    assert [*fired, *window.finish()] == oracles.tumbling_time(items, size, partial)
    fired, window = collect(sliding(time=size, every=every), items, move=move)
    assert fired == oracles.sliding_time(items, size, every)


@given(tuples, sizes, sizes, st.integers(0, 12), st.integers(0, 30), st.sampled_from([1, 0.1]))
def test_windows_of_event_time(items, size, step, late, move, unit):
    if unit != 1:  # the same in tenths: bounds must be as exact as in whole numbers
        items = [{**t, "ts": t["ts"] / 10} for t in items]
        size, step, late = size / 10, step / 10, late / 10
    fired, window = collect(sliding(time=size, every=step, on="ts", late=late), items, move=move)
    windows, dropped = oracles.event_time(items, size, step, late)
    assert [(f.start, f.end, f) for f in [*fired, *window.finish()]] == [
        (float(start) if unit != 1 else start, float(end) if unit != 1 else end, held) for start, end, held in windows
    ]
    assert window.late == len(dropped)


@given(tuples, sizes, st.integers(0, 12), st.integers(0, 30))
def test_sessions(items, gap, late, move):
    fired, window = collect(session(gap=gap, on="ts", late=late), items, move=move)
    expected, dropped = oracles.sessions(items, gap, late)
    assert [(f.start, f.end, f) for f in [*fired, *window.finish()]] == expected
    assert window.late == len(dropped)
