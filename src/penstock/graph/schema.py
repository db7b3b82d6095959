"""Schemas: the attributes of a stream's tuples and their types, where somebody needs to know them."""

from __future__ import annotations

import dataclasses
import typing
from collections.abc import Mapping
from dataclasses import dataclass
from datetime import date, datetime
from decimal import Decimal
from typing import Any

from penstock.errors import FlowError, shorten, user_location
from penstock.tuples import attribute

# Python types as the SQL types of data frames.
_SQL = {
    bool: "boolean",
    int: "bigint",
    float: "double",
    str: "string",
    bytes: "binary",
    datetime: "timestamp",
    date: "date",
    Decimal: "decimal(38,18)",
}


@dataclass(frozen=True, slots=True)
class Schema:
    """Attribute names with their Python types, in order.

    >>> Schema.of({"host": str, "n": int}).ddl
    '`host` string, `n` bigint'
    >>> Schema.of({"host": str, "n": int}).row({"host": "a", "n": 3})
    ('a', 3)
    """

    fields: tuple[tuple[str, type], ...]

    @staticmethod
    def of(spec: Any) -> Schema:
        """The schema a user means: a dataclass, a NamedTuple, a TypedDict, or a dict of names and types."""
        if isinstance(spec, Schema):
            return spec
        hints = spec if isinstance(spec, Mapping) else _hints(spec)
        if not hints:
            raise FlowError(
                f"schema= at {user_location()} must be a dataclass, a NamedTuple, a TypedDict or a dict of types, "
                f"not {spec!r}"
            )
        return Schema(tuple((name, _plain(name, kind)) for name, kind in hints.items()))

    @property
    def ddl(self) -> str:
        """The schema in SQL."""
        return ", ".join(f"`{name}` {_SQL[kind]}" for name, kind in self.fields)

    def row(self, item: Any) -> tuple[Any, ...]:
        """The attributes of a tuple in order; raises `TypeError` where it does not match."""
        values = []
        for name, kind in self.fields:
            try:
                value = attribute(item, name)
            except AttributeError as error:
                raise TypeError(f"the tuple does not match the schema: {error}") from None
            values.append(_checked(name, kind, value))
        return tuple(values)


def _hints(spec: Any) -> dict[str, Any]:
    if isinstance(spec, type) and (dataclasses.is_dataclass(spec) or hasattr(spec, "__annotations__")):
        return typing.get_type_hints(spec)
    return {}


def _plain(name: str, kind: Any) -> type:
    """`int` of `int | None`: every attribute may be missing."""
    arguments = [argument for argument in typing.get_args(kind) if argument is not type(None)]
    found = arguments[0] if len(arguments) == 1 and typing.get_origin(kind) is not None else kind
    if found not in _SQL:
        known = ", ".join(sorted(kind.__name__ for kind in _SQL))
        raise FlowError(f"attribute {name!r} of the schema at {user_location()} has type {kind!r}; known are {known}")
    return typing.cast("type", found)


def _checked(name: str, kind: type, value: Any) -> Any:
    if value is None or (isinstance(value, kind) and not (kind is int and isinstance(value, bool))):
        return value
    if kind is float and isinstance(value, int) and not isinstance(value, bool):
        return float(value)
    raise TypeError(f"attribute {name!r} must be {kind.__name__} by the schema, not {shorten(value, 60)}")
