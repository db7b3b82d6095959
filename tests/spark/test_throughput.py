"""Throughput of batches: what counts, what is left out, and the model beside it. No Spark."""

from __future__ import annotations

import pytest

from penstock.cli.progress import throughput_lines
from penstock.compiler.physical import Expected
from penstock.platforms.spark.throughput import MOST, Batches

EXPECTED = Expected(0.0, "stage", 0, 1.0, (1e-4, 2e-4))


def _noted(count: int, cores: int = 2, start: int = 0) -> Batches:
    """Batches of 1,000 tuples: two tasks at level 0, one at level 1, the driver."""
    batches = Batches(cores)
    for number in range(start, start + count):
        for seconds in (0.1, 0.1):
            batches.note_task(number, 0, seconds, 500)
        batches.note_task(number, 1, 0.15, 0)
        batches.note_delivery(number, 0.05)
    return batches


def test_the_first_batch_is_left_out_where_there_are_others() -> None:
    found = _noted(3).compare({0: 9.0, 1: 0.5, 2: 0.5}, lambda: EXPECTED)
    assert found is not None
    assert (found.tuples, found.batches, found.first) == (2000, 2, False)
    assert found.measured == pytest.approx(2000)
    # 0.1 + 0.15 + 0.05 of each batch were ours, 0.2 Spark's; the model says 0.3 ms per tuple.
    assert found.fixed == pytest.approx(0.4)
    assert found.model == pytest.approx(2000 / (0.4 + 2000 * 3e-4))
    assert "start-up and the first batch are left out" in throughput_lines(found)[2]


def test_a_run_that_goes_on_has_a_first_batch_too() -> None:
    found = _noted(2, start=7).compare({7: 9.0, 8: 0.5}, lambda: EXPECTED)
    assert found is not None
    assert (found.batches, found.measured, found.first) == (1, pytest.approx(2000), False)


def test_a_single_batch_counts() -> None:
    found = _noted(1).compare({0: 2.0}, lambda: EXPECTED)
    assert found is not None
    assert (found.tuples, found.batches, found.first) == (1000, 1, True)
    assert found.measured == pytest.approx(500)
    assert "the first batch is not" in throughput_lines(found)[2]


def test_tasks_of_a_level_share_the_cores() -> None:
    found = _noted(1, cores=1).compare({0: 1.0}, lambda: EXPECTED)
    assert found is not None
    assert found.fixed == pytest.approx(1.0 - 0.2 - 0.15 - 0.05)


def test_without_reports_or_costs_there_is_less_to_say() -> None:
    assert _noted(2).compare({}, lambda: EXPECTED) is None
    assert Batches(2).compare({0: 1.0}, lambda: EXPECTED) is None
    empty = Batches(2)
    empty.note_task(0, 0, 0.1, 0)  # a batch without tuples
    assert empty.compare({0: 1.0}, lambda: EXPECTED) is None
    found = _noted(2).compare({0: 1.0, 1: 1.0}, lambda: None)
    assert found is not None
    assert found.model is None
    lines = throughput_lines(found)
    assert "measured 1 k tuples/s" in lines[0]
    assert not any("model" in line for line in lines)


def test_old_batches_are_forgotten() -> None:
    batches = _noted(3 * MOST)
    found = batches.compare(dict.fromkeys(range(3 * MOST), 1.0), lambda: EXPECTED)
    assert found is not None
    assert MOST <= found.batches <= MOST + 1
    assert not found.first
