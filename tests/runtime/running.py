"""What tests of running programs share: threading models, sinks that take notes, waiting for what must happen."""

from __future__ import annotations

import threading
import time
from collections.abc import Callable
from typing import Any

import pytest

import penstock as pn
from penstock.clock import ManualClock
from tests.runtime.forcing import LONG


def each_of(options: list[dict[str, Any]]) -> pytest.MarkDecorator:
    """A test that runs once with each of these options of `pn.run`."""
    return pytest.mark.parametrize(
        "options", options, ids=lambda chosen: "-".join(str(value) for value in chosen.values())
    )


models = each_of(
    [
        {"threading": "manual"},
        {"threading": "dedicated", "queue": 1},
        {"threading": "dedicated"},
        {"threading": "dynamic", "threads": 1, "queue": 1},
        {"threading": "dynamic", "threads": 2, "queue": 5, "quantum": 1e-6},
        {"threading": "dynamic", "threads": 6},
    ]
)


def until(true: Callable[[], bool]) -> None:
    """Wait for what must happen, where nothing tells that it has."""
    limit = time.monotonic() + LONG
    while not true():
        assert time.monotonic() < limit, "never happened"
        time.sleep(0.001)


def advance_until(clock: ManualClock, true: Callable[[], bool]) -> None:
    def advanced() -> bool:
        clock.advance(10)
        return true()

    until(advanced)


class Threads:
    """The threads that come after this was made."""

    def __init__(self) -> None:
        self._before = set(threading.enumerate())

    def join(self) -> None:
        """Wait until all of them have ended: from then on nothing can happen any more."""
        for thread in set(threading.enumerate()) - self._before:
            thread.join(LONG)
            assert not thread.is_alive(), f"{thread.name} does not end"


class Recording:
    """A sink that notes how it was used."""

    def __init__(self) -> None:
        self.tuples: list[Any] = []
        self.calls: list[str] = []

    def open(self) -> None:
        self.calls.append("open")

    def write(self, chunk: list[Any]) -> None:
        assert self.calls == ["open"]
        self.tuples += chunk

    def close(self, failed: bool = False) -> None:
        self.calls.append("failed" if failed else "closed")


class Noting(pn.Operator):
    closed: list[str] = []  # noqa: RUF012  # shared by all copies

    def __init__(self, closed: list[str]) -> None:
        type(self).closed = closed

    def process(self, t: Any, port: int) -> Any:
        return t

    def close(self) -> None:
        self.closed.append("closed")
