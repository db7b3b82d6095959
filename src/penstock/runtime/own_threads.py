"""Threads that operators start themselves, and how what they submit gets downstream (scheduler paper §2.3, §4.1.4).

An operator says `own_threads = True` and asks for threads in `open`. Each runs a function of the user's, which submits
tuples whenever it likes. What it submits it carries itself, like a source: through the segments behind the operator, up
to the next queues. Where a queue is full it works the queue off, so it works for the scheduler for a while.

* Order: what follows the operator has a lock (`runtime.locks`). A thread takes it for one submission, and keeps it
  until all that came of it has left its hands, so nothing overtakes. What different threads submit interleaves freely.
  Where an output has several readers, the lock is the operator's, so that all of them see one order.
* The end: the threads of an operator count as one more input of it. Its outputs end when its inputs have ended and all
  of its threads have returned.
* A run that is being stopped: `submit` raises `GivenUp`, which ends the function. One that does not submit can look at
  `stopping`. One that does neither is given up like any other thread that does not come back.
* A change of ports waits until no thread is inside a submission, like it waits for turns; the segment is looked up
  anew each time.
* No deadlock: a thread that waits to submit holds no lock and no flag of the runtime's, and what it waits for is in the
  hands of a thread further down. So `process` may wait for a thread, as for room in a queue that the thread empties,
  unless an output has several readers. Locks that the user's code has are its own affair: it must not submit while it
  holds one that `process` waits for.
"""

from __future__ import annotations

import threading
import time
from collections.abc import Callable
from typing import TYPE_CHECKING, Any

from penstock.errors import PenstockError
from penstock.graph.graph import Node, Output
from penstock.graph.operator import ThreadContext
from penstock.runtime.ending import GivenUp
from penstock.runtime.failure import operator_error
from penstock.runtime.segment import Entry, Segment
from penstock.tuples import Punctuation

if TYPE_CHECKING:
    from penstock.runtime.pe import PE


class OwnThread(ThreadContext):
    """One thread of one operator."""

    def __init__(self, pe: PE, node: Node, function: Callable[[ThreadContext], None], peers: Peers) -> None:
        self._pe = pe
        self._node = node
        self._function = function
        self._peers = peers
        self._turn = pe.make_turn()
        self.inside = False  # a submission is under way
        self.thread = threading.Thread(target=self._main, name=f"{pe.graph.name}: thread of {node.name}", daemon=True)

    # ------------------------------------------------------------------------------------ called by the user's code

    def submit(self, item: Any, port: int = 0) -> None:
        self._send(port, [item])

    def submit_all(self, items: list[Any], port: int = 0) -> None:
        if items:
            self._send(port, list(items))

    def punctuate(self, port: int = 0) -> None:
        self._send(port, Punctuation.WINDOW)

    @property
    def stopping(self) -> bool:
        return self._pe.stopping

    # --------------------------------------------------------------------------------------------------- carrying

    def _send(self, port: int, item: list[Any] | Punctuation) -> None:
        outputs = self._node.operation.outputs
        if not 0 <= port < outputs:
            raise IndexError(f"output port {port} does not exist; the operator has {outputs}")
        self._carry(lambda segment: self._put(segment, port, item))

    def _put(self, segment: Segment, port: int, item: list[Any] | Punctuation) -> None:
        """Send `item` to the readers of an output of the operator."""
        lock = segment.lock
        assert lock is not None, "segments whose operators have threads of their own are always locked"
        apart = segment.submits_apart
        if not apart:
            self._turn.acquire(lock)
        try:
            if segment.failed:
                raise GivenUp
            outlet = segment.outlets.get(Output(self._node.index, port))
            for target in outlet.targets if outlet is not None else ():
                self._turn.push(target, item)
            self._turn.run_pending()
        finally:
            if not apart:
                lock.release()

    def _carry(self, put: Callable[[Segment], None]) -> None:
        """Let `put` bring something on its way, and see all of it out."""
        pe, turn = self._pe, self._turn
        pe.enter(turn)
        try:
            if pe.stopping:
                raise GivenUp
            self.inside = True
            turn.born(time.perf_counter())
            put(pe.wiring.segment_of(self._node.index))
            turn.deliver_feedback()
            while (error := turn.take_error()) is not None:
                pe.fail(error)
                turn.deliver_feedback()
        finally:
            self.inside = False
            pe.leave(turn)
        pe.after_items()

    def _main(self) -> None:
        try:
            self._function(self)
            if self._peers.last_has_ended():
                self._carry(self._finish)
        except GivenUp:
            pass  # the run is being stopped
        except BaseException as error:
            self._pe.wiring.segment_of(self._node.index).failed = True
            self._pe.fail(self._wrapped(error))
        finally:
            self._pe.forget_turn(self._turn)

    def _wrapped(self, error: BaseException) -> BaseException:
        if isinstance(error, PenstockError) or not isinstance(error, Exception):
            return error
        wrapped = operator_error(error, self._node, doing="in a thread of its own")
        wrapped.__cause__ = error
        return wrapped

    def _finish(self, segment: Segment) -> None:
        """The last thread has returned: that input of the operator has ended."""
        self._turn.push(Entry(segment, segment.own_input), Punctuation.FINAL)
        self._turn.run_pending()  # which takes the lock


class Peers:
    """Counts the threads of one operator that have not returned."""

    def __init__(self, count: int) -> None:
        self._left = count
        self._lock = threading.Lock()

    def last_has_ended(self) -> bool:
        """One thread has returned; true if it was the last."""
        with self._lock:
            self._left -= 1
            return self._left == 0


def _none(out: ThreadContext) -> None:
    """What runs where an operator said it would have threads and asked for none."""


def make_threads(pe: PE) -> list[OwnThread]:
    """The threads that the operators of `pe` have asked for."""
    threads = []
    for index, logic in pe.logics.items():
        if logic.own_threads:
            functions = logic.thread_functions() or [_none]
            peers = Peers(len(functions))
            threads += [OwnThread(pe, pe.graph.nodes[index], function, peers) for function in functions]
    return threads
