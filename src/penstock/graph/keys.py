"""Partitioning keys: which part of a tuple decides to which partition of the state it belongs."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass
from typing import Any

from penstock.errors import FlowError, user_location
from penstock.tuples import attribute, attribute_getter

KeySpec = str | Sequence[str] | Callable[[Any], Any]


@dataclass(frozen=True, eq=False)
class Key:
    """A partitioning key: attribute names, or a function of the tuple.

    Keys by name can be compared, so that operators with overlapping names may share a parallel region. A key given by
    a function equals only itself (DESIGN §4).

    >>> Key.of("host").of_tuple({"host": "a", "port": 22})
    'a'
    >>> Key.of(["host", "port"]).of_tuple({"host": "a", "port": 22})
    ('a', 22)
    """

    names: tuple[str, ...] = ()
    function: Callable[[Any], Any] | None = None

    @staticmethod
    def of(*spec: KeySpec) -> Key:
        """The key the user wrote: one or more attribute names, a list of them, or one function."""
        if len(spec) == 1 and isinstance(spec[0], Key):
            return spec[0]
        if len(spec) == 1 and callable(spec[0]):
            return Key(function=spec[0])
        names: tuple[object, ...] = spec
        if len(spec) == 1 and isinstance(spec[0], Iterable) and not isinstance(spec[0], str):
            names = tuple(spec[0])
        if not names or not all(isinstance(name, str) for name in names):
            wrong = spec[0] if len(spec) == 1 else spec
            raise FlowError(f"a key is one function or one or more attribute names, not {wrong!r} ({user_location()})")
        return Key(names=tuple(str(name) for name in names))

    def __eq__(self, other: object) -> bool:
        return isinstance(other, Key) and self.names == other.names and self.function is other.function

    def __hash__(self) -> int:
        return hash((self.names, self.function))

    def __str__(self) -> str:
        if self.function is not None:
            return getattr(self.function, "__name__", type(self.function).__name__) + "()"
        return ", ".join(self.names)

    def getter(self) -> Callable[[Any], Any]:
        """The function that reads this key from a tuple."""
        if self.function is not None:
            return self.function
        if len(self.names) == 1:
            return attribute_getter(self.names[0])
        return self.of_tuple

    def of_tuple(self, item: Any) -> Any:
        """The key of one tuple."""
        if self.function is not None:
            return self.function(item)
        if len(self.names) == 1:
            return attribute(item, self.names[0])
        return tuple([attribute(item, name) for name in self.names])

    def columns(self, value: Any) -> dict[str, Any]:
        """The key as named attributes of an output tuple; a function's key is called "key"."""
        if self.function is not None:
            return {"key": value}
        if len(self.names) == 1:
            return {self.names[0]: value}
        return dict(zip(self.names, value, strict=True))
