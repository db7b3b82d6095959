"""`Flow`: where a program is put together, and from which its frozen graph is taken."""

from __future__ import annotations

import itertools
from collections.abc import Callable, Iterable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass, replace
from numbers import Real
from typing import TYPE_CHECKING, Any

from penstock.errors import FlowError, Location, user_location
from penstock.graph.annotations import NONE, THREADING_MODELS, Annotations, Consistent, Parallel
from penstock.graph.graph import Graph, Input, Node, Output
from penstock.graph.keys import Key, KeySpec
from penstock.graph.operations import Feedback, Operation, Read, Union
from penstock.graph.operator import Kind
from penstock.graph.validate import validate

if TYPE_CHECKING:
    from penstock.graph.stream import FeedbackStream, Stream


@dataclass(eq=False)
class Draft:
    """A node still being connected; `Flow.graph` freezes it."""

    index: int
    name: str
    operation: Operation
    inputs: list[list[Output]]
    keys: list[Key | None]
    kind: Kind
    location: Location
    annotations: Annotations


class Flow:
    """A stream program: operators and the ordered streams between them.

    >>> import penstock as pn
    >>> flow = pn.Flow("squares")
    >>> squares = flow.source(range(4)).map(lambda n: n * n).collect()
    >>> _ = pn.run(flow, on="local")
    >>> squares
    [0, 1, 4, 9]
    """

    def __init__(self, name: str = "flow") -> None:
        if not isinstance(name, str) or not name:
            raise FlowError(f"a flow needs a name, not {name!r}")
        self.name = name
        self._drafts: list[Draft] = []
        self._names: dict[str, int] = {}
        self._annotations: list[Annotations] = [NONE]
        self._regions = itertools.count()

    # ------------------------------------------------------------------------------------------------- building

    def source(
        self, source: Any | Iterable[Any] | Callable[[], Iterable[Any]], *, name: str | None = None
    ) -> Stream[Any]:
        """A stream of what `source` gives: a `Source`, any iterable, or a callable that returns one.

        An iterator can be read once; give a list, a callable or a `Source` to run the flow again.
        """
        from penstock.graph.stream import Stream

        if not (hasattr(source, "read") and hasattr(source, "initial")) and not callable(source):
            try:
                iter(source)
            except TypeError:
                raise FlowError(
                    f"source() at {user_location()} needs a Source, an iterable or a callable that returns one, "
                    f"not {type(source).__name__}"
                ) from None
        draft = self._add(Read(source=source), [], [], name=name)
        letters = getattr(source, "dead_letters_to", None)
        if letters is not None:
            letters.connect_port(Output(draft.index, 1))
        return Stream(self, Output(draft.index, 0))

    def feedback(self, *, name: str | None = None) -> FeedbackStream:
        """A stream whose origin is connected later, for feedback into control ports."""
        from penstock.graph.stream import FeedbackStream

        draft = self._add(Feedback(), [[]], [None], name=name)
        return FeedbackStream(self, Output(draft.index, 0))

    def dead_letters(self, *, name: str | None = None) -> Stream[Any]:
        """A stream of what sources and operators that name it as `on_error=` could not process.

        >>> import penstock as pn
        >>> flow = pn.Flow("tolerant")
        >>> bad = flow.dead_letters()
        >>> good = flow.source(["1", "x", "3"]).map(int, on_error=bad).collect()
        >>> refused = bad.map(lambda letter: letter.item).collect()
        >>> _ = pn.run(flow, on="local")
        >>> good, refused
        ([1, 3], ['x'])
        """
        from penstock.graph.stream import DeadLetterStream

        draft = self._add(Union(), [[]], [None], name=name or self._fresh_name("dead_letters"))
        return DeadLetterStream(self, Output(draft.index, 0))

    def _add(
        self,
        operation: Operation,
        inputs: list[list[Output]],
        keys: list[Key | None],
        *,
        name: str | None = None,
        kind: Kind | None = None,
    ) -> Draft:
        if name is not None and (not isinstance(name, str) or not name):
            raise FlowError(f"name= at {user_location()} must be a non-empty string, not {name!r}")
        if kind is not None and kind not in ("stateless", "partitioned", "stateful"):
            raise FlowError(
                f"kind= at {user_location()} must be 'stateless', 'partitioned' or 'stateful', not {kind!r}"
            )
        keyed = any(key is not None for key in keys)
        draft = Draft(
            index=len(self._drafts),
            name=name if name is not None else self._fresh_name(operation.label),
            operation=operation,
            inputs=inputs,
            keys=keys,
            kind=kind if kind is not None else operation.kind(keyed),
            location=user_location(),
            annotations=self._annotations[-1],
        )
        self._names.setdefault(draft.name, 0)
        self._drafts.append(draft)
        return draft

    def _fresh_name(self, label: str) -> str:
        if label not in self._names:
            self._names[label] = 1
            return label
        count = self._names[label]
        while True:
            count += 1
            name = f"{label}_{count}"
            if name not in self._names:
                self._names[label] = count
                self._names[name] = 1
                return name

    def _connect(self, node: int, port: int, stream: Output) -> None:
        self._drafts[node].inputs[port].append(stream)

    # ---------------------------------------------------------------------------------------------- annotations

    @contextmanager
    def _annotated(self, **changes: Any) -> Iterator[None]:
        self._annotations.append(replace(self._annotations[-1], **changes))
        try:
            yield
        finally:
            self._annotations.pop()

    @contextmanager
    def parallel(self, width: int, by: KeySpec | None = None) -> Iterator[None]:
        """Operators made inside are one region, replicated `width` times, split by key `by` or dealt in turn."""
        if not isinstance(width, int) or isinstance(width, bool) or width < 1:
            raise FlowError(f"parallel(width=) at {user_location()} must be a whole number from 1, not {width!r}")
        key = None if by is None else Key.of(by)
        with self._annotated(parallel=Parallel(next(self._regions), width, key)):
            yield

    @contextmanager
    def threading(self, model: str) -> Iterator[None]:
        """Operators made inside run under this threading model: "manual", "dedicated" or "dynamic"."""
        if model not in THREADING_MODELS:
            raise FlowError(f"threading model at {user_location()} must be one of {THREADING_MODELS}, not {model!r}")
        with self._annotated(threading=model):
            yield

    @contextmanager
    def colocate(self, group: str) -> Iterator[None]:
        """Operators of one colocation group share a PE."""
        _check_group("colocate", group)
        with self._annotated(colocate=(*self._annotations[-1].colocate, group)):
            yield

    @contextmanager
    def exlocate(self, group: str) -> Iterator[None]:
        """No two operators of one exlocation group share a PE."""
        _check_group("exlocate", group)
        with self._annotated(exlocate=(*self._annotations[-1].exlocate, group)):
            yield

    @contextmanager
    def isolate(self) -> Iterator[None]:
        """Operators made inside share a PE with nothing else."""
        with self._annotated(isolate=next(self._regions)):
            yield

    @contextmanager
    def consistent(self, every: float) -> Iterator[None]:
        """Operators made inside are checkpointed together every `every` seconds."""
        if isinstance(every, bool) or not isinstance(every, Real) or not every > 0:
            raise FlowError(f"consistent(every=) at {user_location()} must be more than 0 seconds, not {every!r}")
        with self._annotated(consistent=Consistent(next(self._regions), every)):
            yield

    # ------------------------------------------------------------------------------------------------- freezing

    def graph(self) -> Graph:
        """The program as a frozen graph, checked. Raises `FlowError` with every mistake found."""
        nodes = tuple(
            Node(
                index=draft.index,
                name=draft.name,
                operation=draft.operation,
                inputs=tuple(Input(tuple(streams), key) for streams, key in zip(draft.inputs, draft.keys, strict=True)),
                kind=draft.kind,
                location=draft.location,
                annotations=draft.annotations,
            )
            for draft in self._drafts
        )
        graph = Graph(self.name, nodes)
        validate(graph)
        return graph

    def __repr__(self) -> str:
        return f"Flow({self.name!r}, {len(self._drafts)} operators)"


def _check_group(method: str, group: object) -> None:
    if not isinstance(group, str) or not group:
        raise FlowError(f"{method}() at {user_location()} needs the name of a group, a non-empty string, not {group!r}")
