"""From an exception inside a generated function to an error that names the operator, the tuple and the user's line."""

from __future__ import annotations

from collections.abc import Mapping
from types import TracebackType
from typing import Any

from penstock.compiler.codegen import Origin, Program
from penstock.errors import (
    OperatorError,
    PenstockError,
    SinkError,
    SourceError,
    failing_user_line,
    shorten,
)
from penstock.graph.graph import Graph, Node
from penstock.tuples import attribute


def segment_error(error: Exception, programs: Mapping[str, Program], graph: Graph) -> OperatorError:
    """The error for an exception that left a generated function of these programs."""
    traceback = error.__traceback__
    found: tuple[Program, TracebackType] | None = None
    while traceback is not None:
        program = programs.get(traceback.tb_frame.f_code.co_filename)
        if program is not None:
            found = program, traceback
        traceback = traceback.tb_next
    if found is None:
        raise error  # not from generated code: a defect of Penstock, shown as it is
    program, frame = found
    origin = program.origin(frame.tb_lineno)
    if origin is None:
        raise error
    names = frame.tb_frame.f_locals
    item = names.get(origin.item)
    wrapped = operator_error(error, graph.nodes[origin.node], item=item, origin=origin, itself=frame.tb_next is None)
    wrapped.origin = names.get("origin")
    return wrapped


def operator_error(
    error: Exception,
    node: Node,
    *,
    item: Any = None,
    origin: Origin | None = None,
    itself: bool = False,
    doing: str = "",
) -> OperatorError:
    """The error for an exception raised by operator `node`; `itself`: by the generated line and nothing it called."""
    cls = SourceError if node.is_source else SinkError if node.is_sink else OperatorError
    shown = None
    if origin is not None:
        whole = origin.item == "chunk"
        shown = f"a list of {len(item)} tuples, the first {shorten(item[0])}" if whole and item else shorten(item)
    return cls(
        node.user_name,
        _reason(error, item, origin, itself),
        defined=node.location,
        failed=failing_user_line(error),
        item=shown,
        doing=doing,
    )


def _reason(error: Exception, item: Any, origin: Origin | None, itself: bool) -> str:
    if origin is not None and origin.attribute and isinstance(error, KeyError | AttributeError | TypeError):
        for name in origin.attribute.split(","):
            try:
                attribute(item, name)
            except AttributeError as missing:
                return str(missing)
            except Exception:  # the tuple's own __getattr__ fails: the first error says it better
                break
    if itself and isinstance(error, TypeError) and "unhashable" in str(error):
        return f"the key cannot be hashed: {error}; a key must be of a type that can be, such as str, int or tuple"
    if itself and origin is not None and origin.hint and isinstance(error, TypeError | ValueError):
        return f"{origin.hint} ({error})"
    if isinstance(error, PenstockError):
        return str(error)
    return f"{type(error).__name__}: {error}" if str(error) else type(error).__name__
