"""Peak memory of the five-function chain: flat however long the stream is.

    python benchmarks/memory.py [--short]

Each size runs in a process of its own; the peak is what the operating system says (ru_maxrss).
"""

from __future__ import annotations

import argparse
import multiprocessing
import resource
import sys
from pathlib import Path

sys.path.insert(0, str(Path(__file__).parent))

import penstock as pn
from engines import add_one, double, minus_seven, not_fifth, not_third
from measuring import report, table


def peak_megabytes(tuples: int) -> float:
    """The peak of this process after the chain has run over generated tuples."""
    flow = pn.Flow("memory")
    stream = flow.source(pn.beacon(count=tuples)).map(add_one).filter(not_third).map(double).filter(not_fifth)
    count = [0]

    def add(_: int) -> None:
        count[0] += 1

    stream.map(minus_seven).sink(add)
    pn.run(flow, on="local")
    assert count[0] > tuples // 3
    return resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 1024


def measure(sizes: list[int]) -> str:
    peaks = []
    for size in sizes:
        with multiprocessing.get_context("spawn").Pool(1) as pool:
            peaks.append(pool.apply(peak_megabytes, (size,)))
    report(f"peak at {sizes[-1] / 1e6:g} M tuples / at {sizes[0] / 1e6:g} M", max(peaks) / peaks[0], most=1.1)
    rows = [
        [f"{size / 1e6:g} M", f"{peak:.1f}", f"{peak / peaks[0]:.3f}×"] for size, peak in zip(sizes, peaks, strict=True)
    ]
    return table("Peak memory of the chain over generated tuples", ["tuples", "MB", f"/{sizes[0] / 1e6:g} M"], rows)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--short", action="store_true", help="up to 8 M tuples instead of 20 M")
    short = parser.parse_args().short
    print(measure([2_000_000, 4_000_000, 8_000_000] if short else [2_000_000, 5_000_000, 10_000_000, 20_000_000]))


if __name__ == "__main__":
    main()
