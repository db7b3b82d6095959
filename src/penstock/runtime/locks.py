"""Lock elision: a segment gets a lock only where two threads can meet, and nowhere else (DESIGN law 2).

Which threads reach a segment is known beforehand: the threads of the sources above it, and the timer where an operator
follows the clock. A segment that only one thread reaches needs no lock. Nor does one that is reached through a single
other segment which is protected itself: a turn keeps that lock until it is drained.
"""

from __future__ import annotations

import threading
from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from penstock.runtime.segment import Segment

TIMER = "timer"


@dataclass(frozen=True, slots=True)
class Meeting:
    """Where threads meet: the segment, and who they are."""

    segment: int
    threads: tuple[str, ...]


def place_locks(segments: Sequence[Segment]) -> list[Meeting]:
    """Give a lock to each segment that needs one, and say which and why."""
    above: Mapping[int, set[int]] = _segments_above(segments)
    reached = _reached_by(segments, above)
    protected: set[int] = set()
    meetings = []
    for segment in segments:
        threads = reached[segment.index]
        if len(threads) < 2:
            continue
        feeders = above[segment.index]
        if len(feeders) == 1 and feeders <= protected and not _is_timed(segment) and not segment.is_feedback:
            protected.add(segment.index)
            continue
        segment.lock = threading.Lock()
        protected.add(segment.index)
        meetings.append(Meeting(segment.index, tuple(sorted(threads))))
    return meetings


def _is_timed(segment: Segment) -> bool:
    return any(logic.timed for logic in segment.logics.values())


def _segments_above(segments: Sequence[Segment]) -> dict[int, set[int]]:
    above: dict[int, set[int]] = {segment.index: set() for segment in segments}
    for segment in segments:
        for outlet in segment.outlets.values():
            for target in outlet.targets:
                above[target.segment.index].add(segment.index)
    return above


def _reached_by(segments: Sequence[Segment], above: Mapping[int, set[int]]) -> dict[int, set[str]]:
    reached: dict[int, set[str]] = {}
    for segment in segments:
        own = {segment.root.name} if segment.root.is_source else set()
        reached[segment.index] = own | ({TIMER} if _is_timed(segment) else set())
    changed = True
    while changed:  # once, and once more for each feedback loop
        changed = False
        for segment in segments:
            threads = reached[segment.index]
            before = len(threads)
            for feeder in above[segment.index]:
                threads |= reached[feeder]
            changed |= len(threads) != before
    return reached
