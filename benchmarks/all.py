"""Every benchmark, one table after the other.

python benchmarks/all.py [--short]
"""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

HERE = Path(__file__).parent
BENCHMARKS = ["engines.py", "memory.py", "latency.py", "threading_models.py", "policies.py", "pipelined_fission.py"]
BENCHMARKS += ["model_accuracy.py"]


def main() -> None:
    for name in BENCHMARKS:
        subprocess.run([sys.executable, str(HERE / name), *sys.argv[1:]], check=True)
        print(flush=True)


if __name__ == "__main__":
    main()
