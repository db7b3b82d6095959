"""Profiling before a run: it measures, delivers nothing, and takes nothing away."""

from __future__ import annotations

import itertools
import json
import math
import threading
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

import penstock as pn
from penstock.optimizer.profile import OperatorProfile, Profile


def test_sinks_get_nothing_and_sources_lose_nothing(tmp_path: Path) -> None:
    (tmp_path / "in.txt").write_text("".join(f"{n}\n" for n in range(500)))
    written = tmp_path / "out.jsonl"
    flow = pn.Flow("files")
    numbers = flow.source(pn.files.lines(tmp_path / "in.txt"), name="lines").map(int, name="int")
    numbers.sink(pn.files.write(written))
    numbers.sink(lambda n: pytest.fail("a sink was called") if n < 0 or not running else None)
    collected = numbers.collect()
    running = False
    profile = pn.profile(flow, tuples=100)
    assert not written.exists()
    assert collected == []
    assert profile.operators["int"].samples == 100
    assert set(profile.operators) == {node.name for node in flow.graph()}
    running = True
    pn.run(flow, on="local")
    assert collected == list(range(500))


def test_an_iterator_is_replayed(tmp_path: Path) -> None:
    flow = pn.Flow("once")
    out = flow.source(n for n in range(1000)).map(abs).collect()
    pn.profile(flow, tuples=10)
    pn.profile(flow, tuples=300)
    pn.run(flow, on="local")
    assert out == list(range(1000))
    with pytest.raises(pn.FlowError, match="already read"):
        pn.profile(flow)


def test_an_error_of_an_iterator_comes_in_the_run() -> None:
    def broken() -> Iterator[int]:
        yield from range(5)
        raise RuntimeError("the feed broke")

    flow = pn.Flow("broken")
    out = flow.source(broken()).collect()
    pn.profile(flow)
    assert out == []
    with pytest.raises(pn.PenstockError, match="the feed broke"):
        pn.run(flow, on="local")
    assert out == [0, 1, 2, 3, 4]


class Queue(pn.Source):
    """A source that forgets what was committed, and counts who asks for that."""

    def __init__(self, replayable: bool) -> None:
        self.replayable = replayable
        self.commits = 0

    def initial(self) -> Any:
        return 0

    def read(self, offset: Any, limit: int) -> pn.Batch:
        end = min(200, offset + limit)
        return pn.Batch(list(range(offset, end)), end, done=end == 200)

    def commit(self, offset: Any) -> None:
        self.commits += 1


def test_nothing_is_committed() -> None:
    queue = Queue(replayable=True)
    flow = pn.Flow("queue")
    out = flow.source(queue).collect()
    pn.profile(flow)
    assert queue.commits == 0
    pn.run(flow, on="local")
    assert len(out) == 200


def test_what_cannot_be_read_twice_is_refused() -> None:
    flow = pn.Flow("queue")
    flow.source(Queue(replayable=False), name="orders").collect()
    with pytest.raises(pn.PlatformError, match=r"'orders'.*cannot be read twice"):
        pn.profile(flow)


def test_endless_and_blocked_sources_end() -> None:
    flow = pn.Flow("endless")
    flow.source(itertools.count, name="numbers").map(abs).collect()
    assert pn.profile(flow, tuples=50).operators["numbers"].samples == 50

    gate = threading.Event()

    def blocked() -> Iterator[int]:
        yield 1
        gate.wait()

    flow = pn.Flow("blocked")
    flow.source(blocked, name="blocked").map(abs, name="abs").collect()
    try:
        assert pn.profile(flow, seconds=0.05).operators["abs"].selectivity == 1
    finally:
        gate.set()


def test_windows_that_speak_between_tuples_are_counted() -> None:
    flow = pn.Flow("windows")
    sums = flow.source(range(1000)).window(pn.tumbling(count=10)).aggregate(name="sums", n=pn.count())
    per_key = flow.source(range(1000)).key_by(lambda n: n % 50).window(pn.tumbling(count=7, partial=True))
    per_key.apply(lambda key, tuples: key, name="weeks").map(abs).collect()
    sums.collect()
    operators = pn.profile(flow).operators
    assert operators["sums"].selectivity == 0.1
    assert operators["weeks"].selectivity == 0.15


def test_sizes_are_those_of_what_an_operator_sends() -> None:
    flow = pn.Flow("sizes")
    numbers = flow.source([1000 + n for n in range(3000)], name="in")
    long = numbers.map(lambda n: str(n) * 50, name="long")
    short, rest = long.split(2, lambda text: int(text[3]) % 2, name="split")
    short.map(lambda text: lambda: text, name="functions").collect()
    rest.filter(lambda text: False, name="none").collect()
    long.map_batch(lambda texts: [text[:4] for text in texts], name="cut").collect(name="out")
    back = flow.feedback(name="back")
    gated = numbers.gate(back, limit=10, name="gate").map(lambda n: "x" * 90 + str(n), name="answer")
    back.connect(gated)
    gated.collect()
    found = {name: one.size for name, one in pn.profile(flow).operators.items()}
    sizes = {name: size for name, size in found.items() if size is not None}
    assert sizes["in"] == pytest.approx(4, abs=1.5)
    assert sizes["long"] == pytest.approx(204, abs=4)
    assert sizes["split"] == pytest.approx(204, abs=4)
    assert sizes["cut"] == pytest.approx(8, abs=2)
    assert sizes["back"] == sizes["answer"] == pytest.approx(98, abs=30)  # a few at a time, each chunk by itself
    # Functions cannot be pickled, nothing came through the filter, and sinks send nothing.
    assert found["functions"] is found["none"] is found["out"] is None


def test_sizes_are_in_profiles_that_are_kept_and_old_ones_are_read() -> None:
    profile = Profile("any", {"op": OperatorProfile(1e-6, 0.5, 10, size=37.5), "out": OperatorProfile(1e-6, 0.0, 5)})
    text = profile.to_json()
    assert Profile.from_json(text) == profile
    data = json.loads(text)
    for values in data["operators"].values():
        del values["size"]
    old = Profile.from_json(json.dumps(data))
    assert old.operators["op"] == OperatorProfile(1e-6, 0.5, 10)
    data["operators"]["op"]["size"] = "large"
    with pytest.raises(pn.PenstockError, match="size must be a number of bytes"):
        Profile.from_json(json.dumps(data))


@pytest.mark.parametrize(
    ("part", "wrong"),
    [
        *(("cost", wrong) for wrong in (math.nan, -1e-9, math.inf, None, "3", True)),
        *(("selectivity", wrong) for wrong in (math.nan, -1, math.inf, None, "3")),
        *(("samples", wrong) for wrong in (math.nan, -1, 2.5, None, "3", True)),
        *(("free", wrong) for wrong in (math.nan, -0.1, 1.1, "3", True)),
        *(("size", wrong) for wrong in (math.nan, -1, math.inf, "3", True)),
    ],
)
def test_a_profile_with_wrong_numbers_is_refused(part: str, wrong: Any) -> None:
    values: dict[str, Any] = {"cost": 1e-6, "selectivity": 1, "samples": 10, "free": 0.5, "size": None}
    assert OperatorProfile(**values)
    with pytest.raises(pn.PenstockError, match=f"{part} must be .* not {wrong!r}"):
        OperatorProfile(**{**values, part: wrong})
    operators = {"good": values, "bad": {**values, part: wrong}}
    text = json.dumps({"penstock_profile": 1, "flow": "any", "operators": operators})
    with pytest.raises(pn.PenstockError, match=f"damaged at operator 'bad': {part} must be"):
        Profile.from_json(text)


def test_a_profile_of_something_else_is_refused() -> None:
    for wrong in ([1], {"op": 3}):
        with pytest.raises(pn.PenstockError, match=r"operators by name|operator 'op' must be an OperatorProfile"):
            Profile("any", wrong)  # type: ignore[arg-type]
    for operators in ([1], {"op": 3}, {"op": {"cots": 1}}):
        text = json.dumps({"penstock_profile": 1, "flow": "any", "operators": operators})
        with pytest.raises(pn.PenstockError, match=r"no Penstock profile|damaged at operator 'op'"):
            Profile.from_json(text)


def test_a_run_looks_at_no_sizes() -> None:
    class Unwilling:
        def __reduce__(self) -> Any:
            raise RuntimeError("somebody pickles me")

    flow = pn.Flow("run")
    flow.source([1] * 3000).map(lambda n: Unwilling(), name="objects").collect()
    assert pn.run(flow, on="local").profile().operators["objects"].size is None
    assert pn.profile(flow).operators["objects"].size is None


@pytest.mark.parametrize("options", [{"tuples": 0}, {"tuples": 1.5}, {"seconds": 0}])
def test_wrong_options(options: dict[str, Any]) -> None:
    flow = pn.Flow("any")
    flow.source([1]).collect()
    with pytest.raises(pn.PlatformError):
        pn.profile(flow, **options)


def test_a_failing_operator_is_named() -> None:
    flow = pn.Flow("failing")
    flow.source([0]).map(lambda n: 1 // n, name="inverse").collect()
    with pytest.raises(pn.OperatorError, match="inverse"):
        pn.profile(flow)


class Half(pn.Sink):
    """A sink that can be rehearsed: what is written then goes elsewhere."""

    def __init__(self) -> None:
        self.written: list[Any] = []
        self.rehearsals: list[Half] = []

    def write(self, tuples: list[Any]) -> None:
        self.written += tuples

    def rehearsal(self) -> pn.Sink:
        self.rehearsals.append(Half())
        return self.rehearsals[-1]


def test_sinks_are_measured_without_being_written_to(tmp_path: Path) -> None:
    flow = pn.Flow("sinks")
    numbers = flow.source(range(2000), name="numbers")
    zipped, half, mine = tmp_path / "out.jsonl.gz", Half(), [0]
    numbers.sink(pn.files.write(zipped), name="file")
    numbers.sink(half, name="half")
    numbers.sink(mine, name="mine")
    collected = numbers.collect(name="collected")
    operators = pn.profile(flow, tuples=1000).operators
    assert not zipped.exists()
    assert half.written == []
    assert mine == [0]
    assert collected == []
    assert half.rehearsals[-1].written == list(range(1000))
    assert operators["file"].cost > 0
    assert operators["half"].cost > 0
    assert [operators[name].samples for name in ("file", "half", "mine", "collected")] == [1000] * 4


def test_batch_operators_are_measured_whole() -> None:
    """Probes sit between chunks there, so nothing is taken off for them."""

    def slow(tuples: list[int]) -> list[int]:
        return [sum(range(20)) and n for n in tuples]

    flow = pn.Flow("batches")
    flow.source(range(4000)).map_batch(slow, name="slow").map_batch(list, name="quick").collect()
    operators = pn.profile(flow, tuples=4000).operators
    assert operators["slow"].cost > operators["quick"].cost


def test_how_long_batch_operators_free_the_gil() -> None:
    def hold(tuples: list[int]) -> list[int]:
        return [sum(range(200)) and n for n in tuples]

    def wait(tuples: list[int]) -> list[int]:
        time.sleep(0.003)
        return tuples

    flow = pn.Flow("free")
    flow.source(range(3000)).map_batch(hold, name="hold").map_batch(wait, name="wait").map(abs, name="abs").collect()
    profile = pn.profile(flow, tuples=3000)
    held, waits = profile.operators["hold"].free, profile.operators["wait"].free
    assert held is not None
    assert waits is not None
    assert held < 0.5 < waits
    assert profile.operators["abs"].free is None
    assert pn.Profile.from_json(profile.to_json()) == profile
