"""The engine: one writer, others' hands, confirming, drift, order of rollbacks, what is said of every key."""

from __future__ import annotations

import fcntl
import subprocess
from pathlib import Path

import pytest
from machine import Machine, build, tree

from kilter.facts.plan import Advice, Change, Plan, Verdict
from kilter.tune.apply import engine, guards
from kilter.tune.apply.host import Host
from kilter.tune.apply.owners import mark_conflicts

SWAP = Change(mechanism="sysctl", key="vm.swappiness", value="10")
QUEUE = Change(mechanism="sysctl", key="net.core.somaxconn", value="4096")
LINE = Change(mechanism="cmdline", key="iommu", value="pt")


def test_reading_alone_writes_nothing(host: Host) -> None:
    before = tree(host.root)
    found = engine.diff([SWAP, LINE], host)
    assert tree(host.root) == before
    assert not host.exists("/var/lib/kilter")
    assert "+vm.swappiness = 10" in found[0].files["/etc/sysctl.d/99-zz-kilter.conf"]
    assert found[0].commands == ["echo 10 > /proc/sys/vm/swappiness"]
    assert found[1].needs == "a reboot"


def test_who_else_sets_a_key_is_said(host: Host) -> None:
    owners = engine.diff([SWAP], host)[0].owners
    assert [(o.name, o.value, o.wins) for o in owners] == [
        ("TuneD profile hpc", "10", True),
        ("/etc/sysctl.d/99-sysctl.conf", "70", False),
    ][1:]
    other = engine.diff([Change(mechanism="sysctl", key="vm.swappiness", value="5")], host)[0].owners
    assert [(o.name, o.where, o.wins) for o in other] == [
        ("TuneD profile hpc", "/usr/lib/tuned/hpc/tuned.conf:4", True),
        ("/etc/sysctl.d/99-sysctl.conf", "/etc/sysctl.d/99-sysctl.conf:1", False),
    ]


@pytest.mark.parametrize(
    ("change", "name", "wins"),
    [
        (
            Change(mechanism="sysfs", key="/sys/devices/system/cpu/cpu*/cpufreq/scaling_governor", value="powersave"),
            "TuneD profile hpc",
            True,
        ),
        (Change(mechanism="cmdline", key="skew_tick", value="0"), "TuneD profile hpc", True),
        (Change(mechanism="modprobe", key="nvidia.NVreg_EnableGpuFirmware", value="1"), "/etc/modprobe.d/nvidia.conf", False),
        (Change(mechanism="limits", key="stack", value="8192"), "/etc/security/limits.conf for *", False),
    ],
)
def test_owners_of_every_kind(host: Host, change: Change, name: str, wins: bool) -> None:
    owners = engine.diff([change], host)[0].owners
    assert [(o.name, o.wins) for o in owners] == [(name, wins)]


def test_one_writer(host: Host) -> None:
    path = host.real(engine.LOCK)
    path.parent.mkdir(parents=True)
    with path.open("w") as file:
        fcntl.flock(file, fcntl.LOCK_EX)
        with pytest.raises(engine.ApplyError, match="another kilter"):
            engine.apply([SWAP], host)
    engine.apply([SWAP], host)


def test_the_same_key_twice_is_an_error(host: Host) -> None:
    with pytest.raises(engine.ApplyError, match=r"sysctl vm\.swappiness: asked for more than once"):
        engine.apply([SWAP, Change(mechanism="sysctl", key="vm.swappiness", value="5")], host)


def test_what_somebody_else_has_changed_since_is_left(host: Host) -> None:
    applied = engine.apply([SWAP, QUEUE], host)
    host.real("/proc/sys/vm/swappiness").write_text("33\n")
    host.real("/etc/sysctl.d/99-zz-kilter.conf").write_text("# mine now\n")
    undone = engine.rollback(host, applied.id)
    assert sorted(set(undone.left)) == ["/etc/sysctl.d/99-zz-kilter.conf", "/proc/sys/vm/swappiness"]
    assert host.text("/proc/sys/vm/swappiness") == "33"
    assert host.text("/proc/sys/net/core/somaxconn") == "128"
    forced = engine.rollback(host, applied.id, force=True)
    assert not forced.left
    assert host.text("/proc/sys/vm/swappiness") == "60"
    assert not host.exists("/etc/sysctl.d/99-zz-kilter.conf")


def test_a_boot_menu_made_anew_by_others_is_made_anew_again(host: Host) -> None:
    applied = engine.apply([LINE], host, sentinel=False)
    menu = host.real("/boot/grub/grub.cfg")
    menu.chmod(0o644)
    menu.write_text(menu.read_text() + "# a new kernel was installed\n")
    undone = engine.rollback(host, applied.id)
    assert (undone.left, undone.failed) == ([], [])
    assert "iommu=pt" not in menu.read_text()
    assert "isolcpus=0,1" in menu.read_text()


def test_the_newest_goes_first(host: Host) -> None:
    before = tree(host.root)
    first = engine.apply([SWAP], host, now=1e9)
    second = engine.apply([QUEUE], host, now=1e9 + 5)
    with pytest.raises(engine.ApplyError, match=f"change {second.id} has written to the same places"):
        engine.rollback(host, first.id)
    assert engine.rollback(host).id == second.id
    assert engine.rollback(host).id == first.id
    assert tree(host.root) == before
    with pytest.raises(engine.ApplyError, match="there is no change that is applied"):
        engine.rollback(host)


def test_twice_in_one_second(host: Host) -> None:
    ids = [engine.apply([change], host, now=1e9).id for change in (SWAP, QUEUE)]
    assert ids == ["20010909-014640", "20010909-014640a"]


def test_rolling_back_again_does_no_harm(host: Host) -> None:
    before = tree(host.root)
    applied = engine.apply([SWAP, LINE], host)
    for _ in range(3):
        undone = engine.rollback(host, applied.id)
        assert (undone.left, undone.failed) == ([], [])
        assert tree(host.root) == before
    assert [one.state for one in engine.status(host)] == ["rolled back"]


def test_unknown_change(host: Host) -> None:
    with pytest.raises(engine.ApplyError, match="there is no change 'nosuch'; the last ones are none"):
        engine.rollback(host, "nosuch")


def test_drift_is_seen(host: Host) -> None:
    applied = engine.apply([SWAP, QUEUE, LINE], host)
    verified = engine.verify(host, applied.id)
    assert verified.holds
    assert [d.pending for d in verified.drifts] == [False, False, True]
    host.real("/proc/sys/vm/swappiness").write_text("60\n")
    host.real("/etc/sysctl.d/99-zz-kilter.conf").unlink()
    verified = engine.verify(host, applied.id)
    assert [d.holds for d in verified.drifts] == [False, False, True]
    assert "in force is 60" in verified.drifts[0].why
    assert "for the next boot nothing is set" in verified.drifts[1].why


def test_a_line_that_did_not_come_into_force_with_the_reboot_is_drift(host: Host) -> None:
    applied = engine.apply([LINE], host)
    host.real("/proc/sys/kernel/random/boot_id").write_text("other\n")
    (drift,) = engine.verify(host, applied.id).drifts
    assert not drift.holds
    assert "has been booted since" in drift.why
    host.real("/proc/cmdline").write_text("root=UUID=1234 ro iommu=pt quiet\n")
    assert engine.verify(host, applied.id).holds


def test_confirming_takes_the_time_limit_away(host: Host) -> None:
    applied = engine.apply([SWAP], host, confirm_within=300, now=1e9)
    name = f"/etc/systemd/system/kilter-confirm-{applied.id}"
    assert applied.confirm_by == 1e9 + 300
    assert "OnCalendar=2001-09-09 01:51:40 UTC" in (host.text(f"{name}.timer") or "")
    assert "Persistent=true" in (host.text(f"{name}.timer") or "")
    assert f"{applied.id}/rollback.sh" in (host.text(f"{name}.service") or "")
    assert engine.confirm(host).state == "confirmed"
    assert not host.exists(f"{name}.timer")
    assert not host.exists(f"{name}.service")
    assert host.text("/proc/sys/vm/swappiness") == "10"
    with pytest.raises(engine.ApplyError, match="is confirmed; only one that is applied"):
        engine.confirm(host, applied.id)
    before_calls = len(host._runner.calls)
    assert engine.rollback(host, applied.id).failed == []
    assert not [c for c in host._runner.calls[before_calls:] if "timer" in c[-1]]


def test_no_time_limit_without_systemd_and_then_no_change(tmp_path: Path) -> None:
    build(tmp_path)
    host = Host(tmp_path, Machine(tmp_path, missing=("systemctl",)))
    before = tree(tmp_path)
    with pytest.raises(engine.ApplyError, match="a time limit needs systemd; everything was taken back"):
        engine.apply([SWAP], host, confirm_within=300)
    assert tree(tmp_path) == before


def test_a_full_disk_changes_nothing(host: Host, monkeypatch: pytest.MonkeyPatch) -> None:
    before = tree(host.root)
    from kilter.tune.apply import journal

    def full(self, record):
        raise OSError(28, "No space left on device")

    monkeypatch.setattr(journal.Journal, "_append", full)
    with pytest.raises(engine.ApplyError, match="No space left on device; nothing more is changed; everything was taken back"):
        engine.apply([SWAP], host)
    assert tree(host.root) == before


# --- the sentinel


def test_the_trial_is_booted_once_and_the_old_line_is_the_default(host: Host) -> None:
    applied = engine.apply([LINE], host)
    custom = host.text("/boot/grub/custom.cfg") or ""
    old, trial = custom.split("menuentry ")[1:3]
    assert "iommu=pt" not in old
    assert "isolcpus=0,1 quiet" in old
    assert f"iommu=pt isolcpus=0,1 quiet panic=30 kilter.trial={applied.id}" in trial
    assert 'set default="kilter-before"' in custom
    assert "next_entry=kilter-trial" in (host.text("/boot/grub/grubenv") or "")
    assert host.exists(guards.UNIT)
    assert applied.notes == []


def test_a_boot_that_came_up_leaves_the_change_and_takes_the_sentinel_away(host: Host) -> None:
    before = tree(host.root)
    applied = engine.apply([LINE], host)
    folder = host.real(f"/var/lib/kilter/changes/{applied.id}")
    # GRUB writes grubenv itself when it takes the trial; that is put right by a command.
    assert "call grub-editenv /boot/grub/grubenv unset next_entry" in (folder / "sentinel-disarm.sh").read_text()
    Machine(host.root).grub_editenv("/boot/grub/grubenv", "unset", "next_entry")  # what GRUB does
    done = subprocess.run(
        ["sh", folder / "sentinel-disarm.sh"],
        env={"PATH": "/usr/bin:/bin", "ROOT": str(host.root)},
        capture_output=True,
        text=True,
        check=False,
    )
    assert done.returncode == 0, done.stderr
    assert not host.exists("/boot/grub/custom.cfg")
    assert not host.exists(guards.UNIT)
    assert "iommu=pt" in (host.text("/boot/grub/grub.cfg") or "")
    undone = engine.rollback(host, applied.id)
    assert (undone.left, undone.failed) == ([], [])
    changed = {p for p, v in tree(host.root).items() if before.get(p) != v}
    assert changed == {"/etc/systemd/system/wants-kilter-sentinel.service"}  # a command's work: it needs the running machine


def test_grub_on_lvm_falls_back_to_the_service(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    build(tmp_path)
    machine = Machine(tmp_path)
    monkeypatch.setattr(machine, "grub_probe", lambda *argv: type(machine).grub_probe(machine)._replace(output="lvm"))
    host = Host(tmp_path, machine)
    applied = engine.apply([LINE], host)
    assert not host.exists("/boot/grub/custom.cfg")
    assert "needs a hand at the boot menu" in applied.notes[0]
    assert "boots" in (host.text(guards.SCRIPT) or "")


def test_a_key_that_somebody_else_holds_is_a_conflict(host: Host) -> None:
    def advice(change: Change) -> Advice:
        return Advice(id=change.key, verdict=Verdict.RECOMMEND, title=change.key, changes=[change])

    held = advice(Change(mechanism="sysctl", key="vm.swappiness", value="5"))
    free = advice(QUEUE)
    mark_conflicts(Plan(advice=[held, free]), host)
    assert (held.verdict, free.verdict) == (Verdict.CONFLICT, Verdict.RECOMMEND)
    assert "TuneD profile hpc sets 10 (/usr/lib/tuned/hpc/tuned.conf:4)" in held.owner


def test_interrupts_of_another_boot_are_other_devices(host: Host) -> None:
    applied = engine.apply([Change(mechanism="irq", key="ens1", value="8-15"), SWAP], host)
    host.real("/proc/sys/kernel/random/boot_id").write_text("other\n")
    host.real("/proc/irq/30/smp_affinity_list").write_text("5\n")
    host.real("/proc/irq/31/smp_affinity_list").unlink()
    undone = engine.rollback(host, applied.id)
    assert (undone.left, undone.failed) == ([], [])
    assert host.text("/proc/irq/30/smp_affinity_list") == "5"
    assert host.text("/proc/sys/vm/swappiness") == "60"
