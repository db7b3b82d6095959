"""beacon: generated tuples, paced by a clock."""

from __future__ import annotations

from typing import Any

import pytest

from penstock.clock import ManualClock
from penstock.connectors.base import as_source
from penstock.connectors.generators import beacon
from penstock.errors import FlowError

from .reading import Following, tuples


def test_counts_from_start() -> None:
    assert tuples(beacon(count=5, start=10), [2]) == [10, 11, 12, 13, 14]
    assert tuples(beacon(count=0)) == []
    assert tuples(beacon(count=3, function=str)) == ["0", "1", "2"]


def test_has_no_end_without_count() -> None:
    source = beacon()
    batch = source.read(10**12, 512)
    assert batch.tuples[0] == 10**12
    assert not batch.done


def test_replays_from_every_offset() -> None:
    source = beacon(count=6, function=lambda i: i * i)
    for offset in (4, 1, 6, 0):
        assert tuples(source, [2], offset) == [i * i for i in range(offset, 6)]


@pytest.mark.parametrize("rate", [0.1, 1, 3, 10, 1000])
def test_gives_only_what_is_due(rate: float) -> None:
    clock = ManualClock(100.0)
    following = Following(beacon(rate=rate, clock=clock))
    assert following.now() == [0]
    for step in range(1, 30):
        clock.advance(1 / rate)
        assert following.now(limit=2) == [step]
    clock.advance(5 / rate)
    assert following.now(limit=2) == [30, 31, 32, 33, 34], "a run that was held up catches up"


def test_pacing_starts_anew_with_each_run_and_each_jump() -> None:
    clock = ManualClock()
    source = beacon(rate=1, clock=clock)
    assert Following(source).now() == [0]
    clock.advance(10)
    assert Following(source).now() == [0]
    assert source.read(100, 512).tuples == [100]


def test_tuples_before_a_failing_function_come_first() -> None:
    source = beacon(count=5, function=lambda i: 6 // (3 - i))
    batch = source.read(0, 512)
    assert (batch.tuples, batch.offset, batch.done) == ([2, 3, 6], 3, False)
    with pytest.raises(ZeroDivisionError):
        source.read(3, 512)


def test_two_readers_of_one_beacon_do_not_meet() -> None:
    clock = ManualClock()
    source = beacon(rate=1, clock=clock)
    first, second = Following(as_source(source)), Following(as_source(source))
    assert first.now() == second.now() == [0]
    clock.advance(1)
    assert first.now() == second.now() == [1]


@pytest.mark.parametrize("wrong", [{"count": -1}, {"rate": 0}, {"rate": -2.0}, {"function": 3}])
def test_refuses_what_makes_no_sense(wrong: dict[str, Any]) -> None:
    with pytest.raises(FlowError, match=f"beacon\\({next(iter(wrong))}=\\)"):
        beacon(**wrong)
