"""The dynamic scheduler: any of its threads runs any of its ports (scheduler paper §4.1).

What it guarantees
* Order: a thread runs a port only while it has the port's consumer flag, and keeps the flag until all that came of an
  item has been handed over.
* Nothing is stranded: a scheduled port that holds something is on the policy's list, or a thread has taken it from
  there and will look again. `listed` of a port is set from the moment it is put on the list until the thread that took
  it has given the consumer flag back. That thread then clears `listed` and looks at the queue once more. A pusher puts
  its item in first and tries to set `listed` second: whichever of the two comes later sees the other.
* Threads come and go: each can be suspended, resumed, added and ended at any moment. It leaves at the next item, with
  the port back on the list.

A port on the list may be in the hands of a pusher that works it off. Whoever takes it then puts it back and looks for
another. One that has met all of them gives up and waits a little: another thread does the work (§4.1.3).

A thread without work waits on a condition: called when a port gets on the list or a pusher is done with one, and in any
case after at most 10 ms.
"""

from __future__ import annotations

import threading
from typing import TYPE_CHECKING

from penstock.errors import PlatformError
from penstock.runtime.policies import Policy
from penstock.runtime.port import Port
from penstock.runtime.worker import Worker

if TYPE_CHECKING:
    from penstock.runtime.pe import PE

QUANTUM = 0.050


class Scheduler:
    """The ports that are ready, and the threads that run them."""

    def __init__(self, pe: PE, policy: Policy, quantum: float = QUANTUM, fewest: int = 1) -> None:
        self.pe = pe
        self.policy = policy
        self.quantum = quantum
        self.fewest = fewest
        self.workers: list[Worker] = []
        self._lock = threading.Lock()  # adding, suspending and resuming threads
        self._work = threading.Condition(threading.Lock())
        self._sleepers = 0
        self.news = 0  # changes whenever a port gets on the list
        self._parked = threading.Condition(threading.Lock())
        self._stopped = False
        self._numbers = 0
        self._leaving: list[Worker] = []  # told to end

    def open(self) -> None:
        """The run begins."""
        self.policy.belong_to(self)

    def close(self) -> None:
        """The run is over: its threads have ended."""
        self.policy.leave(self)

    # ----------------------------------------------------------------------------------------------------- ports

    def announce(self, port: Port) -> None:
        """Something was put into `port`."""
        if port.listed.acquire(blocking=False):
            self.policy.put(port)
            self.news += 1
            self.call_one()

    def put_back(self, port: Port) -> None:
        """A thread that took `port` from the list, and has given its consumer flag back, is done with it for now."""
        port.listed.release()
        if port.length:
            self.announce(port)

    def find_work(self) -> Port | None:
        """A port with something to do, with its consumer flag; None if there is none, or others are at all of them."""
        busy: list[Port] = []
        try:
            while (port := self.policy.take()) is not None:
                if not port.scheduled:
                    port.listed.release()  # it has got a thread of its own, or was removed
                elif not port.try_consume():
                    busy.append(port)
                elif port.length:
                    return port
                else:
                    port.release_consumer()
                    self.put_back(port)
            return None
        finally:
            for port in busy:
                self.policy.put(port)

    # --------------------------------------------------------------------------------------------------- waiting

    def call_one(self) -> None:
        """Let a thread without work look again."""
        if self._sleepers:
            with self._work:
                self._work.notify()

    def wait_for_work(self, worker: Worker, seconds: float, news: int) -> None:
        """Wait for `seconds`, or until a port gets on the list; `news` as it was before the worker looked there."""
        with self._work:
            self._sleepers += 1
            try:
                if news == self.news and not (worker.stopped or worker.suspended):
                    self._work.wait(seconds)  # freed by announce(), by stop(), by set_threads()
            finally:
                self._sleepers -= 1

    def suspend(self, worker: Worker) -> None:
        """Called by a worker that was told to suspend itself: returns when it is resumed or stopped."""
        with self._parked:
            while worker.suspended and not worker.stopped:
                self._parked.wait()  # freed by set_threads() and stop()

    # --------------------------------------------------------------------------------------------------- threads

    @property
    def threads(self) -> int:
        """How many threads may run ports now."""
        return sum(not worker.suspended for worker in self.workers)

    def set_threads(self, count: int) -> None:
        """Let `count` threads run ports: suspend some, or resume and add others. At once, whatever they are doing."""
        if count < self.fewest:
            raise PlatformError(f"this program needs at least {self.fewest} scheduler threads, not {count}")
        with self._lock:
            if self._stopped:
                return
            while len(self.workers) < count:
                self._numbers += 1
                worker = Worker(self, self._numbers)
                self.workers.append(worker)
                worker.start()
            # Threads that are stuck in an operator go on counting: suspending them would free nothing.
            for place, worker in enumerate(self.workers):
                worker.suspended = place >= count
            self._call_all()

    def need(self, fewest: int) -> None:
        """Ports were placed or removed: from now on so many threads are needed."""
        self.fewest = fewest
        if 0 < self.threads < fewest:
            self.set_threads(fewest)

    def end_suspended(self) -> None:
        """End the threads that are suspended, for good."""
        with self._lock:
            for worker in self.workers:
                worker.stopped = worker.stopped or worker.suspended
            self._leaving = [worker for worker in self._leaving if worker.thread.is_alive()]
            self._leaving += [worker for worker in self.workers if worker.stopped]
            self.workers = [worker for worker in self.workers if not worker.stopped]
            self._call_all()

    def all_workers(self) -> list[Worker]:
        """Also those that are about to end."""
        with self._lock:
            return self.workers + self._leaving

    def stop(self) -> None:
        """End all threads at their next item."""
        with self._lock:
            self._stopped = True
            for worker in self.workers:
                worker.stopped = True
            self._call_all()

    def _call_all(self) -> None:
        with self._work:
            self._work.notify_all()
        with self._parked:
            self._parked.notify_all()
