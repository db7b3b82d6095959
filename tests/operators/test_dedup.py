"""`dedup`: by time of an attribute, by the arrival clock, and by number of tuples; and what it remembers."""

from datetime import datetime, timedelta

import pytest
from hypothesis import given
from hypothesis import strategies as st

from penstock.errors import FlowError
from tests.operators.drive import drive

events = st.lists(st.tuples(st.sampled_from("abc"), st.integers(0, 4)), max_size=30)


def value(t):
    return t


def in_time(events):
    at, found = 0, []
    for key, gap in events:
        at += gap
        found.append((key, at))
    return found


@given(events, st.integers(1, 8), st.integers(0, 30))
def test_time_of_an_attribute(events, span, move):
    tuples = in_time(events)
    driven = drive(lambda s: s.dedup(lambda t: t[0], time=span, on=lambda t: t[1]))
    passed: dict[str, int] = {}
    expected = []
    for number, (key, at) in enumerate(tuples):
        if number == move:
            driven.move()
        driven.feed((key, at))
        if key not in passed or at - passed[key] >= span:
            passed[key] = at
            expected.append((key, at))
    assert driven.out == expected


@given(events, st.integers(1, 8))
def test_the_arrival_clock(events, span):
    driven = drive(lambda s: s.dedup(lambda t: t[0], time=span))
    other = drive(lambda s: s.dedup(lambda t: t[0], time=span, on=lambda t: t[1]))
    for key, at in in_time(events):
        driven.advance(at - driven.clock.now())
        driven.feed((key, at))
        other.feed((key, at))
    assert driven.out == other.out


@given(st.lists(st.integers(0, 4), max_size=40), st.integers(1, 8), st.integers(0, 40))
def test_number_of_tuples(values, count, move):
    driven = drive(lambda s: s.dedup(value, count=count))
    passed: list[bool] = []
    for number, v in enumerate(values):
        if number == move:
            driven.move()
        driven.feed(v)
        recent = [x for x, p in zip(values[:number], passed, strict=True)][-count:]
        flags = passed[-count:]
        passed.append(not any(x == v and p for x, p in zip(recent, flags, strict=True)))
    assert driven.out == [v for v, p in zip(values, passed, strict=True) if p]


def test_datetimes_and_timedeltas():
    start = datetime(2024, 1, 1)  # noqa: DTZ001 - naive times are allowed
    driven = drive(lambda s: s.dedup(lambda t: 0, time=timedelta(minutes=1), on=lambda t: t))
    driven.feed(start, start + timedelta(seconds=59), start + timedelta(seconds=60))
    assert driven.out == [start, start + timedelta(seconds=60)]


def test_keys_do_not_influence_each_other_even_out_of_order():
    driven = drive(lambda s: s.dedup(lambda t: t[0], time=10, on=lambda t: t[1]))
    driven.feed(("a", 100), ("b", 10_000), ("a", 105), ("a", 110))
    assert driven.out == [("a", 100), ("b", 10_000), ("a", 110)]


def test_with_the_arrival_clock_keys_that_ran_out_are_forgotten():
    driven = drive(lambda s: s.dedup(lambda t: t, time=10))
    for n in range(20_000):
        driven.advance(0.1)
        driven.feed(n)
    assert len(driven.out) == 20_000
    assert len(driven.logic.partitions) <= 2100


def test_by_number_memory_is_bounded_by_the_number():
    driven = drive(lambda s: s.dedup(lambda t: t, count=10)).feed(*range(1000))
    (partition,) = driven.logic.partitions.values()
    assert len(partition.keys) == len(partition.passed) <= 11


@pytest.mark.parametrize("options", [{"time": 0}, {"count": 0}, {"time": "1s"}])
def test_spans_that_make_no_sense_are_refused(options):
    with pytest.raises(FlowError, match="above 0"):
        drive(lambda s: s.dedup(lambda t: t, **options))
