"""Runs whose queues and threads change at random moments, in random ways."""

from __future__ import annotations

import random
import threading
from collections.abc import Sequence
from dataclasses import dataclass

from penstock.runtime.pe import PE
from penstock.runtime.threading_models import queueable

LONG = 120.0  # a safety net only


@dataclass(frozen=True)
class Changes:
    """What may change at once, and how long the changer waits before it goes on."""

    ports: tuple[int, int] = (0, 4)
    threads: Sequence[int] = range(1, 7)
    end_suspended: float = 0.3  # how probable it is
    pauses: Sequence[float] = (0.0, 0.001, 0.01)


def run_changing(pe: PE, rng: random.Random, what: str, changes: Changes | None = None) -> list[bool]:
    """Run `pe` to its end while another thread changes it; returns of each change whether it was possible."""
    stop = threading.Event()
    done: list[bool] = []
    changer = threading.Thread(target=_change, args=(pe, rng, changes or Changes(), stop, done))
    pe.start()
    changer.start()
    try:
        assert pe.wait(LONG), f"{what} does not end: {list(pe.ports.values())}"
    finally:
        stop.set()
        changer.join()
    return done


def _change(pe: PE, rng: random.Random, changes: Changes, stop: threading.Event, done: list[bool]) -> None:
    targets = [target for node in pe.graph.nodes for target in queueable(pe.graph, node)]
    fewest, most = (min(number, len(targets)) for number in changes.ports)
    while not stop.is_set() and pe.state == "running":
        chosen = rng.sample(targets, rng.randint(fewest, most))
        add = {target: rng.choice(["dynamic", "dedicated"]) for target in chosen if target not in pe.ports}
        done.append(pe.change_ports(add, [target for target in chosen if target in pe.ports]))
        pe.scheduler.set_threads(max(pe.scheduler.fewest, rng.choice(changes.threads)))
        if rng.random() < changes.end_suspended:
            pe.scheduler.end_suspended()
        stop.wait(rng.choice(changes.pauses))
