"""Cutting files into ranges of about equal size that begin and end between records.

A place is `(number of the file, byte)`. Cuts lie at equal steps of the total size, moved forward to the next line
start, or to the next file where a file cannot be cut.
"""

# Paths are plain strings here: they are compared, sorted and stored in offsets.
# ruff: noqa: PTH123, PTH202
from __future__ import annotations

import os
from itertools import pairwise

from penstock.connectors.file_formats import Format

_MAGIC = b"\x1f\x8b"
Place = tuple[int, int]


def cut(names: list[str], layout: Format, number: int) -> list[tuple[Place, Place]]:
    """At most `number` ranges `(start, stop)` that cover every file exactly once, in order, none of them empty."""
    sizes = [os.path.getsize(name) for name in names]
    total = sum(sizes)
    steps = [total * step // number for step in range(1, number)]
    whole: dict[int, bool] = {}  # whether a file must stay whole, found out only for files a cut falls into
    places = {(0, 0), (len(names), 0)}
    for step in steps:
        places.add(_place(names, sizes, step, layout, whole))
    return list(pairwise(sorted(places)))


def _place(names: list[str], sizes: list[int], step: int, layout: Format, whole: dict[int, bool]) -> Place:
    index = 0
    while index < len(sizes) and step >= sizes[index]:
        step -= sizes[index]
        index += 1
    if index == len(sizes) or step == 0:
        return (index, 0)
    if index not in whole:
        whole[index] = not _can_be_cut(names[index], layout)
    byte = sizes[index] if whole[index] else _line_start(names[index], step)
    return (index, byte) if byte < sizes[index] else (index + 1, 0)


def _can_be_cut(name: str, layout: Format) -> bool:
    with open(name, "rb") as handle:
        if name.endswith(".gz") or handle.peek(2)[:2] == _MAGIC:
            return False
        return layout.one_record_a_line(handle)


def _line_start(name: str, byte: int) -> int:
    """The first line start at or after `byte`."""
    with open(name, "rb") as handle:
        handle.seek(byte - 1)
        handle.readline()
        return handle.tell()
