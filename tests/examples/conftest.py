"""Makes the examples importable, as scripts beside each other are, and finds real data outside the repository."""

from __future__ import annotations

import sys
from collections.abc import Callable
from pathlib import Path

import pytest

REPOSITORY = Path(__file__).resolve().parents[2]
SHARED_DATA = REPOSITORY.parent / "shared" / "data"

sys.path.insert(0, str(REPOSITORY / "examples"))


@pytest.fixture
def platform() -> str:
    """The rules of each program are tested locally; `test_on_spark.py` compares the platforms."""
    return "local"


@pytest.fixture
def real_data() -> Callable[[str], Path]:
    """The path of a file of real data; the test is skipped where it is absent."""

    def find(name: str) -> Path:
        path = SHARED_DATA / name
        if not path.exists():
            pytest.skip(f"real data is not at hand: {path}")
        return path

    return find
