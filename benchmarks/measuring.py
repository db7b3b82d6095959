"""Measuring side by side: every contender several times in turn, so that a noisy machine is noisy for all of them.

A benchmark prints tables of its own, and hands its few most telling numbers to `report`. They go nowhere, unless
`benchmarks/all.py` has started it: that puts those of all benchmarks into one table.
"""

from __future__ import annotations

import gc
import json
import os
import statistics
import sys
import time
from collections.abc import Callable, Mapping
from dataclasses import asdict, dataclass
from pathlib import Path

ROWS = "PENSTOCK_BENCHMARK_ROWS"  # names the file that `report` adds to


@dataclass(frozen=True)
class Contender:
    """Something to measure: `run` does the work once and returns a value that must be equal for all contenders."""

    name: str
    run: Callable[[], object]
    tuples: int


def rates(contenders: list[Contender], rounds: int) -> dict[str, float]:
    """Tuples per second of each contender: the median over `rounds`, the contenders taking turns."""
    seconds: dict[str, list[float]] = {contender.name: [] for contender in contenders}
    for _ in range(rounds):
        for contender in contenders:
            gc.collect()
            start = time.perf_counter()
            contender.run()
            seconds[contender.name].append(time.perf_counter() - start)
    return {c.name: c.tuples / statistics.median(seconds[c.name]) for c in contenders}


def check_equal(results: Mapping[str, object]) -> None:
    """All contenders computed the same, or the comparison means nothing."""
    (first, expected), *others = results.items()
    for name, result in others:
        if result != expected:
            raise AssertionError(f"{name} and {first} disagree: {str(result)[:200]} against {str(expected)[:200]}")


def table(title: str, headings: list[str], rows: list[list[str]], left: int = 1) -> str:
    """Text in columns, the first `left` of them to the left and the others to the right."""
    widths = [max(len(row[i]) for row in [headings, *rows]) for i in range(len(headings))]
    lines = [title]
    for row in [headings, *rows]:
        sized = zip(row, widths, strict=True)
        cells = [cell.ljust(size) if i < left else cell.rjust(size) for i, (cell, size) in enumerate(sized)]
        lines.append(("  " + "  ".join(cells)).rstrip())
    return "\n".join(lines)


# ----------------------------------------------------------------------------------------------------------- reporting


@dataclass(frozen=True)
class Row:
    """A number of a benchmark, and what is asked of it: `least`, `most`, or neither."""

    benchmark: str
    what: str
    value: float
    unit: str = "×"
    least: float | None = None
    most: float | None = None

    @property
    def found(self) -> str:
        """
        >>> Row("engines", "chain / loop", 0.9123).found, Row("latency", "p50", 12, unit=" ms").found
        ('0.91×', '12 ms')
        """
        return _number(self.value, self.unit)

    @property
    def asked(self) -> str:
        """
        >>> Row("engines", "chain / loop", 0.9123, least=0.85).asked, Row("engines", "chain / streamz", 60).asked
        ('≥ 0.85×', '')
        """
        if self.least is not None:
            return f"≥ {_number(self.least, self.unit)}"
        return "" if self.most is None else f"≤ {_number(self.most, self.unit)}"

    @property
    def verdict(self) -> str:
        """
        >>> Row("engines", "chain / loop", 0.8, least=0.85).verdict, Row("latency", "p50", 0.8, most=1).verdict
        ('missed', 'met')
        """
        if self.least is None and self.most is None:
            return ""
        low = self.least is not None and self.value < self.least
        return "missed" if low or (self.most is not None and self.value > self.most) else "met"


def _number(value: float, unit: str) -> str:
    digits = 0 if abs(value) >= 100 else 1 if abs(value) >= 10 else 2
    text = f"{value:,.{digits}f}"
    return (text.rstrip("0").rstrip(".") if "." in text else text) + unit


def report(what: str, value: float, *, unit: str = "×", least: float | None = None, most: float | None = None) -> None:
    """Hand a number to the table that `benchmarks/all.py` prints at its end; without it this does nothing."""
    if ROWS in os.environ:
        row = Row(Path(sys.argv[0]).stem, what, value, unit, least, most)
        with Path(os.environ[ROWS]).open("a", encoding="utf-8") as file:
            file.write(json.dumps(asdict(row)) + "\n")


def reported(path: Path) -> list[Row]:
    """What benchmarks have handed over so far."""
    if not path.exists():
        return []
    return [Row(**json.loads(line)) for line in path.read_text(encoding="utf-8").splitlines()]
