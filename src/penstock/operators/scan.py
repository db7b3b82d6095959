"""scan: a state that each tuple changes, and one output per tuple; per key on a keyed stream."""

from __future__ import annotations

import copy
from typing import Any

from penstock.clock import Clock
from penstock.graph.graph import Node
from penstock.graph.operations import Scan
from penstock.operators.base import KeyedState, Logic, Writer
from penstock.operators.keys import write_key

_HINT = "scan's function must return a pair (new state, output)"


class InitialState:
    """Makes the first state of a key: a copy of `init`, or what it returns if it is callable."""

    __slots__ = ("copies", "init")

    def __init__(self, init: Any) -> None:
        self.init = init
        # Copying is only needed where two keys could share something that changes.
        self.copies = not isinstance(init, int | float | str | bytes | bool | type(None) | complex)

    def __call__(self, key: Any) -> Any:
        if callable(self.init):
            return self.init()
        return copy.deepcopy(self.init) if self.copies else self.init


class ScanLogic(Logic):
    """Writes `state, out = function(state, t)`."""

    def __init__(self, node: Node, clock: Clock | None = None) -> None:
        super().__init__(node, clock)
        assert isinstance(node.operation, Scan)
        self.function = node.operation.function
        initial = InitialState(node.operation.init)
        self.states = KeyedState(initial)
        self.keyed = node.kind == "partitioned"
        self.cell = [None if self.keyed else initial(None)]

    def snapshot(self) -> Any:
        return None if self.keyed else self.cell

    def restore(self, saved: Any) -> None:
        self.cell[:] = saved

    def write(self, w: Writer, item: str, port: int) -> None:
        out, state = w.variable("t"), w.variable("state")
        function = w.bind(self.function, "scan")
        if self.keyed:
            key = write_key(w, item, self.node.inputs[port].key)
            place = f"{w.bind(self.states, 'states')}[{key}]"
        else:
            place = f"{w.bind(self.cell, 'cell')}[0]"
        w.line(f"{state}, {out} = {function}({place}, {item})", hint=_HINT)
        w.line(f"{place} = {state}")
        w.emit(0, out)
