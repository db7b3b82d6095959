"""Bargains on a stock exchange: offers below the volume-weighted average price (VWAP) of the last minute.

    penstock run examples/vwap.py --on local
    VWAP_FILE=TradesAndQuotes.csv.gz penstock run examples/vwap.py --on local

Without a file it reads made-up trades and quotes. The file has the columns #RIC (the symbol), Time[G], Type, Price,
Volume, Ask Price and Ask Size.
"""

from __future__ import annotations

import heapq
import os
from collections.abc import Iterator
from functools import partial
from typing import Any, NamedTuple

import data
import penstock as pn

FILE = os.environ.get("VWAP_FILE")
MADE_UP = partial(data.ticks, 10_000)


class Tick(NamedTuple):
    """A trade, or a quote: an offer to sell `size` shares at `ask`. A quote moves no money and no shares yet."""

    ts: float  # seconds since midnight
    symbol: str
    money: float = 0.0
    shares: int = 0
    ask: float = 0.0
    size: int = 0


class Bargain(NamedTuple):
    score: float  # how far below the VWAP, in per cent
    ts: float
    symbol: str
    ask: float
    vwap: float
    size: int


def parse(row: dict[str, str]) -> Iterator[Tick]:
    """One tick a row, none of rows that have no price (they correct other things)."""
    hours, minutes, seconds = row["Time[G]"].split(":")
    ts = int(hours) * 3600 + int(minutes) * 60 + float(seconds)
    if row["Type"] == "Trade" and row["Price"]:
        shares = int(row["Volume"])
        yield Tick(ts, row["#RIC"], money=float(row["Price"]) * shares, shares=shares)
    elif row["Type"] == "Quote" and row["Ask Price"]:
        yield Tick(ts, row["#RIC"], ask=float(row["Ask Price"]), size=int(row["Ask Size"] or 0))


def to_bargain(margin: float, row: dict[str, Any]) -> Iterator[Bargain]:
    """`row` is the window as one tick left it: a bargain if that is a quote well below what others have paid."""
    tick = row["tick"]
    if tick.ask and row["shares"]:
        vwap = row["money"] / row["shares"]
        score = 100 * (vwap - tick.ask) / vwap
        if score > margin:
            yield Bargain(score, tick.ts, tick.symbol, tick.ask, vwap, tick.size)


def three_best(bargains: list[Bargain]) -> list[Bargain]:
    """Of each symbol the best, and of those the three best."""
    best = {bargain.symbol: bargain for bargain in sorted(bargains)}
    return heapq.nlargest(3, best.values())


def print_best(bargains: list[Bargain]) -> None:
    for b in bargains:
        clock = f"{int(b.ts) // 3600:02}:{int(b.ts) // 60 % 60:02}:{b.ts % 60:06.3f}"
        print(f"{clock}  {b.symbol:<5} {b.size:3} at {b.ask:8.2f}, {b.score:5.2f} % below the average of {b.vwap:8.2f}")


def build(ticks: Any = MADE_UP, best: Any = print_best, *, margin: float = 0.1, bargains: Any = None) -> pn.Flow:
    """`best` receives the three best of each half minute, `bargains` (if given) all of more than `margin` per cent."""
    flow = pn.Flow("vwap")
    parsed = flow.source(ticks, name="TradesAndQuotes").flat_map(parse, name="Ticks")
    # Trades and quotes share one window per symbol: a quote adds nothing to the sums, but it sees them as they are.
    last_minute = parsed.key_by("symbol").window(pn.sliding(delta=60, on="ts"))
    vwap = last_minute.aggregate(money=pn.sum("money"), shares=pn.sum("shares"), tick=pn.last(), name="VWAP")
    found = vwap.flat_map(partial(to_bargain, margin), name="Bargains")
    found.window(pn.tumbling(time=30, on="ts")).apply(three_best, name="Best").sink(best, name="Results")
    if bargains is not None:
        found.sink(bargains, name="AllBargains")
    return flow


flow = build(pn.files.csv(FILE) if FILE else MADE_UP)

if __name__ == "__main__":
    pn.run(flow, on="local")
