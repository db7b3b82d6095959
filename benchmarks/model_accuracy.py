"""How far the model is right: predicted against measured throughput of the ten best configurations on this machine.

    python benchmarks/model_accuracy.py [--short] [--cores 2]

Programs: five random chains of batch operators that free the GIL, and LogWatch, whose operators are plain Python. Each
is profiled first, and the planner chooses a configuration by the profile, as `pn.plan` does. The model then rates every
configuration of up to four pipelines and two copies, and the ten best, with the chosen one among them, are run by
`pn.run(flow, on="local", plan=…)`, taking turns; the upper quartile of the rounds counts. δ and c_p are measured at the
start. Threads of one process share one core for Python code, and the model is told so: for LogWatch no configuration
can beat one thread, and the ten best differ in nothing but the price of their queues.

The fastest of ten is the luckiest of ten, too. So the three fastest and the chosen one run again, taking turns, and the
last column is from those rounds alone: the throughput of the chosen one over that of the fastest. On a machine that
does other things at the same time, or shares its hardware, measured throughputs say more about those than about the
model: "two threads" is how many times the work of one thread two of them got done, at worst, before and after a program
was measured, which is 2 on two free cores. Far below that, a row means nothing.
"""

from __future__ import annotations

import argparse
import gc
import itertools
import os
import random
import statistics
import sys
import threading
import time
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any

sys.path.insert(0, str(Path(__file__).parent))
sys.path.insert(0, str(Path(__file__).parent.parent / "examples"))

import numpy as np

import data
import logwatch
import penstock as pn
from computing import computed
from measuring import report, table
from penstock.compiler.physical import CROWDING, Expected, Group, Machine, Physical, expect
from penstock.compiler.planner import completed, decide, held_shares, with_keys
from penstock.compiler.regions import as_op_graph, find_regions
from penstock.compiler.weights import weigh
from penstock.graph.graph import Graph
from penstock.optimizer.model import Config, ConfigError, Op, Region, can_replicate, normalize, validate_config
from penstock.platforms.calibration import calibrate

BEST = 10
PIPELINES = 4
MOST = 400_000  # tuples of a run
WIDTHS = (1, 2)
STOLEN, AGAIN = 0.05, 3  # a run from which that part of a core is taken away is repeated, up to so many times in all


def _batch(flops: int, modulus: int) -> Callable[[list[float]], list[float]]:
    """So many floating point operations per tuple; then every `modulus`-th number is dropped (none for 0)."""

    def compute(tuples: list[float]) -> list[float]:
        values = np.array(tuples)
        computed(values, flops)
        if modulus:
            values = values[values % modulus != 0]
        kept: list[float] = values.tolist()
        return kept

    return compute


@dataclass(frozen=True)
class Case:
    """A program to measure: `build` makes it anew for so many tuples, with the list that its sink fills."""

    name: str
    build: Callable[[int], tuple[pn.Flow, list[Any]]]


def random_chain(seed: int) -> Case:
    rng = random.Random(seed)
    steps = [(rng.randrange(500, 8000), rng.choice([0, 0, 2, 3, 5])) for _ in range(rng.randint(2, 5))]

    def build(tuples: int) -> tuple[pn.Flow, list[Any]]:
        flow = pn.Flow(f"chain {seed}")
        stream: pn.Stream[Any] = flow.source([float(n) for n in range(tuples)], name="numbers")
        for number, (flops, modulus) in enumerate(steps):
            stream = stream.map_batch(_batch(flops, modulus), name=f"step {number}")
        return flow, stream.collect(name="out")

    return Case(f"chain {seed}: " + " ".join(f"{flops / 1000:.1f}k" for flops, _ in steps), build)


def log_watch() -> Case:
    lines = list(data.log_lines(MOST))

    def build(tuples: int) -> tuple[pn.Flow, list[Any]]:
        results: list[Any] = []
        return logwatch.build(lines[:tuples], results), results

    return Case("LogWatch", build)


# ------------------------------------------------------------------------------------------------------ configurations


def configurations(ops: list[Op]) -> Iterator[Config]:
    """Every valid configuration of up to `PIPELINES` pipelines in `WIDTHS` copies."""
    seen = set()
    for count in range(min(PIPELINES, len(ops))):
        for inner in itertools.combinations(range(1, len(ops)), count):
            ranges = list(itertools.pairwise((0, *inner, len(ops))))
            choices = [WIDTHS if can_replicate(ops[start:stop]) else (1,) for start, stop in ranges]
            for widths in itertools.product(*choices):
                regions = [Region(width, [line]) for width, line in zip(widths, ranges, strict=True)]
                config = normalize(ops, regions)
                try:
                    validate_config(ops, config)
                except ConfigError:
                    continue
                if str(config) not in seen:
                    seen.add(str(config))
                    yield config


def layout(graph: Graph, config: Config) -> tuple[Group, ...]:
    order = graph.topological
    groups = [
        Group(tuple(tuple(order[start:stop]) for start, stop in region.pipelines), region.replicas)
        for region in config.regions
    ]
    return tuple(with_keys(graph, groups))


def quiet_profile(flow: pn.Flow) -> pn.Profile:
    """The least cost of each operator in several profiles: what others do on this machine only ever adds."""
    profiles = [pn.profile(flow, tuples=5_000).operators for _ in range(5)]
    operators = {name: min((found[name] for found in profiles), key=lambda one: one.cost) for name in profiles[0]}
    return pn.Profile(flow.name, operators)


@dataclass(frozen=True)
class Candidate:
    """A configuration, what the model expects of it, and what was measured, round by round."""

    expected: Expected
    config: str
    groups: tuple[Group, ...]
    rates: list[float] = field(default_factory=list)

    @property
    def rate(self) -> float:
        return sorted(self.rates)[3 * len(self.rates) // 4]


def best_configurations(flow: pn.Flow, machine: Machine) -> tuple[list[Candidate], Candidate]:
    """The ten best by the model, costs from a profile of `flow`; and the one of them that the planner chooses."""
    graph = flow.graph()
    profile = quiet_profile(flow)
    chosen = decide(graph, profile, machine).groups
    weights = weigh(graph, completed(graph, profile))
    held = held_shares(graph, profile)
    op_graph = as_op_graph(graph, find_regions(graph), weights)
    ops = [op_graph.ops[index] for index in graph.topological]
    rated = []
    for config in configurations(ops):
        groups = layout(graph, config)
        expected = expect(groups, weights, machine, held)
        assert expected is not None
        rated.append(Candidate(expected, str(config), groups))
    rated.sort(key=lambda one: (-float(f"{one.expected.throughput:.4g}"), sum(group.threads for group in one.groups)))
    same = [one for one in rated if _shape(one.groups) == _shape(chosen)]
    assert same, f"the planner chooses {chosen}, which is no configuration of up to {PIPELINES} pipelines"
    ten = rated[:BEST] if same[0] in rated[:BEST] else [*rated[: BEST - 1], same[0]]
    return ten, same[0]


def _shape(groups: Sequence[Group]) -> list[tuple[tuple[int, ...], int]]:
    """The threads of a layout; regions of one copy that follow each other are pipelines of one."""
    return [(line, group.width) for group in groups for line in group.pipelines]


# ----------------------------------------------------------------------------------------------------------- measuring


def run_once(case: Case, tuples: int, groups: tuple[Group, ...], machine: Machine) -> tuple[float, list[Any]]:
    flow, collected = case.build(tuples)
    plan = replace(pn.plan(flow), physical=Physical(groups, machine))
    gc.collect()
    job = pn.run(flow, on="local", plan=plan)
    return job.metrics().rate, collected


def stolen() -> float:
    """Seconds of processor time that other machines on the same hardware took from this one, as far as it knows."""
    try:
        fields = Path("/proc/stat").read_text(encoding="ascii").split("\n", 1)[0].split()
    except OSError:
        return 0.0
    return float(fields[8]) / os.sysconf("SC_CLK_TCK")


def overlap() -> float:
    """How many times one thread two threads that free the GIL get done here and now; 2 on a quiet machine."""

    def seconds(threads: int) -> float:
        helpers = [threading.Thread(target=computed, args=(np.ones(20_000), 4000)) for _ in range(threads)]
        start = time.perf_counter()
        for helper in helpers:
            helper.start()
        for helper in helpers:
            helper.join()
        return time.perf_counter() - start

    return 2 * min(seconds(1) for _ in range(5)) / min(seconds(2) for _ in range(5))


def take_turns(case: Case, candidates: Sequence[Candidate], tuples: int, machine: Machine, rounds: int) -> None:
    _, wanted = run_once(case, tuples, candidates[0].groups, machine)  # warm
    for _ in range(rounds):
        for one in candidates:
            for _ in range(AGAIN):
                before, start = stolen(), time.perf_counter()
                rate, found = run_once(case, tuples, one.groups, machine)
                if found != wanted:
                    raise AssertionError(f"{case.name}: {one.config} delivers something else")
                if stolen() - before < STOLEN * (time.perf_counter() - start):
                    break
            one.rates.append(rate)


def measure(case: Case, machine: Machine, rounds: int, seconds: float) -> list[str]:
    ten, chosen = best_configurations(case.build(5_000)[0], machine)
    tuples, quiet = min(MOST, int(seconds * chosen.expected.throughput)), overlap()
    take_turns(case, ten, tuples, machine, rounds)
    rows = [
        [
            one.config,
            f"{one.expected.throughput:,.0f}",
            f"{one.rate:,.0f}",
            f"{one.rate / one.expected.throughput:.2f}",
            one.expected.limit,
        ]
        for one in ten
    ]
    headings = ["configuration", "predicted", "measured", "ratio", "held back by"]
    print(table(f"\n{case.name}: tuples/s", headings, rows), flush=True)
    error = statistics.median(abs(one.rate / one.expected.throughput - 1) for one in ten)
    fastest = sorted((one for one in ten if one is not chosen), key=lambda one: -one.rate)[:3]
    again = [replace(one, rates=[]) for one in (chosen, *fastest)]
    take_turns(case, again, tuples, machine, 2 * rounds)
    best = max(again, key=lambda one: one.rate)
    report(f"{case.name}: chosen / best of ten", again[0].rate / best.rate, least=0.9)
    return [
        case.name,
        chosen.config,
        f"{again[0].rate:,.0f}",
        best.config,
        f"{best.rate:,.0f}",
        f"{error:.0%}",
        f"{min(quiet, overlap()):.2f}",
        f"{again[0].rate / best.rate:.2f}",
    ]


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--short", action="store_true", help="fewer tuples and rounds")
    parser.add_argument("--cores", type=int, default=2, help="what the model is told of the machine")
    options = parser.parse_args()
    port = calibrate()["port"]
    machine = Machine(options.cores, port.delta, port.cp, gil=True, keyed_cp=port.keyed_cp, crowding=CROWDING)
    seconds, rounds = (0.15, 3) if options.short else (0.3, 9)
    print(
        f"{options.cores} cores, δ {port.delta * 1e6:.3f} µs, c_p {port.cp * 1e6:.3f} µs; "
        f"the load is {os.getloadavg()[0]:.1f}.\n"
        "Python code of all threads shares one core; how long batch operators free the GIL is in the profile."
    )
    cases = [random_chain(seed) for seed in range(1, 6)] + [log_watch()]
    rows = [measure(case, machine, rounds, seconds) for case in cases]
    headings = ["", "chosen", "measured", "fastest", "measured", "median error", "two threads", "chosen / best"]
    print(table("\nThe model's choice against the best measured, tuples/s", headings, rows))


if __name__ == "__main__":
    main()
