"""The segments of a PE and how they are connected, for one placement of threaded ports.

A wiring can be prepared while an older one runs: segments that stay the same are taken over, the others are compiled.
`connect` then puts it in force. That is quick, and only allowed while no thread runs a segment.
"""

from __future__ import annotations

import threading
from collections.abc import Callable, Mapping

from penstock.compiler.segments import SegmentPlan, Segments, Traits, cut
from penstock.graph.graph import Graph, Target
from penstock.graph.operations import Deal, Gather, Operation
from penstock.operators.base import Logic
from penstock.runtime.locks import Meeting, place_locks
from penstock.runtime.merger import MergerSegment
from penstock.runtime.port import Port
from penstock.runtime.profiler import Sampler
from penstock.runtime.segment import Entry, Segment
from penstock.runtime.splitter import SplitterSegment

_SEGMENTS: dict[type[Operation], type[Segment]] = {Deal: SplitterSegment, Gather: MergerSegment}


def traits_of(logic: Logic) -> Traits:
    """What the cut into segments needs to know of `logic`."""
    return Traits(logic.ends_segment, logic.whole_chunk or logic.own_threads, logic.nests)


class Wiring:
    """Segments, in topological order, and the ports between them."""

    def __init__(
        self,
        graph: Graph,
        logics: dict[int, Logic],
        ports: Mapping[Target, Port],
        profile: bool,
        before: Wiring | None = None,
        tracked: frozenset[int] = frozenset(),
    ) -> None:
        self.graph = graph
        self.logics = logics
        self.ports = dict(ports)
        self.plan: Segments = cut(graph, lambda node: traits_of(logics[node.index]), threaded=self.ports.keys())
        # Nodes whose tuples carry their origin.
        self.tracked: frozenset[int] = before.tracked if before is not None else tracked
        self._before = before
        self.locks: dict[int, threading.Lock] = before.locks if before is not None else {}  # by root
        self.meetings: list[Meeting] = []
        known = {} if before is None else {_shape(segment.plan): segment for segment in before.segments}
        self.segments: list[Segment] = []
        self.fresh: list[Segment] = []
        for plan in self.plan.plans:
            segment = known.get(_shape(plan))
            if segment is None:
                make = _SEGMENTS.get(type(graph.nodes[plan.root].operation), Segment)
                segment = make(graph, plan, logics, Sampler() if profile else None, plan.root in self.tracked)
                segment.in_channel = segment.tracked
                self.fresh.append(segment)
            self.segments.append(segment)

    def compile(self) -> None:
        """Compile the segments that are new."""
        for segment in self.fresh:
            segment.compile()

    def connect(self) -> list[Segment]:
        """Put this wiring in force; returns the segments of the one before that are no longer part of it."""
        for segment, plan in zip(self.segments, self.plan.plans, strict=True):
            segment.index, segment.plan = plan.index, plan
        for segment in self.segments:
            self._connect(segment)
        for target, port in self.ports.items():
            port.entry = Entry(self.segment_of(target.node), target.port)
        for port in self.ports.values():
            port.subscribers = self._next_ports(port.entry.segment)
        retired = self._take_over()
        self.meetings = place_locks(self.segments, self.ports.values(), self.locks)
        return retired

    def segment_of(self, node: int) -> Segment:
        """The segment an operator is in."""
        return self.segments[self.plan.of_node[node]]

    def _connect(self, segment: Segment) -> None:
        for output, outlet in segment.outlets.items():
            outlet.targets = [
                Entry(self.segment_of(reader.node), reader.port, self.ports.get(reader))
                for reader in self.graph.readers(*output)
                if self.segment_of(reader.node) is not segment
            ]

    def _next_ports(self, segment: Segment) -> list[Port]:
        found: dict[Target, Port] = {}
        self._walk(segment, lambda port: found.setdefault(port.target, port))
        return list(found.values())

    @staticmethod
    def _walk(segment: Segment, at_port: Callable[[Port], object], goes_back: bool = True) -> list[Segment]:
        """The segments that whoever starts at `segment` runs itself; tells `at_port` of the queues it meets.

        `goes_back`: also what it runs by delivering feedback.
        """
        pending, seen = [segment], {segment.index}
        walked = []
        while pending:
            current = pending.pop()
            walked.append(current)
            for outlet in current.outlets.values():
                for target in outlet.targets:
                    if target.queue is not None:
                        at_port(target.queue)
                    elif target.segment.index not in seen and (goes_back or not target.segment.is_feedback):
                        seen.add(target.segment.index)
                        pending.append(target.segment)
        return walked

    def carriers_of(self, segment: Segment) -> list[Port | int]:
        """Who runs `segment` while it has its flag or carrying lock: ports, and sources by their node.

        Feedback behind a port is delivered without the flag. A segment that is reached in no other way has no carrier,
        but then it has a lock (`runtime.locks`).
        """
        starts: list[tuple[Port | int, Segment, bool]] = [
            (port, port.entry.segment, False) for port in self.ports.values()
        ]
        starts += [(root.plan.root, root, True) for root in self.segments if root.root.is_source]
        return [carrier for carrier, start, back in starts if segment in self._walk(start, lambda _: None, back)]

    def _take_over(self) -> list[Segment]:
        """Carry over how far each input has ended, and what waits in feedback mailboxes."""
        before = self._before
        self._before = None
        if before is None:
            return []
        kept = {id(segment) for segment in self.segments}
        for segment in self.fresh:
            root = segment.plan.root
            segment.continue_from(before.segment_of(root))
        return [segment for segment in before.segments if id(segment) not in kept]


def _shape(plan: SegmentPlan) -> tuple[object, ...]:
    return plan.root, plan.nodes, plan.outlets
