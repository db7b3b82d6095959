"""The plan of a program: the physical graph as a value, and the text that explains it."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from typing import ClassVar

from penstock.compiler.fission import replicable_regions
from penstock.compiler.layout_text import counted, layout_lines, open_lines
from penstock.compiler.pes import PlannedPE, homes_of, pe_labels, pe_lines
from penstock.compiler.physical import Physical
from penstock.compiler.picture import picture
from penstock.compiler.plan_json import plan_from_json, plan_to_json
from penstock.compiler.regions import wish_of
from penstock.compiler.segments import SegmentPlan, Segments
from penstock.graph.annotations import Parallel
from penstock.graph.flow import Flow
from penstock.graph.graph import Graph, Node, Target


@dataclass(frozen=True)
class Plan:
    """How a program will run. `str(plan)` explains it; `plan.code()` shows the generated functions."""

    platform: ClassVar[str] = "local"

    graph: Graph
    segments: Segments
    meetings: Mapping[int, tuple[str, ...]]  # segment -> threads that meet there, where it needs a lock
    _texts: Callable[[int], list[str]]
    cores: int | None = None
    ports: Mapping[Target, str] = field(default_factory=dict)  # threaded ports: "dynamic" or "dedicated"
    threads: int = 0  # of the scheduler
    refused: Mapping[int, str] = field(
        default_factory=dict
    )  # operators that were to be replicated, and why they are not
    written: Graph | None = None  # as the user wrote it, where regions were replicated
    physical: Physical | None = None  # regions and pipelines by a profile
    pes: tuple[PlannedPE, ...] = ()  # where several were asked for

    @property
    def program(self) -> Graph:
        """The graph as the user wrote it."""
        return self.graph if self.written is None else self.written

    def __str__(self) -> str:
        program, homes = self.program, homes_of(self.pes)
        if self.physical is not None:
            layout = layout_lines(program, self.physical, homes)
        else:
            layout = open_lines(program, threads=_threads(self), cores=self.cores, homes=homes)
        pes = [*pe_lines(program, self.pes, self.physical), ""] if self.pes else []
        return "\n".join([*_headline(self), "", *pes, *layout, "", *_body(self), "", *_footer(self)])

    def code(self) -> str:
        """The source text of every generated function."""
        parts = []
        for plan in self.segments.plans:
            names = ", ".join(self.graph.nodes[index].name for index in plan.nodes)
            parts += [f"# segment {plan.index}: {names}", *self._texts(plan.index)]
        return "\n".join(parts)

    def to_json(self) -> str:
        """This plan as JSON text."""
        return plan_to_json(self)

    @staticmethod
    def from_json(text: str, graph: Graph | Flow) -> Plan:
        """The plan that `to_json` wrote, for the flow it was made of, or its graph; also one for Spark.

        >>> import penstock as pn
        >>> flow = pn.Flow("any")
        >>> _ = flow.source([1]).map(abs).collect()
        >>> plan = pn.plan(flow)
        >>> str(Plan.from_json(plan.to_json(), flow)) == str(plan)
        True
        """
        return plan_from_json(text, graph.graph() if isinstance(graph, Flow) else graph, Plan)

    def picture(self) -> str:
        """This plan as an SVG picture: operators, the PEs, regions and threads around them, costs and rates."""
        labels = pe_labels(self.pes, self.physical)
        return picture(
            self.program, self.physical, pes={label: pe.nodes for label, pe in zip(labels, self.pes, strict=True)}
        )


def make_plan(
    graph: Graph,
    segments: Segments,
    meetings: Mapping[int, tuple[str, ...]],
    texts: Callable[[int], list[str]],
    ports: Mapping[Target, str] | None = None,
    threads: int = 0,
) -> Plan:
    """The plan that runs `graph` in these segments, with queues before these input ports."""
    return Plan(graph, segments, dict(meetings), texts, ports=dict(ports or {}), threads=threads)


def _headline(plan: Plan) -> list[str]:
    nodes = plan.graph.nodes
    sources, sinks = sum(node.is_source for node in nodes), sum(node.is_sink for node in nodes)
    parts = f"{counted(len(nodes), 'operator')}, {counted(sources, 'source')}, {counted(sinks, 'sink')}"
    cores = "" if plan.cores is None else f" on {counted(plan.cores, 'core')}"
    how = f"run as {counted(len(plan.segments.plans), 'segment')} by {_threads(plan)}{cores}"
    return [f"flow '{plan.graph.name}': {parts}, {how}"]


def _threads(plan: Plan) -> str:
    sources = sum(node.is_source for node in plan.graph)
    dedicated = sum(model == "dedicated" for model in plan.ports.values())
    if not plan.ports:
        return counted(sources, "thread")
    parts = [counted(sources, "source thread")]
    if plan.threads:
        parts.append(counted(plan.threads, "scheduler thread"))
    if dedicated:
        parts.append(counted(dedicated, "dedicated thread"))
    return " and ".join([", ".join(parts[:-1]), parts[-1]]) if len(parts) > 2 else " and ".join(parts)


def _body(plan: Plan) -> list[str]:
    rows: list[tuple[str, ...]] = []
    breaks: dict[int, str] = {}
    for segment in plan.segments.plans:
        breaks[len(rows)] = _segment_title(plan, segment)
        rows += _segment_rows(plan, segment)
    widths = [max((len(row[column]) for row in rows), default=0) for column in range(5)]
    lines: list[str] = []
    for number, row in enumerate(rows):
        if number in breaks:
            lines += ([""] if lines else []) + [breaks[number]]
        lines.append("  " + "  ".join(cell.ljust(width) for cell, width in zip(row, widths, strict=True)).rstrip())
    return lines


def _segment_title(plan: Plan, segment: SegmentPlan) -> str:
    root = plan.graph.nodes[segment.root]
    if root.is_source:
        entry = f"the thread of source '{root.name}' reads it chunk by chunk"
    else:
        feeders = {plan.segments.of_node[stream.node] for port in root.inputs for stream in port.streams}
        entry = "fed by segment " + " and ".join(str(index) for index in sorted(feeders)) + _queues(plan, segment)
    threads = plan.meetings.get(segment.index)
    lock = f"; locked: {' and '.join(threads)} meet here" if threads else ""
    return f"segment {segment.index}: {entry}{lock}"


def _queues(plan: Plan, segment: SegmentPlan) -> str:
    """Which inputs of the segment have a queue, and who runs it."""
    root = plan.graph.nodes[segment.root]
    found = {port: plan.ports.get(Target(segment.root, port)) for port in range(len(root.inputs))}
    if not any(found.values()):
        return ""
    who = {"dynamic": "the scheduler runs", "dedicated": "a thread of its own runs"}
    models = set(found.values())
    if len(models) == 1:
        (model,) = models
        return f" through {'a queue' if len(found) == 1 else 'queues'} {who[str(model)]}"
    parts = [f"input {port} through a queue {who[model]}" for port, model in found.items() if model is not None]
    return ": " + ", ".join(parts)


def _segment_rows(plan: Plan, segment: SegmentPlan) -> list[tuple[str, ...]]:
    graph, inside = plan.graph, set(segment.nodes)
    rows = []
    pending = [(segment.root, 0)]
    while pending:  # depth first, readers in order
        index, depth = pending.pop()
        node = graph.nodes[index]
        below = [
            reader.node
            for port in range(node.operation.outputs)
            for reader in graph.readers(index, port)
            if reader.node in inside
        ]
        rows.append(_row(plan, node, depth, segment))
        pending += [(reader, depth + 1) for reader in reversed(below)]
    return rows


def _row(plan: Plan, node: Node, depth: int, segment: SegmentPlan) -> tuple[str, ...]:
    branch = "   " * (depth - 1) + "└─ " if depth else ""
    keyed = f" by {node.key}" if node.kind == "partitioned" and node.key is not None else ""
    return (
        branch + node.name,
        _does(node),
        node.kind + keyed,
        _goes_to(plan, node, segment),
        str(node.location),
    )


def _does(node: Node) -> str:
    window = getattr(node.operation, "window", None)
    return node.operation.verb + (f" over {window}" if window is not None else "")


def _goes_to(plan: Plan, node: Node, segment: SegmentPlan) -> str:
    names: list[str] = []
    for output in segment.outlets:
        if output.node == node.index:
            for reader in plan.graph.readers(output.node, output.port):
                target = plan.segments.of_node[reader.node]
                if target != segment.index:
                    names.append(f"{plan.graph.nodes[reader.node].name} ({target})")
    return "→ " + ", ".join(names) if names else ""


def _wishes(plan: Plan) -> list[str]:
    """What becomes of regions that the user asked for and that cannot be replicated as they are."""
    nodes, lines = plan.program.nodes, []
    for index, reason in plan.refused.items():
        wish = wish_of(nodes[index])
        inside = f", inside parallel(width={wish.width})," if wish is not None else ""
        lines.append(f"'{nodes[index].name}'{inside} runs in one copy here: {reason}.")
    parts: dict[Parallel, list[str]] = {}
    if any(wish_of(node) is not None for node in nodes):
        for region in replicable_regions(plan.program).regions:
            wish = wish_of(nodes[region.entry])
            if wish is not None:
                parts.setdefault(wish, []).append(f"'{nodes[region.entry].name}'")
    for wish, entries in parts.items():
        if len(entries) > 1:
            starts = f"{', '.join(entries[:-1])} and {entries[-1]}"
            lines.append(
                f"parallel(width={wish.width}) is {len(entries)} regions here, from {starts}, each replicated by "
                "itself: a region has one entry, and streams cannot meet in it."
            )
    return lines


def _footer(plan: Plan) -> list[str]:
    lines = [
        "Each segment is one generated Python function that handles a chunk of tuples at a time (--code shows it).",
        "stateless: may be replicated freely; partitioned: may be split by its key; stateful: one copy, in order.",
    ]
    if not plan.meetings:
        lines.append("No two threads ever meet in an operator: nothing is locked.")
    if plan.ports:
        lines.append("A queue is run by one thread at a time, in order; whoever finds it full works it off first.")
    return lines + _wishes(plan)
