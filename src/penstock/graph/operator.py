"""Operators users write themselves: event-driven `Operator`, and `CoOperator` with its own driver loop.

Both are prototypes: what is passed to `stream.process(...)` is never run itself. Each run works on a deep copy of it,
and each key of a keyed stream on a copy of its own, so state in `self` is the state of one partition and no other code
ever touches it.
"""

from __future__ import annotations

import copy
from collections.abc import Awaitable, Callable, Mapping
from typing import Any, Literal

from penstock.clock import Clock, SystemClock
from penstock.tuples import Punctuation

Kind = Literal["stateless", "partitioned", "stateful"]


class OperatorContext:
    """What an operator may ask of the system that runs it."""

    __slots__ = ("_outputs", "_threads", "clock", "key", "name")

    def __init__(self, name: str, outputs: int, *, key: Any = None, clock: Clock | None = None) -> None:
        self.name = name
        self.key = key
        self.clock: Clock = clock if clock is not None else SystemClock()
        self._outputs: list[list[Any]] = [[] for _ in range(outputs)]
        self._threads: list[Callable[[ThreadContext], None]] | None = None  # a list while the operator may ask for some

    def submit(self, item: Any, port: int = 0) -> None:
        """Send `item` out of output `port`."""
        if not 0 <= port < len(self._outputs):
            raise IndexError(f"output port {port} does not exist; the operator has {len(self._outputs)}")
        self._outputs[port].append(item)

    def punctuate(self, port: int = 0) -> None:
        """Send a window punctuation out of output `port`."""
        self.submit(Punctuation.WINDOW, port)

    def start_thread(self, function: Callable[[ThreadContext], None]) -> None:
        """Have `function(out)` run in a thread of its own once the program starts; see `Operator.own_threads`.

        Only from `open`.
        """
        if self._threads is None:
            raise RuntimeError("start_thread() is for open(), in an operator whose class says own_threads = True")
        self._threads.append(function)


class ThreadContext:
    """How a thread of an operator's own sends tuples. They go downstream at once; a slow reader slows the thread.

    Calls come back with an exception that ends the thread when the run is being stopped.
    """

    def submit(self, item: Any, port: int = 0) -> None:
        """Send `item` out of output `port`."""
        raise NotImplementedError

    def submit_all(self, items: list[Any], port: int = 0) -> None:
        """Send several tuples at once, which is cheaper than one by one."""
        raise NotImplementedError

    def punctuate(self, port: int = 0) -> None:
        """Send a window punctuation out of output `port`."""
        raise NotImplementedError

    @property
    def stopping(self) -> bool:
        """True once the run is being stopped: return soon."""
        raise NotImplementedError


class Operator:
    """An event-driven operator: the system calls it for each tuple and each punctuation.

    `inputs` and `outputs` count its ports; `control` names those inputs that may be fed from downstream and must not
    produce output; `kind` is "stateless", "partitioned" or "stateful" (left `None`: partitioned on a keyed stream,
    stateful on any other).

    `process` returns or yields outputs: `None` is nothing, a list or an iterator is many, anything else is one tuple.
    With several outputs, `ctx.submit(item, port)` chooses the port.

    >>> import penstock as pn
    >>> class Limit(pn.Operator):
    ...     def __init__(self, limit):
    ...         self.left = limit
    ...     def process(self, t, port):
    ...         if self.left:
    ...             self.left -= 1
    ...             yield t
    >>> flow = pn.Flow("limit")
    >>> out = flow.source(range(10)).process(Limit(3)).collect()
    >>> _ = pn.run(flow, on="local")
    >>> out
    [0, 1, 2]

    An operator with threads of its own (`own_threads = True`) starts them in `open`. They submit tuples through what
    they are given, and the operator's outputs end when its inputs have ended and its threads have returned. Such an
    operator is stateful, and what it keeps in `self` for its threads it protects itself. It runs locally only.

    >>> import queue
    >>> class Ask(pn.Operator):
    ...     own_threads = True
    ...     def open(self, ctx):
    ...         self.questions = queue.Queue()
    ...         ctx.start_thread(self.answer)
    ...     def answer(self, out):
    ...         while (question := self.questions.get()) is not None:
    ...             out.submit(question * 2)  # after a talk with a slow server, say
    ...     def process(self, t, port):
    ...         self.questions.put(t)
    ...     def on_punctuation(self, mark, port):
    ...         if mark is pn.Punctuation.FINAL:
    ...             self.questions.put(None)
    >>> flow = pn.Flow("ask")
    >>> out = flow.source([1, 2, 3]).process(Ask()).collect()
    >>> _ = pn.run(flow, on="local")
    >>> out
    [2, 4, 6]
    """

    inputs: int = 1
    outputs: int = 1
    control: tuple[int, ...] = ()
    kind: Kind | None = None
    own_threads: bool = False

    def open(self, ctx: OperatorContext) -> None:
        """Called once before the first tuple; the place to keep `ctx` and to open resources."""

    def process(self, t: Any, port: int) -> Any:
        """Handle one tuple of input `port`."""
        raise NotImplementedError(f"{type(self).__name__} must define process(self, t, port)")

    def on_punctuation(self, mark: Punctuation, port: int) -> Any:
        """Handle a window or final punctuation; outputs as in `process`. The mark itself is forwarded afterwards."""

    def close(self) -> None:
        """Called once after the last tuple, also when the job was cancelled or failed."""

    def snapshot(self) -> Any:
        """The operator's state, as a value that can be pickled; all attributes unless overridden."""
        kept = {k: v for k, v in self.__dict__.items() if not isinstance(v, OperatorContext)}
        return copy.deepcopy(kept)

    def restore(self, state: Any) -> None:
        """Take back what `snapshot` gave; called after `open`."""
        self.__dict__.update(copy.deepcopy(state))


class CoContext:
    """What an operator with its own loop may ask for: data, and to push results (C-Stream §2.3, §3.2)."""

    name: str
    key: Any
    clock: Clock

    def wait_all(self, ports: Mapping[int, int]) -> Awaitable[bool]:
        """Wait until every port holds its number of tuples; false once that can never happen."""
        raise NotImplementedError

    def wait_any(self, ports: Mapping[int, int]) -> Awaitable[bool]:
        """Wait until some port holds its number of tuples; false once that can never happen."""
        raise NotImplementedError

    def available(self, port: int) -> int:
        """How many tuples of input `port` can be popped now."""
        raise NotImplementedError

    def pop(self, port: int = 0) -> Any:
        """Take the oldest tuple of input `port`; a `wait` that came back true promised it."""
        raise NotImplementedError

    def push(self, item: Any, port: int = 0) -> Awaitable[None]:
        """Send `item` out of output `port`, waiting for room if need be."""
        raise NotImplementedError


class CoOperator:
    """An operator with a driver loop of its own, as in C-Stream.

    >>> import penstock as pn
    >>> class Barrier(pn.CoOperator):
    ...     inputs = 2
    ...     async def run(self, ctx):
    ...         while await ctx.wait_all({0: 1, 1: 1}):
    ...             await ctx.push((ctx.pop(0), ctx.pop(1)))
    >>> flow = pn.Flow("meet")
    >>> left, right = flow.source([1, 2, 3]), flow.source("ab")
    >>> out = left.process(Barrier(), right).collect()
    >>> _ = pn.run(flow, on="local")
    >>> out
    [(1, 'a'), (2, 'b')]
    """

    inputs: int = 1
    outputs: int = 1
    control: tuple[int, ...] = ()
    kind: Kind | None = None

    async def run(self, ctx: CoContext) -> None:
        """The driver loop; the operator is complete when it returns."""
        raise NotImplementedError(f"{type(self).__name__} must define async run(self, ctx)")


def label_of(function: Callable[..., Any]) -> str | None:
    """A name for a user's function that means something, or None for lambdas and the like."""
    name = getattr(function, "__name__", None)
    return name if isinstance(name, str) and name.isidentifier() else None
