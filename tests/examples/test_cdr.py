"""The telephone calls against plain Python."""

from __future__ import annotations

import json
from collections import defaultdict
from pathlib import Path
from typing import Any

import pytest

import cdr
import data
import penstock as pn
from tests.conftest import RunFlow


def sliding_averages(calls: list[dict[str, Any]]) -> dict[tuple[str, int], tuple[int, float]]:
    """(name, window end) -> number and average length of the calls in the five minutes before."""
    lengths: dict[tuple[str, int], list[int]] = defaultdict(list)
    for call in calls:
        first_end = (call["ts"] // 60 + 1) * 60
        for end in range(first_end, first_end + 300, 60):
            lengths[call["name"], end].append(call["length"])
    return {window: (len(each), sum(each) / len(each)) for window, each in lengths.items()}


def test_made_up_calls(tmp_path: Path, run: RunFlow) -> None:
    records = list(data.calls(500))
    unique = {record["id"]: record for record in records}
    stats: list[Any] = []
    run(cdr.build(records, data.customers, stats, pn.files.write(tmp_path / "calls.jsonl")))

    enriched = [json.loads(line) for line in (tmp_path / "calls.jsonl").read_text().splitlines()]
    assert len(records) > len(unique)
    names = {row["number"]: row["name"] for row in data.customers()}
    assert enriched == [{**call, "name": names.get(call["caller"], "unknown")} for call in unique.values()]

    expected = sliding_averages(enriched)
    assert len(stats) == len(expected)
    for row in stats:
        calls, average = expected[row["name"], row["window_end"]]
        assert row["window_start"] == row["window_end"] - 300
        assert row["calls"] == calls
        assert row["average"] == pytest.approx(average)


def test_a_record_that_comes_again_after_an_hour_is_another_call(run: RunFlow) -> None:
    records = [{"id": 7, "ts": ts, "caller": "555-0101", "length": 60} for ts in (0, 10, 3_599, 3_600)]
    enriched: list[Any] = []
    run(cdr.build(records, data.customers, [], enriched))
    assert [call["ts"] for call in enriched] == [0, 3_600]


def test_a_caller_who_is_no_customer_is_unknown(run: RunFlow) -> None:
    enriched: list[Any] = []
    run(cdr.build([{"id": 1, "ts": 0, "caller": "555-0199", "length": 60}], [], [], enriched))
    assert [call["name"] for call in enriched] == ["unknown"]
