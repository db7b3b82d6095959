"""Windows the slow way: each function goes through the whole stream again and follows the prose, nothing else.

A tuple is a dict with an event time `ts` (also the attribute of delta windows) and a value `v`; `at` is when it came.
"""

from __future__ import annotations

import math
from fractions import Fraction
from typing import Any

Tuples = list[dict[str, Any]]


def tumbling_count(tuples: Tuples, n: int, partial: bool = False) -> list[Tuples]:
    cut = [tuples[i : i + n] for i in range(0, len(tuples), n)]
    return [w for w in cut if len(w) == n or partial]


def tumbling_delta(tuples: Tuples, delta: float, partial: bool = False) -> list[Tuples]:
    fired: list[Tuples] = []
    window: Tuples = []
    for t in tuples:
        if window and t["ts"] - window[0]["ts"] > delta:
            fired.append(window)
            window = []
        window = [*window, t]
    return [*fired, window] if window and partial else fired


def tumbling_time(tuples: Tuples, seconds: float, partial: bool = False) -> list[Tuples]:
    fired: list[Tuples] = []
    window: Tuples = []
    for t in tuples:
        if window and t["at"] >= window[0]["at"] + seconds:
            fired.append(window)
            window = []
        window = [*window, t]
    return [*fired, window] if window and partial else fired


def sliding_count(tuples: Tuples, n: int, every: int = 1, partial: bool = False) -> list[Tuples]:
    fired = []
    for i in range(1, len(tuples) + 1):
        window = tuples[max(0, i - n) : i]
        if i % every == 0 and (len(window) == n or partial):
            fired.append(window)
    return fired


def sliding_delta(tuples: Tuples, delta: float, every: float | None = None) -> list[Tuples]:
    fired: list[Tuples] = []
    window: Tuples = []
    last = None
    for t in tuples:
        window = [w for w in window if not t["ts"] - w["ts"] > delta] + [t]
        last = t["ts"] if last is None else last
        if every is None or t["ts"] >= last + every:
            fired.append(window)
            last = t["ts"]
    return fired


def sliding_time(tuples: Tuples, seconds: float, every: float | None = None) -> list[Tuples]:
    """Up to the arrival of the last tuple."""
    if every is None:
        return [[w for w in tuples[: i + 1] if t["at"] - w["at"] < seconds] for i, t in enumerate(tuples)]
    fired = []
    if tuples:
        first, end = tuples[0]["at"], tuples[-1]["at"]
        k = 1
        while first + k * every <= end:
            at = first + k * every
            window = [w for w in tuples if w["at"] < at and at - w["at"] < seconds]
            if window:
                fired.append(window)
            k += 1
    return fired


def event_time(
    tuples: Tuples, size: float, step: float, late: float = 0
) -> tuple[list[tuple[float, float, Tuples]], Tuples]:
    """(start, end, tuples) of each window in order of firing, and the late tuples."""
    exact_size, exact_step = Fraction(str(size)), Fraction(str(step))
    windows: dict[Fraction, Tuples] = {}
    dropped: Tuples = []
    newest = -math.inf
    for t in tuples:
        newest = max(newest, t["ts"])
        mine = []
        k = math.floor(Fraction(str(t["ts"])) / exact_step) + 1
        while (start := k * exact_step) + exact_size > Fraction(str(t["ts"])):
            if start <= Fraction(str(t["ts"])):
                mine.append(start)
            k -= 1
        still_open = [s for s in mine if Fraction(str(newest)) < s + exact_size + Fraction(str(late))]
        if mine and not still_open:
            dropped.append(t)
        for start in still_open:
            windows.setdefault(start, []).append(t)
    return [(s, s + exact_size, windows[s]) for s in sorted(windows)], dropped


def sessions(tuples: Tuples, gap: float, late: float = 0) -> tuple[list[tuple[float, float, Tuples]], Tuples]:
    """(start, end, tuples) of each session in order of firing, and the late tuples."""
    fired: list[tuple[float, float, Tuples]] = []
    open_: list[Tuples] = []
    dropped: Tuples = []
    newest = -math.inf

    def bounds(session: Tuples) -> tuple[float, float]:
        times = [t["ts"] for t in session]
        return min(times), max(times) + gap

    def close(until: float) -> None:
        for session in sorted(open_, key=lambda s: bounds(s)[1]):
            if until - late >= bounds(session)[1]:
                fired.append((*bounds(session), session))
                open_.remove(session)

    for number, t in enumerate(tuples):
        t = {**t, "number": number}
        newest = max(newest, t["ts"])
        close(newest)
        near = [s for s in open_ if bounds(s)[0] - gap < t["ts"] < bounds(s)[1]]
        if not near and newest - late >= t["ts"] + gap:
            dropped.append(t)
            continue
        for s in near:
            open_.remove(s)
        open_.append(sorted([*(x for s in near for x in s), t], key=lambda x: x["number"]))
    close(math.inf)
    without = [(a, b, [{k: v for k, v in t.items() if k != "number"} for t in s]) for a, b, s in fired]
    return without, [{k: v for k, v in t.items() if k != "number"} for t in dropped]
