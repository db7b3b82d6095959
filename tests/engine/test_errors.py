"""Bad input and failing user code: a clear error that names operator, tuple and line; what came before is delivered."""

from __future__ import annotations

import traceback
from collections.abc import Callable, Iterator
from typing import Any

import pytest

import penstock as pn

Run = Callable[..., pn.Job]


def invert(n: int) -> float:
    return 1 / (n - 700)  # the line the error must name


INVERT_LINE = invert.__code__.co_firstlineno + 1


def _failing(flow: pn.Flow, run: Run) -> pn.OperatorError:
    with pytest.raises(pn.OperatorError) as caught:
        run(flow)
    return caught.value


def test_a_failing_function_names_operator_tuple_and_both_lines(run: Run) -> None:
    flow = pn.Flow("failing")
    out = flow.source(range(1000)).map(lambda n: n).map(invert, name="inverse").map(lambda n: n).collect()
    error = _failing(flow, run)
    assert error.operator == "inverse"
    assert isinstance(error.__cause__, ZeroDivisionError)
    text = str(error)
    assert "operator 'inverse'" in text
    assert "on tuple  700" in text
    assert f"test_errors.py:{INVERT_LINE}" in text
    assert str(error.defined) in text
    assert len(out) == 700, "everything before the failing tuple is delivered"


def test_the_traceback_shows_the_generated_line(run: Run) -> None:
    flow = pn.Flow("failing")
    flow.source([700]).map(invert).collect()
    error = _failing(flow, run)
    shown = "".join(traceback.format_exception(error.__cause__))  # on Spark with the worker's, as a note
    assert "map_1(t)" in shown


def test_what_came_before_a_failure_reaches_sinks_behind_other_segments(tmp_path: Any) -> None:
    path = tmp_path / "out.txt"
    flow = pn.Flow("failing")
    stream = flow.source(range(1000)).map(invert)
    batched = stream.map_batch(list).collect()
    windows = stream.window(pn.tumbling(count=100)).apply(len).collect()
    stream.map(lambda n: "x").sink(pn.files.write(path))
    with pytest.raises(pn.OperatorError):
        pn.run(flow, on="local")
    assert len(batched) == 700
    assert windows == [100] * 7
    assert path.read_text() == "x\n" * 700


FAILURES: dict[str, tuple[Callable[[Any], Any], str]] = {
    "an unknown attribute of a mapping": (
        lambda s: s.key_by("user").scan(lambda n, t: (n, t), init=0),
        "no attribute 'user'; it has 'host', 'n'",
    ),
    "an unknown attribute of several": (
        lambda s: s.key_by("host", "user").scan(lambda n, t: (n, t), init=0),
        "no attribute 'user'; it has 'host', 'n'",
    ),
    "an unknown attribute in an aggregate": (
        lambda s: s.key_by("host").window(pn.tumbling(count=2)).aggregate(total=pn.sum("len")),
        "no attribute 'len'",
    ),
    "an unknown attribute in event time": (
        lambda s: s.window(pn.tumbling(time=2, on="ts")).aggregate(n=pn.count()),
        "no attribute 'ts'",
    ),
    "an unknown attribute in a join": (
        lambda s: s.key_by("id").join(s.key_by("host"), window=pn.sliding(count=2)),
        "no attribute 'id'",
    ),
    "a key that cannot be hashed": (
        lambda s: s.key_by(lambda t: [t]).scan(lambda n, t: (n, t), init=0),
        "the key cannot be hashed",
    ),
    "a key that cannot be hashed in a window": (
        lambda s: s.key_by(lambda t: [t]).window(pn.tumbling(count=2)).aggregate(n=pn.count()),
        "the key cannot be hashed",
    ),
    "a scan that returns no pair": (lambda s: s.scan(lambda n, t: t["n"], init=0), "must return a pair"),
    "a function of the wrong arity": (lambda s: s.map(lambda a, b: a), "missing 1 required positional argument"),
    "a flat_map that returns no iterable": (lambda s: s.flat_map(lambda t: 3), "not iterable"),
    "a map_batch that returns no list": (lambda s: s.map_batch(lambda ts: None), "must return a list"),
    "an operator that fails": (lambda s: s.process(Failing()), "no more"),
    "an operator that fails at the end": (lambda s: s.process(FailingAtEnd()), "at the end of the stream"),
    "a window function that fails": (lambda s: s.window(pn.tumbling(count=1)).apply(lambda ts: ts[3]), "IndexError"),
    "an output port that does not exist": (lambda s: s.process(WrongPort()), "output port 3 does not exist"),
}


class Failing(pn.Operator):
    def process(self, t: Any, port: int) -> Any:
        raise RuntimeError("no more")


class FailingAtEnd(pn.Operator):
    def process(self, t: Any, port: int) -> Any:
        return t

    def on_punctuation(self, mark: pn.Punctuation, port: int) -> None:
        raise RuntimeError("cannot finish")


class WrongPort(pn.Operator):
    def open(self, ctx: pn.OperatorContext) -> None:
        self.ctx = ctx

    def process(self, t: Any, port: int) -> None:
        self.ctx.submit(t, 3)


# One of each way an error can come about on Spark: before a shuffle, at one, behind one, in a batch, at the end.
ON_SPARK = [
    "an unknown attribute of a mapping",
    "a key that cannot be hashed",
    "a scan that returns no pair",
    "a map_batch that returns no list",
    "an operator that fails at the end",
]


@pytest.mark.parametrize(
    ("case", "platform"),
    [*((case, "local") for case in FAILURES), *((case, "spark") for case in ON_SPARK)],
    indirect=["platform"],
)
def test_bad_input_is_named(case: str, run: Run) -> None:
    make, expected = FAILURES[case]
    flow = pn.Flow("bad")
    make(flow.source([{"host": "a", "n": 1}])).collect()
    error = _failing(flow, run)
    assert expected in str(error)
    assert "test_errors.py" in str(error)


def test_a_source_that_raises_delivers_what_came_before(run: Run) -> None:
    def numbers() -> Iterator[int]:
        yield from range(700)
        raise OSError("the cable was pulled")

    flow = pn.Flow("source")
    out = flow.source(numbers, name="numbers").collect()
    with pytest.raises(pn.SourceError, match="cable was pulled") as caught:
        run(flow)
    assert caught.value.operator == "numbers"
    assert out == list(range(700))


def test_a_generator_can_be_read_once(run: Run) -> None:
    flow = pn.Flow("generator")
    out = flow.source(n for n in range(3)).collect()
    run(flow)
    assert out == [0, 1, 2]
    with pytest.raises(pn.PenstockError, match="a function that returns a new generator"):
        run(flow)


def test_malformed_input_names_file_and_line(run: Run, tmp_path: Any) -> None:
    path = tmp_path / "data.jsonl"
    path.write_text('{"a": 1}\n{"a": 2}\nnot json\n{"a": 4}\n')
    flow = pn.Flow("input")
    out = flow.source(pn.files.jsonl(path)).collect()
    with pytest.raises(pn.SourceError, match=r"data\.jsonl:3"):
        run(flow)
    assert out == [{"a": 1}, {"a": 2}]


def test_malformed_input_can_be_skipped_or_kept_as_dead_letters(run: Run, tmp_path: Any) -> None:
    path = tmp_path / "data.jsonl"
    path.write_text('{"a": 1}\nnot json\n{"a": 4}\n')
    flow = pn.Flow("input")
    letters = flow.dead_letters()
    skipping = flow.source(pn.files.jsonl(path, on_error="skip"), name="skipping").collect()
    keeping = flow.source(pn.files.jsonl(path, on_error=letters), name="keeping").collect()
    refused = letters.map(lambda letter: (letter.item, letter.where.endswith("data.jsonl:2"))).collect()
    job = run(flow)
    assert skipping == keeping == [{"a": 1}, {"a": 4}]
    assert refused == [("not json", True)]
    assert job.metrics().operators["skipping"].counters == {"skipped": 1}
    assert job.metrics().operators["keeping"].counters == {"dead": 1}


def test_a_full_disk_is_a_sink_error(run: Run) -> None:
    flow = pn.Flow("disk")
    seen: list[int] = []
    stream = flow.source(range(100_000))
    stream.sink(seen.append)
    stream.sink(pn.files.write("/dev/full", mode="append"), name="disk")
    with pytest.raises(pn.SinkError, match="No space left") as caught:
        run(flow)
    assert caught.value.operator == "disk"
    assert seen


def test_a_failing_sink_function_is_a_sink_error(run: Run) -> None:
    flow = pn.Flow("sink")
    flow.source([1]).sink(lambda t: t.missing, name="out")
    with pytest.raises(pn.SinkError, match="'out'"):
        run(flow)


def test_a_control_port_must_not_produce_output(run: Run) -> None:
    class Echo(pn.Operator):
        inputs = 2
        control = (1,)

        def process(self, t: Any, port: int) -> Any:
            return t

    flow = pn.Flow("control")
    flow.source([]).process(Echo(), flow.source([1]), name="echo").collect()
    with pytest.raises(pn.OperatorError, match="control port must not produce output"):
        run(flow)


def test_operators_are_closed_also_when_another_fails() -> None:
    closed = []

    class Closing(pn.Operator):
        def process(self, t: Any, port: int) -> Any:
            return t

        def close(self) -> None:
            closed.append(True)

        def __deepcopy__(self, memo: Any) -> Any:
            return self

    flow = pn.Flow("closing")
    flow.source([1]).process(Closing()).map(invert).map(lambda n: n / 0).collect()
    with pytest.raises(pn.OperatorError):
        pn.run(flow, on="local")
    assert closed == [True]


def test_an_operator_that_cannot_open_stops_the_job_before_it_starts(run: Run) -> None:
    class Broken(pn.Operator):
        def open(self, ctx: pn.OperatorContext) -> None:
            raise OSError("no such device")

        def process(self, t: Any, port: int) -> Any:
            return t

    flow = pn.Flow("broken")
    out = flow.source([1]).process(Broken(), name="broken").collect()
    with pytest.raises(pn.OperatorError, match=r"'broken'.*failed to start: OSError: no such device"):
        run(flow)
    assert out == []


def test_unknown_options_and_platforms_are_refused() -> None:
    flow = pn.Flow("options")
    flow.source([]).collect()
    with pytest.raises(pn.PlatformError, match="no option 'color'"):
        pn.run(flow, on="local", color="red")
    with pytest.raises(pn.PlatformError, match="spark, local"):
        pn.run(flow, on="moon")
    with pytest.raises(pn.PlatformError, match="threading must be one of"):
        pn.run(flow, on="local", threading="magic")


def test_errors_can_be_pickled() -> None:
    import pickle

    original = pn.OperatorError("map", "ValueError: x", item="3", doing="to read")
    again = pickle.loads(pickle.dumps(original))
    assert str(again) == str(original)
    refused = pn.InputError("bad", where="a.csv:3", data="x")
    assert str(pickle.loads(pickle.dumps(refused))) == str(refused)
