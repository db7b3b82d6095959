"""Sizes of what moves on Spark: `conf={"penstock.…": …}`. The defaults suit throughput; none changes the output.

- `penstock.item.tuples`: tuples read from a source before they are handed to Spark as one item (8,192)
- `penstock.item.bytes`: about how much of a file is one item (4 MiB); at least two items for each core
- `penstock.batch.items`: items in a batch; by default it follows how long batches take
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

from penstock.errors import PlatformError

_NAMES = {
    "penstock.item.tuples": "item_tuples",
    "penstock.item.bytes": "item_bytes",
    "penstock.batch.items": "batch_items",
}


@dataclass(frozen=True, slots=True)
class Tuning:
    """The sizes of one job."""

    item_tuples: int = 8192
    item_bytes: int = 4 << 20
    batch_items: int | None = None


def split_conf(conf: Mapping[str, str] | None) -> tuple[dict[str, str], Tuning]:
    """The settings that are Spark's, and ours.

    >>> split_conf({"spark.ui.enabled": "false", "penstock.batch.items": "4"})
    ({'spark.ui.enabled': 'false'}, Tuning(item_tuples=8192, item_bytes=4194304, batch_items=4))
    """
    theirs: dict[str, str] = {}
    ours: dict[str, int] = {}
    for name, value in (conf or {}).items():
        if not name.startswith("penstock."):
            theirs[name] = value
            continue
        if name not in _NAMES:
            raise PlatformError(f"conf= has no setting {name!r}; there are {', '.join(_NAMES)}")
        ours[_NAMES[name]] = _positive(name, value)
    return theirs, Tuning(**ours)


def _positive(name: str, value: str) -> int:
    try:
        number = int(value)
    except ValueError:
        number = 0
    if number < 1:
        raise PlatformError(f"{name} must be a positive whole number, not {value!r}")
    return number
