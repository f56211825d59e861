"""Members of support bundles: what is worth reading, whose it is, which command it holds."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from kilter.intake import bundle

SOS = "sosreport-gpu-b12-123456-2024-05-01-abcdefg"


@pytest.mark.parametrize(
    "name",
    [
        f"{SOS}/sos_commands/pci/lspci_-nnvv",
        f"{SOS}/sos_commands/kernel/dmesg_-T",
        f"{SOS}/sos_commands/infiniband/ibstat",
        f"{SOS}/sos_commands/hardware/dmidecode",
        f"{SOS}/sos_commands/nvidia/nvidia-smi_-q",
        f"{SOS}/proc/cmdline",
        f"{SOS}/sys/class/infiniband/mlx5_0/ports/1/counters/symbol_error",
        f"{SOS}/var/log/messages",
        f"{SOS}/var/log/fabricmanager.log",
        f"{SOS}/etc/os-release",
        "must-gather.local.1/nodes/worker-1.x.com/dmesg",
        "kilter-gpu-b13-20260101T000000Z/commands.txt",
        "nvidia-bug-report.log.gz",
    ],
)
def test_what_kilter_reads_is_kept(name: str) -> None:
    assert bundle.interesting(name)


@pytest.mark.parametrize(
    "name",
    [
        f"{SOS}/var/lib/rpm/Packages",
        f"{SOS}/sos_commands/rpm/package-data",
        f"{SOS}/etc/selinux/targeted/policy/policy.33",
        f"{SOS}/usr/lib/os.so.1",
        f"{SOS}/proc/kallsyms",
        f"{SOS}/var/log/journal/0123/system.journal",
        f"{SOS}/var/log/sa/sa01",
        "traces/rank0.nsys-rep",
        "core.dump",
    ],
)
def test_what_no_reader_understands_is_skipped(name: str) -> None:
    assert not bundle.interesting(name)


@pytest.mark.parametrize(
    ("name", "node"),
    [
        (f"{SOS}/proc/cmdline", "gpu-b12"),
        ("sosreport-gpu01-2024-05-01-abcdefg.tar.xz", "gpu01"),
        ("kilter-gpu-b13-20260101T000000Z/x", "gpu-b13"),
        ("must-gather.local.1/nodes/worker-1.x.com/dmesg", "worker-1.x.com"),
        ("nvidia-bug-report-gpu7.log.gz", "gpu7"),
        ("nvidia-bug-report.log.gz", ""),
        ("logs/dmesg.txt", ""),
    ],
)
def test_the_node_is_in_the_folder_name(name: str, node: str) -> None:
    assert bundle.node(name) == node


@pytest.mark.parametrize(
    ("name", "command"),
    [
        (f"{SOS}/sos_commands/pci/lspci_-nnvv", "lspci -nnvv"),
        (f"{SOS}/sos_commands/networking/ip_-s_-d_link", "ip -s -d link"),
        (f"{SOS}/sos_commands/networking/ethtool_-S_ens1f0np0", "ethtool -S ens1f0np0"),
        (f"{SOS}/sos_commands/nvidia/nvidia-smi_-q_-d_PERFORMANCE", "nvidia-smi -q -d PERFORMANCE"),
        (f"{SOS}/sos_commands/ipmitool/ipmitool_sel_elist", "ipmitool sel elist"),
        (f"{SOS}/proc/cpuinfo", "cat /proc/cpuinfo"),
        ("notes.txt", ""),
    ],
)
def test_sos_file_names_become_commands(name: str, command: str) -> None:
    assert bundle.command(name) == command


@given(st.text(max_size=200))
def test_any_name_is_answered(name: str) -> None:
    assert isinstance(bundle.interesting(name), bool)
    assert isinstance(bundle.node(name), str)
    assert isinstance(bundle.command(name), str)


@pytest.mark.parametrize("piece", ["a/", "nodes/", "sosreport-", "sos_commands/", ".", "_"])
def test_long_names_end_soon(piece: str) -> None:
    name = piece * 5000
    bundle.interesting(name), bundle.node(name), bundle.command(name)
