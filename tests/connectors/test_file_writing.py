"""Files as sinks."""

from __future__ import annotations

import datetime
import errno
import gzip
import io
import pickle
import stat
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Any, NamedTuple

import pytest
from hypothesis import given
from hypothesis import strategies as st

from penstock.connectors import files
from penstock.errors import FlowError

from .reading import tuples

TEXT = st.text(st.characters(codec="utf-8"))
JSON = st.recursive(
    st.none() | st.booleans() | st.integers(-(2**63), 2**63) | TEXT,
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(TEXT, inner, max_size=3),
    max_leaves=6,
)


class Point(NamedTuple):
    x: int
    y: str


@dataclass
class Event:
    x: int
    y: str


def write(path: Path, *chunks: list[Any], **options: Any) -> Path:
    sink = files.write(path, **options)
    sink.open()
    for chunk in chunks:
        sink.write(chunk)
    sink.close()
    assert [other.name for other in path.parent.iterdir() if other.name.startswith(".")] == []
    return path


def chunked(values: list[Any]) -> list[list[Any]]:
    return [values[:1], values[1:1], values[1:]]


SUFFIXES = st.sampled_from(["", ".gz"])
MODES = st.sampled_from(["replace", "append"])


@given(st.lists(TEXT.filter(lambda text: "\n" not in text and not text.endswith("\r"))), SUFFIXES, MODES)
def test_lines_come_back(tmp_path: Path, texts: list[str], suffix: str, mode: str) -> None:
    path = tmp_path / f"x.txt{suffix}"
    path.unlink(missing_ok=True)
    assert tuples(files.lines(write(path, *chunked(texts), mode=mode)), [3]) == texts


@given(st.lists(JSON), SUFFIXES, MODES)
def test_json_comes_back(tmp_path: Path, values: list[Any], suffix: str, mode: str) -> None:
    path = tmp_path / f"x.jsonl{suffix}"
    path.unlink(missing_ok=True)
    assert tuples(files.jsonl(write(path, *chunked(values), mode=mode)), [3]) == values


@given(
    st.lists(TEXT, unique=True, min_size=1, max_size=4).flatmap(
        lambda names: st.lists(st.fixed_dictionaries(dict.fromkeys(names, TEXT)))
    ),
    SUFFIXES,
    MODES,
)
def test_csv_comes_back(tmp_path: Path, rows: list[dict[str, str]], suffix: str, mode: str) -> None:
    path = tmp_path / f"x.csv{suffix}"
    path.unlink(missing_ok=True)
    assert tuples(files.csv(write(path, *chunked(rows), mode=mode)), [3]) == rows


@pytest.mark.parametrize(
    ("name", "options", "format"),
    [
        ("x.csv", {}, "csv"),
        ("x.CSV.gz", {}, "csv"),
        ("x.jsonl", {}, "jsonl"),
        ("x.ndjson.gz", {}, "jsonl"),
        ("x.json", {}, "jsonl"),
        ("x.log", {}, "lines"),
        ("x", {}, "lines"),
        ("x.csv", {"format": "jsonl"}, "jsonl"),
    ],
)
def test_the_suffix_says_the_format(name: str, options: dict[str, Any], format: str) -> None:  # noqa: A002
    assert files.write(name, **options).format == format


def test_wrong_options_are_refused() -> None:
    with pytest.raises(FlowError, match="format="):
        files.write("x", format="xml")
    with pytest.raises(FlowError, match="mode="):
        files.write("x", mode="w")


@pytest.mark.parametrize("item", [Point(1, "a"), Event(1, "a"), {"x": 1, "y": "a"}])
def test_objects_are_written_by_their_fields(tmp_path: Path, item: Any) -> None:
    assert write(tmp_path / "x.jsonl", [item]).read_text() == '{"x":1,"y":"a"}\n'
    assert write(tmp_path / "x.csv", [item]).read_text() == "x,y\n1,a\n"


def test_times_and_other_values_in_json(tmp_path: Path) -> None:
    class Scalar:  # what NumPy's look like
        def tolist(self) -> float:
            return 2.5

    moment = datetime.datetime(2024, 2, 29, 12, tzinfo=datetime.UTC)
    assert write(tmp_path / "x.jsonl", [{"t": moment, "n": Scalar()}]).read_text() == (
        '{"t":"2024-02-29T12:00:00Z","n":2.5}\n'
    )


def test_plain_tuples_are_csv_rows_without_a_header(tmp_path: Path) -> None:
    assert write(tmp_path / "x.csv", [(1, "a"), [2, "b"]]).read_text() == "1,a\n2,b\n"


@pytest.mark.parametrize(
    ("name", "items", "message", "written"),
    [
        ("x.csv", [{"a": 1}, {"b": 2}], r"cannot write {'b': 2} to .*x.csv.*\['b'\], those of the file", "a\n1\n"),
        ("x.csv", [{"a": 1}, {"a": 2, "b": 3}], r"those of the file are \['a'\]", "a\n1\n"),
        ("x.csv", [(1, 2), {"a": 1}], r"its fields are \['a'\]", "1,2\n"),
        ("x.csv", [{"a": 1}, 7], "not int", "a\n1\n"),
        ("x.jsonl", [1, object(), 3], "cannot write <object.*values of type object cannot be written as JSON", "1\n"),
        ("x.jsonl", [1, "\ud800"], "surrogate", "1\n"),
        ("x.txt", ["a", "\ud800"], "surrogate", "a\n"),
    ],
)  # fmt: skip
def test_what_cannot_be_written_is_named_and_what_came_before_is_there(
    tmp_path: Path, name: str, items: list[Any], message: str, written: str
) -> None:
    sink = files.write(tmp_path / name)
    sink.open()
    with pytest.raises(ValueError, match=message):
        sink.write(items)
    sink.close(failed=True)
    assert (tmp_path / name).read_text() == written


# ------------------------------------------------------------------------------------------------------ replace mode


def test_replace_shows_nothing_before_the_end(tmp_path: Path) -> None:
    path = tmp_path / "x"
    path.write_text("old")
    path.chmod(0o640)
    sink = files.write(path)
    sink.open()
    sink.write(["new"])
    assert path.read_text() == "old"
    assert tuples(files.lines(tmp_path)) == ["old"], "the unfinished file is no part of the directory"
    sink.close()
    assert path.read_text() == "new\n"
    assert stat.S_IMODE(path.stat().st_mode) == 0o640


def test_a_failed_job_leaves_what_was_delivered(tmp_path: Path) -> None:
    sink = files.write(tmp_path / "x.gz")
    sink.open()
    sink.write(["a"])
    sink.close(failed=True)
    assert gzip.decompress((tmp_path / "x.gz").read_bytes()) == b"a\n"


def test_each_run_replaces_the_last(tmp_path: Path) -> None:
    sink = files.write(tmp_path / "x.csv")
    for number in (1, 2):
        sink.open()
        sink.write([{f"n{number}": number}])
        sink.close()
        sink.close()
    assert (tmp_path / "x.csv").read_text() == "n2\n2\n"


def test_no_tuples_make_an_empty_file(tmp_path: Path) -> None:
    assert write(tmp_path / "x.csv").read_bytes() == b""


def test_a_link_stays_a_link(tmp_path: Path) -> None:
    (tmp_path / "target").write_text("old")
    (tmp_path / "link").symlink_to(tmp_path / "target")
    write(tmp_path / "link", ["new"])
    assert (tmp_path / "link").is_symlink()
    assert (tmp_path / "target").read_text() == "new\n"


@pytest.mark.parametrize("mode", ["replace", "append"])
def test_a_file_that_cannot_be_opened_is_named(tmp_path: Path, mode: str) -> None:
    with pytest.raises(FileNotFoundError, match="no_folder/x"):
        files.write(tmp_path / "no_folder" / "x", mode=mode).open()
    with pytest.raises(IsADirectoryError, match="is a directory"):
        files.write(tmp_path, mode=mode).open()


def test_a_sink_travels_while_it_is_open(tmp_path: Path) -> None:
    sink = files.write(tmp_path / "x")
    sink.open()
    write_again = pickle.loads(pickle.dumps(sink))
    sink.close()
    write_again.open()
    write_again.write(["a"])
    write_again.close()
    assert (tmp_path / "x").read_text() == "a\n"


# ------------------------------------------------------------------------------------------------------- append mode


def test_append_is_visible_after_every_chunk(tmp_path: Path) -> None:
    path = tmp_path / "x"
    path.write_text("old\n")
    sink = files.write(path, mode="append")
    sink.open()
    for expected in ("old\n1\n", "old\n1\n1\n"):
        sink.write(["1"])
        assert path.read_text() == expected
    sink.close()


def test_append_begins_a_new_line_after_an_unfinished_one(tmp_path: Path) -> None:
    path = tmp_path / "x"
    path.write_text("unfini")
    assert write(path, ["1"], mode="append").read_text() == "unfini\n1\n"


def test_append_keeps_the_header_of_a_csv_file(tmp_path: Path) -> None:
    path = tmp_path / "x.csv"
    write(path, [{"a": 1, "b": 2}], mode="append")
    assert write(path, [{"b": 4, "a": 3}], mode="append").read_text() == "a,b\n1,2\n3,4\n"
    sink = files.write(path, mode="append")
    sink.open()
    with pytest.raises(ValueError, match=r"those of the file are \['a', 'b'\]"):
        sink.write([{"c": 1}])
    sink.close(failed=True)


def test_append_to_gzip_can_be_read_as_one(tmp_path: Path) -> None:
    for text in ("a", "b"):
        write(tmp_path / "x.gz", [text], mode="append")
    assert tuples(files.lines(tmp_path / "x.gz")) == ["a", "b"]


# --------------------------------------------------------------------------------------------------------- full disk

full_device = pytest.mark.skipif(not Path("/dev/full").exists(), reason="needs /dev/full")


@full_device
@pytest.mark.parametrize("mode", ["replace", "append"])
def test_a_full_device_is_an_error_that_names_it(mode: str) -> None:
    sink = files.write("/dev/full", mode=mode)
    sink.open()
    with pytest.raises(OSError, match="/dev/full") as caught:
        sink.write(["a"])
    assert caught.value.errno == errno.ENOSPC
    sink.close(failed=True)


class FullDisk:
    """Takes some bytes, then none; a buffered file says so at once, a raw one with the next call."""

    def __init__(self, file: Any, room: int) -> None:
        self.file = file
        self.room = room

    def write(self, data: Any) -> int:
        taken = bytes(data)[: self.room]
        self.room -= len(taken)
        self.file.write(taken)
        if len(taken) < len(data) and (not taken or not isinstance(self.file, io.RawIOBase)):
            raise OSError(errno.ENOSPC, "No space left on device")
        return len(taken)

    def __getattr__(self, name: str) -> Any:
        return getattr(self.file, name)


def fill(opener: Callable[..., Any], room: int) -> Callable[..., Any]:
    return lambda sink: FullDisk(opener(sink), room)


def test_append_takes_back_a_chunk_the_disk_has_no_room_for(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    from penstock.connectors.file_writing import FileSink

    monkeypatch.setattr(FileSink, "_open_append", fill(FileSink._open_append, 5))
    sink = files.write(tmp_path / "x", mode="append")
    sink.open()
    sink.write(["1"])
    with pytest.raises(OSError, match=r"No space left.*x"):
        sink.write(["two", "three"])
    sink.close(failed=True)
    assert (tmp_path / "x").read_text() == "1\n"


def test_append_to_gzip_takes_back_a_chunk_too(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    from penstock.connectors.file_writing import FileSink

    path = write(tmp_path / "x.gz", ["1"], mode="append")
    before = path.read_bytes()
    monkeypatch.setattr(FileSink, "_open_append", fill(FileSink._open_append, 20))
    sink = files.write(path, mode="append")
    sink.open()
    with pytest.raises(OSError, match="No space left"):
        sink.write([str(n) for n in range(1000)])
    sink.close(failed=True)
    assert path.read_bytes().startswith(before)
    assert len(path.read_bytes()) <= len(before) + 10, "no more than the head of a member"


@pytest.mark.parametrize("name", ["x", "x.gz"])
def test_replace_keeps_the_old_file_when_the_disk_is_full(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, name: str
) -> None:
    from penstock.connectors.file_writing import FileSink

    monkeypatch.setattr(FileSink, "_open_beside", fill(FileSink._open_beside, 15))
    path = tmp_path / name
    path.write_text("old")
    sink = files.write(path)
    sink.open()
    with pytest.raises(OSError, match="No space left"):  # noqa: PT012 — some of it may wait in a buffer until close
        sink.write([str(n) for n in range(10_000)])
        sink.close()
    sink.close(failed=True)
    assert path.read_text() == "old"
    assert [other.name for other in tmp_path.iterdir()] == [name]
