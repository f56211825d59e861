"""Texts as the tools print them, made from real captures and the drivers' own formats, with faults put in at named places.

Kernel lines follow NVIDIA/open-gpu-kernel-modules (src/nvidia/src/kernel/gpu/rc/kernel_rc.c, arch/nvalloc/unix/src/osinit.c), Linux
(drivers/pci/pcie/aer.c, drivers/pci/hotplug/pciehp_ctrl.c) and the log forms of knowledge/tables/xid.yaml.
"""

from __future__ import annotations

import re
from pathlib import Path

DATA = Path(__file__).parent / "data"
DAY = "2026-03-04"

Change = dict[str, str]  # "Remapped Rows/Pending" -> "Yes"


def at(clock: str, text: str, node: str = "n1") -> str:
    """A line of ``journalctl -k -o short-iso-precise``; ``clock`` is ``10:00:00`` or ``10:00:00.5``."""
    clock = clock if "." in clock else f"{clock}.000000"
    return f"{DAY}T{clock}+00:00 {node} kernel: {text}\n"


def bus(gpu: int) -> str:
    """The bus of GPU ``gpu`` as these texts number it: 18 for 0, 2a for 1, ..."""
    return ("18", "2a", "3a", "5d", "9a", "ab", "ba", "db")[gpu]


def xid(
    clock: str, code: int, rest: str = "", *, gpu: int = 0, pid: int | None = 4242, name: str = "python3", node: str = "n1"
) -> str:
    """``NVRM: Xid (PCI:...)`` as kernel_rc.c prints it, with and without a process."""
    who = f"pid={pid}, name={name}, " if pid is not None else ""
    return at(clock, f"NVRM: Xid (PCI:0000:{bus(gpu)}:00): {code}, {who}{rest}", node)


def off_bus(clock: str, gpu: int = 0, node: str = "n1") -> str:
    return xid(clock, 79, "GPU has fallen off the bus.", gpu=gpu, node=node)


def gsp_timeout(clock: str, gpu: int = 0, node: str = "n1", function: str = "76 (GSP_RM_CONTROL)") -> str:
    return xid(
        clock,
        119,
        f"Timeout after 45s of waiting for RPC response from GPU{gpu} GSP! Expected function {function} sequence 1 (0x20803032 0x598).",
        gpu=gpu,
        node=node,
    )


def aer(
    clock: str,
    error: str,
    bit: int,
    *,
    address: str = "0000:18:00.0",
    driver: str = "nvidia",
    severity: str = "Uncorrectable (Fatal)",
    layer: str = "Data Link Layer",
    agent: str = "Receiver ID",
    node: str = "n1",
) -> str:
    """The two lines of an AER error (drivers/pci/pcie/aer.c: aer_print_error)."""
    head = f"{driver} {address}: PCIe Bus Error: severity={severity}, type={layer}, ({agent})"
    return at(clock, head, node) + at(clock, f"{driver} {address}:    [{bit:2d}] {error:<22} (First)", node)


def sel(*entries: str, clock: str = "10:00", day: str = "03/04/2026", node: str = "n1") -> str:
    """``ipmitool sel elist``, a row a second from ``clock``."""
    rows = "\n".join(f" {n:3x} | {day} | {clock}:{n:02d} UTC | {entry} | Asserted" for n, entry in enumerate(entries, 1))
    return f"root@{node}:~# ipmitool sel elist\n{rows}\n"


_KEY = re.compile(r"^( +)(\S[^:\n]*?) *: ?(.*)$")


def _set(block: str, path: str, value: str) -> str:
    """Put ``value`` at ``Section/Key`` of one GPU's lines."""
    sections = path.split("/")
    lines, stack = block.split("\n"), []
    for number, line in enumerate(lines):
        if not line.strip():
            continue
        indent = len(line) - len(line.lstrip())
        while stack and stack[-1][0] >= indent:
            stack.pop()
        name = line.partition(" : ")[0].strip()
        stack.append((indent, name))
        if [n for _, n in stack][-len(sections) :] == sections and " : " in line:
            lines[number] = f"{line.partition(' : ')[0]} : {value}"
            return "\n".join(lines)
    raise AssertionError(f"{path} is not in the capture")


#: A GPU at full work, whose readings differ from the capture's: 8 such are a healthy node.
BUSY = {
    "Performance State": "P0",
    "Utilization/GPU": "99 %",
    "Utilization/Memory": "41 %",
    "GPU Power Readings/Average Power Draw": "655.12 W",
    "Clocks/SM": "1755 MHz",
    "Temperature/GPU Current Temp": "61 C",
    "Temperature/GPU T.Limit Temp": "26 C",
    "Clocks Event Reasons/SW Power Cap": "Active",
    "GPU Virtualization Mode/Virtualization Mode": "None",
}


def smi(
    count: int = 8,
    changes: dict[int, Change] | None = None,
    *,
    every: Change | None = None,
    node: str = "n1",
    lost: tuple[int, ...] = (),
) -> str:
    """``nvidia-smi -q`` of ``count`` H100 GPUs at work, from a real capture (driver 590.48.01), with values changed by GPU."""
    text = (DATA / "s001-h100-sxm-590-idle-load" / "load.nvidia-smi-q.txt").read_text()
    head, _, block = text.partition("GPU 00000000:00:09.0\n")
    blocks = []
    for gpu in range(count):
        if gpu in lost:
            continue
        one = block.replace("00000000:00:09.0", f"00000000:{bus(gpu).upper()}:00.0")
        one = one.replace("GPU-00000000-0000-0000-0000-000000000000", f"GPU-00000000-0000-0000-0000-{gpu:012d}")
        for path, value in {**BUSY, **(every or {}), **(changes or {}).get(gpu, {})}.items():
            one = _set(one, path, value)
        blocks.append(f"GPU 00000000:{bus(gpu).upper()}:00.0\n{one}")
    head = head.replace(
        "Attached GPUs                                          : 1",
        f"Attached GPUs                                          : {len(blocks)}",
    )
    return f"root@{node}:~# nvidia-smi -q\n{head}{''.join(blocks)}\n"


def lspci(*gpus: int, revision: dict[int, str] | None = None, node: str = "n1") -> str:
    """``lspci -nn`` of H100 SXM GPUs; ``revision`` ff for one that no longer answers."""
    rows = [
        f"{bus(g)}:00.0 3D controller [0302]: NVIDIA Corporation GH100 [H100 SXM5 80GB] [10de:2330] (rev {(revision or {}).get(g, 'a1')})"
        for g in gpus
    ]
    return f"root@{node}:~# lspci -nn\n" + "\n".join(rows) + "\n"


def ports(
    counters: dict[str, dict[str, int]],
    *,
    node: str = "n1",
    layer: str = "InfiniBand",
    rate: str = "400 Gb/sec (4X NDR)",
    rates: dict[str, str] | None = None,
    states: dict[str, tuple[str, str]] | None = None,
) -> str:
    """``grep -r . /sys/class/infiniband``: HCA -> counter -> value; names with ``hw:`` are in hw_counters."""
    lines = [f"root@{node}:~# grep -r . /sys/class/infiniband"]
    for hca, values in counters.items():
        top = f"/sys/class/infiniband/{hca}/ports/1"
        state, physical = (states or {}).get(hca, ("4: ACTIVE", "5: LinkUp"))
        lines += [
            f"/sys/class/infiniband/{hca}/hca_type:MT4129",
            f"{top}/state:{state}",
            f"{top}/phys_state:{physical}",
            f"{top}/link_layer:{layer}",
            f"{top}/rate:{(rates or {}).get(hca, rate)}",
        ]
        for name, value in values.items():
            folder = "hw_counters" if name.startswith("hw:") else "counters"
            lines.append(f"{top}/{folder}/{name.removeprefix('hw:')}:{value}")
    return "\n".join(lines) + "\n"


def ethtool(values: dict[str, int], *, interface: str = "ens1f0np0", node: str = "n1") -> str:
    """``ethtool -S`` of an mlx5 interface."""
    body = "".join(f"     {name}: {value}\n" for name, value in values.items())
    return f"root@{node}:~# ethtool -S {interface}\nNIC statistics:\n{body}"


def nccl(
    node: str,
    text: str,
    *,
    clock: str = "10:00:00",
    pid: int = 4001,
    gpu: int = 0,
    level: str = "WARN",
    file: str = "transport/net_ib.cc:1295",
) -> str:
    """An NCCL line with NCCL_DEBUG_TIMESTAMP_FORMAT as 2.26 and later print it."""
    place = f"{file} " if level == "WARN" else ""
    return f"[{DAY} {clock}] {node}:{pid}:{pid + 100} [{gpu}] {place}NCCL {level} {text}\n"


def watchdog(rank: int, sequence: int = 808, operation: str = "ALLREDUCE", elements: int = 1048576) -> str:
    """PyTorch's watchdog (ProcessGroupNCCL.cpp)."""
    return (
        f"[rank{rank}]:[E304 10:10:00.903881900 ProcessGroupNCCL.cpp:616] [Rank {rank}] Watchdog caught collective operation timeout: "
        f"WorkNCCL(SeqNum={sequence}, OpType={operation}, NumelIn={elements}, NumelOut={elements}, Timeout(ms)=600000) ran for 600020 milliseconds before timing out.\n"
    )


SXID = "nvidia-nvswitch3: SXid (PCI:0000:a9:00.0): {code}, {word}, Link {link} {text}"
FM = "[Mar 04 2026 10:00:0{n}] [{level}] [tid 1808] {text}\n"
PEER = "NET/IB : Got completion from peer {peer}<48133> with status={status} opcode=0 len=0 vendor err {vendor} (Recv) localGid fe80::1 remoteGids fe80::2 hca mlx5_0"


def addresses(*nodes: str) -> str:
    """Lines that tie each node to its address."""
    return "".join(
        nccl(n, f"Bootstrap : Using eth0:10.0.0.{i}<0>", level="INFO", clock="09:00:00") for i, n in enumerate(nodes, 1)
    )


def hcas(**odd: int) -> dict[str, dict[str, int]]:
    """Counters of eight ports, of which mlx5_3 has ``odd`` (a name with ``hw_`` before it is in hw_counters)."""
    usual = {"link_downed": 1, "symbol_error": 0, "port_rcv_errors": 0, "link_error_recovery": 0}
    found = {f"mlx5_{n}": dict(usual) for n in range(8)}
    found["mlx5_3"] |= {name.replace("hw_", "hw:", 1): value for name, value in odd.items()}
    return found


def pauses(**nodes: tuple[int, int]) -> dict[str, str]:
    """``ethtool -S`` of nodes: (pause sent, pause received)."""
    return {
        f"{node}/ethtool.txt": ethtool({"rx_packets_phy": 10**8, "tx_prio3_pause": sent, "rx_prio3_pause": received}, node=node)
        for node, (sent, received) in nodes.items()
    }


def acs(redirect: bool) -> dict[str, str]:
    """``lspci -vvv``: a switch with a GPU and a NIC below it."""
    control = "SrcValid+ TransBlk- ReqRedir+ CmpltRedir+ UpstreamFwd+ EgressCtrl- DirectTrans-"
    if not redirect:
        control = "SrcValid+ TransBlk- ReqRedir- CmpltRedir- UpstreamFwd- EgressCtrl- DirectTrans-"

    def bridge(address: str, port: str, first: str, last: str, primary: str) -> str:
        return (
            f"{address} PCI bridge [0604]: Broadcom / LSI PEX890xx PCIe Gen 5 Switch [1000:c030] (rev b0) (prog-if 00 [Normal decode])\n"
            f"\tBus: primary={primary}, secondary={first}, subordinate={last}, sec-latency=0\n"
            f"\tCapabilities: [68] Express (v2) {port}, MSI 00\n"
            "\t\tLnkCap:\tPort #0, Speed 32GT/s, Width x16, ASPM not supported\n\t\tLnkSta:\tSpeed 32GT/s, Width x16\n"
            f"\tCapabilities: [170 v1] Access Control Services\n\t\tACSCap:\tSrcValid+ TransBlk+ ReqRedir+ CmpltRedir+ UpstreamFwd+ EgressCtrl+ DirectTrans+\n\t\tACSCtl:\t{control}\n\n"
        )

    text = (
        bridge("15:01.0", "Root Port (Slot+)", "16", "19", "15").replace(
            control, control.replace("ReqRedir+ CmpltRedir+", "ReqRedir- CmpltRedir-")
        )
        + bridge("16:00.0", "Upstream Port", "17", "19", "16").replace(
            control, control.replace("ReqRedir+ CmpltRedir+", "ReqRedir- CmpltRedir-")
        )
        + bridge("17:00.0", "Downstream Port (Slot+)", "18", "18", "17")
        + bridge("17:01.0", "Downstream Port (Slot+)", "19", "19", "17")
        + "18:00.0 3D controller [0302]: NVIDIA Corporation GH100 [H100 SXM5 80GB] [10de:2330] (rev a1)\n\tNUMA node: 0\n\tKernel driver in use: nvidia\n\n"
        + "19:00.0 Infiniband controller [0207]: Mellanox Technologies MT2910 Family [ConnectX-7] [15b3:1021]\n\tNUMA node: 0\n\tKernel driver in use: mlx5_core\n\n"
    )
    return {"n1/lspci.txt": f"root@n1:~# lspci -vvvnn\n{text}"}
