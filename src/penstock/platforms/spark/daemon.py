"""Spark's Python daemon, with what every worker of a job needs loaded before workers are forked from it.

Spark runs it as `python -m penstock.platforms.spark.daemon MODULE`, in sessions that Penstock has started.
"""

from __future__ import annotations

import gc
import sys

from pyspark import daemon

if __name__ == "__main__":
    if sys.argv[1:2] == ["pyspark.worker"]:
        import penstock.platforms.spark.processor
        import penstock.platforms.spark.source  # noqa: F401

        gc.freeze()  # workers collect after every task: they need not look at what was loaded here
    daemon.manager()
