"""`FileSink`: a file as the end of a stream.

Guarantees. Mode "replace": the file appears at once and whole when the sink is closed, also when the job failed (it
then holds what was delivered before); until then, and if the disk cannot take it, the old file stays as it was.
Mode "append": a chunk is on its way to readers when `write` returns, and a chunk that could not be written is taken
back, so that no half line stays behind. Either way an `OSError` names the path.
"""

# Paths are plain strings here: they are compared, sorted and stored in offsets.
# ruff: noqa: PTH100, PTH101, PTH105, PTH108, PTH110, PTH112, PTH113, PTH116, PTH118, PTH120, PTH122, PTH123, PTH202
from __future__ import annotations

import csv
import gzip
import io
import os
import secrets
import stat
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from typing import IO, Any, cast

from penstock.connectors.base import Sink
from penstock.connectors.file_formats import check_encoding
from penstock.connectors.file_paths import PathLike
from penstock.connectors.file_rendering import CsvRenderer, JsonRenderer, LineRenderer, Renderer
from penstock.errors import FlowError, shorten

_FORMATS = {".csv": "csv", ".jsonl": "jsonl", ".ndjson": "jsonl", ".json": "jsonl"}
_BUFFER = 1 << 17
_COMPRESSION = 6  # zlib's own default: 9, that of the gzip module, takes twice the time for 1 % less


class FileSink(Sink):
    """Writes tuples to one file; made by `files.write`."""

    def __init__(self, path: PathLike, layout: str | None, mode: str, encoding: str) -> None:
        self.path = os.path.abspath(path)
        self.is_gzip = self.path.endswith(".gz")
        suffix = os.path.splitext(self.path.removesuffix(".gz"))[1].lower()
        self.format = layout if layout is not None else _FORMATS.get(suffix, "lines")
        self.mode = mode
        self.encoding = check_encoding(encoding)
        if self.format not in ("lines", "csv", "jsonl"):
            raise FlowError(f"write(format=) must be 'lines', 'csv' or 'jsonl', not {layout!r}")
        if mode not in ("replace", "append"):
            raise FlowError(f"write(mode=) must be 'replace' or 'append', not {mode!r}")
        self._forget()

    def _forget(self) -> None:
        self._renderer: Renderer | None = None
        self._file: IO[bytes] | None = None
        self._zipped: gzip.GzipFile | None = None
        self._target = self.path  # with symbolic links followed
        self._temporary: str | None = None
        self._broken = False

    def __getstate__(self) -> dict[str, Any]:
        idle = {"_renderer": None, "_file": None, "_zipped": None, "_temporary": None, "_broken": False}
        return {**self.__dict__, **idle}

    # --------------------------------------------------------------------------------------------------- protocol

    def open(self) -> None:
        self._forget()
        # What is no regular file keeps its name: that of a pipe, /dev/stdout, resolves to nothing that can be opened.
        special = os.path.exists(self.path) and not os.path.isfile(self.path)
        self._target = self.path if special else os.path.realpath(self.path)
        with self._named_errors():
            if os.path.isdir(self._target):
                raise IsADirectoryError(21, "is a directory, not a file to write", self.path)
            self._file = self._open_append() if self._writes_in_place() else self._open_beside()
            if self.is_gzip:
                self._zipped = gzip.GzipFile("", "wb", _COMPRESSION, cast("IO[bytes]", _WholeWrites(self._file)))
        self._renderer = self._renderer or self._make_renderer(None)

    def write(self, tuples: list[Any]) -> None:
        assert self._renderer is not None, "open() comes before write()"
        try:
            data = self._renderer.render(tuples)
        except Exception:
            self._write_singly(tuples)
            return
        self._write_bytes(data)

    def close(self, failed: bool = False) -> None:
        if self._file is None:
            return
        try:
            with self._named_errors():
                self._finish_file()
        finally:
            self._discard()

    def rehearsal(self) -> FileSink:
        sink = FileSink(os.devnull, self.format, "append", self.encoding)
        sink.is_gzip = self.is_gzip
        return sink

    def copy(self, path: PathLike | None) -> None:
        """A run of its own: write what a sink of the same format wrote to the plain file `path` (None: nothing)."""
        self.open()
        try:
            if path is not None:
                with open(path, "rb") as content:
                    while data := content.read(_BUFFER):
                        self._write_bytes(data)
            self.close()
        finally:
            self._discard()

    # ---------------------------------------------------------------------------------------------------- opening

    def _writes_in_place(self) -> bool:
        """In mode "append", and for what cannot be replaced: devices, pipes."""
        return self.mode == "append" or (os.path.exists(self._target) and not os.path.isfile(self._target))

    def _open_beside(self) -> IO[bytes]:
        directory, name = os.path.split(self._target)
        temporary = os.path.join(directory, f".{name}.{secrets.token_hex(4)}.tmp")
        descriptor = os.open(temporary, os.O_WRONLY | os.O_CREAT | os.O_EXCL | getattr(os, "O_CLOEXEC", 0), 0o666)
        self._temporary = temporary
        with suppress(OSError):  # a new file keeps the usual mode
            os.chmod(temporary, stat.S_IMODE(os.stat(self._target).st_mode))
        return open(descriptor, "wb", buffering=_BUFFER)

    def _open_append(self) -> IO[bytes]:
        file = io.FileIO(self._target, "ab")
        if os.path.isfile(self._target) and os.path.getsize(self._target):
            try:
                self._renderer = self._make_renderer(self._target)
                if not self.is_gzip:
                    self._complete_last_line(file)
            except BaseException:
                file.close()
                raise
        return file

    def _make_renderer(self, existing: str | None) -> Renderer:
        if self.format == "lines":
            return LineRenderer(self.encoding)
        if self.format == "jsonl":
            return JsonRenderer(self.encoding)
        return CsvRenderer(self.encoding, None if existing is None else self._header_of(existing))

    def _header_of(self, existing: str) -> tuple[str, ...]:
        opened = gzip.open if self.is_gzip else open
        with cast("IO[str]", opened(existing, "rt", encoding=self.encoding, newline="")) as file:
            return tuple(next(csv.reader(file), ()))

    def _complete_last_line(self, file: IO[bytes]) -> None:
        """A line that an earlier run left unfinished must not swallow our first one."""
        with open(self._target, "rb") as reader:
            reader.seek(-1, os.SEEK_END)
            if reader.read(1) != b"\n":
                file.write(b"\n")

    # ---------------------------------------------------------------------------------------------------- writing

    def _write_singly(self, tuples: list[Any]) -> None:
        """Write what can be written before the tuple that cannot, then say which that is."""
        assert self._renderer is not None
        done: list[bytes] = []
        for item in tuples:
            try:
                done.append(self._renderer.render([item]))
            except Exception as error:
                self._write_bytes(b"".join(done))
                raise ValueError(f"cannot write {shorten(item)} to {self.path} as {self.format}: {error}") from error
        self._write_bytes(b"".join(done))

    def _write_bytes(self, data: bytes) -> None:
        assert self._file is not None
        with self._named_errors():
            if self._temporary is not None:
                (self._zipped or self._file).write(data)
            else:
                self._append(data)

    def _append(self, data: bytes) -> None:
        assert self._file is not None
        before = self._size()
        try:
            if self._zipped is not None:
                self._zipped.write(data)
                self._zipped.flush()
            else:
                _WholeWrites(self._file).write(data)
        except OSError:
            if before is not None:
                with suppress(OSError):
                    self._file.truncate(before)
            raise

    def _size(self) -> int | None:
        assert self._file is not None
        status = os.fstat(self._file.fileno())
        return status.st_size if stat.S_ISREG(status.st_mode) else None

    # ---------------------------------------------------------------------------------------------------- closing

    def _finish_file(self) -> None:
        assert self._file is not None
        if self._broken:
            return
        if self._zipped is not None:
            self._zipped.close()
        self._file.flush()
        if self._size() is not None:
            os.fsync(self._file.fileno())
        self._file.close()
        if self._temporary is not None:
            os.replace(self._temporary, self._target)
            self._temporary = None
            _sync_directory(os.path.dirname(self._target))

    def _discard(self) -> None:
        """Let go of everything that is still held."""
        # The file first: closing the packer of a failed write would still add its trailer to the file.
        for held in (self._file, self._zipped):
            if held is not None:
                with suppress(OSError, ValueError):
                    held.close()
        if self._temporary is not None:
            with suppress(OSError):
                os.unlink(self._temporary)
        self._forget()

    @contextmanager
    def _named_errors(self) -> Iterator[None]:
        """An OSError inside is raised with the path in it, and leaves nothing to move into place."""
        try:
            yield
        except OSError as error:
            self._broken = True
            named = OSError(error.errno, error.strerror or str(error), self.path)
            raise named.with_traceback(error.__traceback__) from error


class _WholeWrites:
    """Writes all it is given or raises; a raw file may take a part and say so, which GzipFile would not notice."""

    def __init__(self, file: IO[bytes]) -> None:
        self._file = file

    def write(self, data: bytes) -> int:
        view = memoryview(data)
        while view:
            view = view[self._file.write(view) or 0 :]
        return len(data)

    def flush(self) -> None:
        self._file.flush()


def _sync_directory(path: str) -> None:
    with suppress(OSError):  # not every platform lets a directory be opened
        descriptor = os.open(path, os.O_RDONLY)
        try:
            os.fsync(descriptor)
        finally:
            os.close(descriptor)
