"""`pn.spark`: Spark's own sources and sinks in a Penstock program."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import Any

from penstock.connectors.base import Batch, Offset, Sink
from penstock.connectors.base import Source as BaseSource
from penstock.errors import FlowError, user_location
from penstock.graph.schema import Schema

_LOCAL = "runs on Spark only; use on='spark'"


class SparkSource(BaseSource):
    """A streaming data frame as a source: a tuple is a dict of a row's columns."""

    replayable = False

    def __init__(self, make: Callable[[Any], Any]) -> None:
        self.make = make

    def initial(self) -> Offset:
        raise FlowError(f"pn.spark.source {_LOCAL}")

    def read(self, offset: Offset, limit: int) -> Batch:
        raise FlowError(f"pn.spark.source {_LOCAL}")


class SparkSink(Sink):
    """A function that gets a data frame for each batch."""

    def __init__(self, function: Callable[[Any, int], Any], schema: Schema) -> None:
        self.function = function
        self.schema = schema

    def open(self) -> None:
        raise FlowError(f"pn.spark.sink {_LOCAL}")

    def write(self, tuples: list[Any]) -> None:
        raise FlowError(f"pn.spark.sink {_LOCAL}")

    def deliver(self, session: Any, batch: int, tuples: list[Any]) -> None:
        """Hand one batch over."""
        frame = session.createDataFrame([self.schema.row(item) for item in tuples], self.schema.ddl)
        self.function(frame, batch)


def source(make: Callable[[Any], Any]) -> SparkSource:
    """A source that Spark reads itself: `make(spark)` gives a streaming data frame.

    Without `trigger=` the job reads what is there, to its end; with it the job goes on until it is cancelled. The order
    of the stream is that of the rows within a partition, partition after partition.

        lines = flow.source(pn.spark.source(lambda spark: spark.readStream.text("folder")))
    """
    if not callable(make):
        raise FlowError(f"pn.spark.source() at {user_location()} needs a function of a session, not {make!r}")
    return SparkSource(make)


def sink(function: Callable[[Any, int], Any], schema: Any = None) -> SparkSink:
    """A sink that gets a data frame and a batch number: `function(frame, batch)`, once per batch.

    After a crash a batch may come again, with the same number and the same rows. `schema` gives the columns: a
    dataclass, a NamedTuple, a TypedDict, or a dict of names and types.
    """
    if not callable(function):
        raise FlowError(
            f"pn.spark.sink() at {user_location()} needs a function of a frame and a number, not {function!r}"
        )
    if schema is None:
        raise FlowError(
            f"pn.spark.sink() at {user_location()} needs schema=, the columns of the data frame: a dataclass, a "
            "NamedTuple, a TypedDict or a dict of types such as {'host': str, 'n': int}"
        )
    return SparkSink(function, Schema.of(schema))


def read_level_0(run: str, packed: bytes, index: int) -> Callable[[Iterator[Any]], Iterator[Any]]:
    """The first level of a program as a function for `mapInArrow`."""

    def level_0(batches: Iterator[Any]) -> Iterator[Any]:
        from pyspark import TaskContext

        from penstock.platforms.spark.program import unpack
        from penstock.platforms.spark.source import arrow_row, frame_rows

        context = TaskContext.get()
        partition = 0 if context is None else context.partitionId()
        program = unpack(run, packed)
        tuples = (row for batch in batches for row in [batch.to_pylist()])
        for row in frame_rows(program, index, partition, tuples):
            yield arrow_row(row)

    return level_0
