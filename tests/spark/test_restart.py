"""Killed and run again: with a checkpoint nothing is lost, nothing comes twice, and the output is that of one run."""

from __future__ import annotations

import json
import random
import time
from collections.abc import Iterator
from itertools import count
from pathlib import Path
from typing import Any

import pytest

import penstock as pn
from tests.spark import restart_program
from tests.spark.processes import program, python, wait_for
from tests.thorough import THOROUGH

PROGRAM = Path(restart_program.__file__)
LINES = "".join(f"host{n * n % 11} {n}\n" for n in range(90))
BEFORE = '{"of": "an earlier job"}\n'


class Runs:
    """Runs of the program over one checkpoint."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        self.lines = folder / "lines.txt"
        self.lines.write_text(LINES)
        (folder / "totals.jsonl").write_text(BEFORE)
        self.kills = 0

    def command(self, *options: str) -> list[str | Path]:
        return python(PROGRAM, self.folder, self.lines, *options)

    def die(self, point: str) -> None:
        """A run that kills itself at `point`."""
        with program(*self.command("--die", point), log=self.folder / "log") as run:
            code = run.wait()
            assert code == -9, f"it was to die at {point!r}, but ended with {code}: {run.output()}"
        self.kills += 1

    def kill(self, batches: int, delay: float, driver_only: bool = False) -> bool:
        """A run that is killed `delay` seconds after `batches` more batches were planned; false if it ended before."""
        planned = self.folder / "checkpoint" / "spark" / "offsets"
        first = _last(planned)
        with program(*self.command(), log=self.folder / "log") as run:
            wait_for(lambda: _last(planned) >= first + batches or not run.running, "a batch")
            limit = time.monotonic() + delay
            wait_for(lambda: time.monotonic() >= limit or not run.running, "the moment to kill")
            ended = not run.running
            if driver_only:
                run.kill_driver()
            else:
                run.kill()
        self.kills += not ended
        return not ended

    def finish(self) -> dict[str, Any]:
        """A run to the end; all that was delivered."""
        with program(*self.command(), log=self.folder / "log") as run:
            code = run.wait()
            assert code == 0, run.output()
        found: dict[str, Any] = json.loads((self.folder / "result.json").read_text())
        return found


def _last(folder: Path) -> int:
    """The last batch of one of Spark's logs."""
    if not folder.is_dir():
        return -1
    return max((int(path.name) for path in folder.iterdir() if path.name.isdigit()), default=-1)


@pytest.fixture
def runs(tmp_path: Path) -> Runs:
    return Runs(tmp_path)


@pytest.fixture(scope="module")
def expected(tmp_path_factory: pytest.TempPathFactory) -> dict[str, Any]:
    """What one undisturbed run on one thread delivers."""
    runs = Runs(tmp_path_factory.mktemp("local"))
    flow, lists = restart_program.build(runs.folder, runs.lines)
    pn.run(flow, on="local")
    found: dict[str, Any] = json.loads(json.dumps(restart_program.results(runs.folder, lists)))
    return found


# Every kill costs the start of a JVM. `make test` dies in some of the windows, CI in all.
WINDOWS = {
    "sources and sinks": ["cut:1", "item:5", "end:1", "note:2", "file:3", "list:2", "delivered:2"],
    "ends": ["finals:1", "executed:2", "finals:1", "committed:1", "in place:1"],
}
if not THOROUGH:
    WINDOWS = {"all": ["cut:1", "file:3", "finals:1", "committed:1"]}


@pytest.mark.parametrize("points", WINDOWS.values(), ids=WINDOWS.keys())
def test_killed_in_the_narrowest_windows(points: list[str], runs: Runs, expected: dict[str, Any]) -> None:
    for point in points:
        runs.die(point)
    assert runs.finish() == expected
    assert runs.kills == len(points)


def test_killed_from_outside_at_random_moments(runs: Runs, expected: dict[str, Any]) -> None:
    moments = random.Random(5)
    for driver_only in (False, True):
        runs.kill(moments.randint(1, 3), moments.uniform(0.0, 1.5), driver_only)
    assert runs.finish() == expected
    assert runs.kills >= 1


# ------------------------------------------------------------------------------------------------- in one process


def test_a_checkpoint_of_another_program_is_refused(spark_session: Any, tmp_path: Path) -> None:
    first = pn.Flow("first")
    first.source([1, 2, 3]).map(str).collect()
    pn.run(first, checkpoint=tmp_path / "c")
    second = pn.Flow("second")
    second.source([1, 2, 3]).filter(bool).collect()
    with pytest.raises(pn.PlatformError, match=r"belongs to another program \('first'\).*give another folder"):
        pn.run(second, checkpoint=tmp_path / "c")


def test_a_complete_job_run_again_has_the_same_result_at_once(spark_session: Any, tmp_path: Path) -> None:
    calls: list[int] = []
    read: list[int] = []

    def numbers() -> Iterator[int]:
        read.append(1)
        yield from range(100)

    flow = pn.Flow()
    squares = flow.source(numbers).map(lambda n: n * n)
    out = squares.collect()
    squares.sink(pn.files.write(tmp_path / "out.txt"))
    squares.sink(calls.append)
    for _ in range(2):
        pn.run(flow, checkpoint=tmp_path / "c")
        assert out == calls == [n * n for n in range(100)]
        assert (tmp_path / "out.txt").read_text().split() == [str(n * n) for n in range(100)]
        (tmp_path / "out.txt").unlink()  # and put in place again
    assert read == [1]


def test_a_failing_operator_fixed_and_run_again_goes_on(spark_session: Any, tmp_path: Path) -> None:
    listed: list[Any] = [None]

    def flow_with(invert: Any) -> tuple[pn.Flow, list[Any]]:
        flow = pn.Flow()
        totals = flow.source(list(range(40))).map(invert).scan(lambda n, t: (n + t, n + t), init=0)
        totals.sink(pn.files.write(tmp_path / "out.txt", mode="append"), name="file")
        totals.sink(listed, name="list")
        return flow, totals.collect()

    conf = {"penstock.item.tuples": "5", "penstock.batch.items": "2"}
    flow, out = flow_with(lambda n: 1 // (n - 25) + n)
    with pytest.raises(pn.OperatorError, match="map"):
        pn.run(flow, checkpoint=tmp_path / "c", conf=conf)
    assert 0 < len(out) < 25
    flow, out = flow_with(lambda n: n)
    pn.run(flow, checkpoint=tmp_path / "c", conf=conf)
    # What was delivered stays: 1 // (n - 25) is -1 for every number before.
    assert len(out) == 40
    assert listed == [None, *out]
    assert [int(line) for line in (tmp_path / "out.txt").read_text().split()] == out
    steps = [second - first for first, second in zip([0, *out], out, strict=False)]
    assert steps == [*(n - 1 for n in range(20)), *range(20, 40)]


def test_a_failing_source_is_read_on_where_it_failed(spark_session: Any, tmp_path: Path) -> None:
    broken = True

    def numbers() -> Iterator[int]:
        for n in range(40):
            if broken and n == 23:
                raise OSError("not now")
            yield n

    flow = pn.Flow()
    out = flow.source(numbers).window(pn.tumbling(count=3, partial=True)).apply(list).collect()
    conf = {"penstock.item.tuples": "5"}
    for _ in range(2):
        with pytest.raises(pn.OperatorError, match="not now"):
            pn.run(flow, checkpoint=tmp_path / "c", conf=conf)
        assert [n for part in out for n in part] == list(range(21))
    broken = False
    pn.run(flow, checkpoint=tmp_path / "c", conf=conf)
    assert [n for part in out for n in part] == list(range(40))


def test_a_checkpoint_serves_one_job_at_a_time(spark_session: Any, tmp_path: Path) -> None:
    flow = pn.Flow()
    flow.source(count).filter(lambda n: n < 0).collect()
    job = pn.submit(flow, on="spark", checkpoint=tmp_path / "c")
    try:
        with pytest.raises(pn.PlatformError, match="in use by another job"):
            pn.run(flow, checkpoint=tmp_path / "c")
    finally:
        job.cancel()
        job.wait_ended()


@pytest.mark.parametrize("conf", [{"penstock.item.tuples": "0"}, {"penstock.batch.items": "many"}, {"penstock.x": "1"}])
def test_a_wrong_setting_is_refused(conf: dict[str, str], spark_session: Any) -> None:
    flow = pn.Flow()
    flow.source([1]).collect()
    with pytest.raises(pn.PlatformError, match=next(iter(conf))):
        pn.run(flow, conf=conf)
