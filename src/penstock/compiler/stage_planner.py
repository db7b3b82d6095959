"""From a profile to stages: channels of each, pipelines where one channel must do, what to expect, and why.

Which operators share a stage follows from keys and state (`stages`), whatever they cost. What is decided here is how
each stage runs. The stages of a batch run one after the other, so each can be decided by itself:

* a keyed stage gets the fewest channels with which a batch takes as long as with the best number of them, give or take
  one in a hundred; as `flow.parallel(width)` asks for, where it does;
* a stage that keeps state over the whole stream has one channel. While it runs, the other cores have nothing to do.
  Where some of its operators free the GIL it may run as several pipelines, if the model says that this pays.

Without a profile nothing is known to pay: every keyed stage has a channel for each core, every stage one pipeline.
"""

from __future__ import annotations

from collections.abc import Collection, Iterator, Mapping, Sequence
from dataclasses import replace
from itertools import pairwise

from penstock.compiler.batches import Cluster, StageLoad, expect_batches, pipelined, stage_loads, stage_time
from penstock.compiler.physical import Expected, Group, Physical, Pipeline
from penstock.compiler.planner import (
    ALIKE,
    best_of,
    completed,
    held_shares,
    known,
    micros,
    overlap,
    plainly_alone,
    trimmed,
)
from penstock.compiler.safety import why_not
from penstock.compiler.stages import Stages, find_stages
from penstock.compiler.weights import weigh
from penstock.errors import PenstockError
from penstock.graph.graph import Graph
from penstock.optimizer.graphs import Link, OpGraph, optimal_graph
from penstock.optimizer.model import Op
from penstock.optimizer.profile import Profile

_FREE = 0.5  # of an operator's cost without the GIL: enough to give it a thread of its own a try


def decide_stages(graph: Graph, profile: Profile | None, cluster: Cluster, ahead: Collection[int] = ()) -> Physical:
    """How the stages of `graph` run: one group for each, and a last one for the sinks, which the driver serves.

    `ahead` are the sources that the driver reads, beside the batches.

    >>> import penstock as pn
    >>> from penstock.optimizer.profile import OperatorProfile
    >>> flow = pn.Flow()
    >>> total = flow.source([1], name="numbers").scan(lambda n, t: (n + t, n + t), init=0, name="total")
    >>> _ = total.map_batch(list, name="work").collect(name="out")
    >>> costs = {"numbers": 1e-6, "total": 5e-6, "work": 9e-6, "out": 1e-6}
    >>> profile = Profile("any", {name: OperatorProfile(cost, 1.0, 100) for name, cost in costs.items()})
    >>> physical = decide_stages(flow.graph(), profile, Cluster(cores=4, delta=1e-7, cp=1e-7, gil=True, port=1e-8))
    >>> [(group.pipelines, group.width) for group in physical.groups]
    [(((0,),), 4), (((1,), (2,)), 1), (((3,),), 1)]
    """
    stages = find_stages(graph)
    planner = _Planner(graph, stages, profile, cluster, ahead)
    groups = planner.groups()
    expected = None if profile is None else planner.expect(groups)
    return Physical(
        tuple(replace(group, reason=planner.why(number, group)) for number, group in enumerate(groups)),
        cluster,
        expected,
        cuts={} if expected is None else planner.cuts(groups),
        costs={} if profile is None else {node.index: known(profile, node.name).cost for node in graph},
        arrivals={} if profile is None else dict(enumerate(planner.weights.arrivals)),
    )


def expect_stages(
    graph: Graph,
    groups: Sequence[Group],
    profile: Profile,
    cluster: Cluster,
    ahead: Collection[int] = (),
    rates: Mapping[str, float] | None = None,
) -> Expected | None:
    """What the model says of stages that were decided before, with the costs of `profile`.

    `rates` are those of sources by name, 1 where nothing is said; times and throughput are per 1.
    """
    return _Planner(graph, find_stages(graph), profile, cluster, ahead, rates).expect(groups)


def stage_nodes(graph: Graph, stages: Stages) -> list[Pipeline]:
    """The operators of each level in topological order, and last the sinks."""
    levels = [
        tuple(i for i in graph.topological if level in stages.present[i] and not graph.nodes[i].is_sink)
        for level in range(stages.levels + 1)
    ]
    return [*levels, tuple(i for i in graph.topological if graph.nodes[i].is_sink)]


def check_stages(graph: Graph, groups: Sequence[Group]) -> None:
    """Raise `PenstockError` unless `groups` are the stages of `graph`, run in a way they can be."""
    stages = find_stages(graph)
    wanted = stage_nodes(graph, stages)
    if len(groups) != len(wanted) or any(
        sorted(group.nodes) != sorted(nodes) for group, nodes in zip(groups, wanted, strict=True)
    ):
        raise PenstockError(f"this plan is not one of flow '{graph.name}': its stages hold other operators")
    for level, group in enumerate(groups):
        single = level in stages.single or level > stages.levels
        if group.width < 1 or not all(group.pipelines) or (single and group.width > 1):
            raise PenstockError(f"stage {level} of this plan cannot run in {group.width} channels")
        if len(group.pipelines) > 1 and level not in stages.single:
            raise PenstockError(f"stage {level} of this plan cannot run as pipelines: it is replicated, or the driver")


class _Planner:
    def __init__(
        self,
        graph: Graph,
        stages: Stages,
        profile: Profile | None,
        cluster: Cluster,
        ahead: Collection[int],
        rates: Mapping[str, float] | None = None,
    ) -> None:
        self.graph, self.stages, self.cluster, self.profile = graph, stages, cluster, profile
        measured = completed(graph, profile if profile is not None else Profile(graph.name))
        self.weights = weigh(graph, measured, rates=rates)
        self.loads = stage_loads(graph, stages, self.weights, ahead)
        self.reading = sum(self.weights.load[index] for index in ahead)
        self.held = dict(enumerate(held_shares(graph, measured)))

    def expect(self, groups: Sequence[Group]) -> Expected | None:
        return expect_batches(groups, self.loads, self.cluster, self.held, self.reading)

    def time(self, group: Group, load: StageLoad) -> float:
        return stage_time(group, load, self.cluster, self.held)

    # ---------------------------------------------------------------------------------------------------- deciding

    def groups(self) -> list[Group]:
        nodes = stage_nodes(self.graph, self.stages)
        widest = [Group((line,), self._most(level, line), self._key(level, line)) for level, line in enumerate(nodes)]
        if self.profile is None:
            return widest
        least = [self._least(group, load) for group, load in zip(widest, self.loads, strict=True)]
        slack = ALIKE * sum(least)
        for level in sorted(range(len(widest)), key=least.__getitem__):  # what takes least has most to spare
            widest[level] = self._narrowed(level, widest[level], least[level] + slack)
            slack -= max(0.0, self.time(widest[level], self.loads[level]) - least[level])
        return widest

    def _is_single(self, level: int) -> bool:
        return level in self.stages.single or level > self.stages.levels

    def _most(self, level: int, line: Pipeline) -> int:
        wish = self._wish(level, line)
        return 1 if self._is_single(level) else self.cluster.cores if wish is None else wish

    def _wish(self, level: int, line: Pipeline) -> int | None:
        """The width that the user asked for: that of an operator whose state makes this a stage."""
        wishes = [self.graph.nodes[i].annotations.parallel for i in line if self.stages.level.get(i) == level]
        widths = [wish.width for wish in wishes if wish is not None and wish.width is not None]
        return max(widths) if widths and not self._is_single(level) else None

    def _key(self, level: int, line: Pipeline) -> str:
        if self._is_single(level):
            return ""
        keys = (self.graph.nodes[index].key for index in line if self.stages.level.get(index) == level)
        return ", ".join(sorted({str(key) for key in keys if key is not None}))

    def _widths(self, group: Group) -> Iterator[Group]:
        for width in range(1, group.width + 1):
            yield replace(group, width=width)

    def _least(self, group: Group, load: StageLoad) -> float:
        return min(self.time(one, load) for one in self._widths(group))

    def _narrowed(self, level: int, group: Group, limit: float) -> Group:
        """The stage with the fewest channels that take no longer than `limit`; in pipelines, where it has one."""
        load = self.loads[level]
        if level == 0 or self._wish(level, group.nodes) is not None:
            return group  # a task for each core reads the sources
        if level in self.stages.single:
            return self._piped(group, load)
        return next(one for one in self._widths(group) if self.time(one, load) <= limit)

    def _piped(self, group: Group, load: StageLoad) -> Group:
        """The pipelines of a stage with one channel that the model likes best, the fewest of those as good."""
        if self.cluster.cores == 1 or len(group.nodes) == 1 or sum(load.load.values()) <= 0:
            return group

        def rating(layout: Sequence[Group]) -> Expected | None:
            return pipelined(layout[0], load, self.cluster, self.held)

        layouts = [[group], *([replace(group, pipelines=lines)] for lines in self._lines(group.nodes, load))]
        return trimmed(self.graph, best_of([(rating(layout), layout) for layout in layouts])[1], rating)[0]

    def _lines(self, nodes: Pipeline, load: StageLoad) -> Iterator[tuple[Pipeline, ...]]:
        """Pipelines worth a look: the optimizer's for some, half and all cores, and cuts around what frees the GIL."""
        ops = _stage_ops(nodes, load)
        rank = {index: place for place, index in enumerate(self.graph.topological)}
        most = min(self.cluster.cores, len(nodes))
        for cores in sorted({2, (most + 1) // 2, most} - {1}):
            plan = optimal_graph(ops, cores, self.cluster.port, 0.0, max_replicas=1)
            lines = [
                tuple(sorted((nodes[i] for members in chain.operators[a:b] for i in members), key=rank.__getitem__))
                for chain in plan.chains
                for region in chain.config.regions
                for a, b in region.pipelines
            ]
            yield tuple(sorted(lines, key=lambda line: rank[line[0]]))
        free = [self.held[index] < 1 - _FREE for index in nodes]
        starts = [0, *(i for i in range(1, len(nodes)) if free[i] or free[i - 1]), len(nodes)]
        yield tuple(nodes[a:b] for a, b in pairwise(starts))

    # ----------------------------------------------------------------------------------------------------- reasons

    def why(self, level: int, group: Group) -> str:
        if level == 0:
            return "a task for each core reads its part of the sources"
        if level > self.stages.levels:
            return "one thread: sinks receive the whole stream in order"
        if level in self.stages.single:
            return f"one channel: {self._why_single(level, group)}"
        if self._wish(level, group.nodes) is not None:
            return "as parallel() asks for"
        if self.profile is None:
            return "a channel for each core"
        load = self.loads[level]
        time = self.time(group, load)
        if group.width == 1:
            return f"one channel keeps up: {micros(time)} per source tuple"
        alone = self.time(replace(group, width=1), load)
        return f"one channel would take {micros(alone)} per source tuple, these take {micros(time)}"

    def _why_single(self, level: int, group: Group) -> str:
        reasons: dict[str, list[str]] = {}
        for index in group.nodes:
            node = self.graph.nodes[index]
            if self.stages.level.get(index) == level and not plainly_alone(self.graph, index):
                reasons.setdefault(why_not(node) or "streams meet there in one order", []).append(node.name)
        return "; ".join(f"{', '.join(names)}: {reason}" for reason, names in reasons.items())

    def cuts(self, groups: Sequence[Group]) -> dict[int, str]:
        """Why a pipeline starts where it does."""
        found = {}
        for group, load in zip(groups, self.loads, strict=True):
            for before, after in pairwise(group.pipelines):
                found[after[0]] = overlap(*(sum(load.load[i] for i in line) for line in (before, after)))
        return found


def _stage_ops(nodes: Pipeline, load: StageLoad) -> OpGraph:
    """The operators of a stage for the optimizer, by their place in `nodes`; none of them can be replicated."""
    place = {index: number for number, index in enumerate(nodes)}
    inner = {link: sent for link, sent in load.links.items() if link[0] in place and link[1] in place}
    arrivals: Mapping[int, float] = {i: sum(sent for (_, to), sent in inner.items() if to == i) or 1.0 for i in nodes}
    ops = tuple(Op(load.load[index] / arrivals[index], kind="stateful") for index in nodes)
    links = tuple(Link(place[a], place[b], sent / arrivals[a]) for (a, b), sent in inner.items())
    return OpGraph(ops, links)
