"""What is on disk after a kill, and what the next process makes of it: spools and sinks without Spark."""

from __future__ import annotations

import gzip
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

import penstock as pn
from penstock.connectors.iterables import SequenceSource
from penstock.graph.graph import Node
from penstock.platforms.spark.checkpoint import Checkpoint
from penstock.platforms.spark.delivery import Delivery, FileDelivery, make_delivery
from penstock.platforms.spark.source import make_data_source
from penstock.platforms.spark.spool import Item, Spool, Spooler
from penstock.platforms.spark.tuning import Tuning

TUNING = Tuning(item_tuples=5, item_bytes=16)


class Killed(BaseException):
    """Stands for the end of the process."""


# ------------------------------------------------------------------------------------------------------------- spools


def spool(source: Any, folder: Path, *, killed_at: tuple[str, int] | None = None) -> list[Any]:
    """Let one process fill the spool until it ends, or until a call of the spool kills it; everything it holds."""
    errors: list[BaseException] = []
    spooler = Spooler(source, folder, "source", 2, errors.append, TUNING)
    if killed_at is not None:
        _kill(spooler.spool, *killed_at)
    spooler.start()
    spooler.thread.join(30)
    spooler.stop()
    assert bool(errors) == (killed_at is not None), errors
    return _content(spooler.spool)


def _kill(owner: Any, name: str, count: int) -> None:
    original, calls = getattr(owner, name), []

    def fatal(*arguments: Any) -> Any:
        calls.append(1)
        if len(calls) == count:
            raise Killed
        return original(*arguments)

    setattr(owner, name, fatal)


def _content(spool: Spool) -> list[Any]:
    result: list[Any] = []
    for number in spool.numbers():
        item = spool.item(number)
        result += item.tuples if item.part is None else _read(item)
    return result


def _read(item: Item) -> list[Any]:
    assert item.part is not None
    tuples: list[Any] = []
    offset, done = item.part.initial(), False
    while not done:
        batch = item.part.read(offset, 100)
        tuples += batch.tuples
        offset, done = batch.offset, batch.done
    item.part.close()
    return tuples


def numbers() -> Iterator[int]:
    yield from range(23)


SOURCES = {"a list": list(range(23)), "a callable": numbers, "a source": SequenceSource(range(23))}


@pytest.mark.parametrize("killed_at", [("append", 1), ("append", 4), ("write", 3), ("end", 1)])
@pytest.mark.parametrize("source", SOURCES.values(), ids=SOURCES.keys())
def test_a_spool_goes_on_behind_its_last_item(source: Any, killed_at: tuple[str, int], tmp_path: Path) -> None:
    before = spool(source, tmp_path, killed_at=killed_at)
    assert before == list(range(len(before)))
    assert spool(source, tmp_path) == list(range(23))
    assert spool(source, tmp_path) == list(range(23))  # it has ended: nothing is read any more
    found = Spool(tmp_path)
    assert found.numbers() == list(range(found.ended or 0))


def test_an_iterator_of_a_program_started_anew_is_read_on(tmp_path: Path) -> None:
    spool(iter(range(23)), tmp_path, killed_at=("append", 3))
    assert spool(iter(range(23)), tmp_path) == list(range(23))


@pytest.mark.parametrize("killed_at", [("cut", 1), ("append", 1), ("append", 3), ("end", 1)])
def test_a_file_is_cut_once(killed_at: tuple[str, int], tmp_path: Path) -> None:
    file = tmp_path / "lines.txt"
    file.write_text("".join(f"{n}\n" for n in range(50)))
    spool(pn.files.lines(file), tmp_path / "spool", killed_at=killed_at)
    assert spool(pn.files.lines(file), tmp_path / "spool") == [str(n) for n in range(50)]


def test_a_file_that_grew_meanwhile_is_not_cut_anew(tmp_path: Path) -> None:
    file = tmp_path / "lines.txt"
    file.write_text("".join(f"{n}\n" for n in range(50)))
    spool(pn.files.lines(file), tmp_path / "spool", killed_at=("append", 4))
    cuts = Spool(tmp_path / "spool").cuts()
    with file.open("a") as more:
        more.write("more\n" * 100)
    spool(pn.files.lines(file), tmp_path / "spool")
    assert cuts is not None
    assert Spool(tmp_path / "spool").ended == len(cuts)


def test_committed_items_are_removed_but_where_reading_was_stays(tmp_path: Path) -> None:
    spool(list(range(23)), tmp_path, killed_at=("append", 4))
    made = make_data_source("spool", "run", b"", 0, str(tmp_path), 2, by_value=False, target_seconds=2.0, most_items=64)
    made({}).streamReader(None).commit({"source": 0, "items": 3, "ended": 0})
    assert Spool(tmp_path).numbers() == [2]
    assert spool(list(range(23)), tmp_path) == list(range(10, 23))


def test_what_came_before_a_fault_is_in_the_spool(tmp_path: Path) -> None:
    def faulty() -> Iterator[int]:
        yield from range(8)
        raise OSError("gone")

    errors: list[BaseException] = []
    spooler = Spooler(faulty, tmp_path, "source", 2, errors.append, TUNING)
    spooler.start()
    spooler.thread.join(30)
    spooler.stop()
    assert [str(error) for error in errors] == ["gone"]
    assert _content(spooler.spool) == list(range(8))


# -------------------------------------------------------------------------------------------------------------- sinks


def sink_node(target: Any) -> Node:
    flow = pn.Flow()
    stream = flow.source([1])
    stream.sink(target, name="out")
    return next(node for node in flow.graph() if node.is_sink)


def delivery(target: Any, folder: Path) -> Delivery:
    """The sink as a process that has just started sees it."""
    made = make_delivery(sink_node(target), folder, None)
    made.open()
    return made


MODES = [("x.txt", "replace"), ("x.txt", "append"), ("x.txt.gz", "replace"), ("x.txt.gz", "append")]


def _lines(path: Path) -> list[str]:
    data = path.read_bytes()
    return (gzip.decompress(data) if path.suffix == ".gz" else data).decode().split()


@pytest.mark.parametrize(("name", "mode"), MODES)
@pytest.mark.parametrize("window", ["before the note", "before the file", "half the file", "after the file"])
def test_a_file_has_every_batch_once(name: str, mode: str, window: str, tmp_path: Path) -> None:
    target = pn.files.write(tmp_path / name, mode=mode)
    first = delivery(target, tmp_path / "notes")
    first.write(0, ["a", "b"])
    first.write(1, [])
    assert isinstance(first, FileDelivery)
    if window == "before the note":
        _kill(first, "_save_note", 1)
    elif window == "before the file":
        _kill(first, "_append", 1)
    elif window == "half the file":
        first._append = lambda tuples: FileDelivery._append(first, tuples[:1]) or _die()  # type: ignore[method-assign, func-returns-value]
    else:
        first._append = lambda tuples: FileDelivery._append(first, tuples) or _die()  # type: ignore[method-assign, func-returns-value]
    with pytest.raises(Killed):
        first.write(2, ["c", "d"])
    for _ in range(2):  # and once more, killed before Spark committed it
        delivery(target, tmp_path / "notes").write(2, ["c", "d"])
    last = delivery(target, tmp_path / "notes")
    last.write(3, ["e"])
    last.close(failed=False)
    assert _lines(tmp_path / name) == ["a", "b", "c", "d", "e"]


def _die() -> None:
    raise Killed


def test_two_sinks_may_append_to_one_file(tmp_path: Path) -> None:
    target = pn.files.write(tmp_path / "x.txt", mode="append")
    for batch in (0, 1, 1, 2):
        for name in ("one", "two"):
            delivery(target, tmp_path / name).write(batch, [f"{name}{batch}"])
    assert _lines(tmp_path / "x.txt") == ["one0", "two0", "one1", "two1", "one2", "two2"]


def test_what_others_append_between_batches_stays(tmp_path: Path) -> None:
    target = pn.files.write(tmp_path / "x.txt", mode="append")
    mine = delivery(target, tmp_path / "notes")
    mine.write(0, ["a"])
    with (tmp_path / "x.txt").open("a") as other:
        other.write("other\n")
    mine.write(1, ["b"])
    assert _lines(tmp_path / "x.txt") == ["a", "other", "b"]


def test_a_file_that_was_moved_away_is_begun_anew(tmp_path: Path) -> None:
    target = pn.files.write(tmp_path / "x.txt", mode="append")
    delivery(target, tmp_path / "notes").write(0, ["a", "b"])
    delivery(target, tmp_path / "notes").write(1, ["c"])
    (tmp_path / "x.txt").rename(tmp_path / "x.1")
    delivery(target, tmp_path / "notes").write(1, ["c"])
    assert _lines(tmp_path / "x.txt") == ["c"]


@pytest.mark.parametrize("name", ["x.csv", "x.csv.gz"])
@pytest.mark.parametrize("mode", ["replace", "append"])
def test_a_csv_file_has_one_header(name: str, mode: str, tmp_path: Path) -> None:
    target = pn.files.write(tmp_path / name, mode=mode)
    for batch in range(3):
        last = delivery(target, tmp_path / "notes")
        last.write(batch, [{"n": batch}])
    last.close(failed=False)
    assert _lines(tmp_path / name) == ["n", "0", "1", "2"]


def test_lists_have_every_batch_once(tmp_path: Path) -> None:
    given = [0]
    for target, before in ((pn.Flow().source([1]).collect(), []), (given, [0])):
        folder = tmp_path / type(target).__name__
        for batch in (0, 1, 1, 2):
            delivery(target, folder).write(batch, [batch, batch])
        delivery(target, folder).write(3, [])
        assert target == [*before, 0, 0, 1, 1, 2, 2]


def test_a_list_of_a_new_process_has_what_was_delivered_before(tmp_path: Path) -> None:
    first: list[int] = []
    delivery(first, tmp_path).write(0, [1, 2])
    second: list[int] = []
    delivery(second, tmp_path).write(1, [3])
    assert second == [1, 2, 3]


def test_a_function_is_not_called_again_for_a_batch_it_had(tmp_path: Path) -> None:
    seen: list[int] = []
    for batch in (0, 1, 1, 2):
        delivery(seen.append, tmp_path).write(batch, [batch])
    assert seen == [0, 1, 2]


def test_a_batch_before_the_last_cannot_come_again(tmp_path: Path) -> None:
    delivery(lambda item: None, tmp_path).write(4, [1])
    with pytest.raises(pn.PlatformError, match="damaged"):
        delivery(lambda item: None, tmp_path).write(0, [1])


# --------------------------------------------------------------------------------------------------------- checkpoint


def test_a_source_has_ended_once_its_batch_is_committed(tmp_path: Path) -> None:
    checkpoint = Checkpoint(tmp_path)
    commits = tmp_path / "spark" / "commits"
    commits.mkdir(parents=True)
    checkpoint.note_finals({3}, 7)
    assert checkpoint.finals() == set()
    (commits / "7").touch()
    (commits / ".7.crc").touch()
    assert Checkpoint(tmp_path).finals() == {3}
    checkpoint.note_finals({5}, 9)
    assert checkpoint.finals() == {3}
    (commits / "7").unlink()  # Spark forgets old batches
    (commits / "11").touch()
    assert checkpoint.finals() == {3, 5}


def test_any_name_of_an_operator_is_a_place(tmp_path: Path) -> None:
    checkpoint = Checkpoint(tmp_path)
    places = {checkpoint.place("sinks", name) for name in ("a", "a/b", "..", "../a", "ä b", "a%2Fb")}
    assert len(places) == 6
    assert {place.parent for place in places} == {tmp_path / "sinks"}
