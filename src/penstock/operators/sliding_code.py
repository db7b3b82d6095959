"""Sliding aggregates as code of the segment: the tuples of a pane are folded inline, panes are combined by two stacks.

A pane is a run of tuples that enter and leave every window together. For windows of count it is the greatest common
divisor of size and step, so `sliding(count=100, every=10)` combines one pane for ten tuples. For windows of event time
it is a pane of the engine (`windows.event_time`); the code only spares the calls for tuples that change nothing else.

Each pane is combined at most three times (into the running state, once as the stack is turned over, once as a window
fires), and nothing is ever subtracted, so floats do not drift.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from datetime import datetime
from typing import Any

from penstock.graph.keys import Key
from penstock.operators.accumulation import Accumulation, Code, Named, State, write_reads
from penstock.operators.base import Late, Writer
from penstock.operators.sliding_aggregates import way_of
from penstock.operators.tumbling_code import NEVER, column_expressions, result_expressions, row_function
from penstock.operators.windowed import EventPartition, Shape
from penstock.windows.event_time import EventTime
from penstock.windows.policies import Window
from penstock.windows.times import Number, time_of


def stacks_all(aggregates: Named) -> bool:
    """True when every aggregate can be followed by combining panes, each a constant amount of work."""
    return all(way_of(aggregate) in ("stacks", "monotone") for _, aggregate in aggregates)


class Stacks:
    """The panes of one key's window as a first-in first-out fold."""

    __slots__ = ("back", "due", "front", "room", "waiting")

    def __init__(self, room: int, due: int) -> None:
        self.front: list[State] = []  # what is left of the oldest panes: the state from each one on, the oldest last
        self.back: State | None = None  # the newer panes combined
        self.waiting: list[State] = []  # the panes in `back`, oldest first
        self.room = room  # panes until the window is full
        self.due = due  # panes until it fires next


class SlidingCountCode:
    """The newest `size` tuples, at every `every`-th. State: `[key, tuples in the pane, slots of the pane …, stacks]`."""

    def __init__(self, window: Window, fold: Accumulation, key: Key | None) -> None:
        every = 1 if window.every is None else window.every
        assert isinstance(window.size, int)
        assert isinstance(every, int)
        self.fold = fold
        self.partial = window.partial
        self.pane = math.gcd(window.size, every)
        self.panes = window.size // self.pane
        self.every = every // self.pane
        self.row = row_function(fold, key, bounded=False)
        self.joined_row = _joined_row_function(fold, key)

    def fresh(self, key: Any) -> State:
        return [key, 0, *[None] * (self.fold.width - 1), Stacks(self.panes, self.every)]

    def finish(self, state: State) -> list[Any] | None:
        """A sliding window says nothing at the end of the stream."""
        return None

    def write(self, w: Writer, item: str, state: str) -> None:
        """Code for the tuple in `item`; `state` is the variable that holds its key's list."""
        values, row = write_reads(self.fold, w, item), w.variable("row")
        slide = w.bind(self.slide, "slide")
        if self.pane == 1:
            pane = w.variable("pane")
            code = Code(self.fold, pane, 0, w.bind, scratch=w.variable("scratch"), values=values, order="0")
            w.line(f"{pane} = [1{', None' * (self.fold.width - 1)}]")
            for line in self.fold.start_lines(code):
                w.line(line)
            w.line(f"{row} = {slide}({state}, {pane})")
            self._write_row(w, row)
            return
        count = w.variable("count")
        scratch = w.variable("scratch")
        code = Code(self.fold, state, 1, w.bind, scratch=scratch, values=values, order="0", counter=count)
        w.line(f"{count} = {state}[1]")
        with w.block(f"if {count}:"):
            w.line(f"{state}[1] = {count} = {count} + 1")
            for line in self.fold.add_lines(code):
                w.line(line)
            with w.block(f"if {count} == {self.pane}:"):
                w.line(f"{row} = {slide}({state}, {state}[1:-1])")
                w.line(f"{state}[1] = 0")
                self._write_row(w, row)
        with w.block("else:"):
            for line in self.fold.start_lines(code):
                w.line(line)
            w.line(f"{state}[1] = 1")

    @staticmethod
    def _write_row(w: Writer, row: str) -> None:
        with w.block(f"if {row} is not None:"):
            w.emit(0, row)

    def slide(self, state: State, pane: State) -> dict[str, Any] | None:
        """A pane is full: let it into the window and the oldest one out; the output if the window fires."""
        stacks: Stacks = state[-1]
        front = stacks.front
        if stacks.room:
            stacks.room -= 1
        else:
            if not front:
                self._turn_over(stacks)
            front.pop()
        back = stacks.back
        stacks.waiting.append(pane)
        stacks.back = back = pane if back is None else self.fold.combine(back, pane)
        stacks.due -= 1
        if stacks.due:
            return None
        stacks.due = self.every
        if stacks.room and not self.partial:
            return None
        return self.joined_row(state[0], front[-1], back) if front else self.row(state[0], back, None, None)

    def _turn_over(self, stacks: Stacks) -> None:
        combine, front, waiting = self.fold.combine, stacks.front, stacks.waiting
        suffix = waiting.pop()
        front.append(suffix)
        while waiting:
            suffix = combine(waiting.pop(), suffix)
            front.append(suffix)
        stacks.back = None


def _joined_row_function(fold: Accumulation, key: Key | None) -> Callable[[Any, State, State], dict[str, Any]]:
    """A function that makes the output of a window from its key and the states of its two halves."""
    space: dict[str, Any] = {}

    def bind(value: Any, hint: str) -> str:
        name = f"{hint}_{len(space)}"
        space[name] = value
        return name

    code = Code(fold, "s", 0, bind, scratch="d")
    lines = "\n    ".join(fold.combine_lines(code))
    entries = column_expressions(key, "key") + result_expressions(fold, code)
    text = f"def row(key, a, b):\n    {lines}\n    return {{{', '.join(entries)}}}\n"
    exec(compile(text, "<penstock accumulation>", "exec"), space)
    row: Callable[[Any, State, State], dict[str, Any]] = space["row"]
    return row


# Positions in the state of a key of `SlidingEventCode`.
START, LIMIT, SLOTS, PARTITION = range(4)


class SlidingEventCode:
    """Aligned, overlapping windows of event time under the watermark of their key.

    State: `[start, limit, slots, partition]`. The partition's engine does everything. Its newest pane is also in
    `slots`: a time within `[start, limit)` belongs to that pane and closes nothing, so the tuple is folded in directly.
    The engine need not hear of it: its newest time only decides what closes, and nothing does before `limit`.
    """

    def __init__(self, window: Window, fold: Accumulation, shape: Shape) -> None:
        self.window = window
        self.fold = fold
        self.shape = shape
        # first() and last() compare the numbers of arrival of tuples in different panes.
        self.ordered = any("{q}" in line for _, aggregate in fold.aggregates for line in aggregate.start)

    def fresh(self, key: Any) -> State:
        return [NEVER, None, None, EventPartition(self.window, self.fold.aggregates, self.shape, key, None)]

    @contextmanager
    def write(self, w: Writer, item: str, state: str, result: str) -> Iterator[None]:
        """Code for the tuple in `item`; the body of the `with` writes what is to be done with `result`."""
        on = self.window.on
        assert on is not None, "the policy made sure of it"
        time, slots = w.variable("time"), w.variable("slots")
        w.line(f"{time} = {w.attribute(item, on)}", attribute=on if isinstance(on, str) else "")
        with w.block(f"if {state}[{START}] <= {time} < {state}[{LIMIT}]:"):
            values = write_reads(self.fold, w, item)
            order = "0"
            if self.ordered:
                order = w.variable("order")
                w.line(f"{order} = {w.bind(self.number_of_arrival, 'number_of_arrival')}({state})")
            w.line(f"{slots} = {state}[{SLOTS}]")
            code = Code(self.fold, slots, 0, w.bind, scratch=w.variable("scratch"), values=values, order=order)
            w.line(f"{slots}[0] += 1")
            for line in self.fold.add_lines(code):
                w.line(line)
        with w.block("else:"):
            w.line(f"{result} = {w.bind(self.slow, 'close_windows')}({state}, {item})")
            yield

    @staticmethod
    def number_of_arrival(state: State) -> int:
        """The number of the tuple that is being added."""
        windows = state[PARTITION].windows
        windows.arrived += 1
        return windows.arrived - 1  # type: ignore[no-any-return]

    def slow(self, state: State, t: Any) -> list[Any] | Late | None:
        """Handle a tuple that is not simply one more of the newest pane."""
        partition: EventPartition = state[PARTITION]
        state[START] = NEVER
        result = partition.process_at(t, 0, 0.0)
        windows = partition.windows
        assert isinstance(windows, EventTime)
        store = windows.stores.get(partition.key)
        if store is not None and store.present and store.present[-1] == windows.pane and store.is_fresh(windows.pane):
            state[SLOTS] = store.panes[windows.pane][0]
            state[START] = _bound(windows.pane_start, windows.like)
            state[LIMIT] = _bound(min(windows.pane_stop, windows.closes_at), windows.like)
        return result

    def finish(self, state: State) -> list[Any] | None:
        state[START] = NEVER
        partition: EventPartition = state[PARTITION]
        return partition.finish()


def _bound(number: Number, like: Any) -> Any:
    """A bound that times like this can be compared with; datetimes have whole microseconds, so rounding up is exact."""
    return time_of(math.ceil(number), like) if isinstance(like, datetime) else number
