"""Submitting a graph to Spark."""

from __future__ import annotations

import contextlib
import signal
import threading
from collections.abc import Iterator
from typing import Any

from penstock.graph.graph import Graph
from penstock.platforms.job import Job
from penstock.platforms.spark.run import SparkOptions, SparkRun

_MOMENT = 0.05  # seconds until an interruption that came while a query was being started is handed on


def submit(graph: Graph, **options: Any) -> Job:
    """Start `graph` on Spark and return at once."""
    run = SparkRun(graph, SparkOptions(**options))
    job = Job(graph.name, run.plan, run)
    with _uninterrupted():
        run.start()
    return job


@contextlib.contextmanager
def _uninterrupted() -> Iterator[None]:
    """Ctrl-C waits until the query has started, and the caller has the job that can be stopped.

    An interruption in the middle would leave the JVM with a query that nobody here knows.
    """
    main = threading.main_thread()
    before = signal.getsignal(signal.SIGINT)
    if threading.current_thread() is not main or before is None:
        yield
        return
    came: list[int] = []
    signal.signal(signal.SIGINT, lambda number, _: came.append(number))
    try:
        yield
    finally:
        signal.signal(signal.SIGINT, before)
        if came:
            timer = threading.Timer(_MOMENT, signal.pthread_kill, [main.ident, signal.SIGINT])
            timer.daemon = True
            timer.start()
