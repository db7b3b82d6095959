"""`penstock prepare`: one short run on Spark whose JVM leaves an archive of its classes for later ones."""

from __future__ import annotations

import contextlib
from typing import Any

from penstock.graph.flow import Flow
from penstock.platforms.spark.class_archive import recording
from penstock.platforms.spark.run import SparkOptions, SparkRun
from penstock.platforms.spark.session import start_session

_PATIENCE = 300  # seconds for writing the archive


def prepare() -> None:
    """Run a small program on an embedded Spark and wait until its JVM has ended."""
    with recording():
        session = start_session("local[*]", {}, None)
    try:
        flow = Flow("prepare")
        flow.source(range(100)).key_by(lambda n: n % 3).scan(lambda s, n: (s + n, s), init=0).collect()
        run = SparkRun(flow.graph(), SparkOptions(spark=session))
        run.start()
        run.wait()
    finally:
        jvm = session.sparkContext._gateway.proc  # noqa: SLF001  # nothing public leads to the process
        session.stop()
        _end(jvm)


def _end(jvm: Any) -> None:
    """Close the pipe the JVM listens to, which ends it, and wait for that."""
    with contextlib.suppress(OSError):
        jvm.stdin.close()
    jvm.wait(_PATIENCE)
