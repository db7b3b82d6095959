"""The thread of a source: read a chunk, carry it through the program, read the next.

How much is read at once follows the load. Reading starts with one tuple; the limit doubles while full reads come
quickly, and falls back as soon as a read takes long, so that tuples hardly wait for others to fill a chunk with them.

An iterator may still block in the middle of a read, with tuples already pulled. Then the `Relief` thread takes those
and carries them through in the source's place. Taking and carrying happen under the source's `carrying` lock, so the
order of the stream stays whole, and whatever only this source's thread reaches is still run by one thread at a time.
The source's thread holds that lock only while it carries, never while it reads.
"""

from __future__ import annotations

import threading
import time
from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING, Any

from penstock.connectors.base import Batch, Source
from penstock.connectors.iterables import PulledSource
from penstock.errors import PenstockError
from penstock.graph.graph import Output
from penstock.runtime.failure import operator_error
from penstock.runtime.port import Pace
from penstock.runtime.segment import Entry, Segment
from penstock.tuples import DeadLetter, Punctuation

if TYPE_CHECKING:
    from penstock.runtime.pe import PE

# A full read quicker than this may grow: nobody notices so short a wait.
UNNOTICED = 0.0001
# Where processing takes longer than reading, reads may grow up to this: smaller chunks would only lengthen the queue.
QUICK = 0.001
# A read slower than this shrinks at once: the source is idle, its tuples should go one by one.
SLOW = 0.005
# A chunk that takes longer than this to carry is too large: nothing can be stopped, cancelled or moved meanwhile.
LONG = 0.008
# Pauses between looks at a source that has nothing: doubling up to 10 ms (scheduler paper §4.1).
SHORTEST_PAUSE, LONGEST_PAUSE = 0.0002, 0.010


class SourceLoop:
    """Reads one source to its end."""

    def __init__(self, pe: PE, segment: Segment, source: Source) -> None:
        self.pe = pe
        self.segment = segment
        self.source = source
        if hasattr(source, "name"):
            source.name = segment.root.name
        self.entry = Entry(segment, 0)
        self.dead_letters = segment.outlets.get(Output(segment.plan.root, 1))
        self.thread = threading.Thread(target=self._run, name=f"{pe.graph.name}: {segment.root.name}", daemon=True)
        self.read = 0
        self.skipped = 0
        self.dead = 0
        self.read_seconds = 0.0
        self.read_until = 0.0
        self._pace = Pace(LONG)
        self.carried = 0.0  # seconds the last chunk took, without working for others
        self.ended = False
        self.offset: Any = None
        self.reading_since: float | None = None
        self.carrying = threading.Lock()
        self.turn = pe.make_turn()
        self.pulled = source if isinstance(source, PulledSource) else None
        commits = getattr(type(source), "commit", None) is not Source.commit  # most sources have nothing to do there
        self._commit = source.commit if commits else None
        self._closed = False

    def start(self) -> None:
        self.thread.start()

    def move_to(self, segment: Segment) -> None:
        """The source's segment was cut anew; called while nobody carries."""
        self.segment = segment
        self.entry = Entry(segment, 0)
        self.dead_letters = segment.outlets.get(Output(segment.plan.root, 1))

    def close(self) -> None:
        """Close the source, once; one that is still being read (a cancelled job gave up on it) is left alone."""
        if not self._closed and not self.thread.is_alive():
            self._closed = True
            try:
                self.source.close()
            except Exception as error:
                self.pe.fail(operator_error(error, self.segment.root, doing="to close"))

    def _run(self) -> None:
        try:
            self._read_to_end()
        except PenstockError as error:
            self.pe.fail(error)
        except BaseException as error:  # a defect or a KeyboardInterrupt inside user code: shown as it is
            self.pe.fail(error)
        finally:
            self.ended = True
            self.pe.forget_turn(self.turn)
            self.pe.pacer.wake()

    def _read_to_end(self) -> None:
        self.offset = self._guard(self.source.initial)
        limit, pause, clock = 1, SHORTEST_PAUSE, time.perf_counter
        while not self.pe.stopping:
            before = self.offset
            self.reading_since = start = clock()
            if self.pulled is not None:
                self._guard(self.pulled.fill, before, limit, max(UNNOTICED, min(self.carried, QUICK)))
                with self.carrying:
                    batch = self._carry(self._guard(self.pulled.take))
            else:
                try:
                    batch = self.source.read(before, limit)
                except Exception as error:
                    raise operator_error(error, self.segment.root, doing="to read") from error
                with self.carrying:
                    self._carry(batch)
            taken = self.read_until - start
            self.read_seconds += taken
            if batch.done or self.pe.stopping:
                break
            self.pe.pacer.pace(self)
            if self.offset == before and not batch.tuples:  # an offset that moved is progress: skipped input
                self.pe.idle(pause)
                limit, pause = 1, min(2 * pause, LONGEST_PAUSE)
            else:
                limit, pause = self._next_limit(limit, len(batch.tuples), taken), SHORTEST_PAUSE
        if self.pe.stopping:
            return
        with self.carrying:
            self.pe.enter(self.turn)
            try:
                self.turn.push(self.entry, Punctuation.FINAL)
                self.turn.drain()
            finally:
                self.pe.leave(self.turn)

    def _carry(self, batch: Batch) -> Batch:
        """Deliver what was read, unless the job is being stopped."""
        self.reading_since = None
        self.read_until = time.perf_counter()
        if not self.pe.stopping:
            self._deliver(batch)
            self.offset = batch.offset
            if self._commit is not None:
                self._guard(self._commit, batch.offset)
        return batch

    def relieve(self, now: float) -> None:
        """Called by the relief thread: if a read has been blocked for long, deliver what it has pulled so far."""
        since = self.reading_since
        if self.pulled is None or since is None or now - since < SLOW or not self.pulled.waiting:
            return
        with self.carrying:
            # The read may have come back meanwhile; then the source's thread has taken it all, or waits for this lock
            # and will take what comes after.
            if not self.pe.stopping and self.reading_since == since:
                batch = self._guard(self.pulled.take)
                self._deliver(batch)
                self.offset = batch.offset

    def _next_limit(self, limit: int, got: int, taken: float) -> int:
        """How many tuples to read at once next: more while that delays nobody, or while it is the only way to keep up.

        A chunk has a fixed price, so larger ones are cheaper per tuple; but its first tuple waits for the last.
        """
        most = self._pace.most(got, self.carried) if got else limit
        if taken > SLOW:
            return max(1, limit // 8)
        if limit > most:
            return most
        if taken > 2 * UNNOTICED and taken > self.carried:
            return max(1, limit // 2)
        behind = taken < self.carried and taken < QUICK
        if got == limit and (taken < UNNOTICED or behind):
            return min(2 * limit, most)
        return limit

    def _deliver(self, batch: Batch) -> None:
        turn, start = self.turn, time.perf_counter()
        helped = turn.base.helped
        self.skipped += batch.skipped
        self.pe.enter(turn)
        try:
            if batch.dead:
                self._deliver_dead(batch.dead, start)
            if batch.tuples:
                self.read += len(batch.tuples)
                turn.run_item(self.entry, batch.tuples, start)
            if batch.window:
                turn.run_item(self.entry, Punctuation.WINDOW, start)
            turn.deliver_feedback()
            turn.raise_error()
        finally:
            self.pe.leave(turn)
        self.carried = time.perf_counter() - start - (turn.base.helped - helped)
        if self.pe.timer is not None:
            self.pe.timer.wake()

    def _deliver_dead(self, letters: Sequence[DeadLetter], born: float) -> None:
        self.dead += len(letters)
        if self.dead_letters is not None:
            self.turn.born(born)
            for target in self.dead_letters.targets:
                self.turn.push(target, list(letters))
            self.turn.run_pending()

    def _guard(self, function: Callable[..., Any], *arguments: Any) -> Any:
        try:
            return function(*arguments)
        except Exception as error:
            raise operator_error(error, self.segment.root, doing="to read") from error
