"""The local platform: a program in a PE inside this process."""

from __future__ import annotations

import sys
import time
from collections import Counter
from dataclasses import replace

from penstock.clock import Clock
from penstock.compiler.fission import Replicated, replicate
from penstock.compiler.pes import PlannedPE, homes_of, plan_pes
from penstock.compiler.physical import CROWDING, Machine, arrange
from penstock.compiler.plan import Plan, make_plan
from penstock.compiler.plan_json import arranged
from penstock.compiler.planner import completed, decide
from penstock.compiler.weights import weigh
from penstock.errors import PlatformError
from penstock.graph.annotations import THREADING_MODELS
from penstock.graph.graph import Graph
from penstock.operators.sink import WriteLogic
from penstock.optimizer.calibrate import Calibration
from penstock.optimizer.profile import Profile
from penstock.platforms.calibration import kept_calibration
from penstock.platforms.job import Job, JobMetrics, OperatorMetrics
from penstock.runtime.ending import core_count
from penstock.runtime.metrics import PortMetrics, ThreadMetrics
from penstock.runtime.pe import PE, Threading
from penstock.runtime.policies import Policy, as_policy
from penstock.runtime.port import CAPACITY, Port
from penstock.runtime.scheduler import QUANTUM
from penstock.runtime.segment import Segment
from penstock.runtime.threading_models import DEDICATED, DYNAMIC, MANUAL, place_ports
from penstock.runtime.worker import PortThread


def submit(
    graph: Graph,
    *,
    threading: str = "auto",
    threads: int | None = None,
    pes: int | None = None,
    policy: str | Policy | type[Policy] | None = None,
    quantum: float = QUANTUM,
    queue: int = CAPACITY,
    latency: bool = False,
    clock: Clock | None = None,
    profile: bool | Profile = True,
    plan: Plan | None = None,
) -> Job:
    """Start `graph` in this process and return at once."""
    if isinstance(profile, Profile):
        if plan is not None:
            raise PlatformError("plan= says how the program runs: leave profile= out, or plan=")
        plan, profile = _plan_by(graph, profile, threading), True
    if pes not in (None, 1):
        raise PlatformError(f"pes={pes} cannot run yet: the local platform has one PE; leave this option out")
    if plan is not None and len(plan.pes) > 1:
        raise PlatformError(f"a plan of {len(plan.pes)} PEs cannot run yet: the local platform has one PE")
    chosen = threading_of(threading, threads, policy, quantum, queue)
    if plan is not None:
        if threading != "auto":
            raise PlatformError("plan= says what runs in which thread: leave threading= out, or plan=")
        chosen = replace(chosen, model=MANUAL, threads=threads or plan.threads or None)
    replicated = None if plan is None else by_plan(graph, plan)
    pe = PE(graph, clock=clock, profile=profile, threading_=chosen, latency=latency, replicated=replicated)
    job = Job(graph.name, replace(plan_of(pe), physical=None if plan is None else plan.physical), LocalRun(pe))
    pe.start()
    return job


def threading_of(
    model: str = "auto",
    threads: int | None = None,
    policy: str | Policy | type[Policy] | None = None,
    quantum: float = QUANTUM,
    queue: int = CAPACITY,
) -> Threading:
    """The threading asked for, checked. A number of threads alone asks for the dynamic model."""
    if model not in THREADING_MODELS:
        raise PlatformError(f"threading must be one of {', '.join(THREADING_MODELS)}, not {model!r}")
    if threads is not None and (isinstance(threads, bool) or not isinstance(threads, int) or threads < 1):
        raise PlatformError(f"threads must be a number of threads, 1 or more, not {threads!r}")
    if not quantum > 0:
        raise PlatformError(f"quantum must be a time in seconds above 0, not {quantum!r}")
    if isinstance(queue, bool) or not isinstance(queue, int) or queue < 1:
        raise PlatformError(f"queue must be a number of tuples, 1 or more, not {queue!r}")
    if model == "auto":
        model = DYNAMIC if threads is not None and threads > 1 else MANUAL
    as_policy(policy)
    return Threading(model, threads, policy, quantum, queue)


def plan(
    graph: Graph,
    threading: str = "auto",
    *,
    cores: int | None = None,
    profile: Profile | None = None,
    calibration: Calibration | None = None,
    gil: bool | None = None,
    pes: int | None = None,
) -> Plan:
    """How the local platform would run `graph`; nothing is opened or read.

    With a profile, the optimizer lays it out for so many cores; `gil=False` for what runs in a Python without one. With
    `pes`, it is divided into so many processes, by load and traffic.
    """
    check_cores(cores)
    planned = _planned_pes(graph, profile, pes)
    if profile is None:
        return replace(plan_of(PE(graph, threading_=threading_of(threading))), cores=cores, pes=planned)
    if threading != "auto":
        raise PlatformError("a plan by a profile decides what runs in which thread: leave threading= out")
    cores = cores if cores is not None else core_count()
    costs = calibration if calibration is not None else kept_calibration()
    port, between = costs["port"], costs["process"].delta
    gil = has_gil() if gil is None else gil
    machine = Machine(cores, port.delta, port.cp, gil, port.keyed_cp, pe_delta=between, crowding=CROWDING)
    homes = homes_of(planned)
    physical = decide(graph, profile, machine, homes)
    pe = PE(graph, threading_=Threading(MANUAL), replicated=arrange(graph, physical.groups, homes))
    return replace(plan_of(pe), cores=cores, physical=physical, pes=planned)


def _planned_pes(graph: Graph, profile: Profile | None, pes: int | None) -> tuple[PlannedPE, ...]:
    if pes is None:
        return ()
    if isinstance(pes, bool) or not isinstance(pes, int) or pes < 1:
        raise PlatformError(f"pes must be a number of PEs, 1 or more, not {pes!r}")
    return plan_pes(graph, weigh(graph, None if profile is None else completed(graph, profile)), pes)


def _plan_by(graph: Graph, profile: Profile, threading: str) -> Plan:
    return plan(graph, threading, profile=profile)


def check_cores(cores: int | None) -> None:
    """Raise `PlatformError` for what is no number of cores."""
    if cores is not None and (isinstance(cores, bool) or not isinstance(cores, int) or cores < 1):
        raise PlatformError(f"cores must be a number from 1, not {cores!r}")


def has_gil() -> bool:
    """True where threads of this Python take turns."""
    asked = getattr(sys, "_is_gil_enabled", None)
    return True if asked is None else bool(asked())


def by_plan(graph: Graph, plan: Plan) -> Replicated:
    """`graph` arranged as `plan` says. Raises `PlatformError` for the plan of another program or platform."""
    if plan.platform != "local":
        raise PlatformError(f"plan= was made for on={plan.platform!r}; make one with pn.plan(flow, on='local')")
    if [node.name for node in plan.program] != [node.name for node in graph]:
        raise PlatformError(f"plan= was made for flow '{plan.program.name}' with other operators than '{graph.name}'")
    if plan.physical is not None:
        return arrange(graph, plan.physical.groups)
    origin = arranged(plan.program, None).origin
    edges = {target for target, model in place_ports(plan.graph, MANUAL).items() if plan.ports.get(target) == model}
    models = {origin[target.node]: model for target, model in plan.ports.items() if target not in edges}
    nodes = [
        replace(node, annotations=replace(node.annotations, threading=models.get(node.index, MANUAL))) for node in graph
    ]
    return replicate(replace(graph, nodes=tuple(nodes)))


def plan_of(pe: PE) -> Plan:
    """The plan a PE follows."""
    threads = {meeting.segment: meeting.threads for meeting in pe.meetings}
    ports = {target: DEDICATED if target in pe.dedicated else DYNAMIC for target in pe.ports}
    workers = pe.first_threads() if DYNAMIC in ports.values() else 0
    plan = make_plan(pe.graph, pe.plan, threads, lambda index: _texts(pe.segments[index]), ports, workers)
    return replace(plan, refused=pe.replicated.refused, written=pe.program)


def _texts(segment: Segment) -> list[str]:
    return [segment.program(port).text for port in range(max(1, len(segment.root.inputs)))]


class LocalRun:
    """A PE seen as a running job."""

    def __init__(self, pe: PE) -> None:
        self.pe = pe

    @property
    def state(self) -> str:
        return self.pe.state

    def wait(self, timeout: float | None = None) -> bool:
        return self.pe.wait(timeout)

    def cancel(self) -> None:
        self.pe.cancel()

    def profile(self) -> Profile:
        return self.pe.profile()

    def metrics(self) -> JobMetrics:
        pe = self.pe
        tuples, elapsed = sum(source.read for source in pe.sources), pe.elapsed
        return JobMetrics(
            pe.state,
            elapsed,
            tuples,
            tuples / elapsed if elapsed > 0 else 0.0,
            self._operators(),
            ports={port.name: _port_metrics(port, elapsed) for port in pe.ports.values()},
            threads=self._threads(),
            latency=pe.latency.read() if pe.latency is not None else None,
        )

    def _operators(self) -> dict[str, OperatorMetrics]:
        pe = self.pe
        operators: dict[str, OperatorMetrics] = {}
        costs = pe.profile().operators
        for index, numbers in pe.operator_counts().items():
            node, logics = pe.program.nodes[index], pe.copies(index)
            received = numbers.received
            if isinstance(logics[0], WriteLogic):
                exact = logics[0].delivered()
                received = received if exact is None else exact
            cost = costs[node.name].cost if node.name in costs else None
            counters: Counter[str] = Counter()
            for logic in logics:
                counters.update(logic.counters())
            operators[node.name] = OperatorMetrics(received, numbers.sent, cost, dict(counters))
        for source in pe.sources:
            name = source.segment.root.name
            bad = {"skipped": source.skipped, "dead": source.dead}
            cost = source.read_seconds / source.read if source.read else None
            operators[name] = OperatorMetrics(
                source.read, source.read, cost, {key: count for key, count in bad.items() if count}
            )
        return operators

    def _threads(self) -> dict[str, ThreadMetrics]:
        now = time.perf_counter()
        threads: list[PortThread] = [*self.pe.scheduler.workers, *self.pe.dedicated.values()]
        return {thread.thread.name: thread.metrics(now) for thread in threads}


def _port_metrics(port: Port, elapsed: float) -> PortMetrics:
    waited = port.waited_seconds / port.popped if port.popped else 0.0
    blocked = min(1.0, port.blocked_seconds / elapsed) if elapsed > 0 else 0.0
    return PortMetrics(port.length, port.capacity, port.pushed, waited, blocked)
