"""How a CSV row, a list of texts, becomes a dict or an object, with its fields converted.

The builder is a generated comprehension, `[{'host': v0, 'len': f1(v1)} for v0, v1 in rows]`. Measured on four fields:
235 ns a row, against 625 ns for `dict(zip(names, row))` and 405 ns for parsing the row itself.
"""

from __future__ import annotations

import inspect
import types
import typing
from collections.abc import Callable, Mapping
from functools import partial
from typing import Any

import msgspec

Rows = list[list[str]]
Convert = Callable[[str], Any]


def row_builder(wanted: Any, names: tuple[str, ...]) -> Callable[[Rows], list[Any]]:
    """A function from rows, each with one text for each of `names`, to tuples.

    `wanted` is None, a mapping from field to function, or a class. Raises ValueError if it does not fit the names.

    >>> row_builder({"len": int}, ("host", "len"))([["a", "3"]])
    [{'host': 'a', 'len': 3}]
    """
    if wanted is None:
        return _Builder(names, names, {}, None)
    if isinstance(wanted, Mapping):
        unknown = [name for name in wanted if name not in names]
        if unknown:
            raise ValueError(f"types= names {unknown}, but the fields are {list(names)}")
        converters: dict[str, Convert] = {
            name: parse_bool if given is bool else given for name, given in wanted.items()
        }
        return _Builder(names, names, converters, None)
    return _class_builder(wanted, names)


def _class_builder(cls: Any, names: tuple[str, ...]) -> Callable[[Rows], list[Any]]:
    hints = typing.get_type_hints(cls)
    missing = [name for name in hints if name not in names and _is_required(cls, name)]
    if missing:
        raise ValueError(f"{cls.__name__} needs {missing}, but the fields are {list(names)}")
    wanted = tuple(name for name in names if name in hints)
    return _Builder(names, wanted, {name: _converter(hints[name]) for name in wanted if hints[name] is not str}, cls)


def _is_required(cls: Any, name: str) -> bool:
    try:
        parameter = inspect.signature(cls).parameters.get(name)
    except (TypeError, ValueError):
        return False
    return parameter is not None and parameter.default is parameter.empty


class _Builder:
    """The generated comprehension, and a slower way to find out which field it failed on."""

    def __init__(
        self, names: tuple[str, ...], wanted: tuple[str, ...], converters: dict[str, Convert], cls: Any
    ) -> None:
        self._names = names
        self._converters = converters
        self._build = _generate(names, wanted, converters, cls)

    def __call__(self, rows: Rows) -> list[Any]:
        try:
            return self._build(rows)
        except Exception as error:
            if len(rows) == 1:
                self._explain(rows[0])
            raise ValueError(str(error)) from error

    def _explain(self, row: list[str]) -> None:
        for name, text in zip(self._names, row, strict=True):
            try:
                self._converters.get(name, str)(text)
            except Exception as error:
                raise ValueError(f"field {name!r}: {error}") from error


def _generate(
    names: tuple[str, ...], wanted: tuple[str, ...], converters: dict[str, Convert], cls: Any
) -> Callable[[Rows], list[Any]]:
    scope: dict[str, Any] = {"cls": cls}
    values = {}
    for index, name in enumerate(names):
        values[name] = f"v{index}"
        if name in converters:
            scope[f"f{index}"] = converters[name]
            values[name] = f"f{index}(v{index})"
    if cls is None:
        result = "{" + ", ".join(f"{name!r}: {values[name]}" for name in wanted) + "}"
    else:
        result = "cls(" + ", ".join(f"{name}={values[name]}" for name in wanted) + ")"
    unpacked = "".join(f"v{index}, " for index in range(len(names)))
    source = f"lambda rows: [{result} for {unpacked}in rows]"
    # The text holds nothing but our own names, string literals, and field names of the user's class.
    return typing.cast("Callable[[Rows], list[Any]]", eval(source, scope))


def _converter(hint: Any) -> Convert:
    if typing.get_origin(hint) in (typing.Union, types.UnionType) and type(None) in typing.get_args(hint):
        return partial(_optional, msgspec_type=hint)
    return _BUILTIN.get(hint) or partial(_convert, msgspec_type=hint)


def _convert(text: str, msgspec_type: Any) -> Any:
    return msgspec.convert(text, msgspec_type, strict=False)


def _optional(text: str, msgspec_type: Any) -> Any:
    return _convert(text, msgspec_type) if text else None


def parse_bool(text: str) -> bool:
    """The truth value a text stands for; `bool("false")` would be True.

    >>> parse_bool("No"), parse_bool("1")
    (False, True)
    """
    word = text.strip().lower()
    if word in ("true", "t", "yes", "y", "1", "on"):
        return True
    if word in ("false", "f", "no", "n", "0", "off"):
        return False
    raise ValueError(f"{text!r} is neither true nor false")


_BUILTIN: dict[Any, Convert] = {int: int, float: float, bool: parse_bool}
