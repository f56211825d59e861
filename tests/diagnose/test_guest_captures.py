"""Errors that a real kernel, perftest and rdma-core told in a guest (tests/data/guest-linux-6.1), read to their end."""

from __future__ import annotations

from pathlib import Path

import pytest

from kilter.diagnose.engine import diagnose
from kilter.facts.finding import Diagnosis, Finding
from kilter.intake.read import read_paths

DATA = Path(__file__).parents[1] / "data" / "guest-linux-6.1"


def judged(name: str) -> Diagnosis:
    return diagnose(read_paths([str(DATA / name)]))


def loud(name: str) -> list[Finding]:
    return [f for f in judged(name).findings if f.severity.rank >= 1]


@pytest.mark.parametrize(
    ("name", "finding", "severity", "words"),
    [
        ("wrong_gid.client.txt", "bench.failed", "error", "queue pair cannot be connected with GID index 9"),
        ("no_device.client.txt", "bench.failed", "error", "(mlx5_9) failed: the named RDMA device is not there"),
        ("memlock.client.txt", "bench.failed", "error", "memory cannot be registered"),
        ("gone.client.txt", "bench.failed", "error", "broke while it was measured"),
        ("oom-cgroup-dmesg.txt", "host.oom_kill", "warning", "killed hog (limit of a cgroup)"),
        ("hung-dmesg.txt", "host.hung_task", "warning", "touch (over 20 s)"),
        ("ext4-dmesg.txt", "host.storage_error", "error", "device loop0"),
        ("nvme-gone-dmesg.txt", "host.storage_error", "error", "nvme0n1"),
        ("mce-dmesg.txt", "host.machine_check", "error", "uncorrected machine check of the CPU cache"),
    ],
)
def test_fault_is_the_only_finding(name: str, finding: str, severity: str, words: str) -> None:
    (found,) = loud(name)
    assert (found.id, found.severity.value) == (finding, severity)
    assert words in found.what


@pytest.mark.parametrize(
    "name",
    [
        "boot-dmesg.txt",
        "segfault-dmesg.txt",  # of a program that has nothing to do with GPUs
        "no_server.client.txt",  # nothing was measured: information
        "ib_write_bw.client.txt",
        "ib_write_bw_a.client.txt",
        "ib_write_bw_gbits.client.txt",
        "ib_read_bw.client.txt",
        "ib_send_bw_bi.client.txt",
        "ib_send_lat.client.txt",
        "ibstat.txt",
        "ibv_devinfo.txt",
    ],
)
def test_no_alarm(name: str) -> None:
    assert loud(name) == []


def test_aer_errors_are_told_and_the_removal_that_was_asked_for_is_not() -> None:
    found = {(f.id, f.subject.name): f for f in loud("aer-and-removal-dmesg.txt")}
    assert set(found) == {("pcie.aer.uncorrected", "0000:03:00.0"), ("pcie.aer.uncorrected", "0000:00:02.0")}
    assert "CmpltTO" in found["pcie.aer.uncorrected", "0000:00:02.0"].what
    assert "DLP" in found["pcie.aer.uncorrected", "0000:03:00.0"].what


def test_a_slot_without_power_is_a_function_that_does_not_answer() -> None:
    found = [f for f in loud("d3cold-boot-dmesg.txt") if f.id == "pcie.device_inaccessible"]
    assert {f.subject.name for f in found} == {"0000:01:00.0", "0000:04:00.0"}
    assert "driver e1000e" in found[0].what


def test_call_trace_of_a_blocked_task_names_what_it_waits_for() -> None:
    (found,) = loud("hung-dmesg.txt")
    assert "frozen file system" in found.causes[0].text
    assert any("mnt_want_write" in e.text for e in found.evidence)


@pytest.mark.parametrize(
    "names", [("rasdaemon.txt",), ("ras_errors.txt",), ("ras-dmesg.txt",), ("ras-dmesg.txt", "ras_errors.txt", "rasdaemon.txt")]
)
def test_kernel_rasdaemon_and_its_database_tell_of_the_same_errors_once(names: tuple[str, ...]) -> None:
    found = {(f.id, f.subject.name): f for f in diagnose(read_paths([str(DATA / name) for name in names])).findings}
    assert set(found) == {
        ("pcie.aer.uncorrected", "0000:03:00.0"),
        ("pcie.aer.uncorrected", "0000:00:02.0"),
        ("host.machine_check", ""),
        ("host.machine_check_corrected", ""),
    }
    assert {f.id: f.count for f in found.values()} == {
        "pcie.aer.uncorrected": 1,
        "host.machine_check": 1,
        "host.machine_check_corrected": 2,
    }
    assert "memory controller" in found["host.machine_check_corrected", ""].what
    assert "CPU cache" in found["host.machine_check", ""].what


TRACE = """\
[ 400.0] INFO: task {name}:99 blocked for more than 120 seconds.
[ 400.0]       Tainted: P           OE     6.1.0 #1
[ 400.0] task:{name}   state:D stack:0     pid:99   ppid:1      flags:0x00000002
[ 400.0] Call Trace:
[ 400.0]  __schedule+0x34d/0x9e0
[ 400.0]  schedule+0x5a/0xd0
[ 400.0]  ? stale_entry+0x1/0x2
{frames}
[ 400.0]  entry_SYSCALL_64_after_hwframe+0x6e/0xd8
"""


@pytest.mark.parametrize(
    ("frames", "cause"),
    [
        ("[ 400.0]  rpc_wait_bit_killable+0x1e/0x90 [sunrpc]\n[ 400.0]  nfs4_run_open_task+0x1/0x2 [nfsv4]", "an NFS server"),
        ("[ 400.0]  cl_sync_io_wait+0x2b/0x3c0 [obdclass]\n[ 400.0]  ll_file_io_generic+0x1/0x2 [lustre]", "a Lustre server"),
        ("[ 400.0]  os_acquire_rwlock_write+0x35/0x50 [nvidia]\n[ 400.0]  _nv042331rm+0x10/0x40 [nvidia]", "the GPU driver"),
        ("[ 400.0]  jbd2_log_wait_commit+0xa9/0x110 [jbd2]", "a local disk"),
        ("[ 400.0]  request_wait_answer+0xd5/0x210 [fuse]", "a FUSE file system"),
    ],
)
def test_modules_and_functions_tell_the_culprit(tmp_path: Path, frames: str, cause: str) -> None:
    log = tmp_path / "dmesg.txt"
    log.write_text(TRACE.format(name="python3", frames=frames))
    (found,) = (f for f in diagnose(read_paths([str(log)])).findings if f.id == "host.hung_task")
    assert found.causes[0].text == f"waits for {cause}"
    assert not any("stale_entry" in e.text for e in found.evidence)


def test_without_a_call_trace_nothing_is_claimed(tmp_path: Path) -> None:
    log = tmp_path / "dmesg.txt"
    log.write_text("[ 400.0] INFO: task python3:99 blocked for more than 120 seconds.\n")
    (found,) = (f for f in diagnose(read_paths([str(log)])).findings if f.id == "host.hung_task")
    assert found.causes[0].likelihood == "possible"
    assert any(e.role == "missing" for e in found.evidence)


def test_rows_printed_before_a_run_broke_stay_and_the_broken_one_is_not_read() -> None:
    case = read_paths([str(DATA / "gone.client.txt")])
    assert [s for snapshot in case.snapshots for s in snapshot.samples] == []
    rows = [s for s in read_paths([str(DATA / "ib_write_bw_a.client.txt")]).snapshots[0].samples if s.metric == "bandwidth"]
    assert [row.conditions["size_bytes"] for row in rows] == [str(2**n) for n in range(1, 24)]
    assert rows[0].conditions["device"] == "rxe0"
