"""The PEs of a plan: which operators share a process, what goes from one process to another, and why.

`fuse` divides a graph under a load limit; here the limit is sought that makes the number of PEs asked for. The busiest
is to have little to do, but a quarter more than the least is fine where less is sent then. What the user said with
`colocate`, `exlocate` and `isolate` always holds.
"""

from __future__ import annotations

import math
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from penstock.compiler.fusion import Fusion, fuse
from penstock.compiler.weights import Weights
from penstock.errors import FlowError
from penstock.graph.graph import Graph

_FINER = 1.04  # the load limit grows by this factor until there are few enough PEs …
_UNEVEN = 1.25  # … and on to this factor, if less is sent then


@dataclass(frozen=True, slots=True)
class PlannedPE:
    """One PE: its operators in topological order; its `load`, as a part of that of all PEs; and why these operators.

    `sends` is what it sends to other PEs per tuple of the sources: tuples times their bytes, where sizes are known.
    """

    nodes: tuple[int, ...]
    load: float
    sends: float
    reason: str = ""


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
            f"{_said(graph)} need {len(freest.pes)} PEs, more than the {count} asked for: operators that must not meet "
            + " and ".join(f"'{graph.nodes[pe[0]].name}'" for pe in freest.pes)
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


def _said(graph: Graph) -> str:
    """The constraints in use that part operators."""
    apart = sorted({group for node in graph for group in node.annotations.exlocate})
    said = [f"exlocate({group!r})" for group in apart]
    if any(node.annotations.isolate is not None for node in graph):
        said.append("isolate()")
    return " and ".join(said)


def _described(graph: Graph, weights: Weights, fusion: Fusion, number: int) -> PlannedPE:
    nodes, home = fusion.pes[number], fusion.of_node
    sends = math.fsum(
        amount
        for (source, target), amount in weights.traffic.items()
        if home[source] == number and home[target] != number
    )
    total = math.fsum(fusion.loads)
    load = fusion.loads[number] / total if total > 0 else 0.0
    return PlannedPE(nodes, load, sends, _why(graph, fusion, number))


def _why(graph: Graph, fusion: Fusion, number: int) -> str:
    """Why a PE holds its operators: what the user said about them, or else that the cut is cheap."""
    home, reasons = fusion.of_node, []
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
            reasons.append(f"colocate({group!r}) keeps {' and '.join(members)} together")
    if not reasons and len(fusion.pes) > 1:
        return "parted where the least is sent for the load that is shared"
    return "; ".join(reasons) or "nothing asks for another"


def pe_lines(graph: Graph, pes: Sequence[PlannedPE]) -> list[str]:
    """`pes` as text."""
    if not pes:
        return []
    between = math.fsum(pe.sends for pe in pes)
    noun = "PE" if len(pes) == 1 else "PEs"
    lines = [f"{len(pes)} {noun}, {between:.3g} tuples·bytes per source tuple between them (a tuple counts as 1 byte)"]
    for number, pe in enumerate(pes):
        names = ", ".join(graph.nodes[index].name for index in pe.nodes)
        lines.append(f"  PE {number + 1}: {pe.load:4.0%} of the load, sends {pe.sends:.3g}: {names}")
        lines.append(f"        {pe.reason}")
    return lines


def pes_data(graph: Graph, pes: Iterable[PlannedPE]) -> list[dict[str, Any]]:
    """`pes` for JSON, operators by name."""
    return [
        {
            "operators": [graph.nodes[index].name for index in pe.nodes],
            "load": pe.load,
            "sends": pe.sends,
            "reason": pe.reason,
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
        )
        for one in data
    )
    if pes and sorted(node for pe in pes for node in pe.nodes) != sorted(index.values()):
        raise ValueError("each operator must be in one PE")
    return pes
