"""A processing element: the segments of a program, the threads that run them, and how they start and end.

Each source has a thread, which reads a chunk and carries it downstream (one `Turn`) before it reads the next: through
everything under the manual threading model, up to the next threaded ports otherwise. Threads of the scheduler, or
threads dedicated to a port, carry on from there. Every queue is bounded, and whoever finds one full works on it before
going on, so memory is bounded and a slow operator slows its sources by itself. A timer thread exists only where an
operator follows the clock, a relief thread only where a source reads an iterator.

How a run ends: every source sends a final punctuation when it is read to its end, and the run is over when all segments
have had theirs. An error ends it earlier: sources read no more, the operator that failed gets no more, and what the
others had been sent before is still delivered. A cancel ends it at once: each thread stops at its next chunk, and what
waits in queues is thrown away. A thread that is inside a function of the user's and does not come back is given up
after `PATIENCE`: it gets a `GivenUp` raised inside it, which ends Python code at once and a blocking call when it
returns, so it delivers nothing any more. It is a daemon in any case. In every case each operator is closed once, by the
thread that notices that all have ended.
"""

from __future__ import annotations

import threading
import time
from collections.abc import Collection, Iterable, Mapping
from dataclasses import dataclass

from penstock.clock import Clock, SystemClock
from penstock.compiler.fission import Replicated, replicate
from penstock.compiler.segments import Segments
from penstock.connectors.base import as_source
from penstock.errors import Cancelled, PenstockError
from penstock.graph.graph import Graph, Node, Target
from penstock.graph.operations import Deal, Gather, Read
from penstock.operators.base import Logic
from penstock.operators.registry import logic_of
from penstock.optimizer.profile import Profile
from penstock.runtime.ending import Ending, GivenUp, core_count
from penstock.runtime.failure import operator_error
from penstock.runtime.locks import Meeting
from penstock.runtime.metrics import LatencyRecorder
from penstock.runtime.own_threads import OwnThread, make_threads
from penstock.runtime.pacing import Pacer
from penstock.runtime.placement import change_ports
from penstock.runtime.policies import Policy, as_policy
from penstock.runtime.port import CAPACITY, Port
from penstock.runtime.profiler import Counts, Tally, make_profile
from penstock.runtime.relief import Relief
from penstock.runtime.scheduler import QUANTUM, Scheduler
from penstock.runtime.segment import Segment
from penstock.runtime.source_loop import SourceLoop
from penstock.runtime.threading_models import DEDICATED, DYNAMIC, fewest_threads, place_ports
from penstock.runtime.timer import Timer
from penstock.runtime.turn import Turn
from penstock.runtime.wiring import Wiring
from penstock.runtime.worker import DedicatedThread

_LOOK_AGAIN = 0.010


@dataclass(frozen=True)
class Threading:
    """How a PE is threaded: the model, and what the dynamic one needs."""

    model: str = "manual"
    threads: int | None = None  # of the scheduler
    policy: str | Policy | type[Policy] | None = None
    quantum: float = QUANTUM
    capacity: int = CAPACITY  # of every queue, in tuples


class PE:
    """Runs one graph."""

    def __init__(
        self,
        graph: Graph,
        *,
        clock: Clock | None = None,
        profile: bool = True,
        threading_: Threading | None = None,
        latency: bool = False,
        port_class: type[Port] = Port,
        widths: Mapping[int, int] | None = None,
        replicated: Replicated | None = None,
    ) -> None:
        self.program = graph  # as the user wrote it
        self.replicated = replicated if replicated is not None else replicate(graph, widths)
        graph = self.replicated.graph
        self.graph = graph
        self.clock: Clock = clock if clock is not None else SystemClock()
        self.profiled = profile
        self.threading = threading_ if threading_ is not None else Threading()
        self.latency = LatencyRecorder(graph) if latency else None
        self._port_class = port_class
        self._stop = threading.Event()
        self._changed = threading.Condition()
        self.error: BaseException | None = None
        self._cancelled = False
        self.abandoned = False  # what waits in queues is thrown away
        self._closed = False
        self._ended: float | None = None
        self._started: float | None = None
        self._ending = Ending(self)
        self._sources_done = False
        self.pausing = False
        self._resumed = threading.Event()
        self._resumed.set()
        self._turns: list[Turn] = []
        self._turns_lock = threading.Lock()
        self.logics: dict[int, Logic] = {node.index: self._make_logic(node) for node in graph.nodes}
        placed = place_ports(graph, self.threading.model)
        self.scheduler = Scheduler(
            self, as_policy(self.threading.policy), self.threading.quantum, fewest_threads(graph, placed)
        )
        self.dedicated: dict[Target, DedicatedThread] = {}
        ports = {target: self.make_port(target, model) for target, model in placed.items()}
        self.wiring = Wiring(graph, self.logics, ports, profile, tracked=self.replicated.tracked)
        self.wiring.connect()
        self._tally = Tally()
        self._leaving: list[DedicatedThread] = []  # told to end
        self._changing = threading.Lock()
        self._finishing = False
        self.pacer = Pacer(self.segments, self.logics, self._stop)
        self.sources = [
            SourceLoop(self, segment, as_source(segment.root.operation.source))
            for segment in self.segments
            if isinstance(segment.root.operation, Read)
        ]
        timed = self._timed()
        self.timer = Timer(self, timed) if timed else None
        pulled = [source for source in self.sources if source.pulled is not None]
        self.own_threads: list[OwnThread] = []
        self.relief = Relief(self, pulled) if pulled else None

    @property
    def segments(self) -> list[Segment]:
        return self.wiring.segments

    @property
    def plan(self) -> Segments:
        return self.wiring.plan

    @property
    def meetings(self) -> list[Meeting]:
        return self.wiring.meetings

    @property
    def ports(self) -> Mapping[Target, Port]:
        return self.wiring.ports

    def _make_logic(self, node: Node) -> Logic:
        try:
            return logic_of(node, self.clock)
        except PenstockError:
            raise
        except Exception as error:
            raise operator_error(error, node, doing="to start") from error

    def _timed(self) -> list[Segment]:
        return [segment for segment in self.segments if any(logic.timed for logic in segment.logics.values())]

    # ----------------------------------------------------------------------------------------- ports and turns

    def make_port(self, target: Target, model: str) -> Port:
        """A queue in front of an input port, and the thread that runs it if it is to have one of its own."""
        node = self.graph.nodes[target.node]
        name = node.name if len(node.inputs) == 1 else f"{node.name}[{target.port}]"
        port = self._port_class(target, name, self.threading.capacity)
        if model == DEDICATED:
            self.dedicated[target] = DedicatedThread(self, port)
        else:
            port.announce, port.freed = self.scheduler.announce, self.scheduler.call_one
        return port

    def make_turn(self) -> Turn:
        """A turn for a thread that is about to start."""
        turn = Turn(lambda: self.abandoned)
        if self.latency is not None:
            turn.on_chunk = self.latency.note
        with self._turns_lock:
            self._turns.append(turn)
        return turn

    def forget_turn(self, turn: Turn) -> None:
        """The thread of `turn` has ended."""
        with self._turns_lock:
            if turn in self._turns:
                self._turns.remove(turn)

    def turns(self) -> list[Turn]:
        """The turns of all threads."""
        with self._turns_lock:
            return list(self._turns)

    def enter(self, turn: Turn) -> None:
        """Called by a thread before it touches a segment: returns when it may."""
        while self.pausing:
            self._resumed.wait(_LOOK_AGAIN)
        turn.guard.acquire()  # held by whoever changes the wiring, for a few milliseconds

    def leave(self, turn: Turn) -> None:
        """Called by a thread that has left all segments."""
        turn.guard.release()

    def after_items(self) -> None:
        """Called by a thread that has run items of a port."""
        if self.timer is not None:
            self.timer.wake()
        if self._sources_done:
            self._ending.progress.set()

    def set_pausing(self, pausing: bool) -> None:
        """Ask all threads to stand still at their next item, or let them go on."""
        if pausing:
            self._resumed.clear()
            self.pausing = True
        else:
            self.pausing = False
            self._resumed.set()

    def change_ports(self, add: Mapping[Target, str], remove: Collection[Target] = ()) -> bool:
        """Place queues before input ports ("dynamic" or "dedicated") and remove others, while the program runs.

        Order and state stay as they are. False if it was not possible now: a thread is stuck inside an operator, or
        the run is about to end. What was to be removed may then be gone already.
        """
        with self._changing:
            if self._finishing or self._started is None or self.stopping:
                return False
            return change_ports(self, add, remove)

    @property
    def is_changing(self) -> bool:
        """Ports are being placed or removed, or what waited in removed ones is being run."""
        return self._changing.locked()

    def adopt_ports(self, started: Mapping[Target, Port], dropped: Mapping[Target, Port]) -> None:
        """Start the threads that new ports need, and end those of ports that are gone."""
        for target in dropped:
            dropped[target].scheduled = False
            helper = self.dedicated.pop(target, None)
            if helper is not None:
                helper.stopped = True
                helper.wake()
                self.forget_turn(helper.turn)
                self._leaving = [other for other in self._leaving if other.thread.is_alive()]
                if helper.thread.ident is not None:
                    self._leaving.append(helper)
        for target, port in started.items():
            helper = self.dedicated.get(target)
            if helper is not None:
                helper.start()
            elif not self.scheduler.workers:
                self.scheduler.set_threads(self.first_threads())
            port.announce(port)
        models = {target: DEDICATED if target in self.dedicated else DYNAMIC for target in self.ports}
        self.scheduler.need(fewest_threads(self.graph, models))

    def rewire(self, wiring: Wiring) -> list[Segment]:
        """Put a prepared wiring in force; only while no thread is inside its turn. Returns the old segments."""
        retired = wiring.connect()
        self._tally.retire(retired)
        self.wiring = wiring
        by_root = {segment.plan.root: segment for segment in wiring.segments}
        for source in self.sources:
            source.move_to(by_root[source.segment.plan.root])
        self.pacer.connect(self.segments, self.logics)
        if self.timer is not None:
            self.timer.segments = self._timed()
        return retired

    def operator_counts(self) -> dict[int, Counts]:
        """The numbers of every operator of the user's program so far, all copies together."""
        totals: dict[int, Counts] = {}
        for node, numbers in self._tally.counts(self.segments).items():
            if not isinstance(self.graph.nodes[node].operation, Deal | Gather):
                like = self.replicated.origin[node]
                totals[like] = totals[like] + numbers if like in totals else numbers
        return totals

    def copies(self, index: int) -> list[Logic]:
        """The logic of every copy of an operator of the user's program."""
        return [self.logics[node] for node in self.replicated.copies[index]]

    # ------------------------------------------------------------------------------------------------- lifetime

    def start(self) -> None:
        """Open every operator, compile every segment, start the threads."""
        with self._changing:
            self._start()

    def _start(self) -> None:
        self._started = time.monotonic()
        try:
            self.scheduler.open()
            for index in self.graph.topological:
                self._open(self.graph.nodes[index])
            self.wiring.compile()
        except BaseException:
            self._finishing = True
            self._close_all(failed=True)
            self.scheduler.close()
            self._ended = time.monotonic()
            raise
        for helper in (self.timer, self.relief, *self.dedicated.values()):
            if helper is not None:
                helper.start()
        if any(port.scheduled for port in self.ports.values()):
            self.scheduler.set_threads(self.first_threads())
        self.own_threads = make_threads(self)
        for own in self.own_threads:
            own.thread.start()
        for source in self.sources:
            source.start()
        threading.Thread(target=self._supervise, name=f"{self.graph.name}: supervisor", daemon=True).start()

    def first_threads(self) -> int:
        """How many scheduler threads the run starts with."""
        wanted = self.threading.threads
        return max(self.scheduler.fewest, wanted if wanted is not None else core_count())

    def _open(self, node: Node) -> None:
        try:
            self.logics[node.index].open()
        except PenstockError:
            raise
        except Exception as error:
            raise operator_error(error, node, doing="to start") from error

    def _supervise(self) -> None:
        """Wait for the sources, then for all that waits in queues; close everything; tell whoever waits for the job."""
        for source in self.sources:
            self._ending.join(source.thread)
        self._sources_done = True
        if self.ports or self.own_threads or self.error is not None:
            self._ending.wait_for_ports()
        self._finishing = True  # no change of ports begins any more
        if self._ending.acquire(self._changing):
            self._changing.release()
        self._stop.set()
        self.abandoned = True
        self._stop_workers()
        if self.timer is not None:
            self.timer.stop()
        for thread in self.threads():
            self._ending.join(thread)
        self._close_all(failed=self.error is not None or self._cancelled)
        self.scheduler.close()
        with self._changed:
            self._ended = time.monotonic()
            self._changed.notify_all()

    def _stop_workers(self) -> None:
        self.scheduler.stop()
        for helper in list(self.dedicated.values()):
            helper.stopped = True
            helper.wake()

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
        if self.error is None:
            self.error = error
        self._interrupt()

    def cancel(self) -> None:
        """Stop the run: sources read no more, nothing more is delivered, everything is closed."""
        if self._ended is None:
            self._cancelled = True
            self.abandoned = True
            self._stop_workers()
            self._interrupt()

    def _interrupt(self) -> None:
        self._stop.set()
        self._ending.progress.set()
        for logic in self.logics.values():
            logic.interrupt()
        self.pacer.wake()
        if self.timer is not None:
            self.timer.wake()
        if self.abandoned:
            for port in self.ports.values():
                port.call_producers()

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
        if self.error is not None:
            raise self.error
        if self._cancelled:
            raise Cancelled(f"flow '{self.graph.name}' was cancelled")
        return True

    # -------------------------------------------------------------------------------------------------- looking

    @property
    def state(self) -> str:
        """ "running", "completed", "cancelled" or "failed"."""
        if self._ended is None:
            return "running"
        return "failed" if self.error is not None else "cancelled" if self._cancelled else "completed"

    @property
    def elapsed(self) -> float:
        """Seconds since the start, up to the end."""
        if self._started is None:
            return 0.0
        return (self._ended if self._ended is not None else time.monotonic()) - self._started

    def profile(self) -> Profile:
        """What operators have cost so far."""
        return make_profile(self.program, self.operator_counts())

    def threads(self) -> Iterable[threading.Thread]:
        """The threads of this PE."""
        yield from (source.thread for source in self.sources)
        yield from (own.thread for own in self.own_threads)
        yield from (
            helper.thread for helper in (*self.dedicated.values(), *self._leaving, *self.scheduler.all_workers())
        )
        for helper in (self.timer, self.relief):
            if helper is not None:
                yield helper.thread
