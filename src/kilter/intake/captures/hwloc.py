"""hwloc's XML (``lstopo file.xml``): packages, NUMA nodes, the PCI tree, and the OS names of devices.

Formats 1.x to 3.0 (open-mpi/hwloc hwloc/topology-xml.c, include/hwloc.h). The link speed is one number in GB/s for speed and width together,
so neither is known from it. Device types were an enumeration up to 2.x and are bits from 3.0 on.
"""

from __future__ import annotations

import re
from typing import NamedTuple
from xml.parsers import expat

from kilter.facts.base import Reason, Ref
from kilter.facts.host import NumaNode
from kilter.facts.network import NetInterface, RdmaDevice, RdmaPort
from kilter.facts.pci import PciDevice, pci_address
from kilter.intake.captures.xml_block import feed, new_parser
from kilter.intake.fragment import Block, Fragment

MAX_DEPTH = 128
MAX_OBJECTS = 500_000
_PCI_TYPE = re.compile(
    r"([0-9a-f]{4}) \[([0-9a-f]{4}):([0-9a-f]{4})\](?: \[([0-9a-f]{4}):([0-9a-f]{4})\])?(?: ([0-9a-f]{2}))?", re.IGNORECASE
)
_BRIDGE_BUSES = re.compile(r"[0-9a-f]{4,8}:\[([0-9a-f]{2})-([0-9a-f]{2})\]", re.IGNORECASE)
_PORT_STATES = {"1": "DOWN", "2": "INIT", "3": "ARMED", "4": "ACTIVE", "5": "ACTIVE_DEFER"}  # enum ibv_port_state
_DMI = {
    "DMIProductName": "dmi_product",
    "DMISysVendor": "dmi_vendor",
    "DMIBoardName": "dmi_board",
    "DMIBIOSVersion": "bios_version",
    "DMIBIOSDate": "bios_date",
}
_CPU = {"CPUVendor": "vendor", "CPUModel": "model"}
_CPU_NUMBERS = {"CPUFamilyNumber": "family", "CPUModelNumber": "model_number", "CPUStepping": "stepping"}


class _Object(NamedTuple):
    kind: str
    attributes: dict[str, str]
    info: dict[str, tuple[str, Ref]]
    ref: Ref
    bus_id: str | None  # of the nearest PCI function, itself included
    bridge: str  # address of the nearest bridge above, "" on a root bus
    numa: int | None
    cpus: str | None


def cpu_list(mask: str, *, limit: int = 1 << 13) -> str | None:
    """hwloc's bitmap (``0x000fffff``, ``0xf,,0x3``) as the kernel's list ("0-19"); ``None`` for an infinite or broken one."""
    value = 0
    words = mask.strip().split(",")
    if len(words) * 32 > limit:
        return None
    for word in words:
        if word and not re.fullmatch(r"0x[0-9a-fA-F]{1,16}", word):
            return None
        value = value << 32 | (int(word, 16) if word else 0)
    spans: list[str] = []
    position = 0
    while value:
        zeros = (value & -value).bit_length() - 1
        position, value = position + zeros, value >> zeros
        ones = (~value & (value + 1)).bit_length() - 1
        spans.append(str(position) if ones == 1 else f"{position}-{position + ones - 1}")
        position, value = position + ones, value >> ones
    return ",".join(spans) or None


def _one_node(mask: str) -> int | None:
    text = cpu_list(mask) or ""
    return int(text) if text.isdecimal() else None


def _number(text: str) -> int | None:
    return int(text) if re.fullmatch(r"\d{1,18}", text) else None


class _Reader:
    def __init__(self, fragment: Fragment, first_line: int, parser: expat.XMLParserType) -> None:
        self.fragment = fragment
        self.snapshot = fragment.snapshot
        self.first_line = first_line
        self.parser = parser
        self.stack: list[_Object | None] = []
        self.version = ""
        self.objects = 0
        self.counts = {"Package": 0, "Core": 0, "PU": 0}
        self.hidden_speeds = 0

    def ref(self) -> Ref:
        return self.fragment.ref(self.first_line + self.parser.CurrentLineNumber - 1)

    def above(self) -> _Object | None:
        return next((one for one in reversed(self.stack) if one is not None), None)

    def start(self, tag: str, attributes: dict[str, str]) -> None:
        if len(self.stack) >= MAX_DEPTH:
            raise ValueError(f"XML nested deeper than {MAX_DEPTH}")
        entry = None
        if tag == "topology":
            self.version = attributes.get("version", "1")
        elif tag == "object":
            self.objects += 1
            if self.objects > MAX_OBJECTS:
                raise ValueError(f"more than {MAX_OBJECTS} objects")
            entry = self.open(attributes)
        elif tag == "info":
            self.info(attributes.get("name", ""), attributes.get("value", "").strip())
        self.stack.append(entry)

    def open(self, attributes: dict[str, str]) -> _Object:
        kind, ref, above = attributes.get("type", ""), self.ref(), self.above()
        numa = _one_node(attributes.get("nodeset", "")) if attributes.get("nodeset") else above.numa if above else None
        cpus = cpu_list(attributes["cpuset"]) if attributes.get("cpuset") else above.cpus if above else None
        bus_id, bridge = (above.bus_id, above.bridge) if above else (None, "")
        if kind in ("PCIDev", "Bridge") and attributes.get("pci_busid"):
            device = self.pci(attributes, kind, bridge, numa, cpus, ref)
            if device is not None:
                bus_id, bridge = device.address, device.address if kind == "Bridge" else bridge
        elif kind == "NUMANode":
            self.numa(attributes, cpus, ref)
        if kind in self.counts or (kind == "Socket" and self.version.startswith("1")):
            self.counts["Package" if kind == "Socket" else kind] += 1
        return _Object(kind, attributes, {}, ref, bus_id, bridge, numa, cpus)

    def pci(
        self, attributes: dict[str, str], kind: str, bridge: str, numa: int | None, cpus: str | None, ref: Ref
    ) -> PciDevice | None:
        if pci_address(attributes["pci_busid"]) is None:
            self.fragment.unparsed(ref[1], f"pci_busid {attributes['pci_busid'][:60]!r} is no PCI address")
            return None
        device = self.fragment.device(attributes["pci_busid"], ref[1])
        match = _PCI_TYPE.match(attributes.get("pci_type", ""))
        if match is not None:
            names = ("class_code", "vendor_id", "device_id", "subsystem_vendor_id", "subsystem_device_id", "revision")
            for name, text in zip(names, match.groups(), strict=True):
                if text is not None and not (name.startswith("subsystem") and int(match[4] or "0", 16) == 0):
                    device.put(name, int(text, 16), ref)
        device.put("parent", bridge, ref)
        device.put("numa_node", numa, ref)
        device.put("local_cpus", cpus, ref)
        if kind == "Bridge" and (buses := _BRIDGE_BUSES.match(attributes.get("bridge_pci", ""))) is not None:
            device.put("secondary_bus", int(buses[1], 16), ref)
            device.put("subordinate_bus", int(buses[2], 16), ref)
        speed = attributes.get("pci_link_speed", "")
        if speed and speed.strip("0."):
            self.hidden_speeds += 1
            for name in ("link_speed_gts", "link_width"):
                device.lacks(
                    name, Reason.NOT_COLLECTED, f"hwloc prints {speed[:12]} GB/s for speed and width together", "lspci -vvv"
                )
        return device

    def numa(self, attributes: dict[str, str], cpus: str | None, ref: Ref) -> None:
        number = _number(attributes.get("os_index", ""))
        if number is None:
            return
        node = NumaNode(id=number, origin={"": ref})
        node.put("cpus", cpus, ref)
        node.put("memory_total_bytes", _number(attributes.get("local_memory", "")), ref)
        self.snapshot.cpu.put("numa", [*(self.snapshot.cpu.numa or []), node], ref)

    def info(self, name: str, value: str) -> None:
        entry = next((one for one in reversed(self.stack) if one is not None), None)
        ref = self.ref()
        if not value:
            return
        if entry is not None and entry.kind == "OSDev":
            entry.info[name] = (value, ref)
            return
        host, cpu, kernel = self.snapshot.host, self.snapshot.cpu, self.snapshot.kernel
        if name in _DMI:
            host.put(_DMI[name], value, ref)
        elif name in _CPU and getattr(cpu, _CPU[name]) is None:
            cpu.put(_CPU[name], value, ref)
        elif name in _CPU_NUMBERS and getattr(cpu, _CPU_NUMBERS[name]) is None:
            cpu.put(_CPU_NUMBERS[name], _number(value), ref)
        elif name == "HostName":
            host.put("hostname", value, ref)
            self.fragment.source.node = self.fragment.source.node or value
            self.snapshot.node = self.snapshot.node or value
        elif name == "OSRelease":
            kernel.put("release", value, ref)
        elif name == "OSVersion":
            kernel.put("version", value, ref)
        elif name == "Architecture":
            kernel.put("arch", value, ref)
        elif name == "hwlocVersion":
            self.fragment.source.version = value

    def end(self, _tag: str) -> None:
        entry = self.stack.pop() if self.stack else None
        if entry is not None and entry.kind == "OSDev":
            self.os_device(entry)

    def os_device(self, entry: _Object) -> None:
        number = _number(entry.attributes.get("osdev_type", ""))
        name = entry.attributes.get("name", "")
        if number is None or not name:
            return
        bits = not re.match(r"[12](?:\.|$)", self.version)
        network, fabric = (number & 16, number & 32) if bits else (number == 2, number == 3)
        if (gpu := re.fullmatch(r"nvml(\d{1,4})", name)) is not None:
            self.gpu(entry, int(gpu[1]))
        elif network:
            nic = NetInterface(name=name, origin={"": entry.ref})
            nic.put("pci_address", entry.bus_id, entry.ref)
            nic.put("mac", entry.info.get("Address", (None, entry.ref))[0], entry.ref)
            nic.put("numa_node", entry.numa, entry.ref)
            self.snapshot.nics = [*(self.snapshot.nics or []), nic]
        elif fabric:
            self.rdma(entry, name)

    def gpu(self, entry: _Object, index: int) -> None:
        gpu = self.fragment.accelerator(entry.ref[1])
        gpu.put("index", index, entry.ref)
        gpu.put("pci_address", entry.bus_id, entry.ref)
        gpu.put("numa_node", entry.numa, entry.ref)
        for name, field in (("GPUModel", "name"), ("NVIDIAUUID", "uuid"), ("NVIDIASerial", "serial")):
            value, ref = entry.info.get(name, ("", entry.ref))
            if value.strip("0"):
                gpu.put(field, value, ref)

    def rdma(self, entry: _Object, name: str) -> None:
        device = RdmaDevice(name=name, origin={"": entry.ref})
        device.put("pci_address", entry.bus_id, entry.ref)
        device.put("numa_node", entry.numa, entry.ref)
        if "NodeGUID" in entry.info:
            device.put("node_guid", *entry.info["NodeGUID"])
        for key, (value, ref) in entry.info.items():
            if (match := re.fullmatch(r"Port(\d{1,2})State", key)) is not None:
                port = RdmaPort(number=int(match[1]), origin={"": ref})
                port.put("state", _PORT_STATES.get(value, value), ref)
                lid = entry.info.get(f"Port{match[1]}LID")
                if lid is not None and re.fullmatch(r"0x[0-9a-fA-F]{1,8}", lid[0]):
                    port.put("lid", int(lid[0], 16), lid[1])
                device.ports.append(port)
        self.snapshot.rdma = [*(self.snapshot.rdma or []), device]

    def finish(self, complete: bool) -> None:
        cpu, ref = self.snapshot.cpu, self.fragment.ref(self.first_line)
        packages, cores, threads = self.counts["Package"], self.counts["Core"], self.counts["PU"]
        if not complete or not packages:
            return
        cpu.put("sockets", packages, ref)
        if cores and cores % packages == 0:
            cpu.put("cores_per_socket", cores // packages, ref)
        if cores and threads % cores == 0:
            cpu.put("threads_per_core", threads // cores, ref)
        cpu.put("logical", threads or None, ref)


def parse(block: Block, fragment: Fragment) -> None:
    """PCI functions, CPU, NUMA nodes and devices into the snapshot. A cut file gives what stood before the cut, without counts of CPUs."""
    parser = new_parser()
    reader = _Reader(fragment, block.first_line, parser)
    reader.finish(feed(parser, reader, block, fragment, closing="</topology>", what="hwloc topology"))
