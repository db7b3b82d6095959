"""Aggregates: each by itself, as code and as functions, and over windows that slide."""

import math
import operator
import pickle
import statistics
from decimal import Decimal

import pytest
from hypothesis import given
from hypothesis import strategies as st

from penstock.errors import FlowError
from penstock.operators import aggregates as pn
from penstock.operators.accumulation import accumulation_of
from penstock.operators.sliding_aggregates import SlidingAggregates
from penstock.windows.policies import tumbling
from tests.operators.drive import drive


def thrice_and(state, value):
    return state * 3 + value


def longest(best, word):
    return word if len(word) > len(best) else best


@pytest.mark.parametrize(
    ("aggregate", "values", "expected"),
    [
        (pn.count(), [5, 5], 2),
        (pn.sum(), [1, 2, 4], 7),
        (pn.sum(), [True], 1),
        (pn.sum(), [Decimal("0.1"), Decimal("0.2")], Decimal("0.3")),
        (pn.mean(), [1, 2], 1.5),
        (pn.min(), [3, 1, 2], 1),
        (pn.max(), ["b", "c", "a"], "c"),
        (pn.stddev(), [2, 4], math.sqrt(2)),
        (pn.stddev(), [2], None),
        (pn.stddev(sample=False), [2], 0.0),
        (pn.stddev(), [Decimal(1), Decimal(3)], math.sqrt(2)),
        (pn.collect(), "ab", ["a", "b"]),
        (pn.first(), "abc", "a"),
        (pn.last(), "abc", "c"),
        (pn.count_distinct(), "abca", 3),
        (pn.aggregator("", longest), ["a", "ccc", "bb"], "ccc"),
        (pn.aggregator(list, lambda s, v: [*s, v], finish=len), "abc", 3),
        (pn.aggregator([], lambda s, v: [*s, v]), "ab", ["a", "b"]),
    ],
    ids=str,
)
def test_the_result_of_each_aggregate(aggregate, values, expected):
    assert accumulation_of((("r", aggregate),)).of_tuples(values) == [expected]
    assert aggregate.of_values(list(values)) == expected
    followed = SlidingAggregates((("r", aggregate),))
    for value in values:
        followed.insert(value)
    assert followed.results() == [expected]


def test_a_sum_of_one_true_is_the_number_one():
    assert type(pn.sum().of_values([True])) is int


def test_aggregates_never_change_the_users_values():
    lists = [[1], [2], [3]]
    assert pn.sum().of_values(lists) == [1, 2, 3]
    assert lists == [[1], [2], [3]]


def test_the_first_state_of_a_user_defined_aggregate_is_copied_for_each_window():
    grow = pn.aggregator([], lambda state, value: state.append(value) or state)
    assert grow.of_values([1, 2]) == [1, 2]
    assert grow.of_values([3]) == [3]


def test_equal_first_states_of_different_types_are_not_confused():
    whole, real = pn.aggregator(0, operator.add), pn.aggregator(0.0, operator.add)
    assert type(whole.of_values([1])) is int
    assert type(real.of_values([1])) is float


@pytest.mark.parametrize("make", [lambda: pn.sum(3), lambda: pn.mean([]), lambda: pn.aggregator(0, None)])
def test_what_is_no_attribute_or_function_is_refused(make):
    with pytest.raises(FlowError, match=r"test_aggregates\.py"):
        make()


def test_each_value_is_read_once_per_tuple_however_many_aggregates_want_it():
    read = []

    def value(t):
        read.append(t)
        return t

    fold = accumulation_of((("a", pn.sum(value)), ("b", pn.max(value)), ("c", pn.mean(value))))
    assert fold.of_tuples([1, 2, 3]) == [6, 3, 2.0]
    assert read == [1, 2, 3]


def test_accumulations_can_be_pickled():
    fold = accumulation_of((("a", pn.sum("x")), ("b", pn.stddev("x"))))
    again = pickle.loads(pickle.dumps(fold))
    tuples = [{"x": 1.5}, {"x": 2.25}]
    assert again.of_tuples(tuples) == fold.of_tuples(tuples)


EVERYTHING = {
    "n": pn.count(),
    "sum": pn.sum("v"),
    "mean": pn.mean("v"),
    "min": pn.min("v"),
    "max": pn.max("v"),
    "deviation": pn.stddev("v"),
    "population": pn.stddev("v", sample=False),
    "values": pn.collect("v"),
    "first": pn.first("v"),
    "last": pn.last("v"),
    "distinct": pn.count_distinct("v"),
    "own": pn.aggregator(0, thrice_and, on="v"),
    "combined": pn.aggregator(0, operator.add, combine=operator.add, on="v"),
}


def naive(values):
    own = 0
    for v in values:
        own = own * 3 + v
    return {
        "n": len(values),
        "sum": sum(values),
        "mean": pytest.approx(statistics.mean(values)),
        "min": min(values),
        "max": max(values),
        "deviation": pytest.approx(statistics.stdev(values)) if len(values) > 1 else None,
        "population": pytest.approx(statistics.pstdev(values)),
        "values": list(values),
        "first": values[0],
        "last": values[-1],
        "distinct": len(set(values)),
        "own": own,
        "combined": sum(values),
    }


@given(st.lists(st.floats(-1e3, 1e3), min_size=1, max_size=20), st.integers(1, 6))
def test_code_and_functions_agree_to_the_last_bit(values, size):
    tuples = [{"v": v} for v in values]
    driven = drive(lambda s: s.window(tumbling(count=size, partial=True)).aggregate(**EVERYTHING))
    rows = driven.feed(*tuples).finish()
    fold = accumulation_of(tuple(EVERYTHING.items()))
    cut = [tuples[i : i + size] for i in range(0, len(tuples), size)]
    assert rows == [dict(zip(EVERYTHING, fold.of_tuples(window), strict=True)) for window in cut]


@given(st.lists(st.integers(-50, 50), min_size=1, max_size=40), st.data())
def test_a_sliding_window_is_followed_like_one_recomputed(values, data):
    followed = SlidingAggregates(tuple(EVERYTHING.items()))
    window: list[int] = []
    for v in values:
        while window and data.draw(st.booleans()):
            followed.evict()
            window.pop(0)
        followed.insert({"v": v})
        window.append(v)
        assert dict(zip(EVERYTHING, followed.results(), strict=True)) == naive(window)


@pytest.mark.parametrize("size", [10, 100, 1000])
def test_a_sliding_window_combines_each_tuple_a_constant_number_of_times(size):
    calls = [0]

    def combine(a, b):
        calls[0] += 1
        return a + b

    followed = SlidingAggregates((("s", pn.aggregator(0, operator.add, combine=combine)),))
    for n in range(5 * size):
        followed.insert(n)
        if n >= size:
            followed.evict()
        followed.results()
    assert calls[0] <= 2 * 5 * size


def test_sums_of_floats_do_not_drift_when_large_values_leave():
    followed = SlidingAggregates((("s", pn.sum()),))
    for value in [1e16, 1.0, 1.0]:
        followed.insert(value)
    followed.evict()
    assert followed.results() == [2.0]
