"""`FileSource`: the tuples of one file after the other, finite or followed, with malformed input handled.

The offset is `{"path", "index", "byte", "line"}`: the file (its path, and its number where the user gave a list), the
byte of the next line, and how many lines lie before. `byte` is None when the file is finished: go on with the next.
For gzip, bytes are counted in the unpacked data. A batch never spans two files.

A chunk of lines is parsed as a whole. Only if that raises is it gone through again record by record, so that good
records before and after a malformed one are delivered and the malformed one is named by `file:line`. In mode "raise"
the good ones are returned first with an offset *at* the malformed one; reading that offset raises, every time.

Following (`tail -F`): a line counts once its newline is there. When another file takes the place of the one being
read (rotation), or the next file of a directory is there, the old one is read to its very end first; when a file
shrinks, it is read anew from its start.
"""

# Paths are plain strings here: they are compared, sorted and stored in offsets.
# ruff: noqa: PTH110, PTH112
from __future__ import annotations

import copy
import errno
import os
from typing import Any

from penstock.connectors.base import Batch, Offset, Source
from penstock.connectors.file_formats import Format
from penstock.connectors.file_paths import Listing, Paths
from penstock.connectors.file_ranges import cut
from penstock.connectors.open_file import OpenFile, reason
from penstock.errors import FlowError, InputError
from penstock.graph.stream import DeadLetterStream
from penstock.tuples import DeadLetter


class FileSource(Source):
    """Reads files; made by `files.lines`, `files.csv` and `files.jsonl`."""

    def __init__(
        self, paths: Paths, layout: Format, *, follow: bool = False, punctuate: bool = False, on_error: Any = "raise"
    ) -> None:
        letters = on_error if isinstance(on_error, DeadLetterStream) else None
        if letters is None and on_error not in ("raise", "skip"):
            raise FlowError(
                f"on_error= must be 'raise', 'skip' or a stream made by flow.dead_letters(), not {on_error!r}"
            )
        self.name = layout.name
        self.paths = paths
        self.layout = layout
        self.follow = follow
        self.punctuate = punctuate
        self.on_error: str = "stream" if letters is not None else on_error
        self.dead_letters_to = letters
        self._first: Offset = {"path": "", "index": -1, "byte": None, "line": 0}
        self._stop: tuple[int, int] | None = None  # number of the file and the byte where a range ends
        self._listing: Listing | None = None
        self._file: OpenFile | None = None
        self._offset: Offset = None  # of the next tuple; None when it is not known
        self._late: list[str] = []

    def __repr__(self) -> str:
        return f"<{self.layout.name} of {', '.join(self.paths.given[:3])}{'…' if len(self.paths.given) > 3 else ''}>"

    def __getstate__(self) -> dict[str, Any]:
        # The dead-letter stream belongs to the flow that was built, and handles to this process: neither travels.
        idle: dict[str, Any] = {"dead_letters_to": None, "_listing": None, "_file": None, "_offset": None, "_late": []}
        return {**self.__dict__, **idle}

    def fresh(self) -> FileSource:
        """An equal source with reading state of its own."""
        return copy.copy(self)

    # -------------------------------------------------------------------------------------------------- protocol

    def initial(self) -> Offset:
        self.close()
        self._listing = None
        return dict(self._first)

    def read(self, offset: Offset, limit: int) -> Batch:
        if self._offset is None or offset != self._offset:
            self._go_to(offset)
        batch = Batch([], offset)
        try:
            while not self._advance(batch, limit):
                pass
        except BaseException:
            self.close()
            raise
        self._offset = batch.offset = self._place()
        return batch

    def close(self) -> None:
        self._offset = None
        if self._file is not None:
            file, self._file = self._file, None
            file.close()

    # ------------------------------------------------------------------------------------------------- one step

    def _advance(self, batch: Batch, limit: int) -> bool:
        """Read on in the current file, or go to the next; true when `batch` is to be returned."""
        if self._late and not batch.tuples:
            return self._refuse_late(batch)
        file = self._file or self._open_next()
        if file is None:
            batch.done = not self.follow
            return True
        ended = self._read_chunk(file, limit, batch)
        if not ended:
            return True
        if self._stop is not None and file.index == self._stop[0]:
            batch.done = True
            return True
        if self.follow and not file.draining and not file.fault:
            return self._wait_or_move_on(file, batch)
        return self._finish(file, batch)

    def _finish(self, file: OpenFile, batch: Batch) -> bool:
        """The file has been read to its end."""
        flaw = file.damage or file.fault
        if flaw is not None and not self._refuse(batch, flaw, file.where(), file.path):
            self._go_to(self._place())  # its good tuples go first; read again, it fails at once
            return True
        again = self.follow and self._next() is None and file.replaced()
        file.close()
        self._file = None
        self._offset = _offset(file.path, file.index, 0 if again else None, 0 if again else file.line)
        batch.window = self.punctuate
        batch.done = not self.follow and self._next() is None
        return batch.done or batch.window or _has_content(batch)

    def _wait_or_move_on(self, file: OpenFile, batch: Batch) -> bool:
        """A followed file has nothing more now: is it finished, or will it grow?"""
        assert self._listing is not None
        self._listing.refresh()
        self._late += self._listing.late(file.path)
        if file.truncated():
            self._go_to(_offset(file.path, file.index, 0, 0))
        elif self._next() is not None or file.replaced():
            # Whoever writes has moved on already, so what can be read of the old file from here on is all of it.
            file.draining = True
            if file.damage is not None:
                file.damage = None
                file.seek(file.byte, file.line)
        elif file.damage is not None:  # gzip data still being written
            self._go_to(self._place())
            return True
        else:
            return not self._late or _has_content(batch)
        return _has_content(batch)

    # ------------------------------------------------------------------------------------------- place and files

    def _place(self) -> Offset:
        file = self._file
        return self._offset if file is None else _offset(file.path, file.index, file.byte, file.line)

    def _go_to(self, offset: Offset) -> None:
        self.close()
        self._offset = offset
        if self._listing is None:
            self._listing = Listing(self.paths)

    def _next(self) -> tuple[str, int] | None:
        """The file after the current one."""
        assert self._listing is not None
        place = self._place()
        following = self._listing.after(place["path"], place["index"])
        beyond = following is not None and self._stop is not None and (following[1], 0) >= self._stop
        return None if beyond else following

    def _open_next(self) -> OpenFile | None:
        path, index, byte, line = (self._offset[key] for key in ("path", "index", "byte", "line"))
        assert self._listing is not None
        if byte is None:
            if self.follow:
                self._listing.refresh()
            following = self._next()
            if following is None:
                self._require_some(path)
                return None
            (path, index), byte, line = following, 0, 0
        elif self.follow and not os.path.exists(path):
            return None  # in the middle of a rotation
        self._file = OpenFile(path, index, byte, line, layout=self.layout, follow=self.follow)
        if self._file.truncated():
            if not self.follow:
                raise InputError(f"the file has become shorter than the {byte} bytes read before", where=path)
            self._file.seek(0, 0)
            self._file.start()
        return self._file

    def _require_some(self, path: str) -> None:
        assert self._listing is not None
        named = self.paths.given[0] if self.paths.given else ""
        if not path and self._listing.changing and not self.follow and not os.path.isdir(named):
            raise FileNotFoundError(errno.ENOENT, "no file matches the pattern", named)

    # --------------------------------------------------------------------------------------------------- records

    def _read_chunk(self, file: OpenFile, limit: int, batch: Batch) -> bool:
        """Parse up to `limit` records into `batch`; true when the file has no more (for now)."""
        if file.parser is None and not file.fault:
            file.start()
        if file.parser is None:
            return True
        stop = self._stop[1] if self._stop is not None and file.index == self._stop[0] else None
        byte, line = file.byte, file.line
        try:
            parsed = file.parser.read(file.lines(stop), limit)
        except OSError:
            raise
        except Exception:
            file.seek(byte, line)
            return self._read_singly(file, limit, stop, batch)
        batch.tuples = parsed.tuples
        file.take(parsed.lines)
        return parsed.records < limit

    def _read_singly(self, file: OpenFile, limit: int, stop: int | None, batch: Batch) -> bool:
        """The same, one record at a time, so that what is malformed can be told apart."""
        assert file.parser is not None
        for _ in range(limit):
            byte, line = file.byte, file.line
            try:
                parsed = file.parser.read(file.lines(stop), 1)
            except OSError:
                raise
            except Exception as error:
                file.seek(byte, line)
                if file.waits(error):
                    return True
                where, raw = file.where(), file.take_line()
                if not self._refuse(batch, reason(error), where, self._text(raw)):
                    file.seek(byte, line)
                    return False
                continue
            file.take(parsed.lines)
            if not parsed.records:
                return True
            batch.tuples += parsed.tuples
        return False

    def _refuse(self, batch: Batch, why: str, where: str, data: str) -> bool:
        """Handle malformed input as the user asked; false when good tuples must be returned before it raises."""
        if self.on_error == "skip":
            batch.skipped += 1
        elif self.on_error == "stream":
            batch.dead.append(DeadLetter(data, self.name, why, where))
        elif batch.tuples:
            return False
        else:
            raise InputError(why, where=where, data=data)
        return True

    def _refuse_late(self, batch: Batch) -> bool:
        why = f"the file appeared after later ones were read; files must arrive in name order to be followed ({self!r})"
        while self._late:
            path = self._late.pop()
            self._refuse(batch, why, path, path)
        return True

    def _text(self, raw: bytes) -> str:
        return raw.decode(self.layout.encoding, "backslashreplace").removesuffix("\n").removesuffix("\r")

    # ---------------------------------------------------------------------------------------------------- ranges

    def ranges(self, number: int) -> list[FileSource]:
        """At most `number` sources which, one after the other, read exactly what this one reads.

        They can be read at the same time, in other processes. Plain files are cut at line starts; gzip files, and CSV
        files in which a quoted field holds a newline, stay whole.
        """
        if self.follow:
            raise FlowError("a followed file has no end, so it cannot be cut into ranges")
        names = Listing(self.paths).names
        return [self._range(names, start, stop) for start, stop in cut(names, self.layout, number)]

    def _range(self, names: list[str], start: tuple[int, int], stop: tuple[int, int]) -> FileSource:
        (first, byte), (last, end) = start, stop
        part = self.fresh()
        part.paths = Paths(tuple(names[first : last + (end > 0)]), as_list=True)
        part._first = _offset(names[first], 0, byte, None if byte else 0)  # noqa: SLF001 — one of us
        part._stop = (last - first, end) if end else None  # noqa: SLF001
        return part


def _offset(path: str, index: int, byte: int | None, line: int | None) -> Offset:
    return {"path": path, "index": index, "byte": byte, "line": line}


def _has_content(batch: Batch) -> bool:
    return bool(batch.tuples or batch.dead or batch.skipped)
