"""Operators with threads of their own: what they submit arrives once, in order, and the run ends as it should."""

from __future__ import annotations

import queue
import random
import threading
from collections import defaultdict
from typing import Any

import pytest

import penstock as pn
from penstock.graph.graph import Target
from penstock.runtime.pe import PE, Threading
from penstock.runtime.threading_models import queueable
from tests.runtime.forcing import LONG

MODELS = [
    {"threading": "manual"},
    {"threading": "dedicated"},
    {"threading": "dynamic", "threads": 2},
    {"threading": "dynamic", "threads": 8, "queue": 4},
]


class Talk(pn.Operator):
    """Each thread says numbers of its own, beside what comes in."""

    own_threads = True

    def __init__(self, threads: int, count: int) -> None:
        self.threads, self.count = threads, count

    def open(self, ctx: pn.OperatorContext) -> None:
        for number in range(self.threads):
            ctx.start_thread(lambda out, number=number: self.talk(out, number))

    def talk(self, out: pn.ThreadContext, number: int) -> None:
        for n in range(0, self.count, 2):
            out.submit((number, n))
            out.submit_all([(number, n + 1)])

    def process(self, t: Any, port: int) -> Any:
        return ("input", t)


def by_speaker(tuples: list[tuple[Any, int]]) -> dict[Any, list[int]]:
    found = defaultdict(list)
    for speaker, n in tuples:
        found[speaker].append(n)
    return found


@pytest.mark.parametrize("options", MODELS, ids=str)
def test_each_thread_and_the_input_arrive_in_order(options: dict[str, Any]) -> None:
    flow = pn.Flow("talk")
    out = flow.source(range(500)).process(Talk(3, 200)).map(lambda t: t).filter(lambda t: True).collect()
    pn.run(flow, on="local", **options)
    assert by_speaker(out) == {"input": list(range(500)), **{number: list(range(200)) for number in range(3)}}


class Ask(pn.Operator):
    """Answers come from a thread, and only after the inputs have ended."""

    own_threads = True
    outputs = 2

    def open(self, ctx: pn.OperatorContext) -> None:
        self.questions: queue.Queue[Any] = queue.Queue()
        self.ended = threading.Event()
        ctx.start_thread(self.answer)

    def answer(self, out: pn.ThreadContext) -> None:
        assert self.ended.wait(LONG)
        while (question := self.questions.get()) is not None:
            out.submit(question * 2, port=question % 2)
        out.punctuate()

    def process(self, t: int, port: int) -> None:
        self.questions.put(t)

    def on_punctuation(self, mark: pn.Punctuation, port: int) -> None:
        if mark is pn.Punctuation.FINAL:
            assert port == 0, "an operator never hears that its own threads have ended"
            self.questions.put(None)
            self.ended.set()


@pytest.mark.parametrize("options", MODELS, ids=str)
def test_outputs_end_after_the_last_thread(options: dict[str, Any]) -> None:
    flow = pn.Flow("ask")
    even, odd = flow.source(range(100)).process(Ask())
    sums = even.window(pn.tumbling(punctuation=True)).aggregate(total=pn.sum()).collect()
    groups = odd.window(pn.tumbling(count=30, partial=True)).apply(len).collect()
    pn.run(flow, on="local", **options)
    assert [row["total"] for row in sums] == [sum(2 * n for n in range(0, 100, 2))]
    assert groups == [30, 20]


def test_an_operator_that_asks_for_no_thread_ends_all_the_same() -> None:
    flow = pn.Flow("none")
    out = flow.source([1, 2]).process(Talk(0, 0)).collect()
    pn.run(flow, on="local")
    assert out == [("input", 1), ("input", 2)]


class Fails(Talk):
    def talk(self, out: pn.ThreadContext, number: int) -> None:
        super().talk(out, number)
        raise ValueError("no more")


@pytest.mark.parametrize("options", MODELS, ids=str)
def test_an_error_in_a_thread_names_the_operator_and_loses_nothing(options: dict[str, Any]) -> None:
    go = threading.Event()

    def endless() -> Any:
        yield 0
        go.wait(LONG)

    flow = pn.Flow("fails")
    out = flow.source(endless).process(Fails(1, 100), name="Broken").map(lambda t: t).collect()
    try:
        with pytest.raises(pn.OperatorError, match=r"'Broken'.*in a thread of its own.*no more"):
            pn.run(flow, on="local", **options)
    finally:
        go.set()
    assert by_speaker(out)[0] == list(range(100))


@pytest.mark.parametrize("options", MODELS, ids=str)
def test_an_error_downstream_ends_the_threads(options: dict[str, Any]) -> None:
    def refuse(t: tuple[Any, int]) -> Any:
        if t == (0, 50):
            raise ValueError("not this one")
        return t

    flow = pn.Flow("refuses")
    out = flow.source([]).process(Talk(1, 10**9)).map(refuse).collect()
    with pytest.raises(pn.OperatorError, match="not this one"):
        pn.run(flow, on="local", **options)
    assert out == [(0, n) for n in range(50)]


class Waits(Talk):
    def talk(self, out: pn.ThreadContext, number: int) -> None:
        out.submit((number, 0))
        while not out.stopping:
            threading.Event().wait(0.005)


@pytest.mark.parametrize("operator", [Talk(2, 10**9), Waits(2, 0)], ids=["submits", "waits"])
@pytest.mark.parametrize("options", MODELS, ids=str)
def test_a_cancel_ends_threads(options: dict[str, Any], operator: pn.Operator) -> None:
    seen = threading.Event()
    flow = pn.Flow("cancelled")
    flow.source([]).process(operator).sink(lambda t: seen.set())
    job = pn.submit(flow, on="local", **options)
    assert seen.wait(LONG)
    job.cancel()
    with pytest.raises(pn.Cancelled):
        job.wait(LONG)
    assert job.state == "cancelled"


@pytest.mark.parametrize("seed", range(6))
def test_queues_change_while_threads_submit(seed: int) -> None:
    random_ = random.Random(seed)
    flow = pn.Flow("changes")
    stream = flow.source(range(2000)).process(Talk(2, 1000))
    for _ in range(4):
        stream = stream.map(lambda t: t)
    out = stream.collect()
    pe = PE(flow.graph(), threading_=Threading("dynamic", threads=3, capacity=16))
    ports = [target for node in pe.graph for target in queueable(pe.graph, node)]
    assert Target(1, 0) in ports
    pe.start()
    while not pe.wait(0.002):
        target = random_.choice(ports)
        if target in pe.ports:
            pe.change_ports({}, [target])
        else:
            pe.change_ports({target: random_.choice(["dynamic", "dedicated"])})
    assert by_speaker(out) == {"input": list(range(2000)), 0: list(range(1000)), 1: list(range(1000))}


def test_the_plan_tells_of_the_lock() -> None:
    flow = pn.Flow("locked")
    flow.source([1]).process(Talk(1, 1), name="Talk").collect()
    meetings = [meeting for meeting in PE(flow.graph()).meetings if "threads of Talk" in meeting.threads]
    assert [len(meeting.threads) for meeting in meetings] == [2, 2]  # the operator, and what follows it


class Lookup(pn.Operator):
    """Questions wait for threads in a queue with little room: `process` waits for the threads, and they submit."""

    own_threads = True

    def open(self, ctx: pn.OperatorContext) -> None:
        self.questions: queue.Queue[int | None] = queue.Queue(maxsize=2)
        for _ in range(3):
            ctx.start_thread(self.ask)

    def ask(self, out: pn.ThreadContext) -> None:
        while (question := self.questions.get()) is not None:
            out.submit(question * 2)

    def process(self, t: int, port: int) -> Any:
        self.questions.put(t)
        return -t if t % 10 == 0 else None

    def on_punctuation(self, mark: pn.Punctuation, port: int) -> None:
        if mark is pn.Punctuation.FINAL:
            for _ in range(3):
                self.questions.put(None)


@pytest.mark.parametrize("options", MODELS, ids=str)
@pytest.mark.parametrize("around", [False, True])
def test_process_may_wait_for_threads_that_submit(options: dict[str, Any], around: bool) -> None:
    flow = pn.Flow("lookup")
    numbers = flow.source(range(1, 3001))
    if around:
        answers = (
            numbers.union(flow.source(range(3001, 3501))).process(Lookup()).map(lambda n: n).scan(_same, init=None)
        )
    else:
        answers = numbers.process(Lookup())
    out = answers.collect()
    job = pn.submit(flow, on="local", **options)
    assert job.wait(LONG)
    last = 3501 if around else 3001
    assert sorted(out) == sorted([2 * n for n in range(1, last)] + [-n for n in range(10, last, 10)])


def _same(state: None, n: int) -> tuple[None, int]:
    return state, n


@pytest.mark.parametrize("options", MODELS, ids=str)
def test_all_readers_of_an_output_see_one_order(options: dict[str, Any]) -> None:
    flow = pn.Flow("readers")
    said = flow.source(range(500)).process(Talk(3, 200))
    one, other = said.collect(), said.map(lambda t: t).map_batch(list).collect()
    pn.run(flow, on="local", **options)
    assert one == other
    assert len(one) == 1100


class Late(Talk):
    def open(self, ctx: pn.OperatorContext) -> None:
        self.ctx = ctx

    def process(self, t: Any, port: int) -> Any:
        self.ctx.start_thread(lambda out: None)


class Undeclared(Talk):
    own_threads = False


@pytest.mark.parametrize("operator", [Late(1, 1), Undeclared(1, 1)])
def test_threads_are_asked_for_in_open_by_those_who_said_so(operator: pn.Operator) -> None:
    flow = pn.Flow("misused")
    flow.source([1]).process(operator).collect()
    with pytest.raises(pn.OperatorError, match="own_threads = True"):
        pn.run(flow, on="local")


def test_an_output_that_does_not_exist() -> None:
    class Wrong(Talk):
        def talk(self, out: pn.ThreadContext, number: int) -> None:
            out.submit(1, port=3)

    flow = pn.Flow("wrong")
    flow.source([1]).process(Wrong(1, 1)).collect()
    with pytest.raises(pn.OperatorError, match="output port 3 does not exist"):
        pn.run(flow, on="local")


def test_such_an_operator_is_one_copy_and_stays_off_spark() -> None:
    flow = pn.Flow("refused")
    flow.source([{"k": 1}]).key_by("k").process(Talk(1, 1), name="Talk").collect()
    assert flow.graph().nodes[1].kind == "stateful"
    with pytest.raises(pn.FlowError, match=r"'Talk'.*cannot run on Spark.*threads"):
        pn.plan(flow, on="spark")
