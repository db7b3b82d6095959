"""Small steps from a layout to a better one.

The optimizer finds the best layout of the paper's model. What the planner rates by knows more: the GIL, the price of a
split by key, crowded cores. The best layout by that is rarely far away, and `improved` walks there: of the layouts one
step away it takes the best, as long as that is better. It ends, as each step raises the throughput and there are
finitely many layouts, and it can only gain.

A step moves one boundary or one copy: an operator changes over to the thread before it or after it, a thread is parted
or two are joined, a region gets or loses a copy. Boundaries move along plain links only, where the one operator has no
other reader and the other no other feeder, so that each thread still starts at one operator and runs all that follows
it; and not from one PE to another. Regions in several copies take up operators of their own region only, as
`replicable_regions` found them; what the user gave a width stays as it is.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from dataclasses import replace
from itertools import islice

from penstock.compiler.physical import Expected, Group, Pipeline
from penstock.compiler.regions import Regions, wish_of
from penstock.graph.graph import Graph
from penstock.graph.operations import Feedback

Layout = Sequence[Group]
_GAIN = 1e-3  # a step that gains less is none
_LOOKS = 20_000  # operators in all layouts that one walk looks at: a few milliseconds for each thousand


def improved(layout: list[Group], steps: Steps, rating: Callable[[list[Group]], Expected | None]) -> list[Group]:
    """`layout`, or a better one by `rating` that is some steps away.

    A walk looks at some layouts only: in large programs it may stop before it is at the top.
    """
    best, now = layout, rating(layout)
    if now is None:
        return layout
    left = max(1, _LOOKS // sum(len(group.nodes) for group in layout))
    throughput = now.throughput
    while left > 0:
        start = best
        for tried in islice(steps.away_from(start), left):
            left -= 1
            expected = rating(tried)
            if expected is not None and expected.throughput > throughput * (1 + _GAIN):
                best, throughput = tried, expected.throughput
        if best is start:
            break
    return best


class Steps:
    """The steps of layouts of one graph, with no more than `most` copies of a region.

    `homes` is the PE of each operator, empty if there is one.
    """

    def __init__(self, graph: Graph, regions: Regions, most: int, homes: Sequence[int] = ()) -> None:
        self._graph = graph
        self._regions = regions
        self._most = most
        self._fixed = {node.index for node in graph if wish_of(node) is not None}
        links = self._plain_links()
        self._after = {a: b for a, b in links.items() if not homes or homes[a] == homes[b]}

    def _plain_links(self) -> dict[int, int]:
        """Operator to operator, where the one is read by nobody else and the other fed by nobody else."""
        graph, links = self._graph, {}
        for node in graph:
            feeders = [stream.node for entry in node.inputs for stream in entry.streams]
            if len(feeders) != 1 or isinstance(node.operation, Feedback):
                continue
            feeder = graph.nodes[feeders[0]]
            readers = [
                reader for port in range(feeder.operation.outputs) for reader in graph.readers(feeder.index, port)
            ]
            if len(readers) == 1:
                links[feeder.index] = node.index
        return links

    def away_from(self, layout: Layout) -> Iterator[list[Group]]:
        """The layouts one step away."""
        for number, group in enumerate(layout):
            for changed in (*self._copies(group), *self._joined(group), *self._parted(group)):
                yield [*layout[:number], changed, *layout[number + 1 :]]
        yield from self._changes_over(layout)

    def joined(self, layout: Layout) -> list[Group]:
        """`layout` with regions of one copy that follow each other made one, as the rules of §3.1 have it."""
        groups = list(layout)
        home = {node: number for number, group in enumerate(groups) for node in group.nodes}
        for before, after in self._after.items():
            left, right = home[before], home[after]
            if left == right or groups[left].width > 1 or groups[right].width > 1:
                continue
            if groups[right].entry != after or not self._fixed.isdisjoint((*groups[left].nodes, *groups[right].nodes)):
                continue
            moved = groups[right].nodes
            groups[left] = replace(groups[left], pipelines=groups[left].pipelines + groups[right].pipelines)
            groups[right] = replace(groups[right], pipelines=())
            home.update(dict.fromkeys(moved, left))
        return [group for group in groups if group.pipelines]

    def _copies(self, group: Group) -> Iterator[Group]:
        if not self._fixed.isdisjoint(group.nodes):
            return
        if group.width > 1:
            yield replace(group, width=group.width - 1)
        if group.width < self._most and self._replicable(group.nodes):
            yield replace(group, width=group.width + 1)

    def _joined(self, group: Group) -> Iterator[Group]:
        lines = group.pipelines
        for at in range(len(lines) - 1):
            if any(self._after.get(node) == lines[at + 1][0] for node in lines[at]):
                yield replace(group, pipelines=(*lines[:at], lines[at] + lines[at + 1], *lines[at + 2 :]))

    def _parted(self, group: Group) -> Iterator[Group]:
        lines = group.pipelines
        for at, line in enumerate(lines):
            for cut in range(1, len(line)):
                if self._after.get(line[cut - 1]) == line[cut] and self._linear(line[cut:]):
                    yield replace(group, pipelines=(*lines[:at], line[:cut], line[cut:], *lines[at + 1 :]))

    def _linear(self, line: Pipeline) -> bool:
        return all(self._after.get(line[n]) == line[n + 1] for n in range(len(line) - 1))

    def _changes_over(self, layout: Layout) -> Iterator[list[Group]]:
        """Layouts in which one operator beside a boundary is on the other side of it."""
        place = {
            node: (g, p) for g, group in enumerate(layout) for p, line in enumerate(group.pipelines) for node in line
        }
        for before, after in self._after.items():
            here, there = place[before], place[after]
            if here == there:
                continue
            left, right = _line(layout, here), _line(layout, there)
            if len(right) == 1 or self._after.get(after) == right[1]:
                yield from self._with(layout, {here: (*left, after), there: right[1:]})
            yield from self._with(layout, {here: tuple(n for n in left if n != before), there: (before, *right)})

    def _with(self, layout: Layout, lines: dict[tuple[int, int], Pipeline]) -> Iterator[list[Group]]:
        """`layout` with other `lines` at some places, if it is one."""
        changed: list[Group] = []
        for number, group in enumerate(layout):
            new = [lines.get((number, place), line) for place, line in enumerate(group.pipelines)]
            kept = replace(group, pipelines=tuple(line for line in new if line))
            if kept.pipelines == group.pipelines:
                changed.append(group)
                continue
            if not self._fixed.isdisjoint((*group.nodes, *kept.nodes)):
                return
            if kept.pipelines:
                if kept.width > 1 and not self._replicable(kept.nodes):
                    return
                changed.append(kept)
        yield changed

    def _replicable(self, nodes: Pipeline) -> bool:
        """Whether one region holds all of `nodes`."""
        numbers = {self._regions.of_node.get(node) for node in nodes}
        return len(numbers) == 1 and None not in numbers


def _line(layout: Layout, place: tuple[int, int]) -> Pipeline:
    return layout[place[0]].pipelines[place[1]]
