"""Every benchmark one after the other, with its own tables; and at the end one table of the most telling numbers.

    python benchmarks/all.py [--short] [--only engines,latency]

The short version takes about half an hour on two cores. Progress goes to standard error. A benchmark that fails
does not stop the others; the exit code says so at the end. What is asked is asked of a machine that does nothing else:
"missed" on a busy one means little.
"""

from __future__ import annotations

import argparse
import os
import subprocess
import sys
import tempfile
import time
from pathlib import Path

sys.path.insert(0, str(Path(__file__).parent))

from measuring import ROWS, Row, reported, table

HERE = Path(__file__).parent
BENCHMARKS = ["engines", "memory", "latency", "threading_models", "policies", "pipelined_fission", "model_accuracy"]
BENCHMARKS += ["spark", "spark_pipelines"]
# What the short version leaves out, and why: a dozen starts of Spark, and a state of a million keys, take too long.
SHORT = {"spark": ["--only", "warm"]}
FAILED, INTERRUPTED = 1, 130


def run(name: str, arguments: list[str], rows: Path) -> int:
    """One benchmark in a process of its own, its output as it comes; returns its exit code."""
    command = [sys.executable, str(HERE / f"{name}.py"), *arguments]
    return subprocess.run(command, env={**os.environ, ROWS: str(rows)}, check=False).returncode


def summary(rows: list[Row], seconds: dict[str, float], failed: dict[str, int], short: bool) -> str:
    """The one table, and a line for each benchmark that failed."""
    lines = [[row.benchmark, row.what, row.found, row.asked, row.verdict] for row in rows]
    lines += [[name, f"FAILED with exit code {code}", "", "", ""] for name, code in failed.items()]
    took = ", ".join(f"{name} {_minutes(spent)}" for name, spent in seconds.items())
    text = table("All benchmarks", ["benchmark", "what", "found", "asked", ""], lines, left=2)
    if short:
        text += "".join(f"\n  (short: {name} with {' '.join(SHORT[name])})" for name in seconds if name in SHORT)
    return f"{text}\n  in {_minutes(sum(seconds.values()))}: {took}"


def _minutes(seconds: float) -> str:
    return f"{seconds:.0f} s" if seconds < 100 else f"{seconds / 60:.1f} min"


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--short", action="store_true", help="fewer tuples and rounds")
    parser.add_argument("--only", default=",".join(BENCHMARKS), help="names of benchmarks, with commas between them")
    options = parser.parse_args()
    names = options.only.split(",")
    if unknown := sorted(set(names) - set(BENCHMARKS)):
        parser.error(f"there is no benchmark {unknown[0]!r}; there are {', '.join(BENCHMARKS)}")
    seconds: dict[str, float] = {}
    failed: dict[str, int] = {}
    code = 0
    with tempfile.TemporaryDirectory() as folder:
        rows = Path(folder) / "rows"
        for number, name in enumerate(names, 1):
            print(f"--- {name} ({number} of {len(names)}, {_minutes(sum(seconds.values()))} so far)", file=sys.stderr)
            sys.stderr.flush()
            start = time.monotonic()
            try:
                ended = run(name, ["--short", *SHORT.get(name, [])] if options.short else [], rows)
            except KeyboardInterrupt:
                code = INTERRUPTED
                break
            seconds[name] = time.monotonic() - start
            if ended:
                failed[name] = ended
            print(flush=True)
        print(summary(reported(rows), seconds, failed, options.short))
    return code or (FAILED if failed else 0)


if __name__ == "__main__":
    sys.exit(main())
