"""How a run ends: waiting for threads, for what is still in queues, and giving up on threads that do not come back."""

from __future__ import annotations

import ctypes
import os
import threading
import time
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from penstock.runtime.pe import PE

# How long a stopped job waits for a thread that is inside user code; Ctrl-C must end in under two seconds.
PATIENCE = 1.0
_LOOK_AGAIN = 0.010


class GivenUp(BaseException):
    """Raised inside a thread that a stopped job no longer waits for."""


class Ending:
    """Waits for the end of one PE, in its supervisor's thread."""

    def __init__(self, pe: PE) -> None:
        self._pe = pe
        self._until: float | None = None  # when threads of a stopped run are given up, however many are stuck
        self._first_open = 0  # segments before this one have ended
        self.progress = threading.Event()

    def look_again(self) -> None:
        """Segments were cut anew."""
        self._first_open = 0

    def _is_impatient(self) -> bool:
        if self._until is None:
            self._until = time.monotonic() + PATIENCE
        return time.monotonic() >= self._until

    def join(self, thread: threading.Thread) -> None:
        """Wait for the end of `thread`, for ever while the run goes on, for a moment once it is being stopped."""
        while thread.is_alive():
            if self._pe.stopping:
                if self._is_impatient():
                    _give_up(thread)
                    return
                thread.join(0.01)
            else:
                thread.join(0.05)

    def wait_for_ports(self) -> None:
        """Wait until all segments have ended; after an error, until nothing moves any more."""
        while not self._pe.abandoned:
            self.progress.clear()
            if self._pe.error is not None:
                if self._quiet():
                    return
                if self._is_impatient():
                    self._pe.abandoned = True
            elif self._all_ended():
                return
            self.progress.wait(_LOOK_AGAIN)  # freed by threads that have run items, and by fail() and cancel()

    def _all_ended(self) -> bool:
        segments = self._pe.segments
        while self._first_open < len(segments) and segments[self._first_open].ended:
            self._first_open += 1
        return self._first_open >= len(segments)

    def _quiet(self) -> bool:
        """No port holds anything and nobody is at work on one: nothing was pushed while we looked at all of them."""
        ports = list(self._pe.ports.values())
        before = sum(port.pushed for port in ports)
        return all(port.idle for port in ports) and sum(port.pushed for port in ports) == before


def core_count() -> int:
    """How many cores this process may use."""
    return len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count() or 1


def _give_up(thread: threading.Thread) -> None:
    """Have `GivenUp` raised in `thread` as soon as it runs Python code again."""
    if thread.ident is not None:
        ctypes.pythonapi.PyThreadState_SetAsyncExc(ctypes.c_ulong(thread.ident), ctypes.py_object(GivenUp))
