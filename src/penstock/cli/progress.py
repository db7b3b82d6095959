"""What a running job shows on a terminal, and the summary it leaves."""

from __future__ import annotations

import time

from rich.console import Console
from rich.live import Live
from rich.table import Table
from rich.text import Text

from penstock.platforms.job import Job, JobMetrics, Throughput

REFRESH = 0.25  # seconds between looks at the job


class Progress:
    """Follows a job until it ends. On a terminal, one live line; elsewhere nothing until the summary."""

    def __init__(self, job: Job, console: Console) -> None:
        self._job = job
        self._console = console
        self._last: tuple[float, int] = (time.monotonic(), 0)

    def follow(self) -> None:
        """Return when the job has ended; raises what made it fail."""
        if not self._console.is_terminal:
            self._job.wait()
            return
        with Live(console=self._console, transient=True, auto_refresh=False) as live:
            while not self._job.wait(REFRESH):
                live.update(self._line(self._job.metrics()), refresh=True)

    def _line(self, metrics: JobMetrics) -> Text:
        now = time.monotonic()
        then, before = self._last
        rate = (metrics.tuples - before) / max(1e-9, now - then)
        self._last = now, metrics.tuples
        batches = f"  batch {metrics.batches}" if metrics.batches else ""
        state = f"  state {quantity(metrics.state_bytes)}B" if metrics.state_bytes else ""
        return Text.assemble(
            (f"{self._job.name} ", "bold"),
            f"{metrics.elapsed:6.1f} s  {metrics.tuples:,} tuples  ",
            (f"{quantity(rate)} tuples/s", "green"),
            batches + state,
        )


class Steps:
    """Says what is being done and for how long: on a terminal in a line that goes away, elsewhere in a line for each.

    >>> import io
    >>> shown = io.StringIO()
    >>> with Steps(Console(file=shown)) as steps:
    ...     steps.tell("measuring")
    >>> shown.getvalue()
    '  0 s  measuring\\n'
    """

    def __init__(self, console: Console) -> None:
        self._console = console
        self._started = time.monotonic()
        self._now = ""
        self._live = Live(console=console, transient=True, refresh_per_second=2, get_renderable=self._line)

    def __enter__(self) -> Steps:
        if self._console.is_terminal:
            self._live.start()
        return self

    def __exit__(self, *_: object) -> None:
        self._live.stop()

    def tell(self, doing: str) -> None:
        """This is what is being done now."""
        self._now = doing
        if not self._console.is_terminal:
            self._console.print(self._line())

    def _line(self) -> Text:
        return Text(f"{time.monotonic() - self._started:3.0f} s  {self._now}")


def quantity(number: float) -> str:
    """A number as people read it.

    >>> quantity(1234567.0), quantity(45210.0), quantity(12.3)
    ('1.23 M', '45.2 k', '12')
    """
    if number >= 1e6:
        return f"{number / 1e6:.3g} M"
    if number >= 1e3:
        return f"{number / 1e3:.3g} k"
    return f"{number:.0f}"


def duration(seconds: float | None) -> str:
    """A short time as people read it.

    >>> duration(2.5e-7), duration(0.0031), duration(None)
    ('250 ns', '3.1 ms', '')
    """
    if seconds is None:
        return ""
    for unit, size in (("s", 1.0), ("ms", 1e-3), ("µs", 1e-6)):
        if seconds >= size:
            return f"{seconds / size:.3g} {unit}"
    return f"{seconds * 1e9:.3g} ns"


def summary(job: Job, console: Console, *, operators: bool) -> None:
    """What the job did, in a line; with `operators`, a table of what each one cost."""
    metrics = job.metrics()
    console.print(
        f"{job.name}: {metrics.state} after {metrics.elapsed:.2f} s, {metrics.tuples:,} tuples, "
        f"{quantity(metrics.rate)} tuples/s",
        highlight=False,
        markup=False,  # names may hold brackets
    )
    counted = {
        name: operator.counters for name, operator in metrics.operators.items() if any(operator.counters.values())
    }
    for name, counters in counted.items():
        parts = ", ".join(f"{count:,} {what}" for what, count in counters.items() if count)
        console.print(f"  {name}: {parts}", highlight=False, markup=False)
    for line in () if metrics.throughput is None else throughput_lines(metrics.throughput):
        console.print(line, highlight=False, markup=False, soft_wrap=True)
    if metrics.latency is not None:
        p50, p99 = duration(metrics.latency.percentile(50)), duration(metrics.latency.percentile(99))
        console.print(f"  latency: half within {p50}, 99 % within {p99}", highlight=False, markup=False)
    if operators:
        console.print(_table(metrics))
        if metrics.ports:
            console.print(_ports(metrics))


def throughput_lines(found: Throughput) -> list[str]:
    """Model and measurement side by side, and what each of them counts.

    >>> for line in throughput_lines(Throughput(41e3, 38e3, 80_000, 4, 2.1, 0.4, False, 2e-5)):
    ...     print(line)
      throughput in batches: model 41 k tuples/s, measured 38 k tuples/s
        model: 20 µs per tuple, costs as in this run, and Spark's own 0.10 s per batch
        measured: 80,000 tuples in 4 batches, 2.1 s by Spark's count; start-up and the first batch are left out
    """
    batches = "1 batch" if found.batches == 1 else f"{found.batches} batches"
    out = "start-up is left out, the first batch is not" if found.first else "start-up and the first batch are left out"
    measured = f"{found.tuples:,} tuples in {batches}, {found.seconds:.1f} s by Spark's count; {out}"
    if found.model is None:
        return [f"  throughput in batches: measured {quantity(found.measured)} tuples/s", f"    measured: {measured}"]
    own = f"Spark's own {found.fixed / found.batches:.2f} s per batch"
    both = f"model {quantity(found.model)} tuples/s, measured {quantity(found.measured)} tuples/s"
    return [
        f"  throughput in batches: {both}",
        f"    model: {duration(found.per_tuple)} per tuple, costs as in this run, and {own}",
        f"    measured: {measured}",
    ]


def _table(metrics: JobMetrics) -> Table:
    table = Table(box=None, pad_edge=False)
    for heading, justify in (("operator", "left"), ("in", "right"), ("out", "right"), ("cost/tuple", "right")):
        table.add_column(heading, justify=justify)  # type: ignore[arg-type]
    for name, operator in metrics.operators.items():
        table.add_row(Text(name), f"{operator.received:,}", f"{operator.sent:,}", duration(operator.cost))
    return table


def _ports(metrics: JobMetrics) -> Table:
    table = Table(box=None, pad_edge=False)
    for heading in ("queue", "tuples", "mean wait", "writers blocked"):
        table.add_column(heading, justify="left" if heading == "queue" else "right")
    for name, port in metrics.ports.items():
        table.add_row(Text(name), f"{port.pushed:,}", duration(port.waiting), f"{port.write_blocked:.0%}")
    return table
