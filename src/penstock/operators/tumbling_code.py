"""Tumbling aggregates as code of the segment: a few list operations per tuple, a call only when a window closes.

The state of a key is a plain list. For windows of event time it starts with the bounds within which a tuple changes
nothing but the aggregates; every other tuple — the first, one that closes windows, one out of order — goes through
`TumblingEventCode.slow`, which leaves the list ready for the next.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Any

from penstock.graph.keys import Key
from penstock.operators.accumulation import Accumulation, Code, State, compiled, write_reads
from penstock.operators.base import LATE, Late, Writer
from penstock.windows.policies import Window
from penstock.windows.times import Grid, comparable, grid_of, number_of, time_of, units_in

Row = Callable[[Any, State, Any, Any], dict[str, Any]]


def column_expressions(key: Key | None, value: str) -> list[str]:
    """The entries of an output dict that hold the key, which is in variable `value`."""
    if key is None:
        return []
    if key.function is not None:
        return [f"'key': {value}"]
    if len(key.names) == 1:
        return [f"{key.names[0]!r}: {value}"]
    return [f"{name!r}: {value}[{position}]" for position, name in enumerate(key.names)]


def result_expressions(fold: Accumulation, code: Code) -> list[str]:
    """The entries of an output dict that hold the results."""
    expressions = fold.finish_expressions(code)
    return [f"{name!r}: {text}" for (name, _), text in zip(fold.aggregates, expressions, strict=True)]


def row_function(fold: Accumulation, key: Key | None, bounded: bool, base: int = 0) -> Row:
    """A function that makes the output of a window from its key, its state from `base` on, and its bounds."""
    space: dict[str, Any] = {}

    def bind(value: Any, hint: str) -> str:
        name = f"{hint}_{len(space)}"
        space[name] = value
        return name

    entries = column_expressions(key, "key") + result_expressions(fold, Code(fold, "s", base, bind, scratch="d"))
    if bounded:
        entries += ["'window_start': start", "'window_end': end"]
    text = f"def row(key, s, start, end):\n    return {{{', '.join(entries)}}}\n"
    exec(compiled(text), space)
    row: Row = space["row"]
    return row


class TumblingCountCode:
    """Windows of `size` tuples. State: `[key, number of tuples, slots …]`."""

    def __init__(self, window: Window, fold: Accumulation, key: Key | None) -> None:
        self.window = window
        self.fold = fold
        self.key = key
        self.row = row_function(fold, key, bounded=False)

    def fresh(self, key: Any) -> State:
        return [key, 0, *[None] * (self.fold.width - 1)]

    def finish(self, state: State) -> list[Any] | None:
        if not self.window.partial or not state[1]:
            return None
        rows = [self.row(state[0], state[1:], None, None)]
        state[:] = self.fresh(state[0])
        return rows

    def write(self, w: Writer, item: str, state: str) -> None:
        """Code for the tuple in `item`; `state` is the variable that holds its key's list."""
        values = write_reads(self.fold, w, item)
        count = w.variable("count")
        code = Code(self.fold, state, 1, w.bind, scratch=w.variable("scratch"), values=values, order="0", counter=count)
        if self.window.size == 1:
            w.line(f"{count} = 1")
            self._write_lines(w, self.fold.start_lines(code))
            self._write_row(w, state, code)
            return
        w.line(f"{count} = {state}[1]")
        with w.block(f"if {count}:"):
            w.line(f"{state}[1] = {count} = {count} + 1")
            self._write_lines(w, self.fold.add_lines(code))
            with w.block(f"if {count} == {self.window.size}:"):
                w.line(f"{state}[1] = 0")
                self._write_row(w, state, code)
        with w.block("else:"):
            self._write_lines(w, self.fold.start_lines(code))
            w.line(f"{state}[1] = 1")

    def _write_lines(self, w: Writer, lines: list[str]) -> None:
        for line in lines:
            w.line(line)

    def _write_row(self, w: Writer, state: str, code: Code) -> None:
        row = w.variable("row")
        entries = column_expressions(self.key, f"{state}[0]") + result_expressions(self.fold, code)
        w.line(f"{row} = {{{', '.join(entries)}}}")
        w.emit(0, row)


class _Never:
    """A bound that no time has reached, whatever its type."""

    def __le__(self, other: object) -> bool:
        return False

    def __reduce__(self) -> str:
        return "NEVER"


NEVER = _Never()

# Up to this, the product of a pane's number and its size is a float for sure (2**53, with room for the size).
_EXACT = 2**40

# Positions in the state of a key. NEWEST is exact where `late` is not 0; otherwise it is at least START, which is all
# that is asked of it: whatever comes before the current window is late.
START, LIMIT, NEWEST, KEY, OLDER, LIKE, PANE, COUNT = range(8)


class TumblingEventCode:
    """Aligned windows of event time under the watermark of their key.

    State: `[start, limit, newest, key, older, like, pane, number of tuples, slots …]`. The slots are those of the
    newest window, which is pane number `pane`. Within `[start, limit)` a tuple belongs to it and closes nothing.
    `older` holds the other open windows by pane; there are none unless `late` allows it.
    """

    def __init__(self, window: Window, fold: Accumulation, key: Key | None) -> None:
        self.window = window
        self.fold = fold
        self.row = row_function(fold, key, bounded=True)
        self.current_row = row_function(fold, key, bounded=True, base=COUNT)
        self.grids: dict[int, Grid] = {}
        # Windows that start at whole numbers and never wait for late tuples follow each other without the grid.
        pane = grid_of(window, 1).pane
        self.whole: int | None = pane if isinstance(pane, int) and window.late == 0 else None

    def fresh(self, key: Any) -> State:
        return [NEVER, None, None, key, {}, None, None, 0]

    @contextmanager
    def write(self, w: Writer, item: str, state: str, result: str) -> Iterator[None]:
        """Code for the tuple in `item`; the body of the `with` writes what is to be done with `result`."""
        on = self.window.on
        assert on is not None, "the policy made sure of it"
        time = w.variable("time")
        w.line(f"{time} = {w.attribute(item, on)}", attribute=on if isinstance(on, str) else "")
        with w.block(f"if {state}[{START}] <= {time} < {state}[{LIMIT}]:"):
            values = write_reads(self.fold, w, item)
            code = Code(self.fold, state, COUNT, w.bind, scratch=w.variable("scratch"), values=values, order="0")
            w.line(f"{state}[{COUNT}] += 1")
            for line in self.fold.add_lines(code):
                w.line(line)
            if self.window.late:
                w.line(f"if {time} > {state}[{NEWEST}]: {state}[{NEWEST}] = {time}")
        with w.block("else:"):
            w.line(f"{result} = {w.bind(self.slow, 'close_windows')}({state}, {item}, {time})")
            yield

    def slow(self, state: State, t: Any, time: Any) -> list[Any] | Late | None:
        """Handle a tuple that is not simply one more of the newest window."""
        if state[PANE] is not None and time.__class__ is state[LIKE].__class__:
            row = self._advance(state, t, time)
            if row is not None:
                return [row]
        number = number_of(time)
        rows: list[Any] | None = None
        if state[LIKE] is None:
            state[LIKE] = state[NEWEST] = time
            grid = self._grid(time)
            newest = number
        else:
            grid = self._grid(state[LIKE])
            newest = number_of(state[NEWEST])
            if number > newest:
                newest, state[NEWEST] = number, time
                rows = self._close(state, grid, newest)
        pane = grid.pane_of(number)
        if newest >= grid.closes_at(pane + 1):
            return LATE
        self._place(state, grid, pane, t)
        return rows

    def _advance(self, state: State, t: Any, time: Any) -> dict[str, Any] | None:
        """Close the current window and open that of `time`, if that is all there is to do and plain numbers do it.

        The bounds are those the grid would give: floor and multiple of a whole number are exact up to 2**53, and the
        comparison refuses what lies beyond.
        """
        size = self.whole
        if size is None or not (time.__class__ is int or time.__class__ is float) or not time >= state[LIMIT]:
            return None
        pane = time // size
        start = pane * size
        if not (start <= time < start + size and abs(pane) < _EXACT):
            return None
        row = self.current_row(state[KEY], state, state[START], state[LIMIT])
        state[START], state[LIMIT], state[NEWEST], state[PANE] = start, start + size, time, int(pane)
        state[COUNT:] = self.fold.start(t, 0)
        return row

    def finish(self, state: State) -> list[Any] | None:
        if state[LIKE] is None:
            return None
        rows = self._close(state, self._grid(state[LIKE]), None)
        state[START] = NEVER  # nothing is open: whatever came now would have to go through `slow`
        return rows

    def _grid(self, like: Any) -> Grid:
        units = units_in(like)
        grid = self.grids.get(units)
        if grid is None:
            grid = self.grids[units] = grid_of(self.window, units)
        return grid

    def _place(self, state: State, grid: Grid, pane: int, t: Any) -> None:
        current, older = state[PANE], state[OLDER]
        if current is None or pane > current:
            if current is not None:
                older[current] = state[COUNT:]
            state[COUNT:] = self.fold.start(t, 0)
            state[PANE] = current = pane
            state[START] = comparable(grid.bound(pane), state[LIKE])
        elif pane == current:
            slots = state[COUNT:]
            self.fold.add(slots, t, 0)
            state[COUNT:] = slots
        elif pane in older:
            self.fold.add(older[pane], t, 0)
        else:
            older[pane] = self.fold.start(t, 0)
        limit = grid.bound(current + 1)
        if older:
            limit = min(limit, grid.closes_at(min(older) + 1))
        state[LIMIT] = comparable(limit, state[LIKE])

    def _close(self, state: State, grid: Grid, newest: Any) -> list[Any]:
        """The rows of the windows that `newest` closes (None: of all), in order of their end."""
        older = state[OLDER]
        rows: list[Any] = []
        for pane in sorted(older):
            if newest is not None and newest < grid.closes_at(pane + 1):
                return rows
            rows.append(self._row(state, grid, pane, older.pop(pane)))
        pane = state[PANE]
        if pane is not None and (newest is None or newest >= grid.closes_at(pane + 1)):
            rows.append(self._row(state, grid, pane, state[COUNT:]))
            state[PANE] = None
        return rows

    def _row(self, state: State, grid: Grid, pane: int, slots: State) -> dict[str, Any]:
        like = state[LIKE]
        return self.row(state[KEY], slots, time_of(grid.bound(pane), like), time_of(grid.bound(pane + 1), like))
