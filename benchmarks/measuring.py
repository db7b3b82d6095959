"""Measuring side by side: every contender several times in turn, so that a noisy machine is noisy for all of them."""

from __future__ import annotations

import gc
import statistics
import time
from collections.abc import Callable, Mapping
from dataclasses import dataclass


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


def table(title: str, headings: list[str], rows: list[list[str]]) -> str:
    """Text in columns, the first left and the others right."""
    widths = [max(len(row[i]) for row in [headings, *rows]) for i in range(len(headings))]
    lines = [title]
    for row in [headings, *rows]:
        cells = [row[0].ljust(widths[0]), *(cell.rjust(width) for cell, width in zip(row[1:], widths[1:], strict=True))]
        lines.append("  " + "  ".join(cells))
    return "\n".join(lines)
