"""One level after the first, as a PySpark stateful processor: rows are grouped by channel, state lives in Spark's
store.
"""

from __future__ import annotations

import pickle
from collections.abc import Iterator
from itertools import pairwise
from typing import Any

from pyspark.sql import Row
from pyspark.sql.streaming.stateful_processor import StatefulProcessor, StatefulProcessorHandle

from penstock.errors import PenstockError
from penstock.graph.graph import Target
from penstock.platforms.spark.pipelines import OneAtATime
from penstock.platforms.spark.program import unpack
from penstock.platforms.spark.stage_runner import Outbox, StageRunner
from penstock.platforms.spark.state import ChannelState, Entries
from penstock.platforms.spark.wire import FAILED, FINAL, PROLIFIC_SHIFT, decode, dest_port
from penstock.tuples import Punctuation


class MapEntries:
    """The entries of one channel in a `MapState`."""

    def __init__(self, state: Any) -> None:
        self._state = state

    def get(self, operator: int, number: int) -> bytes | None:
        found = self._state.getValue((operator, number))
        return None if found is None else bytes(found[0])

    def put(self, operator: int, number: int, value: bytes) -> None:
        self._state.updateValue((operator, number), (value,))

    def remove(self, operator: int, number: int) -> None:
        self._state.removeKey((operator, number))

    def items(self) -> Iterator[tuple[int, int, bytes]]:
        for (operator, number), (value,) in self._state.iterator():
            yield operator, number, bytes(value)


def make_processor(run: str, packed: bytes, level: int) -> StatefulProcessor:
    """Runs one level of a program for every channel that has rows in a batch.

    The class is local and imports Penstock when rows arrive: it travels by value, and the process that Spark starts to
    ask it for its state variables need not load the program.
    """

    class LevelProcessor(StatefulProcessor):
        def init(self, handle: StatefulProcessorHandle) -> None:
            self._state = handle.getMapState("entries", "operator int, number int", "value binary")

        def close(self) -> None:
            """Nothing to release: runners are closed with their batch."""

        def handleInputRows(  # noqa: N802
            self,
            key: Any,
            rows: Iterator[Row],
            timerValues: Any,  # noqa: N803
        ) -> Iterator[Row]:
            from penstock.platforms.spark.processor import Level

            return Level(run, packed, level, self._state).rows(key[0], rows)

    return LevelProcessor()


class Level:
    """One level, for one channel and batch, in a worker."""

    def __init__(self, run: str, packed: bytes, level: int, state: Any) -> None:
        self._program = unpack(run, packed)
        self._level = level
        self._state = state

    def rows(self, name: int, rows: Iterator[Row]) -> Iterator[Row]:
        """What comes of the rows for the channel with this name."""
        program = self._program
        mine: dict[int, list[bytes]] = {}
        finals: list[Row] = []
        failed = False
        for row in rows:
            if row.dest >= 0 and program.stages.level.get(dest_port(row.dest).node) == self._level:
                mine.setdefault(row.dest, []).append(bytes(row.payload))
                continue
            failed = failed or row.dest == FAILED
            if row.dest == FINAL:
                finals.append(row)
            else:
                yield row
        if not failed and (mine or finals):
            # After a failure nothing of the batch counts: the driver will not commit it.
            for channel, dest, payload in self._process(program.names.index(name), mine, finals):
                yield Row(channel=channel, dest=dest, payload=payload)
        yield from finals

    def _process(
        self, channel: int, mine: dict[int, list[bytes]], finals: list[Row]
    ) -> Iterator[tuple[int, int, bytes]]:
        program = self._program
        if channel >= program.channels_at(self._level):
            return
        entries: Entries = MapEntries(self._state)
        if self._level in program.threaded:
            entries = OneAtATime(entries)
        state = ChannelState(entries)
        runner = None
        try:
            runner = StageRunner(program, self._level, channel, state=state)
            runner.tick()
            for target, origins, tuples in merged(mine):
                runner.feed(target, origins, tuples)
            if finals:
                before = state.ended()
                ended = before | {pickle.loads(row.payload) for row in finals}
                runner.finish(before, ended)
                state.set_ended(frozenset(ended))
            runner.settle()
            state.flush()
            runner.report()
        except PenstockError as error:
            origin = 0 if runner is None else self._failed_at(runner, error)
            outbox = Outbox(program.names) if runner is None else runner.outbox
            outbox.fail(error, origin, self._level, channel)
            yield from outbox.rows()
        else:
            yield from runner.outbox.rows()
        finally:
            if runner is not None:
                runner.close()

    def _failed_at(self, runner: StageRunner, error: PenstockError) -> int:
        if not runner.tracked:
            return runner.next_origin(0).start
        origin = getattr(error, "origin", None)
        reached = runner.reached if origin is None else int(origin)
        return reached << PROLIFIC_SHIFT if self._level in runner.program.stages.prolific else reached


def merged(payloads: dict[int, list[bytes]]) -> Iterator[tuple[Target, list[int], list[Any]]]:
    """Tuples by rising origin, in runs that go to one input port.

    What one payload holds is in order already; payloads of different tasks usually follow each other. Only where they
    overlap are tuples sorted one by one.
    """
    runs: list[tuple[int, int, list[int], list[Any]]] = []
    for dest, packed in payloads.items():
        for payload in packed:
            origins, tuples = decode(payload)
            if tuples:
                runs.append((origins[0], dest, list(origins), tuples))
    runs.sort(key=lambda run: (run[0], run[1]))
    if all(first[2][-1] < second[2][0] for first, second in pairwise(runs)):
        for _, dest, origins, tuples in runs:
            yield dest_port(dest), origins, tuples
        return
    everything = [
        (origin, dest, item) for _, dest, origins, tuples in runs for origin, item in zip(origins, tuples, strict=True)
    ]
    everything.sort(key=lambda entry: entry[0])
    yield from _grouped(everything)


def _grouped(everything: list[tuple[int, int, Any]]) -> Iterator[tuple[Target, list[int], list[Any]]]:
    current, origins, tuples = None, [], []  # type: ignore[var-annotated]
    marked: set[tuple[int, int]] = set()
    for origin, dest, item in everything:
        if item is Punctuation.WINDOW:
            # Every channel of the level before has passed the same mark on: it counts once.
            if (origin, dest) in marked:
                continue
            marked.add((origin, dest))
        if dest != current:
            if tuples:
                yield dest_port(current), origins, tuples  # type: ignore[arg-type]
            current, origins, tuples = dest, [], []
        origins.append(origin)
        tuples.append(item)
    if tuples:
        yield dest_port(current), origins, tuples  # type: ignore[arg-type]
