"""Scheduling policies side by side on the four topologies of C-Stream (§5.1, figs 3–5).

    python benchmarks/policies.py [--full] [--threads N]

Chain and data-parallel have 12 busy operators, tree and reverse tree 63 (depth 6, two branches). A busy operator
computes for 100 µs per tuple without the GIL. Numbers are tuples per second, and the mean latency from source to sink
with the sources at full speed, in milliseconds: the median of several rounds in which the policies take turns.
"""

from __future__ import annotations

import argparse
import gc
import statistics
import sys
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

sys.path.insert(0, str(Path(__file__).parent))

import numba

import penstock as pn
from measuring import report, table

POLICIES = ["least_recently_run", "random", "longest_queue", "least_latency", "longest_running_time"]
QUEUE = 64  # small, so that queues fill and the choice matters
DEPTH = 6


@numba.njit(nogil=True, cache=False)
def _compute(value: float, steps: int) -> float:
    for _ in range(steps):
        value = value * 0.999999 + 0.000001
    return value


def busy(seconds: float) -> Callable[[tuple[int, float]], tuple[int, float]]:
    """An operator function that computes for about so long."""
    _compute(1.0, 10)
    start = time.perf_counter()
    _compute(1.0, 1_000_000)
    steps = int(seconds * 1_000_000 / (time.perf_counter() - start))

    def work(item: tuple[int, float]) -> tuple[int, float]:
        return item[0], _compute(item[1], steps)

    return work


Work = Callable[[Any], Any]


def chain(source: pn.Stream[Any], work: Work) -> pn.Stream[Any]:
    for _ in range(12):
        source = source.map(work)
    return source


def data_parallel(source: pn.Stream[Any], work: Work) -> pn.Stream[Any]:
    first, *others = [branch.map(work) for branch in source.split(12, lambda item: item[0] % 12)]
    return first.union(*others)


def tree(source: pn.Stream[Any], work: Work) -> pn.Stream[Any]:
    level = [source.map(work)]
    for depth in range(DEPTH - 1):
        level = [
            branch.map(work)
            for stream in level
            for branch in stream.split(2, lambda item, depth=depth: (item[0] >> depth) & 1)
        ]
    return level[0].union(*level[1:])


def reverse_tree(source: pn.Stream[Any], work: Work) -> pn.Stream[Any]:
    leaves = 2 ** (DEPTH - 1)
    level = [branch.map(work) for branch in source.split(leaves, lambda item: item[0] % leaves)]
    while len(level) > 1:
        level = [left.union(right).map(work) for left, right in zip(level[::2], level[1::2], strict=True)]
    return level[0]


TOPOLOGIES = {"chain": chain, "data-parallel": data_parallel, "tree": tree, "reverse tree": reverse_tree}


def run_once(topology: str, policy: str, tuples: int, threads: int, work: Work) -> tuple[float, float]:
    """Tuples per second, and the mean latency in milliseconds."""
    flow = pn.Flow(topology)
    end = TOPOLOGIES[topology](flow.source([(n, 1.0) for n in range(tuples)]), work)
    collected = end.collect()
    gc.collect()
    job = pn.submit(flow, on="local", threading="dynamic", threads=threads, policy=policy, queue=QUEUE, latency=True)
    start = time.perf_counter()
    job.wait()
    seconds = time.perf_counter() - start
    latency = job.metrics().latency
    if len(collected) != tuples or latency is None:
        raise AssertionError(f"{len(collected)} of {tuples} tuples arrived")
    return tuples / seconds, 1000 * latency.mean


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--short", action="store_true", help="the default; for benchmarks/all.py")
    parser.add_argument("--full", action="store_true", help="more tuples and rounds")
    parser.add_argument("--threads", type=int, default=4)
    options = parser.parse_args()
    rounds, times = (5, 4) if options.full else (3, 1)
    work = busy(100e-6)
    rows, latencies = [], []
    for topology in TOPOLOGIES:
        tuples = {"chain": 1000, "data-parallel": 6000, "tree": 2000, "reverse tree": 2000}[topology] * times
        found: dict[str, list[tuple[float, float]]] = {policy: [] for policy in POLICIES}
        for _ in range(rounds):
            for policy in POLICIES:
                found[policy].append(run_once(topology, policy, tuples, options.threads, work))
        rate = {policy: statistics.median(r for r, _ in runs) for policy, runs in found.items()}
        latency = {policy: statistics.median(late for _, late in runs) for policy, runs in found.items()}
        rows.append([topology, *(f"{rate[policy]:,.0f}" for policy in POLICIES)])
        latencies.append([topology, *(f"{latency[policy]:,.1f}" for policy in POLICIES)])
        print("  ".join(latencies[-1]), file=sys.stderr, flush=True)
        first, *others = (latency[policy] for policy in POLICIES)
        report(f"{topology}: latency of least recently run / the lowest of the others", first / min(others), most=1.1)
    headings = ["", *(policy.replace("_", " ") for policy in POLICIES)]
    print(table(f"Policies, {options.threads} threads: tuples/s", headings, rows))
    print(table(f"Policies, {options.threads} threads: mean latency, ms", headings, latencies))


if __name__ == "__main__":
    main()
