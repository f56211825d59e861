"""Every mechanism: what it reads, a round trip that leaves nothing behind, and what it must not do."""

from __future__ import annotations

import re
from pathlib import Path

import pytest
from machine import BDF, Machine, build, tree

from kilter.facts.applied import Outcome
from kilter.facts.plan import Change
from kilter.tune.apply import engine
from kilter.tune.apply.host import Host
from kilter.tune.apply.mechanisms import names

#: One that works for each mechanism, with the files that it must write and a pattern that they must then hold.
GOOD = [
    ("sysctl", "vm.swappiness", "10", "/etc/sysctl.d/99-zz-kilter.conf", r"^vm\.swappiness = 10$"),
    ("sysctl", "net.ipv4.tcp_rmem", "4096 131072 268435456", "/proc/sys/net/ipv4/tcp_rmem", r"^4096 131072 268435456$"),
    ("sysfs", "/sys/kernel/mm/transparent_hugepage/enabled", "madvise", "/etc/tmpfiles.d/kilter.conf", r"^w /sys/kernel/\S+ - - - - madvise$"),
    ("sysfs", "/sys/devices/system/cpu/cpu*/cpufreq/scaling_governor", "performance", "/sys/devices/system/cpu/cpu0/cpufreq/scaling_governor", "^performance$"),
    ("cmdline", "isolcpus", None, "/boot/grub/grub.cfg", r"ro quiet$"),
    ("cmdline", "iommu", "pt", "/boot/grub/grub.cfg", r"iommu=pt isolcpus=0,1 quiet$"),
    ("cmdline", "quiet", "", None, ""),
    ("modprobe", "nvidia.NVreg_EnableGpuFirmware", "1", "/etc/modprobe.d/zz-kilter.conf", r"^options nvidia NVreg_EnableGpuFirmware=1$"),
    ("modprobe", "nvidia.NVreg_EnableGpuFirmware", None, "/etc/modprobe.d/nvidia.conf", r"^options nvidia NVreg_Other=1$"),
    ("limits", "memlock", "unlimited", "/etc/security/limits.d/99-zz-kilter.conf", r"^\* - memlock unlimited\nroot - memlock unlimited$"),
    ("unit", "irqbalance.service", "disabled+stopped", "/state/active-irqbalance.service", "inactive"),
    ("dropin", "slurmd.service/Service.LimitMEMLOCK", "infinity", "/etc/systemd/system/slurmd.service.d/90-kilter-limitmemlock.conf", r"^\[Service\]\nLimitMEMLOCK=infinity$"),
    ("dropin", "systemd-logind.service/Login.RemoveIPC", "no", "/etc/systemd/logind.conf.d/90-kilter-removeipc.conf", r"^\[Login\]\nRemoveIPC=no$"),
    ("udev", "nvme", 'ACTION=="add", KERNEL=="nvme*", ATTR{queue/scheduler}="none"', "/etc/udev/rules.d/99-kilter-nvme.rules", "queue/scheduler"),
    ("env", "NCCL_DEBUG", "WARN", "/etc/profile.d/zz-kilter.sh", "^export NCCL_DEBUG=WARN$"),
    ("env", "NCCL_ALGO", None, "/etc/profile.d/zz-kilter.sh", "^unset NCCL_ALGO$"),
    ("nccl_conf", "NCCL_NVLS_ENABLE", None, "/etc/nccl.conf", r"\A# by hand\nNCCL_DEBUG=WARN\n\Z"),
    ("nccl_conf", "NCCL_DEBUG", "INFO", "/etc/nccl.conf", r"^NCCL_NVLS_ENABLE=0\nNCCL_DEBUG=INFO\n\Z"),
    ("pci", f"{BDF}/acs", "0x0000", "/etc/kilter/boot.sh", rf"^setpci -s {BDF} ECAP_ACS\+6\.w=0000"),
    ("pci", f"{BDF}/mrrs", "4096", "/etc/kilter/boot.sh", rf"^setpci -s {BDF} CAP_EXP\+8\.w=5000:7000"),
    ("irq", "ens1", "8-15", "/proc/irq/31/smp_affinity_list", "^8-15$"),
    ("ethtool", "ens1/ring.rx", "8192", "/etc/kilter/boot.sh", "ethtool -G ens1 rx 8192"),
    ("qos", "ens1/trust", "dscp", "/state/trust", "dscp"),
    ("qos", "ens1/pfc", "0,0,0,1,0,0,0,0", "/etc/kilter/boot.sh", "mlnx_qos -i ens1 --pfc 0,0,0,1,0,0,0,0"),
    ("qos", "mlx5_0/tos", "106", "/state/tos", "106"),
    ("nvidia", "all/persistence", "1", "/etc/kilter/boot.sh", "^nvidia-smi -pm 1"),
    ("nvidia", "3/power_limit", "650", "/etc/kilter/boot.sh", "^nvidia-smi -i 3 -pl 650"),
    ("nvidia", "all/ecc", "1", "/state/ecc.mode.pending", "Enabled"),
    ("container", "docker/default-ulimits.memlock.Hard", "-1", "/etc/docker/daemon.json", r'"Hard": -1'),
    ("tuned", "profile", "quick", "/etc/tuned/active_profile", "quick"),
]  # fmt: skip

#: What must fail, and the word that the reason must hold.
BAD = [
    ("sysctl", "kernel.sched_latency_ns", "1", Outcome.SKIPPED, "has no"),
    ("sysctl", "../../etc/passwd", "1", Outcome.REFUSED, "no name of a kernel parameter"),
    ("sysctl", "vm.swappiness", "10\nvm.other = 1", Outcome.REFUSED, "control characters"),
    ("sysfs", "/sys/no/such/file", "1", Outcome.SKIPPED, "there is no"),
    ("sysfs", "/etc/passwd", "x", Outcome.REFUSED, "no path below"),
    ("sysfs", "/sys/../etc/passwd", "x", Outcome.REFUSED, "no path below"),
    ("cmdline", "init", "/bin/sh", Outcome.REFUSED, "whether the machine boots"),
    ("cmdline", "x", '"; rm -rf /', Outcome.REFUSED, "quotes"),
    ("modprobe", "nvidia", "1", Outcome.REFUSED, "no module.parameter"),
    ("limits", "memory", "1", Outcome.REFUSED, "no item"),
    ("limits", "stack", "lots", Outcome.REFUSED, "neither a number"),
    ("unit", "nosuch.service", "disabled", Outcome.SKIPPED, "no unit"),
    ("unit", "irqbalance.service", "deleted", Outcome.REFUSED, "expected enabled"),
    ("dropin", "slurmd.service", "1", Outcome.REFUSED, "no unit/Section"),
    ("udev", "../x", "y", Outcome.REFUSED, "letters, digits"),
    ("udev", "x", "no rule at all", Outcome.REFUSED, "no rule of udev"),
    ("env", "BAD NAME", "1", Outcome.REFUSED, "no name of a variable"),
    ("nccl_conf", "A-B", "1", Outcome.REFUSED, "no name of a variable"),
    ("pci", "0000:00:00.0/acs", "0x0000", Outcome.SKIPPED, "no PCI device"),
    ("pci", f"{BDF}/mrrs", "4095", Outcome.REFUSED, "expected one of"),
    ("pci", f"{BDF}/acs", "0x1ff", Outcome.REFUSED, "seven bits"),
    ("irq", "nosuch0", "0-3", Outcome.SKIPPED, "no interrupts"),
    ("irq", "ens1", "0-3;reboot", Outcome.REFUSED, "no list of CPUs"),
    ("ethtool", "ens9/ring.rx", "8192", Outcome.SKIPPED, "No such device"),
    ("ethtool", "ens1/ring.rx", "many", Outcome.REFUSED, "expected"),
    ("ethtool", "--help/ring.rx", "1", Outcome.REFUSED, "no device/setting"),
    ("ethtool", "ens1/colour", "1", Outcome.REFUSED, "has no setting"),
    ("qos", "ens1/trust", "me", Outcome.REFUSED, "expected"),
    ("nvidia", "all/voltage", "1", Outcome.REFUSED, "has no setting"),
    ("container", "podman/x", "1", Outcome.REFUSED, "no docker/path"),
    ("tuned", "profile", "nosuch", Outcome.SKIPPED, "no profile nosuch"),
    ("magic", "x", "1", Outcome.REFUSED, "no mechanism"),
]  # fmt: skip


def test_the_lists_cover_every_mechanism() -> None:
    assert {one[0] for one in GOOD} == set(names())
    assert {one[0] for one in BAD} - {"magic"} == set(names())


def text_of(host: Host, path: str) -> str:
    return host.real(path).read_bytes().decode()


@pytest.mark.parametrize(("mechanism", "key", "value", "path", "pattern"), GOOD, ids=lambda v: str(v)[:40])
def test_round_trip(host: Host, mechanism: str, key: str, value: str | None, path: str | None, pattern: str) -> None:
    before = tree(host.root)
    change = Change(mechanism=mechanism, key=key, value=value)
    (difference,) = engine.diff([change], host)
    applied = engine.apply([change], host)
    (result,) = applied.results
    assert result.outcome is difference.outcome
    if path is None:
        assert result.outcome is Outcome.ALREADY
        assert tree(host.root) == before
        return
    assert result.outcome is Outcome.APPLIED, result.why
    assert difference.files or difference.commands
    assert re.search(pattern, text_of(host, path), re.MULTILINE)
    # Again: nothing to do, and no new journal.
    again = engine.apply([change], host)
    assert ([r.outcome for r in again.results], again.id) == ([Outcome.ALREADY], "")
    verified = engine.verify(host, applied.id)
    assert verified.holds, verified.drifts
    undone = engine.rollback(host, applied.id)
    assert (undone.left, undone.failed) == ([], [])
    assert tree(host.root) == before


@pytest.mark.parametrize(("mechanism", "key", "value", "outcome", "word"), BAD, ids=lambda v: str(v)[:40])
def test_what_must_fail(host: Host, mechanism: str, key: str, value: str, outcome: Outcome, word: str) -> None:
    before = tree(host.root)
    change = Change(mechanism=mechanism, key=key, value=value)
    good = Change(mechanism="sysctl", key="net.core.somaxconn", value="4096")
    differences = engine.diff([change, good], host)
    assert (differences[0].outcome, differences[1].outcome) == (outcome, Outcome.APPLIED)
    applied = engine.apply([change, good], host)
    assert applied.results[0].outcome is outcome
    assert word in applied.results[0].why
    # What cannot be done is neither fatal nor silent.
    assert applied.results[1].outcome is Outcome.APPLIED
    engine.rollback(host, applied.id)
    assert tree(host.root) == before


@pytest.mark.parametrize(
    ("mechanism", "key", "value", "command"),
    [
        ("cmdline", "iommu", "pt", "grub-mkconfig"),
        ("modprobe", "nvidia.NVreg_EnableGpuFirmware", "1", "update-initramfs"),
        ("dropin", "slurmd.service/Service.LimitMEMLOCK", "infinity", "systemctl"),
        ("udev", "nvme", 'KERNEL=="nvme*", ATTR{queue/scheduler}="none"', "udevadm"),
        ("tuned", "profile", "quick", "tuned-adm"),
    ],
)
def test_a_command_that_fails_takes_its_change_back(tmp_path: Path, mechanism: str, key: str, value: str, command: str) -> None:
    build(tmp_path)
    host = Host(tmp_path, Machine(tmp_path, failing=(command,)))
    before = tree(host.root)
    applied = engine.apply([Change(mechanism=mechanism, key=key, value=value)], host)
    assert applied.results[0].outcome is Outcome.FAILED
    assert "broken on purpose" in applied.results[0].why
    assert tree(host.root) == before


def test_a_value_that_the_kernel_does_not_take_is_taken_back(host: Host, monkeypatch: pytest.MonkeyPatch) -> None:
    before = tree(host.root)
    real = Host.poke
    monkeypatch.setattr(
        Host, "poke", lambda self, path, data, offset=0: real(self, path, b"61\n" if data == b"10" else data, offset)
    )
    applied = engine.apply([Change(mechanism="sysctl", key="vm.swappiness", value="10")], host)
    assert applied.results[0].outcome is Outcome.FAILED
    assert "reads back '61'" in applied.results[0].why
    monkeypatch.undo()
    assert host.text("/proc/sys/vm/swappiness") == "60"
    assert {p: v for p, v in tree(host.root).items() if "swappiness" not in p} == {
        p: v for p, v in before.items() if "swappiness" not in p
    }


@pytest.mark.parametrize("command", ["ethtool", "mlnx_qos", "nvidia-smi", "tuned-adm", "systemctl"])
def test_a_tool_that_is_not_installed_is_said(tmp_path: Path, command: str) -> None:
    build(tmp_path)
    host = Host(tmp_path, Machine(tmp_path, missing=(command,)))
    changes = {
        "ethtool": Change(mechanism="ethtool", key="ens1/ring.rx", value="8192"),
        "mlnx_qos": Change(mechanism="qos", key="ens1/trust", value="dscp"),
        "nvidia-smi": Change(mechanism="nvidia", key="all/persistence", value="1"),
        "tuned-adm": Change(mechanism="tuned", key="profile", value="quick"),
        "systemctl": Change(mechanism="unit", key="irqbalance.service", value="disabled"),
    }
    (difference,) = engine.diff([changes[command]], host)
    assert difference.outcome is Outcome.SKIPPED
    assert "not installed" in difference.why or "does not run" in difference.why


def test_acs_stays_where_guests_own_devices(host: Host) -> None:
    driver = host.real("/sys/bus/pci/drivers/vfio-pci/0000:5e:00.0")
    driver.mkdir(parents=True)
    (difference,) = engine.diff([Change(mechanism="pci", key=f"{BDF}/acs", value="0x0000")], host)
    assert difference.outcome is Outcome.REFUSED
    assert "0000:5e:00.0 is bound to vfio-pci" in difference.why


def test_a_change_for_now_only_leaves_files_alone(host: Host) -> None:
    before = tree(host.root)
    applied = engine.apply([Change(mechanism="sysctl", key="vm.swappiness", value="10", persistent=False)], host)
    assert applied.results[0].outcome is Outcome.APPLIED
    assert {p for p, v in tree(host.root).items() if before.get(p) != v} == {"/proc/sys/vm/swappiness"}
