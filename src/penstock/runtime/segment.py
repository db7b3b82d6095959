"""A segment at run time: its generated functions, its operators' logic, and the outlets its tuples leave by.

A segment handles one item at a time, a chunk or a punctuation, for one thread at a time (see `runtime.turn` for who
makes sure of that). What it sends collects in its outlets and is handed over when the item is done, or earlier when an
outlet overflows or a mark must keep its place between tuples.
"""

from __future__ import annotations

import threading
import time
from collections import deque
from collections.abc import Callable, Iterable
from itertools import compress
from typing import TYPE_CHECKING, Any, NamedTuple

from penstock.compiler.codegen import OVERFLOW, OutletNames, Probes, Program, write_program
from penstock.compiler.segments import SegmentPlan
from penstock.errors import OperatorError, PenstockError
from penstock.graph.graph import Graph, Output
from penstock.graph.operations import Feedback
from penstock.operators.base import Logic
from penstock.runtime.failure import operator_error, segment_error
from penstock.runtime.profiler import Sampler
from penstock.tuples import BrokenOff, Numbered, Punctuation

if TYPE_CHECKING:
    from penstock.runtime.port import Port
    from penstock.runtime.turn import Turn


class Entry(NamedTuple):
    """An input port of a segment's root, and the queue in front of it, if it has one."""

    segment: Segment
    port: int
    queue: Port | None = None


class TrackedChunk(list[Any]):
    """A chunk whose tuples have origins: numbers that give their order in the stream, across parallel channels."""

    __slots__ = ("origins",)

    def __init__(self, items: list[Any], origins: list[int]) -> None:
        super().__init__(items)
        self.origins = origins


class Outlet:
    """An output port read by other segments: tuples collect here until they are handed over."""

    __slots__ = ("forwards_marks", "items", "origins", "output", "segment", "targets")

    def __init__(self, segment: Segment, output: Output, forwards_marks: bool, tracked: bool) -> None:
        self.segment = segment
        self.output = output
        self.items: list[Any] = []
        self.origins: list[int] | None = [] if tracked else None
        self.targets: list[Entry] = []
        self.forwards_marks = forwards_marks

    def hand_over(self) -> None:
        """Put what has collected into the turn of the thread that runs the segment."""
        if self.items:
            chunk = self.items[:]
            self.items.clear()
            if self.origins is not None:
                chunk = TrackedChunk(chunk, self.origins[:])
                self.origins.clear()
            push = self.segment.turn.push
            for target in self.targets:
                push(target, chunk)

    def mark(self) -> None:
        """A window punctuation, after everything sent so far."""
        self.hand_over()
        for target in self.targets:
            self.segment.turn.push(target, Punctuation.WINDOW)

    def flush(self) -> None:
        """Deliver what has collected at once, before the current item is done."""
        self.hand_over()
        self.segment.turn.drain_nested()


class Segment:
    """One compiled segment of one run."""

    def __init__(
        self,
        graph: Graph,
        plan: SegmentPlan,
        logics: dict[int, Logic],
        sampler: Sampler | None,
        tracked: bool = False,
    ) -> None:
        self.tracked = tracked
        self.in_channel = False  # of a region split by key, whose merger waits for the end of each piece
        self.origin = 0  # of what operators say between tuples, where tracked
        self.graph = graph
        self.plan = plan
        self.index: float = plan.index  # the place in the topological order
        self.logics = {node: logics[node] for node in plan.nodes}
        self.root = graph.nodes[plan.root]
        self.sampler = sampler
        self.turn: Turn = None  # type: ignore[assignment]  # set whenever a thread starts on an item
        self.lock: threading.Lock | None = None  # only where threads can meet: runtime.locks
        self.protection: threading.Lock | None = None  # the same, or that of the segment all of them come through
        self.mailbox: deque[list[Any] | Punctuation | Numbered] = deque()  # what came back through a feedback loop
        # Left by queues that were removed: what goes through this segment before anything else, by port, and the old
        # segments that must be done with theirs before this one, which has taken their place, runs (runtime.placement).
        self.leftover: deque[tuple[int, list[Any] | Punctuation | Numbered]] = deque()
        self.old: deque[Segment] = deque()
        self.failed = False
        several_inputs = len(self.root.inputs) > 1
        self.outlets = {
            output: Outlet(self, output, logics[output.node].forwards_marks and not several_inputs, tracked)
            for output in plan.outlets
        }
        # An operator may have thousands of outputs of which a chunk uses a few: those are picked without a call each.
        self._all_outlets = tuple(self.outlets.values())
        self._all_items = tuple(outlet.items for outlet in self._all_outlets)
        self._programs: dict[str, Program] = {}
        self._functions: dict[int, Callable[..., None]] = {}
        self._profiled: dict[int, Callable[..., None]] = {}
        self._waiting_finals: dict[int, int] = {}
        self._open_ports: set[int] = set()
        self.probes = Probes([0.0] * len(plan.nodes), [0] * len(plan.nodes), [0] * len(plan.nodes), time.perf_counter)
        self.received = 0  # tuples that entered, exactly
        self._takes_chunks = logics[plan.root].whole_chunk  # then what a tuple costs depends on how many come at once
        self.has_threads = logics[plan.root].own_threads  # which are one more input (runtime.own_threads)
        self.own_input = len(self.root.inputs)
        self.submits_apart = False  # those threads need no lock of this segment to submit
        self.is_feedback = isinstance(self.root.operation, Feedback)

    # ------------------------------------------------------------------------------------------------ compiling

    def compile(self) -> None:
        """Generate and compile the plain functions of every input port."""
        for port in range(max(1, len(self.root.inputs))):
            self._functions[port] = self._compile(port, None)
        control = self.root.operation.control
        self._open_ports = {
            port
            for port, entry in enumerate(self.root.inputs)
            if not (port in control and all(self._comes_back(stream) for stream in entry.streams))
        }
        if not self.root.inputs:
            self._open_ports = {0}
            self._waiting_finals = {0: 1}
        else:
            self._waiting_finals = {port: len(entry.streams) for port, entry in enumerate(self.root.inputs)}
        if self.has_threads:
            self._open_ports.add(self.own_input)
            self._waiting_finals[self.own_input] = 1

    def continue_from(self, earlier: Segment) -> None:
        """Take over the state of the segment that ran this one's root before."""
        if earlier.plan.root == self.plan.root:
            self._waiting_finals, self._open_ports = earlier._waiting_finals, earlier._open_ports
            self.mailbox = earlier.mailbox
            self.sampler = earlier.sampler
        elif earlier.ended:
            self._waiting_finals, self._open_ports = dict.fromkeys(self._waiting_finals, 0), set()
        self.failed = earlier.failed

    def _comes_back(self, stream: Output) -> bool:
        return isinstance(self.graph.nodes[stream.node].operation, Feedback)

    def _compile(self, port: int, probes: Probes | None) -> Callable[..., None]:
        program = self.program(port, probes)
        self._programs[program.filename] = program
        return program.function()

    def program(self, port: int = 0, probes: Probes | None = None) -> Program:
        """The text of the function for input `port`."""
        names = {
            output: OutletNames(outlet.items, outlet.flush, outlet.mark, outlet.origins)
            for output, outlet in self.outlets.items()
        }
        return write_program(self.graph, self.plan, self.logics, names, port, probes, self.flush_all, self.tracked)

    # -------------------------------------------------------------------------------------------------- running

    def _filled(self) -> Iterable[Outlet]:
        """The outlets in which something has collected."""
        return compress(self._all_outlets, self._all_items)

    def run(self, item: list[Any] | Punctuation | Numbered, port: int, turn: Turn) -> None:
        """Handle one item of input `port` and hand over what comes of it, also when it fails half way."""
        self.turn = turn
        try:
            if isinstance(item, list):
                self._run_chunk(item, port)
            elif item is Punctuation.WINDOW:
                self._run_mark(port)
            elif isinstance(item, Numbered):
                self._run_numbered(item, port)
            else:
                self._run_final(port)
        except Exception as error:
            if self.in_channel and item is not Punctuation.FINAL:
                self._break_off(item, error)
            raise
        finally:
            for outlet in self._filled():
                outlet.hand_over()

    def _break_off(self, item: list[Any] | Punctuation | Numbered, error: Exception) -> None:
        """Tell the merger how far this channel came with the piece that `item` is of, behind all that it sent."""
        place = error.origin if isinstance(error, OperatorError) else None
        if place is None:
            place = item.origins[0] if isinstance(item, TrackedChunk) and item else -1
        self._run_numbered(BrokenOff(place), 0)

    def _run_chunk(self, chunk: list[Any], port: int) -> None:
        self.received += len(chunk)
        measured = self.sampler.wants(len(chunk)) if self.sampler is not None else 0
        function = self._profile_function(port) if measured else self._functions[port]
        try:
            if isinstance(chunk, TrackedChunk):
                function(chunk, chunk.origins)
            elif 0 < measured < len(chunk) and not self._takes_chunks:
                function(chunk[:measured])
                self._functions[port](chunk[measured:])
            else:
                function(chunk)
        except PenstockError:
            raise
        except Exception as error:
            raise segment_error(error, self._programs, self.graph) from error

    def _profile_function(self, port: int) -> Callable[..., None]:
        function = self._profiled.get(port)
        if function is None:
            function = self._profiled[port] = self._compile(port, self.probes)
        return function

    def _emit(self, node: int) -> Callable[[int, list[Any]], None]:
        def emit(port: int, tuples: list[Any]) -> None:
            outlet = self.outlets.get(Output(node, port))
            if outlet is None:
                return
            if any(item is Punctuation.WINDOW for item in tuples):
                for item in tuples:
                    if item is Punctuation.WINDOW:
                        outlet.mark()
                        continue
                    outlet.items.append(item)
                    if outlet.origins is not None:
                        outlet.origins.append(self.origin)
            else:
                outlet.items.extend(tuples)
                if outlet.origins is not None:
                    outlet.origins.extend([self.origin] * len(tuples))
                if len(outlet.items) >= OVERFLOW:  # a million keys may speak at the end of a stream
                    outlet.flush()

        return emit

    def _run_mark(self, port: int) -> None:
        for node, logic in self.logics.items():
            self._ask(node, "on a punctuation", logic.on_mark, port, self._emit(node))
        for outlet in self.outlets.values():
            if outlet.forwards_marks:
                outlet.mark()

    def _run_numbered(self, mark: Numbered, port: int) -> None:
        """All of a piece has passed: its mark follows it on every way it may have taken."""
        for outlet in self.outlets.values():
            outlet.hand_over()
            for target in outlet.targets:
                self.turn.push(target, mark)

    def _run_final(self, port: int) -> None:
        self._waiting_finals[port] -= 1
        if self._waiting_finals[port] > 0 or port not in self._open_ports:
            return
        root = self.plan.root
        at_end = "at the end of the stream"
        self._ask(root, at_end, self.logics[root].on_port_final, port, self._emit(root))
        if self._open_ports == {port}:
            for node, logic in self.logics.items():
                if node != root:
                    self._ask(node, at_end, logic.on_port_final, 0, self._emit(node))
                self._ask(node, at_end, logic.on_final, self._emit(node))
            for outlet in self.outlets.values():
                outlet.hand_over()
                for target in outlet.targets:
                    self.turn.push(target, Punctuation.FINAL)
        self._open_ports.discard(port)  # last: the run may be over once all segments have ended

    def finish_port(self, node: int, port: int, turn: Turn) -> None:
        """Tell one operator that nothing more comes at input `port`; for runs that know the end by other means."""
        self.turn = turn
        self._ask(node, "at the end of the stream", self.logics[node].on_port_final, port, self._emit(node))
        for outlet in self._filled():
            outlet.hand_over()

    def finish_operator(self, node: int, turn: Turn) -> None:
        """Tell one operator that nothing more comes at all."""
        self.turn = turn
        self._ask(node, "at the end of the stream", self.logics[node].on_final, self._emit(node))
        for outlet in self._filled():
            outlet.hand_over()

    @property
    def ended(self) -> bool:
        """All inputs have had their final punctuation, and the operators are done with it."""
        return not self._open_ports

    def tick(self, now: float, turn: Turn) -> None:
        """Let the operators whose time has come speak."""
        self.turn = turn
        try:
            for node, logic in self.logics.items():
                if logic.timed:
                    self._ask(node, "by time", logic.on_tick, now, self._emit(node))
        finally:
            for outlet in self._filled():
                outlet.hand_over()

    def flush_all(self) -> None:
        """Deliver everything sent so far at once, before an operator waits."""
        for outlet in self._filled():
            outlet.hand_over()
        self.turn.drain_nested()

    def _ask(self, node: int, doing: str, method: Callable[..., None], *arguments: Any) -> None:
        try:
            method(*arguments)
        except OperatorError:
            raise
        except Exception as error:
            raise operator_error(error, self.graph.nodes[node], doing=doing) from error
