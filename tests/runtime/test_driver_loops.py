"""Operators with a driver loop of their own, on any number of threads, beside event-driven ones that do the same."""

from __future__ import annotations

from typing import Any

import pytest

import penstock as pn
from penstock.operators.coroutine import QUANTUM, Driver
from tests.runtime.running import each_of

models = each_of(
    [
        {"threading": "manual"},
        {"threading": "dedicated", "queue": 5},
        {"threading": "dynamic", "threads": 1, "queue": 1},
        {"threading": "dynamic", "threads": 2},
        {"threading": "dynamic", "threads": 6, "queue": 7, "quantum": 1e-6, "policy": "random"},
    ]
)


@models
@pytest.mark.parametrize("ways", [2, 3])
def test_barriers_and_pairs_agree(options: dict[str, Any], ways: int) -> None:
    flow = pn.Flow("both")
    streams = [flow.source(range(size)) for size in (700, 900, 800)[:ways]]
    first, *others = streams
    outputs = [
        first.barrier(*others).collect(),
        first.process(pn.loops.Barrier(ways), *others).collect(),
        first.pair(*others).collect(),
        first.process(pn.loops.Pair(ways), *others).collect(),
    ]
    pn.run(flow, on="local", **options)
    expected = list(zip(*(range(700) for _ in range(ways)), strict=True))
    assert outputs[0] == outputs[1] == expected
    assert outputs[2] == outputs[3] == [n for met in expected for n in met]


@models
@pytest.mark.parametrize("limit", [1, 40])
def test_gates_agree(options: dict[str, Any], limit: int) -> None:
    flow = pn.Flow("both")
    tuples, acknowledgements = flow.source(range(600)), flow.source(range(300))
    built_in = tuples.gate(acknowledgements, limit).collect()
    loop = tuples.process(pn.loops.Gate(limit, count=lambda n: 2), acknowledgements).collect()
    pn.run(flow, on="local", **options)
    assert built_in == loop == list(range(600))


@models
@pytest.mark.parametrize("initially", [True, False])
def test_switches_agree(options: dict[str, Any], initially: bool) -> None:
    flow = pn.Flow("both")
    tuples, control = flow.source(range(600)), flow.source([n % 3 == 0 for n in range(50)])
    built_in = tuples.switch(control, initially=initially).collect()
    loop = tuples.process(pn.loops.Switch(initially), control).collect()
    pn.run(flow, on="local", **options)
    assert built_in == loop == list(range(600))


class Alternate(pn.CoOperator):
    """Two of input 0, then one of input 1, and so on; what is left is counted."""

    inputs = 2
    outputs = 2

    async def run(self, ctx: Any) -> None:
        while await ctx.wait_all({0: 2, 1: 1}):
            for port in (0, 0, 1):
                await ctx.push(ctx.pop(port))
        left = 0
        while await ctx.wait_any({0: 1, 1: 1}):
            for port in (0, 1):
                while ctx.available(port):
                    ctx.pop(port)
                    left += 1
        await ctx.push(left, port=1)


@models
def test_loops_mix_with_other_operators(options: dict[str, Any]) -> None:
    flow = pn.Flow("mixed")
    evens = flow.source(range(3000)).filter(lambda n: n % 2 == 0)
    threes = flow.source(range(3000)).map(lambda n: -n).filter(lambda n: n % 3 == 0)
    mixed, left = evens.process(Alternate(), threes)
    out = mixed.scan(lambda total, n: (total + n, total + n), init=0).map(lambda n: n * 2).collect()
    rest = left.collect()
    pn.run(flow, on="local", **options)
    expected, total = [], 0
    even, three = iter(range(0, 3000, 2)), iter(range(0, -3000, -3))
    for _ in range(750):
        for value in (next(even), next(even), next(three)):
            total += value
            expected.append(total * 2)
    assert out == expected
    assert rest == [250]


@models
def test_one_loop_per_key(options: dict[str, Any]) -> None:
    class TwoByTwo(pn.CoOperator):
        async def run(self, ctx: Any) -> None:
            while await ctx.wait_all({0: 2}):
                await ctx.push((ctx.key, ctx.pop(0) + ctx.pop(0)))

    flow = pn.Flow("keys")
    out = flow.source(range(2000)).key_by(lambda n: n % 7).process(TwoByTwo()).collect()
    pn.run(flow, on="local", **options)
    for key in range(7):
        mine = list(range(key, 2000, 7))
        assert [sum_ for k, sum_ in out if k == key] == [a + b for a, b in zip(mine[::2], mine[1::2], strict=False)]


def test_states_of_a_driver() -> None:
    class Two(pn.CoOperator):
        async def run(self, ctx: Any) -> None:
            if await ctx.wait_all({0: 2}):
                for n in range(10_000):
                    await ctx.push(n)
            await ctx.wait_all({0: 3})

    outputs: list[list[Any]] = [[]]
    driver = Driver(Two(), "two", outputs, key=None, clock=pn.ManualClock())
    assert driver.state == "ready"
    driver.process("a", 0)
    assert driver.state == "read-blocked"
    assert driver.process("b", 0) is driver
    assert driver.state == "write-blocked"
    sent = 0
    while driver.state == "write-blocked":
        sent += len(outputs[0])
        outputs[0].clear()
        assert driver.state == "ready"
        driver.go_on()
    assert sent + len(outputs[0]) == 10_000
    assert driver.state == "read-blocked"
    driver.on_punctuation(pn.Punctuation.FINAL, 0)
    assert driver.state == "completed"
    driver.close()


def test_a_quantum_sends_on_what_was_pushed(monkeypatch: pytest.MonkeyPatch) -> None:
    now = [0.0]
    monkeypatch.setattr("penstock.operators.coroutine.time.perf_counter", lambda: now[0])

    class Slow(pn.CoOperator):
        async def run(self, ctx: Any) -> None:
            while await ctx.wait_all({0: 1}):
                ctx.pop()
                for n in range(256):
                    now[0] += QUANTUM / 100
                    await ctx.push(n)

    outputs: list[list[Any]] = [[]]
    driver = Driver(Slow(), "slow", outputs, key=None, clock=pn.ManualClock())
    assert driver.process("a", 0) is driver
    assert len(outputs[0]) == 128  # two looks at the clock, 64 pushes apart
    driver.close()
