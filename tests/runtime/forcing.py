"""Forced interleavings: threads that run one at a time and change places only where they are told to.

`explore` runs a scenario again and again, once for each way in which its threads can take turns at their steps, up to
a number of preemptions: most races need one or two. `Holds` stops threads of a running PE at a step of a port until the
test lets them go on.
"""

from __future__ import annotations

import threading
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass
from typing import Any

from penstock.runtime.port import Item, Port, Queued

# A safety net only: a thread that does not come to its next step in this time has a deadlock.
LONG = 20.0
# A thread that waits for another one between its steps is found out after this time.
BLOCKED = 0.05
# So many steps in a row, then another thread has to run.
_PATIENCE = 40


@dataclass
class Choice:
    """A place where several threads could go on: which, which one did, and which had been running before."""

    options: list[str]
    chosen: str
    running: str | None


class Controller:
    """Lets one thread run at a time. Those it started stop at each `step` until it is their turn."""

    def __init__(self, prefix: list[str]) -> None:
        self.trace: list[Choice] = []
        self._prefix = prefix
        self._names: dict[int, str] = {}
        self._turns: dict[str, threading.Semaphore] = {}
        self._paused: dict[str, threading.Event] = {}
        self._finished: set[str] = set()
        self._giving_way: set[str] = set()
        self._errors: list[BaseException] = []

    def step(self, gives_way: bool = False) -> None:
        """Called by the threads of a scenario: another one may run here, or must, if there is one."""
        name = self._names.get(threading.get_ident())
        if name is not None:
            if gives_way:
                self._giving_way.add(name)
            self._paused[name].set()
            assert self._turns[name].acquire(timeout=LONG), f"{name} never goes on"

    def run(self, functions: Mapping[str, Callable[[], None]]) -> None:
        """Run `functions`, each in a thread of its own, to their ends."""
        threads = [threading.Thread(target=self._main, args=(name, functions[name])) for name in functions]
        for name in functions:
            self._turns[name], self._paused[name] = threading.Semaphore(0), threading.Event()
        for thread, name in zip(threads, functions, strict=True):
            thread.start()
            assert self._paused[name].wait(LONG)
        running: str | None = None
        blocked: set[str] = set()
        while len(self._finished) < len(functions):
            able = [name for name in functions if name not in self._finished]
            blocked = {name for name in blocked if not self._paused[name].is_set()}
            able = [name for name in able if name not in blocked] or able
            options = [name for name in able if name not in self._giving_way] or able
            self._giving_way.clear()
            if len(options) > 1 and [choice.chosen for choice in self.trace[-_PATIENCE:]] == [running] * _PATIENCE:
                options = [name for name in options if name != running]  # it may wait for another in a loop
            running = self._choose(options, running)
            self._paused[running].clear()
            self._turns[running].release()
            if not self._paused[running].wait(BLOCKED):
                blocked.add(running)
        for thread in threads:
            thread.join(LONG)
            assert not thread.is_alive(), "deadlock"
        if self._errors:
            raise self._errors[0]

    def _main(self, name: str, function: Callable[[], None]) -> None:
        self._names[threading.get_ident()] = name
        try:
            self.step()
            function()
        except BaseException as error:
            self._errors.append(error)
        finally:
            self._finished.add(name)
            self._paused[name].set()

    def _choose(self, options: list[str], running: str | None) -> str:
        place = len(self.trace)
        if place < len(self._prefix) and self._prefix[place] in options:
            chosen = self._prefix[place]
        else:
            chosen = running if running in options else options[0]
        self.trace.append(Choice(options, chosen, running))
        return chosen


Scenario = Callable[[Controller], None]


def explore(scenario: Scenario, preemptions: int, most: int = 100_000) -> int:
    """Run `scenario` in every order of its steps with at most so many preemptions; returns how many those were."""
    pending: list[list[str]] = [[]]
    runs = 0
    while pending and runs < most:
        prefix = pending.pop()
        controller = Controller(prefix)
        try:
            scenario(controller)
        except BaseException as error:
            error.add_note(f"in the order {[choice.chosen for choice in controller.trace]}")
            raise
        runs += 1
        trace = controller.trace
        for place in range(len(prefix), len(trace)):
            used = sum(_is_preemption(choice, choice.chosen) for choice in trace[:place])
            others = [other for other in trace[place].options if other != trace[place].chosen]
            before = [choice.chosen for choice in trace[:place]]
            pending += [
                [*before, other] for other in others if used + _is_preemption(trace[place], other) <= preemptions
            ]
    return runs


def _is_preemption(choice: Choice, chosen: str) -> bool:
    return choice.running in choice.options and chosen != choice.running


class Flag:
    """A flag of a port that tells of what is about to be done to it and of what was done."""

    def __init__(self, before: Callable[[str], None], after: Callable[[str], None]) -> None:
        self._lock = threading.Lock()
        self._before = before
        self._after = after
        self.locked = self._lock.locked

    def acquire(self, blocking: bool = True, timeout: float = -1) -> bool:
        self._before("acquire")
        return self._lock.acquire(blocking, timeout)

    def release(self) -> None:
        self._before("release")
        self._lock.release()
        self._after("release")


def stepping(controller: Controller) -> type[Port]:
    """Ports with a step of `controller` before and after everything they do to a flag or the queue."""

    class Stepping(Port):
        def _make_flag(self, name: str) -> Any:
            return Flag(lambda step: controller.step(), lambda step: controller.step())

        def push(self, item: Item, born: float = 0.0) -> bool:
            controller.step()
            return super().push(item, born)

        def release_consumer(self) -> None:
            super().release_consumer()
            controller.step()  # after the look at who waits, too

        def pop(self) -> Queued | None:
            controller.step()
            return super().pop()

        def wait_for_room(self) -> None:
            controller.step(gives_way=True)  # another thread has to run now

    return Stepping


class Hold:
    """A place where the next thread that comes along has to wait."""

    def __init__(self) -> None:
        self.reached = threading.Event()
        self._go = threading.Event()

    def stop_here(self) -> None:
        self.reached.set()
        assert self._go.wait(LONG), "the test never let go"

    def let_go(self) -> None:
        self._go.set()


class Holds:
    """Stops threads of a PE made with `port_class=holds.port_class` at steps of its ports."""

    def __init__(self) -> None:
        self._waiting: dict[tuple[str, str], tuple[Hold, Callable[[], bool]]] = {}
        self._lock = threading.Lock()
        self.port_class = _holding(self)

    @contextmanager
    def hold(self, port: str, step: str, when: Callable[[], bool] = lambda: True) -> Iterator[Hold]:
        """Stop the first thread that comes to `step` of the port of that name."""
        hold = Hold()
        with self._lock:
            self._waiting[port, step] = hold, when
        try:
            yield hold
        finally:
            with self._lock:
                self._waiting.pop((port, step), None)
            hold.let_go()

    def reach(self, port: str, step: str) -> None:
        with self._lock:
            hold, when = self._waiting.get((port, step), (None, None))
            if hold is None or when is None or not when():
                return
            del self._waiting[port, step]
        hold.stop_here()


def _holding(holds: Holds) -> type[Port]:
    class Holding(Port):
        def _make_flag(self, name: str) -> Any:
            steps = {("producer", "release"): "release_producer", ("consumer", "acquire"): "try_consume"}

            def reach(step: str) -> None:
                if (name, step) in steps:
                    holds.reach(self.name, steps[name, step])

            return Flag(reach, lambda step: None)

        def push(self, item: Item, born: float = 0.0) -> bool:
            holds.reach(self.name, "push")
            pushed = super().push(item, born)
            holds.reach(self.name, "pushed")
            return pushed

        def release_consumer(self) -> None:
            holds.reach(self.name, "release_consumer")
            super().release_consumer()
            holds.reach(self.name, "released_consumer")

        def pop(self) -> Queued | None:
            holds.reach(self.name, "pop")
            queued = super().pop()
            holds.reach(self.name, "popped")
            return queued

    return Holding
