"""What a job keeps beside Spark's own checkpoint, and who may use it.

    program.json   the program the checkpoint belongs to, and the channels of its levels
    finals.json    which sources have ended, and in which batch
    complete       the job has ended and its sinks are in place
    lock           held by the process that runs the job
    sources/       a spool for each source (`spool.py`)
    sinks/         notes and content of each sink (`delivery.py`)
    spark/         Spark's: offsets, commits, state

Every file appears whole. A batch counts as done when Spark has committed it; whatever belongs to a later batch is
made again, and the same.
"""

from __future__ import annotations

import contextlib
import hashlib
import json
import os
from pathlib import Path
from typing import IO, Any
from urllib.parse import quote

from penstock.errors import PlatformError
from penstock.graph.graph import Graph


class Checkpoint:
    """The folder of one job."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        self._lock: IO[bytes] | None = None

    def place(self, kind: str, name: str) -> Path:
        """Where the operator `name` keeps things; any name an operator can have is a file name there."""
        return self.folder / kind / quote(name, safe=" ").replace(".", "%2E")

    # ------------------------------------------------------------------------------------------------- one process

    def acquire(self) -> None:
        """Two processes on one checkpoint would both deliver. The lock goes with the process that holds it."""
        try:
            import fcntl
        except ImportError:  # not on every platform; Spark still notices when both write its log
            return
        if self._lock is not None:
            return
        file = (self.folder / "lock").open("ab")
        try:
            fcntl.flock(file, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except OSError:
            file.close()
            raise PlatformError(
                f"the checkpoint {self.folder} is in use by another job: wait for it to end, or give another folder"
            ) from None
        self._lock = file

    def release(self) -> None:
        """Let another job use the folder."""
        if self._lock is not None:
            self._lock.close()
            self._lock = None

    # ------------------------------------------------------------------------------------------------- one program

    def agree(self, graph: Graph, widths: list[int]) -> list[int]:
        """Refuse another program; the channels of each level the job runs with, which stay what they were at first."""
        mark = _mark(graph)
        known = self._read("program.json")
        if known is None:
            self._write("program.json", {"flow": graph.name, "mark": mark, "channels": widths})
            return widths
        if known["mark"] != mark:
            raise PlatformError(
                f"the checkpoint {self.folder} belongs to another program ('{known['flow']}'): its operators "
                "differ from this one's; give another folder, or remove this one to start over"
            )
        return [int(width) for width in known["channels"]]

    # ----------------------------------------------------------------------------------------------------- the end

    def note_finals(self, sources: set[int], batch: int) -> None:
        """Batch number `batch` holds the end of `sources`."""
        known = self._read("finals.json") or {}
        self._write("finals.json", {**known, **{str(source): batch for source in sources}})

    def finals(self) -> set[int]:
        """The sources that ended in a batch Spark has committed."""
        last = self.last_committed()
        return {int(source) for source, batch in (self._read("finals.json") or {}).items() if int(batch) <= last}

    def last_committed(self) -> int:
        """The number of the last batch Spark has committed; -1 without one."""
        commits = self.folder / "spark" / "commits"
        if not commits.is_dir():
            return -1
        return max((int(path.name) for path in commits.iterdir() if path.name.isdigit()), default=-1)

    def committed_items(self, source: int) -> int:
        """How many items of a source Spark has processed and committed."""
        last = self.last_committed()
        if last < 0:
            return 0
        # A line with the version, one with settings, then one for each source: ours say whose they are.
        for line in (self.folder / "spark" / "offsets" / str(last)).read_text().splitlines()[2:]:
            with contextlib.suppress(ValueError):
                offset = json.loads(line)
                if isinstance(offset, dict) and offset.get("source") == source and "items" in offset:
                    return int(offset["items"])
        return 0

    @property
    def complete(self) -> bool:
        return (self.folder / "complete").exists()

    def set_complete(self) -> None:
        (self.folder / "complete").touch()

    # ------------------------------------------------------------------------------------------------------- files

    def _read(self, name: str) -> dict[str, Any] | None:
        try:
            return json.loads((self.folder / name).read_text())  # type: ignore[no-any-return]
        except FileNotFoundError:
            return None

    def _write(self, name: str, content: dict[str, Any]) -> None:
        write_whole(self.folder / name, json.dumps(content).encode())


def write_whole(path: Path, content: bytes) -> None:
    """Write a file so that it appears whole, or not at all."""
    temporary = path.with_name(f".{path.name}.{os.getpid()}")
    try:
        temporary.write_bytes(content)
        temporary.replace(path)
    except BaseException:
        with contextlib.suppress(OSError):
            temporary.unlink(missing_ok=True)
        raise


def _mark(graph: Graph) -> str:
    """A program is its operators, in their order, with their keys; what the user's functions do may change."""
    shape = [
        [node.name, node.operation.verb, node.kind, str(node.key), [list(map(list, i.streams)) for i in node.inputs]]
        for node in graph
    ]
    return hashlib.sha256(json.dumps(shape).encode()).hexdigest()
