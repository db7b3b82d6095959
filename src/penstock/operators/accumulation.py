"""Accumulation: a set of aggregates as code over one plain list, written into a segment or compiled into functions.

The list holds the number of tuples first, then the slots of each aggregate. Each different value (`on=`) is read once
per tuple, however many aggregates want it.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from functools import lru_cache
from types import CodeType
from typing import Any

from penstock.operators.aggregates import Aggregate
from penstock.operators.base import Writer
from penstock.tuples import attribute_getter

Named = tuple[tuple[str, Aggregate], ...]
State = list[Any]


class Accumulation:
    """Named aggregates over the same tuples; behaviour only, the state is a list."""

    def __init__(self, aggregates: Named) -> None:
        self.aggregates = aggregates
        self.reads: list[Any] = []  # the different `on` of the aggregates
        for _, aggregate in aggregates:
            if aggregate.slots and aggregate.on not in self.reads:
                self.reads.append(aggregate.on)
        self.offsets: list[int] = []
        self.width = 1
        for _, aggregate in aggregates:
            self.offsets.append(self.width)
            self.width += aggregate.slots
        self._compile()

    def __reduce__(self) -> tuple[Any, ...]:
        return (accumulation_of, (self.aggregates,))

    # What `_compile` puts in place:
    start: Callable[[Any, int], State]  # the state after a first tuple, given with the number of its arrival
    add: Callable[[State, Any, int], None]  # one more tuple
    combine: Callable[[State, State], State]  # two neighbouring parts as a new state; only if all aggregates merge
    finish: Callable[[State], list[Any]]  # the results, in the order of the aggregates

    def of_tuples(self, tuples: Iterable[Any]) -> list[Any]:
        """The results for tuples that are all there; there must be one at least."""
        state: State | None = None
        for t in tuples:
            if state is None:
                state = self.start(t, 0)
            else:
                self.add(state, t, 0)
        assert state is not None, "an empty window never fires"
        return self.finish(state)

    # ------------------------------------------------------------------------------------------------ templates

    def start_lines(self, code: Code) -> list[str]:
        """Lines that put the first value of a window into the slots."""
        return [line for i, (_, a) in enumerate(self.aggregates) for line in code.fill(self, i, a.start)]

    def add_lines(self, code: Code) -> list[str]:
        """Lines that put a further value into the slots; the count has been raised before."""
        return [line for i, (_, a) in enumerate(self.aggregates) for line in code.fill(self, i, a.add)]

    def combine_lines(self, code: Code) -> list[str]:
        """Lines that make `s` of the states `a` and `b` of two neighbouring parts."""
        lines = [f"s = [a[0] + b[0]{', None' * (self.width - 1)}]"]
        for i, (_, aggregate) in enumerate(self.aggregates):
            lines += code.fill(self, i, aggregate.merges or ())
        return lines

    def finish_expressions(self, code: Code) -> list[str]:
        """An expression for each result."""
        return [code.fill(self, i, (a.finish,))[0] for i, (_, a) in enumerate(self.aggregates)]

    @property
    def merges(self) -> bool:
        return all(aggregate.merges is not None for _, aggregate in self.aggregates)

    def _compile(self) -> None:
        space: dict[str, Any] = {}

        def bind(value: Any, hint: str) -> str:
            name = f"{hint}_{len(space)}"
            space[name] = value
            return name

        code = Code(self, "s", 0, bind, scratch="d")
        reads = [f"{code.value(on)} = {_read(on, bind)}" for on in self.reads]
        text = _function("start(t, q)", [*reads, f"s = [1{', None' * (self.width - 1)}]", *self.start_lines(code)], "s")
        text += _function("add(s, t, q)", [*reads, "s[0] += 1", *self.add_lines(code)], "None")
        text += _function("finish(s)", [], f"[{', '.join(self.finish_expressions(code))}]")
        if self.merges:
            text += _function("combine(a, b)", self.combine_lines(code), "s")
        exec(compiled(text), space)
        for function in ("start", "add", "finish", *(["combine"] if self.merges else [])):
            setattr(self, function, space[function])


class Code:
    """How the templates of an accumulation are filled in: the list's name, where it starts, and names for objects."""

    def __init__(
        self,
        accumulation: Accumulation,
        state: str,
        base: int,
        bind: Callable[[Any, str], str],
        *,
        scratch: str,
        values: Mapping[int, str] | None = None,
        order: str = "q",
        counter: str | None = None,
    ) -> None:
        self.reads = accumulation.reads
        self.state = state
        self.base = base
        self.bind = bind
        self.scratch = scratch
        self.values = values or {}
        self.order = order
        self.counter = counter or f"{state}[{base}]"
        self.bound: dict[tuple[int, str], str] = {}

    def value(self, on: Any) -> str:
        """The variable that holds the value read by `on`."""
        position = self.reads.index(on) if on in self.reads else 0
        return self.values.get(position, f"v{position}")

    def fill(self, accumulation: Accumulation, index: int, templates: Iterable[str]) -> list[str]:
        """The templates of one aggregate as lines of code."""
        aggregate = accumulation.aggregates[index][1]
        offset = self.base + accumulation.offsets[index]
        words = {"v": self.value(aggregate.on), "q": self.order, "d": self.scratch}
        words |= {"n": self.counter, "na": "a[0]", "nb": "b[0]"}
        for slot in range(aggregate.slots):
            words |= {f"{part}{slot}": f"{part}[{offset - self.base + slot}]" for part in "ab"}
            words[f"s{slot}"] = f"{self.state}[{offset + slot}]"
        lines = list(templates)
        for name, value in aggregate.names.items():
            if any("{" + name + "}" in line for line in lines):
                words[name] = self._bound(index, name, value)
        return [line.format(**words) for line in lines]

    def _bound(self, index: int, name: str, value: Any) -> str:
        if (index, name) not in self.bound:
            self.bound[index, name] = self.bind(value, name)
        return self.bound[index, name]


@lru_cache(maxsize=256)
def _cached(aggregates: Named) -> Accumulation:
    return Accumulation(aggregates)


def accumulation_of(aggregates: Named) -> Accumulation:
    """The accumulation of these aggregates; compiled once while they are equal and hashable."""
    try:
        return _cached(aggregates)
    except TypeError:  # an attribute function that cannot be hashed
        return Accumulation(aggregates)


def write_reads(accumulation: Accumulation, w: Writer, item: str) -> dict[int, str]:
    """Write code that reads each value once; returns the variables, by position in `accumulation.reads`."""
    variables = {}
    for position, on in enumerate(accumulation.reads):
        if on is None:
            variables[position] = item
            continue
        variables[position] = w.variable("value")
        w.line(f"{variables[position]} = {w.attribute(item, on)}", attribute=on if isinstance(on, str) else "")
    return variables


@lru_cache(maxsize=256)
def compiled(text: str) -> CodeType:
    """The code of generated text. Objects are bound by name, so many operators of a large program share it."""
    return compile(text, "<penstock accumulation>", "exec", dont_inherit=True)


def _read(on: Any, bind: Callable[[Any, str], str]) -> str:
    return "t" if on is None else f"{bind(attribute_getter(on), 'read')}(t)"


def _function(header: str, lines: list[str], result: str) -> str:
    return "\n    ".join([f"def {header}:", *lines, f"return {result}"]) + "\n"
