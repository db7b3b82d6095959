"""Files as sources: which files, which tuples, and reading on from any offset."""

from __future__ import annotations

import codecs
import gzip
import pickle
from dataclasses import dataclass
from datetime import date
from pathlib import Path
from typing import Any, NamedTuple, TypedDict

import pytest
from hypothesis import given
from hypothesis import strategies as st

from penstock.connectors import files
from penstock.connectors.base import Source, as_source
from penstock.errors import FlowError, InputError

from .reading import Following, batches, tuples

LIMITS = st.lists(st.integers(1, 5), min_size=1, max_size=4)
TEXT = st.text(st.characters(codec="utf-8", exclude_characters="\n\r"), max_size=5)


def written(path: Path, data: bytes) -> Path:
    if path.suffix == ".gz":
        path.write_bytes(gzip.compress(data))
    else:
        path.write_bytes(data)
    return path


# ------------------------------------------------------------------------------------------------------------ lines


@pytest.mark.parametrize(
    ("data", "expected"),
    [
        (b"", []),
        (b"\n", [""]),
        (b"a", ["a"]),
        (b"a\n", ["a"]),
        (b"a\n\nb", ["a", "", "b"]),
        (b"a\r\nb\n", ["a", "b"]),
        (b"a\r\r\nb\rc\n", ["a\r", "b\rc"]),
        ("é\u2028\x0b\x85\n€\n".encode(), ["é\u2028\x0b\x85", "€"]),
    ],
)
@pytest.mark.parametrize("name", ["plain.txt", "packed.txt.gz"])
def test_lines_end_with_a_newline_only(tmp_path: Path, data: bytes, expected: list[str], name: str) -> None:
    assert tuples(files.lines(written(tmp_path / name, data))) == expected


def test_gzip_is_known_by_its_first_bytes(tmp_path: Path) -> None:
    path = tmp_path / "packed.log"
    path.write_bytes(gzip.compress(b"a\n") + gzip.compress(b"b\n"))
    assert tuples(files.lines(path)) == ["a", "b"]


@given(st.lists(TEXT), LIMITS, st.booleans(), st.sampled_from(["\n", "\r\n"]))
def test_lines_read_on_from_every_offset(
    tmp_path: Path, texts: list[str], limits: list[int], packed: bool, end: str
) -> None:
    data = "".join(text + end for text in texts).encode()
    source = files.lines(written(tmp_path / ("x.gz" if packed else "x"), data))
    check_every_offset(source, texts, limits)


def check_every_offset(source: Source, expected: list[Any], limits: list[int]) -> None:
    found = batches(source, limits)
    assert [item for batch in found for item in batch.tuples] == expected
    seen = 0
    for batch in found:
        seen += len(batch.tuples)
        assert tuples(source, limits[::-1], batch.offset) == expected[seen:]


@pytest.mark.parametrize("encoding", ["latin-1", "cp1252", "shift_jis", "utf-8-sig"])
def test_other_encodings(tmp_path: Path, encoding: str) -> None:
    text = "表\nソ\n" if encoding == "shift_jis" else "äö\nü\n"
    path = written(tmp_path / "x", text.encode(encoding))
    source = files.lines(path, encoding=encoding)
    check_every_offset(source, text.split(), [1])
    assert codecs.BOM_UTF8.decode() not in "".join(tuples(source))


def test_encodings_without_a_newline_byte_are_refused() -> None:
    with pytest.raises(FlowError, match="utf-16 cannot be read by lines"):
        files.lines("x", encoding="utf-16")
    with pytest.raises(FlowError, match="no known encoding"):
        files.lines("x", encoding="nonsense")


# ------------------------------------------------------------------------------------------------------ which files


def tree(folder: Path) -> Path:
    for name in ("b.log", "a.log", "c.txt", ".hidden.log"):
        (folder / name).write_text(f"{name} 1\n{name} 2")
    (folder / "sub.log").mkdir()
    return folder


def firsts(source: Source) -> list[str]:
    return [item.split()[0] for item in tuples(source, [1, 2]) if item.endswith("1")]


def test_a_directory_is_read_in_name_order(tmp_path: Path) -> None:
    folder = tree(tmp_path)
    assert firsts(files.lines(folder)) == ["a.log", "b.log", "c.txt"]
    assert firsts(files.lines(str(folder), pattern="*.log")) == ["a.log", "b.log"]


def test_a_pattern_is_read_in_name_order(tmp_path: Path) -> None:
    assert firsts(files.lines(tree(tmp_path) / "*.log")) == ["a.log", "b.log"]


def test_a_list_is_read_in_its_own_order(tmp_path: Path) -> None:
    folder = tree(tmp_path)
    source = files.lines([folder / "b.log", str(folder / "a.log"), folder / "b.log"])
    assert firsts(source) == ["b.log", "a.log", "b.log"]
    check_every_offset(source, [f"{name}.log {n}" for name in "bab" for n in (1, 2)], [1, 2])


def test_a_name_that_looks_like_a_pattern_is_a_file_if_it_exists(tmp_path: Path) -> None:
    assert tuples(files.lines(written(tmp_path / "a[1].log", b"x\n"))) == ["x"]


def test_an_empty_directory_has_no_tuples(tmp_path: Path) -> None:
    assert tuples(files.lines(tmp_path)) == []
    assert tuples(files.lines([])) == []


@pytest.mark.parametrize("name", ["missing.log", "missing*.log"])
def test_a_missing_file_is_named_when_it_is_read(tmp_path: Path, name: str) -> None:
    source = files.lines(tmp_path / name)
    offset = source.initial()
    with pytest.raises(FileNotFoundError, match="missing"):
        source.read(offset, 1)


def test_a_missing_file_of_a_list_comes_after_those_before_it(tmp_path: Path) -> None:
    source = files.lines([written(tmp_path / "a", b"x\n"), tmp_path / "missing"])
    batch = source.read(source.initial(), 10)
    assert batch.tuples == ["x"]
    with pytest.raises(FileNotFoundError, match="missing"):
        source.read(batch.offset, 10)


def test_a_file_that_shrank_is_not_read_on(tmp_path: Path) -> None:
    path = written(tmp_path / "a", b"one\ntwo\n")
    source = files.lines(path)
    offset = source.read(source.initial(), 1).offset
    source.close()
    path.write_bytes(b"1\n")
    with pytest.raises(InputError, match="shorter than the 4 bytes"):
        source.read(offset, 1)
    source.close()


def test_a_file_ends_in_a_punctuation_where_asked(tmp_path: Path) -> None:
    for name, data in (("a", b"1\n2\n"), ("b", b""), ("c", b"3")):
        written(tmp_path / name, data)
    for limit in (1, 2, 3):
        source = files.lines(tmp_path, punctuate=True)
        marks: list[Any] = []
        offsets = {}
        for batch in batches(source, [limit]):
            marks += batch.tuples + ["|"] * batch.window
            offsets[len(marks)] = batch.offset
        assert marks == ["1", "2", "|", "|", "3", "|"]
        for seen, offset in offsets.items():
            again = [mark for batch in batches(source, [2], offset) for mark in batch.tuples + ["|"] * batch.window]
            assert again == marks[seen:]
    assert not any(batch.window for batch in batches(files.lines(tmp_path)))


def test_an_iterable_of_other_things_is_no_path() -> None:
    with pytest.raises(FlowError, match="path must be"):
        files.lines(3)  # type: ignore[arg-type]
    with pytest.raises(FlowError, match="on_error="):
        files.lines("x", on_error="ignore")


# -------------------------------------------------------------------------------------------------------------- CSV


class Call(NamedTuple):
    src: str
    length: int
    paid: bool = False


@dataclass
class Visit:
    who: str
    day: date
    score: float | None = None


class Row(TypedDict):
    n: int


@pytest.mark.parametrize(
    ("text", "options", "expected"),
    [
        ("", {}, []),
        ("a,b\n", {}, []),
        ("a,b\n1,2\n\n3,4", {}, [{"a": "1", "b": "2"}, {"a": "3", "b": "4"}]),
        ("a,b\r\n1,2\r\n", {}, [{"a": "1", "b": "2"}]),
        ('a\n"x, ""y""\r\nz"\n', {}, [{"a": 'x, "y"\r\nz'}]),
        ("1;2\n", {"header": False, "fields": ["a", "b"], "delimiter": ";"}, [{"a": "1", "b": "2"}]),
        ("x,y\n1,2\n", {"fields": ["a", "b"]}, [{"a": "1", "b": "2"}]),
        ("a,b\n1,no\n", {"types": {"a": int, "b": bool}}, [{"a": 1, "b": False}]),
        ("length,src,more\n7,x,y\n", {"types": Call}, [Call("x", 7)]),
        ("x,7,true\n", {"types": Call, "header": False}, [Call("x", 7, True)]),
        (
            "who,day,score\nAda,2024-02-29,\nBob,2024-03-01,2.5\n",
            {"types": Visit},
            [Visit("Ada", date(2024, 2, 29)), Visit("Bob", date(2024, 3, 1), 2.5)],
        ),
        ("n\n7\n", {"types": Row}, [{"n": 7}]),
        ("cls,rows,v0\n1,2,3\n", {}, [{"cls": "1", "rows": "2", "v0": "3"}]),
    ],
)
def test_csv_rows(tmp_path: Path, text: str, options: dict[str, Any], expected: list[Any]) -> None:
    source = files.csv(written(tmp_path / "x.csv", text.encode()), **options)
    check_every_offset(source, expected, [1])


def test_each_csv_file_has_its_own_header(tmp_path: Path) -> None:
    written(tmp_path / "1.csv", b"a,b\n1,2\n")
    written(tmp_path / "2.csv", b"b,a\n3,4\n")
    written(tmp_path / "3.csv", b"")
    check_every_offset(files.csv(tmp_path), [{"a": "1", "b": "2"}, {"b": "3", "a": "4"}], [1])


@given(st.lists(st.lists(st.sampled_from(["", "x", ",", '"', "\n", "\r\n", "é "]), min_size=2, max_size=2)), LIMITS)
def test_csv_reads_on_from_every_offset(tmp_path: Path, rows: list[list[str]], limits: list[int]) -> None:
    def quoted(text: str) -> str:
        return '"' + text.replace('"', '""') + '"'

    data = "a,b\n" + "".join(",".join(map(quoted, row)) + "\n" for row in rows)
    source = files.csv(written(tmp_path / "x.csv", data.encode()))
    check_every_offset(source, [{"a": a, "b": b} for a, b in rows], limits)


def test_csv_without_names_is_refused() -> None:
    with pytest.raises(FlowError, match="needs fields="):
        files.csv("x", header=False)
    with pytest.raises(FlowError, match="list of names"):
        files.csv("x", fields="ab")
    with pytest.raises(FlowError, match="types="):
        files.csv("x", types=3)  # type: ignore[arg-type]


# ------------------------------------------------------------------------------------------------------- JSON lines


def test_json_lines(tmp_path: Path) -> None:
    path = written(tmp_path / "x.jsonl", b'{"a": [1, 2.5, null]}\n\n  \n"t\\u00e9"\n7')
    check_every_offset(files.jsonl(path), [{"a": [1, 2.5, None]}, "té", 7], [1, 2])


def test_json_lines_as_objects(tmp_path: Path) -> None:
    path = written(tmp_path / "x.jsonl", b'{"who": "Ada", "day": "2024-02-29"}\n')
    assert tuples(files.jsonl(path, types=Visit)) == [Visit("Ada", date(2024, 2, 29))]


def test_json_lines_in_another_encoding(tmp_path: Path) -> None:
    path = written(tmp_path / "x.jsonl", '"é"\n'.encode("latin-1"))
    source = files.jsonl(path, encoding="latin-1")
    assert tuples(pickle.loads(pickle.dumps(source))) == ["é"]


# ----------------------------------------------------------------------------------------------------- several runs


def test_two_readers_of_one_source_do_not_meet(tmp_path: Path) -> None:
    source = files.lines(written(tmp_path / "x", b"1\n2\n3\n"))
    first, second = as_source(source), as_source(source)
    offset = first.read(first.initial(), 1).offset
    assert tuples(second, [2]) == ["1", "2", "3"]
    assert tuples(first, [1], offset) == ["2", "3"]
    first.close()


def test_a_source_travels_in_the_middle_of_reading(tmp_path: Path) -> None:
    source = files.csv(written(tmp_path / "x", b"a\n1\n2\n"), types={"a": int})
    offset = source.read(source.initial(), 1).offset
    assert tuples(pickle.loads(pickle.dumps(source)), offset=offset) == [{"a": 2}]
    source.close()


def test_sequential_reading_never_seeks(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    from penstock.connectors.open_file import OpenFile

    def forbidden(*_: Any) -> None:
        raise AssertionError("seek")

    source = files.lines(written(tmp_path / "x", b"1\n2\n3\n"))
    monkeypatch.setattr(OpenFile, "seek", forbidden)
    assert tuples(source, [1]) == ["1", "2", "3"]


def test_following_needs_no_end(tmp_path: Path) -> None:
    following = Following(files.lines(written(tmp_path / "x", b"1\n"), follow=True))
    assert following.now() == ["1"]
    following.source.close()
