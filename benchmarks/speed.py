"""Start-up and run times of the command line, as ratios to bare interpreter starts measured in the same run.

    python benchmarks/speed.py [--runs N]

Prints the median of N runs: `kilter --help`, one captured node from process start to report, a live snapshot of this machine; and
scans replicated real log lines against `grep -cE` with the same words on the same file.
"""

from __future__ import annotations

import argparse
import os
import re
import statistics
import subprocess
import sys
import tempfile
import time
from pathlib import Path

ROOT = Path(__file__).parents[1]
DATA = ROOT / "tests" / "data"
#: Runs the command line, then says how much memory it took at most, KiB.
_PEAK = """
import re, resource, sys
from kilter.__main__ import main
try:
    main()
finally:
    print("peak", re.search(r"VmHWM:\\s+(\\d+)", open("/proc/self/status").read())[1],
          resource.getrusage(resource.RUSAGE_CHILDREN).ru_maxrss, file=sys.stderr)
"""


def seconds(argv: list[str], runs: int) -> float:
    """Median wall time of a command, with byte code cached as after an installation: the first run may write it and is not counted."""
    environment = {name: value for name, value in os.environ.items() if name != "PYTHONDONTWRITEBYTECODE"}
    times = []
    for _ in range(runs + 1):
        start = time.perf_counter()
        subprocess.run(argv, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL, check=False, env=environment)
        times.append(time.perf_counter() - start)
    return statistics.median(times[1:])


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--runs", type=int, default=11)
    parser.add_argument("--log-mb", type=int, default=200)
    arguments = parser.parse_args()
    kilter = [str(Path(sys.executable).parent / "kilter")]
    if not Path(kilter[0]).exists():
        kilter = [sys.executable, "-m", "kilter"]
    bare = seconds([sys.executable, "-c", "pass"], arguments.runs)
    print(f"python -c pass                       {bare * 1000:7.1f} ms   1.0x")
    for name, argv in (
        ("kilter --help", [*kilter, "--help"]),
        ("kilter diagnose 8x H100 (XML, 90 KB)", [*kilter, "diagnose", str(ROOT / "examples" / "8xh100-vm")]),
        (
            "kilter diagnose lspci -vvv (147 KB)",
            [*kilter, "diagnose", str(DATA / "s016-h100-xe9680-lspci-acs-harmless" / "lspci-vvv.txt")],
        ),
        (
            "kilter topo lspci -vvv (147 KB)",
            [*kilter, "topo", str(DATA / "s016-h100-xe9680-lspci-acs-harmless" / "lspci-vvv.txt")],
        ),
        ("kilter snapshot (this machine)", [*kilter, "snapshot"]),
    ):
        took = seconds(argv, arguments.runs)
        print(f"{name:<36} {took * 1000:7.1f} ms {took / bare:5.1f}x")
    logs(arguments.log_mb)


def logs(megabytes: int) -> None:
    """Logs of real lines, replicated: a kernel log among other lines; an NCCL log, of which every line is one to read; and a made one of
    a job of 1,024 ranks in which no line repeats."""
    noise = "".join(
        f"[{n}.{n:06d}] usb 1-{n % 7}: new high-speed USB device number {n % 127} using xhci_hcd\n" for n in range(2000)
    )
    one_log("kernel log", noise + (DATA / "s018-xid119-gsp-timeout-h100" / "dmesg.txt").read_text(), megabytes)
    one_log("NCCL log", (DATA / "s055-nccl-2xa800-shm-instead-of-p2p" / "nccl.log").read_text(), megabytes)
    one_log("NCCL log of many ranks", many_ranks(), max(1, megabytes // 10))


def many_ranks(ranks: int = 1024, per_node: int = 8, channels: int = 16) -> str:
    """What NCCL 2.20 prints of a job's start at NCCL_DEBUG=INFO, rank by rank."""
    lines = []
    for rank in range(ranks):
        node, device = divmod(rank, per_node)
        prefix = f"gpu-{node:03d}:{10000 + rank}:{10500 + rank} [{device}] NCCL INFO "
        comm = f"comm 0x55b9{rank:08x} rank {rank} n%sanks {ranks}"
        lines += [
            prefix + text
            for text in (
                "cudaDriverVersion 12040",
                f"Bootstrap : Using bond0:10.0.{node}.1<0>",
                "NET/IB : Using [0]mlx5_0:1/RoCE [1]mlx5_1:1/RoCE [2]mlx5_2:1/RoCE [3]mlx5_3:1/RoCE [RO]; OOB bond0:10.0.0.1<0>",
                "Using non-device net plugin version 0",
                "Using network IB",
                f"{comm % 'r'} cudaDev {device} nvmlDev {device} busId {device + 1:x}b000 commId 0x2253366728668019 - Init START",
                f"Setting affinity for GPU {device} to ffff,ffffff00,00000000",
                f"{comm % 'R'} nNodes {ranks // per_node} localRanks {per_node} localRank {device} MNNVL 0",
                "Trees " + " ".join(f"[{c}] {rank + 1}/-1/-1->{rank}->{rank - 1}" for c in range(channels)),
                "P2P Chunksize set to 131072",
                *(
                    f"Channel {c:02d}/0 : {rank}[{device}] -> {(rank + 1) % ranks}[{(device + 1) % per_node}] "
                    + (f"[send] via NET/IB/{c % 4}/GDRDMA" if device == per_node - 1 else "via P2P/CUMEM/read")
                    for c in range(channels)
                ),
                "Connected all rings",
                "threadThresholds 8/8/64 | 8192/8/64 | 512 | 512",
                f"{channels} coll channels, 0 nvls channels, {channels} p2p channels, 2 p2p channels per peer",
                f"ncclCommInitRank {comm % 'r'} cudaDev {device} nvmlDev {device} busId {device + 1:x}b000 - Init COMPLETE",
            )
        ]
    return "\n".join(lines) + "\n"


def one_log(what: str, text: str, megabytes: int) -> None:
    """Speed as a ratio to grep -cE with the same words; memory of ``kilter diagnose`` on the same file."""
    from kilter.intake import large_log
    from kilter.intake import logs as log_readers
    from kilter.intake.captures import nccl

    text *= max(1, megabytes * 1_000_000 // len(text))
    with tempfile.NamedTemporaryFile("w", suffix=".log") as file:
        file.write(text)
        file.flush()
        pattern = "|".join(re.escape(mark) for mark in (*log_readers.MARKS, *nccl.MARKS))
        start = time.perf_counter()
        subprocess.run(
            ["grep", "-cE", pattern, file.name], capture_output=True, check=False
        )  # into a pipe: with /dev/null grep stops early
        grep = time.perf_counter() - start
        start = time.perf_counter()
        found = large_log.scan(Path(file.name), file.name, year=2026)
        scan = time.perf_counter() - start
        child = [sys.executable, "-c", _PEAK, "diagnose", file.name]
        peaks = subprocess.run(child, capture_output=True, check=False, text=True).stderr.rpartition("peak ")[2].split()
    size = len(text) / 1e6
    events = len(found.kernel.events) + len(found.nccl.events)
    print(f"{what} of {size:.0f} MB: grep -cE {size / grep:.0f} MB/s, kilter {size / scan:.0f} MB/s, {events} events")
    print(
        f"    {grep / scan:.3f} of grep's speed; kilter diagnose of it takes {int(peaks[0]) >> 10} MiB, its largest helper {int(peaks[1]) >> 10} MiB"
    )


if __name__ == "__main__":
    main()
