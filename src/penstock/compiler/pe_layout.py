"""Layouts of programs in several PEs: no thread and no region goes beyond its process.

A layout is found for the program as a whole and then cut where PEs meet. What is left of a replicated region in a PE is
replicated there, with a split and a merge of its own, if it still has one entry; else it runs in one copy.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence

from penstock.compiler.fission import why_single
from penstock.compiler.physical import Group, Pipeline
from penstock.compiler.regions import part_of
from penstock.errors import FlowError
from penstock.graph.graph import Graph


def cut_at_pes(graph: Graph, groups: Iterable[Group], homes: Sequence[int]) -> list[Group]:
    """`groups`, each cut in as many as there are PEs in it; `homes` is the PE of each operator, empty if there is one.

    >>> import penstock as pn
    >>> flow = pn.Flow()
    >>> _ = flow.source([1]).map(abs).map(abs).collect()
    >>> groups = [Group(((0,),)), Group(((1, 2),), width=2), Group(((3,),))]
    >>> [(group.pipelines, group.width) for group in cut_at_pes(flow.graph(), groups, [0, 0, 1, 1])]
    [(((0,),), 1), (((1,),), 2), (((2,),), 2), (((3,),), 1)]
    """
    if not homes:
        return list(groups)
    rank = {index: place for place, index in enumerate(graph.topological)}
    cut = [part for group in groups for part in _parts(graph, group, homes)]
    return sorted(cut, key=lambda group: rank[group.entry])


def _parts(graph: Graph, group: Group, homes: Sequence[int]) -> Iterator[Group]:
    pes = sorted({homes[index] for index in group.nodes})
    if len(pes) == 1:
        yield group
        return
    for pe in pes:
        lines = [part for line in group.pipelines for part in connected(graph, (i for i in line if homes[i] == pe))]
        if group.width == 1:
            yield Group(tuple(lines))
            continue
        for piece in connected(graph, sorted((i for line in lines for i in line), key=graph.topological.index)):
            inside = tuple(line for line in lines if not set(piece).isdisjoint(line))
            yield Group(inside, group.width if _replicable(graph, piece) else 1)


def _replicable(graph: Graph, nodes: Pipeline) -> bool:
    try:
        return why_single(graph, part_of(graph, nodes)) is None
    except FlowError:
        return False


def connected(graph: Graph, nodes: Iterable[int]) -> list[Pipeline]:
    """`nodes`, in topological order, parted into those that feed each other."""
    parts: list[list[int]] = []
    for index in nodes:
        feeders = set(graph.upstream(graph.nodes[index]))
        home = next((part for part in parts if not feeders.isdisjoint(part)), None)
        if home is None:
            parts.append([index])
        else:
            home.append(index)
    return [tuple(part) for part in parts]
