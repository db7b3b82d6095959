"""What travels between stages: rows of (channel, dest, payload), and the channel a key belongs to.

A row carries many tuples: `payload` is a pickled pair of origins and tuples. Spark thus moves a few large values, and
Python pays one pickle per chunk instead of one conversion per tuple.

`dest` names an input port of the program (`port_dest`) or one of the special destinations. An origin is a number that
gives a tuple's place in the order of the batch: stages work off what they get by rising origins, and sinks deliver so.
"""

from __future__ import annotations

import pickle
import zlib
from array import array
from collections.abc import Sequence
from datetime import date, datetime, time
from enum import Enum
from functools import partial
from numbers import Number
from typing import Any
from uuid import UUID

from penstock.graph.graph import Target

SCHEMA = "channel int, dest int, payload binary"
FAILED, FINAL, REPORT = -1, -2, -3
_PORTS = 64  # input ports per operator that a destination can tell apart
# Above every origin a tuple can have; what operators release at the end of the stream comes last.
LAST_ORIGIN = 1 << 62
# The first origin of a partition: 2^40 tuples fit between two partitions.
PARTITION_SHIFT = 40
# Room between two origins for a level that may send many tuples for one.
PROLIFIC_SHIFT = 32


def port_dest(target: Target) -> int:
    """The destination number of an input port."""
    if target.port >= _PORTS:
        raise ValueError(f"an operator on Spark has at most {_PORTS} inputs")
    return target.node * _PORTS + target.port


def dest_port(dest: int) -> Target:
    """The input port behind a destination number."""
    return Target(*divmod(dest, _PORTS))


def encode(origins: Sequence[int], tuples: list[Any]) -> bytes:
    """Origins and tuples as a payload."""
    try:
        packed: Any = array("q", origins)
    except OverflowError:  # several prolific levels: origins outgrow 64 bits
        packed = list(origins)
    named = _named_class(tuples)
    return dumps((packed, named, tuples if named is None else list(map(tuple, tuples))))


def decode(payload: bytes) -> tuple[Sequence[int], list[Any]]:
    """The origins and tuples of a payload."""
    origins, named, tuples = pickle.loads(payload)
    return origins, tuples if named is None else list(map(partial(tuple.__new__, named), tuples))


def _named_class(tuples: list[Any]) -> type | None:
    """The class of all `tuples` if it is a plain NamedTuple: bare tuples pickle several times as fast."""
    kinds = set(map(type, tuples))
    if len(kinds) != 1:
        return None
    (kind,) = kinds
    plain = kind.__bases__ == (tuple,) and hasattr(kind, "_fields")
    return kind if plain and not vars(kind).keys() & {"__reduce__", "__reduce_ex__", "__getstate__"} else None


def dumps(value: Any) -> bytes:
    """Pickle fast, and by value only where that must be: for classes defined in the user's main program."""
    try:
        return pickle.dumps(value, pickle.HIGHEST_PROTOCOL)
    except (pickle.PicklingError, AttributeError, TypeError):
        from pyspark import cloudpickle

        return cloudpickle.dumps(value)  # type: ignore[no-any-return]


class ChannelOf(dict[Any, int]):
    """Which of `channels` channels a key belongs to: the same on every worker, and the same for keys that are equal."""

    _MOST = 200_000  # keys remembered before starting over, so that memory stays bounded

    def __init__(self, channels: int) -> None:
        super().__init__()
        self.channels = channels

    def __missing__(self, key: Any) -> int:
        if len(self) >= self._MOST:
            self.clear()
        channel = self[key] = stable_hash(key) % self.channels
        return channel


def stable_hash(key: Any) -> int:
    """A hash that does not depend on the process; equal keys have equal hashes.

    >>> stable_hash("a") == stable_hash("a"), stable_hash(1) == stable_hash(1.0) == stable_hash(True)
    (True, True)
    """
    if isinstance(key, str):
        return zlib.crc32(key.encode("utf-8", "surrogatepass"))
    if isinstance(key, Number):
        return _mix(hash(key))  # hashes of numbers are the same in every process, and equal for equal numbers
    if key is None:
        return 0
    if isinstance(key, bytes):
        return zlib.crc32(key)
    if isinstance(key, tuple):
        result = 1
        for part in key:
            result = (result * 1_000_003 ^ stable_hash(part)) & 0xFFFFFFFF
        return result
    if isinstance(key, frozenset):
        return sum(stable_hash(part) for part in key) & 0xFFFFFFFF
    if isinstance(key, datetime | date | time | UUID):
        return zlib.crc32(_moment(key).encode())
    if isinstance(key, Enum):
        return zlib.crc32(f"{type(key).__qualname__}.{key.name}".encode())
    fields = getattr(key, "__dataclass_fields__", None)
    if fields is not None:
        return stable_hash(tuple(getattr(key, name) for name in fields))
    raise TypeError(
        f"a key of type {type(key).__name__} cannot be placed on Spark; use str, bytes, a number, a date or time, an "
        "enum, a UUID, None, a dataclass, or a tuple of these"
    )


def _moment(value: Any) -> str:
    """Aware times that are equal are one moment, whatever their zones."""
    if isinstance(value, datetime) and value.tzinfo is not None:
        return repr(value.timestamp())
    return str(value)


def _mix(number: int) -> int:
    """Spread numbers that follow each other over all bits, so that multiples do not all fall on one channel."""
    return ((number & 0xFFFFFFFFFFFFFFFF) * 0x9E3779B97F4A7C15 >> 32) & 0xFFFFFFFF
