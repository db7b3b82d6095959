"""How a run ends: waiting for threads, for what is still in queues, and giving up on threads that do not come back.

A cancelled run gives up on threads that are still inside user code after `PATIENCE`. After an error there may be much
left to deliver: then patience begins anew whenever a queue has moved, so that only a run that stands still is given up.
"""

from __future__ import annotations

import ctypes
import os
import threading
import time
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from penstock.runtime.pe import PE
    from penstock.runtime.segment import Segment

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
        self._moved = 0  # `_movement` when that was last put off
        self._segments: list[Segment] = []
        self._first_open = 0  # of these; the ones before have ended
        self.progress = threading.Event()

    def _is_impatient(self) -> bool:
        moved = self._moved if self._pe.abandoned else self._movement()
        if self._until is None or moved != self._moved:
            self._until, self._moved = time.monotonic() + PATIENCE, moved
        return time.monotonic() >= self._until

    def acquire(self, lock: threading.Lock) -> bool:
        """Take `lock`; false if whoever has it does not give it back although the run is being stopped."""
        while not lock.acquire(timeout=_LOOK_AGAIN):
            if self._pe.stopping and self._is_impatient():
                return False
        return True

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
        if segments is not self._segments:  # cut anew
            self._segments, self._first_open = segments, 0
        while self._first_open < len(segments) and segments[self._first_open].ended:
            self._first_open += 1
        return self._first_open >= len(segments)

    def _quiet(self) -> bool:
        """Nothing is under way: all that could still bring something has ended, and no port holds anything.

        A consumer may take the last item, or a part of it, while we look, and be done when we look for the consumer. So
        nothing may have been pushed or popped between before and after.
        """
        pe = self._pe
        if pe.is_changing or any(helper is not None and helper.thread.is_alive() for helper in (pe.timer, pe.relief)):
            return False
        if any(own.inside for own in pe.own_threads):
            return False
        before = self._movement()
        return all(port.idle for port in pe.ports.values()) and self._movement() == before

    def _movement(self) -> int:
        return sum(port.pushed + port.popped for port in self._pe.ports.values())


def core_count() -> int:
    """How many cores this process may use."""
    return len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count() or 1


def _give_up(thread: threading.Thread) -> None:
    """Have `GivenUp` raised in `thread` as soon as it runs Python code again."""
    if thread.ident is not None:
        ctypes.pythonapi.PyThreadState_SetAsyncExc(ctypes.c_ulong(thread.ident), ctypes.py_object(GivenUp))
