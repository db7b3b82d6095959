"""A spool as a PySpark Python data source, with level 0 of the program run right where it is read.

Reading and the first stage share one Python worker per task: `read` opens items, runs the segments behind the source
over them and gives rows for the next level. A batch is a run of items; how many follows how long batches take.
"""

from __future__ import annotations

import time
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any

import pyarrow as pa
from pyspark.sql.datasource import DataSource, DataSourceStreamReader, InputPartition
from pyspark.sql.streaming.datasource import ReadAllAvailable, ReadLimit

from penstock.errors import PenstockError
from penstock.graph.graph import Output, Target
from penstock.platforms.spark.program import Program, unpack
from penstock.platforms.spark.spool import Item, load_item
from penstock.platforms.spark.stage_runner import ROW_TUPLES, Outbox, Row, StageRunner
from penstock.platforms.spark.wire import FINAL, dumps
from penstock.runtime.failure import operator_error
from penstock.tuples import CHUNK, Punctuation

_ARROW = pa.schema([("channel", pa.int32()), ("dest", pa.int32()), ("payload", pa.binary())])


def make_data_source(
    name: str,
    run: str,
    packed: bytes,
    source: int,
    folder: str,
    parts: int,
    *,
    by_value: bool,
    target_seconds: float,
    most_items: int,
    batch_items: int | None = None,
) -> type[DataSource]:
    """A data source class of its own for each source of a run: PySpark passes classes, not objects.

    `packed` is the program, `source` the node, `parts` how many tasks can run at once; `by_value` sends items with the
    task, to workers that do not see the driver's files; a batch has `batch_items`, or with None as many as take about
    `target_seconds`, and at most `most_items`. The classes are local to this function and import nothing of Penstock
    before tuples are read: so they travel by value, and the processes that Spark starts for planning and for offsets
    need not load it.
    """

    class SpoolReader(DataSourceStreamReader):
        """Offsets are `{"source": node, "items": n, "ended": 0 or 1}`; asked for in a process beside the driver."""

        def __init__(self) -> None:
            self._batch = batch_items or parts
            self._asked: float | None = None
            self._quickest = float("inf")  # seconds of a batch

        def initialOffset(self) -> dict[str, Any]:  # noqa: N802
            return {"source": source, "items": 0, "ended": 0}

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

        def _path(self, number: int) -> Path:
            return Path(folder, f"{number:010d}.item")  # as in spool.py

        def _available(self, first: int) -> tuple[int, bool]:
            try:
                total = int(Path(folder, "ended").read_text())
            except FileNotFoundError:
                total = -1
            count = first
            while count < first + self._batch and (count < total if total >= 0 else self._path(count).exists()):
                count += 1
            return count, count >= total >= 0

        def _adapt(self) -> None:
            """More items when the last batch was quick, fewer when it was slow.

            Spark needs time for a batch however small it is, at most as long as the quickest batch took. Where that
            leaves little of the target, batches may take longer: at least half of their time goes into items.
            """
            if self._asked is None or batch_items is not None:
                return
            taken, self._asked = max(0.05, time.monotonic() - self._asked), None
            self._quickest = min(self._quickest, taken)
            factor = min(8.0, max(0.5, max(target_seconds, 2 * self._quickest) / taken))
            self._batch = max(parts, min(most_items, round(self._batch * factor)))

        def partitions(self, start: dict[str, Any], end: dict[str, Any]) -> Sequence[InputPartition]:
            """Each is (number, items, final): the items of one task; final for the one that says that it was all."""
            first, last = int(start["items"]), int(end["items"])
            result: list[InputPartition] = []
            share = max(1, -(-(last - first) // parts))
            for low in range(first, last, share):
                paths = [self._path(number) for number in range(low, min(last, low + share))]
                items = [path.read_bytes() if by_value else str(path) for path in paths]
                result.append(InputPartition((len(result), items, False)))
            if end["ended"] and not start["ended"]:
                result.append(InputPartition((len(result), [], True)))
            return result

        def commit(self, end: dict[str, Any]) -> None:
            """The item just before stays: it tells where reading was."""
            for path in Path(folder).glob("*.item"):
                if int(path.stem) < int(end["items"]) - 1:
                    path.unlink(missing_ok=True)

        def read(self, partition: InputPartition) -> Iterator[pa.RecordBatch]:
            """Runs in a worker: the items of one task through level 0."""
            from penstock.platforms.spark.source import read_part

            return read_part(run, packed, source, *partition.value)

    class SpoolDataSource(DataSource):
        @classmethod
        def name(cls) -> str:
            return name

        def schema(self) -> str:
            return "channel int, dest int, payload binary"

        def streamReader(self, schema: Any) -> DataSourceStreamReader:  # noqa: N802 — PySpark's name
            return SpoolReader()

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


def read_part(
    run: str, packed: bytes, source: int, number: int, items: list[bytes | str], final: bool
) -> Iterator[pa.RecordBatch]:
    """The rows that level 0 makes of the items of one task; or those that say that the source has ended."""
    program = unpack(run, packed)
    reader = PartReader(program, source)
    for row in reader.final_rows() if final else reader.rows(number, items):
        yield arrow_row(row)


class PartReader:
    """Reads items in a worker and carries them through level 0."""

    def __init__(self, program: Program, source: int) -> None:
        self._program = program
        self._source = source

    def final_rows(self) -> Iterator[Row]:
        """To every channel: the source has ended."""
        for channel in self._program.names:
            yield channel, FINAL, dumps(self._source)

    def rows(self, number: int, items: list[bytes | str]) -> Iterator[Row]:
        """What level 0 makes of `items`, as part number `number` of the batch."""
        program = self._program
        channel = number % program.channels
        runner = None
        outbox = Outbox(program.names)
        try:
            runner = StageRunner(program, 0, channel, source=self._source, partition=number)
            outbox = runner.outbox
            for item in items:
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
            runner.feed(Target(self._source, 0), range(len(tuples)), tuples)
            if runner.outbox.waiting >= ROW_TUPLES:
                yield
        yield

    def _batches(self, runner: StageRunner, item: Item) -> Iterator[tuple[list[Any], list[Any]]]:
        if item.part is None:
            runner.count_input(item.skipped, len(item.dead))
            yield item.tuples, item.dead
            return
        node = runner.program.graph.nodes[self._source]
        source = item.part
        source.name = node.name
        try:
            offset = source.initial()
            while True:
                begun = time.perf_counter()
                batch = source.read(offset, CHUNK)
                runner.count_reading(time.perf_counter() - begun)
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
        outlet = runner.segments[self._source].outlets.get(Output(self._source, 1))
        if outlet is not None:
            for target in outlet.targets:
                runner.turn.push(target, list(dead))
            runner.drain()
