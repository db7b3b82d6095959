"""LogWatch: finds break-ins in an sshd log, that is, logins that were preceded by many failed attempts.

    penstock run examples/logwatch.py --on local
    LOGWATCH_FILE=/var/log/auth.log penstock run examples/logwatch.py --on local

Without a file it reads made-up log lines; LOGWATCH_LINES says how many. The program is a chain of ten operators:
failures and logins travel through it together, so the order of the log decides what came before what.
"""

from __future__ import annotations

import os
import re
from collections.abc import Iterator
from datetime import UTC, datetime
from functools import partial
from typing import Any, NamedTuple

import data
import penstock as pn

LINE = re.compile(r"(\w{3} [ \d]\d \d\d:\d\d:\d\d) \S+ (\w+)\S*: (.*)")
FAILURE = re.compile(r"authentication failure;.* rhost=(?P<rhost>\S+)(?:\s+user=(?P<user>\S+))?")
LOGIN = re.compile(r"session opened for user (?P<user>[^\s(]+)\S* by")
MONTHS = ["Jan", "Feb", "Mar", "Apr", "May", "Jun", "Jul", "Aug", "Sep", "Oct", "Nov", "Dec"]

FILE = os.environ.get("LOGWATCH_FILE")
MADE_UP = partial(data.log_lines, int(os.environ.get("LOGWATCH_LINES", "200000")))


class Line(NamedTuple):
    time: str
    program: str
    message: str


class Event(NamedTuple):
    """A failed attempt, which may name a user; or a login, which names no host."""

    time: Any  # text as in the log; seconds after RealTime
    rhost: str | None
    user: str | None


class Suspect(NamedTuple):
    """A host that failed `attempts` times, and the users it tried to be."""

    rhost: str
    first: str
    last: str
    attempts: int
    users: list[str]


class Attack(NamedTuple):
    """A suspect as seen by one of those users. It is a break-in once that user logs in at `time`."""

    time: float
    rhost: str
    user: str
    attempts: int


def parse(line: str) -> Line:
    found = LINE.match(line)
    return Line(*found.groups()) if found else Line("", "", line)


def is_event(line: Line) -> bool:
    return line.program == "sshd" and bool(FAILURE.search(line.message) or LOGIN.search(line.message))


def to_event(line: Line) -> Event:
    names = (FAILURE.search(line.message) or LOGIN.search(line.message)).groupdict()  # type: ignore[union-attr]
    return Event(line.time, names.get("rhost"), names["user"])


class Range(pn.Operator):
    """Keyed by host: every `count` failures make one suspect. Logins, which have no host, pass."""

    def __init__(self, count: int) -> None:
        self.count = count
        self.failures: list[Event] = []

    def process(self, event: Event, port: int) -> Event | Suspect | None:
        if event.rhost is None:
            return event
        self.failures.append(event)
        if len(self.failures) < self.count:
            return None
        failures, self.failures = self.failures, []
        users = sorted({failure.user for failure in failures if failure.user})
        return Suspect(event.rhost, failures[0].time, event.time, len(failures), users)


def is_quick(seconds: float, event: Event | Suspect) -> bool:
    return isinstance(event, Event) or elapsed(real_time(event.first), real_time(event.last)) < seconds


def to_real_time(event: Event | Suspect) -> Iterator[Event | Attack]:
    if isinstance(event, Event):
        yield event._replace(time=real_time(event.time))
    else:
        for user in event.users:
            yield Attack(real_time(event.last), event.rhost, user, event.attempts)


class Breakins(pn.Operator):
    """Keyed by user: a login within `seconds` of an attack is a break-in."""

    def __init__(self, seconds: float) -> None:
        self.seconds = seconds
        self.attacks: list[Attack] = []

    def process(self, event: Event | Attack, port: int) -> Attack | None:
        self.attacks = [attack for attack in self.attacks if elapsed(attack.time, event.time) <= self.seconds]
        if isinstance(event, Attack):
            self.attacks.append(event)
        elif self.attacks:
            rhost = self.attacks[-1].rhost
            attempts = sum(attack.attempts for attack in self.attacks if attack.rhost == rhost)
            return Attack(event.time, rhost, self.attacks[-1].user, attempts)
        return None


def real_time(stamp: str) -> float:
    """Seconds of a syslog time. It names no year: a leap year is assumed, so that every date exists."""
    month, day, clock = stamp.split()
    hour, minute, second = clock.split(":")
    number = MONTHS.index(month) + 1
    return datetime(2024, number, int(day), int(hour), int(minute), int(second), tzinfo=UTC).timestamp()


def elapsed(earlier: float, later: float, year: int = 366 * 86_400) -> float:
    """Seconds between two times of a log, also across New Year."""
    return (later - earlier + year // 2) % year - year // 2


def print_breakin(breakin: Attack) -> None:
    when = datetime.fromtimestamp(breakin.time, tz=UTC).strftime("%b %d %H:%M:%S")
    print(f"{when}  break-in as {breakin.user:<8}  from {breakin.rhost:<15}  after {breakin.attempts} failed attempts")


def build(
    log: Any = MADE_UP,
    results: Any = print_breakin,
    *,
    attempts: int = 10,
    seconds: float = 120,
    within: float = 120,
    suspects: Any = None,
) -> pn.Flow:
    """A suspect fails `attempts` times in less than `seconds`; a login `within` seconds of that is a break-in."""
    flow = pn.Flow("logwatch")
    raw_lines = flow.source(log, name="RawLines")
    lines = raw_lines.map(str.rstrip, name="Lines")
    parsed_lines = lines.map(parse, name="ParsedLines")
    raw_events = parsed_lines.filter(is_event, name="RawEvents")
    events = raw_events.map(to_event, name="Events")
    ranges = events.key_by("rhost").process(Range(attempts), name="Range")
    cutoff = ranges.filter(partial(is_quick, seconds), name="Cutoff")
    real_times = cutoff.flat_map(to_real_time, name="RealTime")
    breakins = real_times.key_by("user").process(Breakins(within), name="Breakins")
    breakins.sink(results, name="Results")
    if suspects is not None:
        cutoff.filter(lambda event: isinstance(event, Suspect)).sink(suspects, name="Suspects")
    return flow


flow = build(pn.files.lines(FILE) if FILE else MADE_UP)

if __name__ == "__main__":
    pn.run(flow, on="local")
