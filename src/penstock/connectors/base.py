"""The two protocols of the outside world, `Source` and `Sink`, and how plain Python values become one.

A source is read by offset: `read(offset, limit)` gives what lies there and the offset to go on from. Offsets are
JSON-able values that only the source understands, so whoever runs it can store one, and read on from it after a
restart or in another process.

What a run may rely on:

- `initial()` starts a new run; a source can be run as often as it is `replayable`.
- `read` never waits for more than what is there: a batch that is empty, not `done` and leaves the offset where it was
  means *nothing now*, ask again later. (A batch without tuples whose offset moved is progress: skipped input.)
- Reading a replayable source twice from one offset gives the same tuples, whatever the limits were.
- An exception from `read` comes after everything before it: tuples read before the fault were returned earlier.
- One thread at a time uses a source. `as_source` gives every caller reading state of its own wherever that can be,
  so two runs of one flow, or two operators on one file, do not meet.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass, field
from typing import Any, Protocol, cast, runtime_checkable

from penstock.errors import FlowError
from penstock.tuples import DeadLetter

Offset = Any  # whatever json.dumps and json.loads keep as it is


@dataclass(slots=True)
class Batch:
    """What one `read` gave.

    `offset` is where to read on; `done` says that a finite source has ended with this batch; `window` that a window
    punctuation follows the tuples; `dead` holds input that could not be parsed, where the user asked for it, and
    `skipped` counts it where the user asked to drop it.
    """

    tuples: list[Any]
    offset: Offset
    done: bool = False
    window: bool = False
    dead: list[DeadLetter] = field(default_factory=list)
    skipped: int = 0


@runtime_checkable
class Source(Protocol):
    """Where tuples come from. Subclass it, or write a class with the same methods.

    Optional attributes: `name`, which a run sets to the operator's name (it appears in dead letters);
    `dead_letters_to`, the stream made by `flow.dead_letters()` that receives `Batch.dead`; `fresh()`, which gives an
    equal source with reading state of its own.

    >>> class Countdown(Source):
    ...     def initial(self):
    ...         return 3
    ...     def read(self, offset, limit):
    ...         low = max(0, offset - limit)
    ...         return Batch(list(range(offset, low, -1)), low, done=low == 0)
    >>> Countdown().read(3, 2)
    Batch(tuples=[3, 2], offset=1, done=False, window=False, dead=[], skipped=0)
    """

    replayable: bool = True

    def initial(self) -> Offset:
        """Start a new run; the offset of the first tuple."""
        ...

    def read(self, offset: Offset, limit: int) -> Batch:
        """Up to `limit` tuples from `offset` on, as far as they are there."""
        ...

    def commit(self, offset: Offset) -> None:
        """Everything before `offset` is safely processed and will not be asked for again."""
        return  # a body, so that subclasses need not define it

    def close(self) -> None:
        """Release what reading holds; a later `read` may take it up again."""
        return


@runtime_checkable
class Sink(Protocol):
    """Where tuples go: `open`, then chunks in stream order, then `close`, once each run.

    >>> class Total(Sink):
    ...     def open(self):
    ...         self.total = 0
    ...     def write(self, tuples):
    ...         self.total += sum(tuples)
    >>> total = Total()
    >>> total.open(); total.write([1, 2, 3]); total.close()
    >>> total.total
    6
    """

    def open(self) -> None:
        """Begin a run."""
        return  # a body, so that subclasses need not define it

    def write(self, tuples: list[Any]) -> None:
        """Take a chunk; the list must not be changed or kept."""
        ...

    def close(self, failed: bool = False) -> None:
        """End the run; `failed` says that the job did not come to its end."""
        return

    def rehearsal(self) -> Sink | None:
        """A sink that works as this one does but delivers nothing, for profiling before a run; None: there is none."""
        return None


def as_source(value: Source | Iterable[Any] | Callable[[], Iterable[Any]]) -> Source:
    """`value` as a `Source`: itself if it is one, or a source that reads an iterable.

    Lists and other sequences are read by index, not copied; other iterables are iterated anew for each run, callables
    called anew; iterators and generators can be read once.

    >>> source = as_source("abc")
    >>> source.read(1, 10)
    Batch(tuples=['b', 'c'], offset=3, done=True, window=False, dead=[], skipped=0)
    """
    from penstock.connectors.iterables import IterableSource, IteratorSource, SequenceSource

    if hasattr(value, "read") and hasattr(value, "initial"):
        _require(value, "Source", ("initial", "read", "commit", "close"))
        fresh = getattr(value, "fresh", None)
        return value if fresh is None else fresh()  # type: ignore[return-value]
    if isinstance(value, list | tuple | range | str | bytes):
        return SequenceSource(value)
    if isinstance(value, Iterator):
        return IteratorSource(value)
    if _is_iterable(value):
        return IterableSource(value.__iter__, replayable=not isinstance(value, set | frozenset))  # type: ignore[union-attr]
    if callable(value):
        return IterableSource(value)
    raise FlowError(f"a source must be a Source, an iterable or a callable that returns one, not {value!r}")


def as_sink(value: Sink | Callable[[Any], Any] | list[Any]) -> Sink:
    """`value` as a `Sink`: itself if it is one, or a sink that fills a list or calls a function per tuple.

    >>> numbers = []
    >>> sink = as_sink(numbers)
    >>> sink.open(); sink.write([1, 2]); sink.close()
    >>> numbers
    [1, 2]
    """
    from penstock.connectors.sinks import CallableSink, ListSink

    if isinstance(value, list):
        return ListSink(value)
    if hasattr(value, "write"):
        _require(value, "Sink", ("open", "write", "close"), "; to write a file, use pn.files.write(path)")
        return cast("Sink", value)
    if callable(value):
        return CallableSink(value)
    raise FlowError(f"a sink must be a Sink, a function or a list, not {value!r}")


def _require(value: object, protocol: str, methods: tuple[str, ...], hint: str = "") -> None:
    missing = [method for method in methods if not callable(getattr(value, method, None))]
    if missing:
        raise FlowError(f"{type(value).__name__} is not a {protocol}: it lacks {', '.join(missing)}(){hint}")


def _is_iterable(value: object) -> bool:
    try:
        iter(value)  # type: ignore[call-overload]
    except TypeError:
        return False
    return hasattr(value, "__iter__")
