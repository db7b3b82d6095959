"""Counts of words in sliding windows against a plain count of every window."""

from __future__ import annotations

import math
from collections import Counter
from typing import Any

import data
import wikiwords
from tests.conftest import RunFlow


def plain(edits: list[dict[str, Any]]) -> Counter[tuple[str, int]]:
    """(word, window end) -> number of uses in the minute before."""
    counts: Counter[tuple[str, int]] = Counter()
    for edit in edits:
        for word in edit["page"].split():
            if len(word) > 3:
                first_end = math.floor(edit["ts"]) + 1
                counts.update((word, end) for end in range(first_end, first_end + 60))
    return counts


def test_made_up_edits(run: RunFlow) -> None:
    edits = list(data.page_edits(150, a_second=4))
    published: list[Any] = []
    counts: list[Any] = []
    run(wikiwords.build(edits, published, often=40, counts=counts))
    expected = plain(edits)
    assert {(row["word"], row["window_end"]): row["count"] for row in counts} == expected
    assert len(counts) == len(expected)
    assert {(row["word"], row["window_end"]) for row in published} == {
        (word, end) for (word, end), count in expected.items() if count >= 40 and end % 60 == 0
    }
    assert ("eclipse", 120) in {(row["word"], row["window_end"]) for row in published}


def test_each_word_is_counted_in_order_of_time(run: RunFlow) -> None:
    counts: list[Any] = []
    run(wikiwords.build(list(data.page_edits(30, a_second=4)), [], counts=counts))
    for word in {row["word"] for row in counts}:
        ends = [row["window_end"] for row in counts if row["word"] == word]
        assert ends == sorted(set(ends))


def test_the_regions_are_those_of_the_paper() -> None:
    regions = {node.name: node.annotations.parallel for node in wikiwords.build().graph()}
    assert (regions["Words"].width, regions["Words"].by) == (5, None)
    assert (regions["Counts"].width, str(regions["Counts"].by)) == (10, "word")
    assert regions["Published"] is None
