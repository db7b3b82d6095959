"""The aggregates of windows: `count`, `sum`, `mean`, `min`, `max`, `stddev`, `collect`, `first`, `last`, and your own.

An aggregate is written once, as templates of code over the slots of a plain list. The compiler puts them straight
into the code of a segment; `operators.accumulation` makes functions of them for everything else. So both ways agree
to the last bit, and neither pays for a method call per tuple and aggregate.

In a template, `{v}` is the value, `{s0}`, `{s1}` are the aggregate's slots, `{n}` is the number of tuples (the new one
included), `{q}` the number of the tuple's arrival, `{d}` a scratch variable, and every name in `names` stands for that
object. In `merge`, `{a0}` and `{b0}` are the slots of the left and right part, `{na}` and `{nb}` their counts.
"""

from __future__ import annotations

import copy
import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from typing import Any, ClassVar, Literal

from penstock.errors import FlowError, user_location
from penstock.tuples import attribute_getter

Attribute = str | Callable[[Any], Any]
Sliding = Literal["stacks", "monotone", "distinct", "held"]


@dataclass(frozen=True)
class Aggregate:
    """What all aggregates share. `on` is an attribute name or a function; None takes the tuple itself."""

    on: Attribute | None = None

    slots: ClassVar[int] = 1
    start: ClassVar[tuple[str, ...]] = ()  # the first value of a window
    add: ClassVar[tuple[str, ...]] = ()  # each further value
    merge: ClassVar[tuple[str, ...] | None] = None  # two neighbouring parts; None: it takes the tuples themselves
    finish: ClassVar[str] = "{s0}"
    sliding: ClassVar[Sliding] = "stacks"  # how a sliding window follows it; see `sliding_aggregates`

    @property
    def names(self) -> dict[str, Any]:
        """Objects the templates mention."""
        return {}

    @property
    def merges(self) -> tuple[str, ...] | None:
        """The templates of `merge`, or None where parts cannot be put together."""
        return self.merge

    def value(self) -> Callable[[Any], Any]:
        """The function that reads the value from a tuple."""
        return _itself if self.on is None else attribute_getter(self.on)

    def of_values(self, values: Sequence[Any]) -> Any:
        """The result for all values of a window at once."""
        from penstock.operators.accumulation import accumulation_of

        return accumulation_of((("result", replace(self, on=None)),)).of_tuples(values)[0]


def _itself(t: Any) -> Any:
    return t


@dataclass(frozen=True)
class Count(Aggregate):
    slots: ClassVar[int] = 0
    merge: ClassVar[tuple[str, ...] | None] = ()
    finish: ClassVar[str] = "{n}"


@dataclass(frozen=True)
class Sum(Aggregate):
    # A lone True would otherwise come out as True and not as 1.
    start: ClassVar[tuple[str, ...]] = ("{s0} = {v} if {v}.__class__ is not bool else int({v})",)
    add: ClassVar[tuple[str, ...]] = ("{s0} = {s0} + {v}",)
    merge: ClassVar[tuple[str, ...] | None] = ("{s0} = {a0} + {b0}",)


@dataclass(frozen=True)
class Mean(Aggregate):
    start: ClassVar[tuple[str, ...]] = ("{s0} = {v}",)
    add: ClassVar[tuple[str, ...]] = ("{s0} = {s0} + {v}",)
    merge: ClassVar[tuple[str, ...] | None] = ("{s0} = {a0} + {b0}",)
    finish: ClassVar[str] = "{s0} / {n}"


@dataclass(frozen=True)
class Minimum(Aggregate):
    start: ClassVar[tuple[str, ...]] = ("{s0} = {v}",)
    add: ClassVar[tuple[str, ...]] = ("if {v} < {s0}: {s0} = {v}",)
    merge: ClassVar[tuple[str, ...] | None] = ("{s0} = {b0} if {b0} < {a0} else {a0}",)
    sliding: ClassVar[Sliding] = "monotone"


@dataclass(frozen=True)
class Maximum(Aggregate):
    start: ClassVar[tuple[str, ...]] = ("{s0} = {v}",)
    add: ClassVar[tuple[str, ...]] = ("if {v} > {s0}: {s0} = {v}",)
    merge: ClassVar[tuple[str, ...] | None] = ("{s0} = {b0} if {b0} > {a0} else {a0}",)
    sliding: ClassVar[Sliding] = "monotone"


@dataclass(frozen=True)
class StandardDeviation(Aggregate):
    """Mean and sum of squared distances from it, by Welford's update and Chan's merge: no cancellation."""

    sample: bool = True

    slots: ClassVar[int] = 2
    start: ClassVar[tuple[str, ...]] = ("{s0} = {v}", "{s1} = 0")
    add: ClassVar[tuple[str, ...]] = (
        "{d} = {v} - {s0}",
        "{s0} = {s0} + {d} / {n}",
        "{s1} = {s1} + {d} * ({v} - {s0})",
    )
    merge: ClassVar[tuple[str, ...] | None] = (
        "{d} = {b0} - {a0}",
        "{s0} = {a0} + {d} * {nb} / {n}",
        "{s1} = {a1} + {b1} + {d} * {d} * {na} * {nb} / {n}",
    )

    @property
    def names(self) -> dict[str, Any]:
        return {"deviation": _sample_deviation if self.sample else _population_deviation}

    finish: ClassVar[str] = "{deviation}({s1}, {n})"


def _sample_deviation(squares: Any, count: int) -> float | None:
    return math.sqrt(squares / (count - 1)) if count > 1 else None


def _population_deviation(squares: Any, count: int) -> float:
    return math.sqrt(squares / count)


@dataclass(frozen=True)
class Collect(Aggregate):
    start: ClassVar[tuple[str, ...]] = ("{s0} = [{v}]",)
    add: ClassVar[tuple[str, ...]] = ("{s0}.append({v})",)
    sliding: ClassVar[Sliding] = "held"

    def of_values(self, values: Sequence[Any]) -> Any:
        return list(values)


@dataclass(frozen=True)
class First(Aggregate):
    """Keeps the number of arrival beside the value: parts of a window are put together in order of time."""

    slots: ClassVar[int] = 2
    start: ClassVar[tuple[str, ...]] = ("{s0} = {v}", "{s1} = {q}")
    merge: ClassVar[tuple[str, ...] | None] = ("{s0}, {s1} = ({a0}, {a1}) if {a1} < {b1} else ({b0}, {b1})",)
    sliding: ClassVar[Sliding] = "held"

    def of_values(self, values: Sequence[Any]) -> Any:
        return values[0]


@dataclass(frozen=True)
class Last(Aggregate):
    slots: ClassVar[int] = 2
    start: ClassVar[tuple[str, ...]] = ("{s0} = {v}", "{s1} = {q}")
    add: ClassVar[tuple[str, ...]] = ("{s0} = {v}", "{s1} = {q}")
    merge: ClassVar[tuple[str, ...] | None] = ("{s0}, {s1} = ({a0}, {a1}) if {a1} > {b1} else ({b0}, {b1})",)
    sliding: ClassVar[Sliding] = "held"

    def of_values(self, values: Sequence[Any]) -> Any:
        return values[-1]


@dataclass(frozen=True)
class CountDistinct(Aggregate):
    start: ClassVar[tuple[str, ...]] = ("{s0} = {{{v}}}",)
    add: ClassVar[tuple[str, ...]] = ("{s0}.add({v})",)
    merge: ClassVar[tuple[str, ...] | None] = ("{s0} = {a0} | {b0}",)
    finish: ClassVar[str] = "len({s0})"
    sliding: ClassVar[Sliding] = "distinct"


@dataclass(frozen=True, eq=False)
class UserDefined(Aggregate):
    """An aggregate made by `aggregator`; it equals only itself, since first states 1 and 1.0 are equal but not same."""

    __eq__ = object.__eq__
    __hash__ = object.__hash__

    init: Any = None
    step: Any = None
    end: Callable[[Any], Any] | None = None
    combine: Callable[[Any, Any], Any] | None = None

    start: ClassVar[tuple[str, ...]] = ("{s0} = {step}({init}(), {v})",)
    add: ClassVar[tuple[str, ...]] = ("{s0} = {step}({s0}, {v})",)
    finish: ClassVar[str] = "{end}({s0})"

    @property
    def names(self) -> dict[str, Any]:
        init = self.init if callable(self.init) else _Copies(self.init)
        return {"init": init, "step": self.step, "end": self.end or _itself, "combine": self.combine}

    @property
    def merges(self) -> tuple[str, ...] | None:
        return None if self.combine is None else ("{s0} = {combine}({a0}, {b0})",)


class _Copies:
    """Makes a fresh copy of the first state for each window."""

    def __init__(self, init: Any) -> None:
        self.init = init

    def __call__(self) -> Any:
        return copy.deepcopy(self.init)


def _on(verb: str, on: Any, *, needed: bool = False) -> Any:
    if (on is None and not needed) or isinstance(on, str) or callable(on):
        return on
    raise FlowError(f"{verb}() at {user_location()} needs an attribute name or a function, not {on!r}")


def count() -> Aggregate:
    """The number of tuples.

    >>> count().of_values("abc")
    3
    """
    return Count()


def sum(on: Attribute | None = None) -> Aggregate:
    """The sum of attribute `on`.

    >>> sum().of_values([1, 2, 4])
    7
    """
    return Sum(_on("sum", on))


def mean(on: Attribute | None = None) -> Aggregate:
    """The arithmetic mean of attribute `on`.

    >>> mean().of_values([1, 2, 6])
    3.0
    """
    return Mean(_on("mean", on))


def min(on: Attribute | None = None) -> Aggregate:
    """The smallest value of attribute `on`; the first to come among equals."""
    return Minimum(_on("min", on))


def max(on: Attribute | None = None) -> Aggregate:
    """The largest value of attribute `on`; the first to come among equals."""
    return Maximum(_on("max", on))


def stddev(on: Attribute | None = None, sample: bool = True) -> Aggregate:
    """The standard deviation of attribute `on`: of a sample (None below two values), or of the whole population.

    >>> stddev().of_values([1, 3]), stddev(sample=False).of_values([1, 3]), stddev().of_values([1])
    (1.4142135623730951, 1.0, None)
    """
    return StandardDeviation(_on("stddev", on), sample)


def collect(on: Attribute | None = None) -> Aggregate:
    """A list of all values (or tuples), in order of arrival."""
    return Collect(_on("collect", on))


def first(on: Attribute | None = None) -> Aggregate:
    """The value (or tuple) that came first."""
    return First(_on("first", on))


def last(on: Attribute | None = None) -> Aggregate:
    """The value (or tuple) that came last."""
    return Last(_on("last", on))


def count_distinct(on: Attribute | None = None) -> Aggregate:
    """The number of different values of attribute `on`, which must be hashable.

    >>> count_distinct().of_values("abca")
    3
    """
    return CountDistinct(_on("count_distinct", on))


def aggregator(
    init: Any,
    add: Callable[[Any, Any], Any],
    finish: Callable[[Any], Any] | None = None,
    combine: Callable[[Any, Any], Any] | None = None,
    on: Attribute | None = None,
) -> Aggregate:
    """An aggregate of your own: `add(state, value)` gives the next state, `finish(state)` the result.

    `init` is the first state, copied for each window; a callable is called to make it. `combine(left, right)` puts the
    states of two neighbouring parts of a window together; with it, sliding windows and sessions are followed without
    going through their tuples again. It must be associative, and it sees event-time parts in order of time; without
    it, `add` sees all tuples in order of arrival. In windows that slide, `combine` and `finish` must leave the states
    they are given as they are.

    >>> longest = aggregator("", lambda best, word: word if len(word) > len(best) else best)
    >>> longest.of_values(["a", "ccc", "bb"])
    'ccc'
    """
    for word, function in (("add", add), ("finish", finish), ("combine", combine)):
        if not callable(function) and (function is not None or word == "add"):
            raise FlowError(f"aggregator({word}=) at {user_location()} needs a function, not {function!r}")
    return UserDefined(_on("aggregator", on), init, add, finish, combine)
