"""Runs an operator with its own driver loop (`pn.CoOperator`) whenever what it waits for is there (C-Stream §3.2).

The driver keeps a queue per input. A tuple that arrives is queued; the coroutine is resumed only when its wait can be
answered: true once the tuples asked for are there, false once ports have closed so that they never can be. `push` puts
outputs into the operator's buffers and suspends when one is full, or when the operator has used up its quantum, until
what they hold has been sent. Where that meets a full queue, the thread makes room before it resumes the operator.

A driver is resumed by whichever thread has the tuple that it waits for. One thread at a time does so: the runtime sees
to that as for any other operator, so a driver needs no lock and may move from thread to thread between any two
resumptions.
"""

from __future__ import annotations

import time
from collections import deque
from collections.abc import Awaitable, Callable, Coroutine, Generator, Mapping
from typing import Any

from penstock.clock import Clock
from penstock.graph.operator import CoContext, CoOperator
from penstock.tuples import CHUNK, Punctuation

# Outputs that one tuple may bring before they are sent on, so that memory stays bounded however many it brings.
MOST_BUFFERED = 4 * CHUNK
# How long an operator runs before what it has pushed is sent on (C-Stream §3.2.4); looked at every so many pushes.
QUANTUM = 0.050
_PUSHES_PER_LOOK = 64


class Wait:
    """A request for tuples. `answer()` is None while it is open, else whether it was met."""

    __slots__ = ("answer",)

    def __init__(self, answer: Callable[[], bool | None]) -> None:
        self.answer = answer

    def __await__(self) -> Generator[Wait, None, bool]:
        while (answer := self.answer()) is None:
            yield self
        return answer


class Room(Wait):
    """A request for room in the output buffers: they are full, or have not been sent on for a quantum."""

    __slots__ = ()


class Driver(CoContext):
    """One coroutine with its input queues."""

    def __init__(self, operator: CoOperator, name: str, outputs: list[list[Any]], *, key: Any, clock: Clock) -> None:
        self.name = name
        self.key = key
        self.clock = clock
        self._queues: list[deque[Any]] = [deque() for _ in range(operator.inputs)]
        self._closed = [False] * operator.inputs
        self._outputs = outputs
        self._operator = operator
        self._coroutine: Coroutine[Wait, None, None] | None = None  # made when it is first to run
        self._waiting: Wait | None = None
        self._completed = False
        self._pushes = 0
        self._resumed = 0.0

    # ---------------------------------------------------------------------------------- asked by the operator

    def wait_all(self, ports: Mapping[int, int]) -> Awaitable[bool]:
        def answer() -> bool | None:
            if all(len(self._queues[port]) >= count for port, count in ports.items()):
                return True
            if any(self._closed[port] and len(self._queues[port]) < count for port, count in ports.items()):
                return False
            return None

        return Wait(answer)

    def wait_any(self, ports: Mapping[int, int]) -> Awaitable[bool]:
        def answer() -> bool | None:
            if any(len(self._queues[port]) >= count for port, count in ports.items()):
                return True
            return False if all(self._closed[port] for port in ports) else None

        return Wait(answer)

    def available(self, port: int) -> int:
        return len(self._queues[port])

    def pop(self, port: int = 0) -> Any:
        try:
            return self._queues[port].popleft()
        except IndexError:
            raise IndexError(f"pop({port}): no tuple is there; wait for one first") from None

    async def push(self, item: Any, port: int = 0) -> None:
        if not 0 <= port < len(self._outputs):
            raise IndexError(f"output port {port} does not exist; the operator has {len(self._outputs)}")
        buffer = self._outputs[port]
        buffer.append(item)
        self._pushes += 1
        if len(buffer) >= MOST_BUFFERED or (not self._pushes % _PUSHES_PER_LOOK and self._quantum_is_over()):
            await Room(lambda: None if any(self._outputs) else True)

    def _quantum_is_over(self) -> bool:
        return time.perf_counter() - self._resumed > QUANTUM

    # ----------------------------------------------------------------------------------- called by the system

    @property
    def state(self) -> str:
        """ "ready", "read-blocked", "write-blocked" or "completed" (C-Stream §3.2.1)."""
        if self._completed:
            return "completed"
        if self._waiting is None or self._waiting.answer() is not None:
            return "ready"
        return "write-blocked" if isinstance(self._waiting, Room) else "read-blocked"

    def process(self, t: Any, port: int) -> Driver | None:
        """A tuple arrived. After the operator has completed, tuples are dropped: nobody will ask for them.

        Returns the driver itself while it waits for room: `go_on` when its outputs have been sent.
        """
        if self._completed:
            return None
        self._queues[port].append(t)
        return self.go_on()

    def on_punctuation(self, mark: Punctuation, port: int) -> Driver | None:
        if mark is not Punctuation.FINAL:
            return None
        self._closed[port] = True
        return self.go_on()

    def go_on(self) -> Driver | None:
        """Resume the operator as far as it can go; returns the driver itself while it waits for room."""
        self._resume()
        return self if isinstance(self._waiting, Room) else None

    def close(self) -> None:
        if self._coroutine is not None:
            self._coroutine.close()

    def held(self, port: int) -> int:
        return len(self._queues[port])

    def _resume(self) -> None:
        if self._completed or (self._waiting is not None and self._waiting.answer() is None):
            return
        self._resumed = time.perf_counter()
        if self._coroutine is None:
            self._coroutine = self._operator.run(self)
        try:
            self._waiting = self._coroutine.send(None)
        except StopIteration:
            self._completed = True
            self._waiting = None
            for queue in self._queues:
                queue.clear()
