"""Thread placement: every step relieves all of the busiest threads."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

import penstock as pn
from penstock.compiler.placement import Placement, next_step, place_threads, thread_loads
from penstock.compiler.weights import weigh
from penstock.graph.graph import Target
from penstock.optimizer.profile import OperatorProfile, Profile
from tests.compiler.programs import long_chain, random_program


@given(st.integers(0, 100_000), st.integers(1, 12), st.floats(0, 0.5))
def test_every_step_relieves_the_busiest(seed: int, threads: int, delta: float) -> None:
    graph, weights = random_program(seed)
    sources = sum(node.is_source for node in graph)
    now = Placement((), thread_loads(graph, weights, (), delta))
    assert set(now.loads) <= set(range(len(graph)))
    assert sum(now.loads.values()) == pytest.approx(sum(weights.load))
    while (then := next_step(graph, weights, now, threads, delta=delta)) is not None:
        busiest = [thread for thread, load in now.loads.items() if load >= now.busiest * 0.95]
        assert all(then.loads[thread] < now.loads[thread] for thread in busiest)
        assert then.busiest < now.busiest
        assert len(then.loads) == sources + len(then.ports) <= max(threads, sources)
        if not delta:
            assert sum(then.loads.values()) == pytest.approx(sum(weights.load))
        now = then
    assert place_threads(graph, weights, threads, delta=delta) == now


def test_a_chain_is_divided_evenly() -> None:
    flow = pn.Flow()
    stream = flow.source([1], name="s")
    for i in range(8):
        stream = stream.map(abs, name=f"m{i}")
    stream.sink(print, name="out")
    graph = flow.graph()
    weights = weigh(graph, Profile("", {name: OperatorProfile(0.001, 1, 1) for name in ("s", "out")}))
    assert place_threads(graph, weights, 2).busiest == pytest.approx(4.001)
    assert place_threads(graph, weights, 4).busiest == pytest.approx(2.001)
    # Two equally busy threads and one thread left: nothing would change, so nothing is done.
    assert len(place_threads(graph, weights, 3).ports) == 1


def test_two_equally_busy_sources_are_relieved_together() -> None:
    flow = pn.Flow()
    for name in "ab":
        flow.source([1], name=name).map(abs).map(abs).sink(print)
    graph = flow.graph()
    weights = weigh(graph)
    assert place_threads(graph, weights, 3).ports == ()
    assert len(place_threads(graph, weights, 4).ports) == 2
    assert place_threads(graph, weights, 4).busiest == 2


def test_one_port_may_relieve_two_threads() -> None:
    flow = pn.Flow()
    meet = flow.source([1], name="a").union(flow.source([1], name="b"), name="u")
    meet.map(abs, name="heavy").sink(print, name="out")
    graph = flow.graph()
    weights = weigh(graph, Profile("", {"heavy": OperatorProfile(5, 1, 1)}))
    placement = place_threads(graph, weights, 3)
    assert len(placement.ports) == 1
    assert placement.loads[0] == placement.loads[1] < thread_loads(graph, weights, ())[0]


def test_what_is_to_be_avoided_is_avoided() -> None:
    flow = pn.Flow()
    flow.source([1]).map(abs).map(abs).sink(print)
    graph = flow.graph()
    weights = weigh(graph)
    (first,) = place_threads(graph, weights, 2).ports
    assert place_threads(graph, weights, 2, avoid={first}).ports != (first,)
    assert place_threads(graph, weights, 2, avoid=[Target(i, 0) for i in range(4)]).ports == ()


def test_no_port_where_handing_over_costs_more_than_it_saves() -> None:
    flow = pn.Flow()
    flow.source([1]).map(abs).sink(print)
    graph = flow.graph()
    assert place_threads(graph, weigh(graph), 3, delta=10).ports == ()


def test_a_long_chain() -> None:
    graph = long_chain()
    placement = place_threads(graph, weigh(graph), 64)
    assert placement.busiest < 302 / 64 * 1.35
