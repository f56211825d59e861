"""A folder of many snapshots diagnosed: CPU a snapshot against one millisecond, growth of time and memory with the number.

    python benchmarks/fleet.py [--nodes N]

Snapshots are the real captures of tests/data, each under many node names. The whole command is measured, start and report included; the limit
beside it is a process that only decodes the same JSON files, which nothing can undercut.
"""

from __future__ import annotations

import argparse
import json
import os
import subprocess
import sys
import tempfile
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


def floor(folder: str) -> None:
    """Decode every file, and nothing else."""
    import msgspec

    from kilter.facts.case import Snapshot

    for path in Path(folder).iterdir():
        msgspec.json.decode(path.read_bytes(), type=Snapshot)


def spent(*command: str) -> tuple[float, float, str]:
    """(CPU seconds, peak memory in MB, output) of a process."""
    with tempfile.TemporaryFile("w+") as output:
        process = subprocess.Popen([sys.executable, *command], stdout=output)
        _, status, usage = os.wait4(process.pid, 0)
        output.seek(0)
        text = output.read()
    if os.waitstatus_to_exitcode(status) not in (0, 1):
        raise SystemExit(f"{command} failed")
    return usage.ru_utime + usage.ru_stime, usage.ru_maxrss / 1024, text


def main() -> None:
    parser = argparse.ArgumentParser()
    parser.add_argument("--nodes", type=int, default=10_000)
    parser.add_argument("--floor", metavar="FOLDER", help=argparse.SUPPRESS)
    arguments = parser.parse_args()
    if arguments.floor:
        floor(arguments.floor)
        return
    for count in (arguments.nodes // 10, arguments.nodes):
        with tempfile.TemporaryDirectory() as folder:
            write(Path(folder), count)
            least, _, _ = spent(__file__, "--floor", folder)
            cpu, memory, text = spent("-m", "kilter", "diagnose", folder)
        found = next(line for line in text.splitlines() if line.startswith("Findings:"))
        print(
            f"{count} snapshots, kilter diagnose: {cpu / count * 1000:.2f} ms of CPU each, {cpu / least:.1f} of decoding them only, "
            f"{memory:.0f} MB at most. {found}"
        )


if __name__ == "__main__":
    main()
