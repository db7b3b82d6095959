"""Window policies: how a stream is cut into windows, exactly as the user said it.

    tumbling(count=4)            |1 2 3 4|5 6 7 8|9 …           fires at each |, then starts empty
    sliding(count=4, every=2)     1 2 3 4 → 3 4 5 6 → 5 6 7 8   evicts the oldest, fires every second tuple
    tumbling(time=10, on="ts")   [0, 10) [10, 20) [20, 30) …    event time: aligned, closed by the watermark
    sliding(time=10, every=5, on="ts")   [0, 10) [5, 15) [10, 20) …
    session(gap=5, on="ts")      [first, last + 5)              grows and merges as long as no gap of 5 appears

A policy names the eviction (what the window spans) and, for sliding windows, the trigger (`every`), as in SPL
(language runtime §5.3). It holds no tuples: `windows.engine` does.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import dataclass
from datetime import timedelta
from typing import Any, Literal

from penstock.errors import FlowError, user_location

Attribute = str | Callable[[Any], Any]
Seconds = int | float | timedelta
Spans = Literal["count", "time", "delta", "punctuation", "event", "session"]


@dataclass(frozen=True)
class Window:
    """A window policy; made by `tumbling`, `sliding` and `session`.

    `spans` is what the window measures: "count" (tuples), "time" (seconds of the arrival clock), "delta" (units of the
    attribute `on`), "punctuation", "event" (seconds of the attribute `on`, aligned) or "session" (gap in seconds of
    the attribute `on`). `size` is in that unit (0 for punctuation), `every` the trigger or step in the same unit (None:
    each tuple, or for event time the size). `late` is in seconds of event time.
    """

    spans: Spans
    size: int | float = 0
    sliding: bool = False
    every: int | float | None = None
    on: Attribute | None = None
    partial: bool = False
    late: int | float = 0
    watermark: Literal["key", "stream"] = "key"

    @property
    def event_time(self) -> bool:
        """True when windows are closed by a watermark, so that tuples can be late."""
        return self.spans in ("event", "session")

    @property
    def step(self) -> int | float:
        """How far apart two event-time windows start."""
        return self.size if self.every is None else self.every

    def __str__(self) -> str:
        if self.spans == "punctuation":
            words = ["punctuation=True"]
        else:
            word = {"event": "time", "session": "gap"}.get(self.spans, self.spans)
            words = [f"{word}={self.size!r}"]
        if self.every is not None:
            words.append(f"every={self.every!r}")
        if self.on is not None:
            words.append(f"on={_attribute_name(self.on)}")
        if self.partial:
            words.append("partial=True")
        if self.late:
            words.append(f"late={self.late!r}")
        if self.watermark != "key":
            words.append(f"watermark={self.watermark!r}")
        kind = "session" if self.spans == "session" else "sliding" if self.sliding else "tumbling"
        return f"{kind}({', '.join(words)})"


def tumbling(
    *,
    count: int | None = None,
    time: Seconds | None = None,
    delta: int | float | timedelta | None = None,
    punctuation: bool = False,
    on: Attribute | None = None,
    partial: bool = False,
    late: Seconds = 0,
    watermark: Literal["key", "stream"] = "key",
) -> Window:
    """Windows that do not overlap: each fires as it is flushed, then the next starts empty.

    Flushed after `count` tuples; after `time` seconds (of the arrival clock, or aligned and half-open in the attribute
    `on`); by the first tuple more than `delta` past the window's first in attribute `on`; or by window punctuation.

    >>> print(tumbling(count=10))
    tumbling(count=10)
    >>> print(tumbling(time=60, on="ts", late=5))
    tumbling(time=60, on='ts', late=5)
    """
    chosen = _Chosen("tumbling", count=count, time=time, delta=delta, punctuation=punctuation or None, on=on)
    return chosen.window(sliding=False, every=None, partial=partial, late=late, watermark=watermark)


def sliding(
    *,
    count: int | None = None,
    time: Seconds | None = None,
    delta: int | float | timedelta | None = None,
    every: int | float | timedelta | None = None,
    on: Attribute | None = None,
    partial: bool = False,
    late: Seconds = 0,
    watermark: Literal["key", "stream"] = "key",
) -> Window:
    """Windows that may overlap: old tuples are evicted as new ones come, and the window fires `every` so often.

    `every` is in the unit of the eviction policy: tuples, seconds, or units of the attribute `on`; without it the
    window fires at each tuple. Sliding event-time windows (`time=` with `on=`) start at each multiple of `every`.

    >>> print(sliding(count=10, every=5))
    sliding(count=10, every=5)
    >>> print(sliding(time=300, every=60, on="ts"))
    sliding(time=300, every=60, on='ts')
    """
    chosen = _Chosen("sliding", count=count, time=time, delta=delta, punctuation=None, on=on)
    return chosen.window(sliding=True, every=every, partial=partial, late=late, watermark=watermark)


def session(
    *,
    gap: Seconds,
    on: Attribute | None = None,
    late: Seconds = 0,
    watermark: Literal["key", "stream"] = "key",
) -> Window:
    """Windows of activity in event time: a session ends where no tuple comes for `gap` seconds of attribute `on`.

    >>> print(session(gap=30, on="ts"))
    session(gap=30, on='ts')
    """
    if on is None:
        raise _wrong("session", "needs on=, the attribute that holds the time")
    _check_attribute("session", on)
    size = _positive("session", "gap", seconds(gap))
    lateness, checked = _lateness("session", late), _checked_watermark("session", watermark)
    return Window("session", size, on=on, late=lateness, watermark=checked)


@dataclass(frozen=True)
class _Chosen:
    """The eviction policies one call named; exactly one must be there."""

    verb: str
    count: Any
    time: Any
    delta: Any
    punctuation: Any
    on: Any

    def window(self, *, sliding: bool, every: Any, partial: bool, late: Any, watermark: Any) -> Window:
        spans, size = self._eviction()
        step = None if every is None else self._step(spans, every)
        lateness = _lateness(self.verb, late)
        watermark = _checked_watermark(self.verb, watermark)
        if spans != "event" and (lateness or watermark != "key"):
            word = "late=" if lateness else "watermark="
            raise _wrong(self.verb, f"takes {word} only with event time: time= and on=")
        return Window(spans, size, sliding, step, self.on, bool(partial), lateness, watermark)

    def _eviction(self) -> tuple[Spans, int | float]:
        policies = {"count": self.count, "time": self.time, "delta": self.delta, "punctuation": self.punctuation}
        given = [name for name, value in policies.items() if value is not None]
        possible = "count=, time= or delta=" if self.verb == "sliding" else "count=, time=, delta= or punctuation=True"
        if len(given) != 1:
            came = " and ".join(f"{name}=" for name in given) or "none"
            raise _wrong(self.verb, f"needs exactly one of {possible}; it got {came}")
        if self.on is not None:
            _check_attribute(self.verb, self.on)
        return getattr(self, f"_by_{given[0]}")()  # type: ignore[no-any-return]

    def _by_count(self) -> tuple[Spans, int]:
        self._refuse_on("count=")
        return "count", _whole(self.verb, "count", self.count)

    def _by_time(self) -> tuple[Spans, int | float]:
        size = _positive(self.verb, "time", seconds(self.time))
        return ("time" if self.on is None else "event"), size

    def _by_delta(self) -> tuple[Spans, int | float]:
        if self.on is None:
            raise _wrong(self.verb, "with delta= needs on=, the attribute that the difference is taken of")
        return "delta", _positive(self.verb, "delta", seconds(self.delta))

    def _by_punctuation(self) -> tuple[Spans, int]:
        self._refuse_on("punctuation=True")
        return "punctuation", 0

    def _refuse_on(self, policy: str) -> None:
        if self.on is not None:
            raise _wrong(self.verb, f"takes on= with time= or delta=, not with {policy}")

    def _step(self, spans: Spans, every: Any) -> int | float:
        if spans == "count":
            return _whole(self.verb, "every", every)
        return _positive(self.verb, "every", seconds(every))


def seconds(value: Any) -> Any:
    """A timedelta as seconds, an int where it is whole; anything else as it is.

    >>> seconds(timedelta(minutes=1)), seconds(timedelta(milliseconds=250)), seconds(3)
    (60, 0.25, 3)
    """
    if not isinstance(value, timedelta):
        return value
    return value.total_seconds() if value.microseconds else value.days * 86400 + value.seconds


def _wrong(verb: str, problem: str) -> FlowError:
    return FlowError(f"{verb}() at {user_location()} {problem}")


def _is_number(value: Any) -> bool:
    return isinstance(value, int | float) and not isinstance(value, bool) and math.isfinite(value)


def _positive(verb: str, word: str, value: Any) -> int | float:
    if not _is_number(value) or value <= 0:
        raise _wrong(verb, f"needs {word}= above 0, a number or a timedelta, not {value!r}")
    return value  # type: ignore[no-any-return]


def _whole(verb: str, word: str, value: Any) -> int:
    if not isinstance(value, int) or isinstance(value, bool) or value < 1:
        raise _wrong(verb, f"with count= needs {word}= as a whole number from 1, not {value!r}")
    return value


def _lateness(verb: str, late: Any) -> int | float:
    value = seconds(late)
    if not _is_number(value) or value < 0:
        raise _wrong(verb, f"needs late= from 0, a number or a timedelta, not {late!r}")
    return value  # type: ignore[no-any-return]


def _checked_watermark(verb: str, watermark: Any) -> Literal["key", "stream"]:
    if watermark not in ("key", "stream"):
        raise _wrong(verb, f"needs watermark= 'key' or 'stream', not {watermark!r}")
    return watermark  # type: ignore[no-any-return]


def _check_attribute(verb: str, on: Any) -> None:
    if not isinstance(on, str) and not callable(on):
        raise _wrong(verb, f"needs on= as an attribute name or a function, not {on!r}")


def _attribute_name(on: Attribute) -> str:
    return repr(on) if isinstance(on, str) else getattr(on, "__name__", type(on).__name__) + "()"
