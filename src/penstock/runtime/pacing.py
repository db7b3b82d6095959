"""Back-pressure where inputs wait for each other: a source that runs ahead of the others is made to wait.

A barrier (or a pair, a gate, a driver loop) holds tuples of one input until another has some. When the inputs come
from different sources, the faster one would fill memory. After each chunk a source looks at the operators it feeds:
while one holds more than `MOST_HELD` of its tuples and another source could bring what is missing, it waits. What is
missing may also come back through a feedback loop: a source waits while tuples are under way in queues of the loop.

Why this cannot deadlock: a source waits only while some other source is running and not waiting itself. The last one to
arrive always goes on. Then the buffer grows, as it must: no order of reading could have kept it small. And it waits for
a loop only while something moves there, which other threads see to.
"""

from __future__ import annotations

import threading
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING

from penstock.graph.operations import Feedback
from penstock.operators.base import Logic
from penstock.runtime.port import Port
from penstock.runtime.segment import Segment
from penstock.runtime.turn import Turn
from penstock.tuples import CHUNK

if TYPE_CHECKING:
    from penstock.runtime.source_loop import SourceLoop

MOST_HELD = 8 * CHUNK
# The state of other threads is looked at again this often even when nobody calls; a missed wake-up costs no more.
_LOOK_AGAIN = 0.02


@dataclass(eq=False, slots=True)
class Watched:
    """An input that one source feeds while others feed the operator's other inputs. Belongs to that source's thread."""

    segment: Segment
    logic: Logic
    port: int
    others: set[str]
    loop: list[Port]  # the queues from here on, where what comes out of them may come back to another input
    look_at: int = MOST_HELD  # `segment.received` at which the input can first be overfull

    def overfull(self, turn: Turn) -> bool:
        """True while more than `MOST_HELD` tuples are held.

        Counting them may mean asking every key, so it is done only when enough tuples have come since the last count.
        The count is made under the segment's lock: keys come and go while another thread runs the operator.
        """
        if self.segment.received <= self.look_at:
            return False
        lock = self.segment.lock
        assert lock is not None, "several sources meet here"
        turn.acquire(lock)  # freed by the thread that holds it, when its turn is drained; we hold nothing else
        try:
            held, received = self.logic.backlog(self.port), self.segment.received
        finally:
            lock.release()
        self.look_at = received + MOST_HELD - held
        return held > MOST_HELD

    def moves(self) -> bool:
        """Something is under way that may come back. Not exact: what a thread has in its hands is not seen."""
        return not all(port.idle for port in self.loop)


class Pacer:
    """Knows which sources feed which inputs of operators with several."""

    def __init__(self, segments: Sequence[Segment], logics: Mapping[int, Logic], stop: threading.Event) -> None:
        self._stop = stop
        self._condition = threading.Condition()
        self._waiting: set[str] = set()
        self._watched: dict[str, list[Watched]] = {}
        self.connect(segments, logics)

    def connect(self, segments: Sequence[Segment], logics: Mapping[int, Logic]) -> None:
        """Segments were cut anew. Who waits goes on waiting: operators with several inputs stay as they are."""
        feeds: dict[int, set[str]] = {s.plan.index: {s.root.name} if s.root.is_source else set() for s in segments}
        ports: dict[int, dict[int, set[str]]] = {}
        for segment in segments:
            for outlet in segment.outlets.values():
                for target in outlet.targets:
                    feeds[target.segment.plan.index] |= feeds[segment.plan.index]
                    into = ports.setdefault(target.segment.plan.index, {})
                    into.setdefault(target.port, set()).update(feeds[segment.plan.index])
        watched: dict[str, list[Watched]] = {}
        for index, into in ports.items():
            root = segments[index].root
            looped = {port for port in root.operation.control if _comes_back(segments[index], port)}
            for port, sources in into.items():
                others = set().union(*(feeding for other, feeding in into.items() if other != port)) - sources
                loop = _loop(segments[index]) if port not in root.operation.control and looped & into.keys() else []
                for source in sources if others or loop else ():
                    entry = Watched(segments[index], logics[root.index], port, others, loop)
                    watched.setdefault(source, []).append(entry)
        self._watched = watched

    def pace(self, source: SourceLoop) -> None:
        """Called by a source's thread after each chunk: returns when it may read on."""
        watched = self._watched.get(source.segment.root.name)
        if not watched:
            return
        if self._waiting:
            self.wake()
        for entry in watched:
            if entry.overfull(source.turn):
                self._wait(source, entry)

    def _wait(self, source: SourceLoop, entry: Watched) -> None:
        """Wait until `entry` has room, or nobody is left who could make some."""
        name = source.segment.root.name
        while not self._stop.is_set():
            with self._condition:
                self._waiting.add(name)
                busy = {loop.segment.root.name for loop in source.pe.sources if not loop.ended} - self._waiting
                if entry.others & busy or entry.moves():
                    self._condition.wait(_LOOK_AGAIN)  # freed by the next chunk of another source, or by its end
                else:
                    break
            if not entry.overfull(source.turn):
                break
        with self._condition:
            self._waiting.discard(name)

    def wake(self) -> None:
        """Let waiting sources look again."""
        with self._condition:
            self._condition.notify_all()


def _comes_back(segment: Segment, port: int) -> bool:
    graph = segment.graph
    return any(isinstance(graph.nodes[stream.node].operation, Feedback) for stream in segment.root.inputs[port].streams)


def _loop(segment: Segment) -> list[Port]:
    """The queues behind `segment`, and those behind them."""
    found: dict[int, Port] = {}
    pending, seen = [segment], {segment.index}
    while pending:
        for outlet in pending.pop().outlets.values():
            for target in outlet.targets:
                if target.queue is not None:
                    found[id(target.queue)] = target.queue
                if target.segment.index not in seen:
                    seen.add(target.segment.index)
                    pending.append(target.segment)
    return list(found.values())
