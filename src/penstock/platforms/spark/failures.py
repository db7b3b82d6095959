"""What workers tell of a tuple that failed, and the error it becomes in the driver."""

from __future__ import annotations

import pickle

# The level and origin of what failed, the error, its pickled cause, and the worker's traceback.
Failure = tuple[int, int, BaseException, bytes, str]


def cause_of(packed: bytes, shown: str) -> BaseException | None:
    """What the user's function raised in a worker, with the worker's traceback as a note."""
    cause: BaseException | None = pickle.loads(packed)
    if cause is None:
        return WorkerTraceback(shown) if shown else None
    cause.add_note("In the worker:\n" + shown)
    return cause


class WorkerTraceback(Exception):
    """The traceback of an error in a worker, as text."""

    def __str__(self) -> str:
        return "\n" + super().__str__()
