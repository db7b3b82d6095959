"""A spool as a PySpark Python data source, with level 0 of the program run right where it is read.

Reading and the first stage share one Python worker per task: `read` opens items, runs the segments behind the source
over them and gives rows for the next level. A batch is a run of items; how many follows how long batches take.
"""

from __future__ import annotations

import time
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pyarrow as pa
from pyspark.sql.datasource import DataSource, DataSourceStreamReader, InputPartition
from pyspark.sql.streaming.datasource import ReadAllAvailable, ReadLimit

from penstock.errors import PenstockError
from penstock.graph.graph import Output, Target
from penstock.platforms.spark.program import Program, unpack
from penstock.platforms.spark.spool import Item, Spool, load_item
from penstock.platforms.spark.stage_runner import ROW_TUPLES, Outbox, Row, StageRunner
from penstock.platforms.spark.wire import FINAL, SCHEMA, dumps
from penstock.runtime.failure import operator_error
from penstock.tuples import CHUNK, Punctuation

_ARROW = pa.schema([("channel", pa.int32()), ("dest", pa.int32()), ("payload", pa.binary())])


@dataclass(frozen=True)
class SourceConfig:
    """What a reader needs to know."""

    run: str
    packed: bytes  # the program
    source: int  # the node
    folder: str
    parts: int  # tasks that can run at once
    target_seconds: float  # how long a batch should take
    by_value: bool  # workers do not see the driver's files: send items with the task
    batch_items: int | None = None  # items in a batch; None: follows how long batches take


def make_data_source(config: SourceConfig, name: str) -> type[DataSource]:
    """A data source class of its own for each source of a run: PySpark passes classes, not objects."""

    class SpoolDataSource(DataSource):
        @classmethod
        def name(cls) -> str:
            return name

        def schema(self) -> str:
            return SCHEMA

        def streamReader(self, schema: Any) -> DataSourceStreamReader:  # noqa: N802 — PySpark's name
            return SpoolReader(config)

    return SpoolDataSource


def arrow_row(row: Row) -> pa.RecordBatch:
    """One row for the next level."""
    channel, dest, payload = row
    return pa.RecordBatch.from_pydict({"channel": [channel], "dest": [dest], "payload": [payload]}, _ARROW)


def frame_rows(program: Program, index: int, partition: int, chunks: Iterator[list[Any]]) -> Iterator[Row]:
    """The rows that level 0 makes of tuples that Spark has read itself."""
    channel = partition % program.channels
    runner = None
    outbox = Outbox(program.names)
    try:
        runner = StageRunner(program, 0, channel, source=index, partition=partition)
        outbox = runner.outbox
        for tuples in chunks:
            runner.feed(Target(index, 0), range(len(tuples)), tuples)
            if outbox.waiting >= ROW_TUPLES:
                yield from outbox.rows()
        runner.report()
    except PenstockError as error:
        outbox.fail(error, 0 if runner is None else runner.next_origin(0).start, 0, channel)
    finally:
        if runner is not None:
            runner.close()
    yield from outbox.rows()


class _Part(InputPartition):
    """The items of one task; `final` for the one that says that the source has ended."""

    def __init__(self, number: int, items: list[bytes | str], final: bool = False) -> None:
        super().__init__(number)
        self.number = number
        self.items = items
        self.final = final


class SpoolReader(DataSourceStreamReader):
    """Offsets are `{"source": node, "items": n, "ended": 0 or 1}`; asked for in a process beside the driver."""

    def __init__(self, config: SourceConfig) -> None:
        self._config = config
        self._spool = Spool(Path(config.folder))
        self._batch = config.batch_items or config.parts
        self._asked: float | None = None

    def initialOffset(self) -> dict[str, Any]:  # noqa: N802
        return {"source": self._config.source, "items": 0, "ended": 0}

    def getDefaultReadLimit(self) -> ReadLimit:  # noqa: N802
        return ReadAllAvailable()

    def latestOffset(self, start: dict[str, Any], limit: ReadLimit) -> dict[str, Any]:  # noqa: N802
        first = int(start["items"])
        if start["ended"]:
            return start
        self._adapt()
        count, ended = self._available(first)
        if count > first or ended:
            self._asked = time.monotonic()
        return {**start, "items": count, "ended": int(ended)}

    def _available(self, first: int) -> tuple[int, bool]:
        total = self._spool.ended
        count = first
        while count < first + self._batch and (count < total if total is not None else self._spool.exists(count)):
            count += 1
        return count, total is not None and count >= total

    def _adapt(self) -> None:
        """More items when the last batch was quick, fewer when it was slow."""
        if self._asked is None or self._config.batch_items is not None:
            return
        taken, self._asked = max(0.05, time.monotonic() - self._asked), None
        factor = min(4.0, max(0.5, self._config.target_seconds / taken))
        self._batch = max(self._config.parts, min(100_000, round(self._batch * factor)))

    def partitions(self, start: dict[str, Any], end: dict[str, Any]) -> Sequence[InputPartition]:
        first, last = int(start["items"]), int(end["items"])
        parts: list[_Part] = []
        share = max(1, -(-(last - first) // self._config.parts))
        for low in range(first, last, share):
            paths = [self._spool.path(number) for number in range(low, min(last, low + share))]
            items: list[bytes | str] = [path.read_bytes() if self._config.by_value else str(path) for path in paths]
            parts.append(_Part(len(parts), items))
        if end["ended"] and not start["ended"]:
            parts.append(_Part(len(parts), [], final=True))
        return parts

    def commit(self, end: dict[str, Any]) -> None:
        self._spool.remove_before(int(end["items"]))

    def read(self, partition: InputPartition) -> Iterator[pa.RecordBatch]:
        """Runs in a worker: the items of one task through level 0."""
        assert isinstance(partition, _Part)
        rows = self._final_rows() if partition.final else self._read(partition)
        for row in rows:
            yield arrow_row(row)

    def _final_rows(self) -> Iterator[Row]:
        program = unpack(self._config.run, self._config.packed)
        for channel in program.names:
            yield channel, FINAL, dumps(self._config.source)

    def _read(self, part: _Part) -> Iterator[Row]:
        program = unpack(self._config.run, self._config.packed)
        channel = part.number % program.channels
        runner = None
        outbox = Outbox(program.names)
        try:
            runner = StageRunner(program, 0, channel, source=self._config.source, partition=part.number)
            outbox = runner.outbox
            for item in part.items:
                data = item if isinstance(item, bytes) else Path(item).read_bytes()
                for _ in self._feed(runner, load_item(data)):
                    yield from runner.outbox.rows()
            runner.report()
        except PenstockError as error:
            outbox.fail(error, 0 if runner is None else runner.next_origin(0).start, 0, channel)
        finally:
            if runner is not None:
                runner.close()
        yield from outbox.rows()

    def _feed(self, runner: StageRunner, item: Item) -> Iterator[None]:
        """Carry an item through level 0; gives way whenever enough has collected to be sent."""
        for tuples, dead in self._batches(runner, item):
            if dead:
                self._send_dead(runner, dead)
            runner.feed(Target(self._config.source, 0), range(len(tuples)), tuples)
            if runner.outbox.waiting >= ROW_TUPLES:
                yield
        yield

    def _batches(self, runner: StageRunner, item: Item) -> Iterator[tuple[list[Any], list[Any]]]:
        if item.part is None:
            runner.count_input(item.skipped, len(item.dead))
            yield item.tuples, item.dead
            return
        node = runner.program.graph.nodes[self._config.source]
        source = item.part
        source.name = node.name
        try:
            offset = source.initial()
            while True:
                batch = source.read(offset, CHUNK)
                offset = batch.offset
                runner.count_input(batch.skipped, len(batch.dead))
                yield [*batch.tuples, *([Punctuation.WINDOW] if batch.window else [])], batch.dead
                if batch.done:
                    return
        except PenstockError as error:
            raise operator_error(error, node, doing="to read") from error
        except OSError as error:
            raise operator_error(error, node, doing="to read") from error
        finally:
            source.close()

    def _send_dead(self, runner: StageRunner, dead: list[Any]) -> None:
        outlet = runner.segments[self._config.source].outlets.get(Output(self._config.source, 1))
        if outlet is not None:
            for target in outlet.targets:
                runner.turn.push(target, list(dead))
            runner.turn.drain()
