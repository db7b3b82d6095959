"""Calibrating on Spark: batches of a fixed size are measured. What is made of their times is tested without Spark."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import time
from pathlib import Path
from typing import Any

from penstock.platforms.spark import calibration


def test_batches_of_a_fixed_size_are_measured(spark_session: Any) -> None:
    cores = spark_session.sparkContext.defaultParallelism
    graph = calibration._program(3 * 100 * cores, shuffles=1, width=2, operators=2)
    seconds = calibration._batches(graph, 100, cores)
    assert len(seconds) == 3
    assert all(0 < one < 60 for one in seconds)


def test_a_spark_that_is_interrupted_while_it_starts_is_ended(tmp_path: Path) -> None:
    program = "from penstock.platforms.spark.session import get_session\nget_session('local[1]', None, None)\n"
    environment = {**os.environ, "TMPDIR": str(tmp_path)}
    process = subprocess.Popen(
        [sys.executable, "-c", program], start_new_session=True, stderr=subprocess.DEVNULL, env=environment
    )
    log = tmp_path / f"penstock-spark-{process.pid}.log"
    limit = time.monotonic() + 30
    while not log.exists() and time.monotonic() < limit:
        time.sleep(0.02)
    time.sleep(0.5)  # by now a JVM starts
    os.killpg(process.pid, signal.SIGINT)
    assert process.wait(10) != 0
    limit = time.monotonic() + 10
    while _group_lives(process.pid) and time.monotonic() < limit:
        time.sleep(0.05)
    assert not _group_lives(process.pid)


def _group_lives(group: int) -> bool:
    try:
        os.killpg(group, 0)
    except ProcessLookupError:
        return False
    return True
