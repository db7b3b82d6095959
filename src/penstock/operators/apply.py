"""`apply`: one call of the user's function with all tuples of a window for each firing."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from penstock.clock import Clock
from penstock.graph.graph import Node
from penstock.graph.operations import Apply
from penstock.operators.aggregates import Collect
from penstock.operators.windowed import WindowedLogic


class ApplyShape:
    """`function(tuples)`, or `function(key, tuples)` on a keyed stream."""

    def __init__(self, function: Callable[..., Any], keyed: bool) -> None:
        self.function = function
        self.keyed = keyed

    def row(self, key: Any, results: list[Any], start: Any, end: Any) -> Any:
        return self.function(key, results[0]) if self.keyed else self.function(results[0])


class ApplyLogic(WindowedLogic):
    """Holds the tuples of each window and hands them to the user's function as a fresh list."""

    def __init__(self, node: Node, clock: Clock | None = None) -> None:
        super().__init__(node, clock)
        assert isinstance(node.operation, Apply)
        self.aggregates = (("tuples", Collect()),)
        self.shape = ApplyShape(node.operation.function, keyed=node.inputs[0].key is not None)
        self.follow()
