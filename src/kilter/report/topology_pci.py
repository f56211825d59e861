"""The shape of a PCI tree: which bridge is above which function, and how far two functions are apart.

The words are those of ``nvidia-smi topo -m``. A switch (upstream port and downstream ports together) counts as one
hop, as NCCL scores paths (NVIDIA/nccl: src/graph/topo.cc, src/graph/paths.cc; from memory).
"""

from __future__ import annotations

import re

import msgspec

from kilter.facts.pci import NVIDIA, PciDevice

UNKNOWN = "?"

#: Bridges above one another. Real trees stay below ten; a hostile listing must not make a walk up long.
MAX_DEPTH = 48

#: From near to far. SOC and PSB are what drivers before 384 printed for SYS and a switch on one board.
NEAR_TO_FAR = ("X", "SELF", "PSB", "PIX", "PXB", "PXN", "PHB", "NODE", "SYS", "SOC")

MEANING = {
    "X": "the same device",
    "NV#": "a bond of # NVLinks",
    "XL#": "a bond of # XPU links",
    "PIX": "at most one PCIe switch",
    "PXB": "several PCIe switches, no host bridge",
    "PHB": "through one PCIe host bridge (the CPU)",
    "NODE": "between host bridges of one NUMA node",
    "SYS": "across the interconnect between NUMA nodes",
    UNKNOWN: "not known from what was given",
}

_BONDED = re.compile(r"(?:NV|XL)(\d{1,4})$")


def bonded_links(word: str) -> int | None:
    """Number of bonded links that a word like ``NV18`` (or Kunlunxin's ``XL4``) stands for; None for a PCIe word."""
    match = _BONDED.match(word)
    return int(match.group(1)) if match else None


def rank(word: str) -> int:
    """Order of a distance word: bonded links first, then near to far, unknown words last."""
    if bonded_links(word) is not None:
        return 0
    return NEAR_TO_FAR.index(word) + 1 if word in NEAR_TO_FAR else len(NEAR_TO_FAR) + 1


def split_address(address: str) -> tuple[str, int, str]:
    """Domain, bus and ``device.function`` of a normalised address; hostile text that is none sorts last."""
    domain, _, rest = address.rpartition(":")
    domain, _, bus = domain.rpartition(":")
    try:
        return domain, int(bus, 16), rest
    except ValueError:
        return address, 0x10000, ""


def short_address(address: str, *, with_domain: bool) -> str:
    """``0000:19:00.0`` or ``19:00.0``."""
    return address if with_domain else address.partition(":")[2] or address


class Place(msgspec.Struct, frozen=True):
    """Where a function hangs: ``parent`` is a bridge, "" = on a root bus, None = not known.

    ``gap`` says that bridges between this function and ``parent`` are not in the listing.
    """

    parent: str | None
    gap: bool = False


class PciTree:
    """Parents and distances over a set of functions. Bridges that are only named as a parent are added as bare functions."""

    def __init__(self, functions: dict[str, PciDevice]) -> None:
        self.functions = dict(functions)
        for device in functions.values():
            if device.parent and device.parent not in self.functions:
                self.functions[device.parent] = PciDevice(address=device.parent, class_code=0x0604)
        self._bridges: dict[str, dict[int, PciDevice]] = {}
        self._root_buses: set[tuple[str, int]] = set()
        self._by_bus: dict[tuple[str, int], Place] = {}
        for address, device in self.functions.items():
            domain, bus, _ = split_address(address)
            if device.secondary_bus:  # 0 = a bridge that the firmware left unconfigured
                self._bridges.setdefault(domain, {}).setdefault(device.secondary_bus, device)
            if device.parent == "" or device.class_code == 0x0600 or (device.port_type or "").lower().startswith("root"):
                self._root_buses.add((domain, bus))
        self.places = {address: self._place(device) for address, device in self.functions.items()}
        self._break_cycles()
        self._chains: dict[str, tuple[str, ...]] = {}

    def _place(self, device: PciDevice) -> Place:
        if device.parent is not None:
            return Place(device.parent)
        owner = self.functions.get(device.physical_function or "")
        if owner is not None and owner is not device:
            if owner.parent is not None:
                return Place(owner.parent)
            # A virtual function may have a bus number that no bridge names as secondary; it hangs where its physical one does.
            return self._place_on_bus(*split_address(owner.address)[:2], owner.address)
        return self._place_on_bus(*split_address(device.address)[:2], device.address)

    def _place_on_bus(self, domain: str, bus: int, address: str) -> Place:
        place = self._by_bus.get((domain, bus))
        if place is None:
            place = self._by_bus[domain, bus] = self._find(domain, bus)
        return Place(None) if place.parent == address else place

    def _find(self, domain: str, bus: int) -> Place:
        bridges = self._bridges.get(domain, {})
        if bus in bridges:
            return Place(bridges[bus].address)
        # A bridge's secondary bus number is larger than its primary's, so bus 0 is never below a bridge.
        if bus == 0 or (domain, bus) in self._root_buses:
            return Place("")
        # Bus ranges nest, so the covering bridge with the highest secondary bus is the lowest in the tree.
        covering = [number for number, bridge in bridges.items() if number < bus <= (bridge.subordinate_bus or 0)]
        return Place(bridges[max(covering)].address, gap=True) if covering else Place(None)

    def _break_cycles(self) -> None:
        """Cut loops and chains that no real machine has, so that all that follows may walk upwards."""
        depth: dict[str, int] = {"": 0}
        for start in self.functions:
            path: dict[str, None] = {}
            address: str | None = start
            while address and address not in depth:
                if address in path:
                    self.places[address] = Place(None)
                    break
                path[address] = None
                address = self.places[address].parent
            for one in reversed(path):
                above = depth.get(self.places[one].parent or "", 0)
                if above >= MAX_DEPTH:
                    self.places[one] = Place(None)
                    above = 0
                depth[one] = above + 1

    def chain(self, address: str) -> tuple[str, ...]:
        """Addresses from the topmost known bridge down to ``address`` itself."""
        known = self._chains.get(address)
        if known is None:
            up = [address]
            while parent := self.places[up[-1]].parent:
                up.append(parent)
            known = self._chains[address] = tuple(reversed(up))
        return known

    def root_bus(self, address: str) -> tuple[str, int] | None:
        """Domain and number of the root bus that ``address`` is below; None if the chain to it is not known."""
        top = self.chain(address)[0]
        return split_address(top)[:2] if self.places[top].parent == "" else None

    def numa_node(self, address: str) -> int | None:
        """NUMA node of a function as the listing gives it, else that of the nearest bridge above; -1 counts as not known."""
        for one in reversed(self.chain(address)):
            node = self.functions[one].numa_node
            if node is not None and node >= 0:
                return node
        return None

    def distance(self, a: str, b: str, *, numa_a: int | None, numa_b: int | None) -> str:
        """Word for the PCIe path between two functions; "?" where the tree does not decide it."""
        chain_a, chain_b = self.chain(a), self.chain(b)
        shared = 0
        for one, other in zip(chain_a, chain_b, strict=False):
            if one != other:
                break
            shared += 1
        if shared:
            return self._below_bridge(chain_a, chain_b, shared)
        root_a, root_b = self.root_bus(a), self.root_bus(b)
        if root_a is not None and root_a == root_b:
            return "PHB"
        if numa_a is None or numa_b is None:
            return UNKNOWN
        if numa_a != numa_b:
            return "SYS"
        # Without both roots, two functions of one NUMA node may still share a switch that the listing leaves out.
        return "NODE" if root_a is not None and root_b is not None else UNKNOWN

    def _below_bridge(self, chain_a: tuple[str, ...], chain_b: tuple[str, ...], shared: int) -> str:
        if chain_a[-1].rpartition(".")[0] == chain_b[-1].rpartition(".")[0]:
            return "PIX"  # functions of one device
        below_a, below_b = chain_a[shared:], chain_b[shared:]
        if any(self.places[one].gap for one in below_a + below_b):
            return UNKNOWN  # one switch or several
        if max(len(below_a), len(below_b)) > 2:
            return "PXB"
        # Two bridges side by side below a root port are two bridges; below an upstream port they are ports of one switch.
        two_bridges = len(below_a) == len(below_b) == 2
        if two_bridges and (self.functions[chain_a[shared - 1]].port_type or "").lower() == "root port":
            return "PXB"
        return "PIX"


def kind_of(device: PciDevice) -> str:
    """gpu, xpu, nvswitch, hca, nic, nvme, accelerator, bridge, or "" for what a drawing leaves out."""
    name = (device.class_name or "").lower()
    nvidia = device.vendor_id == NVIDIA or (device.vendor_id is None and (device.description or "").startswith("NVIDIA"))
    code = device.class_code
    if device.is_bridge:
        return "bridge"
    if device.is_accelerator:
        return "gpu" if device.vendor_id == NVIDIA else "xpu"
    if nvidia and code is None and name in ("3d controller", "vga compatible controller"):
        return "gpu"
    if device.is_nvswitch or (nvidia and code is None and name == "bridge"):
        return "nvswitch"
    if code == 0x0207 or (code is None and name == "infiniband controller"):
        return "hca"
    if device.is_nic or (code is None and name in ("ethernet controller", "network controller")):
        mellanox = device.vendor_id == 0x15B3 or (device.vendor_id is None and (device.description or "").startswith("Mellanox"))
        return "hca" if mellanox else "nic"
    if code == 0x0108 or (code is None and name == "non-volatile memory controller"):
        return "nvme"
    if code in (0x0302, 0x1200) or (code is None and name in ("3d controller", "processing accelerators")):
        return "accelerator"
    return ""


_VENDOR = re.compile(
    r"(?:NVIDIA Corporation|Mellanox Technologies|Intel Corporation|Broadcom / LSI|Broadcom Inc\. and subsidiaries|"
    r"Samsung Electronics Co Ltd|Microsoft Corporation|Amazon\.com, Inc\.|Advanced Micro Devices, Inc\. \[AMD\]|NVIDIA|Tesla) +"
)
_IN_BRACKETS = re.compile(r"\[([^\[\]]{1,80})\]")
_IDS = re.compile(r" *\[[0-9a-f]{4}(?::[0-9a-f]{4})?\]| *\(rev [0-9a-f]{2}\)")


def short_title(text: str) -> str:
    """A name without vendor, ids, revision: "NVIDIA Corporation GA100 [A100 SXM4 80GB] [10de:20b2]" -> "A100 SXM4 80GB"."""
    plain = _IDS.sub("", text[:400])
    vendor = _VENDOR.match(plain)
    rest = plain[vendor.end() :] if vendor else plain
    inner = _IN_BRACKETS.search(rest)
    if inner and vendor:
        return inner.group(1).strip()
    if rest.strip() == "Device" and (ids := re.search(r"\[(?:[0-9a-f]{4}:)?([0-9a-f]{4})\]", text[:400])):
        rest = f"Device {ids.group(1)}"
    if vendor and rest.startswith("Device"):
        return f"{vendor.group().split()[0]} {rest}".strip()
    return rest.strip()
