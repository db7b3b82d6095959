"""Files as sources and sinks: `pn.files.lines`, `csv`, `jsonl` and `write`.

`path` is a file, a list of files, a directory (its files in name order, those that match `pattern`) or a glob
pattern. Files ending in `.gz`, or that begin like one, are unpacked.

- `follow=True` keeps reading as the file grows, through rotation and truncation; a directory also brings new files.
- `punctuate=True` lets a window punctuation follow the last tuple of each file.
- `on_error` says what happens to malformed input: `"raise"` stops with an `InputError` that names file and line, after
  everything before it was delivered; `"skip"` drops and counts it; a stream made by `flow.dead_letters()` receives it.
"""

from __future__ import annotations

import dataclasses
from collections.abc import Callable, Mapping, Sequence
from typing import Any

from penstock.connectors.file_formats import Csv, JsonLines, Lines, check_encoding
from penstock.connectors.file_paths import PathLike, Paths, PathsLike
from penstock.connectors.file_reading import FileSource
from penstock.connectors.file_writing import FileSink
from penstock.errors import FlowError

__all__ = ["csv", "jsonl", "lines", "write"]


def lines(
    path: PathsLike,
    *,
    encoding: str = "utf-8",
    pattern: str = "*",
    follow: bool = False,
    punctuate: bool = False,
    on_error: Any = "raise",
) -> FileSource:
    r"""The lines of text files, without their line ends.

    >>> import pathlib, tempfile
    >>> log = pathlib.Path(tempfile.mkdtemp(), "a.log")
    >>> _ = log.write_text("one\ntwo\r\nthree")
    >>> source = lines(log)
    >>> source.read(source.initial(), 10).tuples
    ['one', 'two', 'three']
    """
    return FileSource(Paths.of(path, pattern), Lines(encoding), follow=follow, punctuate=punctuate, on_error=on_error)


def csv(
    path: PathsLike,
    *,
    header: bool = True,
    fields: Sequence[str] | None = None,
    types: Mapping[str, Callable[[str], Any]] | type | None = None,
    delimiter: str = ",",
    encoding: str = "utf-8",
    pattern: str = "*",
    follow: bool = False,
    punctuate: bool = False,
    on_error: Any = "raise",
) -> FileSource:
    r"""The rows of CSV files: a dict each, or an object of a class.

    The first row names the fields; with `header=False`, `fields` does; with both, `fields` replaces the names.
    `types` converts: a mapping from field to function, or a dataclass, NamedTuple or TypedDict to build (by its
    annotations; an empty field is None where that is allowed).

    >>> import pathlib, tempfile
    >>> table = pathlib.Path(tempfile.mkdtemp(), "a.csv")
    >>> _ = table.write_text("host,len\na,3\nb,5\n")
    >>> source = csv(table, types={"len": int})
    >>> source.read(source.initial(), 10).tuples
    [{'host': 'a', 'len': 3}, {'host': 'b', 'len': 5}]
    """
    if not header and fields is None:
        if not isinstance(types, type) or not (names := class_fields(types)):
            raise FlowError("csv(header=False) needs fields=, the names of the columns in order")
        fields = names
    if isinstance(fields, str):
        raise FlowError(f"csv(fields=) must be a list of names, not {fields!r}")
    if types is not None and not isinstance(types, type | Mapping):
        raise FlowError(f"csv(types=) must be a mapping from field to function, or a class, not {types!r}")
    layout = Csv(check_encoding(encoding), header, tuple(fields) if fields else None, types, delimiter)
    return FileSource(Paths.of(path, pattern), layout, follow=follow, punctuate=punctuate, on_error=on_error)


def jsonl(
    path: PathsLike,
    *,
    types: type | None = None,
    encoding: str = "utf-8",
    pattern: str = "*",
    follow: bool = False,
    punctuate: bool = False,
    on_error: Any = "raise",
) -> FileSource:
    r"""The values of JSON lines files, one a line; with `types`, objects of that class, checked.

    >>> import pathlib, tempfile
    >>> events = pathlib.Path(tempfile.mkdtemp(), "a.jsonl")
    >>> _ = events.write_text('{"n": 1}\n[2, null]\n')
    >>> source = jsonl(events)
    >>> source.read(source.initial(), 10).tuples
    [{'n': 1}, [2, None]]
    """
    layout = JsonLines(encoding, types)
    return FileSource(Paths.of(path, pattern), layout, follow=follow, punctuate=punctuate, on_error=on_error)


def write(path: PathLike, format: str | None = None, mode: str = "replace", *, encoding: str = "utf-8") -> FileSink:  # noqa: A002
    """A sink that writes each tuple to a file, as a line of text, a CSV row or a line of JSON.

    `format` is "lines", "csv" or "jsonl"; by default what the suffix says (.csv; .jsonl, .ndjson, .json; anything else
    is lines). A further `.gz` compresses. `mode="replace"` writes beside the file and moves the result into place when
    the job ends, so a reader never sees half of it; `mode="append"` adds to the file, visibly after every chunk.

    >>> import pathlib, tempfile
    >>> out = pathlib.Path(tempfile.mkdtemp(), "out.csv")
    >>> sink = write(out)
    >>> sink.open(); sink.write([{"host": "a", "n": 1}]); sink.close()
    >>> out.read_text().split()
    ['host,n', 'a,1']
    """
    return FileSink(path, format, mode, encoding)


def class_fields(cls: type) -> tuple[str, ...]:
    """The names of the fields of a dataclass, NamedTuple, or other annotated class."""
    if dataclasses.is_dataclass(cls):
        return tuple(field.name for field in dataclasses.fields(cls))
    return tuple(getattr(cls, "_fields", getattr(cls, "__annotations__", ())))
