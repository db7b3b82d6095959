"""A keyed program to be run on a cluster: `python cluster_program.py MASTER LINES RESULT`."""

from __future__ import annotations

import json
import os
import sys
from pathlib import Path
from typing import Any

import penstock as pn

QUICK = "-XX:TieredStopAtLevel=1 -XX:+UseSerialGC"  # JVMs that live for seconds


def parse(line: str) -> dict[str, Any]:
    word, n = line.split()
    return {"word": word, "n": int(n)}


def mark(total: int, event: dict[str, Any]) -> tuple[int, dict[str, Any]]:
    return total + event["n"], {**event, "total": total + event["n"], "where": os.getpid()}


def build(lines: Path) -> tuple[pn.Flow, list[dict[str, Any]], list[Any]]:
    flow = pn.Flow("on a cluster")
    events = flow.source(pn.files.lines(lines)).map(parse).filter(lambda event: event["n"] % 3 != 0)
    totals = events.key_by("word").scan(mark, init=0)
    tens = totals.window(pn.tumbling(count=10, partial=True)).apply(lambda ten: sum(event["total"] for event in ten))
    return flow, totals.collect(), tens.collect()


def results(totals: list[dict[str, Any]], tens: list[Any]) -> dict[str, Any]:
    """What the run delivered, and how many processes worked on it."""
    places = {event.pop("where") for event in totals}
    return {"totals": totals, "tens": tens, "places": len(places)}


if __name__ == "__main__":
    master, lines, result = sys.argv[1:]
    settings = {
        "spark.driver.host": "127.0.0.1",
        "spark.driver.bindAddress": "127.0.0.1",
        "spark.driver.extraJavaOptions": QUICK,
        "spark.executor.extraJavaOptions": QUICK,
        "spark.executor.memory": "512m",
        "spark.cores.max": "2",
        # Both workers, not whichever came first.
        "spark.scheduler.minRegisteredResourcesRatio": "1.0",
        "spark.scheduler.maxRegisteredResourcesWaitingTime": "120s",
        "penstock.item.bytes": "256",
        "penstock.batch.items": "6",
    }
    flow, totals, tens = build(Path(lines))
    pn.run(flow, on="spark", master=master, conf=settings)
    Path(result).write_text(json.dumps(results(totals, tens)))
