"""The program as it is sent to workers: the graph without sources and sinks, and what both sides must agree on."""

from __future__ import annotations

import pickle
import sys
from dataclasses import dataclass, replace

from penstock.compiler.segments import Segments
from penstock.compiler.stage_plan import SparkPlan, threaded_ports
from penstock.compiler.stages import Stages
from penstock.errors import PlatformError
from penstock.graph import operations as ops
from penstock.graph.graph import Graph, Target
from penstock.platforms.spark.channels import channel_names


@dataclass(frozen=True)
class Program:
    """A graph with its stages, its segments, and the number of channels of each level.

    `threaded` are the input ports of a level that have a queue, where the level runs as several pipelines.
    """

    run: str  # tells programs apart in workers that several of them use
    graph: Graph
    stages: Stages
    segments: Segments
    widths: tuple[int, ...]
    threaded: dict[int, frozenset[Target]]
    feeding: dict[Target, frozenset[int]]  # the sources upstream of each input port
    names: tuple[int, ...]  # what stands for each channel in rows

    @property
    def channels(self) -> int:
        """The most channels of any level: as many as there are shuffle partitions."""
        return len(self.names)

    def channels_at(self, level: int) -> int:
        """How many channels level `level` has."""
        return self.widths[level]


def make_program(plan: SparkPlan, run: str) -> Program:
    """The program that runs by `plan`."""
    graph, groups = plan.program, plan.layout.groups
    threaded = {level: threaded_ports(graph, group) for level, group in enumerate(groups)}
    return Program(
        run,
        graph,
        plan.stages,
        plan.segments,
        tuple(plan.widths),
        {level: ports for level, ports in threaded.items() if ports},
        _feeding(graph),
        channel_names(plan.channels),
    )


def _feeding(graph: Graph) -> dict[Target, frozenset[int]]:
    sources: dict[int, frozenset[int]] = {}
    feeding: dict[Target, frozenset[int]] = {}
    for index in graph.topological:
        node = graph.nodes[index]
        found: frozenset[int] = frozenset({index} if node.is_source else ())
        for port, entry in enumerate(node.inputs):
            above = frozenset().union(*(sources[stream.node] for stream in entry.streams))
            feeding[Target(index, port)] = above
            found |= above
        sources[index] = found
    return feeding


@dataclass(frozen=True)
class _Elsewhere:
    """Stands for a source or a target that stays in the driver."""


def pack(program: Program) -> bytes:
    """The program for workers, pickled by value where the code is the user's main program."""
    from pyspark import cloudpickle

    stripped = tuple(replace(node, operation=_strip(node.operation)) for node in program.graph.nodes)
    lean = replace(program, graph=Graph(program.graph.name, stripped))
    try:
        return pickle.dumps((list(sys.path), cloudpickle.dumps(lean)))
    except Exception as error:
        raise _find_unpicklable(lean.graph, error) from error


def _strip(operation: ops.Operation) -> ops.Operation:
    if isinstance(operation, ops.Read):
        return ops.Read(source=_Elsewhere())
    if isinstance(operation, ops.Write):
        return ops.Write(target=_Elsewhere())
    return operation


def _find_unpicklable(graph: Graph, error: Exception) -> PlatformError:
    from pyspark import cloudpickle

    for node in graph:
        try:
            cloudpickle.dumps((node.operation, node.inputs))
        except Exception as found:
            return PlatformError(
                f"operator '{node.name}' (defined at {node.location}) cannot be sent to Spark's workers: {found}; it "
                "uses something that exists only in this process, such as an open file, a lock or a connection: open "
                "it inside the function, or in the open() of a pn.Operator"
            )
    return PlatformError(f"the program cannot be sent to Spark's workers: {error}")


_UNPACKED: dict[str, Program] = {}
_MOST_UNPACKED = 8


def unpack(run: str, packed: bytes) -> Program:
    """The program in a worker: unpickled once, then remembered."""
    program = _UNPACKED.get(run)
    if program is None:
        paths, pickled = pickle.loads(packed)
        sys.path += [path for path in paths if path not in sys.path]  # before the user's modules are imported
        program = _unpickle(pickled)
        while len(_UNPACKED) >= _MOST_UNPACKED:
            del _UNPACKED[next(iter(_UNPACKED))]
        _UNPACKED[run] = program
    return program


def _unpickle(pickled: bytes) -> Program:
    program = pickle.loads(pickled)
    assert isinstance(program, Program)
    return program
