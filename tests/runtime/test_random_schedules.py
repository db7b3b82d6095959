"""Random graphs under any threading model, policy and number of threads deliver what the plain interpreter does."""

from __future__ import annotations

import random
from typing import Any

import pytest

import penstock as pn
from penstock.runtime.pe import PE, Threading
from penstock.runtime.policies import POLICIES
from tests.interpreter import Interpreter
from tests.random_graphs import build, check
from tests.runtime.changing import run_changing
from tests.thorough import blocks

pytestmark = pytest.mark.usefixtures("switching_often")


def random_options(rng: random.Random) -> dict[str, Any]:
    model = rng.choice(["dedicated", "dynamic", "dynamic", "dynamic"])
    options: dict[str, Any] = {"threading": model, "queue": rng.choice([1, 7, 64, 4096])}
    if model == "dynamic":
        options |= {
            "threads": rng.choice([1, 2, 3, 8]),
            "policy": rng.choice(sorted(POLICIES)),
            "quantum": rng.choice([1e-6, 0.001, 0.05]),
        }
    return options


@pytest.mark.parametrize("block", blocks(10, 20))
def test_any_schedule_delivers_the_same(block: int) -> None:
    for number in range(block * 30, block * 30 + 30):
        rng = random.Random(number)
        sizes = [rng.randrange(300) for _ in range(rng.randint(1, 3))]
        flow, sinks = build(rng.randrange, sizes, rng.randrange(12))
        options = random_options(rng)
        try:
            job = pn.submit(flow, on="local", **options)
            assert job.wait(60), f"graph {number} does not end with {options}"
            check(sinks, Interpreter(flow.graph()).run())
        except BaseException:
            print(f"graph {number}, {sizes} tuples, {options}")
            raise


@pytest.mark.parametrize("block", blocks(4, 8))
def test_changes_while_running_change_nothing(block: int) -> None:
    for number in range(block * 8, block * 8 + 8):
        rng = random.Random(number)
        sizes = [rng.randrange(3000) for _ in range(rng.randint(1, 3))]
        flow, sinks = build(rng.randrange, sizes, rng.randint(1, 12))
        graph = flow.graph()
        model, capacity = rng.choice(["manual", "dynamic"]), rng.choice([16, 512])
        pe = PE(graph, threading_=Threading(model, threads=2, capacity=capacity))
        run_changing(pe, rng, f"graph {number}")
        check(sinks, Interpreter(graph).run())
