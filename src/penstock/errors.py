"""Every error Penstock raises, in one tree; the class says whose fault it is.

    PenstockError
    ├── FlowError            the program is put together wrongly (found before anything runs)
    ├── OperatorError        code of an operator failed on a tuple while the program ran
    │   ├── SourceError      … and that operator was a source: reading failed
    │   └── SinkError        … and that operator was a sink: writing failed
    ├── InputError           a source met data it cannot parse (carries file and line)
    ├── PlatformError        the platform asked for cannot run this program here
    └── Cancelled            somebody stopped the job; not a failure

A message says which operator, where the user wrote it, what was expected, what came, and what to do next.
"""

from __future__ import annotations

import os
import sys
from dataclasses import dataclass
from types import FrameType

_PACKAGE = os.path.dirname(os.path.abspath(__file__)) + os.sep
_STANDARD_LIBRARY = os.path.dirname(os.__file__) + os.sep  # installed packages lie below it too


@dataclass(frozen=True, slots=True)
class Location:
    """A line of the user's program."""

    file: str
    line: int

    def __str__(self) -> str:
        return f"{_shorten_path(self.file)}:{self.line}"


def _shorten_path(path: str) -> str:
    try:
        relative = os.path.relpath(path)
    except ValueError:  # another drive on Windows
        return path
    return path if relative.startswith("..") else relative


def is_user_file(filename: str) -> bool:
    """True for code the user wrote: neither Penstock's own files nor the functions it generates."""
    return not filename.startswith(_PACKAGE) and not filename.startswith("<penstock")


def user_location() -> Location:
    """The innermost line of the calling stack that lies outside Penstock."""
    frame: FrameType | None = sys._getframe(1)
    while frame is not None:
        if is_user_file(frame.f_code.co_filename):
            return Location(frame.f_code.co_filename, frame.f_lineno)
        frame = frame.f_back
    return Location("<unknown>", 0)


def _is_library_file(filename: str) -> bool:
    return filename.startswith((_STANDARD_LIBRARY, "<frozen")) or "site-packages" in filename


def failing_user_line(error: BaseException) -> Location | None:
    """The deepest line of the user's own code in the traceback of `error`, if there is one."""
    found = None
    traceback = error.__traceback__
    while traceback is not None:
        filename = traceback.tb_frame.f_code.co_filename
        if is_user_file(filename) and not _is_library_file(filename):
            found = Location(filename, traceback.tb_lineno)
        traceback = traceback.tb_next
    return found


def shorten(value: object, limit: int = 120) -> str:
    """`repr(value)`, cut to `limit` characters, and never failing itself."""
    try:
        text = repr(value)
    except Exception as error:  # a broken __repr__ must not hide the error being reported
        text = f"<{type(value).__name__} whose repr() fails: {error}>"
    return text if len(text) <= limit else text[: limit - 1] + "…"


class PenstockError(Exception):
    """Base of all errors of Penstock."""


class FlowError(PenstockError):
    """The program is put together wrongly: nothing has run yet."""


class PlatformError(PenstockError):
    """The platform asked for cannot run this program on this machine."""


class Cancelled(PenstockError):
    """The job was stopped by `job.cancel()` or Ctrl-C before it came to its end."""


class InputError(PenstockError):
    """A source met data that it cannot parse.

    `where` is `file:line` of the data, `data` the offending text as it was read.
    """

    def __init__(self, message: str, *, where: str, data: object = None) -> None:
        super().__init__(f"{where}: {message}")
        self.where = where
        self.data = data
        self.reason = message

    def __reduce__(self) -> tuple[object, ...]:
        return (_rebuild_input_error, (self.reason, self.where, self.data))


def _rebuild_input_error(reason: str, where: str, data: object) -> InputError:
    return InputError(reason, where=where, data=data)


class OperatorError(PenstockError):
    """An operator failed on a tuple. The original exception is the `__cause__`.

    Everything the operator delivered before the failing tuple has been delivered.
    """

    def __init__(
        self,
        operator: str,
        reason: str,
        *,
        defined: Location | None = None,
        failed: Location | None = None,
        item: str | None = None,
        doing: str = "",
    ) -> None:
        self.operator = operator
        self.reason = reason
        self.defined = defined
        self.failed = failed
        self.item = item
        self.doing = doing
        super().__init__(self._message())

    def _message(self) -> str:
        place = f" (defined at {self.defined})" if self.defined else ""
        text = f"operator '{self.operator}'{place} failed{' ' + self.doing if self.doing else ''}: {self.reason}"
        if self.failed is not None and self.failed != self.defined:
            text += f"\n  raised at {self.failed}"
        if self.item is not None:
            text += f"\n  on tuple  {self.item}"
        return text

    def __reduce__(self) -> tuple[object, ...]:
        fields = (self.operator, self.reason, self.defined, self.failed, self.item, self.doing)
        return (_rebuild_operator_error, (type(self), fields))


def _rebuild_operator_error(cls: type[OperatorError], fields: tuple[object, ...]) -> OperatorError:
    operator, reason, defined, failed, item, doing = fields
    return cls(operator, reason, defined=defined, failed=failed, item=item, doing=doing)  # type: ignore[arg-type]


class SourceError(OperatorError):
    """A source failed while it was read."""


class SinkError(OperatorError):
    """A sink failed while it was written."""
