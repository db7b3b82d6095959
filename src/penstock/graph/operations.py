"""The frozen description of what each operator does: exactly what the user said, nothing about how it runs.

A description knows its number of ports and its kind. The logic behind each one lives in `penstock.operators`, in a
file of the same name.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any, ClassVar

from penstock.graph.operator import CoOperator, Kind, Operator, label_of

Function = Callable[..., Any]
Attribute = str | Function


@dataclass(frozen=True, eq=False, kw_only=True)
class Operation:
    """Base of all descriptions."""

    verb: ClassVar[str] = "operator"
    base_kind: ClassVar[Kind] = "stateless"  # on a stream without key
    keyed_kind: ClassVar[Kind | None] = None  # on a keyed stream, where that differs

    @property
    def inputs(self) -> int:
        return 1

    @property
    def outputs(self) -> int:
        return 1

    @property
    def control(self) -> frozenset[int]:
        """Input ports that may be fed from downstream; they change state and never produce output."""
        return frozenset()

    def kind(self, keyed: bool) -> Kind:
        return self.keyed_kind if keyed and self.keyed_kind is not None else self.base_kind

    @property
    def label(self) -> str:
        """The word a default name is made of."""
        function = getattr(self, "function", None)
        return (label_of(function) if function is not None else None) or self.verb


@dataclass(frozen=True, eq=False, kw_only=True)
class Read(Operation):
    """A source; output 1 carries what it could not parse, where the user asked for that."""

    verb: ClassVar[str] = "source"
    base_kind: ClassVar[Kind] = "stateful"
    source: Any

    @property
    def inputs(self) -> int:
        return 0

    @property
    def outputs(self) -> int:
        return 2


@dataclass(frozen=True, eq=False, kw_only=True)
class Write(Operation):
    """A sink: a `Sink`, a function called per tuple, or a list."""

    verb: ClassVar[str] = "sink"
    base_kind: ClassVar[Kind] = "stateful"
    target: Any

    @property
    def outputs(self) -> int:
        return 0


@dataclass(frozen=True, eq=False, kw_only=True)
class Tolerant(Operation):
    """A per-tuple function that may send what it fails on to output 1 instead of stopping the job."""

    function: Function
    on_error: str = "raise"  # or "skip", or "stream"

    @property
    def outputs(self) -> int:
        return 2 if self.on_error == "stream" else 1

    @property
    def dead_port(self) -> int:
        return self.outputs - 1


@dataclass(frozen=True, eq=False, kw_only=True)
class Map(Tolerant):
    """One tuple out for each tuple in."""

    verb: ClassVar[str] = "map"


@dataclass(frozen=True, eq=False, kw_only=True)
class FlatMap(Tolerant):
    """Any number of tuples out for each tuple in."""

    verb: ClassVar[str] = "flat_map"


@dataclass(frozen=True, eq=False, kw_only=True)
class Filter(Tolerant):
    """Lets matching tuples through; with `split`, output 1 carries the rest."""

    verb: ClassVar[str] = "filter"
    split: bool = False

    @property
    def outputs(self) -> int:
        return 1 + self.split + (self.on_error == "stream")


@dataclass(frozen=True, eq=False, kw_only=True)
class MapBatch(Operation):
    """A function from a list of tuples to a list of results."""

    verb: ClassVar[str] = "map_batch"
    function: Function


@dataclass(frozen=True, eq=False, kw_only=True)
class Scan(Operation):
    """`(state, tuple) -> (state, output)`, over the whole stream or per key."""

    verb: ClassVar[str] = "scan"
    base_kind: ClassVar[Kind] = "stateful"
    keyed_kind: ClassVar[Kind | None] = "partitioned"
    function: Function
    init: Any


@dataclass(frozen=True, eq=False, kw_only=True)
class Process(Operation):
    """An operator the user wrote."""

    verb: ClassVar[str] = "process"
    operator: Operator | CoOperator

    @property
    def inputs(self) -> int:
        return self.operator.inputs

    @property
    def outputs(self) -> int:
        return self.operator.outputs

    @property
    def control(self) -> frozenset[int]:
        return frozenset(self.operator.control)

    @property
    def own_threads(self) -> bool:
        """The operator has threads of its own."""
        return isinstance(self.operator, Operator) and self.operator.own_threads

    def kind(self, keyed: bool) -> Kind:
        if self.own_threads:
            return "stateful"  # one copy: its threads know nothing of keys
        return self.operator.kind or ("partitioned" if keyed else "stateful")

    @property
    def label(self) -> str:
        return type(self.operator).__name__


@dataclass(frozen=True, eq=False, kw_only=True)
class Union(Operation):
    """Several streams as one; they interleave freely, each keeping its own order."""

    verb: ClassVar[str] = "union"


@dataclass(frozen=True, eq=False, kw_only=True)
class Feedback(Operation):
    """The place where a stream defined later comes back, into control ports only."""

    verb: ClassVar[str] = "feedback"


@dataclass(frozen=True, eq=False, kw_only=True)
class Split(Operation):
    """Sends each tuple to the output whose index the function gives; a negative index drops it."""

    verb: ClassVar[str] = "split"
    function: Function
    ways: int

    @property
    def outputs(self) -> int:
        return self.ways


@dataclass(frozen=True, eq=False, kw_only=True)
class Windowed(Operation):
    """An operator on a window; output 1 carries late tuples."""

    base_kind: ClassVar[Kind] = "stateful"
    keyed_kind: ClassVar[Kind | None] = "partitioned"
    window: Any

    @property
    def outputs(self) -> int:
        return 2

    def kind(self, keyed: bool) -> Kind:
        return "stateful" if getattr(self.window, "watermark", "key") == "stream" else super().kind(keyed)


@dataclass(frozen=True, eq=False, kw_only=True)
class Aggregate(Windowed):
    """One dict of aggregate results for each firing of a window."""

    verb: ClassVar[str] = "aggregate"
    aggregates: tuple[tuple[str, Any], ...]


@dataclass(frozen=True, eq=False, kw_only=True)
class Apply(Windowed):
    """One call of a function with all tuples of the window for each firing."""

    verb: ClassVar[str] = "apply"
    function: Function


@dataclass(frozen=True, eq=False, kw_only=True)
class Join(Operation):
    """Pairs each arriving tuple with the other side's current window."""

    verb: ClassVar[str] = "join"
    base_kind: ClassVar[Kind] = "stateful"
    keyed_kind: ClassVar[Kind | None] = "partitioned"
    window: Any
    how: str = "inner"
    where: Function | None = None

    @property
    def inputs(self) -> int:
        return 2


@dataclass(frozen=True, eq=False, kw_only=True)
class Enrich(Operation):
    """Joins each tuple of input 0 with the latest of its key on input 1; `waits` until that has ended, if asked."""

    verb: ClassVar[str] = "enrich"
    base_kind: ClassVar[Kind] = "partitioned"
    function: Function
    waits: bool = False

    def kind(self, keyed: bool) -> Kind:
        return "stateful" if self.waits else self.base_kind  # what is held is let go in the order of the whole stream

    @property
    def inputs(self) -> int:
        return 2

    @property
    def label(self) -> str:
        return self.verb


@dataclass(frozen=True, eq=False, kw_only=True)
class Dedup(Operation):
    """Drops tuples whose key was let through not long ago, in time or in number of tuples."""

    verb: ClassVar[str] = "dedup"
    time: float | None = None
    count: int | None = None
    on: Attribute | None = None

    def kind(self, keyed: bool) -> Kind:
        return "partitioned" if self.count is None else "stateful"


@dataclass(frozen=True, eq=False, kw_only=True)
class Sort(Operation):
    """Orders tuples within a window."""

    verb: ClassVar[str] = "sort"
    base_kind: ClassVar[Kind] = "stateful"
    keyed_kind: ClassVar[Kind | None] = "partitioned"
    by: Attribute
    window: Any
    reverse: bool = False


@dataclass(frozen=True, eq=False, kw_only=True)
class _Meeting(Operation):
    """Takes one tuple of each input at a time."""

    base_kind: ClassVar[Kind] = "stateful"
    keyed_kind: ClassVar[Kind | None] = "partitioned"
    ways: int

    @property
    def inputs(self) -> int:
        return self.ways


@dataclass(frozen=True, eq=False, kw_only=True)
class Barrier(_Meeting):
    """A tuple made of one tuple from each input."""

    verb: ClassVar[str] = "barrier"


@dataclass(frozen=True, eq=False, kw_only=True)
class Pair(_Meeting):
    """One tuple from each input in turn, kept as they are."""

    verb: ClassVar[str] = "pair"


@dataclass(frozen=True, eq=False, kw_only=True)
class Punctuate(Operation):
    """Puts a window punctuation after (or before) the tuples a function chooses."""

    verb: ClassVar[str] = "punctuate"
    function: Function
    before: bool = False


@dataclass(frozen=True, eq=False, kw_only=True)
class Delay(Operation):
    """Lets each tuple wait a fixed time."""

    verb: ClassVar[str] = "delay"
    base_kind: ClassVar[Kind] = "stateful"
    seconds: float


@dataclass(frozen=True, eq=False, kw_only=True)
class Throttle(Operation):
    """Lets at most `rate` tuples a second through; what comes faster waits."""

    verb: ClassVar[str] = "throttle"
    base_kind: ClassVar[Kind] = "stateful"
    rate: float


@dataclass(frozen=True, eq=False, kw_only=True)
class _Steered(Operation):
    """An operator whose second input, a control port, tells it what to do with the first.

    Gate and switch may release tuples they hold when the control port says so. That cannot close a cycle of full
    buffers: a control port always accepts, and what comes back to a gate is bounded by its limit.
    """

    base_kind: ClassVar[Kind] = "stateful"

    @property
    def inputs(self) -> int:
        return 2

    @property
    def control(self) -> frozenset[int]:
        return frozenset({1})


@dataclass(frozen=True, eq=False, kw_only=True)
class Gate(_Steered):
    """At most `limit` tuples pass that input 1 has not acknowledged; the others are held."""

    verb: ClassVar[str] = "gate"
    limit: int
    acknowledges: Function | None = None


@dataclass(frozen=True, eq=False, kw_only=True)
class Switch(_Steered):
    """Passes tuples while on and holds them while off; input 1 turns it on and off."""

    verb: ClassVar[str] = "switch"
    initially: bool
    status: Function | None = None


@dataclass(frozen=True, eq=False, kw_only=True)
class DynamicFilter(_Steered):
    """Passes tuples whose value is in a set that input 1 adds to and removes from."""

    verb: ClassVar[str] = "dynamic_filter"
    by: Attribute
    update: Function | None = None
    initial: tuple[Any, ...] = ()


# What the compiler puts around replicated regions; users never make these (compiler.fission).


@dataclass(frozen=True, eq=False, kw_only=True)
class Deal(Operation):
    """Deals a stream to the channels of a region: by key, or piece by piece in turn."""

    verb: ClassVar[str] = "deal"
    base_kind: ClassVar[Kind] = "stateful"
    width: int
    key: Any = None  # a Key, or None: in turn

    @property
    def outputs(self) -> int:
        return self.width


@dataclass(frozen=True, eq=False, kw_only=True)
class Gather(Operation):
    """Puts what the channels of a region answer back into the order of the stream that was dealt."""

    verb: ClassVar[str] = "gather"
    base_kind: ClassVar[Kind] = "stateful"
    width: int
    keyed: bool

    @property
    def inputs(self) -> int:
        return self.width
