"""The best configuration of a graph that is no chain: its chains between branch points, under one budget of cores.

Throughput of a graph: all sources together run at some multiple of their own rates, and the throughput is the largest
multiple that can be kept up. With one source of rate 1 that is tuples per unit of time, as for a chain. Rates follow
the links: a link carries `share` tuples for each that its source operator receives, an operator receives what its
links carry together.

Where streams part or meet, tuples change threads (as between regions, both sides pay δ). So the chains in between have
nothing in common but the multiple and the cores: per multiple, the graph takes  max(M, W / cores),  M the slowest
region of all chains and W the work of all together, and the search is the one of `exact`. For a time limit each chain
is given its cheapest configuration; what it uses of the cores is its share, and the limit is possible if the shares
fit. On a graph that is one chain this is `optimal` itself.

To change threads at every branch is not always worth it. Chains that cost little are tried as a part of the operator
they hang on, one composite operator run by one thread, and stay there if the throughput gains or threads are saved.
"""

from __future__ import annotations

import math
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace

from penstock.graph.operator import Kind
from penstock.optimizer.exact import optimal, slowest_operator
from penstock.optimizer.least import Least
from penstock.optimizer.model import Chain, Config, Op, Region, check_machine, evaluate_chain, joined_key
from penstock.optimizer.regions import Regions

_LEAST = 1e-12
_CLOSE = 1e-7


@dataclass(frozen=True, slots=True)
class Link:
    """A stream: `share` tuples go from operator `source` to operator `target` for each tuple `source` receives."""

    source: int
    target: int
    share: float = 1.0


@dataclass(frozen=True)
class OpGraph:
    """Operators and the links between them, without cycles. The selectivity of operators is that of their links.

    `rates` are those of sources (operators that no link leads to), 1 where nothing is said.
    """

    ops: tuple[Op, ...]
    links: tuple[Link, ...]
    rates: Mapping[int, float] = field(default_factory=dict)


@dataclass(frozen=True, slots=True)
class ChainPlan:
    """One chain: at each position the operators that are one composite there, and the configuration of positions."""

    operators: tuple[tuple[int, ...], ...]
    config: Config


@dataclass(frozen=True, slots=True)
class GraphPlan:
    """The configuration of a graph and the throughput expected of it."""

    chains: tuple[ChainPlan, ...]
    throughput: float

    @property
    def threads(self) -> int:
        """Threads of all chains."""
        return sum(chain.config.threads for chain in self.chains)


def optimal_graph(graph: OpGraph, cores: int, delta: float, cp: float, *, max_replicas: int | None = None) -> GraphPlan:
    """The best configuration of `graph`.

    >>> ops = (Op(1, kind="stateful"), Op(8), Op(2), Op(1, kind="stateful"))
    >>> links = (Link(0, 1), Link(0, 2, 0.5), Link(1, 3), Link(2, 3))
    >>> plan = optimal_graph(OpGraph(ops, links), cores=4, delta=0.1, cp=0.1)
    >>> for chain in plan.chains:
    ...     print(chain.operators, chain.config)
    ((0, 2),) [0]
    ((1,),) [0]x3
    ((3,),) [0]
    """
    check_machine(cores, delta, cp)
    if not graph.ops:
        raise ValueError("a graph needs at least one operator")
    machine = _Machine(cores, delta, cp, max_replicas or cores)
    pieces = _Pieces(graph, tuple((index,) for index in range(len(graph.ops))))
    best = machine.solve(pieces)
    while True:
        tried = [(machine.solve(smaller), smaller) for smaller in pieces.with_a_chain_less()]
        better = [one for one in tried if _better(one[0], best)]
        if not better:
            return best
        best, pieces = max(better, key=lambda one: (one[0].throughput, -one[0].threads))


def _better(new: GraphPlan, old: GraphPlan) -> bool:
    if new.throughput > old.throughput * (1 + 1e-9):
        return True
    return new.throughput >= old.throughput * (1 - 1e-9) and new.threads < old.threads


@dataclass(frozen=True, slots=True)
class _ChainOf:
    """A chain of the graph, with what it hands over at its ends."""

    nodes: tuple[int, ...]
    chain: Chain
    ends: tuple[float, float]


class _Pieces:
    """A graph in which some operators have become one: `members[i]` are those of operator i."""

    def __init__(self, graph: OpGraph, members: tuple[tuple[int, ...], ...]) -> None:
        self.graph, self.members = graph, members
        self.out: list[list[Link]] = [[] for _ in graph.ops]
        self.into: list[list[Link]] = [[] for _ in graph.ops]
        for link in graph.links:
            self.out[link.source].append(link)
            self.into[link.target].append(link)
        self.order = self._order()

    def _order(self) -> list[int]:
        waiting = [len(links) for links in self.into]
        ready = [index for index, count in enumerate(waiting) if count == 0]
        for index in ready:  # grows while it is read
            for link in self.out[index]:
                waiting[link.target] -= 1
                if waiting[link.target] == 0:
                    ready.append(link.target)
        if len(ready) < len(self.graph.ops):
            raise ValueError("the graph has a cycle")
        return ready

    def follows(self, index: int) -> int | None:
        """The operator after `index` in the same chain."""
        links = self.out[index]
        return links[0].target if len(links) == 1 and len(self.into[links[0].target]) == 1 else None

    def alone(self, index: int) -> Op:
        """An operator with the selectivity that its only link says."""
        op, links = self.graph.ops[index], self.out[index]
        return replace(op, selectivity=links[0].share) if links else op

    def runs(self) -> list[tuple[int, ...]]:
        """The chains, as operators from left to right."""
        inner = {after for index in self.order if (after := self.follows(index)) is not None}
        found = []
        for index in self.order:
            if index not in inner:
                run = [index]
                while (after := self.follows(run[-1])) is not None:
                    run.append(after)
                found.append(tuple(run))
        return found

    def chains(self, delta: float) -> list[_ChainOf]:
        arrivals = [0.0] * len(self.graph.ops)
        for index in self.order:
            if not self.into[index]:
                arrivals[index] = self.graph.rates.get(index, 1.0)
            for link in self.out[index]:
                arrivals[link.target] += arrivals[index] * link.share
        result = []
        for run in self.runs():
            sent = math.fsum(arrivals[run[-1]] * link.share for link in self.out[run[-1]])
            work = [0.0]
            for index in run:
                work.append(work[-1] + arrivals[index] * self.graph.ops[index].cost)
            ops = tuple(self.graph.ops[index] for index in run)
            chain = Chain(ops, (*(arrivals[index] for index in run), sent), tuple(work))
            before = delta * arrivals[run[0]] if self.into[run[0]] else 0.0
            result.append(_ChainOf(run, chain, (before, delta * sent)))
        return result

    def with_a_chain_less(self) -> Iterator[_Pieces]:
        """This graph with one chain made a part of the operator it hangs on, for each that hangs on one only."""
        for run in self.runs():
            if len(self.into[run[0]]) == 1:
                yield self._contracted(run)

    def _contracted(self, run: Sequence[int]) -> _Pieces:
        host = self.into[run[0]][0].source
        op, members = self.graph.ops[host], self.members[host]
        share = self.into[run[0]][0].share
        for index in run:
            other = self.graph.ops[index]
            op = _composite(op, other, share)
            members += self.members[index]
            if self.follows(index) is not None:
                share *= self.out[index][0].share
        gone = set(run)
        number = {index: at for at, index in enumerate(i for i in range(len(self.graph.ops)) if i not in gone)}
        shares: dict[tuple[int, int], float] = {}
        for link in self.graph.links:
            if link.target in gone:
                continue
            factor = share if link.source in gone else 1.0
            ends = (number[host if link.source in gone else link.source], number[link.target])
            shares[ends] = shares.get(ends, 0.0) + factor * link.share
        ops = tuple(op if index == host else self.graph.ops[index] for index in number)
        rates = {number[index]: rate for index, rate in self.graph.rates.items() if index in number}
        graph = OpGraph(ops, tuple(Link(a, b, amount) for (a, b), amount in shares.items()), rates)
        return _Pieces(graph, tuple(members if index == host else self.members[index] for index in number))


def _composite(one: Op, two: Op, share: float) -> Op:
    """One operator that does the work of both, `two` on `share` tuples for each of `one`."""
    key = joined_key(joined_key(None, one), two)
    kind: Kind = "stateless" if key is None else "partitioned" if key else "stateful"
    cost = one.cost + share * two.cost
    return replace(one, cost=cost, kind=kind, key=key or frozenset(), bound=min(one.bound, two.bound))


@dataclass(frozen=True, slots=True)
class _Machine:
    cores: int
    delta: float
    cp: float
    most: int

    def solve(self, pieces: _Pieces) -> GraphPlan:
        """The best configurations of the chains of `pieces`."""
        chains = pieces.chains(self.delta)
        if len(chains) == 1 and not pieces.graph.rates:
            ops = [pieces.alone(index) for index in chains[0].nodes]
            configs = [optimal(ops, self.cores, self.delta, self.cp, max_replicas=self.most)]
        else:
            configs = _Shares(self, chains).best()
        time = self.time(chains, configs)
        plans = [
            ChainPlan(tuple(pieces.members[index] for index in chain.nodes), config)
            for chain, config in zip(chains, configs, strict=True)
        ]
        return GraphPlan(tuple(plans), 1 / time if time else math.inf)

    def time(self, chains: Sequence[_ChainOf], configs: Sequence[Config]) -> float:
        """Time per multiple: the slowest region, or all work over the cores."""
        slowest = work = 0.0
        for one, config in zip(chains, configs, strict=True):
            result = evaluate_chain(one.chain, config, self.cores, self.delta, self.cp, one.ends)
            if result.utilization:
                slowest = max(slowest, 1 / result.unbounded)
                work += result.utilization / result.unbounded
        return max(slowest, work / self.cores)


class _Shares:
    """Divides the cores among chains."""

    def __init__(self, machine: _Machine, chains: Sequence[_ChainOf]) -> None:
        self.machine, self.chains = machine, chains
        self.solvers = [
            Least(Regions(one.chain, machine.delta, machine.cp, machine.most, ends=one.ends)) for one in chains
        ]
        self.fixed = math.fsum(one.chain.work[-1] + sum(one.ends) for one in chains)

    def _within(self, time: float) -> list[Config] | None:
        """The cheapest configurations that keep the limit, if the cores are enough for them."""
        budget = self.machine.cores * time - self.fixed
        configs = []
        for solver in self.solvers:
            found = solver.find(time)
            if found is None:
                return None
            budget -= found[0]
            configs.append(found[1])
        return configs if budget >= -_LEAST * self.machine.cores * time else None

    def best(self) -> list[Config]:
        machine = self.machine
        configs = [Config((Region(1, ((0, len(one.chain)),)),)) for one in self.chains]
        high = machine.time(self.chains, configs)
        slowest = max(slowest_operator(one.chain, machine.cp, machine.most) for one in self.chains)
        low = min(high, max(self.fixed / machine.cores, slowest))
        while high > low * (1 + _LEAST):
            last = high <= low * (1 + _CLOSE)  # ask for the best itself
            time = high * (1 - _LEAST) if last else (low + high) / 2
            found = self._within(time)
            reached = machine.time(self.chains, found) if found is not None else math.inf
            if found is not None and reached < high:
                configs, high = found, reached
            elif last:
                break
            else:
                low = time
        return configs
