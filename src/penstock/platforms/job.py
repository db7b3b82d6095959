"""`Job`: a running program, the same on every platform, and the numbers it shows."""

from __future__ import annotations

from collections.abc import Mapping
from contextlib import suppress
from dataclasses import dataclass, field
from types import TracebackType
from typing import Protocol

from penstock.optimizer.profile import Profile
from penstock.runtime.metrics import Latency, PortMetrics, ThreadMetrics


@dataclass(frozen=True, slots=True)
class OperatorMetrics:
    """Numbers of one operator.

    `received` and `sent` count tuples; inside a segment they are estimated from the sampled chunks, at segment entries
    and sinks they are exact. `cost` is seconds per tuple (None before the first sample); `counters` holds things like
    late or skipped tuples.
    """

    received: int
    sent: int
    cost: float | None
    counters: Mapping[str, int] = field(default_factory=dict)

    @property
    def busy(self) -> float | None:
        """Seconds spent in this operator so far, as far as the samples tell."""
        return None if self.cost is None else self.cost * self.received


@dataclass(frozen=True, slots=True)
class Throughput:
    """Tuples of the sources per second of a run in batches: what the model says of the plan, and what was `measured`.

    Both are about the same `batches`, with `tuples` in all, which took `seconds` as the platform reports; `fixed`
    seconds of these were the platform's own, whatever the batches held. `first` is true where the first batch is among
    them, which also starts workers. `model` is None where too little was measured: it takes the costs of this run,
    `per_tuple` seconds for each tuple.
    """

    model: float | None
    measured: float
    tuples: int
    batches: int
    seconds: float
    fixed: float
    first: bool
    per_tuple: float | None = None


@dataclass(frozen=True, slots=True)
class JobMetrics:
    """Numbers of a job at one moment: `tuples` read from all sources, `rate` tuples per second since the start.

    On Spark also the number of `batches` delivered, and the size of the stored state: entries (buckets of keys) and
    bytes of memory; and the `throughput` of batches beside the model's. Locally also the threaded `ports` and the
    `threads` that run them, and the `latency` from source to sink where it was asked for (`latency=True`).
    """

    state: str
    elapsed: float
    tuples: int
    rate: float
    operators: Mapping[str, OperatorMetrics]
    batches: int = 0
    state_entries: int = 0
    state_bytes: int = 0
    ports: Mapping[str, PortMetrics] = field(default_factory=dict)
    threads: Mapping[str, ThreadMetrics] = field(default_factory=dict)
    latency: Latency | None = None
    throughput: Throughput | None = None


class Explained(Protocol):
    """A plan: `str(plan)` explains it, `plan.code()` shows the generated functions."""

    def __str__(self) -> str: ...
    def code(self) -> str: ...


class Running(Protocol):
    """What a platform must offer for a job."""

    @property
    def state(self) -> str: ...
    def wait(self, timeout: float | None = None) -> bool: ...
    def cancel(self) -> None: ...
    def metrics(self) -> JobMetrics: ...
    def profile(self) -> Profile: ...


class Job:
    """A submitted program.

    >>> import penstock as pn
    >>> flow = pn.Flow("count")
    >>> out = flow.source(range(1000)).filter(lambda n: n % 100 == 0).collect()
    >>> job = pn.submit(flow, on="local")
    >>> job.wait()
    True
    >>> len(out), job.state, job.metrics().tuples
    (10, 'completed', 1000)
    """

    def __init__(self, name: str, plan: Explained, running: Running) -> None:
        self.name = name
        self.plan = plan
        self._running = running

    @property
    def state(self) -> str:
        """One of "running", "completed", "cancelled", "failed"."""
        return self._running.state

    def wait(self, timeout: float | None = None) -> bool:
        """Wait until the job has ended; false if `timeout` seconds passed first. Raises what made it fail."""
        return self._running.wait(timeout)

    def wait_ended(self) -> None:
        """Wait until the job has ended, however it did; raises nothing."""
        while True:
            with suppress(Exception):  # reported to whoever calls wait()
                self._running.wait(None)
            if self.state != "running":
                return

    def cancel(self) -> None:
        """Stop the job. What was delivered stays; `wait` then raises `Cancelled`."""
        self._running.cancel()

    def metrics(self) -> JobMetrics:
        """The numbers of this moment."""
        return self._running.metrics()

    def profile(self) -> Profile:
        """What each operator has cost so far; `profile().save(path)` keeps it."""
        return self._running.profile()

    def __enter__(self) -> Job:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, traceback: TracebackType | None
    ) -> None:
        if self.state == "running":
            self.cancel()

    def __repr__(self) -> str:
        return f"<job '{self.name}' {self.state}>"
