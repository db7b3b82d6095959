"""Submitting a graph to Spark, and the plan it will run by."""

from __future__ import annotations

import os
from typing import Any

from penstock.graph.graph import Graph
from penstock.platforms.job import Job
from penstock.platforms.spark.explain import SparkPlan
from penstock.platforms.spark.program import make_program
from penstock.platforms.spark.run import SparkOptions, SparkRun


def plan(graph: Graph, cores: int | None) -> SparkPlan:
    """How Spark would run `graph` on `cores` cores (those of this machine by default). Nothing is started."""
    return SparkPlan(make_program(graph, "plan", cores or os.cpu_count() or 1))


def submit(graph: Graph, **options: Any) -> Job:
    """Start `graph` on Spark and return at once."""
    run = SparkRun(graph, SparkOptions(**options))
    job = Job(graph.name, SparkPlan(run.program), run)
    run.start()
    return job
