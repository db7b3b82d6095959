"""Documentation is executed: docstring examples, README and guide snippets; the paper map points at real files."""

from __future__ import annotations

import doctest
import importlib
import pkgutil
import re
from pathlib import Path

import pytest

import penstock

ROOT = Path(__file__).parent.parent
MODULES = sorted(module.name for module in pkgutil.walk_packages(penstock.__path__, "penstock."))
SNIPPET = re.compile(r"^```python\n(.*?)^```", re.DOTALL | re.MULTILINE)
PAGES = sorted([ROOT / "README.md", *(ROOT / "docs").glob("*.md")])


@pytest.mark.parametrize("name", MODULES)
def test_docstring_examples_run(name: str) -> None:
    results = doctest.testmod(importlib.import_module(name), optionflags=doctest.ELLIPSIS)
    assert results.failed == 0


@pytest.mark.parametrize("page", PAGES, ids=lambda page: page.name)
def test_snippets_run(page: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """The snippets of a page run in order, in one namespace, in an empty folder."""
    monkeypatch.chdir(tmp_path)
    namespace: dict[str, object] = {}
    text = page.read_text(encoding="utf-8")
    for snippet in SNIPPET.finditer(text):
        line = text[: snippet.start()].count("\n") + 2
        code = compile("\n" * (line - 1) + snippet.group(1), str(page), "exec")
        exec(code, namespace)


def test_the_paper_map_points_at_real_files() -> None:
    text = (ROOT / "docs" / "papers.md").read_text(encoding="utf-8")
    paths = re.findall(r"`((?:src|tests|benchmarks|examples|docs)/[^`]+)`", text)
    assert len(paths) > 20
    missing = [path for path in paths if not (ROOT / path.split("::")[0]).exists()]
    assert not missing
