"""The time operators see: the machine's clock, or one a test moves by hand.

Only operators that follow arrival (time windows without `on=`, delay, throttle) ask for the time. They ask the
clock of the run, so a test can replace it and decide itself when a second has passed.
"""

from __future__ import annotations

import threading
import time
from typing import Protocol


class Clock(Protocol):
    """Seconds that only grow, and a way to wait for them to pass."""

    def now(self) -> float:
        """Seconds since some fixed moment."""
        ...

    def wait(self, until: float | None, wake: threading.Condition) -> None:
        """Wait on `wake` (held by the caller) until it is notified or `now()` reaches `until`. May wake early."""
        ...


class SystemClock:
    """The machine's monotonic clock."""

    def now(self) -> float:
        return time.monotonic()

    def wait(self, until: float | None, wake: threading.Condition) -> None:
        wake.wait(None if until is None else max(0.0, until - time.monotonic()))


class ManualClock:
    """A clock that stands still until `advance` moves it.

    >>> clock = ManualClock()
    >>> clock.advance(2.5)
    >>> clock.now()
    2.5
    """

    def __init__(self, start: float = 0.0) -> None:
        self._now = start
        self._lock = threading.Lock()
        self._waiting: list[threading.Condition] = []

    def now(self) -> float:
        return self._now

    def advance(self, seconds: float) -> None:
        """Let `seconds` pass at once and wake everybody who waits for the time."""
        with self._lock:
            self._now += seconds
            waiting, self._waiting = self._waiting, []
        for wake in waiting:
            with wake:
                wake.notify_all()

    def wait(self, until: float | None, wake: threading.Condition) -> None:
        with self._lock:
            if until is not None and self._now >= until:
                return
            if wake not in self._waiting:
                self._waiting.append(wake)
        # `advance` may notify only while `wake` is not held, so it cannot slip in between here and wait().
        wake.wait()
