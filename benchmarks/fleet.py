"""A folder of many snapshots diagnosed: CPU a snapshot against one millisecond, growth of time and memory with the number.

    python benchmarks/fleet.py [--nodes N]

Snapshots are the real captures of tests/data, each under many node names. The limit measured beside it is reading and decoding the same
JSON files, which nothing can undercut.
"""

from __future__ import annotations

import argparse
import json
import resource
import subprocess
import sys
import tempfile
import time
from pathlib import Path

DATA = Path(__file__).parents[1] / "tests" / "data"


def real_snapshots() -> list[dict[str, object]]:
    from kilter.intake.read import UnusableInput, read_paths
    from kilter.report.json import snapshot_json

    found = []
    for folder in sorted(DATA.glob("s0*")):
        try:
            case = read_paths([str(folder)])
        except UnusableInput:
            continue
        found += [json.loads(snapshot_json(one)) for one in case.snapshots]
    return found


def write(folder: Path, count: int) -> None:
    kinds = real_snapshots()
    for n in range(count):
        one = kinds[n % len(kinds)]
        one["node"] = f"node-{n:05d}"
        (folder / f"node-{n:05d}.json").write_text(json.dumps(one))


def measure(folder: str) -> None:
    """In a process of its own: CPU seconds of decoding alone, of the whole, findings, peak memory in MB."""
    import msgspec

    from kilter.diagnose.engine import diagnose
    from kilter.facts.case import Snapshot
    from kilter.intake.read import read_paths

    start = time.process_time()
    for path in Path(folder).iterdir():
        msgspec.json.decode(path.read_bytes(), type=Snapshot)
    floor = time.process_time() - start
    start = time.process_time()
    findings = len(diagnose(read_paths([folder])).findings)
    whole = time.process_time() - start
    print(json.dumps([floor, whole, findings, resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 1024]))


def main() -> None:
    parser = argparse.ArgumentParser()
    parser.add_argument("--nodes", type=int, default=10_000)
    parser.add_argument("--measure", metavar="FOLDER", help=argparse.SUPPRESS)
    arguments = parser.parse_args()
    if arguments.measure:
        measure(arguments.measure)
        return
    for count in (arguments.nodes // 10, arguments.nodes):
        with tempfile.TemporaryDirectory() as folder:
            write(Path(folder), count)
            done = subprocess.run([sys.executable, __file__, "--measure", folder], capture_output=True, text=True, check=True)
        floor, whole, findings, memory = json.loads(done.stdout)
        print(
            f"{count} snapshots: {whole / count * 1000:.2f} ms of CPU each ({whole / floor:.1f}x decoding them), "
            f"{findings} findings, {memory:.0f} MB at most"
        )


if __name__ == "__main__":
    main()
