"""Fusion: constraints hold, no circles, loads stay below the limit, and little crosses from PE to PE."""

from __future__ import annotations

import math
import random
from collections.abc import Iterator, Sequence
from contextlib import ExitStack
from itertools import combinations

import pytest
from hypothesis import given
from hypothesis import strategies as st

import penstock as pn
from penstock.compiler.fusion import fuse
from penstock.compiler.weights import SIZE, Weights, weigh
from penstock.errors import FlowError
from penstock.graph.graph import Graph
from penstock.optimizer.profile import OperatorProfile, Profile
from tests.compiler.programs import long_chain, random_program


def constrain(rng: random.Random, flow: pn.Flow, stack: ExitStack) -> None:
    chance = rng.random()
    if chance < 0.2:
        stack.enter_context(flow.colocate(rng.choice("ab")))
    elif chance < 0.4:
        stack.enter_context(flow.exlocate(rng.choice("xy")))
    elif chance < 0.5:
        stack.enter_context(flow.isolate())


def has_circle(graph: Graph, home: Sequence[int]) -> bool:
    """Some PEs feed each other in a circle, not counting feedback."""
    below: dict[int, set[int]] = {number: set() for number in home}
    for node in graph:
        for feeder in graph.upstream(node):
            below[home[feeder]] |= {home[node.index]} - {home[feeder]}
    while below:
        last = {number for number, readers in below.items() if not readers}
        if not last:
            return True
        below = {number: readers - last for number, readers in below.items() if number not in last}
    return False


def forced(graph: Graph) -> list[int]:
    """A number for each operator, the same for those that must share a PE: step by step, and slowly."""
    home = list(range(len(graph)))

    def unite(one: int, two: int) -> None:
        home[:] = [home[two] if number == home[one] else number for number in list(home)]

    for one, two in combinations(graph.nodes, 2):
        mine, other = one.annotations, two.annotations
        if set(mine.colocate) & set(other.colocate) or (mine.isolate is not None and mine.isolate == other.isolate):
            unite(one.index, two.index)
    while True:
        reach = {(home[f], home[node.index]) for node in graph for f in graph.upstream(node)}
        for k in set(home):
            reach |= {(a, c) for a, b in reach if b == k for d, c in reach if d == k}
        circle = next(((a, b) for a, b in reach if a != b and (b, a) in reach), None)
        if circle is None:
            return home
        unite(home.index(circle[0]), home.index(circle[1]))


def must_not_meet(graph: Graph, one: int, two: int) -> bool:
    mine, other = graph.nodes[one].annotations, graph.nodes[two].annotations
    return bool(set(mine.exlocate) & set(other.exlocate)) or mine.isolate != other.isolate


@given(st.integers(0, 100_000), st.floats(0.5, 60), st.booleans())
def test_constraints_and_limits_hold(seed: int, limit: float, deep: bool) -> None:
    check_constraints_and_limits(seed, limit, deep)


def test_constraints_that_contradict_are_found_and_no_others() -> None:
    contradictions = sum(not check_constraints_and_limits(seed, 20.0, True) for seed in range(300))
    assert 10 < contradictions < 290


def check_constraints_and_limits(seed: int, limit: float, deep: bool) -> bool:
    """Check a random program; false if its constraints contradict."""
    graph, weights = random_program(seed, constrain, deep=deep)
    unit = forced(graph)
    pairs = list(combinations(range(len(graph)), 2))
    if any(unit[one] == unit[two] and must_not_meet(graph, one, two) for one, two in pairs):
        with pytest.raises(FlowError, match="contradict"):
            fuse(graph, weights, limit)
        return False
    fusion = fuse(graph, weights, limit)
    assert sorted(index for pe in fusion.pes for index in pe) == list(range(len(graph)))
    of_node = fusion.of_node
    assert not has_circle(graph, [of_node[index] for index in range(len(graph))])
    for node in graph:  # and so PEs are in order
        assert all(of_node[feeder] <= of_node[node.index] for feeder in graph.upstream(node))
    for one, two in pairs:
        together = of_node[one] == of_node[two]
        assert together or unit[one] != unit[two]
        assert not (together and must_not_meet(graph, one, two))
    for pe, load in zip(fusion.pes, fusion.loads, strict=True):
        assert load <= limit * (1 + 1e-6) or len({unit[index] for index in pe}) == 1
    crossing = sum(amount for (a, b), amount in weights.traffic.items() if of_node[a] != of_node[b])
    assert fusion.traffic == pytest.approx(crossing, abs=1e-9)
    return True


@given(st.integers(0, 100_000))
def test_without_limit_everything_is_one_pe(seed: int) -> None:
    graph, weights = random_program(seed)
    fusion = fuse(graph, weights)
    assert len(fusion.pes) == 1
    assert fusion.traffic == 0


def _partitions(count: int) -> Iterator[list[int]]:
    """Every way to put so many operators into PEs, as PE numbers."""

    def extend(numbers: list[int]) -> Iterator[list[int]]:
        if len(numbers) == count:
            yield numbers
            return
        for number in range(max(numbers, default=-1) + 2):
            yield from extend([*numbers, number])

    return extend([])


def _best(graph: Graph, weights: Weights, limit: float) -> float:
    best = math.inf
    for numbers in _partitions(len(graph)):
        loads = [0.0] * (max(numbers) + 1)
        for index, number in enumerate(numbers):
            loads[number] += weights.load[index]
        if max(loads) <= limit:
            crossing = sum(v for (a, b), v in weights.traffic.items() if numbers[a] != numbers[b])
            if crossing < best and not has_circle(graph, numbers):
                best = crossing
    return best


def test_close_to_the_best_partition_of_small_graphs() -> None:
    ratios = []
    seed = 0
    while len(ratios) < 40:
        graph, weights = random_program(seed := seed + 1)
        if len(graph) <= 8:
            limit = max(*weights.load, sum(weights.load) / 2.5)
            best, found = _best(graph, weights, limit), fuse(graph, weights, limit).traffic
            assert found >= best - 1e-9
            ratios.append((found + 1) / (best + 1))
    assert sum(ratios) / len(ratios) < 1.05


def test_the_cut_is_where_the_stream_is_thin() -> None:
    flow = pn.Flow()
    stream = flow.source([1], name="s")
    for i in range(6):
        stream = stream.filter(bool, name=f"f{i}") if i == 2 else stream.map(abs, name=f"m{i}")
    stream.sink(print, name="out")
    graph = flow.graph()
    profile = Profile(
        "", {"f2": OperatorProfile(1.0, 0.01, 1)} | {f"m{i}": OperatorProfile(60.0, 1, 1) for i in (3, 4, 5)}
    )
    fusion = fuse(graph, weigh(graph, profile), limit=5)
    assert fusion.pes == ((0, 1, 2, 3), (4, 5, 6, 7))
    assert fusion.traffic == pytest.approx(0.01 * SIZE)


def test_the_cut_is_where_tuples_are_small() -> None:
    flow = pn.Flow()
    stream = flow.source([1], name="s")
    for name in "abcd":
        stream = stream.map(abs, name=name)
    stream.sink(print, name="out")
    graph = flow.graph()
    for small, wanted in (("a", (0, 1)), ("c", (0, 1, 2, 3))):
        sizes = {name: 2.0 if name == small else 500.0 for name in "sabcd"}
        profile = Profile("", {name: OperatorProfile(1.0, 1.0, 9, size=size) for name, size in sizes.items()})
        weights = weigh(graph, profile)
        assert not weights.guessed & {0, 1, 2, 3, 4}
        fusion = fuse(graph, weights, limit=4)
        assert fusion.pes[0] == wanted
        assert fusion.traffic == 2


def test_parallel_branches_may_share_a_pe() -> None:
    flow = pn.Flow()
    source = flow.source([1], name="s")
    for name in ("a", "b", "c", "d"):
        source.map(abs, name=name).sink(print, name=f"out {name}")
    graph = flow.graph()
    fusion = fuse(graph, weigh(graph), limit=5)
    assert len(fusion.pes) == 2
    assert fusion.traffic == 2 * SIZE


def test_a_loop_of_the_program_may_pass_several_pes() -> None:
    flow = pn.Flow("loop")
    back = flow.feedback(name="back")
    passed = flow.source([1], name="in").gate(back, limit=1, name="gate")
    with flow.isolate():
        passed = passed.map(abs, name="far")
    back.connect(passed)
    passed.sink(print, name="out")
    graph = flow.graph()
    weights = weigh(graph)
    fusion = fuse(graph, weights)
    home = {graph.nodes[index].name: pe for index, pe in fusion.of_node.items()}
    assert home["in"] == home["gate"] == home["back"] != home["far"]
    # To the isolated operator, from it into the loop, and from it to the sink.
    assert fusion.traffic == 3 * SIZE
    link = (graph.node("back").index, graph.node("gate").index)
    assert weights.traffic[link] == SIZE  # so that the loop is not cut there for nothing


def test_contradicting_constraints_are_named() -> None:
    flow = pn.Flow()
    stream = flow.source([1])
    with flow.colocate("near"):
        stream = stream.map(abs, name="one")
        with flow.exlocate("far"):
            stream = stream.map(abs, name="two")
    with flow.exlocate("far"), flow.colocate("near"):
        stream.map(abs, name="three").collect()
    graph = flow.graph()
    with pytest.raises(FlowError) as error:
        fuse(graph, weigh(graph))
    text = str(error.value)
    for part in ("colocate('near')", "exlocate('far')", "'two'", "'three'", "test_fusion.py:"):
        assert part in text


def test_isolation_that_colocation_contradicts_is_named() -> None:
    flow = pn.Flow()
    stream = flow.source([1])
    with flow.colocate("near"):
        stream = stream.map(abs, name="one")
        with flow.isolate():
            stream.map(abs, name="two").collect()
    graph = flow.graph()
    with pytest.raises(FlowError, match=r"colocate\('near'\) and isolate\(\) contradict"):
        fuse(graph, weigh(graph))


def _between(flow: pn.Flow, *around: str) -> pn.Flow:
    """Two operators that are colocated and one between them, of which nothing is said yet."""
    stream = flow.source([1], name="in")
    with flow.colocate("near"):
        stream = stream.map(abs, name="before")
    with ExitStack() as stack:
        for constraint in around:
            stack.enter_context(flow.isolate() if constraint == "isolate" else flow.exlocate(constraint))
        stream = stream.map(abs, name="between")
    with flow.colocate("near"), ExitStack() as stack:
        for constraint in around:
            if constraint != "isolate":
                stack.enter_context(flow.exlocate(constraint))
        stream = stream.map(abs, name="after")
    stream.sink(print, name="out")
    return flow


def test_what_is_between_colocated_operators_joins_them() -> None:
    graph = _between(pn.Flow()).graph()
    fusion = fuse(graph, weigh(graph), limit=0.5)
    assert fusion.pes == ((0,), (1, 2, 3), (4,))


@pytest.mark.parametrize(("said", "apart"), [("isolate", r"isolate()"), ("far", r"exlocate('far')")])
def test_constraints_that_need_a_circle_are_named(said: str, apart: str) -> None:
    graph = _between(pn.Flow(), said).graph()
    with pytest.raises(FlowError) as error:
        fuse(graph, weigh(graph))
    text = str(error.value)
    assert text.startswith(f"colocate('near') and {apart} contradict: ")
    for part in ("'before' feeds 'between'", "'between' feeds 'after'", "in a circle", "test_fusion.py:"):
        assert part in text


def test_a_circle_through_two_groups_names_both() -> None:
    flow = pn.Flow()
    for first, second in (("a", "b"), ("b", "a")):
        stream = flow.source([1], name=f"to {first}")
        with flow.colocate(first), flow.exlocate(f"{first} only"):
            stream = stream.map(abs, name=f"{first} sends")
        with flow.colocate(second):
            stream.map(abs, name=f"{second} receives").sink(print)
    graph = flow.graph()
    everything = fuse(graph, weigh(graph), limit=0.1)
    assert {"a sends", "b sends"} <= {graph.nodes[i].name for i in max(everything.pes, key=len)}
    with flow.colocate("b"), flow.isolate():
        flow.source([1], name="alone").sink(print)
    with pytest.raises(FlowError, match=r"colocate\('b'\) and isolate\(\) contradict"):
        fuse(flow.graph(), weigh(flow.graph()))
    flow = pn.Flow()
    for first, second in (("a", "b"), ("b", "a")):
        stream = flow.source([1], name=f"to {first}")
        with flow.colocate(first), flow.exlocate("far"):
            stream = stream.map(abs, name=f"{first} sends")
        with flow.colocate(second):
            stream.map(abs, name=f"{second} receives").sink(print)
    with pytest.raises(FlowError, match=r"^colocate\('a'\) and colocate\('b'\) and exlocate\('far'\) contradict"):
        fuse(flow.graph(), weigh(flow.graph()))


def test_an_isolated_block_that_is_left_and_entered_again_is_refused() -> None:
    flow = pn.Flow()
    with flow.isolate():
        stream = flow.source([1], name="first")
        with flow.isolate():
            stream = stream.map(abs, name="inner")
        stream.map(abs, name="last").sink(print)
    with pytest.raises(FlowError, match=r"isolate\(\) contradicts itself: .*'first'.*'inner'.*'inner' feeds 'last'"):
        fuse(flow.graph(), weigh(flow.graph()))


def test_an_isolated_operator_in_a_chain_makes_three_pes() -> None:
    flow = pn.Flow()
    stream = flow.source([1], name="in")
    with flow.isolate():
        stream = stream.map(abs, name="alone")
    stream.map(abs, name="last").sink(print)
    assert fuse(flow.graph(), weigh(flow.graph())).pes == ((0,), (1,), (2, 3))


def test_a_long_chain_is_divided_evenly() -> None:
    graph = long_chain()
    fusion = fuse(graph, weigh(graph), limit=40)
    assert 8 <= len(fusion.pes) <= 12
    assert fusion.traffic == SIZE * (len(fusion.pes) - 1)
