"""Calls of a telephone company: duplicates dropped, customers' names added, average length of calls per customer.

    penstock run examples/cdr.py --on local
    penstock plan examples/cdr.py

The dashboard shows each customer's last five minutes, every five minutes; the records of all calls, with names, go to
a file of JSON lines (CDR_OUTPUT says where).
"""

from __future__ import annotations

import os
import tempfile
from functools import partial
from pathlib import Path
from typing import Any

import data
import penstock as pn

HOUR, MINUTE = 3600, 60
OUTPUT = os.environ.get("CDR_OUTPUT", Path(tempfile.gettempdir(), "penstock-calls.jsonl"))
MADE_UP = partial(data.calls, 600)


def with_name(call: dict[str, Any], customer: dict[str, str] | None) -> dict[str, Any]:
    """A caller who is no customer is unknown."""
    return {**call, "name": customer["name"] if customer is not None else "unknown"}


def show(stats: dict[str, Any]) -> None:
    """Print what happened up to a full five minutes; the windows in between are for finer displays."""
    if stats["window_end"] % (5 * MINUTE) == 0:
        bar = "▇" * round(stats["average"] / 10)
        print(f"{stats['window_end'] / MINUTE:5.0f} min  {stats['name']:<8} {stats['average']:6.1f} s  {bar}")


def build(
    calls: Any = MADE_UP, customers: Any = data.customers, dashboard: Any = show, database: Any = None
) -> pn.Flow:
    """`calls` have id, ts (seconds), caller and length; `customers` number and name; the rest are sinks."""
    flow = pn.Flow("cdr")
    customer_rows = flow.source(customers, name="Customers")
    records = flow.source(calls, name="Calls")
    unique = records.dedup("id", time=HOUR, on="ts", name="UniqueCalls")
    enriched = unique.enrich(
        customer_rows, key="caller", table_key="number", with_=with_name, wait=True, name="Enriched"
    )
    last_minutes = enriched.key_by("name").window(pn.sliding(time=5 * MINUTE, every=MINUTE, on="ts"))
    stats = last_minutes.aggregate(calls=pn.count(), average=pn.mean("length"), name="Stats")
    stats.sink(dashboard, name="Dashboard")
    enriched.sink(pn.files.write(OUTPUT) if database is None else database, name="Database")
    return flow


flow = build()

if __name__ == "__main__":
    pn.run(flow, on="local")
