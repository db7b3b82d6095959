"""LogWatch and a keyed region, written by hand in PySpark Structured Streaming: what benchmarks/spark.py compares with.

Two styles:

* per operator: one `mapInPandas` or `transformWithStateInPandas` for each operator, grouped by the operator's key, as
  the documentation shows
* fused: everything stateless in one `mapInArrow`, or left to Spark SQL; state grouped by hash channel instead of by
  key, one pickled value per channel and batch

PySpark does not keep the order of a stream, so these programs carry a sequence number and sort by it where state is
kept; only then do they compute the same results as Penstock. What they collect is in no order. Nothing here uses
Penstock.
"""

from __future__ import annotations

import os
import pickle
import re
import sys
import tempfile
from collections.abc import Callable, Iterator
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

WINDOW = 10

# ------------------------------------------------------------------------------------------------------ for all of them


def session() -> Any:
    """The active session, or a new one with what anyone would set."""
    from pyspark.sql import SparkSession

    os.environ.setdefault("PYSPARK_PYTHON", sys.executable)
    cores = str(os.cpu_count())
    builder = SparkSession.builder.master("local[*]").config("spark.ui.enabled", "false")
    spark = builder.config("spark.log.level", "ERROR").config("spark.ui.showConsoleProgress", "false").getOrCreate()
    rocksdb = "org.apache.spark.sql.execution.streaming.state.RocksDBStateStoreProvider"
    spark.conf.set("spark.sql.streaming.stateStore.providerClass", rocksdb)
    spark.conf.set("spark.sql.streaming.stateStore.rocksdb.changelogCheckpointing.enabled", "true")
    spark.conf.set("spark.sql.streaming.noDataMicroBatches.enabled", "false")
    spark.conf.set("spark.sql.shuffle.partitions", cores)  # the default of 200 would take minutes
    return spark


def read_text(path: Path) -> Any:
    """The lines of a file, as a stream, with the place of their block in the file."""
    return session().readStream.text(str(path.parent)).selectExpr("_metadata.file_block_start AS block", "value")


def run_query(frame: Any, on_first: Callable[[], None]) -> list[Any]:
    """Run a streaming query to the end of its input and collect what it gives."""
    results: list[Any] = []

    def collect(batch: Any, number: int) -> None:
        rows = [tuple(row) for row in batch.collect()]
        if rows and not results:
            on_first()
        results.extend(rows)

    with tempfile.TemporaryDirectory() as checkpoint:
        writer = frame.writeStream.foreachBatch(collect).outputMode("append").option("checkpointLocation", checkpoint)
        writer.trigger(availableNow=True).start().awaitTermination()
    return results


def channel(key: str) -> Any:
    """A column that spreads keys over as many channels as there are cores."""
    from pyspark.sql import functions as F  # noqa: N812

    return F.pmod(F.hash(key), F.lit(os.cpu_count())).alias("channel")


# ------------------------------------------------------------------------------------------- functions of logwatch

LINE = re.compile(r"(\w{3} [ \d]\d \d\d:\d\d:\d\d) \S+ (\w+)\S*: (.*)")
FAILURE = re.compile(r"authentication failure;.* rhost=(?P<rhost>\S+)(?:\s+user=(?P<user>\S+))?")
LOGIN = re.compile(r"session opened for user (?P<user>[^\s(]+)\S* by")
MONTHS = ["Jan", "Feb", "Mar", "Apr", "May", "Jun", "Jul", "Aug", "Sep", "Oct", "Nov", "Dec"]


def parse_line(line: str) -> tuple[str, str, str]:
    found = LINE.match(line)
    return found.groups() if found else ("", "", line)  # type: ignore[return-value]


def is_event(time: str, program: str, message: str) -> bool:
    return program == "sshd" and bool(FAILURE.search(message) or LOGIN.search(message))


def to_event(time: str, program: str, message: str) -> tuple[str, str | None, str | None]:
    names = (FAILURE.search(message) or LOGIN.search(message)).groupdict()  # type: ignore[union-attr]
    return time, names.get("rhost"), names["user"]


def real_time(stamp: str) -> float:
    month, day, clock = stamp.split()
    hour, minute, second = clock.split(":")
    number = MONTHS.index(month) + 1
    return datetime(2024, number, int(day), int(hour), int(minute), int(second), tzinfo=UTC).timestamp()


def elapsed(earlier: float, later: float, year: int = 366 * 86_400) -> float:
    return (later - earlier + year // 2) % year - year // 2


# ------------------------------------------------------------------------------------------- logwatch, per operator


def logwatch_per_operator(path: Path, on_first: Callable[[], None]) -> list[Any]:
    import pandas as pd
    from pyspark.sql.streaming import StatefulProcessor

    def strip(frames: Iterator[pd.DataFrame]) -> Iterator[pd.DataFrame]:
        before = 0
        for frame in frames:
            numbers = frame.block * (1 << 24) + range(before, before + len(frame))  # a block is one task's
            before += len(frame)
            yield pd.DataFrame({"seq": numbers, "line": frame.value.str.rstrip()})

    def parse(frames: Iterator[pd.DataFrame]) -> Iterator[pd.DataFrame]:
        for frame in frames:
            parsed = [(seq, *parse_line(line)) for seq, line in zip(frame.seq, frame.line, strict=True)]
            yield pd.DataFrame(parsed, columns=["seq", "time", "program", "message"])

    def only_events(frames: Iterator[pd.DataFrame]) -> Iterator[pd.DataFrame]:
        for frame in frames:
            columns = zip(frame.time, frame.program, frame.message, strict=True)
            yield frame[[is_event(*fields) for fields in columns]]

    def to_events(frames: Iterator[pd.DataFrame]) -> Iterator[pd.DataFrame]:
        for frame in frames:
            columns = zip(frame.time, frame.program, frame.message, strict=True)
            events = [to_event(*fields) for fields in columns]
            yield pd.DataFrame(
                {
                    "seq": frame.seq.to_numpy(),
                    "time": [event[0] for event in events],
                    "rhost": [event[1] or "" for event in events],
                    "user": [event[2] or "" for event in events],
                }
            )

    class Range(StatefulProcessor):  # type: ignore[misc]
        """Every ten failures of a host make a suspect; logins, which name no host, pass."""

        def init(self, handle: Any) -> None:
            self.failures = handle.getListState("failures", "time string, user string")

        def handleInputRows(self, key: Any, rows: Any, timerValues: Any) -> Iterator[pd.DataFrame]:  # noqa: N802, N803
            frame = pd.concat(rows).sort_values("seq")
            if not key[0]:
                yield pd.DataFrame(
                    {
                        "seq": frame.seq,
                        "rhost": "",
                        "first": frame.time,
                        "last": frame.time,
                        "attempts": 0,
                        "users": frame.user,
                    }
                )
                return
            failures = list(self.failures.get())
            suspects = []
            for seq, when, user in zip(frame.seq, frame.time, frame.user, strict=True):
                failures.append((when, user))
                if len(failures) == 10:
                    users = ",".join(sorted({name for _, name in failures if name}))
                    suspects.append((seq, key[0], failures[0][0], when, 10, users))
                    failures = []
            if failures:
                self.failures.put(failures)
            else:
                self.failures.clear()
            yield pd.DataFrame(suspects, columns=["seq", "rhost", "first", "last", "attempts", "users"])

        def close(self) -> None:
            pass

    def cutoff(frames: Iterator[pd.DataFrame]) -> Iterator[pd.DataFrame]:
        for frame in frames:
            spans = zip(frame["first"], frame["last"], strict=True)
            yield frame[[elapsed(real_time(first), real_time(last)) < 120 for first, last in spans]]

    def to_real_time(frames: Iterator[pd.DataFrame]) -> Iterator[pd.DataFrame]:
        for frame in frames:
            columns = zip(frame.seq, frame["last"], frame.rhost, frame.users, frame.attempts, strict=True)
            attacks = [
                (seq, real_time(last), rhost, user, attempts)
                for seq, last, rhost, users, attempts in columns
                for user in users.split(",")
            ]
            yield pd.DataFrame(attacks, columns=["seq", "time", "rhost", "user", "attempts"])

    class Breakins(StatefulProcessor):  # type: ignore[misc]
        """A login within two minutes of an attack on that user is a break-in."""

        def init(self, handle: Any) -> None:
            self.attacks = handle.getListState("attacks", "time double, rhost string, attempts long")

        def handleInputRows(self, key: Any, rows: Any, timerValues: Any) -> Iterator[pd.DataFrame]:  # noqa: N802, N803
            frame = pd.concat(rows).sort_values("seq")
            attacks = list(self.attacks.get())
            found = []
            for when, rhost, attempts in zip(frame.time, frame.rhost, frame.attempts, strict=True):
                attacks = [attack for attack in attacks if elapsed(attack[0], when) <= 120]
                if rhost:
                    attacks.append((float(when), rhost, int(attempts)))
                elif attacks:
                    last = attacks[-1][1]
                    found.append((when, last, key[0], sum(attack[2] for attack in attacks if attack[1] == last)))
            if attacks:
                self.attacks.put(attacks)
            else:
                self.attacks.clear()
            yield pd.DataFrame(found, columns=["time", "rhost", "user", "attempts"])

        def close(self) -> None:
            pass

    lines = read_text(path).mapInPandas(strip, "seq long, line string")
    parsed = lines.mapInPandas(parse, "seq long, time string, program string, message string")
    raw = parsed.mapInPandas(only_events, "seq long, time string, program string, message string")
    events = raw.mapInPandas(to_events, "seq long, time string, rhost string, user string")
    suspect = "seq long, rhost string, first string, last string, attempts long, users string"
    ranges = events.groupBy("rhost").transformWithStateInPandas(Range(), suspect, "append", "none")
    quick = ranges.mapInPandas(cutoff, suspect)
    attacks = quick.mapInPandas(to_real_time, "seq long, time double, rhost string, user string, attempts long")
    schema = "time double, rhost string, user string, attempts long"
    breakins = attacks.groupBy("user").transformWithStateInPandas(Breakins(), schema, "append", "none")
    return run_query(breakins, on_first)


# -------------------------------------------------------------------------------------------------- logwatch, fused


def logwatch_fused(path: Path, on_first: Callable[[], None]) -> list[Any]:
    import pyarrow as pa
    from pyspark.sql import Row
    from pyspark.sql.streaming import StatefulProcessor

    def events(batches: Iterator[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        before = 0
        for batch in batches:
            numbers, times, hosts, users = [], [], [], []
            for block, text in zip(batch.column(0).to_pylist(), batch.column(1).to_pylist(), strict=True):
                before += 1
                line = parse_line(text.rstrip())
                if is_event(*line):
                    when, host, user = to_event(*line)
                    numbers.append((block << 24) + before)  # a block is one task's
                    times.append(when)
                    hosts.append(host)
                    users.append(user)
            yield pa.RecordBatch.from_arrays(
                [
                    pa.array(numbers, pa.int64()),
                    pa.array(times, pa.string()),
                    pa.array(hosts, pa.string()),
                    pa.array(users, pa.string()),
                ],
                names=["seq", "time", "rhost", "user"],
            )

    class ChannelProcessor(StatefulProcessor):  # type: ignore[misc]
        """The states of all keys of a channel are one pickled value."""

        def init(self, handle: Any) -> None:
            self.state = handle.getValueState("states", "states binary")

        def load(self) -> dict[str, Any]:
            stored = self.state.get()
            return {} if stored is None else pickle.loads(bytes(stored[0]))  # type: ignore[no-any-return]

        def save(self, states: dict[str, Any]) -> None:
            self.state.update((pickle.dumps(states, pickle.HIGHEST_PROTOCOL),))

        def close(self) -> None:
            pass

    class Range(ChannelProcessor):
        def handleInputRows(self, key: Any, rows: Any, timerValues: Any) -> Iterator[Row]:  # noqa: N802, N803
            states = self.load()
            for row in sorted(rows, key=lambda row: row.seq):
                if row.rhost is None:
                    yield Row(seq=row.seq, time=real_time(row.time), rhost=None, user=row.user, attempts=0)
                    continue
                failures = states.setdefault(row.rhost, [])
                failures.append((row.time, row.user))
                if len(failures) < 10:
                    continue
                del states[row.rhost]
                last = real_time(row.time)
                if elapsed(real_time(failures[0][0]), last) < 120:
                    for user in sorted({name for _, name in failures if name}):
                        yield Row(seq=row.seq, time=last, rhost=row.rhost, user=user, attempts=10)
            self.save(states)

    class Breakins(ChannelProcessor):
        def handleInputRows(self, key: Any, rows: Any, timerValues: Any) -> Iterator[Row]:  # noqa: N802, N803
            states = self.load()
            for row in sorted(rows, key=lambda row: row.seq):
                attacks = [a for a in states.get(row.user, ()) if elapsed(a[0], row.time) <= 120]
                if row.rhost is not None:
                    attacks.append((row.time, row.rhost, row.attempts))
                elif attacks:
                    last = attacks[-1][1]
                    attempts = sum(attack[2] for attack in attacks if attack[1] == last)
                    yield Row(time=row.time, rhost=last, user=row.user, attempts=attempts)
                states[row.user] = attacks
            self.save(states)

    parsed = read_text(path).mapInArrow(events, "seq long, time string, rhost string, user string")
    attack = "seq long, time double, rhost string, user string, attempts long"
    by_host = parsed.select("*", channel("rhost")).groupBy("channel")
    attacks = by_host.transformWithState(Range(), attack, "append", "none")
    by_user = attacks.select("*", channel("user")).groupBy("channel")
    breakin = "time double, rhost string, user string, attempts long"
    return run_query(by_user.transformWithState(Breakins(), breakin, "append", "none"), on_first)


# --------------------------------------------------------------------------------------------- region, per operator


def read_rows(path: Path) -> Any:
    from pyspark.sql import functions as F  # noqa: N812

    lines = session().readStream.text(str(path.parent))
    row = F.from_json("value", "seq long, key string, value long").alias("row")
    return lines.select(row).select("row.*")


def region_per_operator(path: Path, on_first: Callable[[], None]) -> list[Any]:
    import pandas as pd
    from pyspark.sql.streaming import StatefulProcessor

    class Sums(StatefulProcessor):  # type: ignore[misc]
        def init(self, handle: Any) -> None:
            self.total = handle.getValueState("total", "total long")

        def handleInputRows(self, key: Any, rows: Any, timerValues: Any) -> Iterator[pd.DataFrame]:  # noqa: N802, N803
            frame = pd.concat(rows).sort_values("seq")
            stored = self.total.get()
            sums = frame["value"].cumsum() + (0 if stored is None else stored[0])
            self.total.update((int(sums.iloc[-1]),))
            yield pd.DataFrame({"seq": frame.seq, "key": key[0], "sum": sums})

        def close(self) -> None:
            pass

    class Means(StatefulProcessor):  # type: ignore[misc]
        def init(self, handle: Any) -> None:
            self.window = handle.getListState("window", "sum long")

        def handleInputRows(self, key: Any, rows: Any, timerValues: Any) -> Iterator[pd.DataFrame]:  # noqa: N802, N803
            frame = pd.concat(rows).sort_values("seq")
            values = [value for (value,) in self.window.get()] + frame["sum"].tolist()
            full = len(values) // WINDOW * WINDOW
            means = [sum(values[start : start + WINDOW]) / WINDOW for start in range(0, full, WINDOW)]
            if full < len(values):
                self.window.put([(value,) for value in values[full:]])
            else:
                self.window.clear()
            yield pd.DataFrame({"key": key[0], "mean": means})

        def close(self) -> None:
            pass

    by_key = read_rows(path).groupBy("key")
    sums = by_key.transformWithStateInPandas(Sums(), "seq long, key string, sum long", "append", "none")
    means = sums.groupBy("key").transformWithStateInPandas(Means(), "key string, mean double", "append", "none")
    return run_query(means, on_first)


# ---------------------------------------------------------------------------------------------------- region, fused


def region_fused(path: Path, on_first: Callable[[], None]) -> list[Any]:
    import pandas as pd
    from pyspark.sql.streaming import StatefulProcessor

    class SumsAndMeans(StatefulProcessor):  # type: ignore[misc]
        def init(self, handle: Any) -> None:
            self.state = handle.getValueState("states", "states binary")

        def handleInputRows(self, key: Any, rows: Any, timerValues: Any) -> Iterator[pd.DataFrame]:  # noqa: N802, N803
            stored = self.state.get()
            states: dict[str, list[int]] = {} if stored is None else pickle.loads(bytes(stored[0]))
            frame = pd.concat(rows).sort_values("seq")
            keys, means = [], []
            for name, value in zip(frame["key"].tolist(), frame["value"].tolist(), strict=True):
                state = states.get(name)
                if state is None:
                    state = states[name] = [0, 0, 0]  # running sum; sum and length of the open window
                state[0] += value
                state[1] += state[0]
                state[2] += 1
                if state[2] == WINDOW:
                    keys.append(name)
                    means.append(state[1] / WINDOW)
                    state[1] = state[2] = 0
            self.state.update((pickle.dumps(states, pickle.HIGHEST_PROTOCOL),))
            yield pd.DataFrame({"key": keys, "mean": means})

        def close(self) -> None:
            pass

    rows = read_rows(path).select("*", channel("key")).groupBy("channel")
    return run_query(
        rows.transformWithStateInPandas(SumsAndMeans(), "key string, mean double", "append", "none"), on_first
    )
