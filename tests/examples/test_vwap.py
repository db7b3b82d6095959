"""Bargains against a plain loop over all trades and quotes."""

from __future__ import annotations

import csv
import gzip
import math
from collections import defaultdict
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

import data
import penstock as pn
import vwap
from tests.conftest import RunFlow


def plain(rows: list[dict[str, str]], margin: float) -> list[tuple[float, str, float, float]]:
    """(time, symbol, ask, VWAP) of each quote that is more than `margin` per cent below the last minute's VWAP."""
    trades: dict[str, list[tuple[float, float, int]]] = defaultdict(list)
    found = []
    for row in rows:
        hours, minutes, seconds = map(float, row["Time[G]"].split(":"))
        now, symbol = 3600 * hours + 60 * minutes + seconds, row["#RIC"]
        if row["Type"] == "Trade" and row["Price"]:
            trades[symbol].append((now, float(row["Price"]), int(row["Volume"])))
        if row["Type"] == "Quote" and row["Ask Price"]:
            recent = [(price, shares) for ts, price, shares in trades[symbol] if now - ts <= 60]
            if not recent:
                continue
            average = math.fsum(price * shares for price, shares in recent) / sum(shares for _, shares in recent)
            ask = float(row["Ask Price"])
            if 100 * (average - ask) / average > margin:
                found.append((now, symbol, ask, average))
    return found


def check(run: RunFlow, source: Any, rows: list[dict[str, str]], margin: float) -> list[vwap.Bargain]:
    bargains: list[vwap.Bargain] = []
    best: list[list[vwap.Bargain]] = []
    run(vwap.build(source, best, margin=margin, bargains=bargains))
    expected = plain(rows, margin)
    assert [(b.ts, b.symbol, b.ask) for b in bargains] == [found[:3] for found in expected]
    assert [b.vwap for b in bargains] == pytest.approx([found[3] for found in expected])
    check_best(best, bargains)
    return bargains


def check_best(best: list[list[vwap.Bargain]], bargains: list[vwap.Bargain]) -> None:
    halves: dict[float, dict[str, vwap.Bargain]] = defaultdict(dict)
    for bargain in bargains:
        symbols = halves[bargain.ts // 30]
        symbols[bargain.symbol] = max(bargain, symbols.get(bargain.symbol, bargain))
    assert best == [sorted(symbols.values(), reverse=True)[:3] for symbols in halves.values()]


def test_made_up_ticks(run: RunFlow) -> None:
    rows = list(data.ticks(5_000))
    bargains = check(run, rows, rows, margin=0.1)
    assert any(bargain.score > 1 for bargain in bargains)  # the ones sold below the market


def test_an_offer_without_a_trade_in_the_last_minute_is_no_bargain(run: RunFlow) -> None:
    trade = {"#RIC": "A", "Time[G]": "10:00:00.000", "Type": "Trade", "Price": "10", "Volume": "100"}
    quote = {"#RIC": "A", "Type": "Quote", "Ask Price": "9", "Ask Size": "1"}
    rows = [{**quote, "Time[G]": f"{time}.000"} for time in ("09:59:59", "10:00:00", "10:01:00", "10:01:01")]
    bargains: list[Any] = []
    run(vwap.build([rows[0], trade, *rows[1:]], [], bargains=bargains))
    assert [(b.ts, b.vwap, b.score) for b in bargains] == [(36_000, 10, 10), (36_060, 10, 10)]


def test_real_trades_and_quotes(run: RunFlow, real_data: Callable[[str], Path]) -> None:
    path = real_data("vwap/TradesAndQuotes.csv.gz")
    with gzip.open(path, "rt") as file:
        rows = list(csv.DictReader(file))
    assert len(rows) == 29_999
    bargains = check(run, pn.files.csv(path), rows, margin=0.01)
    assert len(bargains) > 100
