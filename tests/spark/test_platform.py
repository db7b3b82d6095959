"""Programs on a real Spark session: Spark's own sources and sinks, refusals, order over several shuffles."""

from __future__ import annotations

import os
import random
import signal
import threading
from collections import Counter
from pathlib import Path
from typing import Any

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

import penstock as pn
from penstock.platforms.spark.run import SparkRun
from tests.interpreter import Interpreter
from tests.random_graphs import build, check
from tests.spark.test_pipelines import in_pipelines
from tests.thorough import THOROUGH

pytestmark = pytest.mark.usefixtures("spark_session")

# A query takes seconds to start.
EXAMPLES = 12 if THOROUGH else 4


def _on_both(make: Any) -> tuple[list[Any], list[Any]]:
    results = []
    for platform in ("spark", "local"):
        flow = pn.Flow("both")
        out = make(flow)
        pn.run(flow, on=platform)
        results.append(list(out))
    return results[0], results[1]


def test_order_survives_two_shuffles_and_prolific_operators() -> None:
    def make(flow: pn.Flow) -> Any:
        words = flow.source(range(4000)).flat_map(lambda n: range(n % 4))
        numbered = words.key_by(lambda n: n).scan(lambda s, n: (s + 1, (n, s)), init=0)
        doubled = numbered.flat_map(lambda t: [t, (t[0], -t[1])])
        return doubled.key_by(lambda t: t[1] % 3).scan(lambda s, t: (s + 1, (t, s)), init=0).collect()

    spark, local = _on_both(make)
    assert spark == local


def test_windows_over_punctuation_from_a_file(tmp_path: Path) -> None:
    for number in range(3):
        (tmp_path / f"{number}.txt").write_text("\n".join("abc"[: number + 1]) + "\n")

    def make(flow: pn.Flow) -> Any:
        lines = flow.source(pn.files.lines(tmp_path, punctuate=True))
        windows = lines.key_by(lambda c: c).window(pn.tumbling(punctuation=True))
        return windows.apply(lambda key, lines: (key, len(lines))).collect()

    spark, local = _on_both(make)
    assert Counter(spark) == Counter(local)
    assert len(spark) == 6


class Answering(pn.Operator):
    """Keeps nothing, and answers punctuation."""

    kind = "stateless"

    def process(self, t: Any, port: int) -> Any:
        return t

    def on_punctuation(self, mark: pn.Punctuation, port: int) -> Any:
        return mark.name


def test_an_operator_without_state_answers_punctuation_once() -> None:
    def make(flow: pn.Flow) -> Any:
        numbers = flow.source(range(6)).key_by(lambda n: n % 3).scan(lambda s, n: (s, n), init=0)
        return numbers.punctuate(lambda n: n == 3).process(Answering()).collect()

    spark, local = _on_both(make)
    assert spark == local == [0, 1, 2, 3, "WINDOW", 4, 5, "FINAL"]


def test_a_file_is_read_in_parallel_and_arrives_in_order(tmp_path: Path) -> None:
    path = tmp_path / "numbers.csv"
    path.write_text("n,half\n" + "".join(f"{n},{n / 2}\n" for n in range(30_000)))

    def make(flow: pn.Flow) -> Any:
        return flow.source(pn.files.csv(path, types={"n": int, "half": float})).map(lambda t: t["n"]).collect()

    spark, local = _on_both(make)
    assert spark == local == list(range(30_000))


def test_joins_and_enrichment_meet_across_sources() -> None:
    def make(flow: pn.Flow) -> Any:
        left = flow.source([{"id": n, "ts": n} for n in range(50)])
        right = flow.source([{"id": n * 2, "ts": n * 2} for n in range(25)])
        joined = left.key_by("id").join(right.key_by("id"), window=pn.sliding(time=10, on="ts"), how="left")
        return joined.map(lambda pair: (pair[0]["id"], pair[1] is not None)).collect()

    spark, local = _on_both(make)
    assert sorted(spark) == sorted(local) == [(n, n % 2 == 0) for n in range(50)]


@settings(
    max_examples=EXAMPLES,
    derandomize=True,
    suppress_health_check=[HealthCheck.function_scoped_fixture, HealthCheck.too_slow],
)
@given(st.data(), st.lists(st.integers(0, 500), min_size=1, max_size=2), st.integers(1, 8))
def test_random_graphs_deliver_what_the_interpreter_delivers(data: st.DataObject, sizes: list[int], steps: int) -> None:
    flow, sinks = build(lambda count: data.draw(st.integers(0, count - 1)), sizes, steps)
    seed = data.draw(st.integers(0, 1000))  # of channels and pipelines, which must not be seen
    pn.run(flow, on="spark", plan=in_pipelines(flow.graph(), random.Random(seed), cores=2) if seed else None)
    check(sinks, Interpreter(flow.graph()).run())


def test_a_source_that_spark_reads_itself(tmp_path: Path) -> None:
    for number in range(3):
        (tmp_path / f"{number}.txt").write_text("".join(f"{number} {line}\n" for line in range(100)))
    flow = pn.Flow("frames")
    rows = flow.source(pn.spark.source(lambda spark: spark.readStream.text(str(tmp_path))))
    counts = rows.map(lambda row: {"file": row["value"].split()[0]}).key_by("file")
    out = counts.window(pn.tumbling(count=60, partial=True)).aggregate(n=pn.count()).collect()
    pn.run(flow, on="spark")
    assert sorted((window["file"], window["n"]) for window in out) == [(str(f), n) for f in range(3) for n in (40, 60)]


def test_a_sink_gets_data_frames_with_proper_columns() -> None:
    seen: list[tuple[int, Any]] = []

    def keep(frame: Any, batch: int) -> None:
        assert frame.dtypes == [("host", "string"), ("n", "bigint"), ("share", "double")]
        seen.extend((batch, tuple(row)) for row in frame.collect())

    flow = pn.Flow("frames")
    tuples = flow.source([{"host": "a", "n": 1, "share": 0.5}, {"host": "b", "n": 2, "share": 1}])
    tuples.sink(pn.spark.sink(keep, schema={"host": str, "n": int, "share": float}))
    pn.run(flow, on="spark")
    assert [row for _, row in seen] == [("a", 1, 0.5), ("b", 2, 1.0)]


def test_a_stream_comes_out_as_a_data_frame(spark_session: Any) -> None:
    flow = pn.Flow("frames")
    frame = flow.source([{"n": n, "text": str(n)} for n in range(3)]).to_spark({"n": int, "text": str})
    pn.run(flow, on="spark")
    rows = frame.dataframe(spark_session).collect()
    assert [tuple(row) for row in rows] == [(0, "0"), (1, "1"), (2, "2")]


def test_a_tuple_that_does_not_match_the_schema_is_named() -> None:
    flow = pn.Flow("frames")
    flow.source([{"n": 1}, {"n": "two"}]).sink(pn.spark.sink(lambda frame, batch: None, schema={"n": int}), name="out")
    with pytest.raises(pn.SinkError, match=r"'out'(.|\n)*'n' must be int by the schema, not 'two'"):
        pn.run(flow, on="spark")


def test_a_sink_without_schema_is_refused() -> None:
    with pytest.raises(pn.FlowError, match="needs schema="):
        pn.spark.sink(lambda frame, batch: None)


def test_what_runs_on_spark_only_says_so_locally() -> None:
    flow = pn.Flow("frames")
    flow.source(pn.spark.source(lambda spark: None)).collect()
    with pytest.raises(pn.SourceError, match="runs on Spark only"):
        pn.run(flow, on="local")


def test_feedback_is_refused_with_the_reason() -> None:
    flow = pn.Flow("loop")
    back = flow.feedback(name="back")
    passed = flow.source([1]).gate(back)
    back.connect(passed)
    passed.collect()
    with pytest.raises(pn.FlowError, match=r"'back'.*cannot run on Spark: a batch flows one way"):
        pn.run(flow, on="spark")


def test_a_loop_of_its_own_is_refused_with_the_reason() -> None:
    class Loop(pn.CoOperator):
        async def run(self, ctx: Any) -> None:
            await ctx.wait_all({0: 1})

    flow = pn.Flow("loop")
    flow.source([1]).process(Loop(), name="loop").collect()
    with pytest.raises(pn.FlowError, match=r"'loop'.*state store"):
        pn.run(flow, on="spark")


def test_an_unpicklable_function_names_operator_and_line() -> None:
    lock = threading.Lock()
    flow = pn.Flow("locked")
    flow.source([1]).map(lambda n: (lock, n)[1], name="locked").collect()
    with pytest.raises(pn.PlatformError, match=r"'locked' \(defined at .*test_platform\.py:\d+\) cannot be sent"):
        pn.run(flow, on="spark")


def test_a_failed_job_leaves_the_session_usable() -> None:
    flow = pn.Flow("failing")
    flow.source(range(10)).map(lambda n: 1 // (n - 5), name="inverse").collect()
    with pytest.raises(pn.OperatorError, match="'inverse'") as caught:
        pn.run(flow, on="spark")
    assert "py4j" not in str(caught.value)
    assert isinstance(caught.value.__cause__, ZeroDivisionError)
    assert "test_platform.py" in caught.value.__cause__.__notes__[0]
    flow = pn.Flow("fine")
    out = flow.source(range(3)).collect()
    pn.run(flow, on="spark")
    assert out == [0, 1, 2]


def test_an_endless_job_is_cancelled_cleanly() -> None:
    flow = pn.Flow("endless")
    seen: list[int] = []
    flow.source(pn.beacon(rate=2000)).sink(seen.append)
    job = pn.submit(flow, on="spark", trigger="100ms")
    pause = threading.Event()
    for _ in range(3000):
        if len(seen) > 100:
            break
        pause.wait(0.02)
    job.cancel()
    with pytest.raises(pn.Cancelled):
        job.wait(60)
    assert seen == list(range(len(seen)))
    assert seen


def test_an_interruption_while_the_query_starts_stops_it_cleanly(monkeypatch: pytest.MonkeyPatch) -> None:
    runs: list[SparkRun] = []
    start = SparkRun._start_query

    def interrupted(run: SparkRun) -> None:
        os.kill(os.getpid(), signal.SIGINT)
        start(run)
        runs.append(run)

    monkeypatch.setattr(SparkRun, "_start_query", interrupted)
    flow = pn.Flow("interrupted")
    flow.source(pn.beacon(rate=100)).sink(lambda n: None)
    with pytest.raises(KeyboardInterrupt):
        pn.run(flow, on="spark", trigger="100ms")
    (run,) = runs
    assert run.state == "cancelled"
    assert not run._query.isActive


def test_numbers_come_back_from_the_workers() -> None:
    flow = pn.Flow("numbers")
    flow.source(range(5000), name="in").filter(lambda n: n % 2, name="odd").key_by(lambda n: n % 10).scan(
        lambda s, n: (s + 1, s), init=0, name="count"
    ).collect(name="out")
    job = pn.run(flow, on="spark")
    metrics = job.metrics()
    assert metrics.tuples == 5000
    assert metrics.operators["count"].received == 2500
    assert metrics.operators["out"].received == 2500
    assert metrics.batches >= 1
    assert metrics.state_entries >= 1
    assert job.profile().operators["odd"].selectivity == pytest.approx(0.5, abs=0.1)


@pytest.mark.parametrize("trigger", ["soon", "s"])
def test_a_trigger_that_is_no_time_is_refused(trigger: str) -> None:
    flow = pn.Flow("trigger")
    flow.source([1]).collect()
    with pytest.raises(pn.PlatformError, match="trigger="):
        pn.run(flow, on="spark", trigger=trigger)
