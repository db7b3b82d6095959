"""Penstock beside Bytewax, streamz and a hand-written loop, on three programs, one thread each.

    python benchmarks/engines.py [--short]

* chain: five functions, map/filter/map/filter/map, over integers
* running count: a count per key, 1,000 keys
* window mean: the mean of each minute of event time per key, 1,000 keys

All contenders read the same list and must produce the same results. The slow ones get fewer tuples: rates compare.
"""

from __future__ import annotations

import argparse
import sys
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any

sys.path.insert(0, str(Path(__file__).parent))

import penstock as pn
from measuring import Contender, check_equal, rates, report, table

KEYS, MINUTE = 1000, 60


# ------------------------------------------------------------------------------------------------------------- chain


def add_one(n: int) -> int:
    return n + 1


def not_third(n: int) -> bool:
    return n % 3 != 0


def double(n: int) -> int:
    return n * 2


def not_fifth(n: int) -> bool:
    return n % 5 != 0


def minus_seven(n: int) -> int:
    return n - 7


def chain_loop(data: list[int]) -> list[int]:
    out = []
    for n in data:
        n = add_one(n)
        if not_third(n):
            n = double(n)
            if not_fifth(n):
                out.append(minus_seven(n))
    return out


def chain_penstock(data: list[int]) -> list[int]:
    flow = pn.Flow("chain")
    stream = flow.source(data).map(add_one).filter(not_third).map(double).filter(not_fifth).map(minus_seven)
    out = stream.collect()
    pn.run(flow, on="local")
    return out


def chain_bytewax(data: list[int]) -> list[int]:
    import bytewax.operators as op
    from bytewax.dataflow import Dataflow
    from bytewax.testing import TestingSink, TestingSource, run_main

    flow, out = Dataflow("chain"), []
    stream = op.input("in", flow, TestingSource(data, batch_size=512))
    stream = op.map("a", stream, add_one)
    stream = op.filter("b", stream, not_third)
    stream = op.map("c", stream, double)
    stream = op.filter("d", stream, not_fifth)
    stream = op.map("e", stream, minus_seven)
    op.output("out", stream, TestingSink(out))
    run_main(flow)
    return out


def chain_streamz(data: list[int]) -> list[int]:
    from streamz import Stream

    source, out = Stream(), []
    source.map(add_one).filter(not_third).map(double).filter(not_fifth).map(minus_seven).sink(out.append)
    for n in data:
        source.emit(n)
    return out


# ----------------------------------------------------------------------------------------------------- running count


def events(count: int) -> list[dict[str, Any]]:
    """Events of 1,000 keys in turn, a key once a second, so that a minute holds 60 of each."""
    return [{"key": f"k{i % KEYS}", "ts": i // KEYS, "value": i % 97} for i in range(count)]


def count_loop(data: list[dict[str, Any]]) -> list[tuple[str, int]]:
    counts: dict[str, int] = {}
    out = []
    for event in data:
        key = event["key"]
        n = counts.get(key, 0) + 1
        counts[key] = n
        out.append((key, n))
    return out


def count_step(n: int, event: dict[str, Any]) -> tuple[int, tuple[str, int]]:
    n += 1
    return n, (event["key"], n)


def count_penstock(data: list[dict[str, Any]]) -> list[tuple[str, int]]:
    flow = pn.Flow("count")
    out = flow.source(data).key_by("key").scan(count_step, init=0).collect()
    pn.run(flow, on="local")
    return out


def count_bytewax(data: list[dict[str, Any]]) -> list[tuple[str, int]]:
    import bytewax.operators as op
    from bytewax.dataflow import Dataflow
    from bytewax.testing import TestingSink, TestingSource, run_main

    flow, out = Dataflow("count"), []
    stream = op.input("in", flow, TestingSource(data, batch_size=512))
    keyed = op.key_on("key", stream, lambda event: event["key"])
    counted = op.stateful_map("count", keyed, lambda n, _: ((n or 0) + 1, (n or 0) + 1))
    op.output("out", counted, TestingSink(out))
    run_main(flow)
    return out


def count_streamz(data: list[dict[str, Any]]) -> list[tuple[str, int]]:
    from streamz import Stream

    def step(counts: dict[str, int], event: dict[str, Any]) -> tuple[dict[str, int], tuple[str, int]]:
        key = event["key"]
        counts[key] = counts.get(key, 0) + 1
        return counts, (key, counts[key])

    source, out = Stream(), []
    source.accumulate(step, start={}, returns_state=True).sink(out.append)
    for event in data:
        source.emit(event)
    return out


# ------------------------------------------------------------------------------------------------------- window mean


def mean_loop(data: list[dict[str, Any]]) -> list[tuple[str, int, float]]:
    open_windows: dict[str, list[Any]] = {}
    out = []
    for event in data:
        key, start = event["key"], event["ts"] // MINUTE * MINUTE
        window = open_windows.get(key)
        if window is None:
            open_windows[key] = [start, 1, event["value"]]
        elif window[0] == start:
            window[1] += 1
            window[2] += event["value"]
        else:
            out.append((key, window[0], window[2] / window[1]))
            window[0], window[1], window[2] = start, 1, event["value"]
    out += [(key, window[0], window[2] / window[1]) for key, window in open_windows.items()]
    return out


def mean_penstock(data: list[dict[str, Any]]) -> list[dict[str, Any]]:
    flow = pn.Flow("mean")
    windows = flow.source(data).key_by("key").window(pn.tumbling(time=MINUTE, on="ts"))
    out = windows.aggregate(mean=pn.mean("value")).collect()
    pn.run(flow, on="local")
    return out


EPOCH = datetime(2020, 1, 1, tzinfo=UTC)


def mean_bytewax(data: list[dict[str, Any]]) -> list[tuple[str, int, float]]:
    import bytewax.operators as op
    import bytewax.operators.windowing as win
    from bytewax.dataflow import Dataflow
    from bytewax.testing import TestingSink, TestingSource, run_main

    flow, out = Dataflow("mean"), []
    stream = op.input("in", flow, TestingSource(data, batch_size=512))
    keyed = op.key_on("key", stream, lambda event: event["key"])
    clock = win.EventClock(lambda event: EPOCH + timedelta(seconds=event["ts"]), wait_for_system_duration=timedelta(0))
    windower = win.TumblingWindower(length=timedelta(seconds=MINUTE), align_to=EPOCH)
    means = win.fold_window(
        "mean",
        keyed,
        clock,
        windower,
        lambda: (0, 0),
        lambda state, event: (state[0] + 1, state[1] + event["value"]),
        lambda a, b: (a[0] + b[0], a[1] + b[1]),
    )
    shaped = op.map("shape", means.down, lambda t: (t[0], t[1][0] * MINUTE, t[1][1][1] / t[1][1][0]))
    op.output("out", shaped, TestingSink(out))
    run_main(flow)
    return out


def mean_streamz(data: list[dict[str, Any]]) -> list[tuple[str, int, float]]:
    from streamz import Stream

    def step(windows: dict[str, list[Any]], event: dict[str, Any]) -> tuple[dict[str, list[Any]], list[Any]]:
        key, start = event["key"], event["ts"] // MINUTE * MINUTE
        window = windows.get(key)
        if window is None or window[0] != start:
            windows[key] = [start, 1, event["value"]]
            return windows, [] if window is None else [(key, window[0], window[2] / window[1])]
        window[1] += 1
        window[2] += event["value"]
        return windows, []

    source, out, last = Stream(), [], {}
    source.accumulate(step, start=last, returns_state=True).flatten().sink(out.append)
    for event in data:
        source.emit(event)
    out += [(key, window[0], window[2] / window[1]) for key, window in last.items()]
    return out


def _as_triples(result: list[Any]) -> list[tuple[Any, ...]]:
    plain = [(w["key"], w["window_start"], w["mean"]) if isinstance(w, dict) else w for w in result]
    return sorted(plain)


# ----------------------------------------------------------------------------------------------------------- running

PROGRAMS: dict[str, tuple[Any, dict[str, Any], Any]] = {
    "chain": (
        lambda count: list(range(count)),
        {"loop": chain_loop, "penstock": chain_penstock, "bytewax": chain_bytewax, "streamz": chain_streamz},
        list,
    ),
    "running count": (
        events,
        {"loop": count_loop, "penstock": count_penstock, "bytewax": count_bytewax, "streamz": count_streamz},
        sorted,
    ),
    "window mean": (
        events,
        {"loop": mean_loop, "penstock": mean_penstock, "bytewax": mean_bytewax, "streamz": mean_streamz},
        _as_triples,
    ),
}
# The slow contenders get a part of the data, or a round would take minutes.
PART = {
    "chain": {"streamz": 20},
    "running count": {"streamz": 10, "bytewax": 4},
    "window mean": {"streamz": 10, "bytewax": 20},
}
LOOP = {"chain": 0.85, "running count": 0.6, "window mean": 0.6}  # of the hand-written loop, asked


def measure(count: int, rounds: int) -> str:
    """The table of all programs and contenders."""
    rows = []
    for program, (make, contenders, shape) in PROGRAMS.items():
        small = make(50_000)
        check_equal({name: shape(run(small)) for name, run in contenders.items()})
        data = make(count)
        entries = []
        for name, run in contenders.items():
            tuples = count // PART[program].get(name, 1)
            part = data if tuples == count else data[:tuples]
            entries.append(Contender(name, lambda run=run, part=part: run(part), tuples))
        got = rates(entries, rounds)
        print(program, *(f"{name} {rate / 1e6:.2f}" for name, rate in got.items()), file=sys.stderr, flush=True)
        report(f"{program} / hand-written loop", got["penstock"] / got["loop"], least=LOOP[program])
        report(f"{program} / Bytewax", got["penstock"] / got["bytewax"], least=2.5)
        rows.append(
            [
                program,
                *(f"{got[name] / 1e6:.2f}" for name in ("penstock", "loop", "bytewax", "streamz")),
                f"{got['penstock'] / got['loop']:.2f}×",
                f"{got['penstock'] / got['bytewax']:.1f}×",
                f"{got['penstock'] / got['streamz']:.0f}×",
            ]
        )
    headings = ["M tuples/s", "penstock", "loop", "bytewax", "streamz", "/loop", "/bytewax", "/streamz"]
    return table(f"Engines, one thread, {count / 1e6:g} M tuples, median of {rounds}", headings, rows)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--short", action="store_true", help="fewer rounds")
    arguments = parser.parse_args()
    print(measure(2_000_000, 3 if arguments.short else 7))


if __name__ == "__main__":
    main()
