"""process: operators users write themselves, event-driven (`pn.Operator`).

The prototype given to `stream.process(...)` is copied: once for the run, or once per key on a keyed stream, so that
`self` is the state of one partition.

An operator gets hold of `ctx` only through `open(ctx)`. One that defines neither `open` nor `on_punctuation` can
therefore speak only through what `process` returns, and is written inline like a flat_map. Any other ends its segment.
"""

from __future__ import annotations

import copy
from collections.abc import Callable, Iterator
from typing import Any

from penstock.clock import Clock
from penstock.graph.graph import Node
from penstock.graph.operations import Process
from penstock.graph.operator import CoOperator, Operator, OperatorContext, ThreadContext
from penstock.operators.base import Emit, KeyedState, Logic, Writer
from penstock.operators.coroutine import MOST_BUFFERED, Driver
from penstock.operators.keys import write_key
from penstock.tuples import Punctuation


def outputs_of(result: Any) -> Any:
    """What `process` returned, as something to iterate: None is nothing, a list or iterator many, else one tuple."""
    if result is None:
        return ()
    if result.__class__ is list or isinstance(result, Iterator):
        return result
    return (result,)


def _only_returns(operator: Operator | CoOperator) -> bool:
    """True for an operator that can send tuples only by returning or yielding them from `process`."""
    cls = type(operator)
    if not issubclass(cls, Operator):
        return False
    return cls.open is Operator.open and cls.on_punctuation is Operator.on_punctuation


class ProcessLogic(Logic):
    """Runs an `Operator` or a `CoOperator`."""

    nests = True

    def __init__(self, node: Node, clock: Clock | None = None) -> None:
        super().__init__(node, clock)
        assert isinstance(node.operation, Process)
        self.prototype = node.operation.operator
        self.keyed = node.kind == "partitioned"
        self.instances = KeyedState(self.make)
        self.outputs: list[list[Any]] = [[] for _ in range(node.operation.outputs)]
        self.own_threads = node.operation.own_threads
        self.threads: list[Callable[[ThreadContext], None]] = []
        self.inline = (
            _only_returns(self.prototype)
            and not self.own_threads
            and node.operation.outputs <= 1
            and node.operation.inputs == 1
        )
        self.ends_segment = not self.inline
        self.final: set[int] = set()  # inputs that have ended
        self.closed = False

    def make(self, key: Any) -> Operator | Driver:
        """A copy of the prototype for `key`, opened, and told which inputs have ended before the key was first met."""
        prototype = copy.deepcopy(self.prototype)
        instance: Operator | Driver
        if isinstance(prototype, CoOperator):
            instance = Driver(prototype, self.node.name, self.outputs, key=key, clock=self.clock)
        else:
            context = OperatorContext(self.node.name, 0, key=key, clock=self.clock)
            context._outputs = self.outputs
            instance = prototype
            if self.own_threads:
                context._threads = self.threads
            instance.open(context)
            context._threads = None
        for port in sorted(self.final):
            rest = self.absorb(instance.on_punctuation(Punctuation.FINAL, port))
            while rest is not None and not isinstance(rest, Driver):  # a driver goes on with its first tuple
                rest = self.go_on(rest)
        return instance

    def save(self, state: Any) -> Any:
        return state.snapshot()

    def load(self, key: Any, saved: Any) -> Any:
        instance = self.make(key)
        assert isinstance(instance, Operator), "a suspended loop cannot be stored"
        instance.restore(saved)
        return instance

    def open(self) -> None:
        if not self.keyed:
            self.instances[None]  # made, and opened, now

    def thread_functions(self) -> list[Callable[[ThreadContext], None]]:
        return self.threads

    def close(self, failed: bool = False) -> None:
        if not self.closed:
            self.closed = True
            for instance in self.instances.values():
                instance.close()

    # -------------------------------------------------------------------------------------------------- tuples

    def write(self, w: Writer, item: str, port: int) -> None:
        if self.keyed:
            key = write_key(w, item, self.node.inputs[port].key)
            process = f"{w.bind(self.instances, 'instances')}[{key}].process"
        else:
            # Whoever only reads the text has opened nothing, and nothing is opened for that.
            opened = None in self.instances
            process = w.bind(self.instances[None].process if opened else self.process, "process")
        if self.inline:
            out = w.variable("t")
            with w.loop(f"for {out} in {w.bind(outputs_of, 'outputs_of')}({process}({item}, {port})):"):
                w.emit(0, out) if w.wanted(0) else w.line("pass")
            return
        if port in self.node.operation.control:
            w.line(f"{w.bind(self.refuse_outputs, 'refuse_outputs')}({process}({item}, {port}))")
            return
        rest = w.variable("rest")
        w.line(f"{rest} = {w.bind(self.absorb, 'absorb')}({process}({item}, {port}))")
        self._write_buffers(w)
        with w.loop(f"while {rest} is not None:"):
            w.line(f"{rest} = {w.bind(self.go_on, 'go_on')}({rest})")
            self._write_buffers(w)

    def process(self, t: Any, port: int) -> Any:
        """Hand a tuple to the one instance there is without keys, which is made for it if need be."""
        return self.instances[None].process(t, port)

    def _write_buffers(self, w: Writer) -> None:
        for output, buffer in enumerate(self.outputs):
            name = w.bind(buffer, "buffer")
            with w.block(f"if {name}:"):
                self._write_buffer(w, name, output)
                w.line(f"{name}.clear()")

    def _write_buffer(self, w: Writer, buffer: str, output: int) -> None:
        if not w.wanted(output):
            return
        out = w.variable("t")
        with w.loop(f"for {out} in {buffer}:"):
            with w.block(f"if {out} is {w.bind(Punctuation.WINDOW, 'WINDOW')}:"):
                w.mark(output)
            with w.block("else:"):
                w.emit(output, out)

    def absorb(self, result: Any) -> Any:
        """Put what `process` returned or yields behind what it submits, in the order in which that happens.

        Returns None, or what is left when a buffer is full: `go_on` with it once the buffers have been sent.
        """
        if result is None or isinstance(result, Driver):
            return result
        if not self.outputs:
            raise TypeError(f"an operator without outputs must not return tuples: {result!r}")
        first = self.outputs[0]
        items = iter(outputs_of(result))
        for item in items:
            first.append(item)
            if len(first) >= MOST_BUFFERED:
                return items
        return None

    def go_on(self, rest: Any) -> Any:
        """Absorb more of what a full buffer interrupted."""
        return self.absorb(rest.go_on() if isinstance(rest, Driver) else rest)

    def refuse_outputs(self, result: Any) -> None:
        """A control port may change state but never produce output, or a feedback loop could block itself."""
        for _ in outputs_of(result):
            raise RuntimeError("a control port must not produce output")
        if any(self.outputs):
            raise RuntimeError("a control port must not submit output")

    # ------------------------------------------------------------------------------------- punctuation and end

    def _send(self, emit: Emit) -> None:
        for output, buffer in enumerate(self.outputs):
            if buffer:
                emit(output, buffer[:])
                buffer.clear()

    def _punctuate(self, mark: Punctuation, port: int, emit: Emit) -> None:
        for instance in list(self.instances.values()):
            rest = self.absorb(instance.on_punctuation(mark, port))
            self._send(emit)
            while rest is not None:
                rest = self.go_on(rest)
                self._send(emit)

    def on_mark(self, port: int, emit: Emit) -> None:
        if not self.inline:
            self._punctuate(Punctuation.WINDOW, port, emit)

    def on_port_final(self, port: int, emit: Emit) -> None:
        self.final.add(port)
        if not self.inline and port < self.node.operation.inputs:  # not where its own threads have ended
            self._punctuate(Punctuation.FINAL, port, emit)

    def backlog(self, port: int) -> int:
        return sum(instance.held(port) for instance in self.instances.values() if isinstance(instance, Driver))
