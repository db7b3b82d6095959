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
they hang on, one composite operator run by one thread, and stay there if the throughput gains or threads are saved. Of
all such steps the one that gains most is taken, until none does.

A step changes the chain of that operator and no other. So whether all can keep a limit after it is known from the sum
over all chains, which is the same for all steps, and from the one new chain. The limit is the best time known, of the
steps before it too: most steps are ruled out by one question, and many by bounds without any (`pieces`).
"""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import NamedTuple

from penstock.optimizer.exact import optimal
from penstock.optimizer.model import Config, Op, check_machine, evaluate, joined_key
from penstock.optimizer.pieces import Machine, Piece, Place
from penstock.optimizer.tidy import fewer_threads

_LEAST = 1e-12  # relative difference below which two times are the same
_GAIN = 1e-9  # a step that gains less gains nothing
_SAME = 1e-10  # what a step that saves threads may lose, and all such steps together


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
    machine, flows = Machine(cores, delta, cp, max_replicas if max_replicas is not None else cores), _Flows(graph)
    if len(flows.runs()) == 1 and not graph.rates:
        return _plain(graph, machine, flows)
    search = GraphSearch(graph, machine)
    while search.step():
        pass
    return search.plan()


def _plain(graph: OpGraph, machine: Machine, flows: _Flows) -> GraphPlan:
    """The best configuration of a graph that is one chain."""
    ops = [graph.ops[index] for index in flows.order]
    for place, index in enumerate(flows.order[:-1]):
        ops[place] = replace(ops[place], selectivity=sum(flows.share[index].values()))
    config = optimal(ops, machine.cores, machine.delta, machine.cp, max_replicas=machine.most)
    throughput = evaluate(ops, config, machine.cores, machine.delta, machine.cp).throughput
    return GraphPlan((ChainPlan(tuple((index,) for index in flows.order), config),), throughput)


class _Step(NamedTuple):
    """A chain made a part of the operator it hangs on: the chains that are gone then, and the one in their place.

    `saved` are the tuples that are no longer handed over.
    """

    gone: tuple[int, ...]
    piece: Piece
    saved: float


class GraphSearch:
    """A graph in chains, some of them part of an operator of others: `pieces`, by numbers that are never used again.

    `time` is the best known per multiple. What a step changes is known from the chains it touches; of all others, work
    and threads are added up once for each limit.
    """

    def __init__(self, graph: OpGraph, machine: Machine) -> None:
        self.graph, self.machine = graph, machine
        self.pieces: dict[int, Piece] = {}
        self.into: dict[int, set[int]] = {}
        self.out: dict[int, dict[int, float]] = {}  # tuples that go from chain to chain
        self._flows = _Flows(graph)
        self._places = {index: place for place, index in enumerate(self._flows.order)}
        self._make_pieces()
        self._next = len(self.pieces)
        self._steps: dict[tuple[int, ...], _Step] = {}
        self._easiest: dict[int, Piece] = {}
        self._sums: dict[float, _Sum] = {}
        self.time = self._first_time()

    def _make_pieces(self) -> None:
        flows, ops = self._flows, self.graph.ops
        number = {run[0]: place for place, run in enumerate(flows.runs())}
        for run in flows.runs():
            own, after = number[run[0]], flows.out[run[-1]]
            places = tuple(
                Place((i,), flows.arrivals[i], flows.arrivals[i] * ops[i].cost, joined_key(None, ops[i]), ops[i].bound)
                for i in run
            )
            self.pieces[own] = Piece(self.machine, places, bool(flows.into[run[0]]), math.fsum(after.values()))
            self.out[own] = {number[target]: amount for target, amount in after.items()}
            self.into.setdefault(own, set())
            for target in self.out[own]:
                self.into.setdefault(target, set()).add(own)

    def _first(self, number: int) -> int:
        """The first operator of a chain."""
        return self.pieces[number].places[0].members[0]

    def _rank(self, number: int) -> int:
        """Where the first operator of a chain is, in an order that follows the links."""
        return self._places[self._first(number)]

    def plan(self) -> GraphPlan:
        """The best known."""
        machine, limit = self.machine, self.time * (1 + _SAME)
        plans, slowest, work = [], 0.0, 0.0
        for number in sorted(self.pieces, key=self._rank):
            piece = self.pieces[number]
            answer = piece.within(limit)
            assert answer is not None
            config = answer.config
            if len(self.pieces) == 1:
                config = fewer_threads(piece.chain, config, machine.cores, machine.delta, machine.cp)
            plans.append(ChainPlan(tuple(place.members for place in piece.places), config))
            slowest, work = max(slowest, answer.slowest), work + answer.work
        time = max(slowest, work / machine.cores)
        return GraphPlan(tuple(plans), 1 / time if time else math.inf)

    # ------------------------------------------------------------------------------------------------------- times

    def _first_time(self) -> float:
        pieces = self.pieces.values()
        low = sum(piece.fixed for piece in pieces) / self.machine.cores
        high = max(low, *(piece.fixed for piece in pieces))
        for piece in pieces:
            low = piece.least_time(low)
        return self._least_time(list(pieces), min(low, high) * (1 + _LEAST), high)

    def _least_time(self, pieces: Sequence[Piece], time: float, best: float) -> float:
        """The least time of `pieces`, which is `best` at most. The first limit is `time`. This is as in `exact`."""
        cores, low, first = self.machine.cores, 0.0, True
        while best > low * (1 + _LEAST):
            slowest = work = 0.0
            for piece in pieces:
                answer = piece.within(time)
                if answer is None:
                    work = math.inf
                    break
                slowest, work = max(slowest, answer.slowest), work + answer.work
            reached = max(slowest, work / cores)
            better = reached < best
            low = max(low, min(time, work / cores * (1 - _LEAST)))
            if not better and time >= best * (1 - _LEAST):
                break
            best = min(best, reached)
            time = (low + best) / 2 if better and not first else best * (1 - _LEAST)
            first = False
        return best

    def _sum(self, limit: float) -> _Sum:
        found = self._sums.get(limit)
        if found is None:
            work, threads, missing = 0.0, 0, 0
            for piece in self.pieces.values():
                answer = piece.within(limit)
                if answer is None:
                    missing += 1
                else:
                    work, threads = work + answer.work, threads + answer.threads
            found = self._sums[limit] = _Sum(work, threads, missing)
        return found

    def _threads(self, step: _Step, limit: float, most: float) -> int | None:
        """The threads there are after a step if all keep `limit`; None if they cannot, or are `most` at least."""
        work, threads, missing = self._sum(limit)
        for number in step.gone:
            answer = self.pieces[number].within(limit)
            if answer is None:
                missing -= 1
            else:
                work, threads = work - answer.work, threads - answer.threads
        room = self.machine.cores * limit * (1 + _LEAST) - work
        if missing or threads + 1 >= most or room < step.piece.fixed or room < step.piece.at_least(limit):
            return None
        answer = step.piece.within(limit)
        if answer is None or answer.work > room:
            return None
        return threads + answer.threads if threads + answer.threads < most else None

    # ------------------------------------------------------------------------------------------------------- steps

    def step(self) -> bool:
        """Take the step that gains most, of those that gain the same the one with the fewest threads, or the first.

        False if there is none that gains or saves threads.
        """
        runs = sorted((number for number, before in self.into.items() if len(before) == 1), key=self._first)
        steps = [self._step(next(iter(self.into[number])), number) for number in runs]
        best, time = None, self.time
        for step in sorted(steps, key=lambda step: -step.saved):  # what may gain most comes first and rules out others
            if self._threads(step, time * (1 - _GAIN), math.inf) is not None:
                rest = [piece for number, piece in self.pieces.items() if number not in step.gone]
                best, time = step, self._least_time([*rest, step.piece], time * (1 - _GAIN), time)
        limit = time * (1 + _SAME)
        most = self._sum(limit).threads if best is None else math.inf
        for step in steps:
            threads = self._threads(step, limit, most)
            if threads is not None:
                best, most = step, threads
        if best is None:
            return False
        self._take(best)
        self.time = time
        return True

    def _after(self, host: int, run: int) -> dict[int, float]:
        """Where the tuples of both go."""
        after = dict(self.out[host])
        del after[run]
        for target, amount in self.out[run].items():
            after[target] = after.get(target, 0.0) + amount
        return after

    def _step(self, host: int, run: int) -> _Step:
        """The step that makes chain `run` a part of the last operator of `host`."""
        gone: tuple[int, ...] = (host, run)
        after = self._after(host, run) if len(self.out[host]) <= 2 else {}
        if len(after) == 1 and self.into[next(iter(after))] <= {host, run}:  # what follows is in the same chain then
            gone += tuple(after)
        if gone not in self._steps:
            first, second = self.pieces[host], self.pieces[run]
            places = (*first.places[:-1], first.places[-1].with_all(second.places))
            saved = self.out[host][run]
            sent = max(0.0, first.sent - saved) + second.sent
            if len(gone) == 2:
                piece = Piece(self.machine, places, first.fed, sent, self._easier(host, sent))
            else:
                third = self.pieces[gone[2]]
                piece = Piece(self.machine, places + third.places, first.fed, third.sent)
                saved += after[gone[2]]
            self._steps[gone] = _Step(gone, piece, saved)
        return self._steps[gone]

    def _easier(self, host: int, sent: float) -> Piece:
        """Chain `host`, if need be with less to hand over: no more than `sent`, or than after any step there is now."""
        known = self._easiest.get(host, self.pieces[host])
        if known.sent > sent:
            own, out = self.pieces[host], self.out[host]
            most = max(amount - self.pieces[run].sent for run, amount in out.items() if len(self.into[run]) == 1)
            known = Piece(self.machine, own.places, own.fed, min(sent, max(0.0, own.sent - most)))
            self._easiest[host] = known
        return known

    def _take(self, step: _Step) -> None:
        host, run, *others = step.gone
        new, before = self._next, self.into[host]
        after = self.out[others[0]] if others else self._after(host, run)
        self._next += 1
        for number in step.gone:
            del self.pieces[number], self.into[number], self.out[number]
        self.pieces[new], self.into[new], self.out[new] = step.piece, before, after
        for number in before:
            self.out[number][new] = self.out[number].pop(host)
        for number in after:
            self.into[number] = self.into[number].difference(step.gone) | {new}
        self._sums.clear()
        self._easiest.pop(host, None)
        self._steps = {gone: known for gone, known in self._steps.items() if set(gone).isdisjoint(step.gone)}
        step.piece.settle()


class _Sum(NamedTuple):
    """Of all chains within a limit: work and threads of those that can keep it, and how many cannot."""

    work: float
    threads: int
    missing: int


class _Flows:
    """What goes where: tuples per multiple that reach operators, and that links carry."""

    def __init__(self, graph: OpGraph) -> None:
        count = len(graph.ops)
        self.share: list[dict[int, float]] = [{} for _ in range(count)]
        self.into: list[set[int]] = [set() for _ in range(count)]
        for link in graph.links:
            shares = self.share[link.source]
            shares[link.target] = shares.get(link.target, 0.0) + link.share
            self.into[link.target].add(link.source)
        self.order = self._order()
        self.arrivals = [0.0] * count
        self.out: list[dict[int, float]] = [{} for _ in range(count)]
        for index in self.order:
            if not self.into[index]:
                self.arrivals[index] = graph.rates.get(index, 1.0)
            for target, share in self.share[index].items():
                self.out[index][target] = self.arrivals[index] * share
                self.arrivals[target] += self.out[index][target]

    def _order(self) -> list[int]:
        waiting = [len(sources) for sources in self.into]
        ready = [index for index, count in enumerate(waiting) if count == 0]
        for index in ready:  # grows while it is read
            for target in self.share[index]:
                waiting[target] -= 1
                if waiting[target] == 0:
                    ready.append(target)
        if len(ready) < len(waiting):
            raise ValueError("the graph has a cycle")
        return ready

    def _follows(self, index: int) -> int | None:
        """The operator after `index` in the same chain."""
        after = next(iter(self.share[index])) if len(self.share[index]) == 1 else None
        return after if after is not None and len(self.into[after]) == 1 else None

    def runs(self) -> list[tuple[int, ...]]:
        """The chains, as operators from left to right."""
        inner = {after for index in self.order if (after := self._follows(index)) is not None}
        found = []
        for index in self.order:
            if index not in inner:
                run = [index]
                while (after := self._follows(run[-1])) is not None:
                    run.append(after)
                found.append(tuple(run))
        return found
