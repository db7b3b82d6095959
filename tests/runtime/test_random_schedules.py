"""Random graphs under any threading model, policy and number of threads deliver what the plain interpreter does."""

from __future__ import annotations

import random
import sys
import threading
from collections import Counter
from collections.abc import Iterator
from typing import Any

import pytest

import penstock as pn
from penstock.graph.graph import Graph, Target
from penstock.runtime.pe import PE, Threading
from penstock.runtime.policies import POLICIES
from penstock.runtime.threading_models import queueable
from tests.interpreter import Interpreter
from tests.random_graphs import build


@pytest.fixture(autouse=True)
def _switch_often() -> Iterator[None]:
    """Threads take turns every few bytecodes, so that many interleavings happen in little time."""
    before = sys.getswitchinterval()
    sys.setswitchinterval(1e-5)
    yield
    sys.setswitchinterval(before)


def check(sinks: dict[str, tuple[Any, bool]], expected: dict[str, list[Any]]) -> None:
    for name, (collected, ordered) in sinks.items():
        if ordered:
            assert collected == expected[name], name
        else:
            assert Counter(collected) == Counter(expected[name]), name


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


@pytest.mark.parametrize("block", range(20))
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


def change_at_random(pe: PE, rng: random.Random, stop: threading.Event) -> list[bool]:
    """Place and remove threaded ports, and change the number of threads, until told to stop."""
    targets = possible_targets(pe.graph)
    done = []
    while not stop.is_set() and pe.state == "running":
        chosen = rng.sample(targets, rng.randint(0, min(4, len(targets)))) if targets else []
        add = {target: rng.choice(["dynamic", "dedicated"]) for target in chosen if target not in pe.ports}
        remove = [target for target in chosen if target in pe.ports]
        done.append(pe.change_ports(add, remove))
        pe.scheduler.set_threads(rng.randint(pe.scheduler.fewest, 6))
        if rng.random() < 0.3:
            pe.scheduler.end_suspended()
        stop.wait(rng.choice([0.0, 0.001, 0.01]))
    return done


def possible_targets(graph: Graph) -> list[Target]:
    return [target for node in graph.nodes for target in queueable(graph, node)]


@pytest.mark.parametrize("block", range(8))
def test_changes_while_running_change_nothing(block: int) -> None:
    for number in range(block * 8, block * 8 + 8):
        rng = random.Random(number)
        sizes = [rng.randrange(3000) for _ in range(rng.randint(1, 3))]
        flow, sinks = build(rng.randrange, sizes, rng.randint(1, 12))
        graph = flow.graph()
        model, capacity = rng.choice(["manual", "dynamic"]), rng.choice([16, 512])
        pe = PE(graph, threading_=Threading(model, threads=2, capacity=capacity))
        stop = threading.Event()
        pe.start()
        changer = threading.Thread(target=change_at_random, args=(pe, rng, stop))
        changer.start()
        try:
            assert pe.wait(60), f"graph {number} does not end"
        finally:
            stop.set()
            changer.join()
        check(sinks, Interpreter(graph).run())
