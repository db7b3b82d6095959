"""Imports point down (DESIGN §3)."""

from __future__ import annotations

import ast
from collections.abc import Iterator
from pathlib import Path

import pytest

PACKAGE = Path(__file__).parent.parent / "src" / "penstock"

LAYERS = [
    {"errors", "clock", "tuples"},
    {"graph"},
    {"operators", "windows", "connectors"},
    {"compiler", "optimizer", "elasticity"},
    {"runtime", "consistency", "transport"},
    {"platforms"},
    {"simulator", "cli", "dashboard", "testing"},
]
RANK = {name: rank for rank, layer in enumerate(LAYERS) for name in layer}
FILES = sorted(path for path in PACKAGE.rglob("*.py") if path != PACKAGE / "__init__.py")


def _imported(path: Path) -> Iterator[tuple[int, str]]:
    for node in ast.walk(ast.parse(path.read_text(encoding="utf-8"))):
        names = []
        if isinstance(node, ast.Import):
            names = [alias.name for alias in node.names]
        elif isinstance(node, ast.ImportFrom):
            assert node.level == 0, f"{path}:{node.lineno} imports relatively"
            names = [
                f"{node.module}.{alias.name}" if node.module == "penstock" else str(node.module) for alias in node.names
            ]
        yield from ((node.lineno, name) for name in names if name.split(".")[0] in ("penstock", "pyspark"))


@pytest.mark.parametrize("path", FILES, ids=lambda path: str(path.relative_to(PACKAGE)))
def test_imports_point_down(path: Path) -> None:
    layer = path.relative_to(PACKAGE).parts[0].removesuffix(".py")
    for line, name in _imported(path):
        if name.startswith("pyspark"):
            assert "spark" in path.parts, f"{path}:{line} imports pyspark outside platforms/spark"
            continue
        target = name.split(".")[1]
        assert target in RANK, f"{path}:{line} imports {name}, which belongs to no layer"
        assert RANK[target] <= RANK[layer], f"{path}:{line}: {layer} must not import {target}"


def test_every_package_has_a_layer() -> None:
    found = {path.name.removesuffix(".py") for path in PACKAGE.iterdir() if not path.name.startswith(("_", "py.typed"))}
    assert found <= set(RANK)
