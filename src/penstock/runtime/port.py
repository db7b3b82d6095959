"""A threaded port: the bounded queue in front of an input port of a segment (scheduler paper §4.1, DESIGN §5).

What it guarantees
* Order. Items come out as they went in. One thread at a time puts in (producer flag), one at a time takes out and
  processes what it took (consumer flag). A consumer keeps the flag until all that came of an item has left its hands.
* Bound. `capacity` counts tuples; a push that would pass it is refused and the pusher has to do something about it.
  Only a chunk larger than the whole capacity is taken, into an empty queue.
* Nothing is stranded. Whoever pushes calls `announce` afterwards. A scheduled port that holds something is either on
  the list of ready ports (`listed` is set), or in the hands of a thread that looks again after clearing `listed`.

What each step relies on, with or without a GIL
* The flags and `listed` are locks taken without waiting: one atomic step that orders memory for all threads.
* `deque.append`, `popleft`, `appendleft` and `[0]` are atomic. The producer touches only the right end. The consumer
  owns the left end, so what it has seen there stays.
* `pushed` is written under the producer flag only, `popped` under the consumer flag only. A reader may see either a
  moment late. Then the queue seems fuller (a push is refused and tried again) or emptier than it is (a consumer looks
  again: it was announced), never the other way round where it matters.
* Threads that wait for room or for items wait on a condition and are called. They also look again every 10 ms, so a
  call that comes between looking and waiting costs that much and no more.
"""

from __future__ import annotations

import threading
import time
from collections import deque
from collections.abc import Callable
from typing import TYPE_CHECKING, Any

from penstock.tuples import CHUNK, Numbered, Punctuation

if TYPE_CHECKING:
    from penstock.graph.graph import Target
    from penstock.runtime.segment import Entry

Item = list[Any] | Punctuation | Numbered
Queued = tuple[Item, float, float]
"""An item in a queue: itself, when it was put there, and when its tuples entered the PE."""

CAPACITY = 4 * CHUNK
# The longest a thread waits before it looks again (scheduler paper §4.1.3: ten milliseconds).
LOOK_AGAIN = 0.010
# A consumer takes as many tuples at once as it processes in about this time, so that it can be stopped, suspended and
# moved soon, and so that tuples do not wait for others to be done with.
SLICE = 0.005
_FIRST_LIMIT = 4


class Pace:
    """How many tuples are processed in a given time, learnt from what takes place.

    A run may take long because the thread had to wait for others, for the GIL, for a core. Only what the tuples
    themselves need should count, so the estimate follows quick runs at once and slow ones slowly.
    """

    __slots__ = ("_per_tuple", "_seconds")

    def __init__(self, seconds: float) -> None:
        self._seconds = seconds
        self._per_tuple = 0.0

    def most(self, tuples: int, seconds: float) -> int:
        """How many tuples fit into the time, now that `tuples` needed `seconds`."""
        measured = seconds / tuples
        if measured < self._per_tuple or not self._per_tuple:
            self._per_tuple = measured
        else:
            self._per_tuple += (measured - self._per_tuple) / 16
        return max(1, min(CHUNK, round(self._seconds / self._per_tuple))) if self._per_tuple > 0 else CHUNK


class Port:
    """The queue of one input port. Numbers end with the run; they are read by other threads, a moment late maybe."""

    __slots__ = (
        "_consumer",
        "_items",
        "_pace",
        "_producer",
        "_room",
        "announce",
        "blocked_seconds",
        "busy_seconds",
        "capacity",
        "entry",
        "freed",
        "last_run",
        "limit",
        "listed",
        "name",
        "popped",
        "processed",
        "pushed",
        "scheduled",
        "subscribers",
        "target",
        "waited_seconds",
        "waiting",
    )

    def __init__(self, target: Target, name: str, capacity: int = CAPACITY) -> None:
        self.target = target
        self.name = name
        self.capacity = capacity
        self.entry: Entry = None  # type: ignore[assignment]  # set when segments are connected
        self.scheduled = True  # by the scheduler; otherwise it has a thread of its own
        self.announce: Callable[[Port], None] = _nobody  # tells whoever runs this port that it holds something
        self.freed: Callable[[], None] = _no_one  # tells them that a pusher has left it unfinished
        self.listed = threading.Lock()  # set while the port is on the list of ready ports, or taken from it
        self.subscribers: list[Port] = []  # the next queues on the way of what comes out
        self._items: deque[Queued] = deque()
        self._producer = self._make_flag("producer")
        self._consumer = self._make_flag("consumer")
        self._room = threading.Condition(threading.Lock())
        self.waiting = 0  # producers that wait for room
        self.limit = _FIRST_LIMIT  # tuples a consumer takes at once
        self._pace = Pace(SLICE)
        self.pushed = 0
        self.popped = 0
        self.processed = 0
        self.last_run = 0.0
        self.busy_seconds = 0.0
        self.waited_seconds = 0.0  # sum over items taken: time spent in the queue, times tuples
        self.blocked_seconds = 0.0

    # ------------------------------------------------------------------------------------------------ the steps

    def _make_flag(self, name: str) -> threading.Lock:
        """A flag; tests make their own, which stop threads before and after each step."""
        return threading.Lock()

    def try_consume(self) -> bool:
        """Take the consumer flag, if it is free."""
        return self._consumer.acquire(False)

    def release_consumer(self) -> None:
        """Give the consumer flag back; whoever waits for room may now make some."""
        self._consumer.release()
        if self.waiting:
            self.call_producers()

    # --------------------------------------------------------------------------------------------------- pushing

    def push(self, item: Item, born: float = 0.0) -> bool:
        """Put `item` at the end; false if there is no room, or another producer is at it."""
        if not self._producer.acquire(False):
            return False
        try:
            size, length = len(item) if isinstance(item, list) else 1, self.pushed - self.popped
            if length and length + size > self.capacity:
                return False
            self._items.append((item, time.perf_counter(), born))
            self.pushed += size
        finally:
            self._producer.release()
        self.announce(self)
        return True

    def wait_for_room(self) -> None:
        """Wait until a consumer has taken something or given up, or for a moment."""
        with self._room:
            self.waiting += 1
            try:
                if self.pushed - self.popped and self._consumer.locked():
                    self._room.wait(LOOK_AGAIN)  # freed by pop() or release_consumer() of the thread that has the flag
                    return
            finally:
                self.waiting -= 1
        time.sleep(0)  # another producer was at it

    def call_producers(self) -> None:
        """Let those who wait for room look again."""
        with self._room:
            self._room.notify_all()

    # --------------------------------------------------------------------------------------------------- popping

    def pop(self) -> Queued | None:
        """The next item, cut or joined to about `limit` tuples; None if there is none. For the consumer only."""
        items = self._items
        if not items:
            return None
        item, since, born = queued = items.popleft()
        if not isinstance(item, list):
            size = 1
        else:
            size = len(item)
            # Chunks with origins stay whole: their marks follow them.
            if size != self.limit and item.__class__ is list and (size > self.limit or items):
                if size > self.limit:
                    items.appendleft((item[self.limit :], since, born))
                    item = item[: self.limit]
                else:
                    item = self._join(item)
                size, queued = len(item), (item, since, born)
        self.popped += size
        self.waited_seconds += size * (time.perf_counter() - since)
        if self.waiting:
            self.call_producers()
        return queued

    def _join(self, chunk: list[Any]) -> list[Any]:
        """`chunk` and what follows it, up to `limit` tuples."""
        joined, items = chunk, self._items
        while items:
            following = items[0][0]
            if following.__class__ is not list or len(joined) + len(following) > self.limit:
                break
            items.popleft()
            joined = joined + following  # a chunk may be shared: never change it
        return joined

    def note_run(self, tuples: int, seconds: float, now: float) -> None:
        """A consumer processed so many tuples in so much time: adapt how many are taken at once."""
        self.processed += tuples
        self.busy_seconds += seconds
        self.last_run = now
        limit = self.limit
        if tuples > 1 or (tuples and (limit > 1 or 2 * seconds < SLICE)):  # else one at a time is enough
            most = self._pace.most(tuples, seconds)
            if most != limit:
                self.limit = min(most, 2 * limit if tuples >= limit else limit)

    # --------------------------------------------------------------------------------------------------- looking

    @property
    def length(self) -> int:
        """Tuples (and marks) that wait here now."""
        return max(0, self.pushed - self.popped)

    @property
    def space(self) -> int:
        """Tuples that would still fit."""
        return max(0, self.capacity - self.length)

    @property
    def oldest(self) -> float | None:
        """When the first item was put here, by `time.perf_counter`; None while empty."""
        try:
            return self._items[0][1]
        except IndexError:
            return None

    @property
    def idle(self) -> bool:
        """Nothing waits here and nobody is at work on it."""
        return not self._items and not self._consumer.locked()

    def take_all(self) -> list[Queued]:
        """Everything that waits here; only while no thread runs (`runtime.placement`)."""
        rest = list(self._items)
        self._items.clear()
        self.popped = self.pushed
        return rest

    def peek_final(self) -> bool:
        """True if a final punctuation waits here; only while no thread runs."""
        return any(item is Punctuation.FINAL for item, _, _ in self._items)

    def __repr__(self) -> str:
        return f"<port {self.name} {self.length}/{self.capacity}>"


def _nobody(port: Port) -> None:
    """Announces to no one: the port of a PE that has not started."""


def _no_one() -> None:
    """Calls no one: a thread of its own is called by the next push."""
