"""Runs an operator with its own driver loop (`pn.CoOperator`) whenever what it waits for is there (C-Stream §3.2).

The driver keeps a queue per input. A tuple that arrives is queued; the coroutine is resumed only when its wait can be
answered: true once the tuples asked for are there, false once ports have closed so that they never can be. `push` never
suspends here: outputs go straight to the operator's buffers.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Awaitable, Callable, Coroutine, Generator, Mapping
from typing import Any

from penstock.clock import Clock
from penstock.graph.operator import CoContext, CoOperator
from penstock.tuples import Punctuation


class Wait:
    """A request for tuples. `answer()` is None while it is open, else whether it was met."""

    __slots__ = ("answer",)

    def __init__(self, answer: Callable[[], bool | None]) -> None:
        self.answer = answer

    def __await__(self) -> Generator[Wait, None, bool]:
        while (answer := self.answer()) is None:
            yield self
        return answer


class Driver(CoContext):
    """One coroutine with its input queues."""

    def __init__(self, operator: CoOperator, name: str, outputs: list[list[Any]], *, key: Any, clock: Clock) -> None:
        self.name = name
        self.key = key
        self.clock = clock
        self._queues: list[deque[Any]] = [deque() for _ in range(operator.inputs)]
        self._closed = [False] * operator.inputs
        self._outputs = outputs
        self._coroutine: Coroutine[Wait, None, None] = operator.run(self)
        self._waiting: Wait | None = None
        self._completed = False
        self._started = False

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
        self._outputs[port].append(item)

    # ----------------------------------------------------------------------------------- called by the system

    def process(self, t: Any, port: int) -> None:
        """A tuple arrived. After the operator has completed, tuples are dropped: nobody will ask for them."""
        if not self._completed:
            self._queues[port].append(t)
            self._resume()

    def on_punctuation(self, mark: Punctuation, port: int) -> None:
        if mark is Punctuation.FINAL:
            self._closed[port] = True
            self._resume()

    def close(self) -> None:
        self._coroutine.close()

    def held(self, port: int) -> int:
        return len(self._queues[port])

    def _resume(self) -> None:
        if self._completed or (self._waiting is not None and self._waiting.answer() is None):
            return
        try:
            self._waiting = self._coroutine.send(None)
        except StopIteration:
            self._completed = True
            for queue in self._queues:
                queue.clear()
