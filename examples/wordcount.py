"""Word count: how often each word occurs in a file, and the ten most frequent ones.

    penstock run examples/wordcount.py --on local
    WORDCOUNT_FILE=book.txt penstock run examples/wordcount.py --on local

Without a file it counts the words of made-up text. A window punctuation closes the counts: a file source sends one at
the end of each file, so a directory of files gives a table for each.
"""

from __future__ import annotations

import heapq
import os
import re
from functools import partial
from typing import Any

import data
import penstock as pn

FILE = os.environ.get("WORDCOUNT_FILE")
MADE_UP = partial(data.text_lines, 20_000)

# All tuples up to the next window punctuation; `partial` also closes what is open when the stream ends without one.
WHOLE_FILE = pn.tumbling(punctuation=True, partial=True)


def split(line: str) -> list[dict[str, str]]:
    return [{"word": word} for word in re.findall(r"\w+", line.lower())]


def ten_most_frequent(counts: list[dict[str, Any]]) -> list[dict[str, Any]]:
    return heapq.nsmallest(10, counts, key=lambda row: (-row["count"], row["word"]))


def print_table(rows: list[dict[str, Any]]) -> None:
    print("   count  word")
    for row in rows:
        print(f"{row['count']:8,}  {row['word']}")


def build(text: Any = MADE_UP, results: Any = print_table, *, counts: Any = None) -> pn.Flow:
    """`results` receives the top ten words of `text`, `counts` (if given) the count of each word."""
    flow = pn.Flow("wordcount")
    lines = flow.source(text, name="Lines")
    words = lines.flat_map(split, name="Words")
    counted = words.key_by("word").window(WHOLE_FILE).aggregate(count=pn.count(), name="Counts")
    counted.window(WHOLE_FILE).apply(ten_most_frequent, name="Top").sink(results, name="Results")
    if counts is not None:
        counted.sink(counts, name="AllCounts")
    return flow


flow = build(pn.files.lines(FILE, punctuate=True) if FILE else MADE_UP)

if __name__ == "__main__":
    pn.run(flow, on="local")
