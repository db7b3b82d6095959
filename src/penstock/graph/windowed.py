"""`WindowedStream`: a stream cut into windows, waiting to be told what to do with each."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, Generic, TypeVar

from penstock.errors import FlowError, user_location
from penstock.graph import operations as ops
from penstock.graph.graph import Output
from penstock.graph.handle import require_callable, require_window
from penstock.graph.stream import Stream

T = TypeVar("T")
U = TypeVar("U")


class WindowedStream(Generic[T]):
    """What `stream.window(...)` returns."""

    def __init__(self, stream: Stream[T], window: Any) -> None:
        self._stream = stream
        self._window = require_window(window, "window")
        self._late: Stream[T] | None = None
        self._operators: list[int] = []

    def aggregate(self, *, name: str | None = None, **aggregates: Any) -> Stream[dict[str, Any]]:
        """One dict for each firing: the key's attributes, then the results, by the names given here.

        >>> import penstock as pn
        >>> flow = pn.Flow()
        >>> calls = flow.source([{"host": "a", "len": 2}, {"host": "b", "len": 5}, {"host": "a", "len": 4}])
        >>> stats = calls.key_by("host").window(pn.tumbling(count=2)).aggregate(n=pn.count(), avg=pn.mean("len"))
        >>> out = stats.collect()
        >>> _ = pn.run(flow, on="local")
        >>> out
        [{'host': 'a', 'n': 2, 'avg': 3.0}]
        """
        if not aggregates:
            raise FlowError(f"aggregate() at {user_location()} needs at least one result, such as n=pn.count()")
        for result, aggregate in aggregates.items():
            if not hasattr(aggregate, "finish"):
                raise FlowError(
                    f"aggregate({result}=) at {user_location()} needs an aggregate such as pn.count(), "
                    f"not {aggregate!r}"
                )
        return self._then(ops.Aggregate(window=self._window, aggregates=tuple(aggregates.items())), name)

    def apply(self, function: Callable[..., U], *, name: str | None = None) -> Stream[U]:
        """One value for each firing: `function(tuples)`, or `function(key, tuples)` on a keyed stream.

        >>> import penstock as pn
        >>> flow = pn.Flow()
        >>> out = flow.source(range(6)).window(pn.tumbling(count=3)).apply(sum).collect()
        >>> _ = pn.run(flow, on="local")
        >>> out
        [3, 12]
        """
        require_callable(function, "apply")
        return self._then(ops.Apply(window=self._window, function=function), name)

    def late_stream(self, *, name: str | None = None) -> Stream[T]:
        """The tuples that came after all of their windows had closed. Asking for it is what keeps them."""
        if self._late is None:
            flow = self._stream.flow
            draft = flow._add(ops.Union(), [[]], [None], name=name or flow._fresh_name("late"))
            self._late = Stream(flow, Output(draft.index, 0))
            if self._operators:
                flow._connect(draft.index, 0, Output(self._operators[0], 1))
        return self._late

    def _then(self, operation: ops.Windowed, name: str | None) -> Stream[Any]:
        stream = self._stream
        draft = stream._add(operation, name=name)
        self._operators.append(draft.index)
        if self._late is not None and len(self._operators) == 1:
            stream.flow._connect(self._late.output.node, 0, Output(draft.index, 1))
        return Stream(stream.flow, Output(draft.index, 0))
