"""Random chains and machines, from a seed: all kinds, keys, bounds, selectivities, δ and c_p."""

from __future__ import annotations

import math
import random
from typing import NamedTuple

from penstock.optimizer import Op


class Problem(NamedTuple):
    ops: list[Op]
    cores: int
    delta: float
    cp: float


def random_op(rng: random.Random) -> Op:
    kind = rng.choice(["stateless", "stateless", "partitioned", "partitioned", "stateful"])
    return Op(
        cost=rng.choice([0, 1, 5, rng.uniform(0, 300), rng.gauss(200, 20)]),
        selectivity=rng.choice([0, 1, 1, rng.random(), rng.random(), rng.uniform(0, 3)]),
        kind=kind,  # type: ignore[arg-type]
        key=frozenset(rng.sample("abc", rng.randint(0 if rng.random() < 0.05 else 1, 2))),
        bound=rng.choice([math.inf, math.inf, 1, 1.5, 2, 3]),
    )


def random_problem(seed: int, most_ops: int, most_cores: int) -> Problem:
    rng = random.Random(seed)
    ops = [random_op(rng) for _ in range(rng.randint(1, most_ops))]
    delta = rng.choice([0, 1, 10, 100, rng.uniform(0, 200)])
    cp = rng.choice([0, 1, 10, 50, rng.uniform(0, 200)])
    return Problem(ops, rng.randint(1, most_cores), delta, cp)
