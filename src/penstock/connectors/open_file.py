"""One file open for reading: its position, its lines, and whether it was cut, replaced or damaged meanwhile.

The position is always that of the next line to take. Sequential reading never seeks: `lines()` hands out the buffered
handle itself where nothing has to be watched, and a generator over it where something has to.
"""

# Paths are plain strings here: they are compared, sorted and stored in offsets.
# ruff: noqa: PTH116, PTH123
from __future__ import annotations

import codecs
import csv
import gzip
import io
import os
import zlib
from collections.abc import Iterable, Iterator
from typing import Any

import msgspec

from penstock.connectors.file_formats import UNFINISHED, Format, Parser
from penstock.errors import Location

_BUFFER = 1 << 17  # 128 KiB: reading plain lines gains nothing past it
_GZIP_MAGIC = b"\x1f\x8b"


class OpenFile:
    """A plain or gzip file being read with a format. `line` is None where its number is not known."""

    def __init__(self, path: str, index: int, byte: int, line: int | None, *, layout: Format, follow: bool) -> None:
        self.path = path
        self.index = index
        self.byte = 0
        self.line: int | None = 0
        self.parser: Parser | None = None
        self.fault: str | None = None  # why the file cannot be read at all
        self.damage: str | None = None  # why it cannot be read past `byte`
        self.draining = False  # followed up to here; nothing more will be appended
        self.layout = layout
        self.follow = follow
        self._plain = io.BufferedReader(io.FileIO(path), _BUFFER)
        try:
            self.is_gzip = path.endswith(".gz") or self._plain.peek(2)[:2] == _GZIP_MAGIC
            self.handle = self._unzipped() if self.is_gzip else self._plain
            self.start()
            if byte:
                self.seek(byte, line)
        except BaseException:
            self.close()
            raise

    def _unzipped(self) -> io.BufferedReader:
        # A buffer around it reads lines at C speed; GzipFile's own readline is a Python call per line.
        return io.BufferedReader(_Unzipped(gzip.GzipFile(fileobj=self._plain, mode="rb")), _BUFFER)

    def start(self) -> None:
        """Read what stands before the first record; leaves `parser` None if that is not all there yet."""
        if self.layout.encoding == "utf-8-sig":
            self._skip_mark()
        try:
            started = self.layout.start(self.lines())
        except OSError:
            raise
        except Exception as error:
            if not self.waits(error):
                self.fault = reason(error)
            started = None
        if started is None:
            self.seek(0, 0)
            return
        self.parser, self.line = started
        self.byte = self.handle.tell()

    def _skip_mark(self) -> None:
        try:
            if self.handle.peek(3)[:3] == codecs.BOM_UTF8:
                self.byte = len(self.handle.read(3))
        except (EOFError, zlib.error, gzip.BadGzipFile):
            self.seek(0, 0)  # reading the first line meets it again

    def waits(self, error: Exception) -> bool:
        """Whether `error` only says that the rest of a record has not been written yet."""
        return self.follow and not self.draining and str(error) == UNFINISHED

    # ------------------------------------------------------------------------------------------------- position

    def seek(self, byte: int, line: int | None) -> None:
        """Go to another place of the file."""
        self.handle.seek(byte)
        self.byte, self.line = byte, line

    def take(self, lines: int) -> None:
        """`lines` lines have been taken from `lines()`."""
        if self.line is not None:
            self.line += lines
        if not self._watched():
            self.byte = self.handle.tell()

    def take_line(self) -> bytes:
        """One line as it stands, taken."""
        raw = self.handle.readline()
        self.byte += len(raw)
        if self.line is not None:
            self.line += 1
        return raw

    def where(self) -> str:
        """`file:line` of the next line."""
        line = self.line if self.line is not None else self._count_lines()
        return str(Location(self.path, line + 1))

    def _count_lines(self) -> int:
        left, count = self.byte, 0
        with open(self.path, "rb") as handle:
            while left and (block := handle.read(min(left, _BUFFER))):
                count += block.count(b"\n")
                left -= len(block)
        return count

    # ---------------------------------------------------------------------------------------------------- lines

    def _watched(self, stop: int | None = None) -> bool:
        return self.is_gzip or stop is not None or (self.follow and not self.draining)

    def lines(self, stop: int | None = None) -> Iterable[bytes]:
        """The lines from here on: up to byte `stop`, and only complete ones while the file may still grow."""
        return self._watched_lines(stop) if self._watched(stop) else self.handle

    def _watched_lines(self, stop: int | None) -> Iterator[bytes]:
        complete_only = self.follow and not self.draining
        handle = self.handle
        try:
            if stop is not None and self.byte >= stop:
                return
            for line in handle:
                if complete_only and not line.endswith(b"\n"):
                    handle.seek(self.byte)
                    return
                self.byte += len(line)
                yield line
                if stop is not None and self.byte >= stop:
                    return
        except EOFError:
            self.damage = "the gzip data is cut off"
        except (zlib.error, gzip.BadGzipFile) as error:
            self.damage = f"the gzip data is damaged: {error}"

    # ------------------------------------------------------------------------------------------------ the outside

    def truncated(self) -> bool:
        """Whether the file has become shorter than what was read."""
        return not self.is_gzip and os.fstat(self._plain.fileno()).st_size < self.byte

    def replaced(self) -> bool:
        """Whether another file has taken its place, as log rotation does. False while there is none."""
        try:
            now = os.stat(self.path)
        except FileNotFoundError:
            return False
        mine = os.fstat(self._plain.fileno())
        return (now.st_dev, now.st_ino) != (mine.st_dev, mine.st_ino)

    def close(self) -> None:
        """Release the handle."""
        try:
            if self.__dict__.get("handle") is not None:
                self.handle.close()
        finally:
            self._plain.close()


class _Unzipped(io.RawIOBase):
    """Unpacked gzip data in the pieces in which it comes, so that what lies before a damaged place can be read."""

    def __init__(self, zipped: gzip.GzipFile) -> None:
        self._zipped = zipped

    def readable(self) -> bool:
        return True

    def seekable(self) -> bool:
        return True

    def readinto(self, buffer: Any) -> int:
        data = self._zipped.read1(len(buffer))
        buffer[: len(data)] = data
        return len(data)

    def seek(self, offset: int, whence: int = io.SEEK_SET) -> int:
        return self._zipped.seek(offset, whence)

    def tell(self) -> int:
        return self._zipped.tell()

    def close(self) -> None:
        self._zipped.close()
        super().close()


def reason(error: BaseException) -> str:
    """Why a record was refused, in words."""
    text = str(error)
    if text == UNFINISHED:
        return "a quoted field is never closed"
    speaks_for_itself = isinstance(error, ValueError | csv.Error | msgspec.MsgspecError) and text
    return text if speaks_for_itself else f"{type(error).__name__}: {text}"
