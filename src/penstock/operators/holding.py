"""Partitions that hold tuples back until another input lets them pass."""

from __future__ import annotations

from collections import deque
from typing import Any

from penstock.operators.base import Partition


class Holding(Partition):
    """What came at input 0 and has not passed yet, in order. What is held at the end of the stream is released."""

    __slots__ = ("held_back",)

    def __init__(self) -> None:
        self.held_back: deque[Any] = deque()

    def finish(self) -> list[Any] | None:
        released = list(self.held_back)
        self.held_back.clear()
        return released

    def held(self, port: int) -> int:
        return len(self.held_back) if port == 0 else 0
