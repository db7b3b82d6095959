"""Runs the logic of one operator step by step, through code written by the smallest possible `Writer`."""

from __future__ import annotations

import pickle
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Any

from penstock.clock import ManualClock
from penstock.graph.flow import Flow
from penstock.operators.base import Logic
from penstock.operators.registry import logic_of
from penstock.tuples import attribute_getter


class FakeWriter:
    """Writes one function `handle(t)`; what is emitted is appended to a list per port."""

    may_continue = False

    def __init__(self, outputs: list[list[Any]]) -> None:
        self.outputs = outputs
        self.lines: list[str] = []
        self.space: dict[str, Any] = {"outputs": outputs}
        self.depth = 1

    def line(self, text: str, *, attribute: str = "", hint: str = "") -> None:
        self.lines.append("    " * self.depth + text)

    @contextmanager
    def block(self, header: str) -> Iterator[None]:
        self.line(header)
        self.depth += 1
        before = len(self.lines)
        yield
        if len(self.lines) == before:
            self.line("pass")
        self.depth -= 1

    loop = block

    def bind(self, value: Any, hint: str) -> str:
        name = self.variable(hint)
        self.space[name] = value
        return name

    def variable(self, hint: str) -> str:
        name = f"{hint}_{len(self.space)}"
        self.space[name] = None
        return name

    def attribute(self, item: str, spec: Any) -> str:
        return f"{self.bind(attribute_getter(spec), 'get')}({item})"

    def wanted(self, port: int) -> bool:
        return True

    def emit(self, port: int, item: str, *, last: bool = True) -> None:
        self.line(f"outputs[{port}].append({item})")

    def emit_all(self, port: int, items: str) -> None:
        with self.block(f"if {items}:"):
            self.line(f"outputs[{port}].extend({items})")

    def mark(self, port: int) -> None:
        self.line("pass")

    def function(self) -> Callable[[Any], None]:
        text = "\n".join(["def handle(t):", *self.lines, "    return None"])
        exec(text, self.space)
        return self.space["handle"]


class Driven:
    """One operator, fed by hand. `outputs[0]` is what it emitted, `outputs[1]` its late tuples."""

    def __init__(self, logic: Logic, clock: ManualClock) -> None:
        self.logic = logic
        self.clock = clock
        self.outputs: list[list[Any]] = [[], []]
        self._write()

    def _write(self) -> None:
        self.handlers = []
        for port in range(len(self.logic.node.inputs)):
            writer = FakeWriter(self.outputs)
            self.logic.write(writer, "t", port)
            self.handlers.append(writer.function())

    @property
    def out(self) -> list[Any]:
        return self.outputs[0]

    @property
    def late(self) -> list[Any]:
        return self.outputs[1]

    def emit(self, port: int, tuples: list[Any]) -> None:
        self.outputs[port].extend(tuples)

    def feed(self, *tuples: Any, port: int = 0) -> Driven:
        for t in tuples:
            self.handlers[port](t)
        return self

    def mark(self) -> Driven:
        self.logic.on_mark(0, self.emit)
        return self

    def advance(self, seconds: float) -> Driven:
        """Let time pass, waking the operator at each of its deadlines on the way."""
        until = self.clock.now() + seconds
        while (due := self.logic.deadline()) is not None and due <= until:
            assert self.logic.timed
            self.clock.advance(max(0.0, due - self.clock.now()))
            self.logic.on_tick(self.clock.now(), self.emit)
        self.clock.advance(until - self.clock.now())
        return self

    def end(self, port: int) -> Driven:
        self.logic.on_port_final(port, self.emit)
        return self

    def finish(self) -> list[Any]:
        self.logic.on_final(self.emit)
        return self.out

    def move(self) -> Driven:
        """Pickle all state into fresh logic, as a move to another process does."""
        fresh = logic_of(self.logic.node, self.clock)
        for key, state in pickle.loads(pickle.dumps(dict(self.logic.partitions))).items():
            fresh.partitions[key] = state
        fresh.late = self.logic.late
        for name in ("final",):
            if hasattr(self.logic, name):
                setattr(fresh, name, getattr(self.logic, name))
        self.logic = fresh
        self._write()
        return self


def drive(build: Callable[..., Any], *, inputs: int = 1) -> Driven:
    """The last operator that `build(*streams)` makes, ready to be fed."""
    flow = Flow("driven")
    streams = [flow.source([], name=f"input{i}") for i in range(inputs)]
    stream = build(*streams)
    clock = ManualClock()
    return Driven(logic_of(flow.graph().nodes[stream.output.node], clock), clock)
