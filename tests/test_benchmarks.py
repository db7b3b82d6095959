"""What `make bench` makes of its benchmarks: one table, and an exit code that tells of those that failed."""

from __future__ import annotations

import doctest
import importlib
import sys
from pathlib import Path
from typing import Any

import pytest

BENCHMARKS = Path(__file__).parent.parent / "benchmarks"


@pytest.fixture
def module(monkeypatch: pytest.MonkeyPatch) -> Any:
    """benchmarks/all.py, with a benchmark that reports and another one that fails."""
    monkeypatch.syspath_prepend(str(BENCHMARKS))
    found = importlib.import_module("all")
    monkeypatch.setattr(found, "BENCHMARKS", ["good", "bad"])
    return found


def test_a_benchmark_that_fails_does_not_stop_the_others(
    module: Any, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    start = f"import sys\nsys.path.insert(0, {str(BENCHMARKS)!r})\nfrom measuring import report\n"
    (tmp_path / "bad.py").write_text(start + "report('slow', 0.25, least=1)\nsys.exit(3)\n")
    (tmp_path / "good.py").write_text(start + "report('fast', 2.5, least=2)\nreport('small', 12, unit=' MB')\n")
    monkeypatch.setattr(module, "HERE", tmp_path)
    monkeypatch.setattr(sys, "argv", ["all.py", "--short", "--only", "bad,good"])
    assert module.main() == module.FAILED
    title, headings, *rows, took = capsys.readouterr().out.strip().splitlines()
    assert title == "All benchmarks"
    assert headings.split() == ["benchmark", "what", "found", "asked"]
    assert [row.split() for row in rows] == [
        ["bad", "slow", "0.25×", "≥", "1×", "missed"],
        ["good", "fast", "2.5×", "≥", "2×", "met"],
        ["good", "small", "12", "MB"],
        ["bad", "FAILED", "with", "exit", "code", "3"],
    ]
    assert took.startswith("  in ")


def test_numbers_as_people_read_them(module: Any) -> None:
    assert doctest.testmod(sys.modules["measuring"]).failed == 0
