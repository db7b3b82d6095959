"""Sinks around plain Python values: a list to fill, a function to call."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from penstock.connectors.base import Sink
from penstock.graph.stream import Collected


class ListSink(Sink):
    """Appends every tuple to a list; the list of `collect()` starts each run empty."""

    def __init__(self, target: list[Any]) -> None:
        self.target = target

    def open(self) -> None:
        if isinstance(self.target, Collected):
            self.target.clear()

    def write(self, tuples: list[Any]) -> None:
        self.target.extend(tuples)


class Nowhere(Sink):
    """Takes whole chunks and forgets them."""

    def write(self, tuples: list[Any]) -> None: ...


class CallableSink(Sink):
    """Calls a function with every tuple."""

    def __init__(self, function: Callable[[Any], Any]) -> None:
        self.function = function

    def write(self, tuples: list[Any]) -> None:
        function = self.function
        for item in tuples:
            function(item)
