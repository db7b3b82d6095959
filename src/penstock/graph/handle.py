"""`Handle`: what a stream is made of (a flow, an output, a key), and how an operator is added to it."""

from __future__ import annotations

from collections.abc import Iterable
from typing import TYPE_CHECKING, Any, Generic, TypeVar

from penstock.errors import FlowError, user_location
from penstock.graph import operations as ops
from penstock.graph.graph import Output
from penstock.graph.keys import Key
from penstock.graph.operator import Kind

if TYPE_CHECKING:
    from penstock.graph.flow import Draft, Flow
    from penstock.graph.stream import Stream

T = TypeVar("T")


class Handle(Generic[T]):
    """A place in a flow where tuples leave an operator. `Stream` adds what a user can do there."""

    def __init__(self, flow: Flow, output: Output, key: Key | None = None) -> None:
        self.flow = flow
        self.output = output
        self.key = key

    def __repr__(self) -> str:
        draft = self.flow._drafts[self.output.node]
        keyed = f" by {self.key}" if self.key is not None else ""
        return f"<stream {self.output.port} of '{draft.name}'{keyed} in flow '{self.flow.name}'>"

    def __iter__(self) -> Any:
        raise TypeError(
            f"a stream cannot be iterated ({user_location()}): it has no tuples before the flow runs; "
            "use collect() and read the result after pn.run(flow)"
        )

    def _same_flow(self, others: Iterable[Stream[Any]]) -> None:
        for other in others:
            if not isinstance(other, Handle):
                raise FlowError(f"a stream was expected at {user_location()}, not {type(other).__name__}")
            if other.flow is not self.flow:
                raise FlowError(
                    f"streams of two flows meet at {user_location()}: '{self.flow.name}' and '{other.flow.name}'"
                )

    def _add(
        self,
        operation: ops.Operation,
        *others: Stream[Any],
        name: str | None = None,
        kind: Kind | None = None,
        keys: list[Key | None] | None = None,
    ) -> Draft:
        self._same_flow(others)
        streams: list[Handle[Any]] = [self, *others]
        inputs = [[stream.output] for stream in streams]
        return self.flow._add(operation, inputs, keys or [stream.key for stream in streams], name=name, kind=kind)

    def _then(
        self, operation: ops.Operation, *others: Stream[Any], name: str | None = None, kind: Kind | None = None
    ) -> Stream[Any]:
        return self._leaving(self._add(operation, *others, name=name, kind=kind))

    def _leaving(self, draft: Draft, port: int = 0) -> Stream[Any]:
        from penstock.graph.stream import Stream

        return Stream(self.flow, Output(draft.index, port))


def require_callable(function: object, method: str) -> None:
    """Raise `FlowError` unless `function` can be called."""
    if not callable(function):
        raise FlowError(f"{method}() at {user_location()} needs a function, not {function!r}")


def require_window(window: Any, method: str) -> Any:
    """`window`, or `FlowError` if it is none."""
    if not hasattr(window, "spans"):
        raise FlowError(f"{method}() at {user_location()} needs a window such as pn.sliding(count=10), not {window!r}")
    return window
