"""Barrier, pair, gate and switch once more, as operators with a driver loop of their own (C-Stream §2.3).

They do what the methods of the same names do, and show how such operators are written.

>>> import penstock as pn
>>> flow = pn.Flow("meet")
>>> out = flow.source([1, 2, 3]).process(Barrier(2), flow.source("ab")).collect()
>>> _ = pn.run(flow, on="local", threading="dynamic")
>>> out
[(1, 'a'), (2, 'b')]
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from penstock.graph.operator import CoContext, CoOperator


class Barrier(CoOperator):
    """A tuple of one tuple from each of `ways` inputs, as soon as every input has one."""

    def __init__(self, ways: int) -> None:
        self.inputs = ways

    async def run(self, ctx: CoContext) -> None:
        while await ctx.wait_all(dict.fromkeys(range(self.inputs), 1)):
            await ctx.push(tuple(ctx.pop(port) for port in range(self.inputs)))


class Pair(CoOperator):
    """Like `Barrier`, but the tuples come out one by one: one of each input in turn."""

    def __init__(self, ways: int) -> None:
        self.inputs = ways

    async def run(self, ctx: CoContext) -> None:
        while await ctx.wait_all(dict.fromkeys(range(self.inputs), 1)):
            for port in range(self.inputs):
                await ctx.push(ctx.pop(port))


class Gate(CoOperator):
    """At most `limit` tuples of input 0 pass that input 1 has not acknowledged; the rest at the end of the stream."""

    inputs = 2

    def __init__(self, limit: int = 1, count: Callable[[Any], int] | None = None) -> None:
        self.limit = limit
        self.count = count

    async def run(self, ctx: CoContext) -> None:
        under_way = 0
        while await ctx.wait_all({1: 1} if under_way >= self.limit else {0: 1}):
            while ctx.available(1):
                acknowledged = ctx.pop(1)
                under_way = max(0, under_way - (1 if self.count is None else self.count(acknowledged)))
            while ctx.available(0) and under_way < self.limit:
                under_way += 1
                await ctx.push(ctx.pop(0))
        while await ctx.wait_all({0: 1}):
            await ctx.push(ctx.pop(0))


class Switch(CoOperator):
    """Passes tuples of input 0 while on and holds them while off; each tuple of input 1 says which."""

    inputs = 2

    def __init__(self, initially: bool = True, status: Callable[[Any], Any] | None = None) -> None:
        self.on = initially
        self.status = status

    async def run(self, ctx: CoContext) -> None:
        while await ctx.wait_any({0: 1, 1: 1} if self.on else {1: 1}):
            while ctx.available(1):
                said = ctx.pop(1)
                self.on = bool(said if self.status is None else self.status(said))
            while self.on and ctx.available(0):
                await ctx.push(ctx.pop(0))
        while await ctx.wait_all({0: 1}):
            await ctx.push(ctx.pop(0))
