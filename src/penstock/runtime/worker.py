"""Threads that run ports: the scheduler's workers, and threads dedicated to one port each.

A worker takes a port from the scheduler's policy, tries its consumer flag, and drains it: item after item until the
queue is empty, a quantum is used up, or the worker is told to stop, to suspend itself or to stand still. Then it gives
the flag back. What it is told it finds in attributes of its own, so that a hundred workers do not all look at the same
place (scheduler paper §4.1.2); whoever tells all of them goes through all of them.

A worker that is `inside` an operator cannot be suspended before the operator returns: `inside_since` says how long it
has been there, so that whoever counts threads knows which ones are stuck.
"""

from __future__ import annotations

import threading
import time
from typing import TYPE_CHECKING

from penstock.runtime.metrics import ThreadMetrics
from penstock.runtime.port import LOOK_AGAIN, Port

if TYPE_CHECKING:
    from penstock.runtime.host import Host
    from penstock.runtime.scheduler import Scheduler

# A thread that finds nothing waits this long first, then ten times as long each time up to `LOOK_AGAIN`.
SHORTEST_WAIT = 0.0001


class PortThread:
    """A thread that runs ports, and what it tells about itself."""

    def __init__(self, pe: Host, name: str) -> None:
        self.pe = pe
        self.turn = pe.make_turn()
        self.stopped = False
        self.suspended = False
        self.inside: Port | None = None
        self.entered = 0.0
        self.inside_since = 0.0
        self.busy_seconds = 0.0
        self.born = time.perf_counter()
        self.thread = threading.Thread(target=self._main, name=f"{pe.graph.name}: {name}", daemon=True)

    def start(self) -> None:
        self.thread.start()

    def _main(self) -> None:
        try:
            self._work()
        except BaseException as error:  # a defect, or a KeyboardInterrupt inside user code: shown as it is
            self.pe.fail(error)
        finally:
            self.pe.forget_turn(self.turn)

    def _work(self) -> None:
        raise NotImplementedError

    def drain(self, port: Port, quantum: float) -> None:
        """Run items of `port`, whose consumer flag this thread has, and give the flag back."""
        pe, turn, start = self.pe, self.turn, time.perf_counter()
        clock, pop, run_item = time.perf_counter, port.pop, turn.run_item
        self.entered = self.inside_since = start
        self.inside = port
        now = start
        try:
            while not (self.stopped or self.suspended or pe.pausing or now - start > quantum or turn.mailboxes):
                queued = pop()
                if queued is None:
                    break
                item, _, born = queued
                helped = turn.base.helped
                run_item(port.entry, item, born)
                ended, now = now, clock()
                tuples = len(item) if isinstance(item, list) else 0
                port.note_run(tuples, now - ended - (turn.base.helped - helped), now)
                self.inside_since = now
        finally:
            self.inside = None
            self.busy_seconds += time.perf_counter() - start
            port.release_consumer()
        turn.deliver_feedback()
        while (error := turn.take_error()) is not None:
            self.pe.fail(error)
            turn.deliver_feedback()  # it may let tuples pass that came before the one that failed
        self.pe.after_items()

    def metrics(self, now: float) -> ThreadMetrics:
        """What this thread shows of itself."""
        port = self.inside
        busy = self.busy_seconds + (now - self.entered if port is not None else 0.0)
        lived = now - self.born
        return ThreadMetrics(
            min(1.0, busy / lived) if lived > 0 else 0.0, self.suspended, None if port is None else port.name
        )

    def is_stuck(self, now: float, longest: float) -> bool:
        """It has been inside one operator for longer than `longest` seconds: it cannot be suspended."""
        return self.inside is not None and now - self.inside_since > longest


class Worker(PortThread):
    """A thread of the scheduler: runs any port."""

    def __init__(self, scheduler: Scheduler, number: int) -> None:
        super().__init__(scheduler.pe, f"worker {number}")
        self.number = number
        self._scheduler = scheduler

    def _work(self) -> None:
        scheduler, wait = self._scheduler, SHORTEST_WAIT
        while not self.stopped:
            news = scheduler.news
            if self.suspended:
                scheduler.suspend(self)
            elif self._run_some(scheduler):
                wait = SHORTEST_WAIT
            else:
                scheduler.wait_for_work(self, wait, news)
                wait = min(10 * wait, LOOK_AGAIN)

    def _run_some(self, scheduler: Scheduler) -> bool:
        """Find a port with work and run it; false if there was none, or others were at it."""
        self.pe.enter(self.turn)
        try:
            port = scheduler.find_work()
            if port is None:
                return False
            self.drain(port, scheduler.quantum)
            scheduler.put_back(port)
            return True
        finally:
            self.pe.leave(self.turn)


class DedicatedThread(PortThread):
    """A thread that runs one port only."""

    def __init__(self, pe: Host, port: Port) -> None:
        super().__init__(pe, f"port {port.name}")
        self.port = port
        self._called = threading.Event()
        port.scheduled = False
        port.announce = self._announce

    def _announce(self, port: Port) -> None:
        if not self._called.is_set():
            self._called.set()

    def wake(self) -> None:
        self._called.set()

    def _work(self) -> None:
        port = self.port
        while not self.stopped:
            # Cleared before looking: what is put in after the look sets it again.
            self._called.clear()
            worked = False
            if port.length:
                self.pe.enter(self.turn)
                try:
                    # After a swap the queue may be gone; a pusher may be at work on it.
                    if not self.stopped and port.try_consume():
                        worked = True
                        self.drain(port, float("inf"))
                finally:
                    self.pe.leave(self.turn)
            if not worked or not port.length:
                self._called.wait(LOOK_AGAIN if port.length else 10 * LOOK_AGAIN)  # freed by the next push, or wake()
