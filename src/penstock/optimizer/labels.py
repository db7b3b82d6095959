"""Labels: regions under construction, and finished ones, as `Cheapest` remembers them; and which of them to keep."""

from __future__ import annotations

from itertools import pairwise
from typing import Any, NamedTuple

from penstock.optimizer.model import Config, Region

Key = frozenset[Any] | None


class Option(NamedTuple):
    """Numbers of replicas from `least` to `most`."""

    least: int
    most: int


class Label(NamedTuple):
    """A region under construction that was last cut at `at` (a new one: where it starts).

    The open pipeline may be cut at v while work[v] + δ·arrivals[v] ≤ `reach`, and the region may end at v if the
    finished pipelines allow it, δ·arrivals[v] ≤ `spare`, and the open one does.
    """

    cost: float
    reach: float
    room: float
    spare: float
    factor: float  # f(r) of the operators so far
    key: Key
    at: int
    before: Label | None  # the label of the cut before; None where the region starts
    after: End | None  # what the region follows; None at the start of the chain


class End(NamedTuple):
    """A finished region: the overhead with all before it, the number of replicas, and the label that led to it."""

    cost: float
    option: Option
    at: int
    label: Label


class Tail(NamedTuple):
    """Regions from a cut to the end of the chain, and their overhead but for that cut."""

    cost: float
    regions: tuple[Region, ...]


class Ends:
    """The cheapest ways to have finished a region at one cut."""

    __slots__ = ("closed", "other", "plain", "replicated")

    def __init__(self) -> None:
        self.plain: End | None = None  # a region without replicas
        self.closed: End | None = None  # a replicated region that the next operator cannot join
        self.replicated: End | None = None  # a replicated region that the next operator could join …
        self.other: End | None = None  # … and the cheapest with another number of replicas

    def add(self, end: End, closed: bool) -> None:
        cost = end.cost
        if end.option.most == 1:
            if self.plain is None or cost < self.plain.cost:
                self.plain = end
        elif closed:
            if self.closed is None or cost < self.closed.cost:
                self.closed = end
        elif self.replicated is None or cost < self.replicated.cost:
            if self.replicated is not None and self.replicated.option != end.option:
                self.other = self.replicated
            self.replicated = end
        elif end.option != self.replicated.option and (self.other is None or cost < self.other.cost):
            self.other = end

    @property
    def barred(self) -> Option | None:
        """The number of replicas that a region after the cheapest end must not have."""
        option = self.replicated.option if self.replicated is not None else None
        return option if option is not None and option.least == option.most else None

    def before(self, option: Option) -> End | None:
        """The cheapest end that a region with this number of replicas may follow."""
        plain = self.plain if option.most > 1 else None
        return _cheapest(self.closed, plain, self.other if option == self.barred else self.replicated)

    def last(self) -> End | None:
        """The cheapest end of all."""
        return _cheapest(self.closed, self.plain, self.replicated)


def _cheapest(*ends: End | None) -> End | None:
    return min((end for end in ends if end is not None), key=lambda end: end.cost, default=None)


def insert(labels: list[Label], new: Label, bounded: bool) -> None:
    """Add `new` unless another label beats it; drop those it beats.

    One beats another if it is at least as good, whatever comes: if no bound will lower the factor of either, by cost,
    reach, room and spare; if bounds may lower both factors to any number, by what these come from.
    """
    cost, reach, room, spare, factor, key = new[:6]
    base, used = (reach - factor * room, factor * (room - spare)) if bounded else (0.0, 0.0)
    beaten = False
    for old_cost, old_reach, old_room, old_spare, old_factor, old_key, *_ in labels:
        if old_key != key:
            continue
        if bounded:
            old_base, old_used = old_reach - old_factor * old_room, old_factor * (old_room - old_spare)
            if old_cost <= cost and old_factor >= factor and old_base >= base and old_room >= room and old_used <= used:
                return
            beaten = beaten or (cost <= old_cost and factor >= old_factor and room >= old_room and base >= old_base)
        else:
            if old_cost <= cost and old_reach >= reach and old_room >= room and old_spare >= spare:
                return
            beaten = beaten or (cost <= old_cost and reach >= old_reach and room >= old_room)
    if beaten:
        labels[:] = [old for old in labels if not (_beats_bounded(new, old) if bounded else _beats(new, old))]
    labels.append(new)


def _beats(one: Label, two: Label) -> bool:
    return (
        one.cost <= two.cost
        and one.reach >= two.reach
        and one.room >= two.room
        and one.spare >= two.spare
        and one.key == two.key
    )


def _beats_bounded(one: Label, two: Label) -> bool:
    return (
        one.cost <= two.cost
        and one.factor >= two.factor
        and one.reach - one.factor * one.room >= two.reach - two.factor * two.room
        and one.room >= two.room
        and one.factor * (one.room - one.spare) <= two.factor * (two.room - two.spare)
        and one.key == two.key
    )


def best_of(one: Label, two: Label, bounded: bool) -> Label:
    """A label that is at least as good as both."""
    cost, room, factor = min(one.cost, two.cost), max(one.room, two.room), max(one.factor, two.factor)
    if bounded:  # as good with any factor
        reach = max(one.reach - one.factor * one.room, two.reach - two.factor * two.room) + factor * room
        slowest = min(one.factor * (one.room - one.spare), two.factor * (two.room - two.spare))
        spare = room - slowest / factor
    else:
        reach, spare = max(one.reach, two.reach), max(one.spare, two.spare)
    return one._replace(cost=cost, reach=reach, room=room, spare=spare, factor=factor)


def config_of(last: End) -> Config:
    """The configuration that ends with `last`."""
    regions = []
    end: End | None = last
    while end is not None:
        cuts = [end.at]
        label: Label | None = end.label
        while label is not None:
            cuts.append(label.at)
            label = label.before
        regions.append(Region(end.option.most, tuple(pairwise(reversed(cuts)))))
        end = end.label.after
    return Config(tuple(reversed(regions)))
