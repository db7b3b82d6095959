"""The plan of a program on Spark: its stages, how each runs and why, what is sent between them, what to expect."""

from __future__ import annotations

from functools import cached_property
from typing import ClassVar

from penstock.compiler.batches import Cluster
from penstock.compiler.layout_text import counted, how_to_choose, rate
from penstock.compiler.physical import Expected, Group, Physical
from penstock.compiler.picture import picture
from penstock.compiler.plan import Plan
from penstock.compiler.planner import micros
from penstock.compiler.stages import Stages, find_stages
from penstock.graph.annotations import Parallel
from penstock.graph.graph import Graph, Node, Target


class SparkPlan(Plan):
    """How a program runs on Spark. `str(plan)` explains it; `plan.code()` shows the generated functions.

    The groups of `plan.physical` are the stages in order, and last the sinks, which the driver serves.
    """

    platform: ClassVar[str] = "spark"

    @property
    def layout(self) -> Physical:
        """The stages: a plan for Spark always has them."""
        assert self.physical is not None
        return self.physical

    @cached_property
    def stages(self) -> Stages:
        """Where each operator runs."""
        return find_stages(self.program)

    @property
    def widths(self) -> list[int]:
        """The channels of each stage, without the driver."""
        return [group.width for group in self.layout.groups[:-1]]

    @property
    def channels(self) -> int:
        """The most channels of any stage."""
        return max(self.widths)

    def __str__(self) -> str:
        levels = self.stages.levels
        size = f"{counted(len(self.program), 'operator')} in {counted(levels + 1, 'stage')}"
        size += f", {counted(levels, 'shuffle')}, {counted(self.channels, 'channel')}"
        lines = [f"flow '{self.program.name}' on Spark: {size}", *expected_lines(self.program, self.layout)]
        for level, group in enumerate(self.layout.groups):
            lines += ["", self._title(level, group), *self._reasons(level, group)]
            starts = {line[0]: number for number, line in enumerate(group.pipelines) if number}
            for index in (i for line in group.pipelines for i in line):
                if index in starts:
                    why = self.layout.cuts.get(index)
                    lines.append(f"  ─ a thread of its own from here on{f': {why}' if why else ''}")
                lines.append(self._row(self.program.nodes[index]))
        lines += [
            "",
            "Operators of one stage are fused into generated Python functions in one worker process per task.",
            "The stages of a batch run one after the other; while one does, all cores are its own.",
            *self._wishes(),
        ]
        return "\n".join(lines)

    def picture(self) -> str:
        """This plan as an SVG picture: operators, the stages and threads around them, costs and rates."""
        expected = self.layout.expected
        parts = [counted(len(self.layout.groups) - 1, "stage"), counted(self.channels, "channel")]
        if expected is not None:
            parts = [f"{rate(expected.throughput)} expected", *parts, _held_back(self.layout, expected)]
        labels = [self._label(level, group) for level, group in enumerate(self.layout.groups)]
        return picture(self.program, self.layout, ", ".join(parts), labels)

    def _label(self, level: int, group: Group) -> str:
        if level > self.stages.levels:
            return "driver"
        threads = f", {len(group.pipelines)} threads" if len(group.pipelines) > 1 else ""
        by = f" by {group.key}" if group.key else ""
        return f"stage {level}: {counted(group.width, 'channel')}{by}{threads}"

    def _title(self, level: int, group: Group) -> str:
        if level > self.stages.levels:
            return "the driver, in order:"
        if level == 0:
            return f"stage 0: where sources are read, in parallel, {counted(group.width, 'task')}"
        if level in self.stages.single:
            threads = f", {len(group.pipelines)} threads" if len(group.pipelines) > 1 else ""
            return (
                f"stage {level}: one shuffle, one channel (the whole stream in order){threads}, state in Spark's store"
            )
        return f"stage {level}: one shuffle by {group.key}, {counted(group.width, 'channel')}, state in Spark's store"

    def _reasons(self, level: int, group: Group) -> list[str]:
        expected = self.layout.expected
        lines = [f"  ({group.reason})"] if group.reason and level <= self.stages.levels else []
        if expected is not None:
            shared = min(group.width, self.layout.machine.cores)
            handed = expected.handing[level] / shared
            time = f"  {micros(expected.times[level])} of a batch per source tuple, {micros(handed)} of it to hand over"
            lines.append(time)
        return lines

    def _wishes(self) -> list[str]:
        """What becomes of the widths that the user asked for, where it is something else."""
        found: dict[tuple[Parallel, str], list[str]] = {}
        for index in self.program.topological:
            node = self.program.nodes[index]
            wish, levels = node.annotations.parallel, sorted(self.stages.present[index])
            if wish is None or node.is_source or node.is_sink or {self.widths[at] for at in levels} == {wish.width}:
                continue
            where = " and ".join(f"stage {at} ({counted(self.widths[at], _copies_of(at))})" for at in levels)
            found.setdefault((wish, f"{where}: {self._why_otherwise(index)}"), []).append(f"'{node.name}'")
        return [
            f"parallel(width={wish.width}) does not hold here for {', '.join(names)}, in {what}."
            for (wish, what), names in found.items()
        ]

    def _why_otherwise(self, index: int) -> str:
        level = self.stages.level.get(index)
        if level is None:
            return "operators without state run where their tuples are"
        return "streams meet there in one order" if level in self.stages.single else "all operators of a stage share it"

    def _row(self, node: Node) -> str:
        keyed = f" by {node.key}" if node.kind == "partitioned" and node.key is not None else ""
        window = getattr(node.operation, "window", None)
        does = node.operation.verb + (f" over {window}" if window is not None else "")
        cost = f"{micros(self.layout.costs[node.index]):>10}  " if node.index in self.layout.costs else ""
        return f"  {node.name:<16} {does:<28} {cost}{node.kind}{keyed}"


def threaded_ports(graph: Graph, group: Group) -> frozenset[Target]:
    """The input ports of a stage that have a queue: where each pipeline but the first starts."""
    heads = [line[0] for line in group.pipelines[1:]]
    return frozenset(Target(head, port) for head in heads for port in range(len(graph.nodes[head].inputs)))


def expected_lines(graph: Graph, physical: Physical) -> list[str]:
    """What the model expects of the stages of `graph`, and the costs of boundaries that it knows, and where from."""
    expected, cluster = physical.expected, physical.machine
    assert isinstance(cluster, Cluster)
    batches = ""
    if cluster.batch:
        batches = f", in batches of {cluster.fill:.3g} s of which Spark takes {cluster.batch:.2g} s itself"
    if expected is None:
        free = bool(physical.costs) and not any(physical.costs.values())
        known = "no throughput, as nothing costs anything" if free else "a throughput that only a profile can tell"
        what = f"{known}, on {counted(cluster.cores, 'core')}{batches}"
    else:
        many = " from each source" if sum(node.is_source for node in graph) > 1 else ""
        what = f"{rate(expected.throughput)}{many} on {counted(cluster.cores, 'core')}{batches}"
        what += f"; {_held_back(physical, expected)}"
    shuffle = f"a shuffle costs {micros(cluster.delta)}, a split in two {micros(cluster.cp)}"
    inside = f"a worker boundary {micros(cluster.stage)}, a queue in a worker {micros(cluster.port)}"
    lines = [f"expected: {what}", f"  (per tuple, on each side: {shuffle}, {inside})"]
    if expected is None and not physical.costs:
        asked = {"on": "spark", "cores": cluster.cores}
        lines.insert(1, f"  ({how_to_choose('channels and threads', asked)})")
    return [*lines, f"  (boundaries and batches: {cluster.origin})"] if cluster.origin else lines


def _held_back(physical: Physical, expected: Expected) -> str:
    if expected.limit == "source":
        return f"held back by the driver, which reads the sources ahead: {micros(expected.reading)} per tuple"
    where = "the driver" if expected.bottleneck == len(physical.groups) - 1 else f"stage {expected.bottleneck}"
    part = expected.times[expected.bottleneck] / sum(expected.times)
    return f"{where} takes {part:.0%} of the {micros(sum(expected.times))} per tuple"


def _copies_of(level: int) -> str:
    return "channel" if level else "task"
