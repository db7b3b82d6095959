"""Plans for Spark: what a machine's shuffles and batches cost, and how a graph is cut for it. Needs no Spark."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace

from penstock.compiler.batches import Cluster
from penstock.compiler.physical import Physical
from penstock.compiler.plan import Plan
from penstock.compiler.plan_json import in_stages, segment_texts
from penstock.compiler.regions import find_regions
from penstock.compiler.segments import Segments, cut
from penstock.compiler.stage_plan import SparkPlan, threaded_ports
from penstock.compiler.stage_planner import decide_stages
from penstock.compiler.stages import find_stages
from penstock.connectors.base import as_source
from penstock.errors import FlowError, PlatformError
from penstock.graph import operations as ops
from penstock.graph.graph import Graph, Target
from penstock.graph.operator import CoOperator
from penstock.operators.registry import logic_of
from penstock.optimizer.calibrate import Calibration
from penstock.optimizer.profile import Profile
from penstock.platforms.calibration import kept_calibration
from penstock.platforms.local import check_cores, has_gil
from penstock.platforms.spark.connectors import SparkSource
from penstock.platforms.spark.spool import is_bulk
from penstock.runtime.ending import core_count
from penstock.runtime.threading_models import DEDICATED
from penstock.runtime.wiring import traits_of

# How long batches are made to last; longer where Spark's own part of them would be more than half.
TARGET_SECONDS = 2.0
_MEASURE = "penstock calibrate --spark measures them here"


def cluster_of(
    cores: int, calibration: Calibration | None = None, gil: bool | None = None, *, shuffles: int = 1
) -> Cluster:
    """So many cores, with boundaries and batches that cost what `calibration` says, or what was kept of one.

    `shuffles` are those of the program: each adds to what a batch costs.
    """
    costs = calibration if calibration is not None else kept_calibration()
    shuffle, batch = costs["shuffle"], costs.batch_time.seconds(shuffles)
    origin = costs.origin("shuffle", "stage", "port", "batch")
    return Cluster(
        cores,
        shuffle.delta,
        shuffle.cp,
        has_gil() if gil is None else gil,
        stage=costs["stage"].delta,
        port=costs["port"].delta,
        batch=batch,
        fill=max(TARGET_SECONDS, 2 * batch),
        origin=f"{origin}; {_MEASURE}" if "assumed" in origin else origin,
    )


def plan(
    graph: Graph,
    *,
    cores: int | None = None,
    profile: Profile | None = None,
    calibration: Calibration | None = None,
    gil: bool | None = None,
) -> SparkPlan:
    """How Spark would run `graph` on `cores` cores (those of this machine by default). Nothing is started."""
    check_cores(cores)
    refuse(graph)
    count = cores if cores is not None else core_count()
    cluster = cluster_of(count, calibration, gil, shuffles=find_stages(graph).levels)
    return plan_of(graph, decide_stages(graph, profile, cluster, read_ahead(graph)))


def read_ahead(graph: Graph) -> frozenset[int]:
    """The sources that the driver reads, beside the batches: all that workers cannot read in parts."""
    sources = {node.index: as_source(node.operation.source) for node in graph if isinstance(node.operation, ops.Read)}
    return frozenset(
        index for index, source in sources.items() if not is_bulk(source) and not isinstance(source, SparkSource)
    )


def plan_of(graph: Graph, physical: Physical) -> SparkPlan:
    """The plan that runs the stages of `graph` as `physical` says."""
    replicated = in_stages(graph, physical)
    ports = frozenset[Target]().union(*(threaded_ports(graph, group) for group in physical.groups))
    segments = _segments(graph, ports)
    return SparkPlan(
        graph,
        segments,
        {},
        lambda number: segment_texts(replicated, segments.plans[number]),
        cores=physical.machine.cores,
        ports=dict.fromkeys(sorted(ports), DEDICATED),
        physical=physical,
    )


def by_plan(graph: Graph, given: Plan) -> SparkPlan:
    """`given` for `graph`, with what `graph` reads and writes now. Raises `PlatformError` where it cannot run by it."""
    if not isinstance(given, SparkPlan):
        raise PlatformError("plan= was made for on='local'; make one for Spark with pn.plan(flow, on='spark')")
    if [(node.name, node.kind) for node in given.program] != [(node.name, node.kind) for node in graph]:
        raise PlatformError(f"plan= was made for flow '{given.program.name}' with other operators than '{graph.name}'")
    refuse(graph)
    return plan_of(graph, given.layout)


def with_widths(given: SparkPlan, widths: Sequence[int]) -> SparkPlan:
    """`given` with so many channels for each stage."""
    groups = given.layout.groups
    changed = [replace(group, width=width) for group, width in zip(groups, widths, strict=False)]
    return plan_of(given.program, replace(given.layout, groups=(*changed, groups[-1]), expected=None))


def _segments(graph: Graph, ports: frozenset[Target]) -> Segments:
    stages = find_stages(graph)
    entries = {
        Target(node.index, port)
        for node in graph
        if node.is_sink or node.index in stages.level
        for port in range(len(node.inputs))
    }
    return cut(graph, lambda node: traits_of(logic_of(node)), entries | ports)


def refuse(graph: Graph) -> None:
    """Raise `FlowError` for what cannot run on Spark, and for regions that cannot be replicated anywhere."""
    find_regions(graph)
    for node in graph:
        if isinstance(node.operation, ops.Feedback):
            raise FlowError(
                f"feedback '{node.name}' ({node.location}) cannot run on Spark: a batch flows one way; use on='local'"
            )
        if isinstance(node.operation, ops.Process) and isinstance(node.operation.operator, CoOperator):
            raise FlowError(
                f"operator '{node.name}' ({node.location}) cannot run on Spark: a suspended loop cannot be kept in the "
                "state store; write it as a pn.Operator, or use on='local'"
            )
        if isinstance(node.operation, ops.Process) and node.operation.own_threads:
            raise FlowError(
                f"operator '{node.name}' ({node.location}) cannot run on Spark: what its own threads submit is part of "
                "no batch; use on='local'"
            )
