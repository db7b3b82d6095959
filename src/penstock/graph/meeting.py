"""`MeetingStream`: the operators where several streams meet, as equals or with one steering the other."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from typing import TYPE_CHECKING, Any, Literal, TypeVar

from penstock.errors import FlowError, user_location
from penstock.graph import operations as ops
from penstock.graph.handle import Handle, require_callable, require_window
from penstock.graph.keys import Key, KeySpec

if TYPE_CHECKING:
    from penstock.graph.stream import Stream

T = TypeVar("T")
U = TypeVar("U")


class MeetingStream(Handle[T]):
    """A stream that can meet others; the part of `Stream` that takes more streams than one."""

    def union(self, *others: Stream[Any], name: str | None = None) -> Stream[Any]:
        """All tuples of this and the other streams; they interleave freely, each in its own order."""
        self._same_flow(others)
        draft = self.flow._add(ops.Union(), [[self.output, *(stream.output for stream in others)]], [None], name=name)
        return self._leaving(draft)

    def join(
        self,
        right: Stream[Any],
        window: Any,
        how: Literal["inner", "left", "right", "full"] = "inner",
        where: Callable[[T, Any], Any] | None = None,
        *,
        name: str | None = None,
    ) -> Stream[Any]:
        """`(left, right)` pairs: each arriving tuple meets the other side's current window.

        On two keyed streams only equal keys meet. `where(left, right)` narrows further. Outer joins give `None` for
        the missing side of a tuple that leaves its window, or the stream, without ever having met one.
        """
        if how not in ("inner", "left", "right", "full"):
            raise FlowError(f"join(how=) at {user_location()} must be inner, left, right or full, not {how!r}")
        self._same_flow([right])
        if (self.key is None) != (right.key is None):
            raise FlowError(f"join() at {user_location()}: key_by(...) both sides, or neither")
        if where is not None:
            require_callable(where, "join(where=)")
        return self._then(ops.Join(window=require_window(window, "join"), how=how, where=where), right, name=name)

    def enrich(
        self,
        table: Stream[Any],
        *,
        key: KeySpec,
        table_key: KeySpec | None = None,
        with_: Callable[[T, Any], U] | None = None,
        wait: bool = False,
        name: str | None = None,
    ) -> Stream[U]:
        """`with_(t, row)` for each tuple: `row` is the latest tuple of `table` with the same key, or None.

        A table that ends, such as a file, can be waited for: with `wait=True` the tuples are held until all of it is
        there. Otherwise a tuple may come before its row does: what two streams bring interleaves freely.

        >>> import penstock as pn
        >>> flow = pn.Flow()
        >>> names = flow.source([{"id": 1, "name": "Ada"}])
        >>> calls = flow.source([{"src": 1}, {"src": 2}])
        >>> named = calls.enrich(
        ...     names, key="src", table_key="id", with_=lambda c, n: (c["src"], n and n["name"]), wait=True
        ... )
        >>> out = named.collect()
        >>> _ = pn.run(flow, on="local")
        >>> out
        [(1, 'Ada'), (2, None)]
        """
        function = with_ if with_ is not None else _pair
        require_callable(function, "enrich(with_=)")
        left, right = Key.of(key), Key.of(table_key if table_key is not None else key)
        draft = self._add(ops.Enrich(function=function, waits=wait), table, name=name, keys=[left, right])
        return self._leaving(draft)

    def barrier(self, *others: Stream[Any], name: str | None = None) -> Stream[tuple[Any, ...]]:
        """A tuple of one tuple from each stream, as soon as every stream has one.

        >>> import penstock as pn
        >>> flow = pn.Flow()
        >>> out = flow.source([1, 2]).barrier(flow.source("ab")).collect()
        >>> _ = pn.run(flow, on="local")
        >>> out
        [(1, 'a'), (2, 'b')]
        """
        return self._then(ops.Barrier(ways=1 + len(others)), *others, name=name)

    def pair(self, *others: Stream[Any], name: str | None = None) -> Stream[Any]:
        """Like `barrier`, but the tuples come out one by one: one of each stream in turn."""
        return self._then(ops.Pair(ways=1 + len(others)), *others, name=name)

    # ------------------------------------------------------------------------------------------ steered streams

    def gate(
        self,
        acknowledgements: Stream[Any],
        limit: int = 1,
        *,
        count: Callable[[Any], int] | None = None,
        name: str | None = None,
    ) -> Stream[T]:
        """At most `limit` tuples pass that have not been acknowledged; the others are held.

        Each tuple of `acknowledgements` acknowledges one, or `count(tuple)`; it usually comes back from downstream
        through `flow.feedback()`. What is still held at the end of the stream is released.
        """
        if not isinstance(limit, int) or limit < 1:
            raise FlowError(f"gate(limit=) at {user_location()} must be at least 1, not {limit!r}")
        return self._then(ops.Gate(limit=limit, acknowledges=count), acknowledgements, name=name)

    def switch(
        self,
        control: Stream[Any],
        *,
        initially: bool = True,
        status: Callable[[Any], Any] | None = None,
        name: str | None = None,
    ) -> Stream[T]:
        """Passes tuples while on, holds them while off; each tuple of `control` (or `status(tuple)`) says which."""
        return self._then(ops.Switch(initially=initially, status=status), control, name=name)

    def dynamic_filter(
        self,
        control: Stream[Any],
        by: str | Callable[[T], Any],
        *,
        update: Callable[[Any], tuple[str, Any]] | None = None,
        initial: Iterable[Any] = (),
        name: str | None = None,
    ) -> Stream[T]:
        """Passes tuples whose value `by` is in a set that `control` adds to and removes from.

        A control tuple is `("add", value)` or `("remove", value)`, or `update` makes such a pair of it.
        """
        return self._then(ops.DynamicFilter(by=by, update=update, initial=tuple(initial)), control, name=name)


def barrier(*streams: Stream[Any], name: str | None = None) -> Stream[tuple[Any, ...]]:
    """A tuple of one tuple from each stream; the same as `streams[0].barrier(*streams[1:])`."""
    if not streams:
        raise FlowError(f"barrier() at {user_location()} needs at least one stream")
    return streams[0].barrier(*streams[1:], name=name)


def _pair(left: Any, right: Any) -> tuple[Any, Any]:
    return (left, right)
