"""A short run that only measures: the first tuples of every source go through a copy of the program without its sinks.

Nothing is consumed for good. Sources are read by their offsets and never told to forget anything; what an iterator of
the user's gave is kept, and the next run in this process gets it first. Nothing is delivered: sinks are replaced by
some that work as hard for nobody, a list of our own for the user's, and what `Sink.rehearsal` gives for a sink that has
it. Other sinks and functions are not called, so a profile knows nothing of what those cost beyond the call. Operators
do run, with state of their own; batch operators once more afterwards, to see how long they free the GIL (`freedom`).
How large tuples are is looked at in a run of its own (`sizes`), so that looking slows nothing down that is measured.
"""

from __future__ import annotations

import time
from collections.abc import Iterator
from dataclasses import replace
from typing import Any

from penstock.compiler.weights import weigh
from penstock.connectors.base import Batch, Offset, Source, as_source
from penstock.connectors.iterables import peek
from penstock.connectors.sinks import Nowhere
from penstock.errors import PlatformError
from penstock.graph.flow import Flow
from penstock.graph.graph import Graph, Node
from penstock.graph.operations import MapBatch, Read, Write
from penstock.optimizer.profile import OperatorProfile, Profile
from penstock.platforms.freedom import Keeper, freedom
from penstock.platforms.sizes import sizes, with_scales
from penstock.runtime.pe import PE
from penstock.runtime.profiler import Sampler

TUPLES = 20_000  # of each source
SECONDS = 3.0
_LEAST, _MOST = 0.2, 2.0  # of what was measured is left of it, whatever a run without probes says
_WARM_UP = 200  # tuples of a run before, so that nothing is compiled, imported or cached while it is measured


def profile(flow: Flow, *, tuples: int = TUPLES, seconds: float = SECONDS) -> Profile:
    """What each operator of `flow` costs, measured on the first `tuples` of every source, for `seconds` at most.

    Also how many tuples it sends for each it gets (`selectivity`), and how many bytes each of those has (`size`). Sinks
    receive nothing, and nothing is lost: a later run reads the sources from their start.

    >>> import penstock as pn
    >>> flow = pn.Flow("some")
    >>> found = flow.source(iter(range(1000))).filter(lambda n: n % 4 == 0, name="fourth").collect()
    >>> fourth = pn.profile(flow, tuples=400).operators["fourth"]
    >>> fourth.selectivity, 2 < fourth.size < 9
    (0.25, True)
    >>> found
    []
    >>> pn.run(flow, on="local").metrics().tuples
    1000
    """
    if isinstance(tuples, bool) or not isinstance(tuples, int) or tuples < 1:
        raise PlatformError(f"tuples must be a number from 1, not {tuples!r}")
    if not seconds > 0:
        raise PlatformError(f"seconds must be a time above 0, not {seconds!r}")
    graph = flow.graph()
    for node in graph:
        _check(node)
    sources = {node.index: _reading(node, tuples, seconds) for node in graph if node.is_source}
    large = _sizes(_rehearsal(graph, sources, tuples, seconds / 3), seconds / 3)
    _run(_rehearsal(graph, sources, min(tuples, _WARM_UP), seconds), seconds)
    found = _measure(_run(_rehearsal(graph, sources, tuples, seconds), seconds))
    rehearsal, start = _rehearsal(graph, sources, tuples, seconds), time.process_time()
    plain = _run(rehearsal, seconds, measured=False)
    found = _with_freedom(_scaled(found, plain, time.process_time() - start), plain)
    return Profile(found.flow, {name: replace(one, size=large.get(name)) for name, one in found.operators.items()})


def _check(node: Node) -> None:
    operation = node.operation
    if isinstance(operation, Read) and not isinstance(operation.source, Iterator):
        source = as_source(operation.source)
        # An iterable without order, such as a set, is still iterated anew.
        if not source.replayable and hasattr(operation.source, "read"):
            raise PlatformError(
                f"source '{node.name}' ({node.location}) cannot be read twice, so it cannot be profiled before a run; "
                "save the profile of a run instead: penstock run --save-profile"
            )


def _reading(node: Node, tuples: int, seconds: float) -> Any:
    """What stands for the source of `node` while it is profiled."""
    assert isinstance(node.operation, Read)
    source = node.operation.source
    return peek(source, tuples, seconds) if isinstance(source, Iterator) else source


class _Head(Source):
    """The first tuples of another source, which is never told to forget them."""

    def __init__(self, source: Source, name: str, tuples: int, seconds: float) -> None:
        self._source, self._left, self._seconds = source, tuples, seconds
        self._limit: float | None = None
        self.began: float | None = None
        self.busy = 0.0
        if hasattr(source, "name"):
            source.name = name

    def initial(self) -> Offset:
        self.began = time.monotonic()
        self._limit = self.began + self._seconds
        return self._source.initial()

    def read(self, offset: Offset, limit: int) -> Batch:
        start = time.thread_time()
        batch = self._source.read(offset, min(limit, self._left))
        self.busy += time.thread_time() - start
        self._left -= len(batch.tuples)
        late = self._limit is not None and time.monotonic() > self._limit
        return replace(batch, done=True) if self._left <= 0 or late else batch

    def close(self) -> None:
        self._source.close()


def _forget(item: Any) -> None:
    """A sink that takes tuples and forgets them."""


def _rehearsal(graph: Graph, sources: dict[int, Any], tuples: int, seconds: float) -> Graph:
    """`graph` without its sinks and with the first tuples of its sources only."""
    nodes = []
    for node in graph:
        operation = node.operation
        if isinstance(operation, Read):
            head = _Head(as_source(sources[node.index]), node.name, tuples, seconds)
            operation = replace(operation, source=head)
        elif isinstance(operation, Write):
            operation = replace(operation, target=_in_place_of(operation.target))
        elif isinstance(operation, MapBatch):
            operation = replace(operation, function=Keeper(operation.function))
        nodes.append(replace(node, operation=operation, annotations=replace(node.annotations, parallel=None)))
    return replace(graph, nodes=tuple(nodes))


def _in_place_of(target: Any) -> Any:
    """A sink for nobody that costs what `target` costs, as far as there is one."""
    if isinstance(target, list):
        return []
    if not hasattr(target, "write"):
        return _forget
    rehearsal = getattr(target, "rehearsal", None)
    found = rehearsal() if rehearsal is not None else None
    return Nowhere() if found is None else found


class _EveryChunk(Sampler):
    """Measures all there is."""

    def wants(self, tuples: int) -> int:
        return tuples


def _run(graph: Graph, seconds: float, *, measured: bool = True) -> PE:
    pe = PE(graph, profile=measured)
    for segment in pe.segments if measured else ():
        segment.sampler = _EveryChunk()
    pe.start()
    try:
        if not pe.wait(2 * seconds + 1):  # a source that blocks inside a read
            pe.cancel()
    except BaseException:
        pe.cancel()
        raise
    return pe


def _sizes(rehearsal: Graph, seconds: float) -> dict[str, float]:
    """Bytes per tuple that each operator sends."""
    weighed, scales = with_scales(rehearsal)
    _run(weighed, seconds, measured=False)
    return sizes(rehearsal, scales)


def _measure(pe: PE) -> Profile:
    """The profile of a run, with what only the end of the run tells."""
    operators = dict(pe.profile().operators)
    entered = {segment.plan.root: segment.received for segment in pe.segments}
    for node in pe.graph:
        known = operators.get(node.name, OperatorProfile(0.0, 1.0, 0))
        operation = node.operation
        if isinstance(operation, Read):
            source, given = operation.source, entered.get(node.index, 0)
            known = OperatorProfile(known.cost + source.busy / max(1, given), 1.0, given)
        elif known.samples and (sent := _sent(pe, node, entered)) is not None:
            known = replace(known, selectivity=sent / known.samples)
        operators[node.name] = known
    return Profile(pe.graph.name, operators)


def _sent(pe: PE, node: Node, entered: dict[int, int]) -> int | None:
    """What `node` sent in all, also between tuples, where it is counted: at the entries of segments it alone feeds."""
    total = 0
    for port in range(node.operation.outputs):
        readers = pe.graph.readers(node.index, port)
        counts = [
            entered[reader.node]
            for reader in readers
            if reader.node in entered and sum(len(entry.streams) for entry in pe.graph.nodes[reader.node].inputs) == 1
        ]
        if readers and not counts:
            return None
        total += counts[0] if counts else 0
    return total if node.operation.outputs else None


def _scaled(found: Profile, plain: PE, spent: float) -> Profile:
    """`found` with its costs made to add up to what the program took without probes, `spent` seconds of processor time.

    Measuring each operator slows all of them down by more than the probes themselves, and does not see what a chunk
    costs beyond its operators. How costs compare is right, and how much they are together is what the same run without
    probes took. Sources that wait make that run longer, so more than was measured must be processor time as well.
    """
    heads = [node.operation.source for node in plain.graph if isinstance(node.operation, Read)]
    starts = [head.began for head in heads if head.began is not None]
    weights = weigh(plain.graph, found, rates={source.segment.root.name: source.read for source in plain.sources})
    measured = sum(weights.load)
    if plain.state != "completed" or not starts or measured <= 0:
        return found
    taken = time.monotonic() - min(starts)
    if taken > measured:
        taken = max(measured, min(taken, spent))
    factor = min(_MOST, max(_LEAST, taken / measured))
    operators = {name: replace(one, cost=one.cost * factor) for name, one in found.operators.items()}
    return Profile(found.flow, operators)


def _with_freedom(found: Profile, plain: PE) -> Profile:
    """`found` with what is measured of the GIL: how long each batch operator frees it."""
    operators = dict(found.operators)
    for node in plain.graph:
        keeper = node.operation.function if isinstance(node.operation, MapBatch) else None
        if isinstance(keeper, Keeper) and keeper.chunk:
            operators[node.name] = replace(operators[node.name], free=round(freedom(keeper.again), 3))
    return Profile(found.flow, operators)
