"""How long a plan takes for captured nodes with eight GPUs, beside a bare interpreter: ``python benchmarks/tune_plan.py``."""

from __future__ import annotations

import statistics
import subprocess
import sys
import time
from pathlib import Path

ROOT = Path(__file__).parents[1]
CASES = {
    "8x H100, nvidia-smi -q -x and more": [str(ROOT / "examples" / "8xh100-vm")],
    "8x H100 serving node": [
        str(ROOT / "examples" / "serving-isolcpus" / "node.txt"),
        "-w",
        str(ROOT / "examples" / "serving-isolcpus" / "workload.yaml"),
    ],
}
RUNS = 7


def timed(argv: list[str]) -> float:
    times = []
    for _ in range(RUNS):
        start = time.perf_counter()
        subprocess.run(argv, capture_output=True, check=False)
        times.append(time.perf_counter() - start)
    return statistics.median(times)


def main() -> None:
    bare = timed([sys.executable, "-c", "pass"])
    for name, argv in CASES.items():
        spent = timed([sys.executable, "-m", "kilter", "tune", "plan", *argv])
        print(f"tune plan, {name}: {spent * 1000:.0f} ms (asked below 700), {spent / bare:.1f} bare interpreter starts")


if __name__ == "__main__":
    main()
