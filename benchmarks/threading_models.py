"""Threading models side by side: manual, dedicated, dynamic with more and more threads (scheduler paper §5, figs 8–10).

    python benchmarks/threading_models.py [--full] [--only pipeline|wide|mixed|waiting]

Topologies: a pipeline of 100 (and, with --full, 1,000) operators, 1,000 operators side by side, 10 pipelines of 100.
Operators: batch operators that free the GIL and compute so many floating point operations per tuple, and operators that
wait 1 ms per tuple. With those, contenders of many threads get more tuples, so that all run for some seconds: what
counts is the rate of a full pipeline, not how long it takes to fill. A thousand threads, one for each operator, get a
fortieth of the tuples without --full, or they would take minutes. Numbers are tuples per second at the sink and, in
brackets, the ratio to the manual model: the median of several rounds in which the contenders take turns.
"""

from __future__ import annotations

import argparse
import gc
import statistics
import sys
import time
from collections.abc import Callable
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

sys.path.insert(0, str(Path(__file__).parent))

import numpy as np

import penstock as pn
from computing import computed
from measuring import report, table

Operator = Callable[[pn.Stream[Any]], pn.Stream[Any]]
Build = Callable[[int, Operator], tuple[pn.Flow, list[Any]]]


# ---------------------------------------------------------------------------------------------------------- operators


def flops(count: int) -> Operator:
    """A batch operator of `count` floating point operations per tuple; the GIL is free while it computes."""

    def compute(tuples: list[float]) -> list[float]:
        result: list[float] = computed(np.array(tuples), max(2, count)).tolist()
        return result

    return lambda stream: stream.map_batch(compute)


def waiting(seconds: float) -> Operator:
    """An operator that waits, as for an answer over the network."""

    def wait(item: Any) -> Any:
        time.sleep(seconds)
        return item

    return lambda stream: stream.map(wait)


# ---------------------------------------------------------------------------------------------------------- topologies


def pipeline(length: int) -> Build:
    def build(tuples: int, operator: Operator) -> tuple[pn.Flow, list[Any]]:
        flow = pn.Flow("pipeline")
        stream: pn.Stream[Any] = flow.source([float(n) for n in range(tuples)])
        for _ in range(length):
            stream = operator(stream)
        return flow, stream.collect()

    return build


def side_by_side(width: int, length: int = 1) -> Build:
    """`width` pipelines of `length` operators; tuples are dealt to them by value."""

    def build(tuples: int, operator: Operator) -> tuple[pn.Flow, list[Any]]:
        flow = pn.Flow("side by side")
        branches = flow.source([float(n) for n in range(tuples)]).split(width, lambda value: int(value) % width)
        ends = []
        for stream in branches:
            for _ in range(length):
                stream = operator(stream)
            ends.append(stream)
        return flow, ends[0].union(*ends[1:]).collect()

    return build


# ----------------------------------------------------------------------------------------------------------- measuring


@dataclass(frozen=True)
class Case:
    """One row of the table."""

    name: str
    build: Build
    operator: Operator
    tuples: int
    threads: tuple[int, ...]
    dedicated: bool = True
    waits: bool = False  # a thread that waits takes no core: many get done many times as much
    crowd: int = 1  # a part of the tuples is enough where every operator has a thread: a thousand of those are slow
    asked: dict[str, float] = field(default_factory=dict)  # of a contender: the least ratio to manual

    def tuples_for(self, options: dict[str, Any]) -> int:
        """How many tuples a contender gets."""
        if options["threading"] == "dedicated" and self.crowd > 1:
            return self.tuples // self.crowd
        if not self.waits or options["threading"] == "manual":
            return self.tuples
        return self.tuples * max(1, options.get("threads", 8) // 2)


def run_once(case: Case, options: dict[str, Any]) -> float:
    """Tuples per second of one run, from the first tuple to the last."""
    tuples = case.tuples_for(options)
    flow, collected = case.build(tuples, case.operator)
    gc.collect()
    job = pn.submit(flow, on="local", **options)
    start = time.perf_counter()
    job.wait()
    seconds = time.perf_counter() - start
    if len(collected) != tuples:
        raise AssertionError(f"{case.name} with {options}: {len(collected)} of {tuples} tuples arrived")
    return tuples / seconds


def measure(case: Case, rounds: int) -> list[str]:
    contenders: dict[str, dict[str, Any]] = {"manual": {"threading": "manual"}}
    if case.dedicated:
        contenders["dedicated"] = {"threading": "dedicated"}
    for threads in case.threads:
        contenders[str(threads)] = {"threading": "dynamic", "threads": threads}
    rates: dict[str, list[float]] = {name: [] for name in contenders}
    for _ in range(rounds):
        for name, options in contenders.items():
            rates[name].append(run_once(case, options))
    medians = {name: statistics.median(found) for name, found in rates.items()}
    manual = medians["manual"]
    for name in {**case.asked, **({"dedicated": 0.0} if case.dedicated else {})}:
        what = "dedicated" if name == "dedicated" else f"dynamic, {name} threads"
        report(f"{case.name}: {what} / manual", medians[name] / manual, least=case.asked.get(name))
    cells = [f"{manual:,.0f}"]
    cells += [f"{medians['dedicated']:,.0f} ({medians['dedicated'] / manual:.2f}×)" if case.dedicated else "–"]
    for threads in ALL_THREADS:
        rate = medians.get(str(threads))
        cells.append("–" if rate is None else f"{rate:,.0f} ({rate / manual:.2f}×)")
    return [case.name, *cells]


ALL_THREADS = (1, 2, 4, 8, 32)


def cases(full: bool) -> dict[str, list[Case]]:
    times = 4 if full else 1
    few, many = (1, 2, 4), (1, 8, 32)
    work = [(1, 40_000), (100, 30_000), (1_000, 12_000), (10_000, 3_000)]
    found: dict[str, list[Case]] = {"pipeline": [], "wide": [], "mixed": [], "waiting": []}
    for count, tuples in work:
        name, asked = f"pipeline of 100, {count:,} flops", {1: {"2": 0.3}, 100: {}}.get(count, {"2": 1.6})
        found["pipeline"].append(Case(name, pipeline(100), flops(count), tuples * times, few, asked=asked))
        if full:
            found["pipeline"].append(
                Case(f"pipeline of 1,000, {count:,} flops", pipeline(1000), flops(count), tuples, few, dedicated=False)
            )
    for count, tuples in [(1, 60_000), (1_000, 60_000), (10_000, 40_000)]:
        name = f"1,000 side by side, {count:,} flops"
        crowd = 1 if full else 40
        found["wide"].append(Case(name, side_by_side(1000), flops(count), tuples * times, few, crowd=crowd))
    for count, tuples in [(1, 3_000), (1_000, 2_000), (10_000, 1_000)]:
        name = f"10 pipelines of 100, {count:,} flops"
        found["mixed"].append(Case(name, side_by_side(10, 100), flops(count), tuples * times, few, dedicated=full))
    asked, wait = {"32": 20.0}, waiting(0.001)
    found["waiting"] = [
        Case("pipeline of 100, 1 ms waits", pipeline(100), wait, 64 * times, many, waits=True, asked=asked),
        Case("1,000 side by side, 1 ms waits", side_by_side(1000), wait, 5000 * times, many, waits=True, asked=asked),
    ]
    return found


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--short", action="store_true", help="the default; for benchmarks/all.py")
    parser.add_argument("--full", action="store_true", help="four times the tuples, pipelines of 1,000, more rounds")
    parser.add_argument("--only", choices=["pipeline", "wide", "mixed", "waiting"])
    options = parser.parse_args()
    headings = ["", "manual", "dedicated", *(f"dynamic {threads}" for threads in ALL_THREADS)]
    rows = []
    for name, chosen in cases(options.full).items():
        if options.only in (None, name):
            for case in chosen:
                rows.append(measure(case, 5 if options.full else 3))
                print("  ".join(rows[-1]), file=sys.stderr, flush=True)
    print(table("Threading models, tuples/s (ratio to manual)", headings, rows))


if __name__ == "__main__":
    main()
