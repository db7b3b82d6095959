"""Measures what a tuple pays on Spark: from one Python worker to the next, and through a shuffle."""

from __future__ import annotations

import math
import time
from collections.abc import Iterator
from typing import Any

from penstock.optimizer.calibrate import Boundary
from penstock.platforms.spark.session import get_session

ROWS = 400_000


def measure_spark(rows: int = ROWS, rounds: int = 3) -> dict[str, Boundary]:
    """The boundaries "stage" and "shuffle". Starts Spark where it does not run yet, and leaves it running.

    A task hands rows from one Python worker to the next by Arrow batches: chains of one and of three workers tell what
    that costs. A shuffle is measured beside the same work without one; in twice as many channels it costs more, which
    is what splitting costs. All are clock times of all cores together, the least of several rounds.
    """
    spark = get_session(None, None, None)
    cores = spark.sparkContext.defaultParallelism
    numbers = spark.range(rows, numPartitions=cores)
    short = numbers.mapInArrow(_same, numbers.schema)
    queries = [
        short,
        short.mapInArrow(_same, numbers.schema).mapInArrow(_same, numbers.schema),
        numbers.repartition(cores, "id").mapInArrow(_same, numbers.schema),
        numbers.repartition(2 * cores, "id").mapInArrow(_same, numbers.schema),
    ]
    one, three, shuffled, twice = (seconds * cores / rows for seconds in _least(queries, rounds))
    # Two more boundaries, and each has two sides.
    stage = Boundary(max(0.0, three - one) / 4)
    return {"stage": stage, "shuffle": Boundary(max(0.0, shuffled - one) / 2, max(0.0, twice - shuffled))}


def _same(batches: Iterator[Any]) -> Iterator[Any]:
    import pyarrow as pa

    for batch in batches:  # to Python and back, as a stage of ours does
        yield pa.RecordBatch.from_arrays([pa.array(batch.column(0).to_pylist(), pa.int64())], names=["id"])


def _least(queries: list[Any], rounds: int) -> list[float]:
    least = [math.inf] * len(queries)
    for _ in range(rounds + 1):  # the first start of workers and of compiled code is forgotten
        for number, query in enumerate(queries):
            start = time.perf_counter()
            query.write.format("noop").mode("overwrite").save()
            least[number] = min(least[number], time.perf_counter() - start)
    return least
