"""Measures what handing tuples over costs on this machine (pipelined fission §5.3): small flows, a few seconds in all.

The operators that are measured hash a piece of memory for each tuple, all of a chunk in one call that frees the GIL, so
that two threads do overlap. The equations speak of throughputs where every thread has a core for itself. A machine with
other things to do cannot show those on the clock, so they are computed from the processor time that each run took:
two equally busy threads that took 2 s together would have been done after 1 s. Contenders take turns, and the best
round of each counts: noise only ever adds.
"""

from __future__ import annotations

import hashlib
import math
import os
import platform
import subprocess
import sys
import time
from collections import deque
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from dataclasses import replace
from multiprocessing import Pipe
from multiprocessing.connection import Connection
from pathlib import Path
from typing import Any

from penstock.connectors.sinks import Nowhere
from penstock.errors import PenstockError, PlatformError
from penstock.graph.flow import Flow
from penstock.graph.graph import Graph
from penstock.optimizer.calibrate import Boundary, Calibration, replication_cost, switching_cost
from penstock.runtime.pe import PE
from penstock.tuples import CHUNK

ROUNDS = 7
TUPLES = 30_000  # of each run
_PIECE = 2048  # bytes hashed for each tuple: a microsecond or two
_MEMORY = memoryview(bytes(_PIECE * 64))
_LONG = 11  # operators of the longer chain that shows what a call costs
_AHEAD = 4  # chunks sent to a process before its answer is waited for


def calibrate(
    *, spark: bool = False, tuples: int = TUPLES, rounds: int = ROUNDS, tell: Callable[[str], None] = lambda _: None
) -> Calibration:
    """Measure every kind of boundary; those of Spark and its batches only if asked, as that starts Spark.

    `tell` hears what is measured next.
    """
    _check_whole(tuples, "tuples")
    _check_whole(rounds, "rounds")
    boundaries, batch = {}, None
    for kind, measure in (("call", _measure_call), ("port", _measure_port), ("process", _measure_process)):
        tell(f"boundary: {kind}")
        boundaries[kind] = measure(tuples, rounds)
    if spark:
        from penstock.platforms.spark.calibration import measure_spark

        measured, batch = measure_spark(tell)
        boundaries |= measured
    return Calibration(boundaries, machine_name(), batch)


def machine_name() -> str:
    """The machine and the Python that a calibration is good for."""
    return f"{platform.node()}, {os.cpu_count()} cores, {platform.python_implementation()} {platform.python_version()}"


def default_path() -> Path | None:
    """Where the calibration of this user's machine is kept; None where nothing can be kept."""
    try:
        return Path(os.environ.get("XDG_CACHE_HOME") or Path.home() / ".cache") / "penstock" / "calibration.json"
    except RuntimeError:  # no home
        return None


def kept_calibration() -> Calibration:
    """The calibration that was kept last, or the built-in one. Raises `PlatformError` for a damaged one."""
    path = default_path()
    try:
        return Calibration.load(path) if path is not None and path.exists() else Calibration({})
    except OSError:
        return Calibration({})
    except PenstockError as error:
        raise PlatformError(f"{error}; penstock calibrate measures and writes it anew") from error


def keep(calibration: Calibration, path: Path | None = None) -> Path | None:
    """Write `calibration` to `path`, or to where `kept_calibration` finds it; returns where that is.

    In the latter place, what is known of this machine and was not measured again stays.
    """
    target = path if path is not None else default_path()
    if target is None:
        return None
    if path is None:
        with suppress(PenstockError):  # what cannot be read is written anew
            calibration = calibration.on_top_of(kept_calibration())
    try:
        target.parent.mkdir(mode=0o700, parents=True, exist_ok=True)
        calibration.save(target)
    except OSError as error:
        if path is not None:
            raise PlatformError(f"the calibration cannot be written to {path}: {error}") from error
        return None
    return target


def _check_whole(value: Any, name: str) -> None:
    if isinstance(value, bool) or not isinstance(value, int) or value < 1:
        raise PlatformError(f"{name} must be a number from 1, not {value!r}")


# --------------------------------------------------------------------------------------------------------- in a PE


def work(tuples: list[Any]) -> list[Any]:
    """One to two microseconds for each tuple, in one call for all of them, with the GIL free."""
    digest = hashlib.sha256()
    left = len(tuples) * _PIECE
    while left > 0:
        digest.update(_MEMORY[:left])
        left -= len(_MEMORY)
    return tuples


def _pass(tuples: list[Any]) -> list[Any]:
    return tuples


def _busy(pe: PE, tuples: int) -> float:
    """Processor time per tuple, of all threads."""
    start = time.process_time()
    pe.start()
    pe.wait()
    return (time.process_time() - start) / tuples


def _best(contenders: list[Callable[[], float]], rounds: int) -> list[float]:
    """The least time of each contender; they take turns."""
    best = [math.inf] * len(contenders)
    for _ in range(rounds):
        for number, run in enumerate(contenders):
            best[number] = min(best[number], run())
    return best


def _boundary(together: float, apart: float, one: float, two: float) -> Boundary:
    """A boundary from processor times: work `together` in one thread and `apart` in two, in `one` channel and in `two`.

    Two channels share what one does alone; what comes on top is splitting and merging, which they do not share.
    """
    delta = switching_cost(1 / together, 2 / apart)
    return Boundary(delta, replication_cost({1: 1 / one, 2: 1 / (one / 2 + max(0.0, two - one))}))


def _measure_call(tuples: int, rounds: int) -> Boundary:
    """Two operators in one segment hand tuples over for nothing; in two segments, a tuple is appended to a list."""

    def chain(length: int) -> Callable[[], float]:
        def run() -> float:
            flow = Flow("call")
            stream: Any = flow.source(range(4 * tuples))
            for _ in range(length):
                stream = stream.map_batch(_pass)
            stream.sink(Nowhere())
            return _busy(PE(flow.graph(), profile=False), 4 * tuples)

        return run

    short, long = _best([chain(1), chain(_LONG)], rounds)
    return Boundary(max(0.0, (long - short) / (_LONG - 1)))


def _measure_port(tuples: int, rounds: int) -> Boundary:
    """Two operators with and without a queue between them; one operator in one and in two channels, dealt and keyed."""

    def pair(model: str) -> Callable[[], float]:
        def run() -> float:
            flow = Flow("port")
            stream = flow.source(range(tuples)).map_batch(work)
            with flow.threading(model):
                stream.map_batch(work).sink(Nowhere())
            return _busy(PE(_threaded_once(flow), profile=False), tuples)

        return run

    def channels(width: int) -> Callable[[], float]:
        def run() -> float:
            flow = Flow("channels")
            # Also a single channel has threads of its own around it: eq 18 has 2δ for it too.
            with flow.threading("dedicated" if width == 1 else "manual"):
                flow.source(range(tuples)).map_batch(work).sink(Nowhere())
            return _busy(PE(flow.graph(), profile=False, widths={1: width}), tuples)

        return run

    def keyed(width: int) -> Callable[[], float]:
        def run() -> float:
            flow = Flow("keys")
            with flow.threading("dedicated" if width == 1 else "manual"):
                counted = flow.source(range(tuples)).key_by(_itself).scan(_count, init=0, name="count")
                counted.sink(Nowhere())
            entry = flow.graph().node("count").index
            return _busy(PE(flow.graph(), profile=False, widths={entry: width}), tuples)

        return run

    together, apart, one, two, one_keyed, two_keyed = _best(
        [pair("manual"), pair("dedicated"), channels(1), channels(2), keyed(1), keyed(2)], rounds
    )
    dealt, split = _boundary(together, apart, one, two), _boundary(together, apart, one_keyed, two_keyed)
    return replace(dealt, keyed_cp=max(dealt.cp, split.cp))


def _itself(item: Any) -> Any:
    return item


def _count(state: int, item: Any) -> tuple[int, Any]:
    return state + 1, item


def _threaded_once(flow: Flow) -> Graph:
    """The graph of `flow`, whose sink is run by the thread of what is before it."""
    graph = flow.graph()
    nodes = [
        replace(node, annotations=replace(node.annotations, threading="manual")) if node.is_sink else node
        for node in graph
    ]
    return replace(graph, nodes=tuple(nodes))


# ------------------------------------------------------------------------------------------------ between processes


def _measure_process(tuples: int, rounds: int) -> Boundary:
    """Work before and after a pipe, against the same work in one process; then one and two processes that work."""
    chunks = [list(range(start, min(start + CHUNK, tuples))) for start in range(0, tuples, CHUNK)]

    def alone() -> float:
        start = time.process_time()
        for chunk in chunks:
            work(work(chunk))
        return (time.process_time() - start) / tuples

    with _peer() as first, _peer() as second:

        def through() -> float:
            begun, start = _asked(first), time.process_time()
            for chunk in chunks:
                first.send(("work", work(chunk)))
            return (_asked(first) - begun + time.process_time() - start) / tuples

        def channels(peers: list[Connection[Any, Any]]) -> Callable[[], float]:
            def run() -> float:
                begun, start = sum(map(_asked, peers)), time.process_time()
                waiting: deque[Connection[Any, Any]] = deque()
                for number, chunk in enumerate(chunks):
                    if len(waiting) >= _AHEAD * len(peers):
                        waiting.popleft().recv()
                    peers[number % len(peers)].send(("answer", chunk))
                    waiting.append(peers[number % len(peers)])
                for peer in waiting:
                    peer.recv()
                return (sum(map(_asked, peers)) - begun + time.process_time() - start) / tuples

            return run

        return _boundary(*_best([alone, through, channels([first]), channels([first, second])], rounds))


def _asked(peer: Connection[Any, Any]) -> float:
    """The processor time that another process has taken, once it has done all it was sent."""
    peer.send(("time", []))
    return float(peer.recv())


@contextmanager
def _peer() -> Iterator[Connection[Any, Any]]:
    """Another process that works on what it is sent; an ordinary child, so that no fork copies our threads."""
    ours, theirs = Pipe()
    command = [sys.executable, "-c", f"from {__name__} import serve; serve({theirs.fileno()})"]
    # In a session of its own: Ctrl-C is for us alone.
    process = subprocess.Popen(command, pass_fds=[theirs.fileno()], start_new_session=True)
    theirs.close()
    try:
        _asked(ours)  # it has started
        yield ours
    except EOFError:
        raise PlatformError("the process that was to be measured has ended too early") from None
    finally:
        ours.close()
        process.terminate()  # it may have work left that nobody waits for any more
        process.wait(10)


def serve(handle: int) -> None:
    """What the other process does until nobody speaks to it any more: work, and answer where that is asked for."""
    connection: Connection[Any, Any] = Connection(handle)
    with suppress(EOFError, OSError):
        while True:
            doing, chunk = connection.recv()
            result = work(chunk)
            if doing == "answer":
                connection.send(result)
            elif doing == "time":
                connection.send(time.process_time())
