"""Readers of pasted and saved tool outputs: one module a tool, sniffed by content, never by file name.

To add a tool: write ``captures/<tool>.py`` with ``parse(block, fragment)`` and add one line to :data:`CAPTURES`: the tool's name, a regular
expression for the first line of its output, and the module. Lines that the parser cannot place go to ``fragment.unparsed``.
"""

from __future__ import annotations

import importlib
import re
from collections.abc import Callable

import msgspec

from kilter.intake.fragment import Block, Fragment

Parser = Callable[[Block, Fragment], None]

#: A PCI address at the start of an lspci line.
_SLOT = r"(?:[0-9a-f]{4,8}:)?[0-9a-f]{2}:[0-9a-f]{2}\.[0-7]"


class Capture(msgspec.Struct, frozen=True):
    """How one tool's output is recognised. ``start`` is tried at the beginning of each line (no look-behind, no groups with names)."""

    tool: str
    start: str
    module: str
    repeats: bool = False  # ``start`` matches again inside one output: a further match continues the block

    def parser(self) -> Parser:
        parse: Parser = importlib.import_module(f"kilter.intake.captures.{self.module}").parse
        return parse


CAPTURES: list[Capture] = [
    Capture("nvidia-smi -q", r"=+NVSMI LOG=+\s*$", "nvidia_smi_q"),
    Capture(
        "nvidia-smi -q -x",
        r"<!DOCTYPE nvidia_smi_log|<nvidia_smi_log>|<\?xml[^\n]*\?>\s*\n<!DOCTYPE nvidia_smi_log",
        "nvidia_smi_xml",
        repeats=True,
    ),
    Capture(
        "nvidia-smi", r"(?:[A-Z][a-z]{2} [A-Z][a-z]{2} +\d+ [\d:]+ \d{4} *\n)?(?:\+-+\+ *\n)?\| NVIDIA-SMI ", "nvidia_smi_table"
    ),
    Capture(
        "nvidia-smi topo -m",
        r"[ \t]*(?:\x1b\[[0-9;]*m)?[ \t]*(?:GPU|NIC|mlx5_)\d+(?:[ \t]+(?:GPU|NIC|mlx5_|CPU|NUMA)[^\n]*)$",
        "nvidia_smi_topo",
    ),
    Capture("nvidia-smi list", r"GPU \d+: [^\n]+ \(UUID: (?:GPU|XPU)-", "nvidia_smi_list", repeats=True),
    Capture("nvidia-smi --version", r"NVIDIA-SMI version\s+: ", "nvidia_smi_version"),
    Capture(
        "nvidia-smi --query-gpu",
        r"(?=[^\n]*\b(?:uuid|gpu_uuid|pci\.bus_id|driver_version|pstate|utilization\.gpu|temperature\.gpu|memory\.(?:used|total)|power\.draw|ecc\.mode|clocks\.|pcie\.link)\b)[a-z][\w.]*(?: \[[^\]\n]*\])?(?:, ?[a-z][\w.]*(?: \[[^\]\n]*\])?)+[ \t]*$",
        "nvidia_smi_csv",
    ),
    Capture(
        "nvidia-smi error",
        r"(?:Unable to determine the device handle|Failed to initialize NVML|NVIDIA-SMI has failed|No devices were found)",
        "nvidia_smi_error",
        repeats=True,
    ),
    Capture("xpu-smi -q", r"=+ ?XPU-?SMI LOG ?=+\s*$", "xpu_smi"),
    Capture("xpu-smi", r"\| XPU-SMI +(?:\S+ +)?Driver Version: ", "xpu_smi"),
    Capture(
        "xpu_smi", r"Runtime Version: [\d.]+[ \t]*\n[ \t]*Driver Version: \S|\| ?DevID \|\s+PCI Addr", "xpu_smi", repeats=True
    ),
    Capture(
        "xpu-smi -m",
        r"[0-9A-Fa-f]{8}:[0-9A-Fa-f]{2}:[0-9A-Fa-f]{2}\.[0-7] \d+ \d+ \S+ \d+ \d+ \d+ \d+ \d+ \d+ ",
        "xpu_smi",
        repeats=True,
    ),
    Capture("xpu-smi -L", r"XPU \d+: \S", "xpu_smi", repeats=True),
    Capture(
        "xpu-smi (Intel)",
        r"Intel(?:\(R\))? XPU System Management Interface|\| Device ID \| Device Information|Timestamp, +DeviceId, ",
        "xpu_smi",
    ),
    Capture(
        "lspci",
        _SLOT + r"(?:/\S+)? (?:\"|[A-Z0-9][^\n:]*: |[0-9a-f]{4}: )|(?:Slot|Device):\s+" + _SLOT + r"\s*$",
        "lspci",
        repeats=True,
    ),
    Capture("lspci -t", r"-(?:\[[0-9a-f]{4}(?::[0-9a-f]{2}(?:-[0-9a-f]{2})?)?\]-|\+-\[)", "lspci_tree", repeats=True),
    Capture("lscpu", r"(?:Architecture|架构)\s*[:\uff1a]\s*\S+|\{\s*\n\s*\"lscpu\":", "lscpu"),
    Capture("numactl -H", r"available: \d+ nodes? \(", "numactl"),
    Capture("ibstat", r"CA '[^'\n]+'|Infiniband device '[^'\n]+' port \d+ status:", "ibstat", repeats=True),
    Capture("ibv_devinfo", r"hca_id:\s*\S+|No IB devices found", "ibv_devinfo", repeats=True),
    Capture("ethtool -S", r"NIC statistics:", "ethtool"),
    Capture(
        "ethtool",
        r"driver: \S+[ \t]*\n(?:version|firmware-version|expansion-rom-version|bus-info):|(?:Settings|Ring parameters|Pause parameters) for \S+:",
        "ethtool",
    ),
    Capture("sysctl", r"(?:abi|debug|dev|fs|kernel|net|sunrpc|user|vm)\.[a-zA-Z0-9_.*/:@-]+ ?= ?", "sysctl", repeats=True),
    Capture("/proc/meminfo", r"MemTotal:\s+\d+ kB", "proc_files"),
    Capture("/proc/cpuinfo", r"processor\s*: \d+", "proc_files", repeats=True),
    Capture("/proc/cmdline", r"BOOT_IMAGE=\S+ ", "proc_files"),
    Capture("/proc/driver/nvidia/version", r"NVRM version: ", "proc_files"),
    Capture("/proc/limits", r"Limit\s+Soft Limit\s+Hard Limit\s+Units", "proc_files"),
    Capture("lsmod", r"Module\s+Size\s+Used by", "proc_files"),
    Capture("/proc/modules", r"\w+ \d+ \d+ (?:-|[\w,]+,) (?:Live|Loading|Unloading) 0x", "proc_files", repeats=True),
    Capture("uname -a", r"Linux \S+ \d+\.\d+\S* #\d", "proc_files"),
    Capture(
        "/etc/os-release",
        r"(?:PRETTY_NAME|NAME|ID|ID_LIKE|VERSION|VERSION_ID|VERSION_CODENAME|[A-Z_]+_URL|UBUNTU_CODENAME|LOGO)=(?:\"[^\"\n]*\"|[^ \"\n]*)$",
        "proc_files",
        repeats=True,
    ),
    Capture("df", r"(?:Filesystem|文件系统)\s+(?:Type\s+|类型\s+)?\S+\s+(?:Used|已用)", "proc_files"),
    Capture("ulimit -a", r"(?:real-time non-blocking time|core file size|time\(seconds\)|-t: cpu time)\s", "ulimit"),
    Capture(
        "env",
        r"(?:declare -x |export )?(?:MASTER_ADDR|MASTER_PORT|WORLD_SIZE|RANK|LOCAL_RANK|FI|OFI|NVSHMEM|LD_PRELOAD|NCCL|CUDA|NVIDIA|TORCH|PYTORCH|UCX|OMP|MKL|GLOO|HSA|XPU|BKCL|SLURM|LD_LIBRARY_PATH|PATH|HOME|HOSTNAME|SHELL|USER|PWD|LANG)(?:_[A-Z0-9_]+)?=",
        "env",
        repeats=True,
    ),
    Capture("sysfs", r"/(?:sys|proc)/[^\s:]*(?:\d{4}:[0-9a-f]{2}:[0-9a-f]{2}\.\d[^\s:]*)*(?::| -> )", "sysfs_text", repeats=True),
    Capture("kilter collector", r"kilter collector \d+\s*$", "collector"),
    Capture(
        "services",
        r"(?:nvidia|dcgm|opensm|openibd|slurmd|kubelet|containerd|docker)[\w@.-]*: (?:active|inactive|failed|activating|deactivating|unknown|not-found)\s*$",
        "collector",
        repeats=True,
    ),
    Capture("nv-fabricmanager --version", r"Fabric Manager version is ?: ?\d", "collector"),
    Capture(
        "Fabric Manager log", r"\[[A-Z][a-z]{2} +\d+ \d{4} [\d:]+\] \[[A-Z]+ *\] \[tid \d+\] ", "fabric_manager", repeats=True
    ),
]

STARTS = re.compile("|".join(f"^(?P<c{i}>{capture.start})" for i, capture in enumerate(CAPTURES)), re.M)


def capture_of(match: re.Match[str]) -> Capture:
    """The capture whose ``start`` matched."""
    assert match.lastgroup is not None
    return CAPTURES[int(match.lastgroup[1:])]
