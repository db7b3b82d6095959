"""What travels on streams: tuples, the chunks that carry them, punctuation, and access to attributes by name.

A tuple is any Python object. A chunk is a plain `list` of tuples handed over at once; nobody changes a chunk after
handing it over, so one chunk may be given to several readers. Punctuation marks travel between chunks, in order.
"""

from __future__ import annotations

import enum
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any

# The most tuples a chunk carries. Handing over a chunk costs about 10 µs; at 1,024 that is 2 % of the cheapest programs
# (at 512 it was 5 %), and it still bounds what a segment holds at once.
CHUNK = 1024


class Punctuation(enum.Enum):
    """An in-band marker of a stream (language runtime §5.2)."""

    WINDOW = "window"  # a window boundary that the stream itself marks
    FINAL = "final"  # nothing comes after this on the port it arrives at

    def __repr__(self) -> str:
        return f"Punctuation.{self.name}"


@dataclass(frozen=True, slots=True)
class Numbered:
    """An in-band marker inside a replicated region: everything of piece `number` has passed."""

    number: int


@dataclass(frozen=True, slots=True)
class BrokenOff(Numbered):
    """An in-band marker inside a region split by key: the channel failed inside this piece and sends no more.

    `number` is the place in the piece of the tuple that failed. What came before it, in all channels, is still good.
    """


@dataclass(frozen=True, slots=True)
class DeadLetter:
    """A tuple or a piece of input that could not be processed, and why.

    `item` is the tuple (or the raw text of the input), `operator` the name of the operator that refused it, `reason`
    the error's text, `where` the file and line of the input where it is known.
    """

    item: Any
    operator: str
    reason: str
    where: str = ""


_MAPPING_CLASSES: dict[type, bool] = {dict: True}


def _is_mapping(cls: type) -> bool:
    known = _MAPPING_CLASSES.get(cls)
    if known is None:
        known = _MAPPING_CLASSES[cls] = issubclass(cls, Mapping)  # two threads store the same
    return known


def attribute(item: Any, name: str) -> Any:
    """The attribute `name` of a tuple: a mapping's entry or an object's attribute.

    >>> attribute({"host": "a"}, "host")
    'a'
    >>> attribute(3 + 4j, "imag")
    4.0
    """
    if _is_mapping(item.__class__):
        try:
            return item[name]
        except KeyError:
            raise AttributeError(_missing(item, name)) from None
    try:
        return getattr(item, name)
    except AttributeError:
        raise AttributeError(_missing(item, name)) from None


def _missing(item: Any, name: str) -> str:
    if _is_mapping(item.__class__):
        have = ", ".join(repr(k) for k in list(item)[:12]) or "nothing"
    else:
        names = getattr(item, "_fields", None) or getattr(item, "__slots__", None) or getattr(item, "__dict__", None)
        have = ", ".join(repr(n) for n in list(names or ())[:12]) or f"a value of type {type(item).__name__}"
    return f"the tuple has no attribute {name!r}; it has {have}"


def attribute_getter(spec: str | Callable[[Any], Any]) -> Callable[[Any], Any]:
    """A function that reads `spec`, an attribute name or a function, from a tuple.

    >>> attribute_getter("len")({"len": 3})
    3
    >>> attribute_getter(abs)(-2)
    2
    """
    if callable(spec):
        return spec
    return _Getter(spec)


class _Getter:
    """Reads one attribute by name; a class and not a closure so that it can be pickled."""

    __slots__ = ("name",)

    def __init__(self, name: str) -> None:
        self.name = name

    def __call__(self, item: Any) -> Any:
        return item[self.name] if item.__class__ is dict and self.name in item else attribute(item, self.name)

    def __reduce__(self) -> tuple[object, ...]:
        return (_Getter, (self.name,))
