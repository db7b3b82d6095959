"""Files that grow, are rotated, cut, or joined by others while they are read."""

from __future__ import annotations

import gzip
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from penstock.connectors import files
from penstock.connectors.file_reading import FileSource
from penstock.errors import InputError

from .reading import Following

opened: list[FileSource] = []


@pytest.fixture(autouse=True)
def closed_again() -> Iterator[None]:
    yield
    while opened:
        opened.pop().close()


def follow(path: Path, kind: Any = files.lines, **options: Any) -> Following:
    source = kind(path, follow=True, **options)
    opened.append(source)
    return Following(source)


def append(path: Path, text: str) -> None:
    with path.open("a", newline="") as file:
        file.write(text)


def test_a_growing_file_gives_complete_lines_only(tmp_path: Path) -> None:
    path = tmp_path / "x.log"
    path.touch()
    following = follow(path)
    assert following.now() == []
    append(path, "one\ntw")
    assert following.now() == ["one"]
    append(path, "o")
    assert following.now() == []
    append(path, "\r\nthree\n")
    assert following.now(limit=1) == ["two", "three"]
    assert following.now() == []


@given(st.text("ab\n", max_size=20), st.lists(st.integers(0, 20)), st.integers(1, 3))
def test_growth_in_any_steps_gives_the_same_lines(tmp_path: Path, text: str, cuts: list[int], limit: int) -> None:
    path = tmp_path / "x.log"
    path.write_text("")
    following = follow(path)
    found, done = [], 0
    for cut in [*sorted(cuts), len(text)]:
        append(path, text[done:cut])
        done = max(done, cut)
        found += following.now(limit)
    following.source.close()
    assert found == text.split("\n")[:-1]


def test_reading_on_after_a_restart(tmp_path: Path) -> None:
    path = tmp_path / "x.log"
    path.write_text("1\n2")
    following = follow(path)
    assert following.now() == ["1"]
    following.source.close()
    append(path, "\n3\n")
    again = follow(path)
    again.offset = following.offset
    assert again.now() == ["2", "3"]


def test_a_rotated_file_is_read_to_its_end_first(tmp_path: Path) -> None:
    path = tmp_path / "x.log"
    path.write_text("1\n")
    following = follow(path)
    assert following.now() == ["1"]
    append(path, "2\nunfinished")
    path.rename(tmp_path / "x.log.1")
    append(tmp_path / "x.log.1", ", or not")
    assert following.now() == ["2"], "until a new file is there, the old one may grow"
    path.write_text("3\n4")
    assert following.now() == ["unfinished, or not", "3"]
    append(path, "\n")
    assert following.now() == ["4"]
    assert following.offset["line"] == 2


def test_a_rotated_file_is_read_once_only(tmp_path: Path) -> None:
    path = tmp_path / "x.log"
    path.write_text("1\n")
    following = follow(path, punctuate=True)
    assert following.now() == ["1"]
    for number in range(3):
        path.rename(tmp_path / f"x.log.{number}")
        path.write_text(f"new {number}\n")
        assert following.now() == [f"new {number}"]


def test_a_file_gone_in_the_middle_of_a_rotation_is_waited_for(tmp_path: Path) -> None:
    path = tmp_path / "x.log"
    path.write_text("1\n")
    following = follow(path, punctuate=True)
    assert following.now() == ["1"]
    path.rename(tmp_path / "x.log.1")
    path.write_text("2\n")
    batch = following.source.read(following.offset, 10)
    assert (batch.tuples, batch.window, batch.offset["byte"]) == ([], True, 0)
    following.offset = batch.offset
    path.unlink()
    assert following.now() == []
    path.write_text("3\n")
    assert following.now() == ["3"]


def test_a_truncated_file_is_read_anew(tmp_path: Path) -> None:
    path = tmp_path / "x.log"
    path.write_text("one\ntwo\n")
    following = follow(path)
    assert following.now() == ["one", "two"]
    path.write_text("1\n")
    assert following.now() == ["1"]


def test_a_file_that_shrank_between_two_runs_is_read_anew(tmp_path: Path) -> None:
    path = tmp_path / "x.csv"
    path.write_text("a\none\ntwo\n")
    following = follow(path, files.csv)
    assert following.now() == [{"a": "one"}, {"a": "two"}]
    following.source.close()
    path.write_text("b\n1\n")
    assert following.now() == [{"b": "1"}]


def test_a_followed_file_must_be_there_at_first(tmp_path: Path) -> None:
    with pytest.raises(FileNotFoundError, match=r"missing\.log"):
        follow(tmp_path / "missing.log").now()


def test_new_files_of_a_directory_are_read_in_name_order(tmp_path: Path) -> None:
    following = follow(tmp_path, pattern="*.log")
    assert following.now() == []
    (tmp_path / "1.log").write_text("1a\n1b")
    assert following.now() == ["1a"]
    append(tmp_path / "1.log", "!")
    (tmp_path / "3.log").write_text("3a\n")
    (tmp_path / "2.log").write_text("2a\n")
    (tmp_path / "2.txt").write_text("no\n")
    assert following.now(limit=1) == ["1b!", "2a", "3a"]
    append(tmp_path / "3.log", "3b\n")
    assert following.now() == ["3b"]


@pytest.mark.parametrize("mode", ["raise", "skip", "letters"])
def test_a_file_that_appears_too_late_is_not_passed_over_in_silence(tmp_path: Path, mode: str) -> None:
    from penstock.graph.flow import Flow

    letters = Flow("late").dead_letters()
    (tmp_path / "2.log").write_text("2\n")
    following = follow(tmp_path, on_error=letters if mode == "letters" else mode)
    assert following.now() == ["2"]
    (tmp_path / "1.log").write_text("1\n")
    if mode == "raise":
        with pytest.raises(InputError, match=r"1\.log: the file appeared after later ones"):
            following.now()
        return
    batch = following.source.read(following.offset, 10)
    assert (batch.skipped, len(batch.dead)) == ((1, 0) if mode == "skip" else (0, 1))
    append(tmp_path / "2.log", "3\n")
    assert following.now() == ["3"]


def test_a_csv_row_in_the_middle_of_a_quoted_field_waits(tmp_path: Path) -> None:
    path = tmp_path / "x.csv"
    path.write_text('a,"b')
    following = follow(path, files.csv)
    assert following.now() == []
    append(path, 'b"\n1,2\n3,"4\n')
    assert following.now() == [{"a": "1", "bb": "2"}]
    append(path, '5"')
    assert following.now() == []
    append(path, "\n6,7\n")
    assert following.now() == [{"a": "3", "bb": "4\n5"}, {"a": "6", "bb": "7"}]


def test_gzip_data_still_being_written_waits(tmp_path: Path) -> None:
    path = tmp_path / "x.gz"
    data = gzip.compress(b"1\n2\n") + gzip.compress(b"3\n")
    path.write_bytes(data[:15])
    following = follow(path)
    found = following.now()
    path.write_bytes(data)
    assert found + following.now() == ["1", "2", "3"]
