"""The local platform: a program in a PE inside this process."""

from __future__ import annotations

from penstock.clock import Clock
from penstock.compiler.plan import Plan, make_plan
from penstock.errors import PlatformError
from penstock.graph.annotations import THREADING_MODELS
from penstock.graph.graph import Graph
from penstock.operators.sink import WriteLogic
from penstock.optimizer.profile import Profile
from penstock.platforms.job import Job, JobMetrics, OperatorMetrics
from penstock.runtime.pe import PE
from penstock.runtime.profiler import counts
from penstock.runtime.segment import Segment

_READY = ("auto", "manual")


def submit(
    graph: Graph,
    *,
    threading: str = "auto",
    threads: int | None = None,
    pes: int | None = None,
    clock: Clock | None = None,
    profile: bool = True,
) -> Job:
    """Start `graph` in this process and return at once."""
    if threading not in THREADING_MODELS:
        raise PlatformError(f"threading must be one of {', '.join(THREADING_MODELS)}, not {threading!r}")
    if threading not in _READY or threads not in (None, 1) or pes not in (None, 1):
        raise PlatformError(
            f"threading={threading!r}, threads={threads}, pes={pes} cannot run yet: the local platform has the manual "
            "threading model (one thread per source) in one PE; leave these options out"
        )
    pe = PE(graph, clock=clock, profile=profile)
    job = Job(graph.name, plan_of(pe), LocalRun(pe))
    pe.start()
    return job


def plan(graph: Graph) -> Plan:
    """How the local platform would run `graph`; nothing is opened or read."""
    return plan_of(PE(graph))


def plan_of(pe: PE) -> Plan:
    """The plan a PE follows."""
    threads = {meeting.segment: meeting.threads for meeting in pe.meetings}
    return make_plan(pe.graph, pe.plan, threads, lambda index: _texts(pe.segments[index]))


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
        operators: dict[str, OperatorMetrics] = {}
        costs = pe.profile().operators
        for segment in pe.segments:
            self._add_segment(segment, costs, operators)
        for source in pe.sources:
            name = source.segment.root.name
            counters = {"skipped": source.skipped, "dead": source.dead}
            cost = source.read_seconds / source.read if source.read else None
            operators[name] = OperatorMetrics(
                source.read, source.read, cost, {key: count for key, count in counters.items() if count}
            )
        return JobMetrics(pe.state, elapsed, tuples, tuples / elapsed if elapsed > 0 else 0.0, operators)

    def _add_segment(self, segment: Segment, costs: object, operators: dict[str, OperatorMetrics]) -> None:
        assert isinstance(costs, dict)
        for index, numbers in counts(segment).items():
            node = self.pe.graph.nodes[index]
            received = numbers.received
            cost = costs[node.name].cost if node.name in costs else None
            logic = segment.logics[index]
            if isinstance(logic, WriteLogic):
                exact = logic.delivered()
                received = received if exact is None else exact
            counters = logic.counters()
            operators[node.name] = OperatorMetrics(received, numbers.sent, cost, counters)
