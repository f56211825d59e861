from __future__ import annotations

from pathlib import Path

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from kilter.facts.host import UNLIMITED
from kilter.intake.read import read_paths

ANSWERS = [
    ("systemd-detect-virt", "kvm", "host.virtualization", "kvm"),
    ("systemd-detect-virt", "none", "host.virtualization", "none"),
    ("systemd-detect-virt --container", "docker", "host.container", "docker"),
    ("uname -r", "6.8.0-45-generic", "kernel.release", "6.8.0-45-generic"),
    ("uname -m", "aarch64", "kernel.arch", "aarch64"),
    ("getconf PAGESIZE", "65536", "kernel.page_bytes", 65536),
    ("ulimit -s", "unlimited", "limits.stack_bytes", UNLIMITED),
    ("ulimit -s", "8192", "limits.stack_bytes", 8 << 20),
    ("ulimit -l", "64", "limits.memlock_bytes", 64 << 10),
    ("ulimit -n", "1024", "limits.nofile", 1024),
    ("cat /sys/class/dmi/id/sys_vendor", "Microsoft Corporation", "host.dmi_vendor", "Microsoft Corporation"),
    ("cat /sys/kernel/mm/transparent_hugepage/enabled", "always [madvise] never", "memory.thp_enabled", "madvise"),
    ("cat /proc/sys/kernel/numa_balancing", "1", "kernel.sysctls", {"kernel.numa_balancing": "1"}),
    (
        "cat /sys/devices/system/cpu/cpu*/cpufreq/scaling_governor",
        "powersave\npowersave\nperformance",
        "cpu.governors",
        {"powersave": 2, "performance": 1},
    ),
]


def read(tmp_path: Path, text: str):
    path = tmp_path / "pasted.txt"
    path.write_text(text, encoding="utf-8")
    case = read_paths([str(path)])
    return case, next(iter(case.snapshots), None)


@pytest.mark.parametrize(("command", "output", "field", "value"), ANSWERS)
def test_the_command_tells_what_the_answer_means(tmp_path, command, output, field, value):
    case, snapshot = read(tmp_path, f"ops@gpu-1:~$ {command}\n{output}\n")
    assert snapshot is not None
    entity, _, name = field.partition(".")
    assert getattr(getattr(snapshot, entity), name) == value
    assert snapshot.node == "gpu-1"
    assert case.inputs[0].unrecognised_lines == 0


@pytest.mark.parametrize(
    ("command", "output"),
    [
        ("uname -r", "command not found"),
        ("ulimit -s", "soft"),
        ("getconf PAGESIZE", "undefined"),
        ("systemd-detect-virt", "-bash: systemd-detect-virt: command not found"),
        ("cat /sys/class/dmi/id/sys_vendor", "one\ntwo"),
        ("cat /sys/devices/system/*/cpu*/cpufreq/scaling_governor", "performance"),
    ],
)
def test_what_is_no_answer_is_no_fact(tmp_path, command, output):
    case, snapshot = read(tmp_path, f"ops@gpu-1:~$ {command}\n{output}\nops@gpu-1:~$ uname -m\nx86_64\n")
    assert case.inputs[0].unrecognised_lines == len(output.split("\n"))
    assert snapshot is not None
    assert (snapshot.kernel.release, snapshot.host.virtualization, snapshot.limits.stack_bytes) == (None, None, None)
    assert snapshot.kernel.arch == "x86_64"


@settings(max_examples=60, deadline=None)
@given(st.sampled_from(ANSWERS), st.text(max_size=200))
def test_no_output_breaks_it(tmp_path_factory, answer, text):
    read(tmp_path_factory.mktemp("x"), f"ops@gpu-1:~$ {answer[0]}\n{text}\n")


CONFIG = """\
#
# Automatically generated file; DO NOT EDIT.
# Linux/x86 6.8.12 Kernel Configuration
#
CONFIG_CC_VERSION_TEXT="gcc (Ubuntu 13.2.0) 13.2.0"
CONFIG_NUMA=y
CONFIG_PCI_P2PDMA=y
# CONFIG_INIT_ON_ALLOC_DEFAULT_ON is not set
CONFIG_HZ=250

#
# end of General setup
"""


def test_kernel_configuration(tmp_path):
    case, snapshot = read(tmp_path, f"ops@gpu-1:~$ zcat /proc/config.gz\n{CONFIG}")
    assert case.inputs[0].unrecognised_lines <= 3  # the first lines say nothing of what they are
    assert snapshot is not None
    config = snapshot.kernel.config
    assert (config["CONFIG_NUMA"], config["CONFIG_PCI_P2PDMA"], config["CONFIG_INIT_ON_ALLOC_DEFAULT_ON"]) == ("y", "y", "n")


def test_kernel_configuration_that_was_searched(tmp_path):
    _, snapshot = read(tmp_path, "ops@gpu-1:~$ zgrep P2PDMA /proc/config.gz\n# CONFIG_PCI_P2PDMA is not set\n")
    assert snapshot is not None
    assert snapshot.kernel.config == {"CONFIG_PCI_P2PDMA": "n"}
