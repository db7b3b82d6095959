"""Input that cannot be parsed: raised, skipped or sent away, and never at the cost of what is good."""

from __future__ import annotations

import gzip
import re
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from penstock.connectors import files
from penstock.connectors.base import Source
from penstock.errors import InputError
from penstock.graph.flow import Flow
from penstock.graph.stream import DeadLetterStream

from .reading import batches, until_error

# name: how to read, content, tuples before, tuples after, line, raw text, reason
CASES: dict[str, tuple[Any, bytes, list[Any], list[Any], int, str, str]] = {
    "undecodable line": (files.lines, b"a\nb\n\xff!\nc\n", ["a", "b"], ["c"], 3, "\\xff!", "can't decode byte 0xff"),
    "undecodable first line": (files.lines, b"\xff\r\nc", [], ["c"], 1, "\\xff", "can't decode"),
    "undecodable last line": (files.lines, b"a\n\xff", ["a"], [], 2, "\\xff", "can't decode"),
    "invalid JSON": (files.jsonl, b"1\n\n{x}\n2\n", [1], [2], 3, "{x}", "JSON is malformed"),
    "cut JSON": (files.jsonl, b'1\n{"a": \n2\n', [1], [2], 2, '{"a": ', "truncated"),
    "undecodable JSON": (files.jsonl, b'1\n"\xff"\n2\n', [1], [2], 2, '"\\xff"', "decode"),
    "too many fields": (
        files.csv,
        b"a,b\n1,2\n3,4,5\n6,7\n",
        [{"a": "1", "b": "2"}],
        [{"a": "6", "b": "7"}],
        3,
        "3,4,5",
        r"expected 2 fields \['a', 'b'\], found 3",
    ),
    "too few fields": (files.csv, b"a,b\n1\n6,7\n", [], [{"a": "6", "b": "7"}], 2, "1", "found 1"),
    "undecodable field": (files.csv, b"a\n1\n\xff\n2\n", [{"a": "1"}], [{"a": "2"}], 3, "\\xff", "can't decode"),
    "quote never closed": (
        files.csv,
        b'a\n1\n"2\n3\n',
        [{"a": "1"}],
        [{"a": "3"}],
        3,
        '"2',
        "a quoted field is never closed",
    ),
    "text after a quote": (files.csv, b'a\n"1"x\n2\n', [], [{"a": "2"}], 2, '"1"x', "expected after"),
    "wrong type": (
        lambda path, **options: files.csv(path, types={"n": int}, **options),
        b"n,m\n1,\nx,\n2,\n",
        [{"n": 1, "m": ""}],
        [{"n": 2, "m": ""}],
        3,
        "x,",
        "field 'n': invalid literal",
    ),
}


def reader(case: str, path: Path, packed: bool, **options: Any) -> tuple[Source, list[Any], list[Any], int, str, str]:
    make, data, before, after, line, raw, reason = CASES[case]
    path = path / ("x.gz" if packed else "x")
    path.write_bytes(gzip.compress(data) if packed else data)
    return make(path, **options), before, after, line, raw, reason


@pytest.mark.parametrize("packed", [False, True], ids=["plain", "gzip"])
@pytest.mark.parametrize("limit", [1, 2, 512])
@pytest.mark.parametrize("case", CASES)
def test_raise_comes_after_everything_before(tmp_path: Path, case: str, limit: int, packed: bool) -> None:
    source, before, _, line, raw, reason = reader(case, tmp_path, packed)
    found, offset, error = until_error(source, limit)
    assert found == before
    assert isinstance(error, InputError)
    assert re.search(reason, str(error))
    assert error.where.endswith(f"{'x.gz' if packed else 'x'}:{line}")
    assert error.data == raw
    with pytest.raises(InputError, match=reason):
        source.read(offset, limit)


@pytest.mark.parametrize("limit", [1, 2, 512])
@pytest.mark.parametrize("case", CASES)
def test_skip_drops_and_counts(tmp_path: Path, case: str, limit: int) -> None:
    source, before, after, *_ = reader(case, tmp_path, False, on_error="skip")
    found = batches(source, [limit])
    assert [item for batch in found for item in batch.tuples] == before + after
    assert sum(batch.skipped for batch in found) == 1
    assert not any(batch.dead for batch in found)


@pytest.mark.parametrize("limit", [1, 2, 512])
@pytest.mark.parametrize("case", CASES)
def test_dead_letters_carry_the_raw_text(tmp_path: Path, case: str, limit: int) -> None:
    letters = Flow("tolerant").dead_letters()
    assert isinstance(letters, DeadLetterStream)
    source, before, after, line, raw, _ = reader(case, tmp_path, False, on_error=letters)
    assert source.dead_letters_to is letters  # type: ignore[attr-defined]
    source.name = "my source"  # type: ignore[attr-defined]
    found = batches(source, [limit])
    assert [item for batch in found for item in batch.tuples] == before + after
    (letter,) = [letter for batch in found for letter in batch.dead]
    assert (letter.item, letter.operator) == (raw, "my source")
    assert letter.where.endswith(f"x:{line}")


@given(st.lists(st.sampled_from([b"1", b"x", b"\xff", b"", b"1,2", b'"1"', b'"'])), st.integers(1, 4))
def test_any_mixture_gives_the_same_in_any_batches(tmp_path: Path, lines: list[bytes], limit: int) -> None:
    path = tmp_path / "x.csv"
    path.write_bytes(b"n\n" + b"\n".join(lines))
    results = []
    for size in (limit, 512):
        found = batches(files.csv(path, types={"n": int}, on_error="skip"), [size])
        results.append(([item for batch in found for item in batch.tuples], sum(batch.skipped for batch in found)))
    assert results[0] == results[1]


@pytest.mark.parametrize(
    ("data", "options", "reason"),
    [
        (b"a,a\n1,2\n", {}, r"\['a'\] more than once"),
        (b"a,b\n1,2\n", {"fields": ["x"]}, "names 1 fields, the header has 2"),
        (b"a,b\n1,2\n", {"types": {"c": int}}, r"names \['c'\], but the fields are"),
        (b"\xff,b\n1,2\n", {}, "can't decode"),
    ],
)
def test_a_header_that_does_not_fit_makes_the_file_unreadable(
    tmp_path: Path, data: bytes, options: Any, reason: str
) -> None:
    (tmp_path / "1.csv").write_bytes(data)
    (tmp_path / "2.csv").write_bytes(b"a,b\n1,2\n")
    source = files.csv(tmp_path, **options)
    with pytest.raises(InputError, match=reason) as caught:
        source.read(source.initial(), 10)
    assert caught.value.where.endswith("1.csv:1")
    found = batches(files.csv(tmp_path, on_error="skip", **options))
    assert sum(batch.skipped for batch in found) in (1, 2)


@pytest.mark.parametrize(("cut", "reason"), [(-12, "cut off"), (-4, "cut off"), (None, "damaged")])
@pytest.mark.parametrize("mode", ["raise", "skip"])
def test_damaged_gzip_data(tmp_path: Path, cut: int | None, reason: str, mode: str) -> None:
    path = tmp_path / "x.gz"
    data = bytearray(gzip.compress(b"".join(b"%d\n" % n for n in range(1000))))
    if cut is None:
        data[-6] ^= 0xFF
    path.write_bytes(data[:cut])
    source = files.lines([path, path], on_error=mode)
    if mode == "skip":
        found = batches(source)
        assert sum(batch.skipped for batch in found) == 2
        assert sum(len(batch.tuples) for batch in found) > 1500
        return
    numbers, _, error = until_error(source, 512)
    assert isinstance(error, InputError)
    assert reason in str(error)
    assert numbers == [str(n) for n in range(len(numbers))]
    assert len(numbers) > 750


def test_what_is_no_gzip_at_all(tmp_path: Path) -> None:
    (tmp_path / "x.gz").write_bytes(b"plain text\n")
    source = files.lines(tmp_path / "x.gz")
    with pytest.raises(InputError, match="damaged"):
        source.read(source.initial(), 1)
