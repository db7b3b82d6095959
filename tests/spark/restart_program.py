"""A program to be killed: `python restart_program.py FOLDER LINES [--on local] [--die POINT:N]`.

Two sources of different length, stateless operators, a keyed scan and window, an un-keyed window and a barrier of both
sources; a file that is replaced, one that is appended to, and collected lists, written to a file at the end.

`--die` lets the process kill itself and its whole process group with SIGKILL, exactly when the N-th call of an internal
function begins or has returned: the windows of time that a kill from outside would hardly ever meet.
"""

from __future__ import annotations

import argparse
import json
import os
import signal
import threading
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import penstock as pn

NUMBERS = 203
CONF = {
    "penstock.item.tuples": "10",
    "penstock.item.bytes": "64",
    "penstock.batch.items": "3",
    # The JVM lives for seconds: do not optimise what runs a few times only.
    "spark.driver.extraJavaOptions": "-XX:TieredStopAtLevel=1 -XX:+UseSerialGC",
}


def numbers() -> Iterator[int]:
    yield from range(NUMBERS)


def add(total: int, event: dict[str, Any]) -> tuple[int, dict[str, Any]]:
    return total + event["n"], {**event, "total": total + event["n"]}


def parse(line: str) -> dict[str, Any]:
    host, n = line.split()
    return {"host": host, "n": int(n)}


def build(folder: Path, lines: Path) -> tuple[pn.Flow, dict[str, list[Any]]]:
    """The flow, and the lists it fills."""
    flow = pn.Flow("restart")
    events = flow.source(pn.files.lines(lines), name="lines").map(parse).filter(lambda event: event["n"] % 5 != 0)
    by_host = events.key_by("host")
    by_host.scan(add, init=0).sink(pn.files.write(folder / "totals.jsonl", mode="append"), name="totals")
    hosts = by_host.window(pn.tumbling(count=4, partial=True)).aggregate(n=pn.count(), sum=pn.sum("n")).collect()
    odd = flow.source(numbers, name="numbers").flat_map(lambda n: [n] * (n % 3)).map(lambda n: 2 * n + 1)
    sums = odd.window(pn.tumbling(count=7, partial=True)).apply(sum)
    sums.sink(pn.files.write(folder / "sums.jsonl"), name="sums")
    pairs = odd.barrier(events.map(lambda event: event["n"])).collect()
    return flow, {"hosts": hosts, "pairs": pairs}


def results(folder: Path, lists: dict[str, list[Any]]) -> dict[str, Any]:
    """Everything the program delivered, in a form that can be compared."""
    by_host: dict[str, list[Any]] = {}  # what keyed windows release at the end is ordered per key
    for row in lists["hosts"]:
        by_host.setdefault(row["host"], []).append([row["n"], row["sum"]])
    return {
        "hosts": by_host,
        "pairs": [list(pair) for pair in lists["pairs"]],
        "totals": (folder / "totals.jsonl").read_text().splitlines(),
        "sums": (folder / "sums.jsonl").read_text().splitlines(),
    }


# ------------------------------------------------------------------------------------------------------------- dying


def points() -> dict[str, tuple[Any, str, bool]]:
    """Where the program can be killed: a class or module, its function, and whether once it has returned."""
    from penstock.connectors.file_writing import FileSink
    from penstock.platforms.spark.checkpoint import Checkpoint
    from penstock.platforms.spark.delivery import FileDelivery, ListDelivery
    from penstock.platforms.spark.run import SparkRun
    from penstock.platforms.spark.spool import Spool

    return {
        "cut": (Spool, "cut", True),  # the cuts are written down, no item is
        "item": (Spool, "append", True),  # an item is there, the next is not
        "half item": (Path, "replace", False),  # something is written beside its place
        "end": (Spool, "end", False),  # the last item is there, the mark of the end is not
        "batch": (SparkRun, "_deliver", False),  # planned, not executed
        "executed": (SparkRun, "_deliver_rows", False),  # states are written, nothing is delivered
        "note": (FileDelivery, "_save_note", True),  # the file's length is noted, nothing is written
        "file": (FileDelivery, "_append", True),  # one file has the batch, other sinks do not
        "list": (ListDelivery, "write", True),
        "finals": (Checkpoint, "note_finals", True),  # delivered with the end of a source
        "delivered": (SparkRun, "_deliver_rows", True),  # delivered, not committed
        "committed": (SparkRun, "_close_sinks", False),  # the last batch is committed, files are not in place
        "copy": (FileSink, "copy", False),
        "in place": (Checkpoint, "set_complete", False),  # files are in place, the mark is missing
    }


def die_at(point: str, count: int) -> None:
    """Kill the process group at the `count`-th time that `point` is reached."""
    owner, name, after = points()[point]
    original: Callable[..., Any] = getattr(owner, name)
    calls = 0
    lock = threading.Lock()

    def fatal(*arguments: Any, **named: Any) -> Any:
        nonlocal calls
        with lock:
            calls += 1
            now = calls == count
        if now and not after:
            os.killpg(os.getpgid(0), signal.SIGKILL)
        result = original(*arguments, **named)
        if now:
            os.killpg(os.getpgid(0), signal.SIGKILL)
        return result

    setattr(owner, name, fatal)


def main() -> None:
    parser = argparse.ArgumentParser()
    parser.add_argument("folder", type=Path)
    parser.add_argument("lines", type=Path)
    parser.add_argument("--on", default="spark")
    parser.add_argument("--die")
    given = parser.parse_args()
    if given.die:
        point, _, count = given.die.partition(":")
        die_at(point, int(count))
    flow, lists = build(given.folder, given.lines)
    options = {"master": "local[2]", "checkpoint": given.folder / "checkpoint", "conf": CONF}
    pn.run(flow, on=given.on, **(options if given.on == "spark" else {}))
    (given.folder / "result.json").write_text(json.dumps(results(given.folder, lists)))


if __name__ == "__main__":
    main()
