"""What a thread that runs ports needs of whatever it runs in: a PE, or a stage of a Spark task."""

from __future__ import annotations

from typing import Protocol

from penstock.graph.graph import Graph
from penstock.runtime.turn import Turn


class Host(Protocol):
    """Gives out turns, lets threads in and out, and hears of errors."""

    graph: Graph
    pausing: bool  # threads are to stand still at their next item

    def make_turn(self) -> Turn: ...
    def forget_turn(self, turn: Turn) -> None: ...
    def enter(self, turn: Turn) -> None: ...
    def leave(self, turn: Turn) -> None: ...
    def after_items(self) -> None: ...
    def fail(self, error: BaseException) -> None: ...
