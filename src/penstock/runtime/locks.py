"""Lock elision: a segment gets a lock only where two threads can meet, and nowhere else (DESIGN law 2).

Who reaches a segment is known beforehand. A *carrier* is whoever starts a turn: the thread of a source, whoever has the
consumer flag of a threaded port (one thread at a time), and the timer where an operator follows the clock. It reaches
all segments down to the next threaded ports, and so do threads that an operator has started itself. A segment that only
one carrier reaches needs no lock. Nor does one that is reached through a single other segment which is protected
itself: a turn keeps that lock until it is drained.

Threads that an operator has started submit behind it. They do not take its lock for that, so that `process` may wait
for them (`runtime.own_threads`), and what follows the operator is locked by itself. Only where one of its outputs has
several readers the threads take the lock of the operator: all readers are to see one order.

What goes back through a feedback loop is delivered after the consumer flag is given back (`runtime.turn`). While one
thread does so, another may have the flag and come here too: behind a port, the loop is a carrier of its own.
"""

from __future__ import annotations

import threading
from collections.abc import Iterable, Sequence
from dataclasses import dataclass

from penstock.runtime.port import Port
from penstock.runtime.segment import Segment

TIMER = "timer"


@dataclass(frozen=True, slots=True)
class Meeting:
    """Where threads meet: the segment, and who they are."""

    segment: int
    threads: tuple[str, ...]


def place_locks(
    segments: Sequence[Segment], ports: Iterable[Port] = (), locks: dict[int, threading.Lock] | None = None
) -> list[Meeting]:
    """Give a lock to each segment that needs one, and say which and why.

    `locks` remembers them by root, so that a segment gets the same lock again when segments are cut anew.
    """
    known = {} if locks is None else locks
    above = _segments_above(segments)
    entered = {port.entry.segment.index: set[str]() for port in ports}
    for port in ports:
        entered[port.entry.segment.index].add(f"port {port.name}")
    reached = _reached_by(segments, above, entered)
    protected: dict[float, threading.Lock] = {}
    meetings = []
    for segment in segments:
        threads = reached[segment.index]
        if len(threads) < 2:
            segment.lock = segment.protection = None
            continue
        feeders = above[segment.index]
        entered_here = segment.index in entered or _is_timed(segment) or segment.has_threads or segment.is_feedback
        if len(feeders) == 1 and feeders <= protected.keys() and not entered_here:
            segment.lock, segment.protection = None, protected[next(iter(feeders))]
            protected[segment.index] = segment.protection
            continue
        segment.lock = segment.protection = known.setdefault(segment.root.index, threading.Lock())
        segment.submits_apart = segment.has_threads and all(len(o.targets) < 2 for o in segment.outlets.values())
        if not segment.submits_apart:
            protected[segment.index] = segment.lock
        meetings.append(Meeting(segment.plan.index, tuple(sorted(threads))))
    return meetings


def _is_timed(segment: Segment) -> bool:
    return any(logic.timed for logic in segment.logics.values())


def _segments_above(segments: Sequence[Segment]) -> dict[float, set[float]]:
    """The segments that hand over to each segment directly, without a queue."""
    above: dict[float, set[float]] = {segment.index: set() for segment in segments}
    for segment in segments:
        for outlet in segment.outlets.values():
            for target in outlet.targets:
                if target.queue is None:
                    above[target.segment.index].add(segment.index)
    return above


def _reached_by(
    segments: Sequence[Segment], above: dict[float, set[float]], entered: dict[float, set[str]]
) -> dict[float, set[str]]:
    reached: dict[float, set[str]] = {}
    ports = set[str]().union(*entered.values())
    for segment in segments:
        own = {segment.root.name} if segment.root.is_source else set()
        own |= {f"threads of {segment.root.name}"} if segment.has_threads else set()
        reached[segment.index] = own | ({TIMER} if _is_timed(segment) else set()) | entered.get(segment.index, set())
    changed = True
    while changed:  # once, and once more for each feedback loop
        changed = False
        for segment in segments:
            threads = reached[segment.index]
            before = len(threads)
            for feeder in above[segment.index]:
                threads |= reached[feeder]
            if segment.is_feedback and not threads.isdisjoint(ports):
                threads.add(f"feedback {segment.root.name}")
            changed |= len(threads) != before
    return reached
