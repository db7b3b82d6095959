"""The layout of a plan as text: what is expected, the regions with their pipelines, and why."""

from __future__ import annotations

from collections.abc import Sequence

from penstock.compiler.physical import Expected, Group, Physical
from penstock.compiler.planner import micros
from penstock.graph.graph import Graph

_FEW = 4


def layout_lines(graph: Graph, physical: Physical, homes: Sequence[int] = ()) -> list[str]:
    """The lines that explain `physical`, a layout of `graph`; with several PEs, `homes` is that of each operator."""
    expected = physical.expected
    lines = [_headline(graph, physical)]
    rows = []
    for number, group in enumerate(physical.groups):
        time = micros(expected.times[number]) if expected is not None else ""
        where = f"PE {homes[group.entry] + 1}, " if homes else ""
        rows.append((f"region {number + 1}:", where + copies(group), time, names(graph, group)))
    widths = [max(len(row[column]) for row in rows) for column in range(3)]
    for row, group in zip(rows, physical.groups, strict=True):
        label, how, time = (cell.ljust(width) for cell, width in zip(row[:3], widths, strict=True))
        lines.append(f"  {label}  {how}  {time.strip().rjust(widths[2])}  {row[3]}")
        indent = " " * (widths[0] + 4)
        lines += [f"{indent}{group.reason}"] if group.reason else []
        for line in group.pipelines[1:]:
            if line[0] in physical.cuts:
                lines.append(f"{indent}a thread starts at {graph.nodes[line[0]].name}: {physical.cuts[line[0]]}")
    lines += [f"  {graph.nodes[index].name} cannot be replicated: {reason}" for index, reason in physical.alone.items()]
    machine = physical.machine
    split = micros(machine.cp) + (f", by key {micros(machine.keyed_cp)}" if machine.keyed_cp != machine.cp else "")
    handing = micros(machine.delta) + (f", to another PE {micros(machine.pe_delta)}" if homes else "")
    lines.append(f"  (a hand-over costs {handing}, a split and merge in two {split} per tuple)")
    return lines


def _headline(graph: Graph, physical: Physical) -> str:
    cores = f"{physical.machine.cores} core" + ("" if physical.machine.cores == 1 else "s")
    expected = physical.expected
    if expected is None:
        return f"expected on {cores}: nothing costs anything, so no throughput is known"
    many = " from each source" if sum(node.is_source for node in graph) > 1 else ""
    held = held_back(graph, physical, expected)
    return f"expected: {rate(expected.throughput)}{many} on {cores}, {expected.busy:.1f} busy, held back by {held}"


def held_back(graph: Graph, physical: Physical, expected: Expected) -> str:
    """What limits the throughput, as the end of a sentence."""
    if expected.limit == "gil":
        whose = "" if expected.slowest_pe is None else f" of PE {expected.slowest_pe + 1}"
        return f"the GIL{whose}: threads of one process share one core for Python code"
    if expected.limit == "cores":
        return "the number of cores"
    return f"region {expected.bottleneck + 1} ({names(graph, physical.groups[expected.bottleneck])})"


def rate(throughput: float) -> str:
    """Tuples per second as people read them.

    >>> rate(1234567.0), rate(45210.0), rate(12.3)
    ('1.23 M tuples/s', '45.2 k tuples/s', '12.3 tuples/s')
    """
    for size, unit in ((1e6, " M"), (1e3, " k")):
        if throughput >= size:
            return f"{throughput / size:.3g}{unit} tuples/s"
    return f"{throughput:.3g} tuples/s"


def copies(group: Group) -> str:
    """How often a region runs, and by how many threads."""
    lines = len(group.pipelines)
    if group.width == 1:
        return "1 thread" if lines == 1 else f"{lines} threads"
    split = f"split by {group.key}" if group.key else "dealt in turn"
    return f"{group.width} copies, {split}" + (f", {lines} threads each" if lines > 1 else "")


def names(graph: Graph, group: Group) -> str:
    """The operators of a region, a bar where a thread starts."""
    parts = []
    for line in group.pipelines:
        called = [graph.nodes[index].name for index in line]
        if len(called) > 2 * _FEW:
            called = [*called[:_FEW], f"… {len(called) - 2 * _FEW} more …", *called[-_FEW:]]
        parts.append(", ".join(called))
    return " | ".join(parts)
