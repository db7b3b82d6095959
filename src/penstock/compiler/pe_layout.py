"""Layouts of programs in several PEs: no thread and no region goes beyond its process.

A layout is found for the program as a whole and then cut where PEs meet. What is left of a replicated region in a PE is
replicated there, with a split and a merge of its own; as several regions, where one split does not serve them all.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence

from penstock.compiler.fission import replicable_parts
from penstock.compiler.physical import Group, Pipeline
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
            found = replicable_parts(graph, piece)
            parts = [(region.nodes, group.width) for region in found.regions]
            parts += [(part, 1) for part in connected(graph, (i for i in piece if i in found.alone))]
            for nodes, width in parts:
                inside = [part for line in lines for part in connected(graph, (i for i in line if i in nodes))]
                yield Group(tuple(inside), width)


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
