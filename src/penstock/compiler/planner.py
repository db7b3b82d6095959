"""From a profile to a layout: regions, pipelines and replicas by the optimizer, with the reason for each choice."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass, replace

from penstock.compiler.fission import replicable_regions
from penstock.compiler.pe_layout import connected, cut_at_pes
from penstock.compiler.physical import Expected, Group, Machine, Physical, expect
from penstock.compiler.regions import ONE_COPY, Regions, as_op_graph, part_of, wish_of
from penstock.compiler.steps import Steps, improved
from penstock.compiler.weights import Weights, weigh
from penstock.errors import PenstockError
from penstock.graph.graph import Graph
from penstock.graph.operations import MapBatch
from penstock.optimizer.graphs import GraphPlan, OpGraph, optimal_graph
from penstock.optimizer.model import Op
from penstock.optimizer.profile import OperatorProfile, Profile

_FEW = 5  # names in a message
ALIKE = 0.01  # throughputs that differ by this part are the same to a model


def decide(graph: Graph, profile: Profile, machine: Machine, homes: Sequence[int] = ()) -> Physical:
    """The layout of `graph` with the highest throughput the model knows of, give or take one in a hundred.

    With several PEs, `homes` is that of each operator, and nothing in the layout goes beyond one.

    >>> import penstock as pn
    >>> flow = pn.Flow()
    >>> _ = flow.source([1], name="numbers").map_batch(list, name="work").collect(name="out")
    >>> costs = {"numbers": 1e-6, "work": 9e-6, "out": 1e-6}
    >>> profile = Profile("any", {name: OperatorProfile(cost, 1.0, 100) for name, cost in costs.items()})
    >>> physical = decide(flow.graph(), profile, Machine(cores=4, delta=1e-8, cp=1e-8))
    >>> [(group.pipelines, group.width) for group in physical.groups]
    [(((0,),), 1), (((1,),), 4), (((2,),), 1)]
    """
    weights = weigh(graph, completed(graph, profile))
    regions = replicable_regions(graph)
    held = held_shares(graph, profile)
    keys = _Keys(graph)

    def rating(layout: list[Group]) -> Expected | None:
        return expect([keys.on(group) for group in layout], weights, machine, held, homes)

    layouts = [
        with_keys(graph, cut_at_pes(graph, _with_wishes(graph, regions, layout), homes))
        for layout in _layouts(graph, regions, weights, machine, held)
    ]

    steps = Steps(graph, regions, machine.cores, homes)
    different = [list(layout) for layout in dict.fromkeys(map(tuple, layouts))]
    better = [steps.joined(improved(layout, steps, rating)) for layout in different]
    best = best_of([(rating(layout), layout) for layout in better])
    once = steps.joined(trimmed(graph, best[1], rating))
    groups = trimmed(graph, once, rating, best[0])  # what has one copy left may share a thread with its neighbours
    expected = rating(groups)
    reasons = _Reasons(graph, regions, weights, machine, groups, expected, homes)
    return Physical(
        tuple(replace(group, reason=reasons.of_group(n)) for n, group in enumerate(with_keys(graph, groups))),
        machine,
        expected,
        alone={
            index: reason
            for index, reason in regions.alone.items()
            if reason != ONE_COPY and not plainly_alone(graph, index)
        },
        cuts=reasons.cuts(),
        costs={node.index: known(profile, node.name).cost for node in graph},
        arrivals=dict(enumerate(weights.arrivals)),
    )


def best_of(rated: Sequence[tuple[Expected | None, list[Group]]]) -> tuple[Expected | None, list[Group]]:
    """Of those as good as the fastest, as far as a model can tell, one with the fewest threads."""
    fastest = max((expected.throughput for expected, _ in rated if expected is not None), default=0.0)
    good = [one for one in rated if one[0] is None or one[0].throughput >= fastest * (1 - ALIKE)]
    return min(good, key=lambda one: (sum(group.threads for group in one[1]), -one[0].throughput if one[0] else 0.0))


def trimmed(
    graph: Graph,
    layout: list[Group],
    rating: Callable[[list[Group]], Expected | None],
    now: Expected | None = None,
) -> list[Group]:
    """`layout` without the copies and threads that add nothing a model could tell to what is expected `now`."""
    now = now if now is not None else rating(layout)
    least = now.throughput * (1 - ALIKE) if now is not None else 0.0
    number = 0
    while number < len(layout):
        for smaller in _smaller(graph, layout[number]):
            tried = [*layout[:number], smaller, *layout[number + 1 :]]
            expected = rating(tried)
            if expected is not None and expected.throughput >= least:
                layout = tried
                break
        else:
            number += 1
    return layout


def _smaller(graph: Graph, group: Group) -> Iterator[Group]:
    """A region with one copy less, or with two neighbouring pipelines made one."""
    if group.width > 1 and wish_of(graph.nodes[group.entry]) is None:
        yield replace(group, width=group.width - 1)
    lines = group.pipelines
    for at in range(len(lines) - 1):
        yield replace(group, pipelines=(*lines[:at], lines[at] + lines[at + 1], *lines[at + 2 :]))


def known(profile: Profile, name: str) -> OperatorProfile:
    return profile.operators.get(name, OperatorProfile(0.0, 1.0, 0))


def completed(graph: Graph, profile: Profile) -> Profile:
    """`profile` with an entry for each operator: one that was never measured is taken to cost nothing.

    Raises `PenstockError` for the profile of another program: one that knows none of these operators.
    """
    if profile.operators and not any(node.name in profile.operators for node in graph):
        known_names, names = _some(profile.operators), _some(node.name for node in graph)
        raise PenstockError(
            f"this profile, of flow '{profile.flow}', knows no operator of flow '{graph.name}': "
            f"it has {known_names}, the flow has {names}"
        )
    return Profile(profile.flow, {node.name: known(profile, node.name) for node in graph})


def _some(names: Iterable[str]) -> str:
    """The first few of `names`."""
    found = list(names)
    return ", ".join(found[:_FEW]) + (f" and {len(found) - _FEW} more" if len(found) > _FEW else "")


def held_shares(graph: Graph, profile: Profile) -> list[float]:
    """The part of each operator's cost during which it holds the GIL: none of a batch operator's if nobody knows."""
    free = [known(profile, node.name).free for node in graph]
    return [
        1.0 - (float(isinstance(node.operation, MapBatch)) if part is None else part)
        for node, part in zip(graph, free, strict=True)
    ]


# ------------------------------------------------------------------------------------------------------- candidates


def _layouts(
    graph: Graph, regions: Regions, weights: Weights, machine: Machine, held: Sequence[float]
) -> Iterator[list[Group]]:
    """Layouts worth a look, by the optimizer.

    It knows of cores and not of the GIL. Where there is one, the best layouts for fewer cores are looked at too, and
    those in which only operators that free it are replicated. Nor does it tell one split from another: the best layouts
    for either price are looked at.
    """
    ops = as_op_graph(graph, regions, weights)
    yield _whole_regions(graph, regions, machine.cores)
    for cp in sorted({machine.cp, machine.keyed_cp}):
        yield _groups(graph, optimal_graph(ops, machine.cores, machine.delta, cp))
    if machine.gil:
        single = tuple(Op(op.cost, kind="stateful") if held[i] > 0.5 else op for i, op in enumerate(ops.ops))
        apart = OpGraph(single, ops.links, ops.rates)
        for cores in sorted({1, (machine.cores + 1) // 2, machine.cores}):
            yield _groups(graph, optimal_graph(apart, cores, machine.delta, machine.cp))


def _groups(graph: Graph, plan: GraphPlan) -> list[Group]:
    rank = {index: place for place, index in enumerate(graph.topological)}
    groups = []
    for chain in plan.chains:
        for region in chain.config.regions:
            lines = [
                tuple(
                    sorted((node for members in chain.operators[start:stop] for node in members), key=rank.__getitem__)
                )
                for start, stop in region.pipelines
            ]
            groups.append(Group(tuple(lines), region.replicas))
    return sorted(groups, key=lambda group: rank[group.entry])


def _whole_regions(graph: Graph, regions: Regions, width: int) -> list[Group]:
    """Each region in so many copies, each copy in one thread: where one region matters, as many are busy as cores."""
    rank = {index: place for place, index in enumerate(graph.topological)}
    numbers = sorted(set(regions.of_node.values()))
    rest = [index for index in graph.topological if index not in regions.of_node]
    groups = [
        Group((tuple(index for index in graph.topological if regions.of_node.get(index) == n),), width) for n in numbers
    ]
    groups += [Group((part,)) for part in connected(graph, rest)]
    return sorted(groups, key=lambda group: rank[group.entry])


def overlap(left: float, right: float) -> str:
    """Why a pipeline starts where one does."""
    return f"{micros(left)} per source tuple before it and {micros(right)} from it on overlap"


def _with_wishes(graph: Graph, regions: Regions, groups: Sequence[Group]) -> list[Group]:
    """`groups` with the regions that the user gave a width, in that width."""
    wished = {number: region for number, region in enumerate(regions.regions) if region.width is not None}
    inside = {index for region in wished.values() for index in region.nodes}
    if not inside:
        return list(groups)
    rank = {index: place for place, index in enumerate(graph.topological)}
    result: list[Group] = []
    for group in groups:
        if inside.isdisjoint(group.nodes):
            result.append(group)
            continue
        for line in group.pipelines:
            result += [Group((part,), group.width) for part in connected(graph, [i for i in line if i not in inside])]
    for region in wished.values():
        lines = [tuple(i for i in line if i in region.nodes) for group in groups for line in group.pipelines]
        lines = sorted((line for line in lines if line), key=lambda line: rank[line[0]])
        result.append(Group(tuple(lines), region.width or 1))
    return sorted(result, key=lambda group: rank[group.entry])


def with_keys(graph: Graph, groups: Iterable[Group]) -> list[Group]:
    """`groups`, those in several copies with what their stream is split by."""
    key = _Keys(graph)
    return [key.on(group) for group in groups]


class _Keys:
    """What groups are split by, each found once."""

    def __init__(self, graph: Graph) -> None:
        self._graph = graph
        self._found: dict[tuple[int, ...], str] = {}

    def on(self, group: Group) -> Group:
        key = "" if group.width == 1 else self._found.get(group.nodes)
        if key is None:
            part = part_of(self._graph, group.nodes)
            key = str(part.key) if part.key is not None else "their keys" if part.own_keys else ""
            self._found[group.nodes] = key
        return group if group.key == key else replace(group, key=key)


# ---------------------------------------------------------------------------------------------------------- reasons


def plainly_alone(graph: Graph, index: int) -> bool:
    """Sources and sinks: nobody wonders."""
    return graph.nodes[index].is_source or graph.nodes[index].is_sink


def micros(seconds: float) -> str:
    """A time per tuple as people read it.

    >>> micros(1.234e-5), micros(2.5e-3), micros(0.0), micros(3e-9)
    ('12.3 µs', '2.5 ms', '0 µs', '0.003 µs')
    """
    return f"{seconds * 1e3:.3g} ms" if seconds >= 1e-3 else f"{seconds * 1e6:.3g} µs"


@dataclass(frozen=True)
class _Reasons:
    graph: Graph
    regions: Regions
    weights: Weights
    machine: Machine
    groups: Sequence[Group]
    expected: Expected | None
    homes: Sequence[int] = ()

    def _work(self, nodes: Iterable[int]) -> float:
        return sum(self.weights.load[index] for index in nodes)

    def of_group(self, number: int) -> str:
        group = self.groups[number]
        if group.width > 1 and wish_of(self.graph.nodes[group.entry]) is not None:
            return "as parallel() asks for"
        if self.expected is None:
            return "nothing here costs anything"
        time = self.expected.times[number]
        if group.width > 1:
            return f"one copy would take {micros(self._work(group.nodes))} per source tuple, these take {micros(time)}"
        return self._why_single(group, number)

    def _why_single(self, group: Group, number: int) -> str:
        assert self.expected is not None
        alone = [index for index in group.nodes if index in self.regions.alone]
        if len(alone) == len(group.nodes):
            first = next((i for i in alone if not plainly_alone(self.graph, i)), alone[0])
            return f"one copy: {self.graph.nodes[first].name}: {self.regions.alone[first]}"
        if self.machine.cores == 1:
            return "one copy: there is one core"
        if self.expected.limit == "gil" and (not self.homes or self.homes[group.entry] == self.expected.slowest_pe):
            return "one copy: Python code of one process runs on one core at a time"
        if self.expected.limit == "cores":
            return "one copy: all cores are busy as it is"
        if number == self.expected.bottleneck:
            slowest = max(group.pipelines, key=self._work)
            barred = [index for index in slowest if index in self.regions.alone]
            if barred:
                heaviest = max(barred, key=self.weights.load.__getitem__)
                return f"one copy: {self.graph.nodes[heaviest].name}: {self.regions.alone[heaviest]}"
            return "one copy: more would cost more than they gain"
        return f"one copy keeps up: {micros(self.expected.times[number])} per source tuple"

    def cuts(self) -> dict[int, str]:
        """Why a pipeline starts where it does, for all that do not start a region or the program."""
        found = {}
        for group in self.groups:
            for before, after in zip(group.pipelines, group.pipelines[1:], strict=False):
                left, right = self._work(before), self._work(after)
                found[after[0]] = overlap(left, right)
        return found
