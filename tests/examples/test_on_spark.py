"""Every example delivers on Spark what it delivers locally."""

from __future__ import annotations

from collections.abc import Callable
from functools import partial
from pathlib import Path
from typing import Any

import pytest

import cdr
import data
import logwatch
import packets
import penstock as pn
import vwap
import wikiwords
import wordcount

pytestmark = pytest.mark.usefixtures("spark_session")


def _repr(rows: list[Any]) -> list[str]:
    return sorted(map(repr, rows))


def _results(build: Callable[..., pn.Flow], sinks: int, platform: str) -> list[list[Any]]:
    lists: list[list[Any]] = [[] for _ in range(sinks)]
    pn.run(build(*lists), on=platform)
    return lists


PROGRAMS: dict[str, tuple[Callable[..., pn.Flow], int]] = {
    "logwatch": (lambda found, suspects: logwatch.build(partial(data.log_lines, 20_000), found, suspects=suspects), 2),
    "wordcount": (lambda top, counts: wordcount.build(partial(data.text_lines, 300), top, counts=counts), 2),
    "cdr": (lambda stats, calls: cdr.build(cdr.MADE_UP, data.customers, stats, calls), 2),
    "vwap": (lambda best, bargains: vwap.build(vwap.MADE_UP, best, bargains=bargains), 2),
    "wikiwords": (
        lambda top, counts: wikiwords.build(list(data.page_edits(60, a_second=4)), top, often=5, counts=counts),
        2,
    ),
    "packets": (lambda alerts, bad, volumes: packets.build(alerts=alerts, malformed=bad, volumes=volumes), 3),
}


@pytest.mark.parametrize("name", PROGRAMS)
def test_the_same_as_locally(name: str) -> None:
    build, sinks = PROGRAMS[name]
    spark, local = (_results(build, sinks, platform) for platform in ("spark", "local"))
    assert any(local)
    for on_spark, on_local in zip(spark, local, strict=True):
        assert _repr(on_spark) == _repr(on_local)


def test_the_known_suspects_of_the_real_log(real_data: Callable[[str], Path]) -> None:
    log = pn.files.lines(real_data("logwatch/messages.gz"))
    found: list[Any] = []
    suspects: list[Any] = []
    pn.run(logwatch.build(log, found, attempts=50, seconds=600, suspects=suspects), on="spark")
    assert len(suspects) == 214
    assert found == []
