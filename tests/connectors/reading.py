"""Reading a source by hand, as a run would."""

from __future__ import annotations

import json
from collections.abc import Iterable
from itertools import cycle
from typing import Any

from penstock.connectors.base import Batch, Source


def batches(source: Source, limits: Iterable[int] = (512,), offset: Any = None) -> list[Batch]:
    """All batches up to the end of a finite source, read with these limits in turn; offsets pass through JSON."""
    offset = source.initial() if offset is None else offset
    found = []
    for limit in cycle(limits):
        batch = source.read(offset, limit)
        assert len(batch.tuples) <= limit
        assert batch.done or batch.tuples or batch.offset != offset, "a finite source has nothing to wait for"
        found.append(batch)
        if batch.done:
            source.close()
            return found
        offset = json.loads(json.dumps(batch.offset))
    raise AssertionError


def tuples(source: Source, limits: Iterable[int] = (512,), offset: Any = None) -> list[Any]:
    """All tuples up to the end of a finite source."""
    return [item for batch in batches(source, limits, offset) for item in batch.tuples]


def until_error(source: Source, limit: int, offset: Any = None) -> tuple[list[Any], Any, Exception]:
    """The tuples before reading fails, the offset at which it does, and the error."""
    offset = source.initial() if offset is None else offset
    found: list[Any] = []
    while True:
        try:
            batch = source.read(offset, limit)
        except Exception as error:
            return found, offset, error
        assert not batch.done, "reading was to fail"
        found += batch.tuples
        offset = batch.offset


class Following:
    """Reads on wherever the last read ended, as long as there is something."""

    def __init__(self, source: Source) -> None:
        self.source = source
        self.offset = source.initial()

    def now(self, limit: int = 512) -> list[Any]:
        """The tuples that are there now."""
        found: list[Any] = []
        while True:
            batch = self.source.read(self.offset, limit)
            assert not batch.done
            found += batch.tuples
            if not batch.tuples and batch.offset == self.offset:
                return found
            self.offset = batch.offset
