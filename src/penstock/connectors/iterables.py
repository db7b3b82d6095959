"""Sources over plain Python values: sequences by index, iterables by iterating anew, iterators once.

Reading is a slice, or appends driven from C, so a tuple costs no Python-level work. What an iterator gave before it
raised is taken before the error is raised, which is how tuples before a fault are never lost.
"""

from __future__ import annotations

import math
import time
import weakref
from collections import deque
from collections.abc import Callable, Iterable, Iterator, Sequence
from itertools import chain, islice
from typing import Any, Final

from penstock.connectors.base import Batch, Offset, Source
from penstock.errors import FlowError
from penstock.tuples import CHUNK

# Seconds of pulling between two looks at the clock.
_PIECE = 0.000025
_END: Final = object()  # follows the last tuple of an iterator, so that whoever takes knows that it was the last


class SequenceSource(Source):
    """A list, range, tuple or string, read in place by index. The offset is the index."""

    def __init__(self, values: Sequence[Any]) -> None:
        self.values = values

    def initial(self) -> Offset:
        return 0

    def read(self, offset: Offset, limit: int) -> Batch:
        tuples = self.values[offset : offset + limit]
        if tuples.__class__ is not list:
            tuples = list(tuples)
        offset += len(tuples)
        return Batch(tuples, offset, done=offset >= len(self.values))


class PulledSource(Source):
    """A source over an iterator, which may block at any tuple while it is pulled.

    So that tuples already pulled never wait for the next one, reading has two halves: `fill` pulls, one append after
    the other, and `take` gives what has been pulled so far. One thread fills; another may take meanwhile, one at a
    time (the runtime's lock sees to that). This relies on `list.append`, on copying a slice and on deleting one being
    atomic, each by itself, which holds with and without a GIL: appends only add behind what a taker copies and deletes.
    """

    def __init__(self) -> None:
        self._iterator: Iterator[Any] | None = None
        self._pulled: list[Any] = []
        self._position = 0  # how many tuples have been taken
        self._done = False
        self._fault: Exception | None = None
        self._piece = 1  # tuples that are pulled between two looks at the clock

    def initial(self) -> Offset:
        return 0

    def read(self, offset: Offset, limit: int) -> Batch:
        self.fill(offset, limit)
        return self.take()

    def fill(self, offset: Offset, limit: int, seconds: float = math.inf) -> None:
        """Pull up to `limit` tuples from `offset` on, fewer if that takes longer than `seconds`, but at least one.

        May block as long as the iterator does.
        """
        if self._iterator is None or offset != self._position:
            self._go_to(offset)
        if self._fault is not None or self._done:
            return
        assert self._iterator is not None
        clock, pulled = time.perf_counter, 0
        start = now = clock()
        try:
            while pulled < limit and now - start <= seconds:
                piece = min(self._piece, limit - pulled)
                deque(map(self._pulled.append, islice(self._iterator, piece)), maxlen=0)  # consumes at C speed
                pulled += piece
                now = clock()
        except Exception as error:
            self._fault = error  # raised by `take` once what came before has been taken
        self._piece = max(1, min(CHUNK, int(pulled * _PIECE / (now - start)))) if now > start else CHUNK

    @property
    def waiting(self) -> bool:
        """True while something has been pulled that nobody has taken."""
        return bool(self._pulled)

    def take(self) -> Batch:
        """What has been pulled and not been taken yet."""
        tuples = self._pulled[:]
        del self._pulled[: len(tuples)]
        if tuples and tuples[-1] is _END:
            tuples.pop()
            self._done = True
        elif not tuples and self._fault is not None:
            raise self._raised()
        self._position += len(tuples)
        return Batch(tuples, self._position, done=self._done)

    def _start(self, iterator: Iterator[Any]) -> None:
        self._iterator = chain(iterator, (_END,))
        self._pulled, self._done, self._fault = [], False, None

    def _go_to(self, offset: int) -> None:
        """Make `offset` the position of the next tuple."""
        raise NotImplementedError

    def _raised(self) -> Exception:
        assert self._fault is not None
        return self._fault


class IterableSource(PulledSource):
    """What `make()` iterates over, made anew for each run. The offset is the number of tuples before.

    Another offset than the one reached makes the iterable again and skips; so replay is as exact as `make` is.
    """

    def __init__(self, make: Callable[[], Iterable[Any]], replayable: bool = True) -> None:
        super().__init__()
        self.make = make
        self.replayable = replayable
        self._made: Any = None

    def initial(self) -> Offset:
        self.close()
        return 0

    def _go_to(self, offset: int) -> None:
        self.close()
        iterable = self.make()
        try:
            self._made = iter(iterable)
        except TypeError:
            raise FlowError(
                f"the source function {getattr(self.make, '__name__', self.make)!r} must return an iterable, "
                f"not {type(iterable).__name__}"
            ) from None
        deque(islice(self._made, offset), maxlen=0)
        self._start(self._made)
        self._position = offset

    def _raised(self) -> Exception:
        fault = super()._raised()
        self.close()  # a retry makes the iterable again
        return fault

    def close(self) -> None:
        made, self._made, self._iterator, self._fault = self._made, None, None, None
        if made is not None and hasattr(made, "close"):
            made.close()

    def __getstate__(self) -> dict[str, Any]:
        return {**self.__dict__, "_iterator": None, "_made": None, "_fault": None, "_pulled": []}


class IteratorSource(PulledSource):
    """An iterator or generator of the user's, which can be read once, from its start on."""

    replayable = False

    def __init__(self, iterator: Iterator[Any]) -> None:
        super().__init__()
        self.iterator = iterator

    def initial(self) -> Offset:
        if _is_consumed(self.iterator):
            raise _used_up(self.iterator)
        return 0

    def _go_to(self, offset: int) -> None:
        if offset != self._position or _is_consumed(self.iterator):  # maybe by another source given the same iterator
            raise _used_up(self.iterator)
        _mark_consumed(self.iterator)
        peeked = _peeked.pop(id(self.iterator), None)
        self._start(self.iterator if peeked is None else peeked.all())

    def skip(self, count: int) -> None:
        """Go on behind the first `count` tuples: they were read by an earlier process that ran the same program."""
        self._go_to(0)
        assert self._iterator is not None
        deque(islice(self._iterator, count), maxlen=0)
        self._position = count


def _used_up(iterator: object) -> FlowError:
    kind = type(iterator).__name__
    return FlowError(
        f"this source reads a {kind}, which was already read and cannot be read again; "
        f"pass a list, or a function that returns a new {kind}, to run the flow more than once"
    )


class _Peeked:
    """What was read of an iterator before its run: the tuples, and the error that ended them, if one did."""

    def __init__(self, iterator: Iterator[Any]) -> None:
        self.iterator = iterator  # kept alive, so that its id stays its own
        self.tuples: list[Any] = []
        self.fault: Exception | None = None

    def all(self) -> Iterator[Any]:
        """All tuples of the iterator."""
        yield from self.tuples
        self.tuples = []
        if self.fault is not None:
            raise self.fault
        yield from self.iterator


_peeked: dict[int, _Peeked] = {}


def peek(iterator: Iterator[Any], count: int, seconds: float = math.inf) -> list[Any]:
    """The first `count` tuples of an iterator, or what it gives within `seconds`; whoever runs it next gets them too.

    May block as long as the iterator does. An error of the iterator's ends the tuples here, and is raised in the run.

    >>> from penstock.connectors.base import as_source
    >>> numbers = iter(range(5))
    >>> peek(numbers, 2), peek(numbers, 3)
    ([0, 1], [0, 1, 2])
    >>> as_source(numbers).read(0, 10).tuples
    [0, 1, 2, 3, 4]
    """
    if _is_consumed(iterator):
        raise _used_up(iterator)
    kept = _peeked.setdefault(id(iterator), _Peeked(iterator))
    limit = time.monotonic() + seconds
    try:
        while len(kept.tuples) < count and kept.fault is None and time.monotonic() < limit:
            kept.tuples.append(next(iterator))
    except StopIteration:
        pass
    except Exception as error:
        kept.fault = error
    return kept.tuples[:count]


# Which iterators were read, by id, so that a second run notices although it wraps the iterator anew. An iterator that
# takes weak references is forgotten when it dies. Built-in ones (map, zip) do not; of those the last few are kept
# alive, which covers running a flow twice without holding on to everything a long-lived process ever read.
_consumed: dict[int, object] = {}
_KEPT_ALIVE = 32


def _is_consumed(iterator: object) -> bool:
    return id(iterator) in _consumed


def _mark_consumed(iterator: object) -> None:
    if _is_consumed(iterator):
        return
    try:
        weakref.finalize(iterator, _consumed.pop, id(iterator), None).atexit = False
        _consumed[id(iterator)] = None
    except TypeError:
        _consumed[id(iterator)] = iterator
        alive = [key for key, kept in list(_consumed.items()) if kept is not None]
        for key in alive[:-_KEPT_ALIVE]:
            _consumed.pop(key, None)
