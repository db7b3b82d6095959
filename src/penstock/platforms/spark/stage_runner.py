"""Runs one level of a program in a Spark worker: the same segments, turns and operators as the local PE.

A runner lives for one batch of one channel (or of one partition of a source). Chunks enter by `feed`; what leaves the
level collects in the `Outbox`, by destination and channel.

Order: at level 0 and in a single channel everything is sequential, so tuples that leave are simply numbered. In a
level with several channels the tracked variants of the segments carry origins along, so that what left the channels
can be put back in order.

A level with a single channel may run as several pipelines (`pipelines`). Then `feed` returns while tuples are under
way, and `settle` when none are.
"""

from __future__ import annotations

import pickle
import threading
import time
import traceback
from collections.abc import Callable, Iterator
from contextlib import nullcontext
from dataclasses import replace
from operator import attrgetter
from typing import Any

from penstock.clock import SystemClock
from penstock.compiler.codegen import Origin
from penstock.compiler.segments import SegmentPlan
from penstock.errors import PenstockError
from penstock.graph.graph import Output, Target
from penstock.operators.base import Logic
from penstock.operators.registry import logic_of
from penstock.platforms.spark.numbers import Report
from penstock.platforms.spark.pipelines import Pipelines
from penstock.platforms.spark.program import Program
from penstock.platforms.spark.state import ChannelState
from penstock.platforms.spark.wire import (
    FAILED,
    LAST_ORIGIN,
    PARTITION_SHIFT,
    PROLIFIC_SHIFT,
    REPORT,
    ChannelOf,
    dumps,
    encode,
    port_dest,
)
from penstock.runtime.failure import operator_error
from penstock.runtime.profiler import Counts, Sampler, counts
from penstock.runtime.segment import Entry, Segment, TrackedChunk
from penstock.runtime.turn import Turn
from penstock.tuples import CHUNK, Punctuation

Row = tuple[int, int, bytes]
# Tuples that collect before they are packed into rows: large enough to be cheap, small enough to be held.
ROW_TUPLES = 50_000


class WallClock(SystemClock):
    """Seconds since the epoch: stored times must mean the same on every host."""

    def now(self) -> float:
        return time.time()


class Outbox:
    """Tuples on their way to other levels, by destination and channel."""

    def __init__(self, names: tuple[int, ...]) -> None:
        self._names = names
        self._boxes: dict[tuple[int, int], tuple[list[int], list[Any]]] = {}
        self._special: list[Row] = []
        self.waiting = 0

    def box(self, dest: int, channel: int) -> tuple[list[int], list[Any]]:
        """The lists of origins and tuples for a destination and channel."""
        found = self._boxes.get((dest, channel))
        if found is None:
            found = self._boxes[dest, channel] = ([], [])
        return found

    def fail(self, error: BaseException, origin: int, level: int, channel: int) -> None:
        """Tell the driver that a tuple failed, and where in the order of a level."""
        cause = error.__cause__
        shown = "" if cause is None else "".join(traceback.format_exception(cause))
        try:
            packed = dumps(cause)
            pickle.loads(packed)
        except Exception:  # an exception of the user's that cannot travel: its text must do
            packed = dumps(None)
        self._special.append((self._names[channel], FAILED, dumps((level, origin, error, packed, shown))))

    def report(self, numbers: Any, channel: int) -> None:
        """Numbers for the driver."""
        self._special.append((self._names[channel], REPORT, dumps(numbers)))

    def rows(self) -> Iterator[Row]:
        """Everything that waits, as rows."""
        for (dest, channel), (origins, tuples) in self._boxes.items():
            for start in range(0, len(tuples), ROW_TUPLES):
                stop = start + ROW_TUPLES
                yield self._names[channel], dest, encode(origins[start:stop], tuples[start:stop])
        yield from self._special
        self._boxes.clear()
        self._special.clear()
        self.waiting = 0


class Exit:
    """Where tuples leave a level for an input port at another; takes the place of a segment in a turn."""

    lock = None
    is_feedback = False
    old = leftover = ()
    failed = False

    def __init__(self, runner: StageRunner, target: Target, index: int) -> None:
        self.index = index
        self._runner = runner
        self._outbox = runner.outbox
        self._dest = port_dest(target)
        program = runner.program
        node = self._node = program.graph.nodes[target.node]
        self._channels = 1
        self._key = None
        self._spread = runner.channel
        if not node.is_sink:
            level = program.stages.level[target.node]
            self._channels = program.channels_at(level)
            key = node.inputs[target.port].key
            if self._channels > 1:
                assert key is not None, "levels with several channels are partitioned"
                self._key = key.getter()
                self._spec = key
                self._channel_of = runner.channel_of(self._channels)
            self._spread = 0
        self._shift = PROLIFIC_SHIFT if runner.tracked and runner.level in program.stages.prolific else 0

    def run(self, item: list[Any] | Punctuation, port: int, turn: Turn) -> None:
        """Take what leaves."""
        with self._runner.leaving:
            if item is Punctuation.WINDOW:
                self._mark(item)
            elif isinstance(item, list):
                self._send(item)

    def _mark(self, item: Punctuation) -> None:
        origin = self._runner.next_origin(1)[0] if not self._runner.tracked else self._runner.mark_origin
        for channel in range(self._channels):
            self._put([origin << self._shift], [item], channel if self._channels > 1 else self._spread)

    def _send(self, chunk: list[Any]) -> None:
        origins = chunk.origins if isinstance(chunk, TrackedChunk) else self._runner.next_origin(len(chunk))
        if self._shift:
            first = self._runner.sent
            origins = [(origin << PROLIFIC_SHIFT) + first + n for n, origin in enumerate(origins)]
            self._runner.sent += len(chunk)
        if self._key is None:
            self._put(origins, chunk, self._spread)
            return
        boxes = [self._outbox.box(self._dest, channel) for channel in range(self._channels)]
        key_of, channel_of = self._key_of(chunk), self._channel_of
        item = None
        try:
            for origin, item in zip(origins, chunk, strict=True):
                box = boxes[channel_of[key_of(item)]]
                box[0].append(origin)
                box[1].append(item)
        except Exception as error:
            names = ",".join(self._spec.names)
            place = Origin(self._node.index, "t", attribute=names)
            raise operator_error(error, self._node, item=item, origin=place, itself=True) from error
        self._outbox.waiting += len(chunk)

    def _key_of(self, chunk: list[Any]) -> Callable[[Any], Any]:
        """Reads the key; faster where it is an attribute that all tuples of a chunk have because of their class."""
        names = self._spec.names
        kinds = set(map(type, chunk))
        if len(names) == 1 and len(kinds) == 1 and names[0] in getattr(kinds.pop(), "_fields", ()):
            return attrgetter(names[0])
        assert self._key is not None
        return self._key

    def _put(self, origins: Any, items: list[Any], channel: int) -> None:
        box = self._outbox.box(self._dest, channel)
        box[0].extend(origins)
        box[1].extend(items)
        self._outbox.waiting += len(items)


class StageRunner:
    """One level, for one channel (or partition) and one batch."""

    def __init__(
        self,
        program: Program,
        level: int,
        channel: int,
        *,
        source: int | None = None,
        partition: int = 0,
        state: ChannelState | None = None,
    ) -> None:
        self.program = program
        self.level = level
        self.channel = channel
        self.source = source
        self.tracked = level > 0 and level not in program.stages.single
        self.outbox = Outbox(program.names)
        self._channel_of: dict[int, ChannelOf] = {}
        self.turn = Turn()
        threaded = program.threaded.get(level)
        self._pipelines = None if threaded is None else Pipelines(program.graph, threaded)
        # Held by whoever hands something out, where several threads do.
        self.leaving: Any = nullcontext() if threaded is None else threading.Lock()
        self._began = time.perf_counter()
        self._read_seconds = 0.0
        self.state = state
        self.mark_origin = 0
        self.sent = 0
        self.reached = 0  # origin of what is being processed, for errors
        self._next = partition << PARTITION_SHIFT
        self._input = {"skipped": 0, "dead": 0}
        self.logics: dict[int, Logic] = {}
        self.segments: dict[int, Segment] = {}  # by root
        self._build()

    # ------------------------------------------------------------------------------------------------- building

    def _build(self) -> None:
        plans = [plan for plan in self.program.segments.plans if self._runs_here(plan)]
        for plan in plans:
            for index in plan.nodes:
                self._add_logic(index)
        for plan in plans:
            segment = Segment(self.program.graph, plan, self.logics, Sampler(), self.tracked)
            self.segments[plan.root] = segment
        for segment in self.segments.values():
            self._connect(segment)
        for logic in self.logics.values():
            self._start(logic)
        for segment in self.segments.values():
            segment.compile()
        if self._pipelines is not None:
            self._pipelines.connect(self.segments, self._fed())
        exits: dict[Target, Exit] = {}
        for segment in self.segments.values():
            self._connect_exits(segment, exits)
        if self._pipelines is not None:
            self._pipelines.start()

    def _fed(self) -> frozenset[Target]:
        """The input ports that get tuples from other levels."""
        graph, stages = self.program.graph, self.program.stages
        return frozenset(
            Target(root, port)
            for root in self.segments
            if stages.level.get(root) == self.level
            for port, entry in enumerate(graph.nodes[root].inputs)
            if any(stages.present[stream.node] != {self.level} for stream in entry.streams)
        )

    def channel_of(self, channels: int) -> ChannelOf:
        """Which of `channels` channels a key belongs to."""
        return self._channel_of.setdefault(channels, ChannelOf(channels))

    def _start(self, logic: Logic) -> None:
        try:
            logic.open()
        except PenstockError:
            raise
        except Exception as error:
            raise operator_error(error, logic.node, doing="to start") from error

    def _runs_here(self, plan: SegmentPlan) -> bool:
        node = self.program.graph.nodes[plan.root]
        if node.is_sink or self.level not in self.program.stages.present[plan.root]:
            return False
        if self.source is None:
            return True
        if node.is_source:
            return node.index == self.source
        return any(self.source in self.program.feeding[Target(plan.root, port)] for port in range(len(node.inputs)))

    def _add_logic(self, index: int) -> None:
        node = self.program.graph.nodes[index]
        try:
            logic = self.logics[index] = logic_of(node, WallClock())
            if self.state is not None and index in self.program.stages.level:
                self.state.attach(index, logic)
        except PenstockError:
            raise
        except Exception as error:
            raise operator_error(error, node, doing="to start") from error

    def _connect(self, segment: Segment) -> None:
        for output, outlet in segment.outlets.items():
            outlet.targets += [self._entry(reader) for reader in self._readers(segment, output, here=True)]

    def _connect_exits(self, segment: Segment, exits: dict[Target, Exit]) -> None:
        for output, outlet in segment.outlets.items():
            for reader in self._readers(segment, output, here=False):
                if reader not in exits:
                    exits[reader] = Exit(self, reader, len(self.program.segments.plans) + len(exits))
                outlet.targets.append(Entry(exits[reader], reader.port))  # type: ignore[arg-type]

    def _readers(self, segment: Segment, output: Output, *, here: bool) -> list[Target]:
        """The input ports of other segments, or of other levels, that read an output."""
        graph, stages = self.program.graph, self.program.stages
        return [
            reader
            for reader in graph.readers(*output)
            if reader.node not in segment.logics and stages.is_local(self.level, graph.nodes[reader.node]) == here
        ]

    def _entry(self, target: Target) -> Entry:
        queue = None if self._pipelines is None else self._pipelines.ports.get(target)
        return Entry(self.segments[target.node], target.port, queue)

    # -------------------------------------------------------------------------------------------------- running

    def next_origin(self, count: int) -> range:
        """Fresh origins where everything is sequential."""
        first = self._next
        self._next += count
        return range(first, first + count)

    def feed(self, target: Target, origins: Any, tuples: list[Any]) -> None:
        """Tuples (and marks) for an input port of this level, in order."""
        entry = self._entry(target)
        start, total = 0, len(tuples)
        while start < total:
            if tuples[start] is Punctuation.WINDOW:
                self._mark(entry, origins[start])
                start += 1
                continue
            stop = min(start + CHUNK, total)
            chunk = tuples[start:stop]
            marks = [position for position, item in enumerate(chunk) if item is Punctuation.WINDOW]
            if marks:
                chunk = chunk[: marks[0]]
                stop = start + marks[0]
            self.reached = origins[start]
            self._run(entry, TrackedChunk(chunk, list(origins[start:stop])) if self.tracked else chunk)
            start = stop

    def _mark(self, entry: Entry, origin: int) -> None:
        self.settle()
        self.mark_origin = self.reached = origin
        for segment in self.segments.values():
            segment.origin = origin
            if self.state is not None:
                for logic in segment.logics.values():
                    self.state.load_all(logic)
        self._run(entry, Punctuation.WINDOW)

    def _run(self, entry: Entry, item: list[Any] | Punctuation) -> None:
        self.turn.push(entry, item)
        self.drain()

    def drain(self) -> None:
        """Carry what is in this thread's hands: to the end, or up to the next queues."""
        if self._pipelines is None:
            self.turn.drain()
        else:
            self._pipelines.drain(self.turn)

    def settle(self) -> None:
        """Return when everything that was fed is done with, in all threads; raises what went wrong there."""
        if self._pipelines is not None:
            self._pipelines.settle()

    def tick(self) -> None:
        """Let operators that follow the clock speak about what has become due between batches."""
        now = time.time()
        for segment in self.segments.values():
            timed = [logic for logic in segment.logics.values() if logic.timed]
            for logic in timed:
                if self.state is not None:
                    self.state.load_all(logic)
                logic.deadline()
            if timed:
                segment.tick(now, self.turn)
                self.drain()
                self.settle()

    def finish(self, before: frozenset[int], ended: frozenset[int]) -> None:
        """Final punctuation: sources in `ended` have ended, those in `before` had earlier."""
        self.settle()
        self.reached = self.mark_origin = LAST_ORIGIN
        for root, segment in self.segments.items():
            segment.origin = LAST_ORIGIN
            if root in self.program.stages.level:
                self._finish_root(segment, before, ended)
            self.drain()
            self.settle()

    def _all_ended(self, index: int, ended: frozenset[int]) -> bool:
        ports = range(len(self.program.graph.nodes[index].inputs))
        return all(self.program.feeding[Target(index, port)] <= ended for port in ports)

    def _finish_root(self, segment: Segment, before: frozenset[int], ended: frozenset[int]) -> None:
        root = segment.plan.root
        if self.state is not None:
            self.state.load_all(segment.logics[root])
        for port in range(len(self.program.graph.nodes[root].inputs)):
            feeding = self.program.feeding[Target(root, port)]
            if feeding <= ended and not feeding <= before:
                segment.finish_port(root, port, self.turn)
                self.drain()
                self.settle()
        if self._all_ended(root, ended) and not self._all_ended(root, before):
            segment.finish_operator(root, self.turn)

    def count_input(self, skipped: int, dead: int) -> None:
        """Input that the source could not parse."""
        self._input["skipped"] += skipped
        self._input["dead"] += dead

    def count_reading(self, seconds: float) -> None:
        """Time spent on reading the source."""
        self._read_seconds += seconds

    def report(self) -> None:
        """Tell the driver what the operators did and cost, and how long the task was at it."""
        numbers: dict[int, tuple[Counts, dict[str, int]]] = {}
        for segment in self.segments.values():
            for index, counted in counts(segment).items():
                counters = self._input if index == self.source else segment.logics[index].counters()
                numbers[index] = self._with_reading(counted) if index == self.source else counted, counters
        self.outbox.report(Report(self.level, time.perf_counter() - self._began, numbers), self.channel)

    def _with_reading(self, counted: Counts) -> Counts:
        """What was measured of a source is what comes behind it: reading is part of its cost too."""
        measured = counted.measured / counted.received if counted.received else 0.0
        return replace(counted, seconds=counted.seconds + measured * self._read_seconds)

    def close(self, failed: bool = False) -> None:
        """End the threads and close the operators."""
        if self._pipelines is not None:
            self._pipelines.close()
        for logic in self.logics.values():
            logic.close(failed)
