"""Penstock: elastic stream processing for Python.

A program is written once, as sequential operators on ordered streams; Penstock decides how to run it.

The layers, each importing only from those before it:

    errors, clock, tuples          words that everything uses
    graph                          what the user said: flows, streams, operators, keys, annotations
    operators, windows, connectors what operators do, how streams are cut, where tuples come from and go to
    compiler, optimizer            segments and generated code; profiles
    runtime                        threads that run segments: ports, turns, the scheduler, locks, timers, the profiler
    platforms                      local (and Spark): jobs
    cli                            the `penstock` command
"""

from __future__ import annotations

from penstock import errors
from penstock.clock import ManualClock
from penstock.compiler.plan import Plan
from penstock.connectors import files
from penstock.connectors.base import Batch, Sink, Source
from penstock.connectors.generators import beacon
from penstock.errors import (
    Cancelled,
    FlowError,
    InputError,
    OperatorError,
    PenstockError,
    PlatformError,
    SinkError,
    SourceError,
)
from penstock.graph.flow import Flow
from penstock.graph.keys import Key
from penstock.graph.meeting import barrier
from penstock.graph.operator import CoOperator, Operator, OperatorContext, ThreadContext
from penstock.graph.stream import KeyedStream, Stream
from penstock.operators import loops
from penstock.operators.aggregates import (
    aggregator,
    collect,
    count,
    count_distinct,
    first,
    last,
    max,
    mean,
    min,
    stddev,
    sum,
)
from penstock.optimizer.profile import Profile
from penstock.platforms.job import Job, JobMetrics
from penstock.platforms.launch import plan, run, submit
from penstock.platforms.profiling import profile
from penstock.platforms.spark import connectors as spark
from penstock.runtime.policies import Policy
from penstock.tuples import DeadLetter, Punctuation
from penstock.windows.engine import PartitionWindow
from penstock.windows.policies import session, sliding, tumbling

__version__ = "0.1.0"

__all__ = [
    "Batch",
    "Cancelled",
    "CoOperator",
    "DeadLetter",
    "Flow",
    "FlowError",
    "InputError",
    "Job",
    "JobMetrics",
    "Key",
    "KeyedStream",
    "ManualClock",
    "Operator",
    "OperatorContext",
    "OperatorError",
    "PartitionWindow",
    "PenstockError",
    "Plan",
    "PlatformError",
    "Policy",
    "Profile",
    "Punctuation",
    "Sink",
    "SinkError",
    "Source",
    "SourceError",
    "Stream",
    "ThreadContext",
    "aggregator",
    "barrier",
    "beacon",
    "collect",
    "count",
    "count_distinct",
    "errors",
    "files",
    "first",
    "last",
    "loops",
    "max",
    "mean",
    "min",
    "plan",
    "profile",
    "run",
    "session",
    "sliding",
    "spark",
    "stddev",
    "submit",
    "sum",
    "tumbling",
]
