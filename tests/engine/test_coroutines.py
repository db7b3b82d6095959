"""Operators with a driver loop of their own."""

from __future__ import annotations

import gc
from typing import Any

import pytest

import penstock as pn


class Barrier(pn.CoOperator):
    inputs = 2

    async def run(self, ctx: Any) -> None:
        while await ctx.wait_all({0: 1, 1: 1}):
            await ctx.push((ctx.pop(0), ctx.pop(1)))


class Merge(pn.CoOperator):
    """Takes from whichever input has something, until both have ended."""

    inputs = 2

    async def run(self, ctx: Any) -> None:
        while await ctx.wait_any({0: 1, 1: 1}):
            for port in (0, 1):
                while ctx.available(port):
                    await ctx.push((port, ctx.pop(port)))


class Pairs(pn.CoOperator):
    """Tuples two by two; a last single one is pushed to output 1."""

    outputs = 2

    async def run(self, ctx: Any) -> None:
        while await ctx.wait_all({0: 2}):
            await ctx.push((ctx.pop(0), ctx.pop(0)))
        if await ctx.wait_any({0: 1}):
            await ctx.push(ctx.pop(0), port=1)


class First(pn.CoOperator):
    """Ends after one tuple, long before its input does."""

    async def run(self, ctx: Any) -> None:
        if await ctx.wait_all({0: 1}):
            await ctx.push(ctx.pop(0))


class Greedy(pn.CoOperator):
    async def run(self, ctx: Any) -> None:
        await ctx.push(ctx.pop(0))


class Opened(pn.Operator):
    count = 0

    def open(self, ctx: Any) -> None:
        Opened.count += 1

    def process(self, t: Any, port: int) -> Any:
        return t


@pytest.mark.filterwarnings("error")
def test_the_code_of_a_plan_is_shown_without_starting_anything() -> None:
    flow = pn.Flow("shown")
    first = flow.source(range(3)).process(First())
    out = first.process(Opened()).collect()
    plan = pn.plan(flow)
    Opened.count = 0
    text = plan.code()
    gc.collect()  # a coroutine that was made and never run would complain now
    assert "process_1" in text
    assert text == pn.Plan.from_json(plan.to_json(), flow).code()
    assert Opened.count == 0
    job = pn.run(flow, on="local")
    assert (out, Opened.count) == ([0], 1)
    assert job.plan.code() == text


def test_a_barrier_with_its_own_loop_agrees_with_the_built_in() -> None:
    flow = pn.Flow("barrier")
    left, right = flow.source(range(1000)), flow.source(range(700))
    own = left.process(Barrier(), right).collect()
    built_in = left.barrier(right).collect()
    pn.run(flow, on="local")
    assert own == built_in == [(n, n) for n in range(700)]


def test_wait_any_is_false_only_when_all_ports_have_ended() -> None:
    flow = pn.Flow("merge")
    out = flow.source(range(500)).process(Merge(), flow.source(range(300))).collect()
    pn.run(flow, on="local")
    assert [n for port, n in out if port == 0] == list(range(500))
    assert [n for port, n in out if port == 1] == list(range(300))


def test_what_is_left_when_a_wait_fails_can_still_be_taken() -> None:
    flow = pn.Flow("pairs")
    pairs, single = flow.source(range(5)).process(Pairs())
    pairs_out, single_out = pairs.collect(), single.collect()
    pn.run(flow, on="local")
    assert pairs_out == [(0, 1), (2, 3)]
    assert single_out == [4]


def test_an_operator_may_end_before_its_input() -> None:
    flow = pn.Flow("first")
    out = flow.source(range(2000)).process(First()).collect()
    keyed = flow.source("abab").key_by(lambda c: c).process(First()).collect()
    pn.run(flow, on="local")
    assert out == [0]
    assert keyed == ["a", "b"]


def test_popping_without_waiting_is_an_error_that_says_so() -> None:
    flow = pn.Flow("greedy")
    flow.source([1]).process(First()).process(Greedy(), name="greedy").collect()
    pn.run(flow, on="local")
    flow = pn.Flow("greedy")

    class TwoAtOnce(pn.CoOperator):
        async def run(self, ctx: Any) -> None:
            ctx.pop(0)
            ctx.pop(0)

    flow.source([1]).process(TwoAtOnce(), name="greedy").collect()
    with pytest.raises(pn.OperatorError, match="wait for one first"):
        pn.run(flow, on="local")
