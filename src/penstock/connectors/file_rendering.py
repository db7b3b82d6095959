"""How tuples become the text of a file: plain lines, CSV, JSON lines.

A renderer turns a chunk into bytes as a whole and raises if any tuple cannot be written; it then has changed nothing
of its own, so the sink can go through the chunk one by one.
"""

from __future__ import annotations

import csv
import dataclasses
import io
from collections.abc import Callable, Iterable, Mapping
from operator import attrgetter
from typing import Any, Protocol

import msgspec

Row = Callable[[Any], Iterable[Any]]


class Renderer(Protocol):
    """Makes the bytes of one file."""

    def render(self, tuples: list[Any]) -> bytes:
        """The bytes of a chunk; raises if a tuple does not fit."""
        ...


class LineRenderer:
    """A line is `str(tuple)`, as it is."""

    def __init__(self, encoding: str) -> None:
        self.encoding = encoding

    def render(self, tuples: list[Any]) -> bytes:
        return ("\n".join(map(str, tuples)) + "\n").encode(self.encoding) if tuples else b""


class JsonRenderer:
    """A line is the JSON of a tuple; mappings, dataclasses and NamedTuples are objects, NumPy values plain ones."""

    def __init__(self, encoding: str) -> None:
        self.encoding = encoding
        self._encode = msgspec.json.Encoder(enc_hook=_plain).encode_lines

    def render(self, tuples: list[Any]) -> bytes:
        if any(hasattr(cls, "_asdict") for cls in set(map(type, tuples))):
            tuples = [item._asdict() if hasattr(item, "_asdict") else item for item in tuples]
        data = self._encode(tuples)
        return data if self.encoding == "utf-8" else data.decode().encode(self.encoding)


def _plain(value: Any) -> Any:
    """What JSON has no word for, as something it has: NumPy scalars and arrays, other mappings."""
    if isinstance(value, Mapping):
        return dict(value)
    if hasattr(value, "tolist"):
        return value.tolist()
    raise TypeError(f"values of type {type(value).__name__} cannot be written as JSON")


class CsvRenderer:
    """A row has the fields of the first tuple: the keys of a mapping, or the fields of an object.

    Plain tuples and lists are rows as they are, without a header. `names` are those of a file that is appended to.
    """

    def __init__(self, encoding: str, names: tuple[str, ...] | None = None) -> None:
        self.encoding = encoding
        self.names = names  # None until the header is known
        self._header_there = names is not None

    def render(self, tuples: list[Any]) -> bytes:
        if not tuples:
            return b""
        names = self.names if self.names is not None else field_names(tuples[0])
        rows: list[Any] = [self._row(item, names) for item in tuples]
        if names and not self._header_there:
            rows.insert(0, names)
        data = _to_text(rows).encode(self.encoding)
        self.names, self._header_there = names, True
        return data

    def _row(self, item: Any, names: tuple[str, ...]) -> Iterable[Any]:
        if item.__class__ is dict and len(item) == len(names):
            try:
                return [item[name] for name in names]
            except KeyError:
                pass
        found = field_names(item)
        if set(found) != set(names) or (not names and isinstance(item, Mapping)):
            raise ValueError(f"its fields are {list(found)}, those of the file are {list(names)}")
        if not names:
            return item  # type: ignore[no-any-return]
        if isinstance(item, Mapping):
            return [item[name] for name in names]
        values = attrgetter(*names)(item)
        return values if len(names) > 1 else (values,)


def _to_text(rows: list[Any]) -> str:
    text = io.StringIO()
    csv.writer(text, lineterminator="\n").writerows(rows)
    if "\r" in text.getvalue():  # the writer quotes what is in its line end only, readers stop at any carriage return
        text = io.StringIO()
        csv.writer(text, lineterminator="\n", quoting=csv.QUOTE_ALL).writerows(rows)
    return text.getvalue()


def field_names(item: Any) -> tuple[str, ...]:
    """The names of a tuple's fields; none for a plain tuple or list.

    >>> field_names({"host": "a", "n": 1})
    ('host', 'n')
    """
    if isinstance(item, Mapping):
        return tuple(item)
    if dataclasses.is_dataclass(item):
        return tuple(field.name for field in dataclasses.fields(item))
    named = getattr(item, "_fields", None) or getattr(item, "__struct_fields__", None)
    if named:
        return tuple(named)
    if isinstance(item, tuple | list):
        return ()
    raise TypeError(f"a CSV row is made of a mapping, a dataclass, a NamedTuple or a tuple, not {type(item).__name__}")
