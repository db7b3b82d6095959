"""Random graphs for tests: every step is one of the operators below, chosen by a function that draws a number."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import penstock as pn
from penstock.graph.stream import Collected

Draw = Callable[[int], int]
"""`draw(n)`: a number from 0 to n - 1."""


@dataclass(frozen=True)
class Tip:
    """An open end of a graph under construction; `ordered` until it has passed a union."""

    stream: pn.Stream[int]
    ordered: bool


def _twice(n: int) -> list[int]:
    return [n, -n]


def _none_or_many(n: int) -> Any:
    return (n + i for i in range(n % 3))


def _running_sum(total: int, n: int) -> tuple[int, int]:
    return total + n, total + n


def _collecting(seen: list[int], n: int) -> tuple[list[int], int]:
    seen.append(n)
    return seen, len(seen) * n


STATELESS = {
    "increment": lambda s: [s.map(lambda n: n + 1)],
    "keep odd": lambda s: [s.filter(lambda n: n % 2)],
    "keep few": lambda s: [s.filter(lambda n: n % 7 == 0)],
    "both sides": lambda s: list(s.filter(lambda n: n % 3 == 0, split=True)),
    "matching only": lambda s: [s.filter(lambda n: n > 0, split=True)[0]],
    "rest only": lambda s: [s.filter(lambda n: n > 0, split=True)[1]],
    "twice": lambda s: [s.flat_map(_twice)],
    "none or many": lambda s: [s.flat_map(_none_or_many)],
    "batch": lambda s: [s.map_batch(lambda ns: [n * 2 for n in ns])],
    "batch, some": lambda s: [s.map_batch(lambda ns: [n for n in ns if n % 5])],
    "three ways": lambda s: list(s.split(3, lambda n: n % 4 - 1)),
    "tolerant": lambda s: [s.filter(lambda n: n != 3).map(lambda n: 12 // (n - 3), on_error="raise")],
    "fan out": lambda s: [s, s],
}
STATEFUL = {
    "sum": lambda s: [s.scan(_running_sum, init=0)],
    "sum by key": lambda s: [s.key_by(lambda n: n % 5).scan(_running_sum, init=0)],
    "list by key": lambda s: [s.key_by(lambda n: n % 3).scan(_collecting, init=[])],
    "tens": lambda s: [s.window(pn.tumbling(count=4)).apply(sum)],
    "sliding": lambda s: [s.window(pn.sliding(count=3, every=2)).apply(max)],
    "sliding by key": lambda s: [
        s.key_by(lambda n: n % 2).window(pn.sliding(count=2)).apply(lambda k, ns: sum(ns) + k)
    ],
    "barrier with itself": lambda s: [s.barrier(s.map(lambda n: -n)).map(lambda pair: pair[0] * 3 + pair[1])],
    "pair with itself": lambda s: [s.pair(s.map(lambda n: n * 100))],
}


def build(draw: Draw, sizes: list[int], steps: int) -> tuple[pn.Flow, dict[str, tuple[Collected, bool]]]:
    """A random flow over sources of these sizes, and its sinks: what they collected, and whether in a fixed order."""
    flow = pn.Flow("random")
    tips = [Tip(flow.source(range(size)), True) for size in sizes]
    for _ in range(steps):
        tip = tips.pop(draw(len(tips)))
        choices = sorted(STATELESS) + (sorted(STATEFUL) if tip.ordered else []) + ["union", "meet"]
        step = choices[draw(len(choices))]
        if step in ("union", "meet"):
            other = tips.pop(draw(len(tips))) if tips else tip
            if step == "meet" and tip.ordered and other.ordered:
                met = tip.stream.barrier(other.stream).map(lambda pair: pair[0] - pair[1])
                tips.append(Tip(met, True))
            else:
                tips.append(Tip(tip.stream.union(other.stream), False))
        else:
            made = (STATELESS | STATEFUL)[step](tip.stream)
            tips += [Tip(stream, tip.ordered) for stream in made]
        tips = tips[:8]
    sinks = {}
    for number, tip in enumerate(tips):
        sinks[f"out_{number}"] = (tip.stream.collect(name=f"out_{number}"), tip.ordered)
    return flow, sinks


def check(sinks: dict[str, tuple[Any, bool]], expected: dict[str, list[Any]]) -> None:
    """The sinks hold what was expected: in order, or in any order where streams met."""
    for name, (collected, ordered) in sinks.items():
        if ordered:
            assert collected == expected[name], name
        else:
            assert Counter(collected) == Counter(expected[name]), name
