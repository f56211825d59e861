"""Killed at every step: whatever was done so far, a rollback puts everything back, by kilter and by the script."""

from __future__ import annotations

import os
import random
import shutil
import subprocess
import tempfile
from pathlib import Path

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from machine import BDF, Killed, Machine, build, tree

from kilter.facts.applied import Outcome
from kilter.facts.plan import Change
from kilter.tune.apply import engine
from kilter.tune.apply.host import Host

#: A change of every mechanism.
PLAN = [
    Change(mechanism="sysctl", key="vm.swappiness", value="10"),
    Change(mechanism="sysctl", key="net.core.somaxconn", value="4096"),
    Change(mechanism="sysfs", key="/sys/devices/system/cpu/cpu*/cpufreq/scaling_governor", value="performance"),
    Change(mechanism="cmdline", key="isolcpus", value=None),
    Change(mechanism="cmdline", key="iommu", value="pt"),
    Change(mechanism="modprobe", key="nvidia.NVreg_EnableGpuFirmware", value="1"),
    Change(mechanism="limits", key="memlock", value="unlimited"),
    Change(mechanism="unit", key="irqbalance.service", value="disabled+stopped"),
    Change(mechanism="dropin", key="slurmd.service/Service.LimitMEMLOCK", value="infinity"),
    Change(mechanism="udev", key="nvme", value='KERNEL=="nvme*", ATTR{queue/scheduler}="none"'),
    Change(mechanism="env", key="NCCL_DEBUG", value="WARN"),
    Change(mechanism="nccl_conf", key="NCCL_NVLS_ENABLE", value=None),
    Change(mechanism="pci", key=f"{BDF}/acs", value="0x0000"),
    Change(mechanism="irq", key="ens1", value="8-15"),
    Change(mechanism="ethtool", key="ens1/ring.rx", value="8192"),
    Change(mechanism="qos", key="ens1/trust", value="dscp"),
    Change(mechanism="nvidia", key="all/persistence", value="1"),
    Change(mechanism="container", key="docker/default-ulimits.memlock.Hard", value="-1"),
    Change(mechanism="tuned", key="profile", value="quick"),
]
#: Those that need no command: the script can undo them on a mounted machine too.
FILES_ONLY = [
    c
    for c in PLAN
    if c.mechanism in ("sysctl", "sysfs", "cmdline", "modprobe", "limits", "udev", "env", "nccl_conf", "container")
]


def killed(root: Path, changes: list[Change], at: int) -> bool:
    """Apply in a process that is killed before its ``at``-th write; False if it came to its end before."""
    child = os.fork()
    if child == 0:
        try:
            engine.apply(changes, Killed(root, Machine(root), at), confirm_within=3600)
        finally:
            os._exit(0)
    _, status = os.waitpid(child, 0)
    return os.WIFSIGNALED(status)


def steps(tmp_path: Path, changes: list[Change]) -> int:
    """How many writes an application makes."""
    root = tmp_path / "count"
    build(root)
    counting = Killed(root, Machine(root), 1 << 30)
    applied = engine.apply(changes, counting, confirm_within=3600)
    assert all(r.outcome is Outcome.APPLIED for r in applied.results), [(r.change.key, r.why) for r in applied.results]
    return (1 << 30) - counting.left


def test_rollback_after_a_kill_at_every_step(tmp_path: Path) -> None:
    number = steps(tmp_path, PLAN)
    assert number > 300
    for at in range(number):
        root = tmp_path / str(at)
        build(root)
        before = tree(root)
        assert killed(root, PLAN, at)
        host = Host(root, Machine(root))
        states = [one.state for one in engine.status(host)]
        assert states in ([], ["never begun"], ["applying"], ["applied"]), at
        if states == ["applying"]:
            with pytest.raises(engine.ApplyError, match="was cut short"):
                engine.apply(PLAN, host)
        if states in (["applying"], ["applied"]):
            undone = engine.rollback(host)
            assert (undone.left, undone.failed) == ([], []), at
        assert tree(root) == before, at
        # What a machine that was killed has lost is the application alone: the next one works.
        shutil.rmtree(root)


@pytest.mark.parametrize("shell", [["sh"], ["dash"], ["busybox", "sh"], ["bash", "--posix"]], ids=lambda s: s[0])
def test_the_script_after_a_kill_at_every_step(tmp_path: Path, shell: list[str]) -> None:
    if shutil.which(shell[0]) is None:
        pytest.skip(f"{shell[0]} is not installed")
    number = steps(tmp_path, FILES_ONLY)
    rng = random.Random(7)
    # One shell tries every step, the others a sample.
    points = range(number) if shell == ["sh"] else sorted(rng.sample(range(number), 25))
    for at in points:
        root = tmp_path / str(at)
        build(root)
        before = tree(root)
        assert killed(root, FILES_ONLY, at)
        for script in sorted(root.glob("var/lib/kilter/changes/*/rollback.sh")):
            for _ in range(2):
                done = subprocess.run(
                    [*shell, str(script)], env={**os.environ, "ROOT": str(root)}, capture_output=True, text=True, check=False
                )
                assert done.returncode == 0, (at, done.stderr)
        assert without_links(tree(root)) == without_links(before), at
        shutil.rmtree(root)


def without_links(found: dict[str, tuple[int, bytes]]) -> dict[str, tuple[int, bytes]]:
    """What commands make (enabled units, states) needs the commands, which the script calls on the running machine only."""
    return {path: value for path, value in found.items() if "/wants-" not in path and not path.startswith("/state")}


def test_the_script_is_clean(tmp_path: Path) -> None:
    if shutil.which("shellcheck") is None:
        pytest.skip("shellcheck is not installed")
    build(tmp_path)
    engine.apply(PLAN, Host(tmp_path, Machine(tmp_path)), confirm_within=600)
    for script in tmp_path.glob("var/lib/kilter/changes/*/*.sh"):
        done = subprocess.run(
            ["shellcheck", "-s", "sh", "-e", "SC2059,SC2329,SC2317", str(script)], capture_output=True, text=True, check=False
        )
        assert done.returncode == 0, done.stdout
    done = subprocess.run(
        ["shellcheck", "-s", "sh", str(tmp_path / "etc/kilter/sentinel.sh")], capture_output=True, text=True, check=False
    )
    assert done.returncode == 0, done.stdout


@settings(max_examples=40, deadline=None)
@given(cut=st.integers(1, 4000), data=st.data())
def test_a_torn_journal_loses_nothing(cut: int, data: st.DataObject) -> None:
    """A power cut tears the last line: what it spoke of had not begun, or had ended."""
    with tempfile.TemporaryDirectory(dir="/dev/shm" if os.access("/dev/shm", os.W_OK) else None) as folder:
        tear(Path(folder), cut, data)


def tear(root: Path, cut: int, data: st.DataObject) -> None:
    build(root)
    before = tree(root)
    number = data.draw(st.integers(60, 300))
    if not killed(root, PLAN, number):
        return
    (journal,) = root.glob("var/lib/kilter/changes/*/journal")
    lines = journal.read_bytes().splitlines(keepends=True)
    if not lines:
        return
    last = lines[-1]
    begun = b'"done":true' not in last and b"done" not in last
    if begun and tree(root) != before:
        # The last record's own step may have been done after its line was synced; then the line cannot be torn.
        return
    journal.write_bytes(b"".join(lines[:-1]) + last[: min(cut, len(last) - 1)])
    undone = engine.rollback(Host(root, Machine(root)))
    assert undone.failed == []
    assert tree(root) == before


def test_damage_in_the_middle_is_an_error_that_names_the_script(tmp_path: Path) -> None:
    build(tmp_path)
    host = Host(tmp_path, Machine(tmp_path))
    applied = engine.apply(PLAN, host)
    journal = tmp_path / f"var/lib/kilter/changes/{applied.id}/journal"
    lines = journal.read_bytes().splitlines(keepends=True)
    lines[3] = b"garbage\n"
    journal.write_bytes(b"".join(lines))
    with pytest.raises(engine.ApplyError, match=r"journal:4 is damaged .*rollback\.sh"):
        engine.rollback(host, applied.id)
