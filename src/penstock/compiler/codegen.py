"""Turns a segment into the source text of one Python function over a chunk, and that into a function (DESIGN §5).

The code of a tuple is nested `if`s and `for`s with the user's functions and the operators' state bound as locals; there
is no dispatch per operator and no call but the user's own. Two variants are made of each entry: the plain one, and an
instrumented one that counts and times every operator; the profiler sends one chunk in many through the second.

Where the order of a stream must be restored after channels have worked on it in parallel, a *tracked* variant carries
the origin of each tuple along: `origins` runs beside `chunk`, and every tuple sent is sent with the origin of the
tuple that caused it.

Errors cost nothing until they happen: each line remembers which operator wrote it and in which variable that operator's
tuple is, so the traceback of an exception leads to operator and tuple (`Program.origin`).
"""

from __future__ import annotations

import builtins
import itertools
import linecache
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from functools import lru_cache
from types import CodeType, FunctionType
from typing import Any, NamedTuple

from penstock.compiler.segments import SegmentPlan
from penstock.graph.graph import Graph, Output
from penstock.operators.base import Logic
from penstock.operators.union import UnionLogic
from penstock.tuples import attribute_getter

# A list that a flat_map or a join fills is handed on when it gets this long, so memory stays bounded.
OVERFLOW = 4096


class Origin(NamedTuple):
    """Where a generated line comes from: the operator, the variable of its tuple, and what could be wrong there."""

    node: int
    item: str
    attribute: str = ""
    hint: str = ""


@dataclass(frozen=True)
class Program:
    """The text of one generated function, what its names stand for, and where its lines come from."""

    name: str
    filename: str
    text: str
    bound: dict[str, Any]
    origins: tuple[Origin | None, ...]

    def origin(self, line: int) -> Origin | None:
        """The origin of line `line` (from 1)."""
        return self.origins[line - 1] if 0 < line <= len(self.origins) else None

    def function(self) -> Callable[..., None]:
        """Compile the text. Python's own tracebacks will show the generated lines."""
        code = _in_file(_compiled(self.text.removeprefix(f"def {self.name}")), self.filename)
        function = FunctionType(code.replace(co_name=self.name, co_qualname=self.name), _GLOBALS, self.name)
        function.__kwdefaults__ = self.bound
        linecache.cache[self.filename] = (len(self.text), None, self.text.splitlines(True), self.filename)
        return function


# Generated code looks up nothing but builtins outside itself: all else is bound as a default of its arguments.
_GLOBALS = {"__builtins__": builtins}


@lru_cache(maxsize=512)
def _compiled(text: str) -> CodeType:
    """The code of a function whose text begins after its name.

    Channels of a region, and operators alike that have segments of their own, differ in names and bound values alone.
    Compiling is most of what a segment costs, so it is done once for all of them.
    """
    module = compile(f"def segment{text}", "<penstock>", "exec", dont_inherit=True)
    return next(constant for constant in module.co_consts if isinstance(constant, CodeType))


def _in_file(code: CodeType, filename: str) -> CodeType:
    """The same code, and what is defined inside it, as if compiled from `filename`."""
    inside = [_in_file(found, filename) if isinstance(found, CodeType) else found for found in code.co_consts]
    return code.replace(co_filename=filename, co_consts=tuple(inside))


@dataclass(frozen=True, slots=True)
class OutletNames:
    """What generated code does with an output port that leaves the segment."""

    items: list[Any]
    flush: Callable[[], None]
    mark: Callable[[], None]
    origins: list[int] | None = None  # beside `items`, in the tracked variant


@dataclass(frozen=True, slots=True)
class Probes:
    """Where the instrumented variant writes; indexed by the operator's position in the segment."""

    seconds: list[float]
    received: list[int]
    sent: list[int]
    clock: Callable[[], float]


def write_program(
    graph: Graph,
    plan: SegmentPlan,
    logics: dict[int, Logic],
    outlets: dict[Output, OutletNames],
    port: int,
    probes: Probes | None = None,
    flush_all: Callable[[], None] | None = None,
    tracked: bool = False,
) -> Program:
    """The function that takes a chunk arriving at input `port` of the segment's root."""
    writer = SegmentWriter(graph, plan, logics, outlets, probes, flush_all, tracked)
    writer.write_entry(port)
    variant = "profile" if probes is not None else "segment"
    name = f"{variant}_{plan.index}" + (f"_input_{port}" if port else "")
    return writer.program(name, f"<penstock {graph.name} {name}>")


class SegmentWriter:
    """The compiler's side of `operators.base.Writer`."""

    def __init__(
        self,
        graph: Graph,
        plan: SegmentPlan,
        logics: dict[int, Logic],
        outlets: dict[Output, OutletNames],
        probes: Probes | None,
        flush_all: Callable[[], None] | None,
        tracked: bool,
    ) -> None:
        self._tracked = tracked
        self._graph = graph
        self._plan = plan
        self._logics = logics
        self._outlets = outlets
        self._probes = probes
        self._flush_all = flush_all
        self._inside = frozenset(plan.nodes)
        self._position = {node: position for position, node in enumerate(plan.nodes)}
        self._lines: list[str] = []
        self._origins: list[Origin | None] = []
        self._bound: dict[str, Any] = {}
        self._names: dict[int, str] = {}
        self._counts: dict[str, int] = {}
        self._indent = 1
        self._loops = 0
        self._dicts: dict[str, str] = {}  # by item: the variable that says, here and in inner blocks, if it is a dict
        self._node = plan.root
        self._item = "chunk"
        self.may_continue = False

    # ------------------------------------------------------------------------------------- what operators call

    def line(self, text: str, *, attribute: str = "", hint: str = "") -> None:
        self._lines.append("    " * self._indent + text)
        self._origins.append(Origin(self._node, self._item, attribute, hint))

    @contextmanager
    def block(self, header: str) -> Iterator[None]:
        self.line(header)
        self._indent += 1
        before, outer = len(self._lines), self._dicts
        self._dicts = dict(outer)
        yield
        if len(self._lines) == before:
            self.line("pass")
        self._indent -= 1
        self._dicts = outer

    @contextmanager
    def loop(self, header: str) -> Iterator[None]:
        outer, self.may_continue = self.may_continue, True
        self._loops += 1
        with self.block(header):
            yield
            if self._probes is not None:
                self._switch()  # what the iterator does next is this operator's time again
        self._loops -= 1
        self.may_continue = outer

    def bind(self, value: Any, hint: str) -> str:
        known = self._names.get(id(value))
        if known is None:
            known = self._names[id(value)] = self._fresh(hint)
            self._bound[known] = value  # also keeps `value` alive, so that its id stays its own
        return known

    def variable(self, hint: str) -> str:
        return self._fresh(hint)

    def attribute(self, item: str, spec: str | Callable[[Any], Any]) -> str:
        getter = self.bind(_getter(spec), "get_" + spec if isinstance(spec, str) and spec.isidentifier() else "get")
        if callable(spec):
            return f"{getter}({item})"
        is_dict = self._dicts.get(item)
        if is_dict is None:
            is_dict = self._dicts[item] = self._fresh("is_dict")
            self.line(f"{is_dict} = {item}.__class__ is dict")
        return f"({item}[{spec!r}] if {is_dict} else {getter}({item}))"

    def wanted(self, port: int) -> bool:
        return bool(self._graph.readers(self._node, port))

    def emit(self, port: int, item: str, *, last: bool = True) -> None:
        node, tail = self._node, self.may_continue and last
        outlet = self._outlets.get(Output(node, port))
        inline = [reader.node for reader in self._graph.readers(node, port) if reader.node in self._inside]
        if self._probes is not None:
            self.line(f"{self.bind(self._probes.sent, 'sent')}[{self._position[node]}] += 1")
        if outlet is not None:
            self._append(outlet, item)
        for reader in inline:
            self.may_continue = tail and reader is inline[-1] and self._probes is None
            self._write_operator(reader, item, 0)
            self._node = node
        self.may_continue = tail if last else self.may_continue

    def emit_all(self, port: int, items: str) -> None:
        if not self.wanted(port):
            return
        outlet = self._outlets.get(Output(self._node, port))
        inline = any(reader.node in self._inside for reader in self._graph.readers(self._node, port))
        with self.block(f"if {items}:"):
            if inline or outlet is None:
                out = self._fresh("t")
                with self.loop(f"for {out} in {items}:"):
                    self.emit(port, out)
                return
            if self._probes is not None:
                sent = self.bind(self._probes.sent, "sent")
                self.line(f"{sent}[{self._position[self._node]}] += len({items})")
            self.line(f"{self.bind(outlet.items.extend, 'send_all')}({items})")
            if outlet.origins is not None:
                repeat = self.bind(itertools.repeat, "repeat")
                self.line(f"{self.bind(outlet.origins.extend, 'send_origins')}({repeat}(origin, len({items})))")
            self._flush_if_long(outlet)

    def emit_to_one(self, index: str, outputs: int, item: str) -> str | None:
        node = self._node
        readers = [reader for port in range(outputs) for reader in self._graph.readers(node, port)]
        if self._tracked or self._loops > 1 or any(reader.node in self._inside for reader in readers):
            return None
        outlets = [self._outlets.get(Output(node, port)) for port in range(outputs)]
        sends = {port: outlet is not None and outlet.items.append for port, outlet in enumerate(outlets)}
        send = self._fresh("send")
        self.line(f"{send} = {self.bind(sends.get, 'send_to')}({index})")
        with self.block(f"if {send}:"):
            if self._probes is not None:
                self._sent("1")
            self.line(f"{send}({item})")
        return f"{send} is None"

    def mark(self, port: int) -> None:
        outlet = self._outlets.get(Output(self._node, port))
        self.line("pass" if outlet is None else f"{self.bind(outlet.mark, 'mark')}()")

    def flush(self) -> None:
        if self._flush_all is not None:
            self.line(f"{self.bind(self._flush_all, 'flush_all')}()")

    # ------------------------------------------------------------------------------------------------ the whole

    def write_entry(self, port: int) -> None:
        """The body of the function for chunks that arrive at input `port` of the root."""
        root = self._plan.root
        logic = self._logics[root]
        if self._probes is not None:
            self.line(f"last = {self.bind(self._probes.clock, 'clock')}()")
            self.line(f"current = {self._position[root]}")
        source = "chunk"
        if logic.whole_chunk:
            if self._probes is not None:
                self._received("len(chunk)")
            source = "results"
            if self._tracked:
                self.line(f"results, origins = {self.bind(logic.on_tracked, 'on_tracked')}(chunk, origins)")
            else:
                self.line(f"results = {self.bind(logic.on_chunk, 'on_chunk')}(chunk)")
        if not (logic.whole_chunk and not self.wanted(0)):
            self._write_root(logic, source, port)
        if self._probes is not None:
            self.line(f"now = {self.bind(self._probes.clock, 'clock')}()")
            self.line(f"{self.bind(self._probes.seconds, 'seconds')}[current] += now - last")

    def _write_root(self, logic: Logic, source: str, port: int) -> None:
        root = self._plan.root
        outlet = self._outlets.get(Output(root, 0))
        passes_on = logic.whole_chunk or isinstance(logic, UnionLogic)
        inline = any(reader.node in self._inside for reader in self._graph.readers(root, 0))
        if passes_on and not inline:
            if outlet is not None:
                if self._probes is not None:
                    self._received("0" if logic.whole_chunk else f"len({source})")
                    self._sent(f"len({source})")
                self.line(f"{self.bind(outlet.items.extend, 'send_all')}({source})")
                if outlet.origins is not None:
                    self.line(f"{self.bind(outlet.origins.extend, 'send_origins')}(origins)")
            return
        with self.loop(f"for t, origin in zip({source}, origins):" if self._tracked else f"for t in {source}:"):
            if logic.whole_chunk:
                self.emit(0, "t")
            else:
                self._write_operator(root, "t", port)

    def _write_operator(self, node: int, item: str, port: int) -> None:
        outer = self._node, self._item
        self._node, self._item = node, item
        if self._probes is not None:
            self._switch()
            self._received("1")
        self._logics[node].write(self, item, port)
        self._node, self._item = outer

    def _append(self, outlet: OutletNames, item: str) -> None:
        self.line(f"{self.bind(outlet.items, 'outgoing')}.append({item})")  # quicker than calling a bound method
        if outlet.origins is not None:
            self.line(f"{self.bind(outlet.origins.append, 'send_origin')}(origin)")
        if self._loops > 1:
            self._flush_if_long(outlet)

    def _flush_if_long(self, outlet: OutletNames) -> None:
        items = self.bind(outlet.items, "outgoing")
        self.line(f"if len({items}) >= {OVERFLOW}: {self.bind(outlet.flush, 'flush')}()")

    def _switch(self) -> None:
        """Charge the time since the last switch to the operator that had it, and start on the current one."""
        self.line(f"now = {self.bind(self._require_probes().clock, 'clock')}()")
        self.line(f"{self.bind(self._require_probes().seconds, 'seconds')}[current] += now - last")
        self.line(f"last = now; current = {self._position[self._node]}")

    def _received(self, count: str) -> None:
        received = self.bind(self._require_probes().received, "received")
        self.line(f"{received}[{self._position[self._node]}] += {count}")

    def _sent(self, count: str) -> None:
        self.line(f"{self.bind(self._require_probes().sent, 'sent')}[{self._position[self._node]}] += {count}")

    def _require_probes(self) -> Probes:
        assert self._probes is not None
        return self._probes

    def _fresh(self, hint: str) -> str:
        count = self._counts[hint] = self._counts.get(hint, 0) + 1
        return f"{hint}_{count}"

    def program(self, name: str, filename: str) -> Program:
        defaults = "".join(f", {bound}={bound}" for bound in self._bound)
        arguments = "chunk, origins" if self._tracked else "chunk"
        head = f"def {name}({arguments}{', *' if defaults else ''}{defaults}):"
        body = self._lines or ["    pass"]
        return Program(name, filename, "\n".join([head, *body, ""]), self._bound, (None, *self._origins))


_GETTERS: dict[str, Callable[[Any], Any]] = {}


def _getter(spec: str | Callable[[Any], Any]) -> Callable[[Any], Any]:
    if callable(spec):
        return spec
    return _GETTERS.setdefault(spec, attribute_getter(spec))
