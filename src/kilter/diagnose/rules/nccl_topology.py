"""The tree that NCCL believes in (NCCL_TOPO_FILE, NCCL_TOPO_DUMP_FILE): what it hides, and where it is lopsided."""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Iterator

from kilter.diagnose.engine import Context, rule
from kilter.facts.case import NcclTopologyNode, Snapshot
from kilter.facts.finding import Cause, Evidence, Finding, Subject

_HINT = "NCCL_TOPO_DUMP_FILE=topo.xml for one run"
_SOURCES = ("NVIDIA/nccl src/graph/xml.cc and topo.cc",)
_NO_VENDOR = {"", "0x0000", "0xffff"}


class _Tree:
    """PCI functions of a topology by address."""

    def __init__(self, nodes: list[NcclTopologyNode]) -> None:
        self.pci = {n.bus_id: n for n in nodes if n.kind == "pci" and n.bus_id}
        gpus = {n.bus_id for n in nodes if n.kind == "gpu" and n.bus_id}
        self.gpus = [n for a, n in self.pci.items() if a in gpus or self.class_of(n).startswith("0x03")]
        self.nics = [n for n in self.pci.values() if self.class_of(n).startswith("0x02")]
        self.inner = {n.parent for n in self.pci.values() if n.parent in self.pci}

    @staticmethod
    def class_of(node: NcclTopologyNode) -> str:
        return node.attributes.get("class", "")

    def switches(self, node: NcclTopologyNode) -> list[str]:
        """Addresses of the bridges above, nearest first."""
        found: list[str] = []
        parent = node.parent
        while parent in self.pci and parent not in found and len(found) < 64:
            found.append(parent or "")
            parent = self.pci[parent].parent
        return found


def _tree(snapshot: Snapshot, ctx: Context) -> _Tree:
    if snapshot.nccl_topology is None:
        raise ctx.missing("NCCL topology")
    tree = _Tree(snapshot.nccl_topology)
    if not tree.gpus:
        raise ctx.skip("the topology names no GPU class")
    return tree


def _gts(text: str | None) -> float | None:
    match = re.match(r"(\d{1,3}(?:\.\d)?) ?GT/s", text or "")
    return float(match[1]) if match else None


def _name(node: NcclTopologyNode, snapshot: Snapshot) -> str:
    for gpu in snapshot.accelerators or []:
        if gpu.pci_address == node.bus_id:
            return gpu.label
    return f"GPU {node.bus_id}"


@rule(
    "topo.gpu_nic_far",
    "Each GPU has a NIC below its switch, if any has",
    scope="node",
    family="topology",
    sop="SOP-NCCL",
    hint=_HINT,
    sources=(*_SOURCES, "GPUDirect RDMA across the CPU's root complex is slower than below one switch"),
)
def gpu_nic_far(snapshot: Snapshot, ctx: Context) -> Iterator[Finding]:
    """A GPU shares no PCIe switch with any NIC while three of four of its siblings do: its traffic crosses the CPU."""
    tree = _tree(snapshot, ctx)
    if not tree.nics or len(tree.gpus) < 2:
        raise ctx.skip("no NIC, or one GPU, in the topology")
    below = {switch for nic in tree.nics for switch in tree.switches(nic)}
    far = [gpu for gpu in tree.gpus if not below & set(tree.switches(gpu))]
    near = len(tree.gpus) - len(far)
    if not far or near < 3 * len(far):
        return
    for gpu in far:
        yield ctx.finding(
            "warning",
            f"shares no switch with a NIC; {near} of {len(tree.gpus)} GPUs do",
            subject=Subject("gpu", _name(gpu, snapshot), ctx.node),
            evidence=[
                Evidence(f"{gpu.bus_id} below {', '.join(tree.switches(gpu)) or gpu.parent or 'the root'}", ctx.where(gpu))
            ],
            causes=[
                Cause("a NIC is lost or was not passed to the VM or container", "likely", "lspci, ibstat: count of NICs"),
                Cause("the topology file leaves it out", "possible", "NCCL_TOPO_DUMP_FILE without NCCL_TOPO_FILE"),
            ],
            action="Count the NICs; compare with another node of the same type.",
            confidence="medium",
        )


@rule(
    "topo.link_width_narrow",
    "Links of alike devices have one width",
    scope="node",
    family="topology",
    sop="SOP-BUS",
    hint=_HINT,
    sources=_SOURCES,
    action="Compare with lspci -vvv (LnkSta, LnkCap) of this device and the port above; reseat, then riser or board.",
)
def link_width_narrow(snapshot: Snapshot, ctx: Context) -> Iterator[Finding]:
    """A GPU or NIC has a narrower link than two of three alike devices of the node. Widths of 0 are unknown, and unknown is not narrow."""
    tree = _tree(snapshot, ctx)
    groups: dict[tuple[str, str], list[NcclTopologyNode]] = {}
    for node in [*tree.gpus, *tree.nics]:
        if node.link_width is not None:
            groups.setdefault((tree.class_of(node)[:4], node.attributes.get("device", "")), []).append(node)
    if not groups:
        raise ctx.missing("link widths in the NCCL topology (the hypervisor hides them)", "lspci -vvv on the host")
    for (kind, _), nodes in groups.items():
        usual, count = Counter(n.link_width or 0 for n in nodes).most_common(1)[0]
        for node in nodes:
            if len(nodes) >= 3 and 3 * count >= 2 * len(nodes) and (node.link_width or 0) < usual:
                is_gpu = kind == "0x03"
                yield ctx.finding(
                    "warning",
                    f"x{node.link_width} in the NCCL topology, x{usual} on {count} alike devices",
                    subject=Subject("gpu", _name(node, snapshot), ctx.node)
                    if is_gpu
                    else Subject("pci", node.bus_id or "", ctx.node),
                    evidence=[ctx.fact(node, "link_width")],
                )


@rule(
    "topo.link_unknown",
    "NCCL knows the speed of each GPU's link",
    scope="node",
    family="topology",
    hint=_HINT,
    sources=(*_SOURCES, "topo.cc: an unknown speed counts as 8 GT/s a lane, an unknown width as 16"),
    action="Give NCCL a topology file of the provider (NCCL_TOPO_FILE) if its channels look wrong; no fault by itself.",
)
def link_unknown(snapshot: Snapshot, ctx: Context) -> Finding | None:
    """Link speed or width of GPUs is not in the file: a hypervisor hides them. NCCL then reckons with PCIe 3.0 x16."""
    tree = _tree(snapshot, ctx)
    hidden = [g for g in tree.gpus if "link_speed" in g.missing or "link_width" in g.missing]
    if not hidden:
        return None
    return ctx.finding(
        "info",
        f"link speed of {len(hidden)} of {len(tree.gpus)} GPUs is not told; NCCL reckons with PCIe 3.0 x16",
        evidence=[
            Evidence(f"{g.bus_id}: {g.missing['link_speed' if 'link_speed' in g.missing else 'link_width'].detail}", ctx.where(g))
            for g in hidden[:4]
        ],
    )


@rule(
    "topo.flattened",
    "The NCCL topology is that of the machine",
    scope="node",
    family="topology",
    hint=_HINT,
    sources=(*_SOURCES, "topology files of Azure, AWS and OCI: synthetic switches (ffff:ff:*, no vendor)"),
    action="Judge links from lspci -vvv on the host; a topology file written by hand shows nominal ones.",
)
def flattened(snapshot: Snapshot, ctx: Context) -> Finding | None:
    """GPUs hang directly on a CPU, or below switches that exist only in the file: the real tree and its speeds are hidden."""
    tree = _tree(snapshot, ctx)
    direct = [g for g in tree.gpus if not tree.switches(g)]
    made_up = [
        tree.pci[s]
        for s in tree.inner
        if s in tree.pci and (s.startswith("ffff:") or tree.pci[s].attributes.get("vendor", "") in _NO_VENDOR)
    ]
    if len(tree.gpus) < 2 or (len(direct) < len(tree.gpus) and not made_up):
        return None
    nodes = sorted(made_up, key=lambda n: n.bus_id or "") or direct
    text = (
        f"{len(made_up)} switches stand only in the file, without a vendor: speeds are nominal and the real tree is hidden"
        if made_up
        else f"all {len(direct)} GPUs hang directly on a CPU: switches between them, if any, are hidden"
    )
    return ctx.finding("info", text, evidence=[Evidence(f"{n.bus_id} below {n.parent}", ctx.where(n)) for n in nodes[:4]])


@rule(
    "topo.switch_uplink_slow",
    "Upstream ports of switches are as fast as what hangs below",
    scope="node",
    family="topology",
    sop="SOP-BUS",
    hint=_HINT,
    sources=(*_SOURCES, "OCI BM.GPU.H100.8: c030 upstream ports read 5.0 GT/s on a good machine"),
)
def switch_uplink_slow(snapshot: Snapshot, ctx: Context) -> Iterator[Finding]:
    """An upstream port reads slower than the GPU below it. On all switches alike it is how a synthetic port reads (information); on some
    of several alike it is a warning."""
    tree = _tree(snapshot, ctx)
    tops: dict[str, float] = {}
    slow: dict[str, float] = {}
    for gpu in tree.gpus:
        above, speed = tree.switches(gpu), _gts(gpu.link_speed)
        if not above or speed is None or (uplink := _gts(tree.pci[above[-1]].link_speed)) is None:
            continue
        tops[above[-1]] = uplink
        if uplink < speed:
            slow[above[-1]] = speed
    if not tops:
        raise ctx.missing("link speeds of switches and GPUs in the NCCL topology")
    if not slow:
        return
    alike = len(slow) == len(tops)
    for address, speed in slow.items() if not alike else list(slow.items())[:1]:
        node = tree.pci[address]
        yield ctx.finding(
            "info" if alike or len(tops) < 3 else "warning",
            f"upstream port{'s of all ' + str(len(tops)) + ' switches read' if alike and len(tops) > 1 else ' reads'} {node.link_speed},"
            f" the GPU below {speed:g} GT/s"
            + (
                ": NCCL reckons paths to the CPU with it; alike on all, so the reading of a synthetic port is likelier than a fault"
                if alike
                else ""
            ),
            subject=Subject("node", "", ctx.node) if alike else Subject("pci", address, ctx.node),
            evidence=[ctx.fact(node, "link_speed")],
            action="lspci -vvv of the upstream port on the host tells whether it trained down.",
            confidence="low" if alike else "medium",
            sop="" if alike else None,
        )


#: Broadcom's Gen 4 and Gen 5 switches, and the subsystem of their virtual (synthetic) ports (pci.ids: 1000:c010, c012, c030, c034; 1000:100b).
_BROADCOM = {"0xc010", "0xc012", "0xc030", "0xc034"}
_VIRTUAL_PORT = "0x100b"


@rule(
    "topo.virtual_pcie_bridge",
    "PCIe switches show their real tree",
    scope="node",
    family="topology",
    hint=_HINT,
    sources=(
        "NVIDIA/nccl#820 (PEX88096)",
        "NVIDIA/nccl src/graph/topo.cc: ncclTopoFlattenBcmSwitches",
        "pci.ids: 1000:c010 1000:100b",
    ),
    action="Compare the nearest NIC of each GPU between nodes (nvidia-smi topo -m); where they differ, give NCCL a topology file or ask the vendor for switch firmware.",
)
def virtual_bridge(snapshot: Snapshot, ctx: Context) -> Finding | None:
    """Ports of a Broadcom switch are virtual ones that its firmware makes up: GPUs and NICs below one switch can look nearer or farther than they are.

    NCCL flattens switches in base mode (subsystem a0xx) into one level, not these.
    """
    if snapshot.nccl_topology is None and snapshot.pci is None:
        raise ctx.missing("NCCL topology, or PCI listing with subsystems", _HINT)
    found: list[tuple[str, str]] = []
    for node in snapshot.nccl_topology or []:
        keys = node.attributes
        if keys.get("vendor") == "0x1000" and keys.get("device") in _BROADCOM and keys.get("subsystem_device") == _VIRTUAL_PORT:
            found.append((node.bus_id or "?", ctx.where(node)))
    for device in (snapshot.pci or {}).values():
        name = f"0x{device.device_id:04x}" if device.device_id is not None else ""
        if device.vendor_id == 0x1000 and name in _BROADCOM and device.subsystem_device_id == int(_VIRTUAL_PORT, 16):
            found.append((device.address, ctx.where(device)))
    if not found:
        return None
    return ctx.finding(
        "info",
        f"{len(found)} ports of Broadcom switches are virtual: which NIC is nearest to a GPU may be shown wrongly",
        evidence=[Evidence(f"{address}: subsystem 1000:100b, a virtual port", where) for address, where in found[:6]],
    )
