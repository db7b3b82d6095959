"""Many threads, many tuples, many operators; threads and queues changed at random throughout; the output exact."""

from __future__ import annotations

import gc
import random
import sys
from typing import Any

import pytest

import penstock as pn
from penstock.runtime.pe import PE, Threading
from tests.runtime.changing import LONG, Changes, run_changing

SIZE = 1_000_000


def _pairs(total: int, n: int) -> tuple[int, int]:
    return (total + n) % 1_000_003, total


def graph() -> tuple[pn.Flow, dict[str, Any]]:
    """Twenty operators: state per key and for all, a diamond, windows, batches, a barrier."""
    flow = pn.Flow("stress")
    numbers = flow.source(range(SIZE))
    wide = numbers.map(lambda n: n * 7 + 1).filter(lambda n: n % 5 != 0).map(lambda n: n % 100_003)
    keyed = wide.key_by(lambda n: n % 64).scan(_pairs, init=0)
    left = keyed.map_batch(lambda chunk: [n + 1 for n in chunk]).filter(lambda n: n % 3 != 1)
    right = keyed.map(lambda n: -n).filter(lambda n: n % 2 == 0)
    sums = left.scan(_pairs, init=0).map(lambda n: n + 1)
    windows = right.window(pn.tumbling(count=10)).apply(sum).map(lambda n: n - 1)
    both = sums.filter(lambda n: n % 16 == 0).barrier(windows).map(lambda pair: pair[0] - pair[1])
    counts = wide.key_by(lambda n: n % 7).scan(lambda n, t: (n + 1, n), init=0).filter(lambda n: n % 11 == 0)
    return flow, {
        "sums": sums.filter(lambda n: n % 8 == 0).collect(),
        "windows": windows.collect(),
        "both": both.collect(),
        "counts": counts.collect(),
    }


@pytest.fixture(scope="module")
def exact() -> dict[str, list[int]]:
    flow, sinks = graph()
    pn.run(flow, on="local", threading="manual", profile=False)
    return {name: list(out) for name, out in sinks.items()}


def test_a_million_tuples_while_threads_and_queues_change(exact: dict[str, list[int]]) -> None:
    rng = random.Random(11)
    flow, sinks = graph()
    pe = PE(flow.graph(), threading_=Threading("dynamic", threads=32, capacity=8192))
    often = Changes(ports=(1, 6), threads=[1, 2, 8, 32, 32], end_suspended=0.2, pauses=[0.0, 0.01, 0.05])
    changes = run_changing(pe, rng, "the graph", often)
    assert {name: list(out) for name, out in sinks.items()} == exact
    assert sum(changes) > 10


def chain(operators: int, tuples: int) -> tuple[pn.Flow, Any]:
    flow = pn.Flow("chain")
    stream: pn.Stream[Any] = flow.source(range(tuples))
    for _ in range(operators):
        stream = stream.map(_plus_one)
    return flow, stream.collect()


def _plus_one(n: int) -> int:
    return n + 1


@pytest.mark.parametrize(
    ("queue", "options"), [(1, {"threads": 1}), (3, {"threads": 4, "policy": "longest_queue"}), (16, {"threads": 2})]
)
def test_a_long_chain_of_full_queues_needs_no_deep_stack(queue: int, options: dict[str, Any]) -> None:
    flow, out = chain(5000, 30)
    before = sys.getrecursionlimit()
    sys.setrecursionlimit(400)
    try:
        job = pn.submit(flow, on="local", threading="dynamic", queue=queue, profile=False, **options)
        assert job.wait(LONG)
    finally:
        sys.setrecursionlimit(before)
    assert out == list(range(5000, 5030))


@pytest.mark.parametrize("model", ["manual", "dynamic"])
def test_a_hundred_thousand_operators(model: str) -> None:
    gc.disable()  # it would look through millions of objects that all stay, again and again
    try:
        flow, out = chain(100_000, 1)
        job = pn.submit(flow, on="local", threading=model, threads=2 if model == "dynamic" else None, profile=False)
        assert job.wait(LONG)
        assert out == [100_000]
    finally:
        gc.enable()
