"""throttle: at most so many tuples a second; what comes faster waits, and pushes back to the source."""

from __future__ import annotations

import threading

from penstock.clock import Clock
from penstock.graph.graph import Node
from penstock.graph.operations import Throttle
from penstock.operators.base import Logic, Writer


class ThrottleLogic(Logic):
    """Lets tuple n go no earlier than n / rate seconds after the first of an unbroken run.

    The calling thread waits here: that is the back-pressure. It is freed by the clock, or by `interrupt` when the job
    is stopped. What was sent before is delivered before waiting, so a slow throttle never keeps finished results.
    """

    ends_segment = True

    def __init__(self, node: Node, clock: Clock | None = None) -> None:
        super().__init__(node, clock)
        assert isinstance(node.operation, Throttle)
        self.interval = 1.0 / node.operation.rate
        self.next = self.clock.now()
        self.wake = threading.Condition()
        self.stopped = False

    def write(self, w: Writer, item: str, port: int) -> None:
        with w.block(f"if {w.bind(self.early, 'early')}():"):
            w.flush()
            w.line(f"{w.bind(self.wait, 'wait')}()")
        w.emit(0, item)

    def early(self) -> bool:
        """Book the next free moment; true if it has not come yet."""
        now = self.clock.now()
        self.due = max(self.next, now)
        self.next = self.due + self.interval
        return self.due > now

    def wait(self) -> None:
        with self.wake:
            while not self.stopped and self.clock.now() < self.due:
                self.clock.wait(self.due, self.wake)

    def interrupt(self) -> None:
        with self.wake:
            self.stopped = True
            self.wake.notify_all()
