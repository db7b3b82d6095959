"""`join`: each policy by small cases, and against every pair looked at."""

import itertools
import operator

import pytest
from hypothesis import given
from hypothesis import strategies as st

from penstock.errors import FlowError
from penstock.windows.policies import session, sliding, tumbling
from tests.operators.drive import drive


def value(t):
    return t


def joined(window, **options):
    return drive(lambda left, right: left.join(right, window, **options), inputs=2)


L, R = 0, 1


def feed(driven, *arrivals):
    for port, t in arrivals:
        driven.feed(t, port=port)
    return driven


def test_a_tuple_meets_the_n_newest_of_the_other_side_in_order_of_arrival():
    driven = feed(joined(sliding(count=2)), (L, 1), (L, 2), (L, 3), (R, "a"), (L, 4), (R, "b"))
    assert driven.out == [(2, "a"), (3, "a"), (4, "a"), (3, "b"), (4, "b")]


def test_where_narrows_what_meets():
    driven = joined(sliding(count=5), where=lambda left, right: left < right)
    assert feed(driven, (L, 1), (L, 5), (R, 3), (L, 2)).out == [(1, 3), (2, 3)]


def test_delta_evicts_on_the_own_side_only():
    driven = joined(sliding(delta=2, on=value), how="left")
    feed(driven, (L, 0), (L, 3), (R, 100), (L, 4))
    assert driven.out == [(0, None), (3, 100), (4, 100)]


def test_arrival_time_evicts_on_both_sides_and_outer_joins_speak_up_in_time():
    driven = joined(sliding(time=10), how="full")
    feed(driven, (L, "a"))
    driven.advance(5)
    feed(driven, (R, "b"))
    driven.advance(4)
    feed(driven, (L, "c"))
    assert driven.out == [("a", "b"), ("c", "b")]
    driven.advance(2)
    feed(driven, (R, "d"))
    assert driven.out[2:] == [("c", "d")]
    driven.advance(20)
    feed(driven, (L, "e")).advance(10)
    assert driven.out[3:] == [("e", None)]


def test_outer_joins_give_the_rest_at_the_end_left_side_first():
    driven = joined(sliding(count=9), how="full", where=lambda a, b: a == b)
    feed(driven, (R, 1), (L, 2), (R, 3), (L, 3), (L, 4))
    assert driven.finish() == [(3, 3), (2, None), (4, None), (None, 1)]


@pytest.mark.parametrize(("how", "expected"), [("inner", []), ("left", [(1, None)]), ("right", [(None, 9)])])
def test_which_side_an_outer_join_keeps(how, expected):
    driven = feed(joined(sliding(time=5, on=value), how=how), (L, 1), (R, 9))
    assert driven.finish() == expected


def test_event_time_keeps_a_tuple_until_both_sides_have_passed_it():
    driven = joined(sliding(time=5, on=value), how="left")
    feed(driven, (L, 0), (L, 100))
    assert driven.out == []
    feed(driven, (R, 4), (R, 5))
    assert driven.out == [(0, 4)]


def test_when_a_side_has_ended_only_the_other_one_counts():
    driven = joined(sliding(time=5, on=value), how="left")
    feed(driven, (L, 0), (L, 4))
    driven.end(R)
    assert driven.out == []
    feed(driven, (L, 5))
    assert driven.out == [(0, None)]
    assert driven.finish() == [(0, None), (4, None), (5, None)]


def test_keys_met_after_a_side_has_ended_know_it():
    window = sliding(time=5, on=lambda t: t[1])
    driven = drive(lambda a, b: a.key_by(lambda t: t[0]).join(b.key_by(lambda t: t[0]), window, how="left"), inputs=2)
    driven.end(R)
    feed(driven, (L, ("k", 0)), (L, ("k", 5)))
    assert driven.out == [(("k", 0), None)]


def test_only_equal_keys_meet():
    driven = drive(lambda a, b: a.key_by(abs).join(b.key_by(abs), sliding(count=3)), inputs=2)
    assert feed(driven, (L, 1), (L, 2), (R, -1), (R, -2)).out == [(1, -1), (2, -2)]


@pytest.mark.parametrize("window", [tumbling(count=3), session(gap=3, on="ts"), sliding(count=3, every=2)], ids=str)
def test_windows_that_make_no_sense_are_refused_with_operator_and_line(window):
    with pytest.raises(FlowError, match=r"operator 'join' \(defined at .*test_join.py:"):
        joined(window)


times = st.lists(st.integers(0, 30), max_size=12)


kinds = st.sampled_from(["inner", "left", "right", "full"])


@given(times, times, st.integers(1, 6), st.integers(0, 4), kinds, st.data())
def test_event_time_pairs_do_not_depend_on_how_the_sides_interleave(left, right, span, late, how, data):
    left = [("l", t, i) for i, t in enumerate(sorted(left))]
    right = [("r", t, i) for i, t in enumerate(sorted(right))]
    driven = joined(sliding(time=span, on=operator.itemgetter(1), late=late), how=how)
    waiting = [list(left), list(right)]
    while any(waiting):
        port = data.draw(st.sampled_from([p for p in (L, R) if waiting[p]]))
        driven.feed(waiting[port].pop(0), port=port)
        if not waiting[port]:
            driven.end(port)
        if data.draw(st.booleans()):
            driven.move()
    pairs = [(a, b) for a, b in itertools.product(left, right) if abs(a[1] - b[1]) < span]
    lonely_left = [(a, None) for a in left if a not in [p[0] for p in pairs]] if how in ("left", "full") else []
    lonely_right = [(None, b) for b in right if b not in [p[1] for p in pairs]] if how in ("right", "full") else []
    assert sorted(driven.finish(), key=repr) == sorted([*pairs, *lonely_left, *lonely_right], key=repr)


arrivals = st.lists(st.tuples(st.sampled_from([L, R]), st.integers(0, 9)), max_size=25)


@given(arrivals, st.integers(1, 4), st.sampled_from(["count", "delta"]), st.integers(0, 25))
def test_count_and_delta_against_the_slow_way(events, size, policy, move):
    driven = joined(sliding(count=size) if policy == "count" else sliding(delta=size, on=value))
    windows: list[list[int]] = [[], []]
    expected = []
    for number, (port, t) in enumerate(events):
        if number == move:
            driven.move()
        driven.feed(t, port=port)
        if policy == "count":
            windows[port] = windows[port][-(size - 1) :] if size > 1 else []
        else:
            windows[port] = [x for x in windows[port] if not t - x > size]
        expected += [(t, x) if port == L else (x, t) for x in windows[1 - port]]
        windows[port].append(t)
    assert driven.out == expected
