"""How a job runs and ends: punctuation, time, pacing, locks, cancelling, profiles, and large graphs."""

from __future__ import annotations

import itertools
import threading
from collections.abc import Callable, Iterator
from typing import Any

import pytest

import penstock as pn
from penstock.runtime.pacing import MOST_HELD
from penstock.runtime.pe import PE
from penstock.tuples import CHUNK

Run = Callable[..., pn.Job]


# ------------------------------------------------------------------------------------------------------- punctuation


@pytest.mark.parametrize("before", [False, True])
def test_punctuation_keeps_its_place_between_tuples(run: Run, before: bool) -> None:
    flow = pn.Flow("marks")
    marked = flow.source(range(1, 11)).punctuate(lambda n: n % 4 == 0, before=before).map(lambda n: n * 10)
    out = marked.filter(lambda n: n != 20).window(pn.tumbling(punctuation=True)).apply(list).collect()
    run(flow)
    assert out == ([[10, 30, 40], [50, 60, 70, 80]] if not before else [[10, 30], [40, 50, 60, 70]])


def test_punctuation_passes_windows_and_operators(run: Run) -> None:
    class Marks(pn.Operator):
        def process(self, t: Any, port: int) -> Any:
            return t

        def on_punctuation(self, mark: pn.Punctuation, port: int) -> Any:
            return str(mark.value)

    flow = pn.Flow("marks")
    marked = flow.source(range(4)).punctuate(lambda n: n == 1)
    seen = marked.process(Marks()).collect()
    summed = marked.window(pn.tumbling(punctuation=True)).apply(sum).process(Marks()).collect()
    run(flow)
    assert seen == [0, 1, "window", 2, 3, "final"]
    assert summed == [1, "window", "final"]


def test_an_operator_can_mark_windows_itself(run: Run) -> None:
    class EveryThird(pn.Operator):
        def open(self, ctx: pn.OperatorContext) -> None:
            self.ctx = ctx

        def process(self, t: int, port: int) -> None:
            self.ctx.submit(t)
            if t % 3 == 2:
                self.ctx.punctuate()

    flow = pn.Flow("marks")
    out = flow.source(range(7)).process(EveryThird()).window(pn.tumbling(punctuation=True, partial=True))
    lists = out.apply(list).collect()
    run(flow)
    assert lists == [[0, 1, 2], [3, 4, 5], [6]]


# -------------------------------------------------------------------------------------------------------------- time


def _fed(inbox: list[Any], ready: threading.Event) -> Callable[[], Iterator[Any]]:
    """A source a test feeds by hand: it gives what is in `inbox` whenever `ready` is set; None ends it."""

    def read() -> Iterator[Any]:
        while True:
            ready.wait()
            ready.clear()
            while inbox:
                item = inbox.pop(0)
                if item is None:
                    return
                yield item

    return read


def _until(condition: Callable[[], Any]) -> None:
    """Wait for something another thread does; fail rather than hang."""
    done = threading.Event()
    for _ in range(2000):
        if condition():
            return
        done.wait(0.005)
    raise AssertionError("it never happened")


def test_a_delayed_tuple_leaves_when_its_time_has_come_though_nothing_else_arrives() -> None:
    clock, inbox, ready = pn.ManualClock(), ["a"], threading.Event()
    flow = pn.Flow("delay")
    seen: list[str] = []
    flow.source(_fed(inbox, ready)).delay(10).sink(seen.append)
    job = pn.submit(flow, on="local", clock=clock)
    ready.set()
    _until(lambda: job.metrics().operators["delay"].received == 1)
    assert seen == []
    clock.advance(9.9)
    assert seen == []
    clock.advance(0.1)
    _until(lambda: seen == ["a"])
    inbox.append(None)
    ready.set()
    job.wait()


def test_an_arrival_time_window_closes_by_the_clock() -> None:
    clock, inbox, ready = pn.ManualClock(), [1, 2], threading.Event()
    flow = pn.Flow("window")
    seen: list[dict[str, int]] = []
    flow.source(_fed(inbox, ready)).window(pn.tumbling(time=60)).aggregate(total=pn.sum(lambda n: n)).sink(seen.append)
    job = pn.submit(flow, on="local", clock=clock)
    ready.set()
    _until(lambda: job.metrics().operators["aggregate"].received == 2)
    clock.advance(60)
    _until(lambda: seen == [{"total": 3}])
    inbox.append(None)
    ready.set()
    job.wait()


def test_a_throttle_delivers_what_it_let_pass_before_it_waits() -> None:
    clock = pn.ManualClock()
    flow = pn.Flow("throttle")
    seen: list[int] = []
    flow.source(range(3)).throttle(1).sink(seen.append)
    job = pn.submit(flow, on="local", clock=clock)
    for count in (1, 2, 3):
        _until(lambda count=count: len(seen) == count)
        clock.advance(1)
    job.wait()
    assert seen == [0, 1, 2]


def test_a_throttled_job_can_be_cancelled_at_once() -> None:
    flow = pn.Flow("throttle")
    seen: list[int] = []
    flow.source(range(3)).throttle(1).sink(seen.append)
    job = pn.submit(flow, on="local", clock=pn.ManualClock())
    _until(lambda: seen)
    job.cancel()
    with pytest.raises(pn.Cancelled):
        job.wait(5)


def test_tuples_pulled_before_an_iterator_blocks_are_delivered_meanwhile() -> None:
    """Bursts of any length, then silence: nothing waits in a half-filled chunk."""
    inbox: list[Any] = []
    ready = threading.Event()
    flow = pn.Flow("bursts")
    seen: list[int] = []
    flow.source(_fed(inbox, ready)).map(lambda n: n).sink(seen.append)
    job = pn.submit(flow, on="local")
    expected: list[int] = []
    for burst in (1, 2, 3, 700, 1, 1500, 5):
        numbers = list(range(len(expected), len(expected) + burst))
        expected += numbers
        inbox += numbers
        ready.set()
        _until(lambda expected=expected: seen == expected)
    inbox.append(None)
    ready.set()
    job.wait()
    assert seen == expected


# ------------------------------------------------------------------------------------------------------------ ending


def test_cancelling_an_endless_job_keeps_what_was_delivered() -> None:
    flow = pn.Flow("endless")
    seen: list[int] = []
    flow.source(itertools.count).sink(seen.append)
    job = pn.submit(flow, on="local")
    _until(lambda: len(seen) > 1000)
    assert job.state == "running"
    job.cancel()
    with pytest.raises(pn.Cancelled):
        job.wait()
    assert job.state == "cancelled"
    assert seen == list(range(len(seen)))


def test_a_job_is_cancelled_although_a_source_never_returns() -> None:
    stuck, release = threading.Event(), threading.Event()

    def source() -> Iterator[int]:
        yield 1
        stuck.set()
        release.wait()
        yield 2

    flow = pn.Flow("stuck")
    out = flow.source(source).collect()
    job = pn.submit(flow, on="local")
    stuck.wait()
    job.cancel()
    with pytest.raises(pn.Cancelled):
        job.wait()
    release.set()
    assert out in ([], [1])


def test_one_failing_source_stops_the_others() -> None:
    def failing() -> Iterator[int]:
        yield 1
        raise ValueError("broken")

    flow = pn.Flow("two")
    flow.source(itertools.count).collect()
    flow.source(failing, name="failing").collect()
    with pytest.raises(pn.SourceError, match="'failing'"):
        pn.run(flow, on="local")


def test_a_job_used_as_context_is_cancelled_at_the_end() -> None:
    flow = pn.Flow("context")
    flow.source(itertools.count).sink(lambda n: None)
    with pn.submit(flow, on="local") as job:
        assert not job.wait(0.01)
    with pytest.raises(pn.Cancelled):
        job.wait()


def test_final_punctuation_reaches_operators_behind_several_sources(run: Run) -> None:
    class Ending(pn.Operator):
        inputs = 2

        def process(self, t: Any, port: int) -> None:
            return None

        def on_punctuation(self, mark: pn.Punctuation, port: int) -> Any:
            return [(mark.value, port)]

    flow = pn.Flow("final")
    first, second = flow.source([1]).union(flow.source([2])), flow.source([3])
    out = first.process(Ending(), second).collect()
    run(flow)
    assert sorted(out) == [("final", 0), ("final", 1)]


# ----------------------------------------------------------------------------------------------------- back-pressure


def test_a_source_far_ahead_of_a_barrier_waits_for_the_other() -> None:
    go = threading.Event()
    read = [0]

    def fast() -> Iterator[int]:
        for n in range(100_000):
            read[0] = n
            yield n

    def slow() -> Iterator[int]:
        go.wait()
        yield from range(100_000)

    flow = pn.Flow("barrier")
    out = flow.source(fast).barrier(flow.source(slow)).collect()
    job = pn.submit(flow, on="local")
    _until(lambda: read[0] >= MOST_HELD)
    _until(lambda: job._running.pe.pacer._waiting)  # type: ignore[attr-defined]
    assert read[0] < MOST_HELD + 2 * CHUNK
    go.set()
    job.wait()
    assert out == [(n, n) for n in range(100_000)]


def test_a_barrier_fed_by_one_source_does_not_wait_for_itself(run: Run) -> None:
    flow = pn.Flow("barrier")
    stream = flow.source(range(3 * MOST_HELD))
    out = stream.barrier(stream.filter(lambda n: n >= 2 * MOST_HELD)).collect()
    run(flow)
    assert len(out) == MOST_HELD


def test_a_generator_that_yields_millions_from_one_tuple_is_handed_on_in_pieces() -> None:
    largest = [0]

    def sizes(chunk: list[int]) -> list[int]:
        largest[0] = max(largest[0], len(chunk))
        return [len(chunk)]

    flow = pn.Flow("flood")
    out = flow.source([0]).flat_map(lambda _: range(100_000)).map_batch(sizes).collect()
    pn.run(flow, on="local")
    assert sum(out) == 100_000
    assert largest[0] <= 4096


# ------------------------------------------------------------------------------------------------------------- locks


def _locked(flow: pn.Flow) -> list[str]:
    pe = PE(flow.graph())
    return [segment.root.name for segment in pe.segments if segment.lock is not None]


def test_one_source_needs_no_lock() -> None:
    flow = pn.Flow("single")
    stream = flow.source([])
    stream.union(stream.map(str)).window(pn.tumbling(count=2)).apply(len).collect()
    assert _locked(flow) == []


def test_a_lock_stands_where_two_sources_meet_and_not_behind_it() -> None:
    flow = pn.Flow("two")
    flow.source([]).map(str).union(flow.source([]), name="meet").map_batch(list, name="behind").collect()
    assert _locked(flow) == ["meet"]


def test_a_second_meeting_place_has_a_lock_of_its_own() -> None:
    flow = pn.Flow("twice")
    a, b = flow.source([]), flow.source([])
    first, second = a.union(b, name="first"), a.union(b, name="second")
    first.barrier(second, name="both").collect()
    assert _locked(flow) == ["first", "second", "both"]


def test_the_timer_counts_as_a_thread() -> None:
    flow = pn.Flow("timer")
    flow.source([]).delay(1, name="delay").map_batch(list).collect()
    flow.source([]).map_batch(list).collect()
    assert len(_locked(flow)) == 1


def test_threads_that_meet_lose_nothing() -> None:
    """Un-keyed state behind three sources: every tuple is counted once."""
    flow = pn.Flow("meeting")
    first, *others = [flow.source(range(20_000)) for _ in range(3)]
    met = first.union(*others)
    out = met.scan(lambda n, t: (n + 1, n + 1), init=0).window(pn.tumbling(count=1000)).apply(max).collect()
    pn.run(flow, on="local")
    assert out == [1000 * n for n in range(1, 61)]


# ------------------------------------------------------------------------------------------------- profile and scale


def test_a_profile_measures_selectivity_and_cost_and_survives_a_file(tmp_path: Any) -> None:
    flow = pn.Flow("profiled")
    stream = flow.source(range(10_000))
    stream.filter(lambda n: n % 4 == 0, name="quarter").flat_map(lambda n: (n, n, n), name="triple").collect()
    job = pn.run(flow, on="local")
    profile = job.profile()
    assert profile.operators["quarter"].selectivity == pytest.approx(0.25, abs=0.05)
    assert profile.operators["triple"].selectivity == 3.0
    assert profile.operators["triple"].cost >= 0
    profile.save(tmp_path / "profile.json")
    assert pn.Profile.load(tmp_path / "profile.json") == profile


def test_a_costly_operator_costs_more_in_the_profile() -> None:
    flow = pn.Flow("costs")
    flow.source(range(2000)).map(lambda n: sum(range(300)), name="dear").map(lambda n: n, name="cheap").collect()
    operators = pn.run(flow, on="local").profile().operators
    assert operators["dear"].cost > 3 * operators["cheap"].cost


def test_a_file_that_is_no_profile_is_refused(tmp_path: Any) -> None:
    (tmp_path / "x.json").write_text("{}")
    with pytest.raises(pn.PenstockError, match=r"x\.json cannot be read as a profile: .* no Penstock profile"):
        pn.Profile.load(tmp_path / "x.json")
    (tmp_path / "x.json").write_bytes(b"\xff{}")
    with pytest.raises(pn.PenstockError, match=r"x\.json cannot be read as a profile: 'utf-8'"):
        pn.Profile.load(tmp_path / "x.json")


def test_what_is_no_profile_or_plan_is_refused() -> None:
    flow = pn.Flow("any")
    flow.source([1]).collect()
    for wrong in ({}, "p.json", 3):
        for on in ("local", "spark"):
            with pytest.raises(pn.PlatformError, match=r"profile= must be a pn\.Profile.* pn\.Profile\.load"):
                pn.run(flow, on=on, profile=wrong)
            with pytest.raises(pn.PlatformError, match=r"plan= must be a pn\.Plan, not .* pn\.Plan\.from_json"):
                pn.run(flow, on=on, plan=wrong)
            with pytest.raises(pn.PlatformError, match=r"profile= must be a pn\.Profile, not"):
                pn.plan(flow, on=on, profile=wrong)  # type: ignore[arg-type]


def test_ten_thousand_operators_build_validate_and_run() -> None:
    flow = pn.Flow("long")
    stream = flow.source(range(3))
    for n in range(10_000):
        stream = stream.map(lambda t: t + 1) if n % 2 else stream.filter(lambda t: True)
    out = stream.collect()
    pn.run(flow, on="local")
    assert out == [5000, 5001, 5002]


def test_a_wide_and_deep_tree_compiles() -> None:
    flow = pn.Flow("tree")
    stream = flow.source(range(4))
    outs = []
    for _ in range(300):
        stream, rest = stream.flat_map(lambda n: (n,)).filter(lambda n: n >= 0, split=True)
        outs.append(rest.collect())
        outs.append(stream.scan(lambda n, t: (n + 1, n), init=0).collect())
    pn.run(flow, on="local")
    assert outs[-1] == [0, 1, 2, 3]
    assert outs[0] == []


def test_chunks_start_small_and_grow_with_the_load() -> None:
    sizes: list[int] = []

    def batch(tuples: list[int]) -> list[int]:
        sizes.append(len(tuples))
        return tuples

    flow = pn.Flow("chunks")
    flow.source(range(5000)).map_batch(batch).collect()
    pn.run(flow, on="local")
    assert sizes[0] == 1
    assert 1 < max(sizes) <= CHUNK
    assert sum(sizes) == 5000
