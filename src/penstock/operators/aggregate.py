"""`aggregate`: one dict of results for each firing of a window.

Windows of count and of event time are written straight into the segment's code (`tumbling_code`, `sliding_code`) where
the aggregates allow it; all others are partitions (`windowed`).
"""

from __future__ import annotations

from typing import Any

from penstock.clock import Clock
from penstock.errors import FlowError
from penstock.graph.graph import Node
from penstock.graph.keys import Key
from penstock.graph.operations import Aggregate
from penstock.operators.accumulation import Named, accumulation_of
from penstock.operators.base import Emit, Writer
from penstock.operators.sliding_code import SlidingCountCode, SlidingEventCode, stacks_all
from penstock.operators.tumbling_code import TumblingCountCode, TumblingEventCode
from penstock.operators.windowed import WindowedLogic

CountCode = TumblingCountCode | SlidingCountCode
EventCode = TumblingEventCode | SlidingEventCode

_BOUNDS = ("window_start", "window_end")


class AggregateShape:
    """The key's attributes, then the results, then the bounds of an event-time window."""

    def __init__(self, names: tuple[str, ...], key: Key | None, bounded: bool) -> None:
        self.names = names
        self.key = key
        self.bounded = bounded

    def row(self, key: Any, results: list[Any], start: Any, end: Any) -> dict[str, Any]:
        row = {} if self.key is None else self.key.columns(key)
        row.update(zip(self.names, results, strict=True))
        if self.bounded:
            row["window_start"] = start
            row["window_end"] = end
        return row


class AggregateLogic(WindowedLogic):
    """The windows of an `aggregate`: code where that is possible, else partitions."""

    def __init__(self, node: Node, clock: Clock | None = None) -> None:
        super().__init__(node, clock)
        assert isinstance(node.operation, Aggregate)
        self.aggregates: Named = node.operation.aggregates
        key = node.inputs[0].key
        names = tuple(name for name, _ in self.aggregates)
        self._refuse_same_names(names, key)
        self.shape = AggregateShape(names, key, self.window.event_time)
        self.code = self._code(key)
        self.follow()

    def _code(self, key: Key | None) -> CountCode | EventCode | None:
        if self.stream_key is not None or self.window.spans not in ("count", "event"):
            return None
        fold = accumulation_of(self.aggregates)
        if not self.window.sliding:
            made = TumblingCountCode if self.window.spans == "count" else TumblingEventCode
            return made(self.window, fold, key)
        if self.window.spans == "count":
            return SlidingCountCode(self.window, fold, key) if stacks_all(self.aggregates) else None
        return SlidingEventCode(self.window, fold, self.shape) if fold.merges else None

    def _refuse_same_names(self, names: tuple[str, ...], key: Key | None) -> None:
        taken = set(key.names or ("key",)) if key is not None else set()
        taken |= set(_BOUNDS) if self.window.event_time else set()
        for name in names:
            if name in taken:
                raise FlowError(
                    f"operator '{self.node.name}' (defined at {self.node.location}): the result {name}= has the name "
                    "of a key attribute or window bound of its output; give it another name"
                )

    def make(self, key: Any) -> Any:
        return super().make(key) if self.code is None else self.code.fresh(key)

    def write(self, w: Writer, item: str, port: int) -> None:
        if self.code is None:
            super().write(w, item, port)
            return
        state = w.variable("state")
        w.line(f"{state} = {self.write_partition(w, item, port)}")
        if isinstance(self.code, TumblingCountCode | SlidingCountCode):
            self.code.write(w, item, state)
            return
        result = w.variable("result")
        with self.code.write(w, item, state, result):
            self.write_result(w, item, result)

    # Windows written as code have plain lists for partitions, which only the end of the stream concerns.

    def on_final(self, emit: Emit) -> None:
        if self.code is None:
            super().on_final(emit)
            return
        for state in list(self.partitions.values()):
            rows = self.code.finish(state)
            if rows:
                emit(0, rows)

    def on_mark(self, port: int, emit: Emit) -> None:
        if self.code is None:
            super().on_mark(port, emit)

    def on_port_final(self, port: int, emit: Emit) -> None:
        if self.code is None:
            super().on_port_final(port, emit)
