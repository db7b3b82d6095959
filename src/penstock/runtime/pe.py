"""A processing element: the segments of a program, the threads that run them, and how they start and end.

Under the manual threading model each source has a thread, which reads a chunk and carries it through everything
downstream (one `Turn`) before it reads the next: nothing is buffered between sources and sinks, so memory is bounded
and a slow operator slows its sources by itself. A timer thread exists only where an operator follows the clock, a
relief thread only where a source reads an iterator.

How a run ends: every source sends a final punctuation when it is read to its end, and the run is over when all have.
An error or a cancel ends it earlier: each thread stops at its next chunk. A thread that is inside a function of the
user's and does not come back is given up after `PATIENCE`: it gets a `GivenUp` raised inside it, which ends Python code
at once and a blocking call when it returns, so it delivers nothing any more. It is a daemon in any case.
In every case each operator is closed once, by the thread that notices that all have ended.
"""

from __future__ import annotations

import ctypes
import threading
import time
from collections.abc import Iterable

from penstock.clock import Clock, SystemClock
from penstock.compiler.segments import Segments, Traits, cut
from penstock.connectors.base import as_source
from penstock.errors import Cancelled, PenstockError
from penstock.graph.graph import Graph, Node
from penstock.graph.operations import Read
from penstock.operators.base import Logic
from penstock.operators.registry import logic_of
from penstock.optimizer.profile import Profile
from penstock.runtime.failure import operator_error
from penstock.runtime.locks import Meeting, place_locks
from penstock.runtime.pacing import Pacer
from penstock.runtime.profiler import Sampler, make_profile
from penstock.runtime.relief import Relief
from penstock.runtime.segment import Entry, Segment
from penstock.runtime.source_loop import SourceLoop
from penstock.runtime.timer import Timer

# How long a cancelled job waits for a thread that is inside user code; Ctrl-C must end in under two seconds.
PATIENCE = 1.0


class GivenUp(BaseException):
    """Raised inside a thread that a stopped job no longer waits for."""


def traits_of(logic: Logic) -> Traits:
    """What the cut into segments needs to know of `logic`."""
    return Traits(logic.ends_segment, logic.whole_chunk, logic.nests)


class PE:
    """Runs one graph with one thread per source."""

    def __init__(self, graph: Graph, *, clock: Clock | None = None, profile: bool = True) -> None:
        self.graph = graph
        self.clock: Clock = clock if clock is not None else SystemClock()
        self.logics: dict[int, Logic] = {node.index: self._make_logic(node) for node in graph.nodes}
        self.plan: Segments = cut(graph, lambda node: traits_of(self.logics[node.index]))
        self.segments = [Segment(graph, plan, self.logics, Sampler() if profile else None) for plan in self.plan.plans]
        self._connect()
        self.meetings: list[Meeting] = place_locks(self.segments)
        self._stop = threading.Event()
        self._changed = threading.Condition()
        self._error: BaseException | None = None
        self._cancelled = False
        self._closed = False
        self._ended: float | None = None
        self._started: float | None = None
        self._patience: float | None = None  # until when threads of a stopped run are waited for
        self.pacer = Pacer(self.segments, self.logics, self._stop)
        self.sources = [
            SourceLoop(self, segment, as_source(segment.root.operation.source))
            for segment in self.segments
            if isinstance(segment.root.operation, Read)
        ]
        timed = [segment for segment in self.segments if any(logic.timed for logic in segment.logics.values())]
        self.timer = Timer(self, timed) if timed else None
        pulled = [source for source in self.sources if source.pulled is not None]
        self.relief = Relief(self, pulled) if pulled else None

    def _make_logic(self, node: Node) -> Logic:
        try:
            return logic_of(node, self.clock)
        except PenstockError:
            raise
        except Exception as error:
            raise operator_error(error, node, doing="to start") from error

    def _connect(self) -> None:
        for segment in self.segments:
            for output, outlet in segment.outlets.items():
                for reader in self.graph.readers(*output):
                    target = self.segments[self.plan.of_node[reader.node]]
                    if target is not segment:
                        outlet.targets.append(Entry(target, reader.port))

    # ------------------------------------------------------------------------------------------------- lifetime

    def start(self) -> None:
        """Open every operator, compile every segment, start the threads."""
        self._started = time.monotonic()
        try:
            for index in self.graph.topological:
                self._open(self.graph.nodes[index])
            for segment in self.segments:
                segment.compile()
        except BaseException:
            self._close_all(failed=True)
            self._ended = time.monotonic()
            raise
        for helper in (self.timer, self.relief):
            if helper is not None:
                helper.start()
        for source in self.sources:
            source.start()
        threading.Thread(target=self._supervise, name=f"{self.graph.name}: supervisor", daemon=True).start()

    def _open(self, node: Node) -> None:
        try:
            self.logics[node.index].open()
        except PenstockError:
            raise
        except Exception as error:
            raise operator_error(error, node, doing="to start") from error

    def _supervise(self) -> None:
        """Wait for the sources, then for the timer; close everything; tell whoever waits for the job."""
        for source in self.sources:
            self._join(source.thread)
        self._stop.set()
        if self.timer is not None:
            self.timer.stop()
            self._join(self.timer.thread)
        if self.relief is not None:
            self._join(self.relief.thread)
        self._close_all(failed=self._error is not None or self._cancelled)
        with self._changed:
            self._ended = time.monotonic()
            self._changed.notify_all()

    def _join(self, thread: threading.Thread) -> None:
        while thread.is_alive():
            if self._stop.is_set():
                if self._patience is None:  # one for all threads, however many are stuck
                    self._patience = time.monotonic() + PATIENCE
                if time.monotonic() >= self._patience:
                    _give_up(thread)
                    return
                thread.join(0.01)
            else:
                thread.join(0.05)

    def _close_all(self, failed: bool) -> None:
        if self._closed:
            return
        self._closed = True
        for source in self.sources:
            source.close()
        for index in self.graph.topological:
            node = self.graph.nodes[index]
            try:
                self.logics[index].close(failed)
            except Exception as error:
                self.fail(error if isinstance(error, PenstockError) else self._closing_error(error, node))

    def _closing_error(self, error: Exception, node: Node) -> PenstockError:
        wrapped = operator_error(error, node, doing="to close")
        wrapped.__cause__ = error
        return wrapped

    def fail(self, error: BaseException) -> None:
        """Stop the run because of `error`; the first one is the one reported."""
        if self._ended is not None or isinstance(error, GivenUp):
            return  # a thread that was given up has nothing to say any more
        if self._error is None:
            self._error = error
        self._interrupt()

    def cancel(self) -> None:
        """Stop the run: sources read no more, nothing more is delivered, everything is closed."""
        if self._ended is None:
            self._cancelled = True
            self._interrupt()

    def _interrupt(self) -> None:
        self._stop.set()
        for logic in self.logics.values():
            logic.interrupt()
        self.pacer.wake()
        if self.timer is not None:
            self.timer.wake()

    @property
    def stopping(self) -> bool:
        """True once sources must not read on."""
        return self._stop.is_set()

    def idle(self, seconds: float) -> None:
        """Let a source that has nothing to read wait, unless the run is being stopped."""
        self._stop.wait(seconds)

    def wait(self, timeout: float | None = None) -> bool:
        """Wait for the end of the run; false if `timeout` seconds passed first. Raises what stopped it."""
        with self._changed:
            if not self._changed.wait_for(lambda: self._ended is not None, timeout):
                return False
        if self._error is not None:
            raise self._error
        if self._cancelled:
            raise Cancelled(f"flow '{self.graph.name}' was cancelled")
        return True

    # -------------------------------------------------------------------------------------------------- looking

    @property
    def state(self) -> str:
        """ "running", "completed", "cancelled" or "failed"."""
        if self._ended is None:
            return "running"
        return "failed" if self._error is not None else "cancelled" if self._cancelled else "completed"

    @property
    def elapsed(self) -> float:
        """Seconds since the start, up to the end."""
        if self._started is None:
            return 0.0
        return (self._ended if self._ended is not None else time.monotonic()) - self._started

    def profile(self) -> Profile:
        """What operators have cost so far."""
        return make_profile(self.graph, self.segments)

    def threads(self) -> Iterable[threading.Thread]:
        """The threads of this PE, for leak checks."""
        yield from (source.thread for source in self.sources)
        for helper in (self.timer, self.relief):
            if helper is not None:
                yield helper.thread


def _give_up(thread: threading.Thread) -> None:
    """Have `GivenUp` raised in `thread` as soon as it runs Python code again."""
    if thread.ident is not None:
        ctypes.pythonapi.PyThreadState_SetAsyncExc(ctypes.c_ulong(thread.ident), ctypes.py_object(GivenUp))
