"""Which ready port a scheduler thread runs next (C-Stream §3.2.6, scheduler paper §4.1.5).

A policy keeps the ports that have something to do. The scheduler puts a port in when it becomes ready or when a thread
leaves it unfinished, and takes one out for a thread that looks for work; a port is in at most once. Several threads do
so at the same time, so `put` and `take` hold a lock for as long as choosing takes.

A policy of your own chooses one of the ready ports; everything it may look at is an attribute of `Port`: `length`,
`capacity`, `space`, `oldest`, `last_run`, `busy_seconds`, `processed`, `subscribers`, `name`.

>>> class ShortestQueue(Policy):
...     def choose(self, ready):
...         return min(ready, key=lambda port: port.length)
"""

from __future__ import annotations

import heapq
import itertools
import random
import threading
from collections.abc import Callable, Sequence

from penstock.errors import PlatformError
from penstock.runtime.port import Port

# Nothing is known yet of an operator that never ran: it may go first.
_UNKNOWN = float("inf")


class Policy:
    """Keeps ready ports; subclasses say which of them is next."""

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._ready: list[Port] = []
        self._owner: object = None

    def belong_to(self, owner: object) -> None:
        """From now on the ports of `owner` are put in. Those of two runs must not mix."""
        with self._lock:
            if self._owner is not None:
                raise PlatformError(f"this {type(self).__name__} serves a job that still runs; give each job its own")
            self._owner = owner

    def leave(self, owner: object) -> None:
        """The run of `owner` is over."""
        with self._lock:
            if self._owner is owner:
                self._owner = None
                self._forget()

    def _forget(self) -> None:
        self._ready.clear()

    def choose(self, ready: Sequence[Port]) -> Port:
        """The port to run next, one of `ready`, which is never empty."""
        raise NotImplementedError(f"{type(self).__name__} must define choose(self, ready)")

    def put(self, port: Port) -> None:
        """`port` has something to do."""
        with self._lock:
            self._ready.append(port)

    def take(self) -> Port | None:
        """A port to run, or None if nothing is ready."""
        with self._lock:
            if not self._ready:
                return None
            port = self.choose(self._ready)
            # The order of the others does not matter to any policy: the last one takes the free place.
            place = self._ready.index(port)
            self._ready[place] = self._ready[-1]
            self._ready.pop()
            return port

    @property
    def empty(self) -> bool:
        """Nothing is ready, as far as one can tell without the lock."""
        return not self._ready


class LeastRecentlyRun(Policy):
    """The port that was last run longest ago: what the free list of the scheduler paper amounts to."""

    def __init__(self) -> None:
        super().__init__()
        self._heap: list[tuple[float, int, Port]] = []
        self._numbers = itertools.count()

    def put(self, port: Port) -> None:
        with self._lock:
            heapq.heappush(self._heap, (port.last_run, next(self._numbers), port))

    def take(self) -> Port | None:
        with self._lock:
            return heapq.heappop(self._heap)[2] if self._heap else None

    def _forget(self) -> None:
        self._heap.clear()

    @property
    def empty(self) -> bool:
        return not self._heap


class Random(Policy):
    """Any ready port; a `seed` makes the choice repeatable."""

    def __init__(self, seed: int | None = None) -> None:
        super().__init__()
        self._random = random.Random(seed)

    def choose(self, ready: Sequence[Port]) -> Port:
        return ready[self._random.randrange(len(ready))]


class LongestQueue(Policy):
    """The port with most tuples waiting, ties at random. Sources go first by nature: they have threads of their own."""

    def __init__(self, seed: int | None = None) -> None:
        super().__init__()
        self._random = random.Random(seed)

    def choose(self, ready: Sequence[Port]) -> Port:
        longest = max(port.length for port in ready)
        return self._random.choice([port for port in ready if port.length >= longest] or ready)


class LeastLatency(Policy):
    """The port whose first tuple has waited longest."""

    def choose(self, ready: Sequence[Port]) -> Port:
        return min(ready, key=lambda port: port.oldest or 0.0)


class LongestRunningTime(Policy):
    """The port that can run longest before it has to stop: until its queue is empty, or one behind it is full."""

    def choose(self, ready: Sequence[Port]) -> Port:
        return max(ready, key=running_time)


def running_time(port: Port) -> float:
    """Seconds `port` can run: what waits over the rate it is read at, or the space behind over the rate of writing."""
    if not port.busy_seconds or not port.processed:
        return _UNKNOWN
    times = [port.length * port.busy_seconds / port.processed]
    times += [
        subscriber.space * port.busy_seconds / subscriber.pushed for subscriber in port.subscribers if subscriber.pushed
    ]
    return min(times)


POLICIES: dict[str, Callable[[], Policy]] = {
    "least_recently_run": LeastRecentlyRun,
    "random": Random,
    "longest_queue": LongestQueue,
    "least_latency": LeastLatency,
    "longest_running_time": LongestRunningTime,
}


def as_policy(spec: str | Policy | type[Policy] | None) -> Policy:
    """The policy that `policy=` asks for: a name, a policy, or a class of policies."""
    if spec is None:
        return LeastRecentlyRun()
    if isinstance(spec, Policy):
        return spec
    if isinstance(spec, type) and issubclass(spec, Policy):
        return spec()
    if isinstance(spec, str) and spec in POLICIES:
        return POLICIES[spec]()
    raise PlatformError(f"policy= must be one of {', '.join(POLICIES)}, or a pn.Policy of your own, not {spec!r}")
