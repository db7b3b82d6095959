"""A job on Spark: one streaming query over all sources, one level after the other, delivered by the driver.

How a run ends: a source that is read to its end sends final rows through every level in its last batch. When the
driver has delivered a batch in which the last source ended, and Spark has committed it, the query is stopped. An error
stops the query before the batch is committed, so a later run with the same checkpoint begins again with that batch.
"""

from __future__ import annotations

import pickle
import shutil
import tempfile
import threading
import time
import uuid
from collections.abc import Mapping
from contextlib import suppress
from dataclasses import replace
from pathlib import Path
from typing import Any

from penstock.compiler.physical import Expected
from penstock.compiler.stage_planner import expect_stages
from penstock.errors import Cancelled, PenstockError, PlatformError
from penstock.graph.graph import Graph, Target
from penstock.graph.operations import Read
from penstock.optimizer.profile import Profile
from penstock.platforms.job import JobMetrics, OperatorMetrics, Throughput
from penstock.platforms.spark import planning
from penstock.platforms.spark.checkpoint import Checkpoint
from penstock.platforms.spark.connectors import SparkSource, read_level_0
from penstock.platforms.spark.delivery import Delivery, make_delivery
from penstock.platforms.spark.failures import Failure, cause_of
from penstock.platforms.spark.numbers import Numbers, Report
from penstock.platforms.spark.options import SparkOptions, interval
from penstock.platforms.spark.planning import TARGET_SECONDS
from penstock.platforms.spark.processor import make_processor, merged
from penstock.platforms.spark.program import Program, make_program, pack
from penstock.platforms.spark.session import QUERY_SETTINGS, get_session
from penstock.platforms.spark.source import make_data_source
from penstock.platforms.spark.spool import Spooler
from penstock.platforms.spark.throughput import Batches
from penstock.platforms.spark.tuning import split_conf
from penstock.platforms.spark.wire import FAILED, FINAL, REPORT, SCHEMA, dest_port
from penstock.runtime.failure import operator_error
from penstock.tuples import Punctuation

BULK_SECONDS = 6.0  # where all input is there already, nobody waits for what is new
MOST_ITEMS, MOST_RANGES = 64, 12  # in a batch, for each channel: memory stays bounded on quick machines too
_PAUSE = 0.02
_PATIENCE = 2.0  # seconds to wait for the numbers of a batch that is committed


class SparkRun:
    """A program that runs as a streaming query."""

    def __init__(self, graph: Graph, options: SparkOptions) -> None:
        self.graph = graph
        self.options = options
        self._temporary: Path | None = None
        self._error: BaseException | None = None
        self._cancelled = False
        self._query: Any = None
        self._started = time.monotonic()
        self._ended: float | None = None
        self._changed = threading.Condition()
        self._ending = threading.Event()  # no more batches are wanted
        self._delivering = threading.Lock()  # sinks are not closed under a batch
        self._final_batch: int | None = None
        self._finals: set[int] = set()
        self.numbers = Numbers(graph)
        self._sources = {node.index for node in graph if node.is_source}
        given = options.given_plan(graph)
        conf, self._tuning = split_conf(options.conf)
        session = options.spark if options.spark is not None else get_session(options.master, conf, options.log)
        self._session = session.newSession()
        self._cores = max(1, self._session.sparkContext.defaultParallelism)
        self.plan = planning.plan(graph, cores=self._cores, profile=options.profile) if given is None else given
        self._batches = Batches(self._cores)
        self.program: Program = make_program(self.plan, uuid.uuid4().hex)
        self._packed = pack(self.program)
        self._folder = self._make_folder()
        self._checkpoint = Checkpoint(self._folder)
        widths = self._checkpoint.agree(graph, self.plan.widths)
        if widths != self.plan.widths:
            self.plan = planning.with_widths(self.plan, widths)
            self.program = make_program(self.plan, self.program.run)
            self._packed = pack(self.program)
        keeps = options.checkpoint is not None
        self.deliveries: dict[int, Delivery] = {
            node.index: make_delivery(
                node, self._checkpoint.place("sinks", node.name) if keeps else None, self._session
            )
            for node in graph
            if node.is_sink
        }
        self._foreign: dict[int, SparkSource] = {
            node.index: node.operation.source
            for node in graph
            if isinstance(node.operation, Read) and isinstance(node.operation.source, SparkSource)
        }
        self.spoolers = {
            node.index: Spooler(
                node.operation.source,  # type: ignore[attr-defined]
                self._checkpoint.place("sources", node.name),
                node.name,
                self.program.channels_at(0),
                lambda error, node=node: self._source_failed(error, node),  # type: ignore[misc]
                self._tuning,
            )
            for node in graph
            if node.is_source
        }

    # ------------------------------------------------------------------------------------------------- starting

    def _make_folder(self) -> Path:
        if self.options.checkpoint is not None:
            if "://" in str(self.options.checkpoint):
                raise PlatformError(
                    f"checkpoint= is a folder that the driver and all workers see, not {self.options.checkpoint!s}"
                )
            folder = Path(self.options.checkpoint).absolute()
            folder.mkdir(parents=True, exist_ok=True)
            return folder
        self._temporary = Path(tempfile.mkdtemp(prefix="penstock-"))
        return self._temporary

    def start(self) -> None:
        """Open the sinks, start the sources and the query."""
        try:
            self._checkpoint.acquire()
            for delivery in self.deliveries.values():
                delivery.open()
            self._finals = self._checkpoint.finals()
            if self._checkpoint.complete or self._finals >= self._sources:
                self._ending.set()  # all that an earlier run may have left to do is to put the sinks in place
            else:
                for spooler in self.spoolers.values():
                    spooler.start()
                self._start_query()
                if self._foreign and self.options.trigger is None:
                    threading.Thread(target=self._end_foreign, name=f"{self.graph.name}: end", daemon=True).start()
        except BaseException as error:
            self._error = error
            self._finish()
            raise
        threading.Thread(target=self._supervise, name=f"{self.graph.name}: supervisor", daemon=True).start()

    def _start_query(self) -> None:
        session = self._session
        for name, value in QUERY_SETTINGS.items():
            session.conf.set(name, value)
        session.conf.set("spark.sql.shuffle.partitions", str(self.program.channels))
        frame = None
        for index, spooler in self.spoolers.items():
            read = self._read(index, spooler)
            frame = read if frame is None else frame.union(read)
        assert frame is not None, "validate() lets no flow pass without a source"
        for level in range(1, self.program.stages.levels + 1):
            processor = make_processor(self.program.run, self._packed, level)
            frame = frame.groupBy("channel").transformWithState(processor, SCHEMA, "append", "none")
        writer = frame.writeStream.foreachBatch(self._deliver).outputMode("append")
        writer = writer.option("checkpointLocation", str(self._folder / "spark"))
        self._query = writer.trigger(processingTime=interval(self.options.trigger)).start()

    def _read(self, index: int, spooler: Spooler) -> Any:
        master = self._session.sparkContext.master
        name = f"penstock_{self.program.run}_{index}"
        made = make_data_source(
            name,
            self.program.run,
            self._packed,
            index,
            str(spooler.spool.folder),
            self.program.channels_at(0),
            by_value=not master.startswith("local"),
            target_seconds=BULK_SECONDS if spooler.is_bulk else TARGET_SECONDS,
            most_items=self.program.channels_at(0) * (MOST_RANGES if spooler.is_bulk else MOST_ITEMS),
            batch_items=self._tuning.batch_items,
        )
        self._session.dataSource.register(made)
        spooled = self._session.readStream.format(name).load()
        if index not in self._foreign:
            return spooled
        # Spark reads the tuples itself; the spool, which stays empty, only brings the final punctuation.
        frame = self._foreign[index].make(self._session)
        if not getattr(frame, "isStreaming", False):
            node = self.graph.nodes[index]
            raise PlatformError(
                f"source '{node.name}' ({node.location}): the function given to pn.spark.source must return a "
                f"streaming data frame (spark.readStream…), not {type(frame).__name__}"
            )
        return frame.mapInArrow(read_level_0(self.program.run, self._packed, index), SCHEMA).union(spooled)

    def _end_foreign(self) -> None:
        """Without a trigger, Spark's own sources end where their data ends now."""
        with suppress(Exception):  # the query fails or is stopped: whoever waits for the job hears of that
            self._query.processAllAvailable()
            for index in self._foreign:
                self.spoolers[index].spool.end(0)

    # ------------------------------------------------------------------------------------------------ delivering

    def _deliver(self, frame: Any, batch: int) -> None:
        """One batch, in the driver. Raising keeps Spark from committing it."""
        try:
            table = frame.toArrow()
            with self._delivering:
                if self._ending.is_set() or (self._final_batch is not None and batch > self._final_batch):
                    self._ending.set()  # what came after the end is not part of the stream
                    raise RuntimeError("the job is being stopped")
                self._deliver_rows(table, batch)
        except BaseException as error:
            if self._error is None and not self._ending.is_set():
                self._error = error
            self._ending.set()
            raise

    def _deliver_rows(self, table: Any, batch: int) -> None:
        payloads: dict[int, dict[int, list[bytes]]] = {}
        failures: list[Failure] = []
        finals: set[int] = set()
        reports: list[bytes] = []
        dests, packed = table.column("dest").to_pylist(), table.column("payload").to_pylist()
        for dest, payload in zip(dests, packed, strict=True):
            if dest == FAILED:
                failures.append(pickle.loads(payload))
            elif dest == FINAL:
                finals.add(pickle.loads(payload))
            elif dest == REPORT:
                reports.append(payload)
            else:
                payloads.setdefault(dest_port(dest).node, {}).setdefault(dest, []).append(payload)
        if failures:
            self._deliver_before(min(failures, key=lambda failure: failure[:2]), payloads, batch)
        for packed_report in reports:
            report: Report = pickle.loads(packed_report)
            self._batches.note_task(batch, report.level, report.seconds, self.numbers.add(report))
        self.numbers.batches += 1
        for index, delivery in self.deliveries.items():
            begun = time.perf_counter()
            tuples = _tuples(payloads.get(index, {}))
            delivery.write(batch, tuples)
            seconds = time.perf_counter() - begun
            self._batches.note_delivery(batch, seconds)
            self.numbers.add_sink(index, len(tuples), seconds)
        if finals:
            self._finals |= finals
            self._checkpoint.note_finals(finals, batch)
        if self._finals >= self._sources:
            self._final_batch = batch

    def _deliver_before(self, failure: Failure, payloads: Mapping[int, dict[int, list[bytes]]], batch: int) -> None:
        """What came before the failing tuple, as far as the order tells, then the error itself."""
        level, origin, error, packed, shown = failure
        error.__cause__ = cause_of(packed, shown)
        for index, delivery in self.deliveries.items():
            (above,) = self.graph.nodes[index].inputs[0].streams[:1]
            if self.program.stages.present[above.node] == {level} and self.options.checkpoint is None:
                delivery.write(batch, _tuples(payloads.get(index, {}), before=origin))
        raise error

    # --------------------------------------------------------------------------------------------------- ending

    def _source_failed(self, error: BaseException, node: Any) -> None:
        """A source failed in the driver: what it gave before is still delivered, then the job fails."""
        wrapped = error
        if isinstance(error, Exception):
            wrapped = operator_error(error, node, doing="to read")
            wrapped.__cause__ = error
        self._failed_source = node.index
        self._source_error = wrapped

    _source_error: BaseException | None = None
    _failed_source: int | None = None

    def _supervise(self) -> None:
        try:
            while not self._ending.is_set() and not self._is_over():
                self._ending.wait(_PAUSE)
        except Exception as error:
            self._error = self._error or error
        self._finish()

    def _is_over(self) -> bool:
        if self._query is None:
            return True
        if not self._query.isActive:
            exception = self._query.exception()
            if exception is not None and self._error is None:
                self._error = PlatformError(f"Spark stopped the job: {_short(exception)}")
            return True
        if self._source_error is not None and self._drained():
            self._error = self._source_error
            return True
        return self._final_batch is not None and self._committed(self._final_batch) and self._reported()

    def _drained(self) -> bool:
        """Everything a failed source gave before has been processed."""
        assert self._failed_source is not None
        numbers = self.spoolers[self._failed_source].spool.numbers()
        if not numbers:
            return True
        return self._checkpoint.committed_items(self._failed_source) > numbers[-1]

    def _committed(self, batch: int) -> bool:
        return (self._folder / "spark" / "commits" / str(batch)).exists()

    def _reported(self) -> bool:
        """Spark has told the numbers of the final batch, which it does right after committing it; else soon enough."""
        now = time.monotonic()
        self._committed_at = self._committed_at or now
        progress = self._query.lastProgress
        return (progress is not None and progress.batchId >= self._final_batch) or now > self._committed_at + _PATIENCE

    _committed_at: float | None = None

    def _finish(self) -> None:
        self._ending.set()
        if self._query is not None and self._query.isActive:
            with suppress(Exception):  # stopping may report the interruption it causes
                self._query.stop()
        for spooler in self.spoolers.values():
            spooler.stop()
        with self._delivering:
            self._close_sinks()
        self._checkpoint.release()
        if self._temporary is not None:
            shutil.rmtree(self._temporary, ignore_errors=True)
        with self._changed:
            self._ended = time.monotonic()
            self._changed.notify_all()

    def _close_sinks(self) -> None:
        failed = self._error is not None or self._cancelled
        for delivery in self.deliveries.values():
            try:
                delivery.close(failed)
            except PenstockError as error:
                self._error = self._error or error
        if self._error is None and not self._cancelled:
            with suppress(OSError):  # without the mark the next run finds out that all batches are committed
                self._checkpoint.set_complete()

    def cancel(self) -> None:
        """Stop the query; what was delivered stays."""
        if self._ended is None:
            self._cancelled = True
            self._ending.set()

    def wait(self, timeout: float | None = None) -> bool:
        with self._changed:
            if not self._changed.wait_for(lambda: self._ended is not None, timeout):
                return False
        if self._error is not None and not (self._cancelled and not isinstance(self._error, PenstockError)):
            raise self._error
        if self._cancelled:
            raise Cancelled(f"flow '{self.graph.name}' was cancelled")
        return True

    # -------------------------------------------------------------------------------------------------- looking

    @property
    def state(self) -> str:
        if self._ended is None:
            return "running"
        if self._cancelled:
            return "cancelled"
        return "failed" if self._error is not None else "completed"

    def profile(self) -> Profile:
        found = self.numbers.profile()
        operators = dict(found.operators)
        for index, spooler in self.spoolers.items():
            name, cost = self.graph.nodes[index].name, spooler.cost
            if name in operators and cost is not None:
                operators[name] = replace(operators[name], cost=cost)
        return Profile(found.flow, operators)

    def metrics(self) -> JobMetrics:
        elapsed = (self._ended if self._ended is not None else time.monotonic()) - self._started
        operators = self.numbers.operators()
        for index, delivery in self.deliveries.items():
            name = self.graph.nodes[index].name
            cost = operators[name].cost if name in operators else None
            operators[name] = OperatorMetrics(delivery.delivered, 0, cost)
        tuples = self.numbers.tuples
        rate = tuples / elapsed if elapsed > 0 else 0.0
        stored = self._state_operators()
        return JobMetrics(
            self.state,
            elapsed,
            tuples,
            rate,
            operators,
            batches=self.numbers.batches,
            state_entries=sum(operator.numRowsTotal for operator in stored),
            state_bytes=sum(operator.memoryUsedBytes for operator in stored),
            throughput=self._throughput(),
        )

    def batch_seconds(self) -> list[tuple[int, float]]:
        """Tuples and seconds of each of the latest batches, as Spark reports them."""
        return [] if self._query is None else self._batches.seconds(_durations(self._query))

    _compared: tuple[object, Throughput | None] = (None, None)

    def _throughput(self) -> Throughput | None:
        """What batches reached, beside what the model says of the plan with the costs they had."""
        now = (self.numbers.batches, self.state)
        if self._compared[0] != now and self._query is not None:
            self._compared = now, self._batches.compare(_durations(self._query), self._expect)
        return self._compared[1]

    def _expect(self) -> Expected | None:
        """What the model says of the plan, with the costs of this run, per tuple of all sources together."""
        groups = self.plan.layout.groups
        cluster = planning.cluster_of(self._cores, shuffles=self.program.stages.levels)
        ahead, shares = planning.read_ahead(self.graph), self.numbers.shares()
        return expect_stages(self.graph, groups, self.profile(), cluster, ahead, shares)

    def _state_operators(self) -> list[Any]:
        progress = None if self._query is None else self._query.lastProgress
        return [] if progress is None else list(progress.stateOperators)


def _durations(query: Any) -> dict[int, float]:
    """Seconds that Spark took for its latest batches, by their numbers."""
    return {one.batchId: one.durationMs.get("triggerExecution", 0) / 1000 for one in query.recentProgress}


def _tuples(payloads: dict[int, list[bytes]], before: int | None = None) -> list[Any]:
    """The tuples for one sink, in order, without marks."""
    result: list[Any] = []
    for _, origins, tuples in merged(payloads):
        if before is None:
            result += tuples
        else:
            result += [item for origin, item in zip(origins, tuples, strict=True) if origin < before]
    return [item for item in result if item is not Punctuation.WINDOW]


def _short(exception: BaseException) -> str:
    lines = [line for line in str(exception).strip().splitlines() if line.strip()]
    return lines[0][:500] if lines else type(exception).__name__


__all__ = ["SparkOptions", "SparkRun", "Target"]
