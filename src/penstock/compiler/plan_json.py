"""Plans as JSON text, and back. In the layout operators go by their names, so that people can read it."""

from __future__ import annotations

import json
from collections.abc import Callable, Mapping, Sequence
from dataclasses import asdict
from typing import TYPE_CHECKING, Any

from penstock.compiler.batches import Cluster
from penstock.compiler.codegen import OutletNames, write_program
from penstock.compiler.fission import Replicated, replicate
from penstock.compiler.pes import homes_of, pes_data, pes_of
from penstock.compiler.physical import Expected, Group, Machine, Physical, arrange
from penstock.compiler.segments import SegmentPlan, Segments
from penstock.compiler.stage_planner import check_stages
from penstock.compiler.stages import find_stages
from penstock.errors import PenstockError
from penstock.graph.graph import Graph, Output, Target
from penstock.operators.registry import logic_of

if TYPE_CHECKING:
    from penstock.compiler.plan import Plan

VERSION = 1


def plan_to_json(plan: Plan) -> str:
    """`plan` as JSON text."""
    graph = plan.program
    data: dict[str, Any] = {
        "penstock_plan": VERSION,
        "platform": plan.platform,
        "flow": graph.name,
        "operators": [{"name": node.name, "does": node.operation.verb, "kind": node.kind} for node in graph],
        "cores": plan.cores,
        "layout": None if plan.physical is None else _layout_data(graph, plan.physical),
        "pes": pes_data(graph, plan.pes),
        "threads": plan.threads,
        "ports": [[target.node, target.port, model] for target, model in plan.ports.items()],
        "segments": [
            {"nodes": list(one.nodes), "outlets": [list(output) for output in one.outlets]}
            for one in plan.segments.plans
        ],
        "meetings": {str(segment): list(threads) for segment, threads in plan.meetings.items()},
        "refused": {graph.nodes[entry].name: reason for entry, reason in plan.refused.items()},
    }
    return json.dumps(data, indent=2, ensure_ascii=False)


def plan_from_json(text: str, graph: Graph, make: Callable[..., Plan]) -> Plan:
    """The plan of `graph` that `plan_to_json` wrote."""
    try:
        data = json.loads(text)
        if data["penstock_plan"] != VERSION:
            raise PenstockError(f"this plan has version {data['penstock_plan']}, expected {VERSION}")
        found = [(one["name"], one["does"], one["kind"]) for one in data["operators"]]
        if found != [(node.name, node.operation.verb, node.kind) for node in graph]:
            raise PenstockError(f"this plan was made for other operators than those of flow '{graph.name}'")
        index = {node.name: node.index for node in graph}
        pes = pes_of(data.get("pes", ()), index)
        platform = data.get("platform", "local")
        if platform not in ("local", "spark"):
            raise PenstockError(f"this plan is for a platform {platform!r}, which does not exist")
        physical = None if data["layout"] is None else _layout_of(data["layout"], index, platform)
        if platform == "spark":
            from penstock.compiler.stage_plan import SparkPlan

            make = SparkPlan
            replicated = in_stages(graph, physical)
        else:
            replicated = arranged(graph, physical, homes_of(pes))
        segments = _segments(data["segments"], len(replicated.graph))
        return make(
            replicated.graph,
            segments,
            {int(segment): tuple(threads) for segment, threads in data["meetings"].items()},
            lambda number: segment_texts(replicated, segments.plans[number]),
            cores=data["cores"],
            ports={Target(node, port): str(model) for node, port, model in data["ports"]},
            threads=data["threads"],
            refused={index[name]: str(reason) for name, reason in data["refused"].items()},
            written=graph,
            physical=physical,
            pes=pes,
        )
    except (AttributeError, IndexError, KeyError, TypeError, ValueError) as error:
        raise PenstockError(f"this is no Penstock plan of this flow: {type(error).__name__}: {error}") from error


def arranged(graph: Graph, physical: Physical | None, homes: Sequence[int] = ()) -> Replicated:
    """The graph that a plan of `graph` runs."""
    return replicate(graph) if physical is None else arrange(graph, physical.groups, homes)


def in_stages(graph: Graph, physical: Physical | None) -> Replicated:
    """The graph that a plan of `graph` for Spark runs: as it is, with tuples tracked where a stage is replicated."""
    if physical is None:
        raise PenstockError("a plan for Spark needs a layout: its stages")
    check_stages(graph, physical.groups)
    stages = find_stages(graph)
    replicated = set(range(1, stages.levels + 1)) - stages.single
    tracked = (index for index, levels in stages.present.items() if levels & replicated)
    return Replicated(graph, tuple(range(len(graph))), frozenset(tracked), {})


def segment_texts(replicated: Replicated, segment: SegmentPlan) -> list[str]:
    """The source text of the functions of one segment: one for each of its inputs."""
    graph, tracked = replicated.graph, segment.root in replicated.tracked
    logics = {index: logic_of(graph.nodes[index]) for index in segment.nodes}
    names = {output: OutletNames([], _Nothing(), _Nothing(), [] if tracked else None) for output in segment.outlets}
    ports = range(max(1, len(graph.nodes[segment.root].inputs)))
    return [write_program(graph, segment, logics, names, port, None, _Nothing(), tracked).text for port in ports]


class _Nothing:
    """Stands for what a running segment calls; each is one of its own, as those are."""

    def __call__(self) -> None: ...


def _segments(data: list[dict[str, Any]], count: int) -> Segments:
    plans, of_node = [], [-1] * count
    for number, one in enumerate(data):
        nodes, outlets = tuple(one["nodes"]), tuple(Output(*output) for output in one["outlets"])
        plans.append(SegmentPlan(number, nodes[0], nodes, outlets))
        for node in nodes:
            of_node[node] = number
    if -1 in of_node:
        raise PenstockError("this plan has no segment for some operator")
    return Segments(tuple(plans), tuple(of_node))


# ----------------------------------------------------------------------------------------------------------- layouts


def _layout_data(graph: Graph, physical: Physical) -> dict[str, Any]:
    def name(node: int) -> str:
        return graph.nodes[node].name

    def named(values: Mapping[int, Any]) -> dict[str, Any]:
        return {name(node): value for node, value in values.items()}

    return {
        "machine": asdict(physical.machine),
        "expected": None if physical.expected is None else asdict(physical.expected),
        "regions": [
            {
                "width": group.width,
                "key": group.key,
                "pipelines": [[name(node) for node in line] for line in group.pipelines],
                "reason": group.reason,
            }
            for group in physical.groups
        ],
        "alone": named(physical.alone),
        "cuts": named(physical.cuts),
        "costs": named(physical.costs),
        "arrivals": named(physical.arrivals),
    }


def _layout_of(data: dict[str, Any], index: Mapping[str, int], platform: str) -> Physical:
    def by_index(values: dict[str, Any]) -> dict[int, Any]:
        return {index[name]: value for name, value in values.items()}

    groups = tuple(
        Group(
            tuple(tuple(index[name] for name in line) for line in one["pipelines"]),
            int(one["width"]),
            str(one["key"]),
            str(one["reason"]),
        )
        for one in data["regions"]
    )
    expected = data["expected"]
    return Physical(
        groups,
        (Cluster if platform == "spark" else Machine)(**data["machine"]),
        None if expected is None else _expected_of(expected),
        *(by_index(data[part]) for part in ("alone", "cuts", "costs", "arrivals")),
    )


def _expected_of(data: dict[str, Any]) -> Expected:
    lists = {name: tuple(data.get(name, ())) for name in ("times", "handing", "pe_times")}
    return Expected(**{**data, **lists})
