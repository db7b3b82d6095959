"""The throughput model of pipelined fission (paper 003, §3): what a configuration of a chain of operators is worth.

A chain is cut into regions, a region into pipelines. Each pipeline of each replica of a region has a thread. `delta` is
what it costs a thread to hand a tuple to another, `cp` what it costs to split and merge a stream for two replicas
(doubling the replicas costs `cp` once more).

The paper speaks of rates, and divides by selectivities to come back to the input of the program. Here everything is the
reciprocal, *time per tuple of the source*: rates meet in a minimum, times in a maximum, and an operator that lets
nothing through needs no special case. Units are the user's: costs in seconds give tuples per second.
"""

from __future__ import annotations

import math
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field
from itertools import pairwise
from numbers import Integral, Real
from typing import Any, get_args

from penstock.errors import PenstockError
from penstock.graph.operator import Kind

Range = tuple[int, int]
_TOO_LONG = 1e300  # sums of such times are not finite any more


class ConfigError(PenstockError):
    """A configuration that the rules of pipelined fission do not allow."""


@dataclass(frozen=True, slots=True)
class Op:
    """One operator of a chain.

    `cost` is the time per tuple received, `selectivity` the tuples sent per tuple received. `key` holds the names of
    the attributes that partition the state of a "partitioned" operator; without any, it cannot be replicated. More
    than `bound` replicas make the operator no faster: the size of the key's domain, or the number of end points.

    >>> Op(12.5, 0.2, kind="partitioned", key={"host"})
    Op(cost=12.5, selectivity=0.2, kind='partitioned', key=frozenset({'host'}), bound=inf)
    """

    cost: float
    selectivity: float = 1.0
    kind: Kind = "stateless"
    key: frozenset[Any] = field(default_factory=frozenset)
    bound: float = math.inf

    def __post_init__(self) -> None:
        object.__setattr__(self, "key", frozenset([self.key] if isinstance(self.key, str) else self.key))
        for name, least in (("cost", 0), ("selectivity", 0), ("bound", 1)):
            value: Any = getattr(self, name)
            if not (isinstance(value, Real) and float(value) >= least) or (name != "bound" and math.isinf(value)):
                raise ValueError(f"{name}= of an operator must be a finite number from {least}, not {value!r}")
        if self.kind not in get_args(Kind):
            raise ValueError(f"kind= of an operator must be one of {get_args(Kind)}, not {self.kind!r}")


@dataclass(frozen=True, slots=True)
class Region:
    """Operators replicated as a whole: `replicas` channels, each a row of `pipelines`, half-open operator ranges."""

    replicas: int
    pipelines: tuple[Range, ...]

    def __post_init__(self) -> None:
        object.__setattr__(self, "pipelines", tuple((start, stop) for start, stop in self.pipelines))

    @property
    def start(self) -> int:
        """Index of the first operator."""
        return self.pipelines[0][0]

    @property
    def stop(self) -> int:
        """Index after the last operator."""
        return self.pipelines[-1][1]

    @property
    def threads(self) -> int:
        """One thread for each pipeline of each channel."""
        return self.replicas * len(self.pipelines)


@dataclass(frozen=True, slots=True)
class Config:
    """A parallelisation of a chain: its regions from left to right.

    >>> config = Config([Region(1, [(0, 1)]), Region(3, [(1, 3), (3, 4)])])
    >>> print(config)
    [0] [1 2 | 3]x3
    >>> config.threads
    7
    """

    regions: tuple[Region, ...]

    def __post_init__(self) -> None:
        object.__setattr__(self, "regions", tuple(self.regions))

    @property
    def threads(self) -> int:
        """Threads of all regions."""
        return sum(region.threads for region in self.regions)

    def __str__(self) -> str:
        return " ".join(map(_region_text, self.regions))


def _region_text(region: Region) -> str:
    inside = " | ".join(" ".join(map(str, range(*pipeline))) for pipeline in region.pipelines)
    return f"[{inside}]" + (f"x{region.replicas}" if region.replicas > 1 else "")


@dataclass(frozen=True, slots=True)
class Evaluation:
    """What the model says of a configuration.

    `unbounded` is the throughput if every thread had a core for itself, `utilization` the cores busy at that rate,
    `throughput` what is left of it on the cores there are. `bottleneck` is the index of the slowest region.
    """

    throughput: float
    unbounded: float
    utilization: float
    threads: int
    bottleneck: int


@dataclass(frozen=True, slots=True)
class Chain:
    """Sums over the prefixes of a chain, all per tuple of the source.

    `arrivals[i]` tuples reach operator i (s_i of the paper, for i = 0 … N), `work[i]` is the cost of the operators
    before it, so that those of [i, j) together cost `work[j] - work[i]` (eq 2, scaled by the selectivity before i).
    """

    ops: tuple[Op, ...]
    arrivals: tuple[float, ...]
    work: tuple[float, ...]

    @staticmethod
    def of(ops: Iterable[Op]) -> Chain:
        """Add up the chain of `ops`."""
        ops = tuple(ops)
        arrivals, work = [1.0], [0.0]
        for op in ops:
            work.append(work[-1] + arrivals[-1] * op.cost)
            arrivals.append(arrivals[-1] * op.selectivity)
        return Chain(ops, tuple(arrivals), tuple(work))

    def __len__(self) -> int:
        return len(self.ops)


def evaluate(ops: Sequence[Op], config: Config, cores: int, delta: float, cp: float) -> Evaluation:
    """The throughput of `config` on `cores` cores, in tuples of the source per unit of time.

    Raises `ConfigError` unless the pipelines of `config` cover all of `ops` in order, and `ValueError` for numbers that
    make no sense. Whether the operators may be replicated at all is not looked at: `validate_config` does that.

    >>> ops = [Op(10), Op(30), Op(10, kind="stateful")]
    >>> result = evaluate(ops, Config([Region(3, [(0, 2)]), Region(1, [(2, 3)])]), cores=4, delta=1, cp=0)
    >>> round(1 / result.unbounded, 6), round(1 / result.throughput, 6), result.threads
    (14.333333, 14.333333, 4)
    >>> evaluate(ops, Config([Region(1, [(0, 3)])]), cores=4, delta=1, cp=0).throughput
    0.02
    """
    check_machine(cores, delta, cp)
    check_shape(len(ops), config)
    check_chain(ops, delta, cp, cores)
    return evaluate_chain(Chain.of(ops), config, cores, delta, cp)


def evaluate_chain(
    chain: Chain, config: Config, cores: int, delta: float, cp: float, ends: tuple[float, float] = (0.0, 0.0)
) -> Evaluation:
    """`evaluate` without checks, for searches that look at many configurations of one chain.

    `ends` is the time for handing tuples over before and after the chain, where it is part of a graph.
    """
    slowest, bottleneck, work = -1.0, 0, 0.0
    for i, region in enumerate(config.regions):
        time, amount = _region_costs(chain, region, delta, cp, ends)
        if time > slowest:  # eqs 11, 12: the slowest region rules
            slowest, bottleneck = time, i
        work += amount  # eq 14 without the factor R, over all regions and pipelines
    if slowest <= 0:
        return Evaluation(math.inf, math.inf, 0.0, config.threads, bottleneck)
    unbounded = 1 / slowest
    throughput = min(unbounded, cores / work)  # eq 13, where U > C: R · C / U = C / work
    return Evaluation(throughput, unbounded, unbounded * work, config.threads, bottleneck)


def region_time(chain: Chain, region: Region, delta: float, cp: float) -> float:
    """Time of a region of `chain` per tuple of the source, as part of the whole (eq 9)."""
    return _region_costs(chain, region, delta, cp, (0.0, 0.0))[0]


def _region_costs(
    chain: Chain, region: Region, delta: float, cp: float, ends: tuple[float, float]
) -> tuple[float, float]:
    """Time and work of a region per tuple of the source; tuples change threads at the ends of the chain too, at a price
    of `ends`."""
    arrivals = chain.arrivals
    times = pipeline_times(chain, region, delta)
    start, stop = region.start, region.stop
    # eq 10: tuples change threads before each region but the first, and after each but the last
    switching = delta * arrivals[start] if start > 0 else ends[0]
    switching += delta * arrivals[stop] if stop < len(chain) else ends[1]
    splitting = arrivals[start] * cp * math.log2(region.replicas)
    # eqs 3, 6: the slowest pipeline rules; eq 8: replicas share the work; eq 9: switching comes on top
    time = switching + splitting + max(times) / scalability(chain.ops[start:stop], region.replicas)
    return time, switching + splitting + sum(times)


def pipeline_times(chain: Chain, region: Region, delta: float) -> list[float]:
    """Time of each pipeline of one channel per tuple of the source, with its thread switches."""
    arrivals, work = chain.arrivals, chain.work
    first, end = region.start, region.stop
    return [
        work[stop]
        - work[start]  # eq 2
        # eq 5: a switch before each pipeline but the first of the region, and after each but the last
        + delta * ((arrivals[start] if start > first else 0.0) + (arrivals[stop] if stop < end else 0.0))
        for start, stop in region.pipelines  # eq 4 is the reciprocal of the sum
    ]


def scalability(ops: Iterable[Op], replicas: int) -> float:
    """How many times faster `replicas` copies are: the least of the operators' bounded linear functions (eq 7)."""
    return min(float(replicas), *(op.bound for op in ops))


# ------------------------------------------------------------------------------------------------ rules (§3.1)


def joined_key(key: frozenset[Any] | None, op: Op) -> frozenset[Any] | None:
    """The attributes that can split a stream for a region with `key` and for `op` too; empty: nothing can.

    None means that any split will do, as for stateless operators.
    """
    if op.kind == "stateless":
        return key
    if op.kind == "stateful":
        return frozenset()
    return op.key if key is None else key & op.key


def region_key(ops: Iterable[Op]) -> frozenset[Any] | None:
    """The attributes that can split a stream for all of `ops`; empty: they cannot be replicated together (L_p)."""
    key: frozenset[Any] | None = None
    for op in ops:
        key = joined_key(key, op)
    return key


def can_replicate(ops: Iterable[Op]) -> bool:
    """True if a region of these operators may have several replicas."""
    return region_key(ops) != frozenset()


def check_search(ops: Sequence[Op], cores: int, delta: float, cp: float, max_replicas: int | None = None) -> int:
    """Raise `ValueError` for what no search can work with; returns the most replicas that a region may have.

    >>> check_search([Op(1)], cores=4, delta=0, cp=0), check_search([Op(1)], cores=4, delta=0, cp=0, max_replicas=2)
    (4, 2)
    """
    check_machine(cores, delta, cp)
    check_chain(ops, delta, cp, cores)
    if max_replicas is None:
        return cores
    if not _is_count(max_replicas):
        raise ValueError(f"max_replicas= must be a whole number from 1, or None for one per core, not {max_replicas!r}")
    return max_replicas


def check_machine(cores: int, delta: float, cp: float) -> None:
    """Raise `ValueError` where no machine could be like this."""
    if not _is_count(cores):
        raise ValueError(f"cores= must be a whole number from 1, not {cores!r}")
    for name, value in (("delta", delta), ("cp", cp)):
        if not isinstance(value, Real) or not 0 <= value < math.inf:
            raise ValueError(f"{name}= must be a finite number from 0, not {value!r}")


def _is_count(value: object) -> bool:
    return isinstance(value, Integral) and not isinstance(value, bool) and int(value) >= 1


def check_chain(ops: Sequence[Op], delta: float, cp: float, cores: int) -> None:
    """Raise `ValueError` for a chain without operators, or one whose times are too large to add up."""
    if not ops:
        raise ValueError("a chain needs at least one operator")
    chain = Chain.of(ops)
    most = chain.work[-1] + sum(chain.arrivals) * (2 * delta + cp * math.log2(cores))
    if not most * cores < _TOO_LONG:
        raise ValueError(f"the costs and selectivities of the chain are too large: they make {most:.3g} per tuple")


def check_shape(count: int, config: Config) -> None:
    """Raise `ConfigError` unless the pipelines cover operators 0 to `count` in order, without gaps."""
    at = 0
    for region in config.regions:
        if region.replicas < 1 or not region.pipelines:
            raise ConfigError(f"a region needs at least one replica and one pipeline: {region}")
        for start, stop in region.pipelines:
            if start != at or stop <= start:
                raise ConfigError(f"pipeline ({start}, {stop}) should start at operator {at} and not be empty")
            at = stop
    if at != count or not config.regions:
        raise ConfigError(f"the pipelines cover {at} of {count} operators")


def validate_config(ops: Sequence[Op], config: Config) -> None:
    """Raise `ConfigError` unless `config` is one the rules of §3.1 allow.

    Operators replicated together are stateless or share a key attribute, and regions are the longest runs with one
    number of replicas: two neighbours that could be one region are one.

    >>> validate_config([Op(1), Op(2)], Config([Region(1, [(0, 1), (1, 2)])]))
    >>> validate_config([Op(1), Op(2)], Config([Region(1, [(0, 1)]), Region(1, [(1, 2)])]))
    Traceback (most recent call last):
    penstock.optimizer.model.ConfigError: operators 0 to 1 all have 1 replica: they are one region
    """
    check_shape(len(ops), config)
    for region in config.regions:
        if region.replicas > 1 and not can_replicate(ops[region.start : region.stop]):
            raise ConfigError(
                f"operators {region.start} to {region.stop - 1} cannot be replicated together: one is stateful, or "
                "their keys share no attribute"
            )
    for left, right in pairwise(config.regions):
        if left.replicas == right.replicas and _would_join(ops, left, ops[right.start]):
            count = f"{left.replicas} replica" + ("" if left.replicas == 1 else "s")
            raise ConfigError(f"operators {left.start} to {right.start} all have {count}: they are one region")


def _would_join(ops: Sequence[Op], left: Region, op: Op) -> bool:
    return left.replicas == 1 or joined_key(region_key(ops[left.start : left.stop]), op) != frozenset()


def normalize(ops: Sequence[Op], regions: Iterable[Region]) -> Config:
    """The configuration the rules make of `regions`: the same replicas and pipelines in the longest regions.

    >>> print(normalize([Op(1), Op(2)], [Region(2, [(0, 1)]), Region(2, [(1, 2)])]))
    [0 | 1]x2
    """
    replicas: list[int] = []
    cuts: set[int] = set()
    for region in regions:
        replicas += [region.replicas] * (region.stop - region.start)
        cuts.update(start for start, _ in region.pipelines)
    found: list[tuple[int, list[int]]] = []  # replicas and the starts of pipelines
    key: frozenset[Any] | None = None
    for i, op in enumerate(ops):
        key = joined_key(key, op)
        if i == 0 or replicas[i] != replicas[i - 1] or (replicas[i] > 1 and key == frozenset()):
            found.append((replicas[i], [i]))
            key = joined_key(None, op)
        elif i in cuts:
            found[-1][1].append(i)
    starts = [start for _, pipelines in found for start in pipelines]
    stop = dict(zip(starts, [*starts[1:], len(ops)], strict=True))
    return Config(tuple(Region(count, tuple((at, stop[at]) for at in pipelines)) for count, pipelines in found))
