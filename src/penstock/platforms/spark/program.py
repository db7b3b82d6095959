"""The program as it is sent to workers: the graph without sources and sinks, and what both sides must agree on."""

from __future__ import annotations

import pickle
import sys
from dataclasses import dataclass, replace

from penstock.compiler.segments import Segments, cut
from penstock.errors import FlowError, PlatformError
from penstock.graph import operations as ops
from penstock.graph.graph import Graph, Target
from penstock.graph.operator import CoOperator
from penstock.operators.registry import logic_of
from penstock.platforms.spark.channels import channel_names
from penstock.platforms.spark.stages import Stages, find_stages
from penstock.runtime.wiring import traits_of


@dataclass(frozen=True)
class Program:
    """A graph with its stages, its segments, and the number of channels of partitioned levels."""

    run: str  # tells programs apart in workers that several of them use
    graph: Graph
    stages: Stages
    segments: Segments
    channels: int
    feeding: dict[Target, frozenset[int]]  # the sources upstream of each input port
    names: tuple[int, ...]  # what stands for each channel in rows

    def channels_at(self, level: int) -> int:
        """How many channels level `level` has."""
        return 1 if level in self.stages.single else self.channels


def make_program(graph: Graph, run: str, channels: int) -> Program:
    """Plan `graph` for Spark; refuse what cannot run there."""
    _refuse(graph)
    stages = find_stages(graph)
    entries = {
        Target(node.index, port)
        for node in graph
        if node.is_sink or node.index in stages.level
        for port in range(len(node.inputs))
    }
    segments = cut(graph, lambda node: traits_of(logic_of(node)), entries)
    return Program(run, graph, stages, segments, channels, _feeding(graph), channel_names(channels))


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


def _refuse(graph: Graph) -> None:
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
