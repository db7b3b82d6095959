"""A Spark stage that cannot be replicated, in one thread and as the pipelines of its plan; and the model beside both.

    python benchmarks/spark_pipelines.py [--short]

The program keeps a running total over the whole stream, so everything behind it has one channel and one task. Two of
its operators hash a piece of memory for each tuple, a chunk in one call that frees the GIL. A profile of a run on Spark
gives the plan; both plans take turns in one session, and the best round of each counts. Rates are those of batches, as
`penstock run` shows them: start-up and the first batch are left out, Spark's own part of every batch is not. The last
line says how many times the work of one thread two of them get done here: 2 on two free cores; far below that, the
other figures mean nothing.
"""

from __future__ import annotations

import argparse
import hashlib
import sys
import threading
import time
from dataclasses import replace
from pathlib import Path
from typing import Any

sys.path.insert(0, str(Path(__file__).parent))

import penstock as pn
from measuring import report, table
from penstock.compiler.stage_plan import SparkPlan
from penstock.platforms.job import Throughput
from penstock.platforms.spark import planning

PIECE = 24_576  # bytes hashed for each tuple
CONF = {"penstock.item.tuples": "8192", "penstock.batch.items": "8"}


def work(tuples: list[Any]) -> list[Any]:
    """Some microseconds for each tuple, with the GIL free."""
    memory = memoryview(bytes(PIECE))
    digest = hashlib.sha256()
    for _ in tuples:
        digest.update(memory)
    return tuples


def program(count: int) -> pn.Flow:
    flow = pn.Flow("single")
    totals = flow.source(range(count), name="numbers").scan(lambda s, n: (s + n, s + n), init=0, name="total")
    worked = totals.map_batch(work, name="first").map_batch(work, name="second")
    worked.filter(lambda n: n % 100_003 == 0, name="few").collect(name="out")
    return flow


def two_threads(seconds: float = 0.5) -> float:
    """How many times the work of one thread two of them get done."""

    def done(threads: int) -> int:
        counts, limit = [0] * threads, time.perf_counter() + seconds

        def hashing(number: int) -> None:
            while time.perf_counter() < limit:
                work([None] * 64)
                counts[number] += 1

        running = [threading.Thread(target=hashing, args=[number]) for number in range(threads)]
        for thread in running:
            thread.start()
        for thread in running:
            thread.join()
        return sum(counts)

    return done(2) / done(1)


def measure(count: int, plan: SparkPlan) -> Throughput:
    found = pn.run(program(count), on="spark", plan=plan, conf=CONF).metrics().throughput
    assert found is not None
    return found


def main() -> None:
    parser = argparse.ArgumentParser()
    parser.add_argument("--short", action="store_true")
    short = parser.parse_args().short
    count, rounds = (200_000, 2) if short else (600_000, 4)
    job = pn.run(program(count // 2), on="spark", conf=CONF)
    profile = job.profile()
    chosen = planning.plan(program(count).graph(), profile=profile)
    stage = chosen.layout.groups[1]
    single = replace(stage, pipelines=(stage.nodes,))
    groups = (chosen.layout.groups[0], single, *chosen.layout.groups[2:])
    plans = {
        "one thread": planning.plan_of(chosen.program, replace(chosen.layout, groups=groups)),
        "by plan": chosen,
    }
    threads = two_threads()
    best: dict[str, Throughput] = {}
    for _ in range(rounds):
        for name, plan in plans.items():
            found = measure(count, plan)
            best[name] = max(best.get(name, found), found, key=lambda one: one.measured)
    base = best["one thread"]
    rows = [
        [
            name,
            str(len(plans[name].layout.groups[1].pipelines)),
            f"{one.measured / 1e3:.1f} k",
            f"{one.measured / base.measured:.2f}",
            f"{(one.model or 0) / 1e3:.1f} k",
            f"{one.fixed / one.batches:.2f} s",
        ]
        for name, one in best.items()
    ]
    chosen_one = best["by plan"]
    report("a stage with one channel: as pipelines / one thread", chosen_one.measured / base.measured)
    report(
        "a stage with one channel: measured / model", chosen_one.measured / (chosen_one.model or chosen_one.measured)
    )
    headings = ["", "threads", "tuples/s", "ratio", "model", "Spark's own, per batch"]
    print(table("a stage with one channel on Spark", headings, rows))
    print(f"  two threads get {min(threads, two_threads()):.2f} times the work of one done")


if __name__ == "__main__":
    main()
