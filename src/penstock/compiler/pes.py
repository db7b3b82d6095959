"""The PEs of a plan: which operators share a process, what goes from one process to another, and why.

`fuse` divides a graph under a load limit; here the limit is sought that makes the number of PEs asked for. The busiest
is to have little to do, but a quarter more than the least is fine where less is sent then. What the user said with
`colocate`, `exlocate` and `isolate` always holds, and PEs never feed each other in a circle (`fusion` says why).
"""

from __future__ import annotations

import math
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from penstock.compiler.colocation import drawn_in
from penstock.compiler.fusion import Fusion, fuse
from penstock.compiler.layout_text import rate
from penstock.compiler.physical import Physical
from penstock.compiler.weights import SIZE, Weights
from penstock.errors import FlowError
from penstock.graph.graph import Graph, Node

_FINER = 1.04  # the load limit grows by this factor until there are few enough PEs …
_UNEVEN = 1.25  # … and on to this factor, if less is sent then


@dataclass(frozen=True, slots=True)
class PlannedPE:
    """One PE: its operators in topological order; its `load`, as a part of that of all PEs; and why these operators.

    `sends` are the bytes it sends to other PEs per tuple of the sources. Where the size of some of those tuples is not
    known, `guessed` is true: they count as `weights.SIZE`.
    """

    nodes: tuple[int, ...]
    load: float
    sends: float
    reason: str = ""
    guessed: bool = False


def homes_of(pes: Sequence[PlannedPE]) -> tuple[int, ...]:
    """The PE of each operator; nothing where all are in one."""
    home = {index: number for number, pe in enumerate(pes) for index in pe.nodes}
    return tuple(home[index] for index in sorted(home)) if len(pes) > 1 else ()


def plan_pes(graph: Graph, weights: Weights, count: int) -> tuple[PlannedPE, ...]:
    """Up to `count` PEs for `graph`, with their load about even and little sent between them.

    Raises `FlowError` where what the user said contradicts itself, or cannot be had with so few PEs.

    >>> import penstock as pn
    >>> from penstock.compiler.weights import weigh
    >>> flow = pn.Flow()
    >>> _ = flow.source([1], name="in").map(abs, name="one").map(abs, name="two").collect(name="out")
    >>> [pe.nodes for pe in plan_pes(flow.graph(), weigh(flow.graph()), 2)]
    [(0, 1), (2, 3)]
    """
    total = math.fsum(weights.load)
    freest = fuse(graph, weights)
    if len(freest.pes) > count:
        raise FlowError(
            f"{_said(graph)} need {len(freest.pes)} PEs, more than the {count} asked for: one with "
            + ", one with ".join(f"operator '{node.name}' ({node.location})" for node in _apart(graph, freest))
            + ("; PEs must not feed each other in a circle" if len(freest.pes) > 2 else "")
        )
    tried, limit, last = [], total / count, total
    while limit < last:
        fusion = fuse(graph, weights, limit)
        if len(fusion.pes) <= count:
            tried.append(fusion)
            last = min(last, tried[0].busiest * _UNEVEN)
        limit *= _FINER
    found = min(tried, key=lambda fusion: (fusion.traffic, fusion.busiest), default=freest)
    return tuple(_described(graph, weights, found, number) for number in range(len(found.pes)))


def _apart(graph: Graph, fusion: Fusion) -> Iterator[Node]:
    """An operator of each PE: the first of which something was said, or else the first."""
    for pe in fusion.pes:
        nodes = [graph.nodes[index] for index in pe]
        said = (node for node in nodes if node.annotations.isolate is not None or node.annotations.exlocate)
        yield next(said, nodes[0])


def _said(graph: Graph) -> str:
    """The constraints in use that part operators."""
    apart = sorted({group for node in graph for group in node.annotations.exlocate})
    said = [f"exlocate({group!r})" for group in apart]
    if any(node.annotations.isolate is not None for node in graph):
        said.append("isolate()")
    return " and ".join(said)


def _described(graph: Graph, weights: Weights, fusion: Fusion, number: int) -> PlannedPE:
    nodes, home = fusion.pes[number], fusion.of_node
    sent = {
        (source, target): amount
        for (source, target), amount in weights.traffic.items()
        if home[source] == number and home[target] != number and amount
    }
    guessed = any(source in weights.guessed for source, _ in sent)
    total = math.fsum(fusion.loads)
    load = fusion.loads[number] / total if total > 0 else 0.0
    return PlannedPE(nodes, load, math.fsum(sent.values()), _why(graph, fusion, number), guessed)


def _why(graph: Graph, fusion: Fusion, number: int) -> str:
    """Why a PE holds its operators: what the user said about them, or else that the cut is cheap."""
    home, reasons = fusion.of_node, []
    drawn = drawn_in(graph)
    inside = [graph.nodes[index] for index in fusion.pes[number]]
    if any(node.annotations.isolate is not None for node in inside):
        reasons.append("isolate() keeps everything else out")
    for group in sorted({group for node in inside for group in node.annotations.exlocate}):
        others = sorted({home[n.index] + 1 for n in graph if group in n.annotations.exlocate} - {number + 1})
        if others:
            reasons.append(f"exlocate({group!r}) keeps it apart from PE {' and '.join(map(str, others))}")
    for group in sorted({group for node in inside for group in node.annotations.colocate}):
        members = [node.name for node in inside if group in node.annotations.colocate]
        if len(members) > 1:
            between = ", ".join(node.name for node in inside if node.index in drawn)
            reasons.append(
                f"colocate({group!r}) keeps {' and '.join(members)} together"
                + (f", and what is between them: {between}" if between else "")
            )
    if not reasons and len(fusion.pes) > 1:
        return "parted where the least is sent for the load that is shared"
    return "; ".join(reasons) or "nothing asks for another"


def pe_lines(graph: Graph, pes: Sequence[PlannedPE], physical: Physical | None = None) -> list[str]:
    """`pes` as text, with what `physical` expects of them."""
    if not pes:
        return []
    between = amount(math.fsum(pe.sends for pe in pes))
    noun = "PE" if len(pes) == 1 else "PEs"
    guess = f" (a tuple of unknown size counts as {amount(SIZE)})" if any(pe.guessed for pe in pes) else ""
    lines = [f"{len(pes)} {noun}, {between} per source tuple between them{guess}"]
    most = _most(pes, physical)
    for number, pe in enumerate(pes):
        names = ", ".join(graph.nodes[index].name for index in pe.nodes)
        up_to = f", up to {most[number]}" if most[number] else ""
        lines.append(f"  PE {number + 1}: {pe.load:4.0%} of the load, sends {amount(pe.sends)}{up_to}: {names}")
        lines.append(f"        {pe.reason}")
    return lines


def pe_labels(pes: Sequence[PlannedPE], physical: Physical | None = None) -> list[str]:
    """A few words on each of `pes`, for a picture."""
    most = _most(pes, physical)
    return [
        f"PE {number + 1}: {pe.load:.0%}" + (f", ≤ {most[number]}" if most[number] else "")
        for number, pe in enumerate(pes)
    ]


def _most(pes: Sequence[PlannedPE], physical: Physical | None) -> list[str]:
    """The throughput that each PE could reach if it had nobody to wait for, as text; empty where nobody knows."""
    times = physical.expected.pe_times if physical is not None and physical.expected is not None else ()
    return [rate(1 / time) if time > 0 else "" for time in times] or [""] * len(pes)


def amount(size: float) -> str:
    """Bytes as people read them.

    >>> amount(0.0), amount(1.0), amount(37.25), amount(1200.0), amount(2.5e6)
    ('0 bytes', '1 byte', '37.2 bytes', '1.2 kB', '2.5 MB')
    """
    for unit, name in ((1e6, "MB"), (1e3, "kB")):
        if size >= unit:
            return f"{size / unit:.3g} {name}"
    return f"{size:.3g} byte" + ("" if size == 1 else "s")


def pes_data(graph: Graph, pes: Iterable[PlannedPE]) -> list[dict[str, Any]]:
    """`pes` for JSON, operators by name."""
    return [
        {
            "operators": [graph.nodes[index].name for index in pe.nodes],
            "load": pe.load,
            "sends": pe.sends,
            "reason": pe.reason,
            "guessed": pe.guessed,
        }
        for pe in pes
    ]


def pes_of(data: Iterable[Mapping[str, Any]], index: Mapping[str, int]) -> tuple[PlannedPE, ...]:
    """What `pes_data` gave, back."""
    pes = tuple(
        PlannedPE(
            tuple(index[name] for name in one["operators"]),
            float(one["load"]),
            float(one["sends"]),
            str(one["reason"]),
            bool(one.get("guessed", True)),
        )
        for one in data
    )
    if pes and sorted(node for pe in pes for node in pe.nodes) != sorted(index.values()):
        raise ValueError("each operator must be in one PE")
    return pes
