"""Random graphs: generated code delivers what the plain interpreter delivers."""

from __future__ import annotations

from collections import Counter

from hypothesis import given, settings
from hypothesis import strategies as st

import penstock as pn
from tests.interpreter import Interpreter
from tests.random_graphs import Draw, build, check


def _draw(data: st.DataObject) -> Draw:
    return lambda count: data.draw(st.integers(0, count - 1))


@settings(max_examples=150)
@given(st.data(), st.lists(st.integers(0, 700), min_size=1, max_size=3), st.integers(0, 12))
def test_generated_code_agrees_with_the_interpreter(data: st.DataObject, sizes: list[int], steps: int) -> None:
    flow, sinks = build(_draw(data), sizes, steps)
    pn.run(flow, on="local")
    check(sinks, Interpreter(flow.graph()).run())


@settings(max_examples=30)
@given(st.lists(st.integers(0, 2000), min_size=2, max_size=4))
def test_streams_that_meet_keep_their_own_order(sizes: list[int]) -> None:
    flow = pn.Flow("meeting")
    first, *others = [
        flow.source(range(size)).map(lambda n, origin=origin: (origin, n)) for origin, size in enumerate(sizes)
    ]
    met = first.union(*others).filter(lambda t: t[1] % 3).collect()
    pn.run(flow, on="local")
    for origin, size in enumerate(sizes):
        assert [n for source, n in met if source == origin] == [n for n in range(size) if n % 3]


@settings(max_examples=30)
@given(st.data(), st.integers(0, 12))
def test_the_instrumented_variant_delivers_the_same(data: st.DataObject, steps: int) -> None:
    flow, sinks = build(_draw(data), [300], steps)
    from penstock.runtime import profiler

    period, profiler.PERIOD = profiler.PERIOD, 0  # every chunk is measured
    try:
        pn.run(flow, on="local")
    finally:
        profiler.PERIOD = period
    expected = Interpreter(flow.graph()).run()
    for name, (collected, _) in sinks.items():
        assert Counter(collected) == Counter(expected[name])
