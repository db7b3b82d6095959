"""sink: where tuples leave the program — a `Sink` object, a function, or a list."""

from __future__ import annotations

import threading
from typing import Any

from penstock.clock import Clock
from penstock.errors import FlowError
from penstock.graph.graph import Node
from penstock.graph.operations import Write
from penstock.graph.stream import Collected
from penstock.operators.base import Logic, Writer

# Sinks and collect() lists that a run of this process is filling: a second run would spoil them for the first.
_in_use: dict[int, object] = {}
_guard = threading.Lock()


def _take(target: object, name: str) -> None:
    with _guard:
        if id(target) in _in_use:
            what = "collect()" if isinstance(target, Collected) else type(target).__name__
            raise FlowError(
                f"the {what} of operator '{name}' is being filled already, by a job that still runs or by another "
                "operator; wait for that job, or give each its own (to bring streams together, use union)"
            )
        _in_use[id(target)] = target


def _give_back(target: object) -> None:
    with _guard:
        _in_use.pop(id(target), None)


class WriteLogic(Logic):
    """Functions and lists get tuple by tuple, inline; a `Sink` gets whole chunks."""

    def __init__(self, node: Node, clock: Clock | None = None) -> None:
        super().__init__(node, clock)
        assert isinstance(node.operation, Write)
        self.target: Any = node.operation.target
        self.whole_chunk = not isinstance(self.target, list) and hasattr(self.target, "write")
        self.opened = False
        self.taken = False
        self.called = [0]  # a cell that generated code counts in
        self.before = 0

    def open(self) -> None:
        if self._is_exclusive():
            _take(self.target, self.node.name)
            self.taken = True
        if isinstance(self.target, list):
            if isinstance(self.target, Collected):
                self.target.clear()
            self.before = len(self.target)
        elif self.whole_chunk:
            self.target.open()
            self.opened = True

    def close(self, failed: bool = False) -> None:
        try:
            if self.opened:
                self.opened = False
                self.target.close(failed)
        finally:
            if self.taken:
                self.taken = False
                _give_back(self.target)

    def _is_exclusive(self) -> bool:
        """True where one run at a time may write; lists and functions of the user's take from anybody."""
        return self.whole_chunk or isinstance(self.target, Collected)

    def on_chunk(self, chunk: list[Any]) -> list[Any]:
        self.target.write(chunk)
        return []

    def delivered(self) -> int | None:
        """How many tuples have been delivered, exactly; None where the segment knows."""
        if self.whole_chunk:
            return None
        return len(self.target) - self.before if isinstance(self.target, list) else self.called[0]

    def write(self, w: Writer, item: str, port: int) -> None:
        if isinstance(self.target, list):
            w.line(f"{w.bind(self.target, 'delivered')}.append({item})")  # quicker than calling a bound method
        else:
            w.line(f"{w.bind(self.target, 'deliver')}({item})")
            w.line(f"{w.bind(self.called, 'called')}[0] += 1")
