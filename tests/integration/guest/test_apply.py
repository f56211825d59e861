"""Changes of every mechanism on a real kernel with a real boot loader: applied, booted, verified, rolled back, booted, and nothing is left."""

from __future__ import annotations

import contextlib
import json
import time

import pytest

from integration.guest.guest import Guest, GuestError, difference

pytestmark = [pytest.mark.integration, pytest.mark.timeout(1800), pytest.mark.xdist_group("guest")]

#: What a guest without GPUs and RDMA has: every mechanism but nvidia, qos, container and tuned.
CHANGES = [
    {"mechanism": "sysctl", "key": "vm.swappiness", "value": "10"},
    {"mechanism": "sysctl", "key": "net.ipv4.tcp_rmem", "value": "4096 131072 268435456"},
    {"mechanism": "sysctl", "key": "kernel.sched_latency_ns", "value": "1"},
    {"mechanism": "sysctl", "key": "vm.nr_hugepages", "value": "8"},
    {"mechanism": "sysfs", "key": "/sys/kernel/mm/transparent_hugepage/enabled", "value": "never"},
    {"mechanism": "sysfs", "key": "/sys/block/vda/queue/read_ahead_kb", "value": "64"},
    {"mechanism": "cmdline", "key": "iommu", "value": "pt"},
    {"mechanism": "cmdline", "key": "quiet", "value": None},
    {"mechanism": "cmdline", "key": "pci", "value": "realloc"},
    {"mechanism": "modprobe", "key": "loop.max_loop", "value": "4"},
    {"mechanism": "limits", "key": "memlock", "value": "unlimited"},
    {"mechanism": "unit", "key": "probe.service", "value": "disabled+stopped"},
    {"mechanism": "dropin", "key": "systemd-logind.service/Login.RemoveIPC", "value": "no"},
    {"mechanism": "udev", "key": "readahead", "value": 'ACTION=="add", KERNEL=="vdz", ATTR{queue/read_ahead_kb}="64"'},
    {"mechanism": "env", "key": "NCCL_DEBUG", "value": "WARN"},
    {"mechanism": "nccl_conf", "key": "NCCL_IB_TIMEOUT", "value": "22"},
    {"mechanism": "pci", "key": "0000:20:00.0/acs", "value": "0x001d"},
    {"mechanism": "irq", "key": "0000:61:00.0", "value": "2-3"},
    {"mechanism": "ethtool", "key": "{nic}/ring.rx", "value": "512"},
]
NOT_THERE = {"kernel.sched_latency_ns"}


def nic(guest: Guest) -> str:
    """The name of the NIC behind the switch."""
    return guest.check("basename $(echo /sys/bus/pci/devices/*/net/* | tr ' ' '\\n' | grep -v virtio | head -1)").strip()


PROBE = "[Unit]\nDescription=A service to switch off\n[Service]\nExecStart=/bin/sleep infinity\n[Install]\nWantedBy=multi-user.target\n"


def put(guest: Guest, changes: list[dict[str, object]]) -> None:
    """The changes as a file of the guest, and the service that one of them is about."""
    filled = [{**c, "key": str(c["key"]).replace("{nic}", nic(guest))} for c in changes]
    guest.put("/root/changes.json", json.dumps(filled).encode())
    guest.put("/etc/systemd/system/probe.service", PROBE.encode())
    guest.check("systemctl daemon-reload && systemctl enable --now probe.service")


def apply(guest: Guest, *flags: str) -> dict:
    done = guest.run(f"kilter tune apply --changes /root/changes.json --yes --json {' '.join(flags)}", timeout_s=400)
    assert done.rc in (0, 1), done
    return json.loads(done.out)


def test_every_mechanism_there_and_back(guest: Guest) -> None:
    put(guest, CHANGES)
    before = guest.state()
    applied = apply(guest)
    outcomes = {r["change"]["key"]: (r["outcome"], r.get("why", "")) for r in applied["results"]}
    assert {key for key, (outcome, _) in outcomes.items() if outcome != "applied"} == NOT_THERE, outcomes
    again = json.loads(guest.run("kilter tune apply --changes /root/changes.json --yes --json", timeout_s=400).out)
    assert "id" not in again, again
    assert "kilter.trial" not in guest.check("cat /proc/cmdline")

    guest.reboot()
    line = guest.check("cat /proc/cmdline")
    assert "iommu=pt" in line
    assert "pci=realloc" in line
    assert f"kilter.trial={applied['id']}" in line
    for _ in range(60):
        if guest.run(f"test -e /var/lib/kilter/changes/{applied['id']}/sentinel.done").rc == 0:
            break
        guest.run("sleep 5")
    verified = json.loads(guest.run("kilter tune verify --json", timeout_s=200).out)
    drifted = [(d["change"]["key"], d["why"]) for d in verified["drifts"] if not d["holds"]]
    assert drifted == []

    guest.reboot()
    line = guest.check("cat /proc/cmdline")
    assert "kilter.trial" not in line
    assert "iommu=pt" in line
    undone = guest.run("kilter tune rollback --json", timeout_s=400)
    assert undone.rc == 0, undone
    guest.reboot()
    assert difference(before, guest.state()) == []


def test_the_script_alone_takes_it_back(guest: Guest) -> None:
    put(guest, CHANGES)
    before = guest.state()
    applied = apply(guest)
    guest.check("mv /opt/kilter /opt/gone")
    guest.check(f"sh /var/lib/kilter/changes/{applied['id']}/rollback.sh", timeout_s=400)
    guest.check("mv /opt/gone /opt/kilter")
    # The kernel itself reckons this one anew whenever huge pages are switched; the next boot has the old value again.
    assert [one for one in difference(before, guest.state()) if "vm.min_free_kbytes" not in one] == []
    assert "rolled back" in guest.check("kilter tune status")


def wait_for_rollback(guest: Guest, timeout_s: float = 1200) -> None:
    """Over boots that the guest begins by itself, some of which never answer."""
    until = time.monotonic() + timeout_s
    while time.monotonic() < until:
        with contextlib.suppress(GuestError):
            if "rolled back" in guest.run("cat /var/lib/kilter/changes/*/state", timeout_s=60).out:
                return
        time.sleep(5)
    raise AssertionError(f"not rolled back after {timeout_s} s\n{guest.console()[-3000:]}")


@pytest.mark.parametrize(
    ("key", "value"),
    [("systemd.mask", "multi-user.target"), ("mem", "64M")],
    ids=["never-comes-up", "kernel-stops"],
)
def test_a_line_that_does_not_boot_is_taken_back(guest: Guest, key: str, value: str) -> None:
    """The trial does not come up; the next boot is the old line, and the change is undone there."""
    guest.check("mkdir -p /etc/kilter && echo 45 > /etc/kilter/healthy-within")
    put(guest, [{"mechanism": "cmdline", "key": key, "value": value}, CHANGES[0]])
    before = guest.state()
    assert [r["outcome"] for r in apply(guest)["results"]] == ["applied", "applied"]
    guest.run("systemctl --no-block reboot")
    wait_for_rollback(guest)
    assert f"{key}={value}" not in guest.check("cat /proc/cmdline")
    assert "rolled back" in guest.check("cat /var/lib/kilter/changes/*/state")
    assert difference(before, guest.state()) == []


def test_unless_confirmed_it_takes_itself_back(guest: Guest) -> None:
    put(guest, [CHANGES[0]])
    before = guest.state()
    apply(guest, "--confirm-within", "20s")
    assert guest.check("cat /proc/sys/vm/swappiness").strip() == "10"
    for _ in range(30):
        if guest.check("cat /proc/sys/vm/swappiness").strip() == "60":
            break
        guest.run("sleep 5")
    assert guest.check("cat /proc/sys/vm/swappiness").strip() == "60"
    guest.run("sleep 5")
    assert difference(before, guest.state()) == []


@pytest.mark.parametrize("seconds", [3, 9])
def test_power_cut_while_applying(guest: Guest, seconds: int) -> None:
    put(guest, CHANGES)
    before = guest.state()
    guest.check(
        "nohup kilter tune apply --changes /root/changes.json --yes >/dev/null 2>&1 & sleep " + str(seconds), timeout_s=200
    )
    guest.power_cut()
    guest.boot()
    states = json.loads(guest.run("kilter tune status --json", timeout_s=100).out)
    if states and states[0]["state"] in ("applying", "applied"):
        undone = guest.run("kilter tune rollback --json", timeout_s=400)
        assert undone.rc == 0, undone
    guest.reboot()
    assert difference(before, guest.state()) == []
