"""Ranges of files: together they read everything, once, in order."""

from __future__ import annotations

import gzip
import pickle
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from penstock.connectors import files
from penstock.connectors.file_reading import FileSource
from penstock.errors import FlowError, InputError

from .reading import batches, tuples, until_error

CONTENT = st.lists(st.sampled_from(["", "a", "bb", "é" * 20]), max_size=12)


def check(source: FileSource, number: int, limit: int) -> list[FileSource]:
    parts = [pickle.loads(pickle.dumps(part)) for part in source.ranges(number)]
    assert len(parts) <= number
    read = [batches(part, [limit]) for part in parts]
    marks = [m for part in read for batch in part for m in [*batch.tuples, *(["|"] if batch.window else [])]]
    assert marks == [m for batch in batches(source) for m in [*batch.tuples, *(["|"] if batch.window else [])]]
    for part, found in zip(parts, read, strict=True):
        for seen, batch in enumerate(found, 1):
            rest = [item for later in found[seen:] for item in later.tuples]
            assert tuples(part, [limit + 1], batch.offset) == rest
    return parts


@given(st.lists(CONTENT, min_size=1, max_size=4), st.integers(1, 9), st.integers(1, 4), st.data())
def test_lines_of_any_files(
    tmp_path: Path, contents: list[list[str]], number: int, limit: int, data: st.DataObject
) -> None:
    paths = []
    for index, content in enumerate(contents):
        raw = ("\n".join(content) + "\n" * data.draw(st.integers(0, 1))).encode()
        packed = data.draw(st.booleans())
        paths.append(tmp_path / f"{index}{'.gz' if packed else ''}")
        paths[-1].write_bytes(gzip.compress(raw) if packed else raw)
    check(files.lines(paths, punctuate=data.draw(st.booleans())), number, limit)


@given(st.lists(st.sampled_from(["x", "é", '"q,q"', '"two\nlines"', "a b"])), st.integers(1, 5))
def test_csv_with_and_without_quoted_newlines(tmp_path: Path, cells: list[str], number: int) -> None:
    (tmp_path / "x.csv").write_text("name,n\n" + "".join(f"{cell},{n}\n" for n, cell in enumerate(cells)))
    parts = check(files.csv(tmp_path / "x.csv"), number, 2)
    if any("\n" in cell for cell in cells):
        assert len(parts) == 1


def test_a_large_file_is_cut_into_even_parts(tmp_path: Path) -> None:
    path = tmp_path / "x.jsonl"
    path.write_text("".join(f'{{"n": {n}}}\n' for n in range(1000)))
    parts = check(files.jsonl(path), 4, 512)
    sizes = [len(tuples(part)) for part in parts]
    assert len(sizes) == 4
    assert max(sizes) - min(sizes) < 20


@pytest.mark.parametrize("text", ["", "no newline"])
def test_small_files_give_few_ranges(tmp_path: Path, text: str) -> None:
    (tmp_path / "x").write_text(text)
    assert len(check(files.lines(tmp_path / "x"), 8, 1)) == 1


def test_malformed_input_is_named_by_its_line_in_the_file(tmp_path: Path) -> None:
    path = tmp_path / "x"
    path.write_bytes(b"ok\n" * 100 + b"\xff\n" + b"ok\n" * 10)
    last = files.lines(path).ranges(3)[-1]
    _, _, error = until_error(last, 7)
    assert isinstance(error, InputError)
    assert error.where.endswith("x:101")


def test_a_followed_file_has_no_ranges(tmp_path: Path) -> None:
    with pytest.raises(FlowError, match="no end"):
        files.lines(tmp_path, follow=True).ranges(2)
