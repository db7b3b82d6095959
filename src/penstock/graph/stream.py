"""`Stream`: an ordered stream of tuples, and the operators that can be applied to it.

Streams are handles: each method adds one operator to the flow and returns the stream that leaves it. Nothing runs
before `pn.run` or `pn.submit`.
"""

from __future__ import annotations

import inspect
from collections.abc import Callable, Iterable
from datetime import timedelta
from typing import TYPE_CHECKING, Any, Literal, TypeVar, overload

from penstock.errors import FlowError, user_location
from penstock.graph import operations as ops
from penstock.graph.graph import Output
from penstock.graph.handle import require_callable, require_window
from penstock.graph.keys import Key, KeySpec
from penstock.graph.meeting import MeetingStream
from penstock.graph.operator import CoOperator, Kind, Operator
from penstock.graph.schema import Schema

if TYPE_CHECKING:
    from penstock.graph.windowed import WindowedStream

T = TypeVar("T")
U = TypeVar("U")


class Collected(list[Any]):
    """What `stream.collect()` returns: a list that a run fills, on every platform. Each run starts it anew."""


class SparkFrame(Collected):
    """What `stream.to_spark(...)` returns: the tuples of a run, and the data frame they make."""

    def __init__(self, schema: Schema) -> None:
        super().__init__()
        self.schema = schema

    def dataframe(self, spark: Any) -> Any:
        """A data frame of session `spark` with one row per tuple, in order."""
        return spark.createDataFrame([self.schema.row(item) for item in self], self.schema.ddl)


class Stream(MeetingStream[T]):
    """An ordered stream of tuples of one flow."""

    # ------------------------------------------------------------------------------------------------ one tuple

    def map(
        self, function: Callable[[T], U], *, on_error: Any = "raise", kind: Kind | None = None, name: str | None = None
    ) -> Stream[U]:
        """One tuple `function(t)` for each tuple; `None` is a value like any other.

        `on_error` is "raise" (the job fails, naming the tuple), "skip" (dropped and counted) or a stream made by
        `flow.dead_letters()`.

        >>> import penstock as pn
        >>> flow = pn.Flow()
        >>> out = flow.source([1, 2, 3]).map(lambda n: n * 10).collect()
        >>> _ = pn.run(flow, on="local")
        >>> out
        [10, 20, 30]
        """
        require_callable(function, "map")
        return self._tolerant(ops.Map, {"function": function}, on_error, kind, name)[0]

    @overload
    def filter(
        self,
        function: Callable[[T], Any],
        *,
        split: Literal[False] = False,
        on_error: Any = "raise",
        kind: Kind | None = None,
        name: str | None = None,
    ) -> Stream[T]: ...

    @overload
    def filter(
        self,
        function: Callable[[T], Any],
        *,
        split: Literal[True],
        on_error: Any = "raise",
        kind: Kind | None = None,
        name: str | None = None,
    ) -> tuple[Stream[T], Stream[T]]: ...

    def filter(
        self,
        function: Callable[[T], Any],
        *,
        split: bool = False,
        on_error: Any = "raise",
        kind: Kind | None = None,
        name: str | None = None,
    ) -> Stream[T] | tuple[Stream[T], Stream[T]]:
        """Only the tuples for which `function` is true; with `split=True` also the stream of the rest.

        >>> import penstock as pn
        >>> flow = pn.Flow()
        >>> even, odd = flow.source(range(5)).filter(lambda n: n % 2 == 0, split=True)
        >>> even, odd = even.collect(), odd.collect()
        >>> _ = pn.run(flow, on="local")
        >>> even, odd
        ([0, 2, 4], [1, 3])
        """
        require_callable(function, "filter")
        streams = self._tolerant(ops.Filter, {"function": function, "split": split}, on_error, kind, name)
        return (streams[0], streams[1]) if split else streams[0]

    def flat_map(
        self,
        function: Callable[[T], Iterable[U]],
        *,
        on_error: Any = "raise",
        kind: Kind | None = None,
        name: str | None = None,
    ) -> Stream[U]:
        """Every tuple of the iterable `function(t)`, one after the other.

        >>> import penstock as pn
        >>> flow = pn.Flow()
        >>> out = flow.source(["a b", "c"]).flat_map(str.split).collect()
        >>> _ = pn.run(flow, on="local")
        >>> out
        ['a', 'b', 'c']
        """
        require_callable(function, "flat_map")
        return self._tolerant(ops.FlatMap, {"function": function}, on_error, kind, name)[0]

    def map_batch(
        self, function: Callable[[list[T]], Iterable[U]], *, kind: Kind | None = None, name: str | None = None
    ) -> Stream[U]:
        """`function(list of tuples)` gives a list of results: for NumPy, Arrow, Numba and models.

        How the stream is cut into lists follows the load, so the function must not depend on it.

        >>> import penstock as pn
        >>> flow = pn.Flow()
        >>> out = flow.source(range(4)).map_batch(lambda ns: [n + 1 for n in ns]).collect()
        >>> _ = pn.run(flow, on="local")
        >>> out
        [1, 2, 3, 4]
        """
        require_callable(function, "map_batch")
        return self._then(ops.MapBatch(function=function), name=name, kind=kind)

    def split(
        self, ways: int, function: Callable[[T], int], *, kind: Kind | None = None, name: str | None = None
    ) -> tuple[Stream[T], ...]:
        """`ways` streams; `function(t)` gives the index of the one `t` goes to, a negative index drops it.

        >>> import penstock as pn
        >>> flow = pn.Flow()
        >>> low, high = [s.collect() for s in flow.source([1, 9, 2]).split(2, lambda n: n > 5)]
        >>> _ = pn.run(flow, on="local")
        >>> low, high
        ([1, 2], [9])
        """
        require_callable(function, "split")
        if not isinstance(ways, int) or ways < 1:
            raise FlowError(f"split() at {user_location()} needs a number of outputs from 1, not {ways!r}")
        draft = self._add(ops.Split(function=function, ways=ways), name=name, kind=kind)
        return tuple(self._leaving(draft, port) for port in range(ways))

    # --------------------------------------------------------------------------------------------------- state

    def key_by(self, *key: KeySpec) -> KeyedStream[T]:
        """The same stream, partitioned: operators that follow directly keep their state per key.

        `key` is an attribute name, several, or a function of the tuple.
        """
        return KeyedStream(self.flow, self.output, Key.of(*key))

    def scan(
        self, function: Callable[[Any, T], tuple[Any, U]], init: Any = None, *, name: str | None = None
    ) -> Stream[U]:
        """`function(state, t)` gives the new state and one output, per key on a keyed stream.

        `init` is the first state, copied for each key; a callable is called to make it.

        >>> import penstock as pn
        >>> flow = pn.Flow()
        >>> out = flow.source("abca").key_by(lambda c: c).scan(lambda n, c: (n + 1, (c, n + 1)), init=0).collect()
        >>> _ = pn.run(flow, on="local")
        >>> out
        [('a', 1), ('b', 1), ('c', 1), ('a', 2)]
        """
        require_callable(function, "scan")
        return self._then(ops.Scan(function=function, init=init), name=name)

    def process(
        self, operator: Operator | CoOperator, *others: Stream[Any], kind: Kind | None = None, name: str | None = None
    ) -> Any:
        """An operator of your own; `others` are the streams of its further inputs.

        Gives one stream, or a tuple of streams for an operator with several outputs, or None for one with none.
        """
        if isinstance(operator, type):
            raise FlowError(f"process() at {user_location()} needs an operator, not a class: {operator.__name__}()")
        if not isinstance(operator, Operator | CoOperator):
            raise FlowError(
                f"process() at {user_location()} needs a pn.Operator or pn.CoOperator, not {type(operator).__name__}"
            )
        if operator.inputs != 1 + len(others):
            raise FlowError(
                f"process() at {user_location()}: {type(operator).__name__} has {operator.inputs} inputs but "
                f"{1 + len(others)} streams were given"
            )
        if isinstance(operator, CoOperator) and not inspect.iscoroutinefunction(operator.run):
            raise FlowError(f"process() at {user_location()}: {type(operator).__name__}.run must be an `async def`")
        draft = self._add(ops.Process(operator=operator), *others, name=name, kind=kind)
        streams: tuple[Stream[Any], ...] = tuple(self._leaving(draft, port) for port in range(operator.outputs))
        return streams if len(streams) > 1 else streams[0] if streams else None

    def window(self, window: Any) -> WindowedStream[T]:
        """The stream cut into windows: follow with `aggregate(...)` or `apply(...)`."""
        from penstock.graph.windowed import WindowedStream

        return WindowedStream(self, window)

    # ------------------------------------------------------------------------------------------- order and time

    def dedup(
        self,
        by: KeySpec,
        *,
        time: float | None = None,
        count: int | None = None,
        on: str | Callable[[T], Any] | None = None,
        name: str | None = None,
    ) -> Stream[T]:
        """Drops a tuple whose key `by` was let through less than `time` seconds or at most `count` tuples ago.

        Time is that of attribute `on`, or of arrival without it.

        >>> import penstock as pn
        >>> flow = pn.Flow()
        >>> out = flow.source([1, 1, 2, 3, 1]).dedup(lambda n: n, count=3).collect()
        >>> _ = pn.run(flow, on="local")
        >>> out
        [1, 2, 3, 1]
        """
        if (time is None) == (count is None):
            raise FlowError(f"dedup() at {user_location()} needs either time= or count=")
        if count is not None and on is not None:
            raise FlowError(f"dedup(on=) at {user_location()} goes with time=, not with count=")
        draft = self._add(ops.Dedup(time=time, count=count, on=on), name=name, keys=[Key.of(by)])
        return self._leaving(draft)

    def sort(
        self, by: str | Callable[[T], Any], window: Any, *, reverse: bool = False, name: str | None = None
    ) -> Stream[T]:
        """Tuples in order of `by` within a window, per key on a keyed stream; nothing is dropped.

        A tumbling window is sorted and released as it closes. A sliding one holds back as many tuples (or as much
        time) as it spans and releases the smallest first.

        >>> import penstock as pn
        >>> flow = pn.Flow()
        >>> out = flow.source([2, 1, 3, 5, 4]).sort(lambda n: n, pn.sliding(count=2)).collect()
        >>> _ = pn.run(flow, on="local")
        >>> out
        [1, 2, 3, 4, 5]
        """
        return self._then(ops.Sort(by=by, window=require_window(window, "sort"), reverse=reverse), name=name)

    def punctuate(self, function: Callable[[T], Any], *, before: bool = False, name: str | None = None) -> Stream[T]:
        """Marks a window boundary after (or before) each tuple for which `function` is true."""
        require_callable(function, "punctuate")
        return self._then(ops.Punctuate(function=function, before=before), name=name)

    def delay(self, seconds: float | timedelta, *, name: str | None = None) -> Stream[T]:
        """Every tuple `seconds` later, in the same order; what is still waiting at the end of the stream goes at once.

        While very many tuples wait, the source waits too.
        """
        number = seconds.total_seconds() if isinstance(seconds, timedelta) else seconds
        if not isinstance(number, int | float) or not number >= 0:
            raise FlowError(f"delay() at {user_location()} needs a number of seconds, not {seconds!r}")
        return self._then(ops.Delay(seconds=number), name=name)

    def throttle(self, rate: float, *, name: str | None = None) -> Stream[T]:
        """At most `rate` tuples a second; what comes faster waits, and the source with it."""
        if not isinstance(rate, int | float) or not rate > 0:
            raise FlowError(f"throttle() at {user_location()} needs a rate above 0, not {rate!r}")
        return self._then(ops.Throttle(rate=rate), name=name)

    # --------------------------------------------------------------------------------------------------- ending

    def sink(self, target: Any, *, name: str | None = None) -> Stream[T]:
        """Deliver every tuple to `target`: a `Sink`, a function called per tuple, or a list."""
        if not (isinstance(target, list) or hasattr(target, "write") or callable(target)):
            raise FlowError(
                f"sink() at {user_location()} needs a Sink, a function or a list, not {type(target).__name__}"
            )
        missing = [method for method in ("open", "close") if not callable(getattr(target, method, None))]
        if missing and hasattr(target, "write") and not isinstance(target, list):
            raise FlowError(
                f"sink() at {user_location()}: {type(target).__name__} has write() but lacks {', '.join(missing)}(); "
                "pass its write method to have it called per tuple, or pn.files.write(path)"
            )
        self._add(ops.Write(target=target), name=name)
        return self

    def collect(self, *, name: str | None = None) -> Collected:
        """A list that holds every tuple of the stream after the run."""
        collected = Collected()
        self._add(ops.Write(target=collected), name=name or self.flow._fresh_name("collect"))
        return collected

    def to_spark(self, schema: Any, *, name: str | None = None) -> SparkFrame:
        """Collects the stream; after the run, `frame.dataframe(spark)` is a Spark data frame of it.

        `schema` gives the columns: a dataclass, a NamedTuple, a TypedDict, or a dict of names and types.
        """
        frame = SparkFrame(Schema.of(schema))
        self._add(ops.Write(target=frame), name=name or self.flow._fresh_name("to_spark"))
        return frame

    # ------------------------------------------------------------------------------------------------- building

    def _tolerant(
        self,
        operation: type[ops.Tolerant],
        fields: dict[str, Any],
        on_error: Any,
        kind: Kind | None,
        name: str | None,
    ) -> tuple[Stream[Any], ...]:
        letters = on_error if isinstance(on_error, DeadLetterStream) else None
        if letters is None and on_error not in ("raise", "skip"):
            raise FlowError(
                f"on_error= at {user_location()} must be 'raise', 'skip' or a stream made by flow.dead_letters(), "
                f"not {on_error!r}"
            )
        described = operation(**fields, on_error="stream" if letters is not None else on_error)
        draft = self._add(described, name=name, kind=kind)
        if letters is not None:
            self._same_flow([letters])
            letters.connect_port(Output(draft.index, described.dead_port))
        return tuple(self._leaving(draft, port) for port in range(described.outputs))


class KeyedStream(Stream[T]):
    """A stream partitioned by a key; what `key_by` returns."""


class DeadLetterStream(Stream[Any]):
    """A stream of `DeadLetter`s; what `flow.dead_letters()` returns."""

    def connect_port(self, output: Output) -> None:
        """Feed this stream from an operator's dead-letter port."""
        self.flow._connect(self.output.node, 0, output)


class FeedbackStream(Stream[Any]):
    """A stream whose origin is named later; what `flow.feedback()` returns. It may enter control ports only."""

    def connect(self, stream: Stream[Any]) -> None:
        """Let the tuples of `stream` come back here."""
        self._same_flow([stream])
        self.flow._connect(self.output.node, 0, stream.output)
