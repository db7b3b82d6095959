"""Programs for Spark run without it: its rows, groups and state store as lists and dicts, batch after batch."""

from __future__ import annotations

import pickle
import uuid
from collections.abc import Iterator
from typing import Any

from pyspark.sql import Row

from penstock.compiler.stage_plan import SparkPlan
from penstock.graph.operations import Read
from penstock.platforms.spark.processor import Level
from penstock.platforms.spark.program import make_program, pack
from penstock.platforms.spark.run import _tuples
from penstock.platforms.spark.source import frame_rows
from penstock.platforms.spark.wire import FAILED, FINAL, REPORT, dest_port, dumps


class MapState:
    """The state of one channel, as PySpark offers it."""

    def __init__(self) -> None:
        self.entries: dict[tuple[int, int], tuple[bytes]] = {}
        self.busy = False

    def _alone(self) -> None:
        assert not self.busy, "two threads ask the store at once"

    def getValue(self, key: tuple[int, int]) -> tuple[bytes] | None:
        self._alone()
        self.busy = True
        try:
            return self.entries.get(key)
        finally:
            self.busy = False

    def updateValue(self, key: tuple[int, int], value: tuple[bytes]) -> None:
        self._alone()
        self.entries[key] = value

    def removeKey(self, key: tuple[int, int]) -> None:
        self._alone()
        del self.entries[key]

    def iterator(self) -> Iterator[tuple[tuple[int, int], tuple[bytes]]]:
        return iter(list(self.entries.items()))


class Failed(Exception):
    """A batch failed: `error` is what workers said."""

    def __init__(self, error: BaseException) -> None:
        super().__init__(str(error))
        self.error = error


class Cluster:
    """Runs a plan over the lists that its sources read."""

    def __init__(self, plan: SparkPlan) -> None:
        self.program = make_program(plan, uuid.uuid4().hex)
        self.packed = pack(self.program)
        self.stores: dict[tuple[int, int], MapState] = {}
        self.delivered: dict[str, list[Any]] = {node.name: [] for node in plan.program if node.is_sink}
        self.sources = {
            node.index: list(node.operation.source) for node in plan.program if isinstance(node.operation, Read)
        }

    def run(self, batches: int) -> dict[str, list[Any]]:
        """All batches; what each sink received."""
        for number in range(batches):
            self.batch(number, batches)
        return self.delivered

    def batch(self, number: int, batches: int) -> None:
        """One of so many batches."""
        rows = self._read(number, batches)
        for level in range(1, self.program.stages.levels + 1):
            rows = self._through(level, rows)
        failures = [pickle.loads(payload) for _, dest, payload in rows if dest == FAILED]
        self._deliver(rows, min((failure[:2] for failure in failures), default=None))
        if failures:
            raise Failed(min(failures, key=lambda failure: failure[:2])[2])

    def _read(self, number: int, batches: int) -> list[Any]:
        program, rows = self.program, []
        for source, tuples in self.sources.items():
            piece = tuples[len(tuples) * number // batches : len(tuples) * (number + 1) // batches]
            parts = program.channels_at(0)
            for part in range(parts):
                share = piece[len(piece) * part // parts : len(piece) * (part + 1) // parts]
                rows += frame_rows(program, source, part, iter([share] if share else []))
            if number == batches - 1:
                rows += [(name, FINAL, dumps(source)) for name in program.names]
        return rows

    def _through(self, level: int, rows: list[Any]) -> list[Any]:
        groups: dict[int, list[Row]] = {}
        for channel, dest, payload in rows:
            groups.setdefault(channel, []).append(Row(channel=channel, dest=dest, payload=payload))
        result = []
        for channel, group in groups.items():
            store = self.stores.setdefault((level, channel), MapState())
            found = Level(self.program.run, self.packed, level, store).rows(channel, iter(group))
            result += [(row.channel, row.dest, row.payload) for row in found]
        return result

    def _deliver(self, rows: list[Any], failed: tuple[int, int] | None) -> None:
        payloads: dict[int, dict[int, list[bytes]]] = {}
        for _, dest, payload in rows:
            if dest not in (FAILED, FINAL, REPORT):
                payloads.setdefault(dest_port(dest).node, {}).setdefault(dest, []).append(payload)
        for node in self.program.graph:
            if node.is_sink:
                before = None if failed is None else failed[1]
                self.delivered[node.name] += _tuples(payloads.get(node.index, {}), before)
