"""Words that many people write about: words of edited pages, counted over the last minute, every second.

    penstock run examples/wikiwords.py --on local
    WIKIWORDS_FILE=edits.jsonl penstock run examples/wikiwords.py --on local

Without a file (JSON lines with ts, in seconds, and page, the text) it reads made-up edits. The two parallel regions
are advice to the system, not part of the meaning: the counts are the same whatever it does with them.
"""

from __future__ import annotations

import os
from functools import partial
from typing import Any

import data
import penstock as pn

FILE = os.environ.get("WIKIWORDS_FILE")
MADE_UP = partial(data.page_edits, 300)


def split(edit: dict[str, Any]) -> list[dict[str, Any]]:
    """The words of a page; the shortest say little about what it is about."""
    return [{"ts": edit["ts"], "word": word} for word in edit["page"].split(" ") if len(word) > 3]


def is_top(often: int, row: dict[str, Any]) -> bool:
    """Whether a word was used `often` in a whole minute by the clock."""
    return bool(row["count"] >= often and row["window_end"] % 60 == 0)


def print_count(row: dict[str, Any]) -> None:
    print(f"minute {row['window_end'] / 60:3.0f}: {row['count']:5} times  {row['word']}")


def build(pages: Any = MADE_UP, published: Any = print_count, *, often: int = 80, counts: Any = None) -> pn.Flow:
    """`published` receives what was used `often` in a minute, `counts` (if given) every count."""
    flow = pn.Flow("wikiwords")
    edits = flow.source(pages, name="WikiPages")
    with flow.parallel(width=5):
        words = edits.flat_map(split, name="Words")
    with flow.parallel(width=10, by="word"):
        last_minute = words.key_by("word").window(pn.sliding(time=60, every=1, on="ts"))
        counted = last_minute.aggregate(count=pn.count(), name="Counts")
    counted.filter(partial(is_top, often), name="Top").sink(published, name="Published")
    if counts is not None:
        counted.sink(counts, name="AllCounts")
    return flow


flow = build(pn.files.jsonl(FILE) if FILE else MADE_UP)

if __name__ == "__main__":
    pn.run(flow, on="local")
