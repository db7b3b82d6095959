"""Penstock on Spark beside hand-written PySpark, in one process and one session (`local[*]`).

    python benchmarks/spark.py [--short] [--only warm|cold|state]

Two programs, both reading a text file to its end:

* logwatch: the ten operators of `examples/logwatch.py`
* region: a running sum per key, then the mean of every ten sums per key, over 1 M rows

Two styles of hand-written PySpark Structured Streaming, kept here to be read:

* per operator: one `mapInPandas` or `transformWithStateInPandas` for each operator, grouped by the operator's key, as
  the documentation shows
* fused: everything stateless in one `mapInArrow`, or left to Spark SQL; state grouped by hash channel instead of by
  key, one pickled value per channel and batch

PySpark does not keep the order of a stream, so the hand-written programs carry a sequence number and sort by it where
state is kept; only then do they compute the same results. What they collect is in no order; Penstock's is the order of
the input. Both styles read their input as a single batch, which is the fastest they can do. Slow contenders get a part
of the rows, and rates are compared.

Warm is the rate of later runs in the same session, the median of several. Cold is the time from the start of the
program, before anything is imported, to the first result in the driver: a fresh process for each, over a small input.
Penstock is measured as it comes, and once more after `penstock prepare`.

State is what a batch costs that touches 1,000 keys of a running count, beside 10,000 and 1 M keys that are in the state
already: from one batch to the next, everything included, the median of several.
"""

from __future__ import annotations

import time

STARTED = time.perf_counter()  # before anything large is imported: for --cold

import argparse  # noqa: E402
import json  # noqa: E402
import os  # noqa: E402
import random  # noqa: E402
import statistics  # noqa: E402
import subprocess  # noqa: E402
import sys  # noqa: E402
import tempfile  # noqa: E402
from collections.abc import Callable  # noqa: E402
from functools import partial  # noqa: E402
from itertools import pairwise  # noqa: E402
from pathlib import Path  # noqa: E402
from typing import Any  # noqa: E402

HERE = Path(__file__).parent
sys.path[:0] = [str(HERE), str(HERE.parent / "examples")]
os.environ["PYTHONPATH"] = os.pathsep.join([*sys.path[:2], os.environ.get("PYTHONPATH", "")])  # for Spark's workers

import spark_by_hand as by_hand  # noqa: E402
from measuring import Contender, check_equal, rates, report, table  # noqa: E402

KEYS = 1000
COLD_ROWS = 20_000
STATE_KEYS, TOUCHED, WARM_BATCHES = (10_000, 1_000_000), 1000, 3
Program = Callable[[Path, Callable[[], None]], list[Any]]  # input, called at the first result: all results

# --------------------------------------------------------------------------------------------------------------- data


def write_log(path: Path, lines: int) -> None:
    """A log with break-ins, as examples/logwatch.py reads it."""
    import data

    with path.open("w") as file:
        file.writelines(f"{line}\n" for line in data.log_lines(lines))


def write_rows(path: Path, rows: int) -> None:
    """Rows of 1,000 keys, numbered."""
    with path.open("w") as file:
        for n in range(rows):
            file.write(f'{{"seq": {n}, "key": "k{n * 7919 % KEYS}", "value": {n % 97}}}\n')


# ----------------------------------------------------------------------------------------------------------- penstock


class FirstSeen(list[Any]):
    """A list that tells when it gets its first element."""

    def __init__(self, on_first: Callable[[], None]) -> None:
        super().__init__()
        self._on_first = on_first

    def take(self, item: Any) -> None:
        if not self:
            self._on_first()
        self.append(item)


def logwatch_penstock(path: Path, on_first: Callable[[], None]) -> list[Any]:
    import logwatch
    import penstock as pn

    found = FirstSeen(on_first)
    pn.run(logwatch.build(pn.files.lines(path), found.take), on="spark")
    return [tuple(attack) for attack in found]


def running_sum(total: int, row: dict[str, Any]) -> tuple[int, dict[str, Any]]:
    total += row["value"]
    return total, {"key": row["key"], "sum": total}


def region_flow(path: Path, results: Any) -> Any:
    import penstock as pn

    flow = pn.Flow("region")
    rows = flow.source(pn.files.jsonl(path))
    with flow.parallel(width=2, by="key"):
        sums = rows.key_by("key").scan(running_sum, init=0, name="Sums")
        means = (
            sums.key_by("key").window(pn.tumbling(count=by_hand.WINDOW)).aggregate(mean=pn.mean("sum"), name="Means")
        )
    means.sink(results, name="Results")
    return flow


def region_penstock(path: Path, on_first: Callable[[], None]) -> list[Any]:
    import penstock as pn

    found = FirstSeen(on_first)
    pn.run(region_flow(path, found.take), on="spark")
    return [(window["key"], window["mean"]) for window in found]


# ----------------------------------------------------------------------------------------------------------- measuring

PROGRAMS: dict[str, tuple[Callable[[Path, int], None], dict[str, Program]]] = {
    "logwatch": (
        write_log,
        {"penstock": logwatch_penstock, "per operator": by_hand.logwatch_per_operator, "fused": by_hand.logwatch_fused},
    ),
    "region": (
        write_rows,
        {"penstock": region_penstock, "per operator": by_hand.region_per_operator, "fused": by_hand.region_fused},
    ),
}
PART = {"per operator": 5}


def make_input(folder: Path, program: str, rows: int) -> Path:
    """A file of its own folder: Spark reads folders."""
    path = folder / program / str(rows) / "input.txt"
    if not path.exists():
        path.parent.mkdir(parents=True)
        PROGRAMS[program][0](path, rows)
    return path


def cpu_seconds() -> float:
    """Processor time of this process and all below it: says more than the clock on a machine with other users."""
    stats = {}
    for folder in Path("/proc").glob("[0-9]*"):
        try:
            fields = (folder / "stat").read_text().rpartition(")")[2].split()
        except OSError:
            continue  # it has ended
        stats[int(folder.name)] = (int(fields[1]), sum(map(int, fields[11:15])))
    ours, found = {os.getpid()}, True
    while found:
        found = {pid for pid, (parent, _) in stats.items() if parent in ours} - ours
        ours |= found
    return sum(stats[pid][1] for pid in ours) / os.sysconf("SC_CLK_TCK")


def cold(program: str, contender: str, path: Path) -> tuple[float, float]:
    """Seconds from the start of this process to the first result, and processor seconds."""
    first: list[tuple[float, float]] = []
    PROGRAMS[program][1][contender](path, lambda: first.append((time.perf_counter() - STARTED, cpu_seconds())))
    return first[0]


def warm_table(folder: Path, rows: int, rounds: int) -> str:
    """Rows per second of later runs in one session; the first run of each also shows that all agree."""
    lines = []
    for program, (_, contenders) in PROGRAMS.items():
        small = make_input(folder, program, COLD_ROWS)
        check_equal({name: sorted(map(str, run(small, _nothing))) for name, run in contenders.items()})
        entries = []
        for name, run in contenders.items():
            count = rows // PART.get(name, 1)
            entries.append(Contender(name, partial(run, make_input(folder, program, count), _nothing), count))
        got = rates(entries, rounds)
        for name, least in (("per operator", 3.0), ("fused", 0.9)):
            report(f"{program}, warm / by hand, {name}", got["penstock"] / got[name], least=least)
        ratios = [f"{got['penstock'] / got[name]:.2f}×" for name in ("per operator", "fused")]
        lines.append([program, *(f"{got[name] / 1e3:.0f}" for name in contenders), *ratios])
    headings = ["k rows/s", "penstock", "per operator", "fused", "/per operator", "/fused"]
    return table(f"Spark, warm, {rows / 1e6:g} M rows, median of {rounds}", headings, lines)


def cold_run(program: str, contender: str, path: Path, cache: Path) -> float:
    """The same in a fresh process; `cache` takes the place of the user's cache folder."""
    command = [sys.executable, __file__, "--cold", program, contender, str(path)]
    environment = {**os.environ, "XDG_CACHE_HOME": str(cache)}
    shown = subprocess.run(command, capture_output=True, text=True, check=True, env=environment).stdout
    return float(json.loads(shown.splitlines()[-1])[0])


def cold_table(folder: Path, rounds: int) -> str:
    """Seconds from the start of a fresh process to its first result."""
    lines = []
    empty, prepared = folder / "empty", folder / "prepared"
    subprocess.run(
        [sys.executable, "-m", "penstock.cli.main", "prepare"],
        check=True,
        env=os.environ | {"XDG_CACHE_HOME": str(prepared)},
    )
    for program, (_, contenders) in PROGRAMS.items():
        path = make_input(folder, program, COLD_ROWS)
        seconds: dict[str, list[float]] = {name: [] for name in (*contenders, "prepared")}
        for _ in range(rounds):
            for name, times in seconds.items():
                chosen, cache = ("penstock", prepared) if name == "prepared" else (name, empty)
                times.append(cold_run(program, chosen, path, cache))
        middle = {name: statistics.median(times) for name, times in seconds.items()}
        for name in ("per operator", "fused"):
            report(
                f"{program}, seconds to the first result / by hand, {name}", middle["penstock"] / middle[name], most=1.0
            )
        ratios = [f"{middle['penstock'] / middle[name]:.2f}×" for name in ("per operator", "fused")]
        lines.append([program, *(f"{middle[name]:.1f}" for name in seconds), *ratios])
    headings = ["seconds", "penstock", "per operator", "fused", "prepared", "/per operator", "/fused"]
    return table(f"Spark, start of the program to first result, median of {rounds}", headings, lines)


# --------------------------------------------------------------------------------------------------------------- state


def count_up(count: int, key: int) -> tuple[int, tuple[int, int]]:
    return count + 1, (key, count + 1)


def batch_seconds(keys: int, batches: int) -> list[float]:
    """What each batch takes that touches 1,000 keys, any of `keys` that have been met before."""
    import penstock as pn

    class Rounds(pn.Source):
        """All keys once, then TOUCHED of them whenever everything given before has been delivered."""

        def __init__(self) -> None:
            self.delivered = 0
            self.given: list[float] = []
            self._waiting = list(range(keys))
            self._choose = random.Random(keys)

        def initial(self) -> Any:
            return 0

        def read(self, offset: Any, limit: int) -> pn.Batch:
            if not self._waiting and self.delivered >= offset:
                self.given.append(time.perf_counter())
                if len(self.given) > batches:
                    return pn.Batch([], offset, done=True)
                self._waiting = self._choose.sample(range(keys), TOUCHED)
            tuples, self._waiting = self._waiting[:limit], self._waiting[limit:]
            return pn.Batch(tuples, offset + len(tuples))

        def take(self, item: Any) -> None:
            self.delivered += 1

    rounds = Rounds()
    flow = pn.Flow("state")
    flow.source(rounds).key_by(abs).scan(count_up, init=0).sink(rounds.take)
    pn.run(flow, on="spark", conf={"penstock.item.tuples": str(keys), "penstock.batch.items": "1"})
    return [later - earlier for earlier, later in pairwise(rounds.given)]


def state_table(batches: int) -> str:
    """What a batch costs beside a small and a large state."""
    batch_seconds(TOUCHED, WARM_BATCHES)  # starts Spark
    seconds = [statistics.median(batch_seconds(keys, WARM_BATCHES + batches)[WARM_BATCHES:]) for keys in STATE_KEYS]
    headings = ["seconds", *(f"{keys:,} keys" for keys in STATE_KEYS), "ratio"]
    report("a batch that touches 1,000 keys: 1 M keys / 10,000 keys in state", seconds[1] / seconds[0], most=2.0)
    line = ["batch", *(f"{each:.2f}" for each in seconds), f"{seconds[1] / seconds[0]:.2f}×"]
    return table(f"Spark, a batch that touches {TOUCHED:,} keys, median of {batches}", headings, [line])


def _nothing() -> None:
    """Nobody waits for the first result."""


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--short", action="store_true", help="200,000 rows, one round; the default has 1 M and three")
    parser.add_argument("--only", choices=("warm", "cold", "state"), help="one table only")
    arguments = parser.parse_args()
    rows, rounds = (200_000, 1) if arguments.short else (1_000_000, 3)
    with tempfile.TemporaryDirectory() as folder:
        if arguments.only in (None, "cold"):
            print(cold_table(Path(folder), rounds), flush=True)
        if arguments.only in (None, "warm"):
            print(warm_table(Path(folder), rows, rounds), flush=True)
        if arguments.only in (None, "state"):
            print(state_table(batches=5 if arguments.short else 15), flush=True)


if __name__ == "__main__":
    if sys.argv[1:2] == ["--cold"]:
        print(json.dumps(cold(sys.argv[2], sys.argv[3], Path(sys.argv[4]))), flush=True)
    else:
        main()
