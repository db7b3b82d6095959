"""Session windows of one partition: they grow with activity, merge when a tuple bridges them, and end after a gap.

A session is half-open, `[first, last + gap)`. A tuple joins every open session it overlaps, itself taken as
`[t, t + gap)`; two sessions it overlaps become one. The watermark (newest time minus `late`) closes a session when it
reaches `last + gap`.
"""

from __future__ import annotations

from typing import Any

from penstock.windows.event_time import Closed, Rules
from penstock.windows.policies import Window
from penstock.windows.times import Number, number_of, scaled, time_of, units_in


class Session:
    """One open session."""

    __slots__ = ("first", "last", "pane")

    def __init__(self, first: Number, last: Number, pane: Any) -> None:
        self.first = first
        self.last = last
        self.pane = pane


class Sessions:
    """The open sessions of one partition: of one key, or of all keys under one watermark."""

    __slots__ = ("arrived", "gap", "late", "like", "newest", "open", "ranks", "soonest", "window")

    def __init__(self, window: Window) -> None:
        self.window = window
        self.like: Any = None
        self.newest: Any = None
        self.gap: Number = 0
        self.late: Number = 0
        self.soonest: Any = None  # no open session closes before the newest time reaches this
        self.arrived = 0
        self.open: dict[Any, list[Session]] = {}  # per key, in order of time
        self.ranks: dict[Any, int] = {}  # keys in order of their first arrival

    def insert(self, rules: Rules, key: Any, t: Any, time: Any) -> list[tuple[Any, Closed]] | None:
        """Handle a tuple; returns (key, closed session) pairs, or None for a late tuple."""
        number = number_of(time)
        closed: list[tuple[Any, Closed]] = []
        if self.newest is None:
            self._begin(time)
        if self.newest is None or number > self.newest:
            self.newest = number
            if self.soonest is not None and number >= self.soonest:
                closed = self._close(rules, everything=False)
        return closed if self._place(rules, key, t, number) else None

    def finish(self, rules: Rules) -> list[tuple[Any, Closed]]:
        """Close every session."""
        return self._close(rules, everything=True)

    def _begin(self, time: Any) -> None:
        self.like = time
        self.gap = scaled(self.window.size, units_in(time))
        self.late = scaled(self.window.late, units_in(time))

    def _closes_at(self, last: Number) -> Number:
        return last + self.gap + self.late

    def _place(self, rules: Rules, key: Any, t: Any, number: Number) -> bool:
        """Put the tuple into the session it belongs to; False if it is late."""
        sessions = self.open.get(key, [])
        if sessions and sessions[-1].first <= number < sessions[-1].last + self.gap:
            # The usual case. Sessions before the last one end before it starts, so the tuple touches none of them.
            self._extend(rules, sessions[-1:], t, number)
            self.arrived += 1
            return True
        touched = [s for s in sessions if s.first < number + self.gap and number < s.last + self.gap]
        if not touched and self.newest >= self._closes_at(number):
            return False
        if touched:
            session = self._extend(rules, touched, t, number)
        else:
            session = Session(number, number, rules.start(t, self.arrived))
            self.ranks.setdefault(key, len(self.ranks))
        self.arrived += 1
        if len(touched) != 1:
            kept = [s for s in sessions if s not in touched]
            self.open[key] = sorted([*kept, session], key=lambda s: s.first)
        closes = self._closes_at(session.last)
        if self.soonest is None or closes < self.soonest:
            self.soonest = closes
        return True

    def _extend(self, rules: Rules, touched: list[Session], t: Any, number: Number) -> Session:
        session = touched[0]
        for other in touched[1:]:
            session.pane = rules.merge(session.pane, other.pane)
            session.last = other.last
        rules.add(session.pane, t, self.arrived)
        session.first = min(session.first, number)
        session.last = max(session.last, number)
        return session

    def _close(self, rules: Rules, *, everything: bool) -> list[tuple[Any, Closed]]:
        closed: list[tuple[Any, Closed]] = []
        for key, sessions in list(self.open.items()):
            ended = [s for s in sessions if everything or self.newest >= self._closes_at(s.last)]
            closed.extend((key, self._closed(rules, key, session)) for session in ended)
            left = [s for s in sessions if s not in ended]
            if left:
                self.open[key] = left
            else:
                del self.open[key]
        closed.sort(key=lambda pair: pair[1].order)
        self.soonest = min((self._closes_at(s.last) for left in self.open.values() for s in left), default=None)
        return closed

    def _closed(self, rules: Rules, key: Any, session: Session) -> Closed:
        end = session.last + self.gap
        results = rules.results(session.pane, [session.pane])
        return Closed((end, self.ranks[key]), results, time_of(session.first, self.like), time_of(end, self.like))
