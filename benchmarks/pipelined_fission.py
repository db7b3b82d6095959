"""Pipelined fission by the model: the figures of the paper (003, figs 5–12 and 18) as tables and plots.

    python benchmarks/pipelined_fission.py [--short] [--chains N] [--plots DIR]

Random chains have the parameters of the paper's table 1 (8 operators, 4 cores, costs 200 ± 100, selectivities
0.8 ± 0.4, 40 % stateless, 20 % partitioned, δ = 1, c_p = 50); each figure varies one of them. Costs are normal and at
least 1, selectivities normal and between 0.01 and 1, keys one of three attributes. 1,000 chains a point, 50 with
--short. Every approach gets the same chains. A table shows the mean throughput of the optimum (tuples per 1,000 units
of time) and, for each approach, the mean and the worst ratio to it.

Running times are for as many cores as operators; brute force is checked against the optimum while it is affordable.
LogWatch has the costs of fig 17, in µs. The paper does not print its δ and c_p, but says that 200 δ are 19 µs.

Plots need matplotlib (`pip install matplotlib`).
"""

from __future__ import annotations

import argparse
import itertools
import math
import random
import statistics
import sys
import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from pathlib import Path

sys.path.insert(0, str(Path(__file__).parent))

from measuring import report, table
from penstock.graph.operator import Kind
from penstock.optimizer import (
    Config,
    Op,
    brute_force,
    evaluate,
    fission_only,
    heuristic,
    optimal,
    optimal_with_bound,
    pipelining_only,
    sequential,
)

Search = Callable[..., Config]
APPROACHES: dict[str, Search] = {
    "optimal": optimal,
    "heuristic": heuristic,
    "fission only": fission_only,
    "pipelining only": pipelining_only,
    "sequential": sequential,
}
ASKED = {"optimal": 1.0, "heuristic": 0.95}  # of the optimum


@dataclass(frozen=True)
class Setting:
    """Table 1 of the paper."""

    operators: int = 8
    cores: int = 4
    cost: float = 200
    selectivity: float = 0.8
    stateless: float = 0.4
    partitioned: float = 0.2
    delta: float = 1
    cp: float = 50


@dataclass(frozen=True)
class Figure:
    number: int
    title: str
    parameter: str
    values: Sequence[float]


FIGURES = [
    Figure(5, "selectivity", "selectivity", [0.1 * i for i in range(1, 11)]),
    Figure(6, "operator cost", "cost", [50, 100, 150, 200, 250]),
    Figure(7, "fraction of stateless operators", "stateless", [0.1 * i for i in range(9)]),
    Figure(8, "replication cost factor", "cp", [0, *range(10, 191, 20)]),
    Figure(9, "thread switching overhead", "delta", [1, *range(10, 211, 25)]),
    Figure(10, "number of cores", "cores", list(range(1, 13))),
    Figure(11, "number of operators", "operators", list(range(1, 9))),
]


def random_chain(rng: random.Random, setting: Setting) -> list[Op]:
    ops = []
    for _ in range(setting.operators):
        cost = max(1.0, rng.gauss(setting.cost, 100))
        selectivity = min(1.0, max(0.01, rng.gauss(setting.selectivity, 0.4)))
        kind = rng.random()
        if kind < setting.stateless:
            ops.append(Op(cost, selectivity))
        elif kind < setting.stateless + setting.partitioned:
            ops.append(Op(cost, selectivity, "partitioned", frozenset(rng.choice("abc"))))
        else:
            ops.append(Op(cost, selectivity, "stateful"))
    return ops


def throughput(search: Search, ops: list[Op], setting: Setting) -> float:
    machine = (setting.cores, setting.delta, setting.cp)
    return evaluate(ops, search(ops, *machine), *machine).throughput


def measure(figure: Figure, chains: int) -> dict[str, list[list[float]]]:
    """For each approach and value of the figure's parameter: the throughput of every chain."""
    results: dict[str, list[list[float]]] = {name: [] for name in APPROACHES}
    for value in figure.values:
        setting = replace(Setting(), **{figure.parameter: value})
        rng = random.Random(f"{figure.number} {value}")
        sample = [random_chain(rng, setting) for _ in range(chains)]
        for name, search in APPROACHES.items():
            results[name].append([throughput(search, ops, setting) for ops in sample])
    return results


def figure_table(figure: Figure, results: dict[str, list[list[float]]], chains: int) -> str:
    rows = []
    for i, value in enumerate(figure.values):
        best = results["optimal"][i]
        row = [f"{value:g}", f"{1000 * statistics.fmean(best):.2f}"]
        for name in APPROACHES:
            ratios = [own / most for own, most in zip(results[name][i], best, strict=True)]
            row.append(f"{statistics.fmean(ratios):.3f} ({min(ratios):.2f})")
        rows.append(row)
    title = f"Fig {figure.number}: {figure.title}, {chains} chains a point; ratio to the optimum: mean (worst)"
    return table(title, [figure.parameter, "optimum", *APPROACHES], rows)


def overall(all_results: list[dict[str, list[list[float]]]]) -> str:
    """One line for each approach over all figures."""
    rows = []
    for name in APPROACHES:
        ratios = [
            own / most
            for results in all_results
            for mine, best in zip(results[name], results["optimal"], strict=True)
            for own, most in zip(mine, best, strict=True)
        ]
        rows.append([name, f"{statistics.fmean(ratios):.4f}", f"{min(ratios):.3f}"])
        report(f"{name} / optimum, mean of all figures", statistics.fmean(ratios), least=ASKED.get(name))
    return table("All figures: ratio to the optimum", ["approach", "mean", "worst"], rows)


# -------------------------------------------------------------------------------------------------- running time (12)


def timed(search: Search, chains: list[list[Op]], setting: Setting) -> tuple[float, list[float]]:
    """Milliseconds of CPU a search takes (median), and the throughputs."""
    spent, reached = [], []
    for ops in chains:
        start = time.process_time()
        config = search(ops, setting.cores, setting.delta, setting.cp)
        spent.append(1000 * (time.process_time() - start))
        reached.append(evaluate(ops, config, setting.cores, setting.delta, setting.cp).throughput)
    return statistics.median(spent), reached


def running_time(short: bool) -> tuple[str, list[list[float | None]]]:
    rows, points = [], []
    affordable, repeat = (5, 3) if short else (7, 5)
    for size in (*range(2, 11), 16, 32, 64):
        setting = replace(Setting(), operators=size, cores=size)
        rng = random.Random(size)
        chains = [random_chain(rng, setting) for _ in range(repeat)]
        best_time, best = timed(optimal, chains, setting)
        quick_time, quick = timed(heuristic, chains, setting)
        row = [str(size), f"{best_time:.1f} ms", f"{quick_time:.1f} ms"]
        brute_time = None
        if size <= affordable:
            brute_time, brute = timed(brute_force, chains, setting)
            row += [f"{brute_time:.1f} ms", f"{min(own / most for own, most in zip(best, brute, strict=True)):.6f}"]
        else:
            row += ["", ""]
        row.append(f"{statistics.fmean(own / most for own, most in zip(quick, best, strict=True)):.3f}")
        rows.append(row)
        points.append([size, best_time, quick_time, brute_time])
    headings = ["operators = cores", "optimal", "heuristic", "brute force", "optimal / brute", "heuristic / optimal"]
    return table("Fig 12: running time, median CPU time", headings, rows), points


def long_chains() -> str:
    """Chains beyond the paper's, with selectivity 1 so that the end of the chain matters."""
    rows = []
    for operators, cores in ((64, 64), (1000, 256)):
        for name, stateless, partitioned in (("table 1", 0.4, 0.2), ("10 % stateful", 0.7, 0.2), ("stateless", 1, 0)):
            setting = Setting(operators, cores, stateless=stateless, partitioned=partitioned)
            ops = [replace(op, selectivity=1.0) for op in random_chain(random.Random(name), setting)]
            start = time.process_time()
            solution = optimal_with_bound(ops, cores, setting.delta, setting.cp)
            spent = 1000 * (time.process_time() - start)
            quick = throughput(heuristic, ops, setting) if operators <= 64 else None
            row = [f"{operators} on {cores}, {name}", f"{spent:.0f} ms", f"{100 * solution.gap:.3f} %"]
            row += [f"{solution.throughput / throughput(sequential, ops, setting):.1f}x"]
            row += ["" if quick is None else f"{quick / solution.throughput:.3f}"]
            rows.append(row)
            if operators == 1000:
                report(f"1,000 operators on 256 cores, {name}: CPU time", spent / 1000, unit=" s", most=2)
                report(f"1,000 operators on 256 cores, {name}: gap to the bound", 100 * solution.gap, unit=" %", most=1)
    headings = ["operators on cores", "CPU time", "gap to the proved bound", "over sequential", "heuristic / optimal"]
    return table("Long chains (selectivity 1): optimal", headings, rows)


KINDS: list[tuple[str, Sequence[float]]] = [  # stateless, partitioned, stateful
    ("all kinds alike", (1, 1, 1)),
    ("table 1", (4, 2, 4)),
    ("few stateful", (7, 2, 0.5)),
    ("stateless and keys", (1, 2, 0)),
    ("stateless", (1, 0, 0)),
]


def hard_chain(seed: int, operators: int = 64) -> tuple[list[Op], float, float]:
    """A chain whose end matters as much as its start, with keys and bounds of all sorts; and δ and c_p."""
    rng = random.Random(f"hard {seed}")
    _, shares = KINDS[seed % len(KINDS)]
    least, most = rng.choice([(1, 1), (0.97, 1.03), (0.9, 1), (0.8, 1.2)])
    bounds = rng.choice([[math.inf], [math.inf] * 4 + [1, 1.5, 2, 3, 8, 20, 40]])
    kinds: list[Kind] = rng.choices(["stateless", "partitioned", "stateful"], shares, k=operators)
    ops = [
        Op(
            rng.choice([0, 1, 5, rng.uniform(0, 300), max(0.0, rng.gauss(200, 20))]),
            rng.uniform(least, most),
            kind,
            frozenset(rng.sample("abc", rng.randint(1, 2))),
            rng.choice(bounds),
        )
        for kind in kinds
    ]
    return ops, rng.choice([0, 1, 2, 10, rng.uniform(0, 50)]), rng.choice([0, 1, 10, 20, 50, rng.uniform(0, 100)])


def unusual_chain(seed: int, operators: int = 64) -> tuple[list[Op], float, float]:
    """Like `hard_chain`, with parameters farther off: costs in patterns, δ and c_p over orders of magnitude."""
    rng = random.Random(f"unusual {seed}")
    shares = rng.choice([*(shares for _, shares in KINDS), (0, 1, 0), (20, 1, 1), (1, 20, 1), (30, 0, 1)])
    least, most = rng.choice([(1, 1), (0.999, 1.001), (0.97, 1.03), (0.9, 1), (1, 1.1), (0.5, 2), (0.95, 0.95)])
    bounds = rng.choice([[math.inf], [math.inf] * 20 + [5, 9], [16], [2, 3, 4, 5, 6, 7, 8], [10, 20, 30, 64]])
    keys = rng.choice(["a", "ab", "abc", "abcdef"])
    cost: Callable[[int], float] = rng.choice(
        [
            lambda i: 100.0,
            lambda i: 300 * 2.0 ** -(i % 10),
            lambda i: 1.0 + 4 * i,
            lambda i: 10 * rng.paretovariate(1.0),
            lambda i: 1000.0 if rng.random() < 0.1 else rng.uniform(0, 5),
        ]
    )
    kinds: list[Kind] = rng.choices(["stateless", "partitioned", "stateful"], shares, k=operators)
    ops = [
        Op(
            cost(i),
            rng.uniform(least, most),
            kind,
            frozenset(rng.sample(keys, rng.randint(1, min(3, len(keys))))),
            rng.choice(bounds),
        )
        for i, kind in enumerate(kinds)
    ]
    return ops, rng.choice([0, 10 ** rng.uniform(-6, 2.3)]), rng.choice([0, 10 ** rng.uniform(-6, 2.7)])


def hard_chains(short: bool) -> str:
    """How long `optimal` takes for hard and unusual chains, and the gap that it proves."""
    timed: dict[str, list[tuple[float, float]]] = {}
    for seed in range(50 if short else 300):
        timed.setdefault(f"64 on 64, {KINDS[seed % len(KINDS)][0]}", []).append(_timed(*hard_chain(seed), 64))
    timed["64 on 64, all of these"] = [*itertools.chain(*timed.values())]
    timed["64 on 64, unusual"] = [_timed(*unusual_chain(seed), 64) for seed in range(50 if short else 300)]
    timed["1,000 on 256"] = [_timed(*hard_chain(seed, 1000), 256) for seed in range(5 if short else 40)]
    rows = []
    for name, results in timed.items():
        times = sorted(spent for spent, _ in results)
        parts = [times[min(len(times) - 1, int(part * len(times)))] for part in (0.5, 0.9, 0.95, 0.99, 1)]
        gap = max(gap for _, gap in results)
        rows.append([name, str(len(times)), *(f"{part:.0f} ms" for part in parts), f"{gap:.0e}"])
    for name, most in (("64 on 64, all of these", 100), ("1,000 on 256", 2000)):
        worst = max(spent for spent, _ in timed[name])
        report(f"{name}: worst CPU time of optimal", worst, unit=" ms", most=most)
    title = "Hard chains (keys, bounds, selectivities around 1, all sorts of δ and c_p): CPU time of optimal"
    headings = ["operators on cores", "chains", "median", "90 %", "95 %", "99 %", "worst", "largest gap"]
    return table(title, headings, rows)


def _timed(ops: list[Op], delta: float, cp: float, cores: int) -> tuple[float, float]:
    start = time.process_time()
    solution = optimal_with_bound(ops, cores, delta, cp)
    return 1000 * (time.process_time() - start), solution.gap


# ------------------------------------------------------------------------------------------------------ LogWatch (18)

LOGWATCH = [
    Op(1.52, kind="stateful"),
    Op(3.87),
    Op(15.15),
    Op(9.39, 0.87),
    Op(13.81),
    Op(9.04, 0.20, "partitioned", frozenset({"host"})),
    Op(24.82, 0.99),
    Op(27.04),
    Op(17.33, 0.00027, "partitioned", frozenset({"user"})),
    Op(493.17, kind="stateful"),
]
LOGWATCH_DELTA = 19 / 200
PAPER_SPEEDUP = 9.7


def logwatch() -> tuple[list[str], list[list[float]]]:
    delta, cp = LOGWATCH_DELTA, 10 * LOGWATCH_DELTA
    rows, points = [], []
    for cores in range(1, 13):
        setting = Setting(cores=cores, delta=delta, cp=cp)
        rates = {name: 1e6 * throughput(search, LOGWATCH, setting) for name, search in APPROACHES.items()}
        row = [str(cores), *(f"{rate / 1000:.1f} k/s" for rate in rates.values())]
        row += [f"{rates['optimal'] / rates['sequential']:.2f}x", str(optimal(LOGWATCH, cores, delta, cp))]
        rows.append(row)
        points.append(list(rates.values()))
    first = table(
        f"LogWatch (fig 17's costs), δ = {delta:.3f} µs, c_p = 10 δ",
        ["cores", *APPROACHES, "speed-up", "optimum"],
        rows,
    )
    rows = []
    for factor in (1, 5, 10, 20, 50):
        setting = Setting(cores=12, delta=delta, cp=factor * delta)
        base = throughput(sequential, LOGWATCH, setting)
        speedups = [throughput(search, LOGWATCH, setting) / base for search in APPROACHES.values()]
        rows.append([f"{factor} δ", *(f"{speedup:.2f}x" for speedup in speedups)])
        if factor in (10, 20):
            report(f"LogWatch on 12 cores, c_p {factor} δ: speed-up (paper {PAPER_SPEEDUP}×)", speedups[0])
    title = f"LogWatch, speed-up on 12 cores by c_p; the paper measured {PAPER_SPEEDUP}x"
    return [first, table(title, ["c_p", *APPROACHES], rows)], points


# ------------------------------------------------------------------------------------------------------------- plots


class Plots:
    """Draws into a folder, or nowhere."""

    def __init__(self, folder: Path | None) -> None:
        self.folder = folder
        if folder is None:
            return
        try:
            import matplotlib
        except ImportError:
            sys.exit("--plots needs matplotlib: pip install matplotlib")
        matplotlib.use("Agg")
        folder.mkdir(parents=True, exist_ok=True)

    def draw(
        self,
        name: str,
        labels: tuple[str, str],
        lines: dict[str, tuple[Sequence[float], Sequence[float]]],
        log: bool = False,
    ) -> None:
        if self.folder is None:
            return
        from matplotlib import pyplot

        figure, axes = pyplot.subplots(figsize=(6, 4))
        for label, (xs, ys) in lines.items():
            axes.plot(xs, ys, marker="o", label=label)
        axes.set_xlabel(labels[0])
        axes.set_ylabel(labels[1])
        if log:
            axes.set_yscale("log")
        else:
            axes.set_ylim(bottom=0)
        axes.legend()
        figure.tight_layout()
        figure.savefig(self.folder / f"{name}.png", dpi=120)
        pyplot.close(figure)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--short", action="store_true", help="fewer chains, smaller brute force")
    parser.add_argument("--chains", type=int, help="chains a point")
    parser.add_argument("--plots", type=Path, metavar="DIR", help="draw the figures into this folder")
    options = parser.parse_args()
    chains = options.chains or (50 if options.short else 1000)
    plots = Plots(options.plots)

    everything = []
    for figure in FIGURES:
        results = measure(figure, chains)
        everything.append(results)
        print(figure_table(figure, results, chains), end="\n\n", flush=True)
        means = {name: (figure.values, [statistics.fmean(v) for v in values]) for name, values in results.items()}
        plots.draw(f"fig{figure.number:02}", (figure.title, "throughput"), means)
    print(overall(everything), end="\n\n", flush=True)

    text, points = running_time(options.short)
    print(text, end="\n\n", flush=True)
    lines = {
        name: ([p[0] for p in points if p[i] is not None], [p[i] for p in points if p[i] is not None])
        for i, name in enumerate(["optimal", "heuristic", "brute force"], 1)
    }
    plots.draw("fig12", ("operators = cores", "ms"), lines, log=True)  # type: ignore[arg-type]
    print(long_chains(), end="\n\n", flush=True)
    print(hard_chains(options.short), end="\n\n", flush=True)

    tables, rates = logwatch()
    print("\n\n".join(tables))
    by_approach = {name: (range(1, 13), [point[i] for point in rates]) for i, name in enumerate(APPROACHES)}
    plots.draw("fig18", ("cores", "LogWatch, tuples per second"), by_approach)


if __name__ == "__main__":
    main()
