"""Back-pressure where inputs wait for each other: a source that runs ahead of the others is made to wait.

A barrier (or a pair, a gate, a driver loop) holds tuples of one input until another has some. When the inputs come
from different sources, the faster one would fill memory. After each chunk a source looks at the operators it feeds:
while one holds more than `MOST_HELD` of its tuples and another source could bring what is missing, it waits.

Why this cannot deadlock: a source waits only while some other source is running and not waiting itself. The last one to
arrive always goes on. Then the buffer grows, as it must: no order of reading could have kept it small.
"""

from __future__ import annotations

import threading
from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING

from penstock.operators.base import Logic
from penstock.runtime.segment import Segment
from penstock.tuples import CHUNK

if TYPE_CHECKING:
    from penstock.runtime.source_loop import SourceLoop

MOST_HELD = 8 * CHUNK
# The state of other threads is looked at again this often even when nobody calls; a missed wake-up costs no more.
_LOOK_AGAIN = 0.02


class Pacer:
    """Knows which sources feed which inputs of operators with several."""

    def __init__(self, segments: Sequence[Segment], logics: Mapping[int, Logic], stop: threading.Event) -> None:
        self._stop = stop
        self._condition = threading.Condition()
        self._waiting: set[str] = set()
        feeds: dict[int, set[str]] = {s.index: {s.root.name} if s.root.is_source else set() for s in segments}
        ports: dict[tuple[int, int], set[str]] = {}
        for segment in segments:
            for outlet in segment.outlets.values():
                for target in outlet.targets:
                    feeds[target.segment.index] |= feeds[segment.index]
                    ports.setdefault((target.segment.index, target.port), set()).update(feeds[segment.index])
        self._watched: dict[str, list[tuple[Logic, int, set[str]]]] = {}
        for (index, port), sources in ports.items():
            root = segments[index].root
            others = set().union(*(s for (i, p), s in ports.items() if i == index and p != port)) - sources
            if len(root.inputs) > 1 and others:
                for source in sources:
                    self._watched.setdefault(source, []).append((logics[root.index], port, others))

    def pace(self, source: SourceLoop) -> None:
        """Called by a source's thread after each chunk: returns when it may read on."""
        watched = self._watched.get(source.segment.root.name)
        if not watched:
            return
        if self._waiting:
            self.wake()
        if any(logic.backlog(port) > MOST_HELD for logic, port, _ in watched):
            self._wait(source, watched)

    def _wait(self, source: SourceLoop, watched: list[tuple[Logic, int, set[str]]]) -> None:
        name = source.segment.root.name
        live = {loop.segment.root.name for loop in source.pe.sources}
        with self._condition:
            self._waiting.add(name)
            try:
                while not self._stop.is_set() and self._must_wait(source, live, watched):
                    self._condition.wait(_LOOK_AGAIN)
            finally:
                self._waiting.discard(name)

    def _must_wait(self, source: SourceLoop, live: set[str], watched: list[tuple[Logic, int, set[str]]]) -> bool:
        ended = {loop.segment.root.name for loop in source.pe.sources if loop.ended}
        busy = live - ended - self._waiting
        return any(logic.backlog(port) > MOST_HELD and others & busy for logic, port, others in watched)

    def wake(self) -> None:
        """Let waiting sources look again."""
        with self._condition:
            self._condition.notify_all()
