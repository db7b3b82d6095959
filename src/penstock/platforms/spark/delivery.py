"""Sinks on Spark: the driver receives each batch, puts it in order and delivers it.

Exactly once, where a checkpoint is kept: Spark repeats a batch after a crash under the same number and with the same
tuples. File sinks write down where the file ended before a batch and cut it back when the batch comes again. What
`collect()` gathers is kept with the checkpoint. Functions and lists live in the process that crashed: a batch that was
delivered to them completely is not delivered again; one that was interrupted is, from its start.
"""

from __future__ import annotations

import json
import os
import pickle
import shutil
from collections.abc import Callable
from pathlib import Path
from typing import Any

from penstock.connectors.base import Sink, as_sink
from penstock.connectors.file_writing import FileSink
from penstock.errors import PenstockError
from penstock.graph.graph import Node
from penstock.graph.operations import Write
from penstock.graph.stream import Collected
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
        if folder is not None:
            folder.mkdir(parents=True, exist_ok=True)

    def open(self) -> None:
        """Begin a run, or go on with one."""
        self._guard("to start", self._open)

    def _open(self) -> None:
        if isinstance(self.target, Collected):
            self.target.clear()
        self._sink = as_sink(self.target)
        self._sink.open()

    def write(self, batch: int, tuples: list[Any]) -> None:
        """Deliver the tuples of batch number `batch`."""
        if tuples and not self._already(batch):
            self._guard("", self._write, tuples)
        self._note(batch)
        self.delivered += len(tuples)

    def _write(self, tuples: list[Any]) -> None:
        assert self._sink is not None
        self._sink.write(tuples)

    def _already(self, batch: int) -> bool:
        note = self._read_note()
        return note is not None and batch <= int(note["batch"])

    def _note(self, batch: int) -> None:
        if self._folder is not None:
            self._save_note({"batch": batch})

    def close(self, failed: bool) -> None:
        """End the run."""
        if self._sink is not None:
            sink, self._sink = self._sink, None
            self._guard("to close", sink.close, failed)

    def _read_note(self) -> dict[str, Any] | None:
        if self._folder is None:
            return None
        try:
            return json.loads((self._folder / "note.json").read_text())  # type: ignore[no-any-return]
        except FileNotFoundError:
            return None

    def _save_note(self, note: dict[str, Any]) -> None:
        assert self._folder is not None
        temporary = self._folder / ".note.json"
        temporary.write_text(json.dumps(note))
        temporary.replace(self._folder / "note.json")

    def _guard(self, doing: str, method: Callable[..., Any], *arguments: Any) -> None:
        try:
            method(*arguments)
        except PenstockError:
            raise
        except Exception as error:
            raise operator_error(error, self.node, doing=doing) from error


class CollectedDelivery(Delivery):
    """`collect()` with a checkpoint: every batch is kept in a file, so a restarted run has all of them."""

    def _open(self) -> None:
        assert self._folder is not None
        self.target.clear()
        for path in sorted(self._folder.glob("*.batch")):
            self.target.extend(pickle.loads(path.read_bytes()))
        self._sink = as_sink(self.target)

    def write(self, batch: int, tuples: list[Any]) -> None:
        assert self._folder is not None
        path = self._folder / f"{batch:010d}.batch"
        if path.exists():
            return  # the same tuples, and they are in the list already
        temporary = path.with_suffix(".part")
        temporary.write_bytes(dumps(tuples))
        temporary.replace(path)
        self.target.extend(tuples)
        self.delivered += len(tuples)


class FileDelivery(Delivery):
    """A file with a checkpoint: appended to batch by batch, and cut back to where a repeated batch began.

    In mode "replace" the file grows beside the checkpoint and is moved into place when the job ends.
    """

    def __init__(self, node: Node, folder: Path) -> None:
        super().__init__(node, folder)
        target = self.target
        self._replaces = target.mode == "replace"
        suffix = ".gz" if target.is_gzip else ""
        self._path = folder / f"content{suffix}" if self._replaces else Path(target.path)
        self._appending = FileSink(str(self._path), target.format, "append", target.encoding)

    def _open(self) -> None:
        note = self._read_note()
        if note is None:
            size = self._path.stat().st_size if self._path.exists() and not self._replaces else 0
            if self._replaces:
                self._path.unlink(missing_ok=True)
            self._save_note({"batch": -1, "size": size, "before": size})

    def write(self, batch: int, tuples: list[Any]) -> None:
        note = self._read_note()
        assert note is not None, "open() wrote one"
        size = int(note["before"] if batch == int(note["batch"]) else note["size"])
        if self._path.exists():
            os.truncate(self._path, size)
        if tuples:
            self._guard("", self._append, tuples)
        after = self._path.stat().st_size if self._path.exists() else 0
        self._save_note({"batch": batch, "size": after, "before": size})
        self.delivered += len(tuples)

    def _append(self, tuples: list[Any]) -> None:
        self._appending.open()
        try:
            self._appending.write(tuples)
        except BaseException:
            self._appending.close(failed=True)
            raise
        self._appending.close()

    def close(self, failed: bool) -> None:
        """A failed run may go on later: only a run that has ended puts the file in place."""
        if self._replaces and not failed:
            self._guard("to close", self._put_in_place)

    def _put_in_place(self) -> None:
        target = Path(self.target.path)
        beside = target.with_name(f".{target.name}.penstock")
        if self._path.exists():
            shutil.copyfile(self._path, beside)
        else:
            beside.write_bytes(b"")
        beside.replace(target)


def make_delivery(node: Node, folder: Path | None) -> Delivery:
    """The delivery that suits a sink."""
    target = node.operation.target  # type: ignore[attr-defined]
    if folder is not None and isinstance(target, Collected):
        return CollectedDelivery(node, folder)
    if folder is not None and isinstance(target, FileSink):
        return FileDelivery(node, folder)
    return Delivery(node, folder)
