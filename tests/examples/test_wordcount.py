"""Word count against collections.Counter."""

from __future__ import annotations

from collections import Counter
from pathlib import Path
from typing import Any

import data
import penstock as pn
import wordcount
from tests.conftest import RunFlow


def top_ten(counts: Counter[str]) -> list[dict[str, Any]]:
    ordered = sorted(counts.items(), key=lambda item: (-item[1], item[0]))
    return [{"word": word, "count": count} for word, count in ordered[:10]]


def test_made_up_text(run: RunFlow) -> None:
    lines = list(data.text_lines(2_000))
    expected = Counter(word for line in lines for word in line.split())
    tables: list[Any] = []
    counts: list[Any] = []
    run(wordcount.build(lines, tables, counts=counts))
    assert {row["word"]: row["count"] for row in counts} == expected
    assert len(counts) == len(expected)
    assert tables == [top_ten(expected)]


def test_each_file_has_a_table_of_its_own(tmp_path: Path, run: RunFlow) -> None:
    texts = {"a.txt": "To be, or not to be.\n", "b.txt": "the end\nthe very end"}
    for name, text in texts.items():
        (tmp_path / name).write_text(text)
    tables: list[Any] = []
    run(wordcount.build(pn.files.lines(tmp_path, punctuate=True), tables))
    assert tables == [
        top_ten(Counter({"to": 2, "be": 2, "or": 1, "not": 1})),
        top_ten(Counter({"the": 2, "end": 2, "very": 1})),
    ]
