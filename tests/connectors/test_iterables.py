"""Plain Python values as sources."""

from __future__ import annotations

import gc
import itertools
import pickle
from collections import deque
from collections.abc import Iterator
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from penstock.connectors import iterables
from penstock.connectors.base import Batch, Source, as_source
from penstock.errors import FlowError

from .reading import batches, tuples, until_error

LIMITS = st.lists(st.integers(1, 7), min_size=1, max_size=4)


def count_to(end: int) -> Iterator[int]:
    yield from range(end)


def fail_after(end: int) -> Iterator[int]:
    yield from range(end)
    raise RuntimeError("the feed broke")


@pytest.mark.parametrize(
    "value",
    [
        [0, 1, 2, 3, 4],
        (0, 1, 2, 3, 4),
        range(5),
        deque(range(5)),
        dict.fromkeys(range(5)),
        dict.fromkeys(range(5)).keys(),
        lambda: range(5),
        lambda: count_to(5),
    ],
    ids=lambda value: type(value).__name__,
)
def test_what_can_be_read_again_replays_from_every_offset(value: Any) -> None:
    source = as_source(value)
    assert source.replayable
    for _ in range(2):
        assert tuples(source, [2, 1]) == [0, 1, 2, 3, 4]
    for offset in range(6):
        assert tuples(source, [2], offset) == [0, 1, 2, 3, 4][offset:]


@given(st.lists(st.integers()), LIMITS)
def test_all_kinds_give_the_same_tuples(values: list[int], limits: list[int]) -> None:
    for value in (values, tuple(values), iter(values), (n for n in values), deque(values), lambda: iter(values)):
        assert tuples(as_source(value), limits) == values


def test_a_list_is_read_in_place() -> None:
    values = [1, 2]
    source = as_source(values)
    values.append(3)
    assert tuples(source) == [1, 2, 3]


def test_text_and_bytes_are_sequences() -> None:
    assert tuples(as_source("ab")) == ["a", "b"]
    assert tuples(as_source(b"ab")) == [97, 98]


def test_an_enumeration_class_is_iterated_not_called() -> None:
    import enum

    color = enum.Enum("color", "RED BLUE")
    assert tuples(as_source(color)) == [color.RED, color.BLUE]


@pytest.mark.parametrize("make", [lambda: count_to(3), lambda: iter([0, 1, 2]), lambda: map(int, "012")])
def test_an_iterator_is_read_once_and_says_so_the_second_time(make: Any) -> None:
    iterator = make()
    source = as_source(iterator)
    assert not source.replayable
    assert tuples(source) == [0, 1, 2]
    with pytest.raises(FlowError, match=r"already read.*pass a list, or a function"):
        source.initial()
    with pytest.raises(FlowError, match="already read"):
        as_source(iterator).initial()


def test_an_iterator_given_to_two_sources_is_refused_by_the_second() -> None:
    generator = count_to(5)
    first, second = as_source(generator), as_source(generator)
    first.initial()
    second.initial()
    first.read(0, 2)
    with pytest.raises(FlowError, match="already read"):
        second.read(0, 2)
    assert first.read(2, 2).tuples == [2, 3]


def test_an_iterator_is_not_reread() -> None:
    source = as_source(count_to(5))
    source.read(source.initial(), 3)
    with pytest.raises(FlowError, match="cannot be read again"):
        source.read(0, 3)


def test_iterators_that_were_read_are_forgotten() -> None:
    gc.collect()
    before = len(iterables._consumed)
    for _ in range(100):
        tuples(as_source(count_to(2)))
        tuples(as_source(map(int, "01")))
    gc.collect()
    assert len(iterables._consumed) <= before + iterables._KEPT_ALIVE


@pytest.mark.parametrize("limit", [1, 2, 3, 4, 512])
def test_tuples_before_a_failing_iterator_come_first(limit: int) -> None:
    source = as_source(fail_after(3))
    found, offset, error = until_error(source, limit)
    assert found == [0, 1, 2]
    assert str(error) == "the feed broke"
    with pytest.raises(RuntimeError, match="the feed broke"):
        source.read(offset, limit)


def test_a_failing_callable_can_be_tried_again() -> None:
    attempts = itertools.count()

    def flaky() -> Iterator[int]:
        yield 1
        if next(attempts) == 0:
            raise ConnectionError("try again")
        yield 2

    source = as_source(flaky)
    offset = source.initial()
    assert source.read(offset, 5) == Batch([1], 1)
    with pytest.raises(ConnectionError):
        source.read(1, 5)
    assert source.read(1, 5) == Batch([2], 2, done=True)


def test_closing_ends_a_generator_that_the_source_made() -> None:
    closed = []

    def feed() -> Iterator[int]:
        try:
            yield from range(10)
        finally:
            closed.append(True)

    source = as_source(feed)
    source.read(source.initial(), 2)
    source.close()
    assert closed == [True]


def test_a_callable_that_returns_no_iterable_is_named() -> None:
    def seven() -> Any:
        return 7

    source = as_source(seven)
    with pytest.raises(FlowError, match="'seven' must return an iterable, not int"):
        source.read(source.initial(), 1)


def test_what_is_no_source_is_refused() -> None:
    with pytest.raises(FlowError, match="not 7"):
        as_source(7)  # type: ignore[arg-type]


def test_an_incomplete_source_is_told_what_it_lacks() -> None:
    class Half:
        def initial(self) -> int:
            return 0

        def read(self, offset: int, limit: int) -> Batch:
            return Batch([], 0, done=True)

    with pytest.raises(FlowError, match=r"Half is not a Source: it lacks commit, close\(\)"):
        as_source(Half())  # type: ignore[arg-type]


def test_a_subclass_of_source_needs_only_initial_and_read() -> None:
    class Once(Source):
        def initial(self) -> int:
            return 0

        def read(self, offset: int, limit: int) -> Batch:
            return Batch([offset], offset + 1, done=True)

    source = Once()
    assert as_source(source) is source
    assert isinstance(source, Source)
    source.commit(1)
    assert [batch.tuples for batch in batches(source)] == [[0]]


def test_a_source_over_a_callable_travels_without_its_state() -> None:
    source = as_source(deque([1, 2, 3]))
    source.read(source.initial(), 2)
    assert tuples(pickle.loads(pickle.dumps(source)), offset=1) == [2, 3]
