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
from typing import Any

from penstock.graph.keys import Key
from penstock.operators.accumulation import Accumulation, Code, Named, State, compiled, write_reads
from penstock.operators.base import Late, Writer
from penstock.operators.sliding_aggregates import way_of
from penstock.operators.tumbling_code import NEVER, column_expressions, result_expressions, row_function
from penstock.operators.windowed import EventPartition, Shape
from penstock.windows.event_time import EventTime
from penstock.windows.policies import Window
from penstock.windows.times import comparable


def stacks_all(aggregates: Named) -> bool:
    """True when every aggregate can be followed by combining panes, each a constant amount of work."""
    return all(way_of(aggregate) in ("stacks", "monotone") for _, aggregate in aggregates)


class Stacks:
    """The panes of one key's window as a first-in first-out fold."""

    __slots__ = ("back", "due", "front", "room", "waiting")

    def __init__(self, room: int, due: int) -> None:
        self.front: list[State] = []  # what is left of the oldest panes: the state from each one on, the oldest last
        self.back: State | None = None  # the newer panes combined
        self.waiting: list[Any] = []  # the panes in `back`, oldest first; for panes of one tuple, the values read of it
        self.room = room  # panes until the window is full
        self.due = due  # panes until it fires next


class SlidingCountCode:
    """The newest `size` tuples, at every `every`-th.

    State: `[key, tuples in the pane, slots of the pane …, stacks]`.
    """

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
        functions = _functions(fold, key, self.every, self.partial)
        self.joined_row: Callable[[Any, State, State], dict[str, Any]] = functions["joined_row"]
        self.slide_one: Callable[..., dict[str, Any] | None] = functions["slide_one"]

    def fresh(self, key: Any) -> State:
        return [key, 0, *[None] * (self.fold.width - 1), Stacks(self.panes, self.every)]

    def finish(self, state: State) -> list[Any] | None:
        """A sliding window says nothing at the end of the stream."""
        return None

    def write(self, w: Writer, item: str, state: str) -> None:
        """Code for the tuple in `item`; `state` is the variable that holds its key's list."""
        values, row = write_reads(self.fold, w, item), w.variable("row")
        slide = w.bind(self.slide_one if self.pane == 1 else self.slide, "slide")
        if self.pane == 1:
            w.line(f"{row} = {slide}({', '.join([state, *values.values()])})")
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


_FUNCTIONS = """\
def joined_row(key, a, b):
    {combine}
    return {row}

def turn_over(stacks):
    front, waiting = stacks.front, stacks.waiting
    s = None
    while waiting:
        {values} = waiting.pop()
        a = [1{empty}]
        {start_a}
        if s is not None:
            b = s
            {combine}
        else:
            s = a
        front.append(s)
    stacks.back = None

def slide_one({arguments}):
    stacks = state[-1]
    front = stacks.front
    if stacks.room:
        stacks.room -= 1
    else:
        if not front:
            turn_over(stacks)
        front.pop()
    stacks.waiting.append({values})
    s = stacks.back
    if s is None:
        stacks.back = s = [1{empty}]
        {start}
    else:
        s[0] += 1
        {add}
    stacks.due -= 1
    if stacks.due:
        return None
    stacks.due = {every}
    if {silent}:
        return None
    key = state[0]
    if front:
        return joined_row(key, front[-1], s)
    return {row}
"""


def _functions(fold: Accumulation, key: Key | None, every: int, partial: bool) -> dict[str, Any]:
    """`slide_one`, which lets one tuple into a window and the oldest out, and `joined_row`, the output of two halves.

    A tuple is one call, and takes one list as long as it is in the window.
    """
    space: dict[str, Any] = {}

    def bind(value: Any, hint: str) -> str:
        name = f"{hint}_{len(space)}"
        space[name] = value
        return name

    code, single = Code(fold, "s", 0, bind, scratch="d", order="0"), Code(fold, "a", 0, bind, scratch="d", order="0")
    values = [code.value(on) for on in fold.reads]
    words = {
        "combine": fold.combine_lines(code),
        "start": fold.start_lines(code),
        "start_a": fold.start_lines(single),
        "add": fold.add_lines(code),
    }
    text = _FUNCTIONS
    for word, lines in words.items():
        text = _fill_block(text, word, lines)
    entries = column_expressions(key, "key") + result_expressions(fold, code)
    for word, expression in {
        "row": f"{{{', '.join(entries)}}}",
        "values": values[0] if len(values) == 1 else f"({', '.join(values)})" if values else "_",
        "arguments": ", ".join(["state", *values] if values else ["state", "_=None"]),
        "empty": ", None" * (fold.width - 1),
        "every": str(every),
        "silent": "False" if partial else "stacks.room",
    }.items():
        text = text.replace("{" + word + "}", expression)
    exec(compiled(text), space)
    return space


def _fill_block(text: str, word: str, lines: list[str]) -> str:
    """Replace each line that is just `{word}` by `lines`, indented as it was."""
    filled = []
    for line in text.split("\n"):
        if line.strip() == "{" + word + "}":
            indent = line[: len(line) - len(line.lstrip())]
            filled += [indent + each for each in lines or ["pass"]]
        else:
            filled.append(line)
    return "\n".join(filled)


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
            state[START] = comparable(windows.pane_start, windows.like)
            state[LIMIT] = comparable(min(windows.pane_stop, windows.closes_at), windows.like)
        return result

    def finish(self, state: State) -> list[Any] | None:
        state[START] = NEVER
        partition: EventPartition = state[PARTITION]
        return partition.finish()
