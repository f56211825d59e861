"""What a drawing of a node is made of: plain data that :mod:`kilter.report.topology` fills and the renderers read."""

from __future__ import annotations

from collections.abc import Iterable

import msgspec

from kilter.report.topology_pci import UNKNOWN, bonded_links

GPU_KINDS = ("gpu", "xpu", "accelerator")
NIC_KINDS = ("hca", "nic")
KIND_NAMES = {"gpu": "GPU", "xpu": "XPU", "hca": "HCA", "nic": "NIC", "nvswitch": "NVSwitch", "nvme": "NVMe"}


class LinkState(msgspec.Struct, frozen=True, omit_defaults=True):
    """State of a PCIe link and the most that the device can do. None = not known."""

    generation: int | None = None
    width: int | None = None
    generation_max: int | None = None
    width_max: int | None = None

    @staticmethod
    def _text(gen: int | None, width: int | None) -> str:
        return " ".join(([f"Gen{gen}"] if gen else []) + ([f"x{width}"] if width else []))

    def __str__(self) -> str:
        """``Gen4 x16``, or ``Gen1 x16 (max Gen4 x16)``; "" if not known."""
        now = self._text(self.generation, self.width)
        lower = (self.generation or 99) < (self.generation_max or 0) or (self.width or 99) < (self.width_max or 0)
        return f"{now} (max {self._text(self.generation_max, self.width_max)})" if now and lower else now


class Node(msgspec.Struct, kw_only=True, omit_defaults=True):
    """One drawn thing: a bridge, or a device of interest."""

    key: str  # unique in the topology: "GPU0", "mlx5_0", a PCI address, ...
    named: bool = True  # False: the key is made from the address, since no source names or numbers the device
    kind: str  # gpu, xpu, accelerator, nvswitch, hca, nic, nvme, bridge
    address: str = ""
    title: str = ""
    port: str = ""  # of a bridge: "root port", "upstream port", "downstream port", as the listing says
    names: list[str] = []  # further names: network interfaces
    numa: int | None = None
    link: LinkState = LinkState()
    acs: bool = False  # redirects peer-to-peer requests or completions
    slot: str = ""
    details: list[str] = []  # "NVLink 18/18", "InfiniBand 400 Gbit/s ACTIVE", "not in the PCI listing"
    gap: bool = False  # bridges between this one and the one above are not in the listing
    children: list[Node] = []


class RootBus(msgspec.Struct, kw_only=True, omit_defaults=True):
    name: str = ""  # "0000:15"; "" = what is above these devices is not known
    nodes: list[Node] = []


class NumaGroup(msgspec.Struct, kw_only=True, omit_defaults=True):
    node: int | None = None  # None = not known
    cpus: str = ""
    memory_bytes: int | None = None
    buses: list[RootBus] = []
    hidden: int = 0  # PCI functions that are not drawn


class Distance(msgspec.Struct, frozen=True, omit_defaults=True):
    """``word`` is what to show: the reported one if there is one, else the computed one."""

    word: str
    computed: str = UNKNOWN  # from the PCI tree
    reported: str = ""  # from nvidia-smi topo -m

    @property
    def disagrees(self) -> bool:
        """Both are PCIe words and differ. NVLink (NV#) replaces the PCIe word and contradicts nothing."""
        known = self.reported and UNKNOWN not in (self.computed, self.reported)
        return bool(known) and bonded_links(self.reported) is None and self.computed != self.reported


class NvLinks(msgspec.Struct, kw_only=True, omit_defaults=True):
    pairs: dict[str, dict[str, int]] = {}  # GPU -> GPU -> bonded links; each pair once
    all_pairs: str = ""  # "NV18" if each pair of GPUs has that
    active: dict[str, int] = {}  # GPU -> links that are up
    total: dict[str, int] = {}  # GPU -> links that the tool lists
    switches: int | None = None  # None = not known


class Topology(msgspec.Struct, kw_only=True, omit_defaults=True):
    node: str = ""
    product: str = ""
    cpu: str = ""
    numa: list[NumaGroup] = []
    gpus: list[str] = []  # keys, rows and columns of the distances
    nics: list[str] = []
    distances: dict[str, dict[str, Distance]] = {}
    nearest_nics: dict[str, list[str]] = {}  # GPU -> NICs at the least known distance
    nearest_gpus: dict[str, list[str]] = {}  # NIC -> GPUs at the least known distance
    nvlinks: NvLinks = msgspec.field(default_factory=NvLinks)
    disagreements: list[str] = []
    notes: list[str] = []

    def distance(self, a: str, b: str) -> Distance:
        found = self.distances.get(a, {}).get(b) or self.distances.get(b, {}).get(a)
        return found or Distance("X" if a == b else UNKNOWN)

    @property
    def with_domain(self) -> bool:
        """Addresses need their domain to be told apart."""
        return len({node.address.rpartition(":")[0].rpartition(":")[0] for node in self.walk() if node.address} - {"0000"}) > 0

    def walk(self) -> Iterable[Node]:
        stack = [node for group in self.numa for bus in group.buses for node in bus.nodes]
        while stack:
            node = stack.pop()
            yield node
            stack.extend(node.children)

    @property
    def is_empty(self) -> bool:
        """There is nothing to draw."""
        return not any(group.buses for group in self.numa)


class Segment(msgspec.Struct, kw_only=True):
    """One line or box of a drawing: a PCIe link's two ports in one, or a device with the port above it.

    ``bridges`` run from the top down. ``device`` is None for a bridge with several devices below.
    """

    bridges: list[Node]
    device: Node | None = None
    children: list[Segment] = []

    @property
    def acs(self) -> list[Node]:
        return [bridge for bridge in self.bridges if bridge.acs]

    @property
    def gap(self) -> bool:
        parts = self.bridges + ([self.device] if self.device else [])
        return any(part.gap for part in parts)

    @property
    def link(self) -> LinkState:
        """Of the lower end, else of the port above it: both are ends of one link."""
        parts = self.bridges + ([self.device] if self.device else [])
        return next((part.link for part in reversed(parts) if str(part.link)), LinkState())

    @property
    def is_switch(self) -> bool:
        return any("upstream" in bridge.port.lower() for bridge in self.bridges)


def segments(nodes: Iterable[Node]) -> list[Segment]:
    """Fold a tree so that each PCIe link is one segment: root port and switch, switch port and device."""
    out: list[Segment] = []
    for node in nodes:
        bridges: list[Node] = []
        while node.kind == "bridge" and len(node.children) == 1:
            bridges.append(node)
            node = node.children[0]
        if node.kind != "bridge":
            out.append(Segment(bridges=bridges, device=node))
        elif len({child.address.rpartition(".")[0] for child in node.children}) == 1 and node.children[0].kind != "bridge":
            # Functions of one device: each is a line of its own, all behind the same port.
            out += [Segment(bridges=[*bridges, node], device=child) for child in node.children]
        else:
            out.append(Segment(bridges=[*bridges, node], children=segments(node.children)))
    return sorted(out, key=segment_order)


_ORDER = {"gpu": 0, "xpu": 0, "accelerator": 1, "nvswitch": 2, "hca": 3, "nic": 4, "nvme": 5}


def segment_order(segment: Segment) -> int:
    """GPUs first, then NVSwitches, NICs, NVMe, and further bridges."""
    return 6 if segment.device is None else _ORDER.get(segment.device.kind, 5)
