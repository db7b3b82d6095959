"""The layout of a plan as text: what is expected, the regions with their pipelines, and why; or what could be."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from penstock.compiler.fission import replicable_regions
from penstock.compiler.pe_layout import cut_at_pes
from penstock.compiler.physical import Expected, Group, Physical
from penstock.compiler.planner import micros, plainly_alone
from penstock.compiler.regions import Regions, part_of
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


def open_lines(graph: Graph, *, threads: str, cores: int | None, homes: Sequence[int] = ()) -> list[str]:
    """What can be said of `graph` without a profile: how it runs now, what could be replicated, and what cannot.

    `threads` are those it has now, in words; with several PEs, `homes` is that of each operator.
    """
    regions = replicable_regions(graph)
    wide = 2  # any number of copies: parts of regions are sought that may have several
    groups = [Group((nodes,), wide) for nodes in _members(graph, regions)]
    parts = cut_at_pes(graph, groups, homes)
    rows = [_open_row(graph, part, homes) for part in parts if part.width == wide]
    now = counted(len(set(homes)), "PE") if homes else f"1 PE, {threads}"
    copied = any(region.width not in (None, 1) and region.entry in regions.of_node for region in regions.regions)
    lines = [f"without a profile: {now}, one copy of each operator{' but where parallel() asks for more' * copied}"]
    widths = [max((len(row[column]) for row in rows), default=0) for column in range(2)]
    for number, (how, why, names) in enumerate(rows):
        label = f"region {number + 1}:".ljust(len(f"region {len(rows)}:"))
        lines.append(f"  {label}  {how.ljust(widths[0])}  {why.ljust(widths[1])}  {names}")
    alone: dict[str, list[int]] = {}
    for index in (i for i in graph.topological if i in regions.alone and not plainly_alone(graph, i)):
        alone.setdefault(regions.alone[index], []).append(index)
    for part in parts:
        if part.width == 1:
            alone.setdefault("its PE has a part of a region with several entries", []).extend(part.nodes)
    lines += [f"  {_called(graph, nodes)} cannot be replicated: {reason}" for reason, nodes in alone.items()]
    if not rows and not alone:
        lines.append("  there is nothing to replicate but sources and sinks, which run in one copy")
    asked = {"cores": cores, "pes": len(set(homes)) or None}
    return [*lines, f"  ({how_to_choose('copies and threads', asked)})"]


def how_to_choose(what: str, options: Mapping[str, Any]) -> str:
    """How to get a plan that chooses `what` by measurement, with these options where they are given.

    >>> how_to_choose("copies", {"cores": 8})
    'to choose copies by costs: pn.plan(flow, cores=8, profile=pn.profile(flow)), or penstock plan --cores 8 --profile'
    """
    given = {name: value for name, value in options.items() if value is not None}
    python = "".join(f", {name}={value!r}" for name, value in given.items())
    command = "".join(f" --{name} {value}" for name, value in given.items())
    call = f"pn.plan(flow{python}, profile=pn.profile(flow))"
    return f"to choose {what} by costs: {call}, or penstock plan{command} --profile"


def _members(graph: Graph, regions: Regions) -> list[tuple[int, ...]]:
    """The operators of each region that can be replicated, from the sources down."""
    found: dict[int, list[int]] = {}
    for index in graph.topological:
        if index in regions.of_node:
            found.setdefault(regions.of_node[index], []).append(index)
    return [tuple(nodes) for nodes in found.values()]


def _open_row(graph: Graph, group: Group, homes: Sequence[int]) -> tuple[str, str, str]:
    region = part_of(graph, group.nodes)
    where = f"PE {homes[group.entry] + 1}, " if homes else ""
    split = f"split by {region.key}" if region.key else "split by their keys" if region.own_keys else "dealt in turn"
    if region.width is None:
        return where + "1 copy", f"may have more, {split}", names(graph, group)
    return where + _copies(region.width), f"as parallel() asks for, {split}", names(graph, group)


def _copies(number: int) -> str:
    return f"{number} copy" if number == 1 else f"{number} copies"


def counted(number: int, noun: str) -> str:
    """So many of something.

    >>> counted(1, "thread"), counted(2, "thread")
    ('1 thread', '2 threads')
    """
    return f"{number} {noun}" + ("" if number == 1 else "s")


def _headline(graph: Graph, physical: Physical) -> str:
    cores = counted(physical.machine.cores, "core")
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
    return " | ".join(_called(graph, line) for line in group.pipelines)


def _called(graph: Graph, nodes: Sequence[int]) -> str:
    called = [graph.nodes[index].name for index in nodes]
    if len(called) > 2 * _FEW:
        called = [*called[:_FEW], f"… {len(called) - 2 * _FEW} more …", *called[-_FEW:]]
    return ", ".join(called)
