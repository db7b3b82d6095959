"""How the lines of a file become tuples: plain lines, CSV, JSON lines.

A format is the user's choice and never changes. For each file it makes a parser (that of CSV knows the file's
header), which turns many lines into tuples in a few C calls and simply raises if anything is wrong with any of them.
Finding the culprit, one record at a time, is the reader's work: the good case pays nothing for the bad one.
"""

from __future__ import annotations

import codecs
import csv
import functools
from collections import deque
from collections.abc import Callable, Iterable
from dataclasses import dataclass
from itertools import islice
from typing import Any, NamedTuple, Protocol

import msgspec

from penstock.connectors.rows import row_builder
from penstock.errors import FlowError

UNFINISHED = "unexpected end of data"  # what the csv module says of a quote still open when the lines end


class Parsed(NamedTuple):
    """Tuples, the number of records they came from (blank ones give no tuple), and of lines those took."""

    tuples: list[Any]
    records: int
    lines: int


class Parser(Protocol):
    """Turns the lines of one file into tuples."""

    def read(self, lines: Iterable[bytes], limit: int) -> Parsed:
        """Up to `limit` records; fewer only where the lines end. Raises if any record is malformed."""
        ...


class Format(Protocol):
    """What the user said about the content of a file."""

    @property
    def name(self) -> str: ...

    @property
    def encoding(self) -> str: ...

    def start(self, lines: Iterable[bytes]) -> tuple[Parser, int] | None:
        """A parser for a file that begins with `lines`, and how many it took; None if too little is there yet."""
        ...

    def one_record_a_line(self, lines: Iterable[bytes]) -> bool:
        """Whether every line of a file starts a record, so that the file may be split at any line."""
        ...


def check_encoding(encoding: str) -> str:
    """The codec's own name; refuses encodings in which a line does not end with the byte of a newline."""
    try:
        name = codecs.lookup(encoding).name
    except LookupError:
        raise FlowError(f"encoding= names no known encoding: {encoding!r}") from None
    if name != "utf-8-sig" and "\n".encode(name) != b"\n":
        raise FlowError(f"files in {name} cannot be read by lines: convert them to utf-8 first")
    return name


def decoder(encoding: str) -> Callable[[bytes], str]:
    """A function that decodes bytes."""
    if encoding in ("utf-8", "utf-8-sig"):  # the reader has taken the byte order mark off
        return bytes.decode
    return functools.partial(str, encoding=encoding)


# ------------------------------------------------------------------------------------------------------------ lines


class Lines:
    """A tuple is the text of a line, without its end."""

    name = "lines"

    def __init__(self, encoding: str) -> None:
        self.encoding = check_encoding(encoding)
        self._decode = decoder(self.encoding)

    def start(self, lines: Iterable[bytes]) -> tuple[Parser, int] | None:
        return self, 0

    def one_record_a_line(self, lines: Iterable[bytes]) -> bool:
        return True

    def read(self, lines: Iterable[bytes], limit: int) -> Parsed:
        chunk = list(islice(lines, limit))
        text = self._decode(b"".join(chunk))
        if "\r" in text:
            text = text.replace("\r\n", "\n")
        tuples = text.split("\n")
        if not tuples[-1]:
            tuples.pop()
        if len(tuples) != len(chunk):  # an encoding in which other bytes than the newline decode to one
            tuples = [self._decode(line).removesuffix("\n").removesuffix("\r") for line in chunk]
        return Parsed(tuples, len(chunk), len(chunk))


# ------------------------------------------------------------------------------------------------------- JSON lines


class JsonLines:
    """A tuple is the JSON value of a line, or an object of a class built from it. Blank lines are passed over."""

    name = "jsonl"

    def __init__(self, encoding: str, build: Any = None) -> None:
        self.encoding = check_encoding(encoding)
        self.build = build
        self._prepare()

    def _prepare(self) -> None:
        parse = msgspec.json.Decoder(Any if self.build is None else self.build).decode
        decode = decoder(self.encoding)
        is_utf8 = decode is bytes.decode
        self._parse: Callable[[bytes], Any] = parse if is_utf8 else lambda line: parse(decode(line))

    def __getstate__(self) -> dict[str, Any]:
        return {"encoding": self.encoding, "build": self.build}

    def __setstate__(self, state: dict[str, Any]) -> None:
        self.__dict__.update(state)
        self._prepare()

    def start(self, lines: Iterable[bytes]) -> tuple[Parser, int] | None:
        return self, 0

    def one_record_a_line(self, lines: Iterable[bytes]) -> bool:
        return True

    def read(self, lines: Iterable[bytes], limit: int) -> Parsed:
        chunk = list(islice(lines, limit))
        try:
            return Parsed(list(map(self._parse, chunk)), len(chunk), len(chunk))
        except msgspec.DecodeError:
            full = [line for line in chunk if not line.isspace()]
            if len(full) == len(chunk):
                raise
            return Parsed(list(map(self._parse, full)), len(chunk), len(chunk))


# -------------------------------------------------------------------------------------------------------------- CSV


@dataclass(frozen=True)
class Csv:
    """A tuple is a row: a dict by field name, or an object of a class built from it. Blank rows are passed over.

    Quoting is strict: a quote that is never closed, or text after a closing quote, is malformed input.
    """

    encoding: str
    header: bool = True
    fields: tuple[str, ...] | None = None
    types: Any = None
    delimiter: str = ","
    quote: str = '"'
    name: str = "csv"

    def rows(self, lines: Iterable[bytes]) -> Any:
        """A csv reader over `lines`, which takes a line only when it needs one."""
        text = map(decoder(self.encoding), lines)
        return csv.reader(text, delimiter=self.delimiter, quotechar=self.quote, strict=True)

    def start(self, lines: Iterable[bytes]) -> tuple[Parser, int] | None:
        if not self.header:
            assert self.fields is not None
            return CsvParser(self, self.fields), 0
        reader = self.rows(lines)
        for row in reader:
            if row:
                return CsvParser(self, self._names(row)), reader.line_num
        return None

    def _names(self, row: list[str]) -> tuple[str, ...]:
        if self.fields is not None:
            if len(self.fields) != len(row):
                raise ValueError(f"fields= names {len(self.fields)} fields, the header has {len(row)}: {row}")
            return self.fields
        twice = sorted({name for name in row if row.count(name) > 1})
        if twice:
            raise ValueError(f"the header names {twice} more than once; name the fields yourself with fields=")
        return tuple(row)

    def one_record_a_line(self, lines: Iterable[bytes]) -> bool:
        reader = self.rows(lines)
        try:
            last = deque(enumerate(reader, 1), maxlen=1)
        except (csv.Error, ValueError):
            return False
        return not last or last[0][0] == reader.line_num


class CsvParser:
    """Rows of one file, whose field names are known."""

    def __init__(self, settings: Csv, names: tuple[str, ...]) -> None:
        self._rows = settings.rows
        self._names = names
        self._convert = row_builder(settings.types, names)

    def read(self, lines: Iterable[bytes], limit: int) -> Parsed:
        reader = self._rows(lines)
        rows: list[list[str]] = list(islice(reader, limit))
        records = len(rows)
        sizes = set(map(len, rows))
        if 0 in sizes:
            rows = [row for row in rows if row]
            sizes.discard(0)
        wrong = sizes - {len(self._names)}
        if wrong:
            raise ValueError(f"expected {len(self._names)} fields {list(self._names)}, found {min(wrong)}")
        return Parsed(self._convert(rows), records, reader.line_num)
