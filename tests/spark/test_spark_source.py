"""`pn.spark.source` with a checkpoint: a job that was interrupted goes on where it was, and ends once."""

from __future__ import annotations

import os
from pathlib import Path
from typing import Any

import pytest

import penstock as pn

pytestmark = pytest.mark.usefixtures("spark_session")

FILES, LINES = 4, 40


class Interrupted(Exception):
    pass


def write_files(folder: Path) -> None:
    """One after the other by their times, which is the order in which Spark takes them."""
    folder.mkdir()
    for number in range(FILES):
        path = folder / f"{number}.txt"
        path.write_text("".join(f"{number * LINES + line}\n" for line in range(LINES)))
        os.utime(path, (1_700_000_000 + number, 1_700_000_000 + number))


def build(folder: Path, written: list[Any], stop_at: int | None) -> tuple[pn.Flow, Any]:
    def write(item: tuple[int, int]) -> None:
        if item[0] == stop_at:
            raise Interrupted
        written.append(item)

    def read(spark: Any) -> Any:
        return spark.readStream.option("maxFilesPerTrigger", 1).text(str(folder))

    flow = pn.Flow("files")
    numbers = flow.source(pn.spark.source(read), name="files").map(lambda row: int(row["value"]), name="numbers")
    counted = numbers.key_by(lambda n: n % 7).scan(lambda s, n: (s + 1, (n, s + 1)), init=0, name="count")
    counted.sink(write, name="write")
    return flow, counted.collect(name="all")


EXPECTED = [(n, n // 7 + 1) for n in range(FILES * LINES)]


def test_with_a_checkpoint_it_runs_to_the_end_of_the_data(tmp_path: Path) -> None:
    write_files(tmp_path / "in")
    flow, collected = build(tmp_path / "in", [], None)
    pn.run(flow, on="spark", checkpoint=tmp_path / "checkpoint")
    assert collected == EXPECTED
    # A job that has ended gives its results again and reads nothing.
    flow, collected = build(tmp_path / "in", written := [], None)
    pn.run(flow, on="spark", checkpoint=tmp_path / "checkpoint")
    assert collected == EXPECTED
    assert written == []


def test_an_interrupted_job_goes_on_with_the_batch_it_was_at(tmp_path: Path) -> None:
    write_files(tmp_path / "in")
    flow, _ = build(tmp_path / "in", [], LINES + 5)
    with pytest.raises(pn.SinkError, match="'write'"):
        pn.run(flow, on="spark", checkpoint=tmp_path / "checkpoint")
    flow, collected = build(tmp_path / "in", written := [], None)
    pn.run(flow, on="spark", checkpoint=tmp_path / "checkpoint")
    assert collected == EXPECTED
    assert written == EXPECTED[LINES:]


def test_what_arrives_after_an_end_nobody_has_seen_belongs_to_the_stream(tmp_path: Path) -> None:
    write_files(tmp_path / "in")
    flow, _ = build(tmp_path / "in", [], LINES + 5)
    with pytest.raises(pn.SinkError, match="'write'"):
        pn.run(flow, on="spark", checkpoint=tmp_path / "checkpoint")
    # As if it had been killed right after it had found out that this was all.
    (tmp_path / "checkpoint" / "sources" / "files" / "ended").write_text("0")
    flow, collected = build(tmp_path / "in", [], None)
    pn.run(flow, on="spark", checkpoint=tmp_path / "checkpoint")
    assert collected == EXPECTED
