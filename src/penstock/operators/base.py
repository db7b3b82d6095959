"""What an operator is to the system that runs it: code for a tuple, and answers to punctuation, time and the end.

A description (`graph.operations`) says what the user wants; a `Logic` does it, for one run and one channel. Logic is
never aware of threads: whoever calls it makes sure that one thread does so at a time.

Two ways to handle tuples:

* **inline**: `write` puts the operator's code for one tuple into the generated function of its segment, and the code
  of what follows directly inside it (map, filter, flat_map, scan, …);
* **partitions**: a `Partition` object per key (or one for all) with a method `process(t, port)`; the generated code
  only finds the partition and passes on what it returns. Windows, joins and the like are written so.

An operator that may also speak when no tuple arrives — on punctuation, by time, or at the end of the stream — sets
`ends_segment`: its outputs leave through an outlet, so that they can be delivered outside the generated function.
"""

from __future__ import annotations

from collections.abc import Callable
from contextlib import AbstractContextManager
from typing import Any, Final, Protocol

from penstock.clock import Clock, SystemClock
from penstock.graph.graph import Node
from penstock.graph.operator import ThreadContext
from penstock.tuples import Punctuation

Emit = Callable[[int, list[Any]], None]
"""`emit(port, tuples)`: send tuples out of an output port, between tuples."""


class Writer(Protocol):
    """Where an operator writes its code for one tuple (implemented by the compiler)."""

    @property
    def may_continue(self) -> bool:
        """True where nothing follows in the loop body, so `continue` skips just the current tuple."""
        ...

    def line(self, text: str, *, attribute: str = "", hint: str = "") -> None:
        """One line of code. For better error messages: the `attribute` it reads, a `hint` what must have gone wrong
        when the line itself fails and not a function that it calls."""
        ...

    def block(self, header: str) -> AbstractContextManager[None]:
        """An indented block under `header`, such as `if x:`."""
        ...

    def loop(self, header: str) -> AbstractContextManager[None]:
        """A block whose body runs once per item: inside it, `continue` goes to the next item."""
        ...

    def bind(self, value: Any, hint: str) -> str:
        """A local name for a value known now, such as the user's function."""
        ...

    def variable(self, hint: str) -> str:
        """A fresh local name."""
        ...

    def attribute(self, item: str, spec: str | Callable[[Any], Any]) -> str:
        """An expression that reads attribute or function `spec` of the tuple in variable `item`.

        May write a line of its own first, so the expression must be used in the line, or the block, that comes next.
        """
        ...

    def wanted(self, port: int) -> bool:
        """True when somebody reads output `port`."""
        ...

    def emit(self, port: int, item: str, *, last: bool = True) -> None:
        """The code of everything that follows output `port`, for the tuple in `item`.

        `last` is False when the operator writes more code after it in the same block.
        """
        ...

    def emit_all(self, port: int, items: str) -> None:
        """The same for a list of tuples (or None, or an empty list) in variable `items`."""
        ...

    def emit_to_one(self, index: str, outputs: int, item: str) -> str | None:
        """The code that sends the tuple in `item` to the one of `outputs` outputs whose number is in `index`.

        Returns a condition that is true where there is no such output. Returns None, and writes nothing, where the code
        of what follows must be written in place, output by output.
        """
        ...

    def mark(self, port: int) -> None:
        """Code that sends a window punctuation out of output `port` (only where `ends_segment`)."""
        ...

    def flush(self) -> None:
        """Code that delivers everything sent so far, before the operator waits (only where `ends_segment`)."""
        ...


class Logic:
    """The behaviour of one operator in one run. `node` is its description, `clock` the time it sees."""

    ends_segment: bool = False  # outputs also outside `write`: on marks, by time, at the end
    whole_chunk: bool = False  # takes a chunk at once; see `on_chunk`
    forwards_marks: bool = True  # window punctuation passes on after the operator saw it
    own_threads: bool = False  # has threads that submit tuples (`runtime.own_threads`); it ends its segment, too
    nests: bool = False  # `write` opens a loop or block around what follows

    def __init__(self, node: Node, clock: Clock | None = None) -> None:
        self.node = node
        self.clock: Clock = clock if clock is not None else SystemClock()

    def open(self) -> None:
        """Called once, before the first tuple."""

    def close(self, failed: bool = False) -> None:
        """Called once, after the last tuple, however the job ended."""

    def thread_functions(self) -> list[Callable[[ThreadContext], None]]:
        """After `open`: what is to run in threads of the operator's own."""
        return []

    def interrupt(self) -> None:
        """The job is being stopped: wake whoever waits inside this operator. May be called from any thread."""

    def write(self, w: Writer, item: str, port: int) -> None:
        """Write the code that handles the tuple in variable `item` of input `port`."""
        raise NotImplementedError(type(self).__name__)

    def on_chunk(self, chunk: list[Any]) -> list[Any]:
        """Where `whole_chunk` is set: the outputs for a chunk of tuples."""
        raise NotImplementedError(type(self).__name__)

    def on_tracked(self, chunk: list[Any], origins: list[int]) -> tuple[list[Any], list[int]]:
        """The same where the origin of each tuple must be known: the outputs, and the origin of each of them.

        As many outputs as tuples belong to them one by one. Otherwise only asking for each tuple by itself can tell;
        how a stream is cut into chunks must make no difference.
        """
        outputs = self.on_chunk(chunk)
        if len(outputs) == len(chunk):
            return outputs, origins
        outputs, found = [], []
        for item, origin in zip(chunk, origins, strict=True):
            results = self.on_chunk([item])
            outputs += results
            found += [origin] * len(results)
        return outputs, found

    def on_mark(self, port: int, emit: Emit) -> None:
        """A window punctuation arrived at input `port`."""

    def on_port_final(self, port: int, emit: Emit) -> None:
        """The last tuple of input `port` has been processed; other inputs may go on."""

    def on_final(self, emit: Emit) -> None:
        """The last tuple of all inputs has been processed."""

    def on_tick(self, now: float, emit: Emit) -> None:
        """`deadline()` has been reached."""

    def deadline(self) -> float | None:
        """When `on_tick` wants to be called, or None; only asked of operators with `timed` set."""
        return None

    timed: bool = False  # `deadline` may ever be other than None

    def backlog(self, port: int) -> int:
        """Tuples of input `port` held until another input catches up; readers of that input are slowed down."""
        return 0

    # State that outlives this object: keyed state is found in attributes of type `KeyedState`.

    def save(self, state: Any) -> Any:
        """One key's state as a value to store."""
        return state

    def load(self, key: Any, saved: Any) -> Any:
        """The state of `key` from what `save` gave."""
        return saved

    def snapshot(self) -> Any:
        """State that belongs to no key, or None where there is none."""
        return None

    def restore(self, saved: Any) -> None:
        """Take back what `snapshot` gave."""

    def counters(self) -> dict[str, int]:
        """Things worth counting, such as late tuples, for `job.metrics()`."""
        return {}


class Late:
    """The type of `LATE`."""

    def __repr__(self) -> str:
        return "LATE"

    def __reduce__(self) -> str:
        return "LATE"


LATE: Final = Late()
"""What `Partition.process` returns for a tuple that came after all of its windows had closed."""


class Partition:
    """The state and behaviour of an operator for one key (or for a whole stream without key).

    Partitions can be pickled: they are what is stored and moved. Every method returns the list of outputs, or None for
    none. `process` may also return `LATE`.
    """

    __slots__ = ()

    def process(self, t: Any, port: int) -> list[Any] | Late | None:
        """One tuple arrived at input `port`."""
        raise NotImplementedError

    def mark(self, port: int) -> list[Any] | None:
        """A window punctuation arrived at input `port`."""
        return None

    def port_final(self, port: int) -> list[Any] | None:
        """Nothing more comes at input `port`."""
        return None

    def finish(self) -> list[Any] | None:
        """Nothing more comes at any input."""
        return None

    def tick(self, now: float) -> list[Any] | None:
        """Time has passed; called when `deadline()` was reached, and maybe earlier."""
        return None

    def deadline(self) -> float | None:
        """When this partition wants `tick`, or None."""
        return None

    def held(self, port: int) -> int:
        """Tuples of input `port` that wait for another input."""
        return 0


class KeyedState(dict[Any, Any]):
    """Per-key state: a mapping that makes a key's state when the key is first met (DESIGN §7)."""

    __slots__ = ("make",)

    def __init__(self, make: Callable[[Any], Any]) -> None:
        super().__init__()
        self.make = make

    def __missing__(self, key: Any) -> Any:
        state = self[key] = self.make(key)
        return state


class PartitionLogic(Logic):
    """An operator made of partitions: one per key where the inputs are keyed, else a single one.

    Subclasses give `make(key)`; the key is None for the single partition of an un-keyed operator.
    """

    ends_segment = True
    nests = True
    may_be_late = False  # `process` may return LATE; late tuples leave by output 1

    def __init__(self, node: Node, clock: Clock | None = None) -> None:
        super().__init__(node, clock)
        self.keyed = node.kind == "partitioned"
        self.late = [0]  # a cell that generated code counts in
        self.partitions: KeyedState = KeyedState(self.make)

    def make(self, key: Any) -> Partition:
        """A fresh partition for `key`."""
        raise NotImplementedError(type(self).__name__)

    def write(self, w: Writer, item: str, port: int) -> None:
        result = w.variable("result")
        w.line(f"{result} = {self.write_partition(w, item, port)}.process({item}, {port})")
        self.write_result(w, item, result)

    def write_partition(self, w: Writer, item: str, port: int) -> str:
        """Code that finds the partition of the tuple in `item`; returns an expression for it."""
        if not self.keyed:
            return w.bind(self.partitions[None], "partition")
        from penstock.operators.keys import write_key  # keys.py needs Writer from here

        key = write_key(w, item, self.node.inputs[port].key)
        return f"{w.bind(self.partitions, 'partitions')}[{key}]"

    def write_result(self, w: Writer, item: str, result: str) -> None:
        """Code that passes on what `process` returned in variable `result`."""
        if not self.may_be_late:
            w.emit_all(0, result)
            return
        late = w.bind(LATE, "LATE")
        with w.block(f"if {result} is {late}:"):
            w.line(f"{w.bind(self.late, 'late_count')}[0] += 1")
            if w.wanted(1):
                w.emit(1, item, last=False)
        with w.block("else:"):
            w.emit_all(0, result)

    def _each(self, emit: Emit, answer: Callable[[Partition], list[Any] | None]) -> None:
        for partition in list(self.partitions.values()):
            outputs = answer(partition)
            if outputs:
                emit(0, outputs)

    def on_mark(self, port: int, emit: Emit) -> None:
        self._each(emit, lambda partition: partition.mark(port))

    def on_port_final(self, port: int, emit: Emit) -> None:
        self._each(emit, lambda partition: partition.port_final(port))

    def on_final(self, emit: Emit) -> None:
        self._each(emit, lambda partition: partition.finish())

    def on_tick(self, now: float, emit: Emit) -> None:
        self._each(emit, lambda partition: partition.tick(now))

    def deadline(self) -> float | None:
        deadlines = [d for d in (p.deadline() for p in list(self.partitions.values())) if d is not None]
        return min(deadlines, default=None)

    def backlog(self, port: int) -> int:
        return sum(partition.held(port) for partition in self.partitions.values())

    def counters(self) -> dict[str, int]:
        return {"late": self.late[0]} if self.may_be_late else {}


__all__ = ["LATE", "Emit", "KeyedState", "Late", "Logic", "Partition", "PartitionLogic", "Punctuation", "Writer"]
