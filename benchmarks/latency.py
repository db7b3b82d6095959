"""Latency from source to sink of a chain of ten operators at 1 %, 50 % and 90 % of its greatest rate, beside Bytewax.

    python benchmarks/latency.py [--full]

A tuple carries the moment at which it was due; its latency is how much later the sink got it. Both engines run the same
functions at the same absolute rates; both sources give all tuples that are due, and sleep until the next one is.
"""

from __future__ import annotations

import argparse
import statistics
import sys
import time
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

sys.path.insert(0, str(Path(__file__).parent))

from bytewax import operators as op
from bytewax.dataflow import Dataflow
from bytewax.inputs import DynamicSource, StatelessSourcePartition
from bytewax.outputs import DynamicSink, StatelessSinkPartition
from bytewax.testing import run_main

import penstock as pn
from measuring import report, table

OPERATORS = 10


def shift(item: tuple[float, int]) -> tuple[float, int]:
    return item[0], item[1] + 1


class Due:
    """Tuples that are due at a steady rate, each with the moment it was due."""

    def __init__(self, rate: float, count: int) -> None:
        self.rate, self.count = rate, count
        self.start = time.perf_counter() + 0.01

    def batch(self, sent: int, limit: int) -> list[tuple[float, int]]:
        """What is due by now after the first `sent`, up to `limit` tuples."""
        due = int((time.perf_counter() - self.start) * self.rate) + 1
        start, rate = self.start, self.rate
        return [(start + n / rate, n) for n in range(sent, min(due, sent + limit, self.count))]

    def moment(self, n: int) -> float:
        """When tuple `n` is due."""
        return self.start + n / self.rate


# ------------------------------------------------------------------------------------------------------------ Penstock


class PolledSource(pn.Source):
    """Waits until a tuple is due, then gives all that are."""

    def __init__(self, rate: float, count: int) -> None:
        self.due = Due(rate, count)

    def initial(self) -> int:
        return 0

    def read(self, offset: int, limit: int) -> pn.Batch:
        left = self.due.moment(offset) - time.perf_counter()
        if left > 0 and offset < self.due.count:
            time.sleep(left)
        tuples = self.due.batch(offset, limit)
        return pn.Batch(tuples, offset + len(tuples), done=offset + len(tuples) >= self.due.count)


def penstock_latencies(rate: float, count: int) -> list[float]:
    found: list[float] = []
    clock = time.perf_counter
    flow = pn.Flow("latency")
    stream: pn.Stream[Any] = flow.source(PolledSource(rate, count))
    for _ in range(OPERATORS):
        stream = stream.map(shift)
    stream.sink(lambda item: found.append(clock() - item[0]))
    pn.run(flow, on="local")
    return found


def greatest_rate(count: int) -> float:
    """Tuples per second when all of them are due at once."""
    start = time.perf_counter()
    penstock_latencies(1e12, count)
    return count / (time.perf_counter() - start)


# ------------------------------------------------------------------------------------------------------------- Bytewax


class DuePartition(StatelessSourcePartition[Any]):
    """What is due by now, up to 1,000 tuples at once."""

    def __init__(self, rate: float, count: int) -> None:
        self.due, self.sent = Due(rate, count), 0
        self.offset = time.time() - time.perf_counter()

    def next_batch(self) -> list[Any]:
        if self.sent >= self.due.count:
            raise StopIteration
        batch = self.due.batch(self.sent, 1000)
        self.sent += len(batch)
        return batch

    def next_awake(self) -> datetime | None:
        return datetime.fromtimestamp(self.due.moment(self.sent) + self.offset, UTC)


class DueSource(DynamicSource[Any]):
    def __init__(self, rate: float, count: int) -> None:
        self.rate, self.count = rate, count

    def build(self, step_id: str, worker_index: int, worker_count: int) -> DuePartition:
        return DuePartition(self.rate, self.count)


class LatencyPartition(StatelessSinkPartition[Any]):
    def __init__(self, found: list[float]) -> None:
        self.found = found

    def write_batch(self, items: list[Any]) -> None:
        clock, append = time.perf_counter, self.found.append
        for item in items:
            append(clock() - item[0])


class LatencySink(DynamicSink[Any]):
    def __init__(self, found: list[float]) -> None:
        self.found = found

    def build(self, step_id: str, worker_index: int, worker_count: int) -> LatencyPartition:
        return LatencyPartition(self.found)


def bytewax_latencies(rate: float, count: int) -> list[float]:
    found: list[float] = []
    flow = Dataflow("latency")
    stream = op.input("in", flow, DueSource(rate, count))
    for n in range(OPERATORS):
        stream = op.map(f"map_{n}", stream, shift)
    op.output("out", stream, LatencySink(found))
    run_main(flow)
    return found


# ----------------------------------------------------------------------------------------------------------- measuring


def percentile(values: list[float], share: float) -> float:
    values = sorted(values)
    return values[min(len(values) - 1, int(share / 100 * len(values)))]


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--short", action="store_true", help="the default; for benchmarks/all.py")
    parser.add_argument("--full", action="store_true", help="three times as long")
    options = parser.parse_args()
    # Many short rounds: a machine that stands still for a moment spoils some of them, and not their median.
    seconds, rounds = (3.0, 11) if options.full else (1.0, 7)
    top = statistics.median(greatest_rate(300_000) for _ in range(3))
    rows = []
    for share in (1, 50, 90):
        rate = top * share / 100
        count = int(rate * seconds)
        found: dict[str, list[list[float]]] = {"Penstock": [], "Bytewax": []}
        for _ in range(rounds):
            found["Penstock"].append(penstock_latencies(rate, count))
            found["Bytewax"].append(bytewax_latencies(rate, count))
        if any(len(run) != count for runs in found.values() for run in runs):
            raise AssertionError("tuples are missing")
        middle = {
            name: [statistics.median(percentile(run, p) for run in runs) for p in (50, 99)]
            for name, runs in found.items()
        }
        for number, part in enumerate(("p50", "p99")):
            ratio = middle["Penstock"][number] / middle["Bytewax"][number]
            report(f"{part} at {share} % of the greatest rate / Bytewax", ratio, most=1.0)
        cells = [f"{1000 * seconds:,.3f}" for both in middle.values() for seconds in both]
        rows.append([f"{share} % = {rate:,.0f}/s", *cells])
        print("  ".join(rows[-1]), file=sys.stderr, flush=True)
    headings = ["rate", "Penstock p50", "p99", "Bytewax p50", "p99"]
    print(table("Latency of ten operators, ms", headings, rows))


if __name__ == "__main__":
    main()
