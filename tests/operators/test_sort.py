"""`sort`: nothing is dropped, ties keep their order, and each window releases when it should."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from penstock.errors import FlowError
from penstock.windows.policies import session, sliding, tumbling
from tests.operators.drive import drive


def value(t):
    return t


def by_sort(window, by=value, **options):
    return drive(lambda s: s.sort(by, window, **options))


@pytest.mark.parametrize(
    ("name", "window", "tuples", "before_the_end", "at_the_end"),
    [
        ("a batch of count", tumbling(count=3), [3, 1, 2, 5, 4], [1, 2, 3], [4, 5]),
        ("a batch of delta", tumbling(delta=2, on=value), [1, 3, 2, 4, 0], [1, 2, 3], [0, 4]),
        ("a batch of event time", tumbling(time=10, on=value), [9, 1, 12, 5, 11], [1, 9, 5], [11, 12]),
        ("sessions", session(gap=3, on=value), [2, 1, 3, 9], [1, 2, 3], [9]),
        ("sliding count holds n", sliding(count=2), [2, 1, 3, 5, 4], [1, 2, 3], [4, 5]),
        ("sliding time is at least behind", sliding(time=2, on=value), [1, 0, 3, 2, 5], [0, 1, 2, 3], [5]),
        ("sliding delta is more than behind", sliding(delta=2, on=value), [1, 0, 3, 2, 5], [0, 1, 2], [3, 5]),
        ("sliding time waits for late", sliding(time=2, on=value, late=1), [1, 0, 3, 2, 5], [0, 1, 2], [3, 5]),
    ],
    ids=lambda v: v if isinstance(v, str) else "",
)
def test_small_cases(name, window, tuples, before_the_end, at_the_end):
    driven = by_sort(window).feed(*tuples)
    assert driven.out == before_the_end
    assert driven.finish()[len(before_the_end) :] == at_the_end


def test_punctuation_releases_a_batch():
    driven = by_sort(tumbling(punctuation=True)).feed(2, 1).mark().feed(3)
    assert driven.out == [1, 2]
    assert driven.finish() == [1, 2, 3]


def test_the_arrival_clock_releases_a_batch():
    driven = by_sort(tumbling(time=5)).feed(2, 1).advance(5)
    assert driven.out == [1, 2]


def test_a_sliding_arrival_window_lets_a_tuple_wait_and_what_sorts_before_it_go_first():
    driven = by_sort(sliding(time=10)).feed(5, 9)
    driven.advance(6).feed(3, 7).advance(3)
    assert driven.out == []
    driven.advance(1)
    assert driven.out == [3, 5, 7, 9]
    assert driven.logic.deadline() is None
    driven.feed(1).advance(4).feed(2).advance(6)
    assert driven.out[4:] == [1]
    assert driven.finish()[5:] == [2]


def test_ties_keep_their_order_of_arrival_also_in_reverse():
    tuples = [(1, "a"), (0, "b"), (1, "c"), (0, "d")]
    for window in (sliding(count=9), tumbling(count=4), sliding(time=99, on=lambda t: t[0])):
        ascending = by_sort(window, by=lambda t: t[0]).feed(*tuples).finish()
        assert ascending == [(0, "b"), (0, "d"), (1, "a"), (1, "c")]
        descending = by_sort(window, by=lambda t: t[0], reverse=True).feed(*tuples).finish()
        assert descending == [(1, "a"), (1, "c"), (0, "b"), (0, "d")]


def test_each_key_is_sorted_by_itself():
    driven = drive(lambda s: s.key_by(lambda n: n % 2).sort(value, sliding(count=1)))
    assert driven.feed(5, 4, 1, 2).out == [1, 2]


def test_every_is_refused():
    with pytest.raises(FlowError, match="leave every= out of"):
        by_sort(sliding(count=4, every=2))


windows = st.sampled_from(
    [
        tumbling(count=4),
        tumbling(delta=4, on="ts"),
        tumbling(time=5, on="ts"),
        session(gap=2, on="ts"),
        sliding(count=3),
        sliding(delta=4, on="ts"),
        sliding(time=4, on="ts"),
    ]
)


@given(st.lists(st.integers(0, 20), max_size=30), windows, st.booleans(), st.integers(0, 30))
def test_nothing_is_ever_dropped_or_doubled_and_a_move_changes_nothing(times, window, reverse, move):
    tuples = [{"ts": ts, "n": n} for n, ts in enumerate(times)]
    driven = by_sort(window, by="ts", reverse=reverse)
    for n, t in enumerate(tuples):
        if n == move:
            driven.move()
        driven.feed(t)
    driven.finish()
    assert sorted(driven.out, key=lambda t: t["n"]) == tuples
    assert driven.out == by_sort(window, by="ts", reverse=reverse).feed(*tuples).finish()


@given(st.lists(st.integers(0, 20), max_size=30), st.integers(1, 6), st.booleans())
def test_sliding_count_against_the_slow_way(values, size, reverse):
    held: list[int] = []
    expected = []
    for v in values:
        held = sorted([*held, v], reverse=reverse)
        if len(held) > size:
            expected.append(held.pop(0))
    assert by_sort(sliding(count=size), reverse=reverse).feed(*values).finish() == expected + held


@given(st.lists(st.integers(0, 30), max_size=30), st.integers(1, 10))
def test_disorder_within_the_span_is_put_in_order(values, span):
    newest = 0
    in_reach = []
    for v in values:
        if v > newest - span:
            in_reach.append(v)
            newest = max(newest, v)
    assert by_sort(sliding(time=span, on=value)).feed(*in_reach).finish() == sorted(in_reach)
