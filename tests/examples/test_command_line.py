"""Every example runs by the command its docstring names, prints something, and explains itself."""

from __future__ import annotations

import ast
import os
import subprocess
import sys
from pathlib import Path

import pytest

from tests.examples.conftest import REPOSITORY

EXAMPLES = REPOSITORY / "examples"
PRINTS = {
    "logwatch": "break-in as",
    "wordcount": "the",
    "cdr": "5 min  Ada",
    "vwap": "below the average",
    "wikiwords": "times  eclipse",
    "packets": "may be a tunnel",
}


def penstock(tmp_path: Path, *arguments: str) -> str:
    environment = {
        **os.environ,
        "PYTHONPATH": str(REPOSITORY / "src"),
        "PYTHONIOENCODING": "utf-8",
        "LOGWATCH_LINES": "20000",
        "CDR_OUTPUT": str(tmp_path / "calls.jsonl"),
    }
    command = [sys.executable, "-m", "penstock.cli.main", *arguments]
    done = subprocess.run(
        command, cwd=REPOSITORY, env=environment, capture_output=True, encoding="utf-8", timeout=60, check=False
    )
    assert done.returncode == 0, done.stderr
    return done.stdout


def test_no_example_is_forgotten() -> None:
    assert {path.stem for path in EXAMPLES.glob("*.py")} == {*PRINTS, "data"}


@pytest.mark.parametrize("example", PRINTS)
def test_runs_and_prints(example: str, tmp_path: Path) -> None:
    assert PRINTS[example] in penstock(tmp_path, "run", f"examples/{example}.py", "--on", "local")


def test_plan_of_the_calls_names_every_operator(tmp_path: Path) -> None:
    plan = penstock(tmp_path, "plan", "examples/cdr.py")
    for operator in ("Customers", "Calls", "UniqueCalls", "Enriched", "Stats", "Dashboard", "Database"):
        assert operator in plan


@pytest.mark.parametrize("example", PRINTS)
def test_docstring_says_how_to_run_it(example: str) -> None:
    tree = ast.parse((EXAMPLES / f"{example}.py").read_text(encoding="utf-8"))
    assert f"penstock run examples/{example}.py --on local" in (ast.get_docstring(tree) or "")
