"""map_batch: a function from a list of tuples to a list of results."""

from __future__ import annotations

from typing import Any

from penstock.clock import Clock
from penstock.graph.graph import Node
from penstock.graph.operations import MapBatch
from penstock.operators.base import Logic


class MapBatchLogic(Logic):
    """Takes whole chunks, so it heads its segment. The function gets a list of its own, which it may change."""

    whole_chunk = True

    def __init__(self, node: Node, clock: Clock | None = None) -> None:
        super().__init__(node, clock)
        assert isinstance(node.operation, MapBatch)
        self.function = node.operation.function

    def on_chunk(self, chunk: list[Any]) -> list[Any]:
        results = self.function(chunk[:])
        if isinstance(results, list):
            return results
        if isinstance(results, str | bytes | dict) or not hasattr(results, "__iter__"):
            raise TypeError(f"map_batch's function must return a list of results, not {type(results).__name__}")
        return list(results)
