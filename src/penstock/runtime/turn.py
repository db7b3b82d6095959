"""A turn: everything one thread does with one chunk of its source, until nothing of it is left inside the PE.

The thread carries what segments hand over and runs segments in topological order, each with all that has collected for
it. No call is nested per segment, so a chain of 100,000 operators needs no more stack than one of ten.

Where two threads can meet (`runtime.locks`), a segment has a lock. A turn takes it on arrival and keeps it until the
turn is drained: another thread that passed in between could overtake on a stream further down.

Why this cannot deadlock: within a drain, segments come in topological order, so locks are taken in rising order; a
nested drain (a flat_map that overflows, an operator about to wait) runs only segments further down than the one that
started it, and gives back the locks it took. What goes back through a feedback loop is put into a mailbox and
delivered after all locks have been given back.

Why nothing is lost: an error stops the segment it happened in. What it and others had sent before is still delivered,
then the error is raised.
"""

from __future__ import annotations

import heapq
import threading
from typing import Any

from penstock.runtime.segment import Entry, Segment
from penstock.tuples import Punctuation

Item = list[Any] | Punctuation


class Turn:
    """What one thread carries. Belongs to that thread alone."""

    __slots__ = ("_error", "_mailboxes", "_order", "_pending")

    def __init__(self) -> None:
        self._pending: dict[int, list[tuple[Entry, Item]]] = {}
        self._order: list[int] = []
        self._mailboxes: list[Segment] = []
        self._error: Exception | None = None

    def push(self, target: Entry, item: Item) -> None:
        """Let `target` have `item` when its time comes in this turn."""
        segment = target.segment
        if segment.is_feedback:
            segment.mailbox.append(item)
            self._mailboxes.append(segment)
            return
        waiting = self._pending.get(segment.index)
        if waiting is None:
            self._pending[segment.index] = [(target, item)]
            heapq.heappush(self._order, segment.index)
        else:
            waiting.append((target, item))

    def drain(self) -> None:
        """Run segments until nothing is left, then what came back through feedback loops, until that is done too."""
        self.run_pending()
        # After an error nothing may come back: it could let tuples pass that follow the one that failed.
        while self._mailboxes and self._error is None:
            self._run_mailbox(self._mailboxes.pop())
        if self._error is not None:
            error, self._error = self._error, None
            raise error

    def drain_nested(self) -> None:
        """The same from inside a segment that is not done with its item; feedback waits until it is.

        Raises only what failed further down. An error of another branch does not concern the segment that waits.
        """
        outer, self._error = self._error, None
        self.run_pending()
        inner, self._error = self._error, outer
        if inner is not None:
            raise inner

    def run_pending(self) -> None:
        """Run segments until nothing is left but what came back through feedback loops; errors are kept for `drain`."""
        held: list[threading.Lock] = []
        try:
            while self._order:
                items = self._pending.pop(heapq.heappop(self._order))
                segment = items[0][0].segment
                if segment.lock is not None:
                    segment.lock.acquire()  # freed by the thread that holds it, when its turn is drained
                    held.append(segment.lock)
                self._run_items(segment, items)
        finally:
            for lock in reversed(held):
                lock.release()

    def _run_items(self, segment: Segment, items: list[tuple[Entry, Item]]) -> None:
        for target, item in items:
            try:
                segment.run(item, target.port, self)
            except Exception as error:
                # Later items of this segment come after the tuple that failed: they are not to be processed.
                self._error = self._error or error
                return

    def _run_mailbox(self, segment: Segment) -> None:
        lock = segment.lock
        if lock is not None:
            lock.acquire()  # keeps the order of the mailbox; freed when what it held is delivered
        try:
            while segment.mailbox:
                item = segment.mailbox.popleft()
                self._run_items(segment, [(Entry(segment, 0), item)])
                self.run_pending()
        finally:
            if lock is not None:
                lock.release()
