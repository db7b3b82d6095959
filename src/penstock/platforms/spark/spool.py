"""The spool: a folder of numbered items that makes any source replayable for Spark, and the thread that fills it.

An item is a file: a list of tuples read from the user's source in the driver, or a range of a file to be read by a
worker. Items appear whole (written aside, then renamed) and are numbered without gaps, so an offset is just a number of
items. When the source has ended, a file `ended` holds how many there are.

A batch that Spark may have to repeat refers to items by number; items are removed only when Spark has committed what
lies behind them. So after a crash everything that was not committed is still here, and reading goes on behind the last
item (each item remembers the source's own offset after it). A file that workers read is cut once and for all: the
cuts are written down before the first of them becomes an item.

The thread stays at most `MOST_AHEAD` items ahead of what is committed: that is the back-pressure to the source.
"""

from __future__ import annotations

import pickle
import threading
import time
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from penstock.connectors.base import Batch, Source, as_source
from penstock.connectors.file_reading import FileSource
from penstock.connectors.iterables import IteratorSource
from penstock.platforms.spark.connectors import SparkSource
from penstock.platforms.spark.tuning import Tuning
from penstock.platforms.spark.wire import dumps
from penstock.tuples import Punctuation

MOST_AHEAD = 256
_PAUSE = 0.005


@dataclass(frozen=True)
class Item:
    """One item: `tuples` (marks among them) and `dead` letters, or a `part` of a file source to be read by a worker."""

    tuples: list[Any]
    dead: list[Any]
    skipped: int = 0
    offset: Any = None  # the source's own offset after this item
    done: bool = False  # nothing comes after it
    part: FileSource | None = None


class Spool:
    """The folder, seen from either side."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder

    def path(self, number: int) -> Path:
        return self.folder / f"{number:010d}.item"

    def write(self, name: str, content: bytes) -> None:
        """Write a file so that it appears whole."""
        temporary = self.folder / f".{name}.{threading.get_ident()}"
        temporary.write_bytes(content)
        temporary.replace(self.folder / name)

    def append(self, number: int, item: Item) -> None:
        self.write(self.path(number).name, dumps(item))

    def item(self, number: int) -> Item:
        return load_item(self.path(number).read_bytes())

    def numbers(self) -> list[int]:
        """The items that are there."""
        return sorted(int(path.stem) for path in self.folder.glob("*.item"))

    @property
    def ended(self) -> int | None:
        """How many items there are in all, once that is known."""
        try:
            return int((self.folder / "ended").read_text())
        except FileNotFoundError:
            return None

    def end(self, count: int) -> None:
        self.write("ended", str(count).encode())

    def cut(self, parts: list[FileSource]) -> None:
        """Write down how the files of a source are cut."""
        self.write("cuts", dumps(parts))

    def cuts(self) -> list[FileSource] | None:
        """How they were cut."""
        try:
            return pickle.loads((self.folder / "cuts").read_bytes())  # type: ignore[no-any-return]
        except FileNotFoundError:
            return None

    def exists(self, number: int) -> bool:
        return self.path(number).exists()


def load_item(data: bytes) -> Item:
    """An item from its bytes."""
    item = pickle.loads(data)
    assert isinstance(item, Item)
    return item


def is_bulk(source: Source) -> bool:
    """True for files to be read to their end: workers read ranges of them, and the driver reads nothing."""
    return isinstance(source, FileSource) and not source.follow


class Spooler:
    """Reads one source in the driver and fills its spool."""

    def __init__(
        self,
        source: Any,
        folder: Path,
        name: str,
        parts: int,
        on_error: Callable[[BaseException], None],
        tuning: Tuning | None = None,
    ) -> None:
        self.spool = Spool(folder)
        self._tuning = tuning or Tuning()
        self.read = 0
        self._busy = 0.0
        self.skipped = 0
        self.dead = 0
        self.ready = threading.Event()  # set once the source has been opened without an error
        self._source: Source = as_source(source)
        if hasattr(self._source, "name"):
            self._source.name = name
        self._parts = parts
        self._on_error = on_error
        self._fault: Exception | None = None
        self._stop = threading.Event()
        self.thread = threading.Thread(target=self._run, name=f"spool of {name}", daemon=True)

    @property
    def is_bulk(self) -> bool:
        """Items are ranges of files to be read to their end."""
        return is_bulk(self._source)

    @property
    def cost(self) -> float | None:
        """Processor seconds for each tuple that was read and put into the spool."""
        return self._busy / self.read if self.read else None

    def start(self) -> None:
        folder = self.spool.folder
        folder.mkdir(parents=True, exist_ok=True)
        for left in folder.glob(".*"):  # half written when an earlier process died
            left.unlink(missing_ok=True)
        if isinstance(self._source, SparkSource):  # Spark reads it itself, and the run finds out anew where it ends
            (folder / "ended").unlink(missing_ok=True)
        else:
            self.thread.start()

    def stop(self) -> None:
        """Read no more. A source that does not come back is left alone."""
        self._stop.set()
        if self.thread.ident is not None:
            self.thread.join(1.0)
        if not self.thread.is_alive():
            self._source.close()

    def _run(self) -> None:
        try:
            if self.spool.ended is None:
                self._fill()
        except BaseException as error:
            self._on_error(error)
        finally:
            self.ready.set()

    def _fill(self) -> None:
        if self.is_bulk:
            self._cut_files()
            return
        numbers = self.spool.numbers()
        number = numbers[-1] + 1 if numbers else 0
        last = self.spool.item(numbers[-1]) if numbers else None
        if last is not None and last.done:
            self.spool.end(number)
            return
        offset = self._begin(last)
        self.ready.set()
        while not self._stop.is_set():
            self._wait_for_room(number)
            offset, item, done = self._gather(offset)
            if item is not None:
                self.spool.append(number, item)
                number += 1
                self._busy = time.thread_time()
            if done:
                self.spool.end(number)
                return

    def _cut_files(self) -> None:
        """Ranges of files are cut at once; workers read them."""
        source = self._source
        assert isinstance(source, FileSource)
        parts = self.spool.cuts()
        if parts is None:
            total = sum(Path(name).stat().st_size for name in source.paths.names() if Path(name).exists())
            parts = source.ranges(max(2 * self._parts, total // self._tuning.item_bytes))
            self.spool.cut(parts)
        numbers = self.spool.numbers()
        for number in range(numbers[-1] + 1 if numbers else 0, len(parts)):
            self.spool.append(number, Item([], [], part=parts[number]))
        self.spool.end(len(parts))

    def _begin(self, last: Item | None) -> Any:
        first = self._source.initial()
        if last is None:
            return first
        offset = last.offset
        if isinstance(self._source, IteratorSource):
            self._source.skip(offset)  # the program was started anew: its iterator begins again
        return offset

    def _wait_for_room(self, number: int) -> None:
        while not self._stop.is_set():
            numbers = self.spool.numbers() if number % 16 == 0 else []
            if not numbers or number - numbers[0] < MOST_AHEAD:
                return
            self._stop.wait(_PAUSE)

    def _gather(self, offset: Any) -> tuple[Any, Item | None, bool]:
        """Tuples that are there now, up to a full item; never waits for more once it has some."""
        if self._fault is not None:
            raise self._fault
        full = self._tuning.item_tuples
        tuples: list[Any] = []
        dead: list[Any] = []
        skipped = 0
        limit = 64
        while not self._stop.is_set():
            try:
                batch: Batch = self._source.read(offset, min(limit, full - len(tuples)))
            except Exception as error:
                if not tuples and not dead:
                    raise
                self._fault = error  # raised once what came before is in the spool
                break
            limit *= 4
            tuples += batch.tuples
            if batch.window:
                tuples.append(Punctuation.WINDOW)
            dead += batch.dead
            skipped += batch.skipped
            idle = not batch.tuples and batch.offset == offset and not batch.done
            offset = batch.offset
            self.read += len(batch.tuples)
            self.skipped += batch.skipped
            self.dead += len(batch.dead)
            if batch.done or len(tuples) >= full:
                return offset, Item(tuples, dead, skipped, offset, batch.done), batch.done
            if idle:
                if tuples or dead:
                    return offset, Item(tuples, dead, skipped, offset), False
                self._stop.wait(_PAUSE)
        # What has been read is kept, though nobody may want it now: the source might not give it again.
        return offset, Item(tuples, dead, skipped, offset) if tuples or dead else None, False
