"""The guest itself: that it is a real machine for what kilter reads and changes, and that a comparison of two states means something."""

from __future__ import annotations

import json
import re

import pytest

from integration.guest import machine
from integration.guest.guest import Guest, difference

pytestmark = [pytest.mark.integration, pytest.mark.timeout(1500), pytest.mark.xdist_group("guest")]


def test_boot_went_through_grub_with_the_line_of_its_menu(guest: Guest) -> None:
    line = guest.check("cat /proc/cmdline").strip()
    menu = guest.check("cat /boot/grub/grub.cfg")
    assert re.fullmatch(r"BOOT_IMAGE=/boot/vmlinuz-\S+ root=UUID=\S+ ro console=ttyS0 quiet", line)
    assert line.removeprefix("BOOT_IMAGE=") in re.sub(r"\s+", " ", menu)
    assert "grub-mkconfig" in menu
    assert guest.check("systemctl is-system-running").strip() == "running"


def test_nothing_varies_by_itself_not_even_over_a_reboot_and_a_power_cut(guest: Guest) -> None:
    before = guest.state()
    assert {"vm.swappiness", "kernel.numa_balancing"} <= before["sysctl"].keys()
    assert {"/etc/default/grub", "/boot/grub/grub.cfg"} <= before["files"].keys()
    assert difference(before, guest.state()) == []
    guest.reboot()
    assert difference(before, guest.state()) == []
    guest.power_cut()
    guest.boot()
    assert difference(before, guest.state()) == []


CHANGES = [
    ("sysctl -q vm.swappiness=7", r"sysctl: vm.swappiness: '60' -> '7'"),
    ("chmod 600 /etc/fstab", r"files: /etc/fstab: mode 0o100644 -> 0o100600"),
    ("printf '# x\\n' >> /etc/sysctl.conf", r"files: /etc/sysctl.conf: .*\n    \+# x"),
    ("chown 7 /etc/modules", r"files: /etc/modules: owner 0:0 -> 7:0"),
    ("mkdir /etc/modprobe.d/new.d", r"files: /etc/modprobe.d/new.d is new.*"),
    ("rm /etc/motd", r"files: /etc/motd has gone"),
    ("ln -s /dev/null /etc/systemd/system/one.timer", r"files: /etc/systemd/system/one.timer is new.*"),
    ("grub-editenv - set x=1", r"files: /boot/grub/grubenv: .*x=1.*"),
    ("systemctl stop systemd-logind", r"units: systemd-logind.service: 'loaded active running' -> 'loaded inactive dead'"),
    ("echo 8 > /sys/block/vda/queue/read_ahead_kb", r"runtime: /sys/block/vda/queue/read_ahead_kb: .*'8'"),
    ("setpci -s 20:00.0 ECAP_ACS+6.w=1d", r"pci: 0000:20:00.0 .*-\s*ACSCtl.*\n *.\s*ACSCtl:\s*SrcValid[+].*"),
    (
        "ethtool -K $(basename /sys/bus/pci/devices/0000:61:00.0/virtio*/net/*) gro off",
        r"ethtool: .*-generic-receive-offload: on\n *.generic-receive-offload: off.*",
    ),
    ("echo 1 > $(dirname /proc/irq/*/virtio1-input)/smp_affinity", r"irq: virtio1-input: '.*' -> '0'"),
]


def test_every_change_is_seen_and_nothing_else(guest: Guest) -> None:
    before = guest.state()
    for command, _seen in CHANGES:
        guest.check(command)
    found = difference(before, guest.state())
    for command, seen in CHANGES:
        assert sum(bool(re.fullmatch(seen, one, re.DOTALL)) for one in found) == 1, f"{command}: not seen, or twice, in {found}"
    assert len(found) == len(CHANGES), found


def test_one_shot_entry_of_grub_boots_once(guest: Guest) -> None:
    guest.check(
        "printf 'menuentry once --id once {\\nlinux /boot/vmlinuz-%s root=/dev/vda1 ro console=ttyS0 quiet once=1\\n"
        "initrd /boot/initrd.img-%s\\n}\\n' $(uname -r) $(uname -r) >> /etc/grub.d/40_custom && update-grub && grub-reboot once",
        timeout_s=200,
    )
    guest.reboot()
    assert "once=1" in guest.check("cat /proc/cmdline")
    guest.reset()
    assert "once=1" not in guest.check("cat /proc/cmdline")


def test_power_cut_keeps_what_was_synced(guest: Guest) -> None:
    guest.put("/root/kept", b"kept\n")
    guest.check("sync /root/kept /root")
    guest.check(
        "cp /root/kept /root/lost; cd /root; nohup sh -c 'while :; do dd if=/dev/zero of=big bs=1M count=64; done' >/dev/null 2>&1 &"
    )
    guest.power_cut()
    guest.boot()
    assert guest.check("cat /root/kept") == "kept\n"
    assert guest.run("test -s /root/lost").rc, "a file that was never synced outlived the power cut: the disk is written through"
    assert "EXT4-fs error" not in guest.check("dmesg")


def test_kilter_reads_the_real_kernel(guest: Guest) -> None:
    guest.plug_nvme()
    snapshot = json.loads(guest.check("kilter snapshot", timeout_s=120))
    print(json.dumps(snapshot)[:6000])
    assert snapshot
    done = guest.run("kilter diagnose --json", timeout_s=120)
    assert done.rc in (0, 1), done.err
    print(done.out[:3000], machine.NODES)
