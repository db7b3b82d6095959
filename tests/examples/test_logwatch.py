"""LogWatch against a plain loop over the log, on made-up and on real logs."""

from __future__ import annotations

import gzip
import itertools
from collections import defaultdict
from collections.abc import Callable, Iterable
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import pytest

import data
import logwatch
import penstock as pn
from tests.conftest import RunFlow

HONEST = {"ada", "grace", "edsger", "barbara"}
RULES = [(5, 60, 120), (10, 120, 120), (50, 600, 600), (300, 3600, 3600)]


def seconds_of(line: str) -> float:
    return datetime.strptime(f"2024 {line[:15]}", "%Y %b %d %H:%M:%S").replace(tzinfo=UTC).timestamp()


def word_after(line: str, mark: str) -> str:
    rest = line.partition(mark)[2].split(" ")
    return rest[0].strip()


def plain(lines: Iterable[str], attempts: int, seconds: float, within: float) -> tuple[int, list[tuple[Any, ...]]]:
    """The number of suspects, and the break-ins, by the rules and nothing else."""
    open_windows: dict[str, list[str]] = defaultdict(list)
    suspects, breakins = [], []
    for line in lines:
        if " sshd" not in line:
            continue
        if "authentication failure" in line:
            host = word_after(line, " rhost=")
            window = open_windows[host]
            window.append(line)
            if len(window) == attempts:
                first, last = seconds_of(window[0]), seconds_of(window[-1])
                if last - first < seconds:
                    suspects.append((last, host, {word_after(failure, " user=") for failure in window}))
                window.clear()
        elif "session opened for user" in line:
            user, time = word_after(line, "for user "), seconds_of(line)
            hosts = [host for last, host, users in suspects if user in users and time - last <= within]
            if hosts:
                breakins.append((time, hosts[-1], user, attempts * hosts.count(hosts[-1])))
    return len(suspects), breakins


def run_logwatch(run: RunFlow, log: Any, attempts: int, seconds: float, within: float) -> tuple[int, list[Any]]:
    suspects: list[Any] = []
    breakins: list[Any] = []
    run(logwatch.build(log, breakins, attempts=attempts, seconds=seconds, within=within, suspects=suspects))
    return len(suspects), breakins


def test_it_is_the_chain_of_the_paper() -> None:
    graph = logwatch.build().graph()
    assert [(node.name, node.kind, str(node.key or "")) for node in graph] == [
        ("RawLines", "stateful", ""),
        ("Lines", "stateless", ""),
        ("ParsedLines", "stateless", ""),
        ("RawEvents", "stateless", ""),
        ("Events", "stateless", ""),
        ("Range", "partitioned", "rhost"),
        ("Cutoff", "stateless", ""),
        ("RealTime", "stateless", ""),
        ("Breakins", "partitioned", "user"),
        ("Results", "stateful", ""),
    ]


def test_finds_every_planted_breakin_and_no_other(run: RunFlow) -> None:
    lines = list(data.log_lines(40_000))
    planted = [
        (seconds_of(line), word_after(before, " rhost="), word_after(line, "for user "))
        for before, line in itertools.pairwise(lines)
        if "session opened" in line and word_after(line, "for user ") not in HONEST
    ]
    breakins: list[Any] = []
    run(logwatch.build(lines, breakins))
    assert len(planted) >= 3
    assert [(found.time, found.rhost, found.user) for found in breakins] == planted


@pytest.mark.parametrize("rules", RULES)
def test_made_up_log_agrees_with_a_plain_loop(rules: tuple[int, float, float], run: RunFlow) -> None:
    lines = list(data.log_lines(20_000, seed=99))
    assert run_logwatch(run, lines, *rules) == plain(lines, *rules)


def failure(time: str, host: str = "192.0.2.1") -> str:
    return f"{time} gate sshd[1]: authentication failure; uid=0 rhost={host}  user=root"


def login(time: str) -> str:
    return f"{time} gate sshd[1]: session opened for user root by (uid=0)"


@pytest.mark.parametrize(
    ("failed", "opened"),
    [
        ("Dec 31 23:59:50", "Jan  1 00:00:10"),
        ("Feb 29 12:00:00", "Feb 29 12:00:20"),
        ("May  9 23:59:59", "May 10 00:00:01"),
    ],
)
def test_breakin_is_found_on_every_date(failed: str, opened: str, run: RunFlow) -> None:
    lines = [failure(failed)] * 10 + [login(opened)]
    breakins: list[Any] = []
    run(logwatch.build(lines, breakins))
    assert [(found.user, found.rhost, found.attempts) for found in breakins] == [("root", "192.0.2.1", 10)]


def test_what_lies_far_apart_across_new_year_has_nothing_to_do_with_each_other(run: RunFlow) -> None:
    slow = [failure("Dec 30 12:00:00")] * 5 + [failure("Jan  2 12:00:00")] * 5
    assert run_logwatch(run, slow, 10, 3600, 3600) == (0, [])
    forgotten = [failure("Dec 31 12:00:00")] * 10 + [login("Mar  1 12:00:00")]
    assert run_logwatch(run, forgotten, 10, 3600, 3600) == (1, [])


def test_the_last_of_several_attackers_is_named_with_its_own_attempts(run: RunFlow) -> None:
    first = [failure("May  9 10:00:00", "192.0.2.1")] * 20
    last = [failure("May  9 10:00:05", "192.0.2.2")] * 10
    _, breakins = run_logwatch(run, [*first, *last, login("May  9 10:00:10")], 10, 60, 60)
    assert [(found.rhost, found.attempts) for found in breakins] == [("192.0.2.2", 10)]


def test_failures_that_took_too_long_are_no_suspect(run: RunFlow) -> None:
    lines = [failure(f"May  9 10:00:{second:02}") for second in range(0, 50, 5)]
    assert run_logwatch(run, lines, 10, 45, 60) == (0, [])
    assert run_logwatch(run, lines, 10, 46, 60) == (1, [])


def test_lines_of_other_programs_and_formats_are_passed_over(run: RunFlow) -> None:
    lines = [failure("May  9 10:00:00").replace("sshd", "su"), "", "-- MARK --", "May 9"]
    assert run_logwatch(run, lines, 1, 60, 60) == (0, [])


# --------------------------------------------------------------------------------------------------- real logs


def read(path: Path) -> list[str]:
    with gzip.open(path, "rt") as file:
        return file.read().splitlines()


def test_real_log_has_the_known_failures_and_successes(real_data: Callable[[str], Path]) -> None:
    lines = map(logwatch.parse, read(real_data("logwatch/messages.gz")))
    events = [logwatch.to_event(line) for line in lines if logwatch.is_event(line)]
    assert sum(event.rhost is not None for event in events) == 11_323
    assert sum(event.rhost is None for event in events) == 23


@pytest.mark.parametrize(("attempts", "seconds", "suspects"), [(300, 3600, 31), (50, 600, 214), (5, 60, 2_231)])
def test_real_log_has_the_known_suspects_and_no_breakin(
    attempts: int, seconds: float, suspects: int, run: RunFlow, real_data: Callable[[str], Path]
) -> None:
    log = pn.files.lines(real_data("logwatch/messages.gz"))
    assert run_logwatch(run, log, attempts, seconds, within=120) == (suspects, [])


def test_real_log_with_breakins(run: RunFlow, real_data: Callable[[str], Path]) -> None:
    log = pn.files.lines(real_data("logwatch/messages_broken.gz"))
    _, breakins = run_logwatch(run, log, 5, 60, within=120)
    assert [(found.user, found.rhost) for found in breakins] == [
        ("ftp", "123.176.40.122"),
        ("root", "196.216.72.50"),
        ("root", "visiting.hurry.volia.net"),
    ]


@pytest.mark.parametrize("rules", RULES)
def test_real_log_with_breakins_agrees_with_a_plain_loop(
    rules: tuple[int, float, float], run: RunFlow, real_data: Callable[[str], Path]
) -> None:
    path = real_data("logwatch/messages_broken.gz")
    assert run_logwatch(run, pn.files.lines(path), *rules) == plain(read(path), *rules)
