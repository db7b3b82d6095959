"""The throughput model where a program runs in micro-batches, stage after stage, as on Spark.

Pipelined fission models regions that all run at once: each tuple passes from one to the next while others follow, so
the slowest region rules (eqs 11 and 12). A micro-batch is different. Behind a shuffle nothing starts before everything
in front of it has ended, so the stages of a batch share the cores one after the other, and their times add up:

    time of a batch = f + n · Σ over stages (work of the stage / min(width of the stage, cores))

with n tuples of the sources and f seconds that Spark needs for a batch whatever it holds (planning it, starting tasks,
committing offsets and state). The driver, which delivers to the sinks in order, is the last stage, of width 1.

What stays true of the paper, each per tuple of the source:

* eq 2: the work of operators that share a thread is the sum of their costs, scaled by the tuples that reach them;
* eqs 7 and 8: replicas share the work of a region; here the channels of a stage do, as far as there are cores;
* eqs 9 and 10: a tuple that changes hands costs δ on both sides: that of a shuffle between stages, that of a worker
  boundary where tuples come from the sources' spool or go to the driver. Tasks do this themselves, all at once, so it
  is part of the work that the channels share. So is c_p · log₂ width, which it costs to split a stream;
* eqs 3 to 6, 12 to 14 hold inside a stage that cannot be replicated and runs as several pipelines: threads of one
  worker process, where `physical.expect` bounds them by the slowest pipeline, by the cores and by the GIL. Taking
  tuples in and handing them out is done before and after, by one thread.

Batches grow until they take `Cluster.fill` seconds, so of every such time f is lost: the throughput to expect is
(1 - f / fill) / Σ. A source that workers cannot read in parts is read by the driver, ahead of the batches and beside
them: that is a pipeline of its own, and the slower of the two rules (eq 12). Of a run whose batches are known,
`throughput_of` says what they should have reached.
"""

from __future__ import annotations

import math
from collections.abc import Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass, field

from penstock.compiler.physical import Expected, Group, Machine, expect
from penstock.compiler.stages import Stages
from penstock.compiler.weights import Link, Weights
from penstock.graph.graph import Graph, Node


@dataclass(frozen=True, slots=True)
class Cluster(Machine):
    """What stages run on: `delta` and `cp` are those of a shuffle, `stage` and `port` δ of workers and of queues.

    A batch costs `batch` seconds of itself and is made to last about `fill` seconds. `origin` says where all these
    numbers come from.
    """

    stage: float = 0.0
    port: float = 0.0
    batch: float = 0.0
    fill: float = 1.0
    origin: str = ""

    @property
    def share(self) -> float:
        """The part of a full batch in which tuples are processed."""
        return max(0.0, 1 - self.batch / self.fill)


@dataclass
class StageLoad:
    """What one stage has to do per tuple of the source: `load` of its operators, tuples on the `links` between them.

    `read` tuples come from sources, `received` through a shuffle; `shuffled` leave through one, and `delivered` go to
    the driver, or are delivered by it.
    """

    load: dict[int, float] = field(default_factory=dict)
    links: dict[Link, float] = field(default_factory=dict)
    read: float = 0.0
    received: float = 0.0
    shuffled: float = 0.0
    delivered: float = 0.0

    def handing(self, cluster: Cluster) -> float:
        """Seconds for taking tuples in and handing them out."""
        return cluster.delta * (self.received + self.shuffled) + cluster.stage * (self.read + self.delivered)


def stage_loads(graph: Graph, stages: Stages, weights: Weights, ahead: Collection[int] = ()) -> list[StageLoad]:
    """The load of each level, and last that of the driver. An operator at several levels works where its tuples are.

    Sources that are read `ahead` of the batches are no load of a stage.
    """
    loads = [StageLoad() for _ in range(stages.levels + 2)]
    driver = stages.levels + 1
    arrivals: dict[tuple[int, int], float] = {}
    for index in graph.topological:
        node = graph.nodes[index]
        total = weights.arrivals[index]
        if node.is_source:
            arrivals[index, 0] = total
            loads[0].read += total
        for level in (driver,) if node.is_sink else sorted(stages.present[index]):
            here = arrivals.get((index, level), 0.0)
            share = here / total if total else 0.0
            loads[level].load[index] = 0.0 if index in ahead else share * weights.load[index]
            for target in _readers(graph, node):
                sent = share * weights.tuples.get((index, target), 0.0)
                there = driver if graph.nodes[target].is_sink else stages.level.get(target, level)
                arrivals[target, there] = arrivals.get((target, there), 0.0) + sent
                if there == level:
                    loads[level].links[index, target] = sent
                elif there == driver:
                    loads[level].delivered += sent
                    loads[driver].delivered += sent
                else:
                    loads[level].shuffled += sent
                    loads[there].received += sent
    return loads


def _readers(graph: Graph, node: Node) -> Iterable[int]:
    """The operators that `node` feeds, each once."""
    ports = range(node.operation.outputs)
    return dict.fromkeys(reader.node for port in ports for reader in graph.readers(node.index, port))


def stage_time(group: Group, load: StageLoad, cluster: Cluster, held: Mapping[int, float]) -> float:
    """Seconds that a stage takes per tuple of the source."""
    channels = min(group.width, cluster.cores)
    if len(group.pipelines) > 1 and channels == 1:
        inside = pipelined(group, load, cluster, held)
        return load.handing(cluster) + (1 / inside.throughput if inside is not None else 0.0)
    splitting = load.received * cluster.cp * math.log2(group.width)
    return (sum(load.load.values()) + splitting + load.handing(cluster)) / channels


def pipelined(group: Group, load: StageLoad, cluster: Cluster, held: Mapping[int, float]) -> Expected | None:
    """What the paper's model says of the pipelines of a stage: threads of one process, with queues between them."""
    count = 1 + max(load.load)
    by_index = tuple(load.load.get(index, 0.0) for index in range(count))
    weights = Weights((0.0,) * count, by_index, load.links, {})
    machine = Machine(cluster.cores, cluster.port, 0.0, cluster.gil)
    return expect([group], weights, machine, [held.get(index, 1.0) for index in range(count)])


def expect_batches(
    groups: Sequence[Group],
    loads: Sequence[StageLoad],
    cluster: Cluster,
    held: Mapping[int, float],
    reading: float = 0.0,
) -> Expected | None:
    """The model of a whole program, one group for each stage and one for the driver; None where nothing costs anything.

    The bottleneck is the stage that takes the largest part of a batch. `busy` are the cores in use while stages run.
    `reading` are seconds per source tuple of the sources that are read beside the batches.
    """
    times = [stage_time(group, load, cluster, held) for group, load in zip(groups, loads, strict=True)]
    handing = [load.handing(cluster) for load in loads]
    if sum(sum(load.load.values()) for load in loads) <= 0:
        return None
    work = sum(time * min(group.width, cluster.cores) for time, group in zip(times, groups, strict=True))
    for group, load, handed, time in zip(groups, loads, handing, times, strict=True):
        if len(group.pipelines) > 1:
            queued = 2 * cluster.port * sum(load.links[link] for link in load.links if _changes(group, link))
            work += handed + sum(load.load.values()) + queued - time
    total = sum(times)
    bottleneck = max(range(len(times)), key=times.__getitem__)
    throughput, limit = cluster.share / total, "stage"
    if throughput * reading > 1:
        throughput, limit = 1 / reading, "source"
    return Expected(throughput, limit, bottleneck, work / total, tuple(times), tuple(handing), reading)


def _changes(group: Group, link: Link) -> bool:
    """The ends of `link` are in different pipelines."""
    return not any(link[0] in line and link[1] in line for line in group.pipelines)


def throughput_of(expected: Expected, tuples: float, fixed: float) -> float:
    """Tuples per second of batches with so many tuples in all, for which Spark needed `fixed` seconds of its own.

    >>> expected = Expected(0.0, "stage", 0, 1.0, (2e-5, 3e-5))
    >>> round(throughput_of(expected, 10_000, 0.5))
    10000
    """
    return tuples / (fixed + tuples * sum(expected.times))
