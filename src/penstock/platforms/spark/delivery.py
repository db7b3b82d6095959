"""Sinks on Spark: the driver receives each batch, puts it in order and delivers it.

Exactly once, where a checkpoint is kept: Spark repeats a batch that was not committed, under the same number and with
the same tuples. Files write down where they ended before a batch and are cut back when the batch comes again. What
`collect()` and lists gather is kept with the checkpoint. Functions and sinks of the user's own reach the outside world
by ways nobody can take back: a batch that was delivered to them completely is not delivered again; one that was
interrupted is, from its start.
"""

from __future__ import annotations

import json
import os
import pickle
from collections.abc import Callable
from pathlib import Path
from typing import Any, ClassVar

from penstock.connectors.base import Sink, as_sink
from penstock.connectors.file_writing import FileSink
from penstock.errors import PenstockError, PlatformError
from penstock.graph.graph import Node
from penstock.graph.operations import Write
from penstock.graph.stream import Collected
from penstock.platforms.spark.checkpoint import write_whole
from penstock.platforms.spark.connectors import SparkSink
from penstock.platforms.spark.wire import dumps
from penstock.runtime.failure import operator_error


class Delivery:
    """One sink of a job. `folder` is where it keeps notes for a restart; None without a checkpoint."""

    def __init__(self, node: Node, folder: Path | None) -> None:
        assert isinstance(node.operation, Write)
        self.node = node
        self.target = node.operation.target
        self.delivered = 0
        self._folder = folder
        self._sink: Sink | None = None
        self._note: dict[str, Any] | None = None

    def open(self) -> None:
        """Begin a run, or go on with one."""
        if self._folder is not None:
            self._folder.mkdir(parents=True, exist_ok=True)
            self._note = self._read_note()
        self._guard("to start", self._open)

    def _open(self) -> None:
        if isinstance(self.target, Collected):
            self.target.clear()
        self._sink = as_sink(self.target)
        self._sink.open()

    def write(self, batch: int, tuples: list[Any]) -> None:
        """Deliver the tuples of batch number `batch`."""
        if not tuples:
            return
        if not self._repeats(batch):
            self._guard("", self._write, tuples)
            self._save_note({"batch": batch})
        self.delivered += len(tuples)

    def _write(self, tuples: list[Any]) -> None:
        assert self._sink is not None
        self._sink.write(tuples)

    def close(self, failed: bool) -> None:
        """End the run."""
        if self._sink is not None:
            sink, self._sink = self._sink, None
            self._guard("to close", sink.close, failed)

    def _repeats(self, batch: int) -> bool:
        """True for the batch of the last note. Only that one can come again: Spark commits one before the next."""
        if self._note is None or batch > self._note["batch"]:
            return False
        if batch < self._note["batch"]:
            raise PlatformError(
                f"the checkpoint is damaged: Spark is at batch {batch}, but batch {self._note['batch']} was delivered "
                f"to '{self.node.name}' already; remove the whole folder to start over"
            )
        return True

    def _read_note(self) -> dict[str, Any] | None:
        assert self._folder is not None
        try:
            return json.loads((self._folder / "note.json").read_text())  # type: ignore[no-any-return]
        except FileNotFoundError:
            return None

    def _save_note(self, note: dict[str, Any]) -> None:
        if self._folder is not None:
            write_whole(self._folder / "note.json", json.dumps(note).encode())
            self._note = note

    def _guard(self, doing: str, method: Callable[..., Any], *arguments: Any) -> None:
        try:
            method(*arguments)
        except PenstockError:
            raise
        except Exception as error:
            raise operator_error(error, self.node, doing=doing) from error


class ListDelivery(Delivery):
    """`collect()` or a list with a checkpoint: every batch is kept in a file, so a restarted run has all of them."""

    # Where a job that has not ended began to fill a list of this process: a run that goes on there begins there again.
    _begun: ClassVar[dict[str, tuple[list[Any], int]]] = {}

    def _open(self) -> None:
        assert self._folder is not None
        target = self.target
        known, start = self._begun.get(str(self._folder), (None, 0))
        if isinstance(target, Collected):
            start = 0
        elif known is not target:
            start = len(target)
            self._begun[str(self._folder)] = (target, start)
        del target[start:]
        self._last, self._first = -1, start  # the last batch and where in the list it begins
        for path in sorted(self._folder.glob("*.batch")):
            self._last, self._first = int(path.stem), len(target)
            target.extend(pickle.loads(path.read_bytes()))

    def write(self, batch: int, tuples: list[Any]) -> None:
        assert self._folder is not None
        if batch == self._last:
            del self.target[self._first :]
        elif not tuples:
            return
        self._last, self._first = batch, len(self.target)
        write_whole(self._folder / f"{batch:010d}.batch", dumps(tuples))
        self.target.extend(tuples)
        self.delivered += len(tuples)

    def close(self, failed: bool) -> None:
        if not failed:
            self._begun.pop(str(self._folder), None)


class FileDelivery(Delivery):
    """A file with a checkpoint: appended to batch by batch, and cut back to where a repeated batch began.

    Before a batch is written, the note says how long the file is. In mode "replace" the file grows inside the
    checkpoint, unpacked, and is put into place when the job ends.
    """

    def __init__(self, node: Node, folder: Path) -> None:
        super().__init__(node, folder)
        target = self.target
        self._replaces = target.mode == "replace"
        self._path = folder / "content" if self._replaces else Path(target.path)
        self._appending = FileSink(self._path, target.format, "append", target.encoding)

    def _open(self) -> None:
        """Files are opened for each batch."""

    def write(self, batch: int, tuples: list[Any]) -> None:
        if self._repeats(batch):
            assert self._note is not None
            self._cut_back(int(self._note["size"]))
        elif tuples:
            self._save_note({"batch": batch, "size": self._size()})
        if tuples:
            self._guard("", self._append, tuples)
            self.delivered += len(tuples)

    def _size(self) -> int:
        return self._path.stat().st_size if self._path.exists() else 0

    def _cut_back(self, size: int) -> None:
        if self._size() > size:
            os.truncate(self._path, size)

    def _append(self, tuples: list[Any]) -> None:
        self._appending.open()
        try:
            self._appending.write(tuples)
        finally:
            self._appending.close()

    def close(self, failed: bool) -> None:
        """A failed run may go on later: only a run that has ended puts the file in place."""
        if self._replaces and not failed:
            self._guard("to close", self._put_in_place)

    def _put_in_place(self) -> None:
        self.target.copy(self._path if self._path.exists() else None)


class FrameDelivery(Delivery):
    """A data frame for each batch. A repeated batch is handed over again, under its old number."""

    def __init__(self, node: Node, folder: Path | None, session: Any) -> None:
        super().__init__(node, folder)
        self._session = session

    def _open(self) -> None:
        """Frames need nothing but the session."""

    def write(self, batch: int, tuples: list[Any]) -> None:
        if tuples:
            self._guard("", self.target.deliver, self._session, batch, tuples)
            self.delivered += len(tuples)


def make_delivery(node: Node, folder: Path | None, session: Any) -> Delivery:
    """The delivery that suits a sink."""
    target = node.operation.target  # type: ignore[attr-defined]
    if isinstance(target, SparkSink):
        return FrameDelivery(node, folder, session)
    if folder is not None and isinstance(target, list):
        return ListDelivery(node, folder)
    if folder is not None and isinstance(target, FileSink) and _can_be_cut(target):
        return FileDelivery(node, folder)
    return Delivery(node, folder)


def _can_be_cut(target: FileSink) -> bool:
    """Not what is appended to a pipe or a device."""
    path = Path(target.path)
    return target.mode == "replace" or path.is_file() or not path.exists()
