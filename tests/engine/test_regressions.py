"""What broke once: each test is named after it."""

from __future__ import annotations

import itertools
import sys
import threading
from collections.abc import Callable, Iterator
from datetime import timedelta
from typing import Any

import pytest

import penstock as pn
from penstock.compiler.codegen import OVERFLOW
from penstock.operators import delay
from penstock.runtime.pacing import MOST_HELD, Pacer
from penstock.runtime.pe import PE


def _until(condition: Callable[[], Any]) -> None:
    """Wait for something another thread does; fail rather than hang."""
    done = threading.Event()
    for _ in range(4000):
        if condition():
            return
        done.wait(0.005)
    raise AssertionError("it never happened")


class Chunks(pn.Sink):
    """Remembers how long the chunks were, and how it was closed."""

    def __init__(self) -> None:
        self.sizes: list[int] = []
        self.failed: bool | None = None

    def write(self, tuples: list[Any]) -> None:
        self.sizes.append(len(tuples))

    def close(self, failed: bool = False) -> None:
        self.failed = failed


# ------------------------------------------------------------------------------------------------ threads that meet


def test_a_timer_whose_output_comes_back_to_its_own_segment_locked_itself_out() -> None:
    """gate → delay → feedback → gate → delay: the timer delivered feedback while it held the delay's lock."""
    clock = pn.ManualClock()
    flow = pn.Flow("loop")
    acknowledged = flow.feedback()
    delayed = flow.source(pn.beacon(count=4, clock=clock, rate=1000)).gate(acknowledged, 1).delay(10)
    acknowledged.connect(delayed)
    seen: list[int] = []
    delayed.sink(seen.append)
    more = threading.Event()
    flow.source(lambda: iter(more.wait, True), name="open end")  # keeps the job alive until everything has passed
    job = pn.submit(flow, on="local", clock=clock)
    clock.advance(1)
    for count in range(1, 4):
        _until(lambda: job.metrics().operators["gate"].received >= 4)
        clock.advance(10)
        _until(lambda count=count: len(seen) >= count)
    more.set()
    job.wait()
    assert seen == [0, 1, 2, 3]


def test_looking_at_a_backlog_met_keys_that_another_thread_was_adding(monkeypatch: pytest.MonkeyPatch) -> None:
    """The count is made under the lock of the segment, and not for every chunk."""
    flow = pn.Flow("keyed barrier")
    total = 4 * MOST_HELD
    left = flow.source(range(total)).key_by(lambda n: n)
    right = flow.source(lambda: iter(range(total))).key_by(lambda n: n)
    out = left.barrier(right, name="meet").collect()
    pe = PE(flow.graph())
    node = flow.graph().node("meet").index
    segment, logic = pe.segments[pe.plan.of_node[node]], pe.logics[node]
    looks = []
    original = logic.backlog

    def backlog(port: int) -> int:
        assert segment.lock is not None
        looks.append(segment.lock.locked())
        return original(port)

    monkeypatch.setattr(logic, "backlog", backlog)
    pe.start()
    pe.wait()
    assert sorted(out) == [(n, n) for n in range(total)]
    assert all(looks)


def test_planning_many_meetings_took_quadratic_time() -> None:
    flow = pn.Flow("ladder")
    stream = flow.source([1])
    for _ in range(300):
        stream = stream.barrier(stream)
    pe = PE(flow.graph())
    steps = 0

    def count(frame: Any, event: str, argument: Any) -> None:
        nonlocal steps
        steps += 1

    sys.setprofile(count)
    try:
        Pacer(pe.segments, pe.logics, threading.Event())
    finally:
        sys.setprofile(None)
    assert steps < 100 * len(pe.segments)


# ---------------------------------------------------------------------------------------------------- how jobs end


def test_a_cancelled_job_told_its_sinks_that_it_had_come_to_its_end() -> None:
    sink = Chunks()
    flow = pn.Flow("endless")
    flow.source(itertools.count).sink(sink)
    job = pn.submit(flow, on="local")
    _until(lambda: sink.sizes)
    job.cancel()
    with pytest.raises(pn.Cancelled):
        job.wait()
    assert sink.failed is True


def test_a_cancelled_job_left_an_endless_function_running_and_delivering() -> None:
    seen: list[int] = []
    flow = pn.Flow("endless")
    flow.source([0]).flat_map(itertools.count).sink(seen.append)
    job = pn.submit(flow, on="local")
    _until(lambda: seen)
    job.cancel()
    with pytest.raises(pn.Cancelled):
        job.wait()
    for source in job._running.pe.sources:  # type: ignore[attr-defined]
        source.thread.join()
    assert job.state == "cancelled"
    assert seen == list(range(len(seen)))


def test_an_error_in_one_branch_cut_off_another_that_overflowed() -> None:
    """The second branch is longer than an outlet holds: handing it over early raised the error of the first."""
    flow = pn.Flow("branches")
    numbers = flow.source([[1]])
    numbers.map_batch(lambda chunk: [1 / 0 for _ in chunk], name="failing").collect()
    out = numbers.map_batch(list).flat_map(lambda _: range(3 * OVERFLOW)).map_batch(list).collect()
    with pytest.raises(pn.OperatorError, match="'failing'"):
        pn.run(flow, on="local")
    assert out == list(range(3 * OVERFLOW))


def test_feedback_let_tuples_pass_after_the_one_that_failed() -> None:
    flow = pn.Flow("loop")
    acknowledged = flow.feedback()
    passed = flow.source(range(10)).gate(acknowledged, 1)
    acknowledged.connect(passed.map(lambda n: n))
    out = passed.map_batch(lambda chunk: [10 // (n - 3) for n in chunk], name="failing").collect()
    with pytest.raises(pn.OperatorError, match="'failing'"):
        pn.run(flow, on="local")
    assert out == [-4, -5, -10]


def test_two_jobs_at_once_filled_one_list() -> None:
    go = threading.Event()

    def source() -> Iterator[int]:
        yield 1
        go.wait()
        yield 2

    flow = pn.Flow("twice")
    out = flow.source(source).collect()
    job = pn.submit(flow, on="local")
    with pytest.raises(pn.FlowError, match="'collect' is being filled already"):
        pn.submit(flow, on="local")
    go.set()
    job.wait()
    assert out == [1, 2]
    pn.run(flow, on="local")
    assert out == [1, 2]


def test_one_file_sink_used_twice_left_a_temporary_file_behind(tmp_path: Any) -> None:
    sink = pn.files.write(tmp_path / "out.txt")
    flow = pn.Flow("shared")
    numbers = flow.source(range(3))
    numbers.sink(sink)
    numbers.map(str).sink(sink)
    with pytest.raises(pn.FlowError, match="use union"):
        pn.run(flow, on="local")
    assert [path.name for path in tmp_path.iterdir()] in ([], ["out.txt"])


# ---------------------------------------------------------------------------------------------------- bounded memory


def _key(key: Any, held: list[Any]) -> Any:
    assert len(held) == 2
    return key


class Many(pn.Operator):
    def open(self, ctx: pn.OperatorContext) -> None:
        self.ctx = ctx

    def process(self, t: Any, port: int) -> Iterator[int]:
        yield from range(t)


class ManyPushed(pn.CoOperator):
    async def run(self, ctx: Any) -> None:
        while await ctx.wait_all({0: 1}):
            for n in range(ctx.pop(0)):
                await ctx.push(n)
        for n in range(5):
            await ctx.push(n)


@pytest.mark.parametrize(
    ("make", "count"),
    [
        (lambda s: s.process(Many()), 100_000),
        (lambda s: s.process(ManyPushed()), 100_005),
        (lambda s: s.flat_map(range).join(s.flat_map(range), pn.sliding(count=1)), None),
        (lambda s: s.flat_map(range).key_by(abs).window(pn.tumbling(count=3, partial=True)).apply(_key), 50_000),
    ],
    ids=["operator", "driver loop", "join", "keys at the end"],
)
def test_an_operator_that_brought_much_at_once_put_it_all_into_memory(make: Any, count: int | None) -> None:
    sink = Chunks()
    flow = pn.Flow("much")
    make(flow.source([50_000, 50_000])).sink(sink)
    pn.run(flow, on="local")
    assert sum(sink.sizes) == count if count is not None else sum(sink.sizes) > 2 * OVERFLOW
    assert max(sink.sizes) <= 2 * OVERFLOW


def test_a_delay_held_whatever_came(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(delay, "CAPACITY", 10)
    clock = pn.ManualClock()
    flow = pn.Flow("delay")
    seen: list[int] = []
    flow.source(range(100)).delay(1, name="hold").sink(seen.append)
    pe = PE(flow.graph(), clock=clock)
    waiting = pe.logics[flow.graph().node("hold").index].partitions[None].waiting  # type: ignore[attr-defined]
    pe.start()
    most = 0
    while not pe.wait(0.001):
        most = max(most, len(waiting))
        clock.advance(1)
    assert seen == list(range(100))
    assert 0 < most <= 11


def test_a_full_delay_can_be_cancelled(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(delay, "CAPACITY", 10)
    flow = pn.Flow("delay")
    flow.source(range(100)).delay(1).sink(print)
    job = pn.submit(flow, on="local", clock=pn.ManualClock())
    _until(lambda: job.metrics().operators["delay"].received > 10)
    job.cancel()
    with pytest.raises(pn.Cancelled):
        job.wait()


# ---------------------------------------------------------------------------------------------- operators and ports


class Counting(pn.CoOperator):
    inputs = 2

    async def run(self, ctx: Any) -> None:
        count = 0
        while await ctx.wait_any({0: 1, 1: 1}):
            for port in (0, 1):
                while ctx.available(port):
                    count += 1
                    ctx.pop(port)
        await ctx.push((ctx.key, count))


class Finals(pn.Operator):
    inputs = 2
    count = 0
    ended = 0

    def open(self, ctx: pn.OperatorContext) -> None:
        self.key = ctx.key

    def process(self, t: Any, port: int) -> None:
        self.count += 1

    def on_punctuation(self, mark: pn.Punctuation, port: int) -> Any:
        self.ended += mark is pn.Punctuation.FINAL
        return (self.key, self.count) if self.ended == 2 else None


class TellEnd(pn.Operator):
    def __init__(self, told: list[threading.Event]) -> None:
        self.told = told

    def __deepcopy__(self, memo: Any) -> TellEnd:
        return TellEnd(self.told)

    def process(self, t: Any, port: int) -> None:
        return None

    def on_punctuation(self, mark: pn.Punctuation, port: int) -> None:
        self.told[0].set()


@pytest.mark.parametrize("operator_class", [Counting, Finals])
def test_a_key_first_met_after_an_input_had_ended_never_heard_of_it(operator_class: Any) -> None:
    early_ended = threading.Event()

    def late() -> Iterator[int]:
        early_ended.wait()
        yield from (1, 2)

    flow = pn.Flow("late key")
    early = flow.source([1])
    out = flow.source(late).key_by(abs).process(operator_class(), early.key_by(abs)).collect()
    early.process(TellEnd([early_ended]))
    pn.run(flow, on="local")
    assert sorted(out) == [(1, 2), (2, 1)]


def test_a_control_port_without_key_failed_while_compiling() -> None:
    class Limited(pn.Operator):
        inputs = 2
        control = (1,)

        def process(self, t: Any, port: int) -> Any:
            return t

    flow = pn.Flow("control")
    flow.source([1]).key_by(abs).process(Limited(), flow.source([5])).collect()
    with pytest.raises(pn.FlowError, match=r"'Limited' .* is partitioned but its input 1 has no key"):
        pn.run(flow, on="local")


def test_a_negative_output_port_counted_from_the_end() -> None:
    class Wrong(pn.Operator):
        outputs = 2

        def open(self, ctx: pn.OperatorContext) -> None:
            self.ctx = ctx

        def process(self, t: Any, port: int) -> None:
            self.ctx.submit(t, -1)

    flow = pn.Flow("ports")
    flow.source([1]).process(Wrong())
    with pytest.raises(pn.OperatorError, match="output port -1 does not exist; the operator has 2"):
        pn.run(flow, on="local")


def test_a_split_into_thousands_could_not_be_compiled() -> None:
    flow = pn.Flow("split")
    streams = flow.source([0, 63, 64, 2999, -1, 1]).split(3000, lambda n: n)
    outs = {n: streams[n].collect() for n in (0, 63, 64, 65, 2999)}
    pn.run(flow, on="local")
    assert outs == {0: [0], 63: [63], 64: [64], 65: [], 2999: [2999]}
    flow = pn.Flow("split")
    flow.source([3000]).split(3000, lambda n: n)
    with pytest.raises(pn.OperatorError, match="an index from 0 to 2999"):
        pn.run(flow, on="local")


def test_a_beacon_whose_function_stopped_iterating_hung() -> None:
    rows = iter("ab")
    flow = pn.Flow("beacon")
    out = flow.source(pn.beacon(count=5, function=lambda _: next(rows))).collect()
    with pytest.raises(pn.SourceError, match="StopIteration"):
        pn.run(flow, on="local")
    assert out == ["a", "b"]


class NotAsync(pn.CoOperator):
    def run(self, ctx: Any) -> None:  # type: ignore[override]
        return None


@pytest.mark.parametrize(
    ("call", "message"),
    [
        (lambda s: s.sink(sys.stdout), r"has write\(\) but lacks open\(\)"),
        (lambda s: s.join([1], window=pn.sliding(count=1)), "a stream was expected at .*, not list"),
        (lambda s: s.process(NotAsync()), "NotAsync.run must be an `async def`"),
        (lambda s: s.throttle("3"), "needs a rate above 0"),
        (lambda s: s.delay("3"), "needs a number of seconds"),
        (lambda s: s.gate(s, 1.5), "must be at least 1"),
    ],
)
def test_a_wrong_argument_failed_with_an_error_of_pythons(call: Any, message: str) -> None:
    with pytest.raises(pn.FlowError, match=message):
        call(pn.Flow("wrong").source([1]))


def test_a_delay_takes_a_timedelta_and_a_late_stream_a_name() -> None:
    flow = pn.Flow("names")
    numbers = flow.source([5, 1]).delay(timedelta(0))
    windows = numbers.window(pn.tumbling(time=2, on=lambda n: n))
    late = windows.late_stream(name="too late").collect()
    windows.aggregate(n=pn.count())
    pn.run(flow, on="local")
    assert late == [1]
    assert flow.graph().node("too late")
