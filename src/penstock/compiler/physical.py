"""The physical program as a value: which operators share a thread, which are replicated, and what is expected of that.

A *layout* is a list of regions, each a list of pipelines, each a list of operators that one thread runs (pipelined
fission §3.1, for graphs). `expect` is the paper's model of a layout, `arrange` makes the graph that runs by it.
"""

from __future__ import annotations

import math
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field, replace

from penstock.compiler.fission import Replicated, replicate_parts
from penstock.compiler.regions import part_of
from penstock.compiler.weights import Weights
from penstock.errors import PenstockError
from penstock.graph.graph import Graph

Pipeline = tuple[int, ...]
CROWDING = 0.2  # of `Machine`, for threads of this runtime: what benchmarks/model_accuracy.py measures
_CLOSE = 1e-9  # times that differ by less are the same


@dataclass(frozen=True, slots=True)
class Group:
    """A region of a layout: pipelines of operators, from left to right, in `width` channels; and why so."""

    pipelines: tuple[Pipeline, ...]
    width: int = 1
    key: str = ""  # what the stream is split by; empty where whole chunks are dealt in turn
    reason: str = ""

    @property
    def nodes(self) -> tuple[int, ...]:
        return tuple(node for pipeline in self.pipelines for node in pipeline)

    @property
    def entry(self) -> int:
        return self.pipelines[0][0]

    @property
    def threads(self) -> int:
        return self.width * len(self.pipelines)


@dataclass(frozen=True, slots=True)
class Machine:
    """What a layout runs on. With `gil`, threads of one process share one core for Python code.

    `delta`, `cp` and `keyed_cp` are those of a `Boundary`, `pe_delta` is that between PEs; without a word of it,
    `keyed_cp` is `cp` and `pe_delta` is `delta`. `crowding` is the part of all work that threads lose where far more
    are busy than there are cores; the paper's model has none.
    """

    cores: int
    delta: float
    cp: float
    gil: bool = False
    keyed_cp: float = None  # type: ignore[assignment]  # `cp` if nobody says
    pe_delta: float = None  # type: ignore[assignment]  # `delta` if nobody says
    crowding: float = 0.0

    def __post_init__(self) -> None:
        if self.keyed_cp is None:
            object.__setattr__(self, "keyed_cp", self.cp)
        if self.pe_delta is None:
            object.__setattr__(self, "pe_delta", self.delta)


@dataclass(frozen=True, slots=True)
class Expected:
    """What the model says: `throughput` in tuples of each source per second (of a source with rate 1).

    `limit` is what holds it back: "region" number `bottleneck`, all "cores" being busy, or the "gil"; where regions are
    stages that run one after the other, the slowest "stage", or a "source" that is read beside them. `busy` cores are
    in use at that throughput. `times` are seconds per source tuple of each region, `handing` those of them that stages
    spend at their boundaries, and `reading` those that sources need which are read beside them. Where there are several
    PEs, `pe_times` are those that each needs with as many cores as it can use: for its slowest region, or for all that
    its GIL allows one thread at a time.
    """

    throughput: float
    limit: str
    bottleneck: int
    busy: float
    times: tuple[float, ...]
    handing: tuple[float, ...] = ()
    reading: float = 0.0
    pe_times: tuple[float, ...] = ()

    @property
    def slowest_pe(self) -> int | None:
        """The PE that holds the others back, or would if cores did not; None where there is one."""
        return max(range(len(self.pe_times)), key=self.pe_times.__getitem__) if self.pe_times else None


@dataclass(frozen=True)
class Physical:
    """A layout of a program, for a machine, with its reasons.

    `alone` says of operators why they cannot be replicated, `cuts` why a thread starts at an operator. `costs` are the
    measured seconds per tuple of operators and `arrivals` tuples that reach them per tuple of the sources.
    """

    groups: tuple[Group, ...]
    machine: Machine
    expected: Expected | None = None
    alone: Mapping[int, str] = field(default_factory=dict)
    cuts: Mapping[int, str] = field(default_factory=dict)
    costs: Mapping[int, float] = field(default_factory=dict)
    arrivals: Mapping[int, float] = field(default_factory=dict)

    @property
    def threads(self) -> int:
        """Threads of all regions."""
        return sum(group.threads for group in self.groups)

    def rate(self, node: int) -> float | None:
        """Tuples per second that are expected to reach an operator."""
        return None if self.expected is None else self.expected.throughput * self.arrivals.get(node, 0.0)


def expect(
    groups: Sequence[Group],
    weights: Weights,
    machine: Machine,
    held: Sequence[float] = (),
    homes: Sequence[int] = (),
) -> Expected | None:
    """The model (eqs 2–14) on a graph: None where nothing costs anything.

    `held` is the part of each operator's load during which it holds the GIL; all of it where nothing is said. Handing
    over, splitting and merging are Python code. Regions whose groups have a `key` are split by it. `homes` is the PE of
    each operator where there are several: each has a GIL of its own, all share the cores, and handing over between them
    costs `machine.pe_delta`. A group is in one PE.

    Eq 13 takes cores to be divisible at will. With `crowding`, work grows where more threads are busy than there are
    cores: they wait for each other, and some core idles meanwhile. How many are busy is their work squared over the sum
    of its squares: threads that do the same count one each, one that does next to nothing does not count. A single core
    never idles.
    """
    home = homes or [0] * len(weights.load)
    place = {node: (g, p) for g, group in enumerate(groups) for p, line in enumerate(group.pipelines) for node in line}
    switching = [0.0] * len(groups)
    times = [[sum(weights.load[node] for node in line) for line in group.pipelines] for group in groups]  # eq 2
    for (source, target), tuples in weights.tuples.items():
        (g, p), (h, q) = place[source], place[target]
        if g != h:  # eq 10
            delta = machine.delta if home[source] == home[target] else machine.pe_delta
            switching[g] += delta * tuples
            switching[h] += delta * tuples
        elif p != q:  # eq 5
            times[g][p] += machine.delta * tuples
            times[g][q] += machine.delta * tuples
    region_times, work, squares, python = [], 0.0, 0.0, [0.0] * (1 + max(home, default=0))
    for number, group in enumerate(groups):
        cp = machine.keyed_cp if group.key else machine.cp  # eq 8: by what the stream is split
        splitting = weights.arrivals[group.entry] * cp * math.log2(group.width)
        overhead = switching[number] + splitting
        region_times.append(overhead + max(times[number]) / group.width)  # eqs 6–9
        work += overhead + sum(times[number])  # eq 14
        first, *others = times[number]
        squares += sum(time * time for time in (first + overhead, *others)) / group.width
        loads = [weights.load[node] for node in group.nodes]
        python[home[group.entry]] += overhead + sum(times[number]) - sum(loads)
    shares = held or [1.0] * len(weights.load)
    for node, (load, share) in enumerate(zip(weights.load, shares, strict=True)):
        python[home[node]] += load * share
    if work <= 0:
        return None
    idle = machine.crowding * max(0.0, 1 - machine.cores * squares / (work * work)) if machine.cores > 1 else 0.0
    limits = {
        "gil": max(python) if machine.gil else 0.0,
        "cores": work * (1 + idle) / machine.cores,
        "region": max(region_times),
    }
    slowest = max(limits.values())  # eqs 12, 13
    limit = next(name for name, time in limits.items() if time >= slowest * (1 - _CLOSE))
    bottleneck = max(range(len(groups)), key=region_times.__getitem__)
    throughput = 1 / slowest
    pe_times = list(python) if machine.gil else [0.0] * len(python)
    for group, time in zip(groups, region_times, strict=True):
        pe_times[home[group.entry]] = max(pe_times[home[group.entry]], time)
    return Expected(
        throughput, limit, bottleneck, throughput * work, tuple(region_times), pe_times=tuple(pe_times if homes else ())
    )


def arrange(graph: Graph, groups: Iterable[Group], homes: Sequence[int] = ()) -> Replicated:
    """The graph that runs `groups`: regions replicated, and a thread where each pipeline starts.

    The threads that run channels and what follows them come by themselves; of the rest, whatever the user said about
    an operator's threading stays. With several PEs, `homes` is that of each operator: what another PE feeds has a
    thread too.
    """
    groups = tuple(groups)
    check_layout(graph, groups)
    starts = {line[0] for group in groups for line in group.pipelines}
    if homes:
        fed = ((node.index, feeder) for node in graph for feeder in graph.upstream(node))
        starts |= {index for index, feeder in fed if homes[index] != homes[feeder]}
    starts -= {group.entry for group in groups if group.width > 1}
    nodes = []
    for node in graph:
        said = node.annotations.threading
        chosen = said if said not in (None, "auto") else "dedicated" if node.index in starts else "manual"
        nodes.append(replace(node, annotations=replace(node.annotations, threading=chosen)))
    marked = replace(graph, nodes=tuple(nodes))
    parts = [(part_of(graph, group.nodes), group.width) for group in groups if group.width > 1]
    return replicate_parts(marked, parts)


def check_layout(graph: Graph, groups: Sequence[Group]) -> None:
    """Raise `PenstockError` unless each operator has its place."""
    placed = sorted(node for group in groups for node in group.nodes)
    if placed != list(range(len(graph))):
        raise PenstockError(f"this plan is not one of flow '{graph.name}': each operator must have one place in it")
    for group in groups:
        if group.width < 1 or not all(group.pipelines):
            raise PenstockError("each region of a plan needs a width of 1 or more, and no pipeline may be empty")
