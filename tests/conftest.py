"""What every test shares: platforms to run on, and a check that nothing is left running or open."""

from __future__ import annotations

import gc
import threading
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest
from hypothesis import HealthCheck, settings

import penstock as pn

pytest.register_assert_rewrite("tests.random_graphs", "tests.runtime.changing", "tests.runtime.running")

settings.register_profile(
    "penstock", deadline=None, suppress_health_check=[HealthCheck.too_slow, HealthCheck.function_scoped_fixture]
)
settings.load_profile("penstock")

RunFlow = Callable[..., pn.Job]


@pytest.fixture(scope="session")
def spark_session() -> Iterator[Any]:
    """One embedded Spark session for the whole suite: starting it takes longer than most tests."""
    from penstock.platforms.spark.session import start_session

    session = start_session("local[2]", {}, None)
    yield session
    session.stop()


@pytest.fixture(params=["local", "spark"])
def platform(request: pytest.FixtureRequest) -> str:
    """Every platform that must give the same output."""
    if request.param == "spark":
        request.getfixturevalue("spark_session")
    return str(request.param)


@pytest.fixture
def run(platform: str) -> RunFlow:
    """Runs a flow to its end on the platform of the test."""

    def run_flow(flow: pn.Flow, **options: Any) -> pn.Job:
        return pn.run(flow, on=platform, **options)

    return run_flow


def _threads() -> set[threading.Thread]:
    return {thread for thread in threading.enumerate() if thread.is_alive()}


def _ours(threads: set[threading.Thread], on_spark: bool) -> set[threading.Thread]:
    """All threads, or on Spark those of Penstock: it names them, unlike the bridge to the JVM."""
    return {thread for thread in threads if not (on_spark and thread.name.startswith("Thread-"))}


def _handles() -> int:
    handles = Path("/proc/self/fd")
    return len(list(handles.iterdir())) if handles.is_dir() else 0


@pytest.fixture(autouse=True)
def nothing_left_behind(request: pytest.FixtureRequest) -> Iterator[None]:
    """No test leaves a thread running or a file open."""
    threads, handles = _threads(), _handles()
    yield
    on_spark = "spark_session" in request.fixturenames or "[spark" in request.node.name
    # Threads end right after the job reports its end: give them a moment, not a fixed sleep.
    limit = time.monotonic() + 5
    while (left := _ours(_threads() - threads, on_spark)) and time.monotonic() < limit:
        for thread in left:
            thread.join(0.05)
    assert not left, f"threads left running: {[thread.name for thread in left]}"
    if _handles() > handles and not on_spark:  # the connections to the JVM come and go
        gc.collect()
        assert _handles() <= handles, "files left open"
