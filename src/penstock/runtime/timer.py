"""The timer thread: lets operators that follow the clock speak when their time has come and no tuple is there.

It takes part in lock elision like any other thread: segments with timed operators have a lock (`runtime.locks`).
"""

from __future__ import annotations

import threading
import time
from collections.abc import Iterator
from contextlib import contextmanager
from typing import TYPE_CHECKING

from penstock.runtime.segment import Segment
from penstock.runtime.turn import Turn

if TYPE_CHECKING:
    from penstock.runtime.pe import PE


class Timer:
    """Waits for the earliest deadline of the timed segments, and ticks what is due."""

    def __init__(self, pe: PE, segments: list[Segment]) -> None:
        self._pe = pe
        self.segments = segments
        self._condition = threading.Condition()
        self._stopped = False
        self._news = False
        self._turn = pe.make_turn()
        self.thread = threading.Thread(target=self._run, name=f"{pe.graph.name}: timer", daemon=True)

    def start(self) -> None:
        self.thread.start()

    def wake(self) -> None:
        """Deadlines may have changed."""
        with self._condition:
            self._news = True
            self._condition.notify_all()

    def stop(self) -> None:
        """End the thread."""
        with self._condition:
            self._stopped = True
            self._condition.notify_all()

    def _run(self) -> None:
        try:
            while not self._stopped and not self._pe.stopping:
                self._tick_due()
                deadline = self._next_deadline()
                with self._condition:
                    if not self._news and not self._stopped and not self._pe.stopping:
                        # Freed by the clock, by wake() after each chunk, or by stop().
                        self._pe.clock.wait(deadline, self._condition)
                    self._news = False
        except BaseException as error:
            self._pe.fail(error)

    def _next_deadline(self) -> float | None:
        self._pe.enter(self._turn)
        try:
            deadlines = []
            for segment in self.segments:
                with self._locked(segment):
                    deadlines += [logic.deadline() for logic in segment.logics.values() if logic.timed]
        finally:
            self._pe.leave(self._turn)
        return min((deadline for deadline in deadlines if deadline is not None), default=None)

    def _tick_due(self) -> None:
        now, turn = self._pe.clock.now(), self._turn
        self._pe.enter(turn)
        try:
            for segment in self.segments:
                self._tick(segment, now, turn)
        finally:
            self._pe.leave(turn)

    def _tick(self, segment: Segment, now: float, turn: Turn) -> None:
        with self._locked(segment):
            if segment.ended or segment.failed or not self._is_due(segment, now):
                return
            try:
                turn.born(time.perf_counter())
                segment.tick(now, turn)
            except BaseException:
                segment.failed = True
                raise
            finally:
                turn.run_pending()  # under the lock, or a tuple could overtake what the tick released
        turn.drain()  # not under the lock: what goes back through a feedback loop may come to this segment again

    @contextmanager
    def _locked(self, segment: Segment) -> Iterator[None]:
        assert segment.lock is not None, "timed segments are always locked"
        self._turn.acquire(segment.lock)
        try:
            yield
        finally:
            segment.lock.release()

    @staticmethod
    def _is_due(segment: Segment, now: float) -> bool:
        deadlines = [logic.deadline() for logic in segment.logics.values() if logic.timed]
        return any(deadline is not None and deadline <= now for deadline in deadlines)
