"""What the functions of one listing say about each other: who is above whom, whose virtual function, which are NVSwitches."""

from __future__ import annotations

from collections.abc import Container, Iterable, Mapping

from kilter.facts.accelerator import NvSwitch
from kilter.facts.pci import PciDevice
from kilter.intake.fragment import Fragment


def place_in_tree(fragment: Fragment, known: Mapping[str, str], *, complete: Container[str]) -> None:
    """Set ``parent`` from the bridges' secondary bus numbers.

    ``known`` holds parents that the tool printed; ``complete`` the functions whose details were printed, since only a listing
    with bridges can say that a bus is a root bus. Where two bridges claim one bus, or the bridge above is not listed, nothing
    is set.
    """
    devices = fragment.snapshot.pci or {}
    above: dict[tuple[str, int], PciDevice | None] = {}
    roots: set[tuple[str, int]] = set()
    for device in devices.values():
        domain, bus = _place(device)
        if device.secondary_bus is not None:
            key = (domain, device.secondary_bus)
            above[key] = None if key in above else device
        if device.class_code == 0x0600 or (device.port_type or "").startswith("root"):
            roots.add((domain, bus))
    for device in devices.values():
        domain, bus = _place(device)
        parent = above.get((domain, bus))
        if device.address in known:
            device.put("parent", known[device.address], device.ref(""))
        elif parent is not None and parent is not device:
            device.put("parent", parent.address, parent.ref("secondary_bus"))
        elif (domain, bus) not in above and device.address in complete and (bus == 0 or (domain, bus) in roots):
            device.put("parent", "", device.ref(""))


def _place(device: PciDevice) -> tuple[str, int]:
    domain, bus, _ = device.address.split(":")
    return domain, int(bus, 16)


def link_virtual_functions(fragment: Fragment, layout: Mapping[str, tuple[int, int, int]]) -> None:
    """Set ``physical_function`` of the virtual functions that are listed.

    ``layout`` holds, by the address of the physical function, how many there are, First VF Offset and VF Stride: the n-th one
    has the routing id of the physical function + offset + n * stride (PCI Express Base Specification, SR-IOV capability).
    """
    devices = fragment.snapshot.pci or {}
    for physical, (count, offset, stride) in layout.items():
        domain, bus, rest = physical.split(":")
        slot, function = rest.split(".")
        base = int(bus, 16) << 8 | int(slot, 16) << 3 | int(function)
        for n in range(min(count, 0x10000)):
            rid = base + offset + n * stride
            if rid > 0xFFFF:
                break
            virtual = devices.get(f"{domain}:{rid >> 8:02x}:{rid >> 3 & 31:02x}.{rid & 7}")
            if virtual is not None and virtual.address != physical:
                virtual.put("physical_function", physical, devices[physical].ref("vfs"))


def list_nvswitches(fragment: Fragment, devices: Iterable[PciDevice]) -> None:
    """Add an entry to ``snapshot.nvswitches`` for each NVSwitch among ``devices``."""
    known = {switch.pci_address for switch in fragment.snapshot.nvswitches or []}
    for device in devices:
        if not device.is_nvswitch or device.address in known:
            continue
        known.add(device.address)
        if fragment.snapshot.nvswitches is None:
            fragment.snapshot.nvswitches = []
        ref = device.ref("") or (0, 0)
        fragment.snapshot.nvswitches.append(NvSwitch(pci_address=device.address, origin={"": ref, "pci_address": ref}))
