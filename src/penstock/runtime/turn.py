"""A turn: everything one thread does with one item, until nothing of it is left in that thread's hands.

The thread carries what segments hand over and runs segments in topological order, each with all that has collected for
it. No call is nested per segment, so a chain of 100,000 operators needs no more stack than one of ten. Where a threaded
port (`runtime.port`) lies between two segments, the chunk goes into its queue and is out of the thread's hands.

A full queue. The thread cannot go on before its chunk is in, so it takes the consumer flag if nobody has it, and works
off up to a quarter of the queue itself (scheduler paper §4.1.4). That may meet the next full queue, and so on. Each of
these is a `Frame` on a list, not a call: a pipeline of a thousand full queues needs no deeper stack than one.

Where two threads can meet (`runtime.locks`), a segment has a lock. A turn takes it on arrival and keeps it until the
frame is drained: another thread that passed in between could overtake on a stream further down.

Why this cannot deadlock. Segments are numbered topologically. A frame runs them in rising order, and what it works off
lies behind a queue further down still, so each thread takes locks and consumer flags in rising order only. Take, of all
threads that wait, the one that waits furthest down: what it waits for is in the hands of a thread that does not wait.
Waiting for room counts: a full queue is worked off by whoever has its flag, and if nobody has it, by the thread that
waits. What goes back through a feedback loop is put into a mailbox, which never refuses, and delivered when the thread
holds neither lock nor flag. A nested drain (a flat_map that overflows, an operator about to wait) runs only segments
further down than the one that started it, and gives back the locks it took.

Why nothing is lost. A chunk that finds no room stays in its frame, and nothing else of that frame runs before it is in:
so the order of each stream stays whole. An error stops the segment it happened in, for good. What it and others had
sent before is still delivered, then the error is raised. What ends a thread from outside (`ending.GivenUp`) leaves the
turn as it is, but for the locks: others may wait for them.
"""

from __future__ import annotations

import heapq
import threading
import time
from collections import deque
from collections.abc import Callable, Iterable
from typing import TYPE_CHECKING, Any

from penstock.runtime.ending import GivenUp
from penstock.runtime.segment import Entry, Segment
from penstock.tuples import Numbered, Punctuation

if TYPE_CHECKING:
    from penstock.runtime.port import Port

Item = list[Any] | Punctuation | Numbered

# Operators that overflow may call for delivery from inside each other, this deep; below, their outputs just collect.
_DEEPEST = 24
# A thread that waits for a lock looks this often whether the run is abandoned.
_LOOK_AGAIN = 0.050


class Frame:
    """Segments to be run with one item, and what they have sent into full queues."""

    __slots__ = (
        "blocked",
        "blocked_since",
        "born",
        "held",
        "helped",
        "left",
        "order",
        "pending",
        "port",
        "started",
        "taken",
        "taken_at",
    )

    def __init__(self, port: Port | None = None, left: int = 0) -> None:
        self.pending: dict[float, list[tuple[Entry, Item]]] = {}
        self.order: list[float] = []
        self.blocked: deque[tuple[Port, Item]] = deque()
        self.blocked_since = 0.0
        self.held: list[threading.Lock] = []
        self.port = port  # the queue this frame works off, whose consumer flag it has
        self.left = left  # tuples it may still take from there
        self.born = 0.0
        self.started = 0.0
        self.taken: int | None = None  # tuples of the item it is at
        self.taken_at = 0.0
        self.helped = 0.0  # seconds spent on working off queues further down


def _goes_on() -> bool:
    return False


class Turn:
    """What one thread carries. Belongs to that thread alone, but for `guard`.

    A thread is inside its turn while it has the guard; whoever wants to change the segments takes the guards of all
    turns (`runtime.placement`).
    """

    __slots__ = (
        "_depth",
        "_error",
        "_frame",
        "_frames",
        "base",
        "guard",
        "is_stopped",
        "mailboxes",
        "on_chunk",
    )

    def __init__(self, is_stopped: Callable[[], bool] = _goes_on) -> None:
        self.base = self._frame = Frame()
        self._frames = [self._frame]
        self.mailboxes: list[Segment] = []  # where something waits to go back through a feedback loop
        self._error: BaseException | None = None
        self._depth = 0
        self.guard = threading.Lock()
        self.is_stopped = is_stopped  # true once what waits may be thrown away
        self.on_chunk: Callable[[Segment, float], None] | None = None  # told of each chunk a segment is done with

    # -------------------------------------------------------------------------------------------------- carrying

    def born(self, moment: float) -> None:
        """What is pushed next entered the PE at `moment`."""
        self._frame.born = moment

    def push(self, target: Entry, item: Item) -> None:
        """Let `target` have `item`: in its queue, or when its time comes in this turn."""
        frame, port = self._frame, target.queue
        if port is not None:
            if frame.blocked or not port.push(item, frame.born):
                if not frame.blocked:
                    frame.blocked_since = time.perf_counter()
                frame.blocked.append((port, item))
            return
        segment = target.segment
        if segment.is_feedback:
            segment.mailbox.append(item)
            self.mailboxes.append(segment)
            return
        waiting = frame.pending.get(segment.index)
        if waiting is None:
            frame.pending[segment.index] = [(target, item)]
            heapq.heappush(frame.order, segment.index)
        else:
            waiting.append((target, item))

    def drain(self) -> None:
        """Run segments until nothing is left, then what came back through feedback loops, until that is done too.

        The thread must hold neither a lock nor a flag.
        """
        self.run_pending()
        self.deliver_feedback()
        self.raise_error()

    def run_pending(self) -> None:
        """Run segments until nothing is left but what came back through feedback loops; errors are kept for later."""
        frames = self._frames
        base = len(frames)
        try:
            self._run_frames(frames, base)
        except BaseException:  # never one of an operator: those are kept
            for frame in reversed(frames[base - 1 :]):
                self._release(frame)
            del frames[base:]
            raise

    def _run_frames(self, frames: list[Frame], base: int) -> None:
        while True:
            frame = frames[-1]
            if frame.blocked:
                self._make_room(frame)
            elif frame.order:
                items = frame.pending.pop(heapq.heappop(frame.order))
                segment = items[0][0].segment
                if segment.lock is not None:
                    self.acquire(segment.lock)
                    frame.held.append(segment.lock)
                self._run_items(segment, items)
            else:
                self._release(frame)
                if len(frames) == base:
                    return
                if not self._take_next(frame):
                    self._end_help(frame)

    def acquire(self, lock: threading.Lock) -> None:
        """Take the lock of a segment, which is freed by the thread that holds it, when its frame is drained.

        That thread may be given up and never free it. So whoever waits leaves by itself once the run is abandoned.
        """
        if not lock.acquire(blocking=False):
            while not lock.acquire(timeout=_LOOK_AGAIN):
                if self.is_stopped():
                    raise GivenUp

    @staticmethod
    def _release(frame: Frame) -> None:
        while frame.held:
            frame.held.pop().release()

    def deliver_feedback(self) -> None:
        """Deliver what came back through feedback loops. The thread must hold neither a lock nor a flag."""
        # After an error nothing may come back: it could let tuples pass that follow the one that failed.
        while self.mailboxes and self._error is None and not self.is_stopped():
            self._run_mailbox(self.mailboxes.pop())

    def raise_error(self) -> None:
        """Raise what went wrong, if anything did."""
        error = self.take_error()
        if error is not None:
            raise error

    def take_error(self) -> BaseException | None:
        """What went wrong, once."""
        error, self._error = self._error, None
        return error

    def drain_nested(self) -> None:
        """The same from inside a segment that is not done with its item; feedback waits until it is.

        Raises only what failed further down. An error of another branch does not concern the segment that waits.
        """
        if self._depth >= _DEEPEST:
            return
        self._depth += 1
        outer, inner = self._frame, Frame()
        inner.born = outer.born
        inner.pending, outer.pending = outer.pending, inner.pending
        inner.order, outer.order = outer.order, inner.order
        inner.blocked, outer.blocked = outer.blocked, inner.blocked
        inner.blocked_since = outer.blocked_since
        self._frames.append(inner)
        self._frame = inner
        before, self._error = self._error, None
        try:
            self.run_pending()
        finally:
            self._frames.pop()
            self._frame = outer
            outer.helped += inner.helped
            self._depth -= 1
        failed, self._error = self._error, before
        if failed is not None:
            raise failed

    # ------------------------------------------------------------------------------------------------ full queues

    def _make_room(self, frame: Frame) -> None:
        """One attempt to get the first blocked item into its queue: push it, or work the queue off, or wait."""
        port, item = frame.blocked[0]
        if port.push(item, frame.born):
            frame.blocked.popleft()
            now = time.perf_counter()
            port.blocked_seconds += now - frame.blocked_since
            frame.blocked_since = now
        elif self.is_stopped():
            frame.blocked.clear()
        elif port.try_consume():
            helping = Frame(port, max(1, port.capacity // 4))
            helping.started = time.perf_counter()
            self._frames.append(helping)
            self._frame = helping
            if not self._take_next(helping):
                self._end_help(helping)
        else:
            port.wait_for_room()

    def _take_next(self, frame: Frame) -> bool:
        """Go on with the next item of the queue that `frame` works off; false when it has done enough."""
        port = frame.port
        assert port is not None
        now = time.perf_counter()
        if frame.taken is not None:
            port.note_run(frame.taken, now - frame.taken_at - frame.helped, now)
        queued = port.pop() if frame.left > 0 and not self.is_stopped() else None
        if queued is None:
            return False
        item, _, frame.born = queued
        frame.taken = len(item) if isinstance(item, list) else 0
        frame.taken_at, frame.helped = now, 0.0
        frame.left -= max(1, frame.taken)
        entry = port.entry
        frame.pending[entry.segment.index] = [(entry, item)]
        frame.order.append(entry.segment.index)
        return True

    def _end_help(self, frame: Frame) -> None:
        assert frame.port is not None
        self._frames.pop()
        self._frame = self._frames[-1]
        self._frame.helped += time.perf_counter() - frame.started
        frame.port.release_consumer()
        if frame.port.length:
            frame.port.freed()

    # --------------------------------------------------------------------------------------------------- segments

    def run_item(self, entry: Entry, item: Item, born: float) -> None:
        """Run one item of a port; most go straight through a segment that nobody else can reach, into other queues."""
        frame, segment = self._frame, entry.segment
        frame.born = born
        if segment.lock is None:
            if not segment.failed:
                self._run_one(segment, entry.port, item)
            if not frame.order and not frame.blocked:
                return
        else:
            self.push(entry, item)
        self.run_pending()

    def _run_items(self, segment: Segment, items: Iterable[tuple[Entry, Item]]) -> None:
        for target, item in items:
            if segment.failed:  # what comes after the tuple that failed is not to be processed
                return
            self._run_one(segment, target.port, item)

    def _run_one(self, segment: Segment, port: int, item: Item) -> None:
        try:
            if segment.old or segment.leftover:
                self._run_leftover(segment)
            segment.run(item, port, self)
        except GivenUp:
            segment.failed = True
            raise
        except BaseException as error:
            segment.failed = True
            self._error = self._error or error
            return
        if self.on_chunk is not None and isinstance(item, list):
            self.on_chunk(segment, self._frame.born)

    def run_leftover(self, segment: Segment) -> None:
        """Run what must go through `segment` before anything else, in the place of one of its carriers."""
        lock = segment.protection
        if lock is not None:
            self.acquire(lock)
        try:
            try:
                self._run_leftover(segment)
            except BaseException as error:
                self._error = self._error or error
            self.run_pending()
        finally:
            if lock is not None:
                lock.release()

    def _run_leftover(self, segment: Segment) -> None:
        """What waited in a queue that was removed comes before anything that follows it (`runtime.placement`).

        Where one old segment fails, what waits for the others came before it all the same, and is run.
        """
        error: Exception | None = None
        while segment.old:
            try:
                self._run_leftover(segment.old.popleft())
            except Exception as failed:
                error = error or failed
        try:
            if error is not None:
                raise error
            while segment.leftover and not segment.failed and not self.is_stopped():
                port, item = segment.leftover.popleft()
                segment.run(item, port, self)
                self.drain_nested()  # through other old segments, whose operators may be part of the new one
        except BaseException:
            segment.failed = True
            raise
        finally:
            segment.leftover.clear()

    def _run_mailbox(self, segment: Segment) -> None:
        lock = segment.lock
        if lock is not None:
            self.acquire(lock)  # keeps the order of the mailbox
        try:
            while segment.mailbox:
                item = segment.mailbox.popleft()
                self._run_items(segment, [(Entry(segment, 0), item)])
                self.run_pending()
        finally:
            if lock is not None:
                lock.release()
