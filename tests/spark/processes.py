"""Programs as processes of their own, which can be killed, and of which nothing stays behind."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import time
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager, suppress
from pathlib import Path

import psutil

PATIENCE = 300.0  # seconds; only a hang takes that long


def wait_for(condition: Callable[[], bool], what: str, patience: float = PATIENCE) -> None:
    """Poll until `condition` holds."""
    limit = time.monotonic() + patience
    while not condition():
        assert time.monotonic() < limit, f"gave up waiting for {what}"
        time.sleep(0.03)


class Program:
    """A program in a session of its own: the driver, its JVM and its workers."""

    def __init__(self, command: list[str], log: Path, env: Mapping[str, str] | None = None) -> None:
        self.log = log
        with log.open("ab") as output:
            self.process = subprocess.Popen(
                command,
                stdin=subprocess.DEVNULL,
                stdout=output,
                stderr=output,
                start_new_session=True,
                env=None if env is None else {**os.environ, **env},
            )

    def members(self) -> list[psutil.Process]:
        """Every living process of the session; workers have process groups of their own."""
        found = []
        for process in psutil.process_iter():
            with suppress(ProcessLookupError, psutil.NoSuchProcess):
                if os.getsid(process.pid) == self.process.pid and process.status() != psutil.STATUS_ZOMBIE:
                    found.append(process)
        return found

    @property
    def running(self) -> bool:
        return self.process.poll() is None

    def wait(self) -> int:
        """Its exit code, once it has ended by itself and all it started has."""
        try:
            code = self.process.wait(PATIENCE)
        finally:
            self.stop()
        return code

    def kill(self) -> None:
        """kill -9 of the driver's process group."""
        with suppress(ProcessLookupError):
            os.killpg(self.process.pid, signal.SIGKILL)
        self.stop()

    def kill_driver(self) -> None:
        """kill -9 of the driver alone: its JVM and the workers notice, and end by themselves."""
        self.process.kill()
        self.process.wait(PATIENCE)
        wait_for(lambda: not self.members(), "the JVM to notice that the driver is dead")

    def stop(self) -> None:
        """End what is left of it."""
        for process in self.members():
            with suppress(psutil.NoSuchProcess):
                process.kill()
        self.process.wait(PATIENCE)
        wait_for(lambda: not self.members(), f"the end of {self.process.args}")

    def output(self) -> str:
        return self.log.read_text(errors="replace")


@contextmanager
def program(*command: str | Path, log: Path, env: Mapping[str, str] | None = None) -> Iterator[Program]:
    """A process that is gone, with all it started, when the block is left."""
    started = Program([str(part) for part in command], log, env)
    try:
        yield started
    finally:
        started.stop()


def python(*arguments: str | Path) -> list[str | Path]:
    """The command that runs a Python file with this interpreter."""
    return [sys.executable, *arguments]
