"""PCI functions: ``/sys/bus/pci/devices`` and configuration space (Linux ``Documentation/ABI/testing/sysfs-bus-pci``)."""

from __future__ import annotations

import re

from kilter.facts.accelerator import NvSwitch
from kilter.facts.base import Missing, Reason
from kilter.facts.pci import Bar, PciDevice, pci_address
from kilter.intake.live import config_space
from kilter.intake.live.places import Folder, Places, integer, word

DEVICES = "/sys/bus/pci/devices"

_NAME = re.compile(r"[0-9a-fA-F]{4,8}:[0-9a-fA-F]{2}:[0-9a-fA-F]{2}\.[0-7]$")
_IN_PATH = re.compile(r"(?:^|/)([0-9a-fA-F]{4,8}:[0-9a-fA-F]{2}:[0-9a-fA-F]{2}\.[0-7])(?=/|$)")
_ROOT_BUS = re.compile(r"pci[0-9a-fA-F]{4,8}:[0-9a-fA-F]{2}$")
_SPEED = re.compile(r"([\d.]+) ?GT/s")

#: Names as lspci (pci.ids) prints them, for the classes that matter here.
CLASS_NAMES = {
    0x0106: "SATA controller",
    0x0107: "Serial Attached SCSI controller",
    0x0108: "Non-Volatile memory controller",
    0x0200: "Ethernet controller",
    0x0207: "Infiniband controller",
    0x0280: "Network controller",
    0x0300: "VGA compatible controller",
    0x0302: "3D controller",
    0x0403: "Audio device",
    0x0580: "Memory controller",
    0x0600: "Host bridge",
    0x0601: "ISA bridge",
    0x0604: "PCI bridge",
    0x0680: "Bridge",
    0x0806: "IOMMU",
    0x1200: "Processing accelerators",
}

# include/linux/ioport.h
_IORESOURCE_IO, _IORESOURCE_MEM, _IORESOURCE_PREFETCH, _IORESOURCE_MEM_64 = 0x100, 0x200, 0x2000, 0x100000

#: Base classes of devices that have a link worth talking about: storage, network, display, bridges, accelerators.
_LINKED_CLASSES = frozenset({0x01, 0x02, 0x03, 0x06, 0x12})

#: Reading these wakes a sleeping function, or reads all ones from it.
_ASLEEP_FIELDS = (
    *config_space.EXPRESS_FIELDS,
    *config_space.LINK_FIELDS,
    *config_space.EXTENDED_FIELDS,
    "config_readable",
    "secondary_bus",
    "subordinate_bus",
)

#: Files of a device directory that hold facts of the function itself (a text may show only ``infiniband/`` and ``net/`` below
#: it).
_OWN = (
    "vendor",
    "device",
    "class",
    "config",
    "uevent",
    "resource",
    "current_link_speed",
    "current_link_width",
    "numa_node",
    "driver",
)


def last_address(path: str | None) -> str | None:
    """The last PCI address among the components of ``path``."""
    found = _IN_PATH.findall(path or "")
    return pci_address(found[-1]) if found else None


def folders(places: Places) -> dict[str, list[str]]:
    """Directories of each PCI function by address: one on a host; in a text it may appear under several paths."""
    tree = places.tree
    found: dict[str, list[str]] = {}

    def add(name: str, path: str) -> None:
        address = pci_address(name) if _NAME.match(name) else None
        if address is not None:
            found.setdefault(address, []).append(path)

    for name in tree.names(DEVICES):
        add(name, f"{DEVICES}/{name}")
    if places.is_text or not found:
        for bus in tree.names("/sys/class/pci_bus"):
            for name in tree.names(f"/sys/class/pci_bus/{bus}/device"):
                add(name, f"/sys/class/pci_bus/{bus}/device/{name}")
        todo = [f"/sys/devices/{name}" for name in tree.names("/sys/devices") if _ROOT_BUS.match(name)]
        while todo:
            path = todo.pop()
            for name in tree.names(path):
                if _NAME.match(name) or _ROOT_BUS.match(name):
                    add(name, f"{path}/{name}")
                    if path.count("/") < 40:
                        todo.append(f"{path}/{name}")
    return {address: found[address] for address in sorted(found)}


def speed_gts(text: str) -> float | None:
    """``"32.0 GT/s PCIe"`` -> 32.0; None for "Unknown" and the like."""
    match = _SPEED.match(text)
    try:
        return float(match[1]) if match else None
    except ValueError:
        return None


def width(text: str) -> int | None:
    """Lanes; 0 and 255 are what sysfs prints of a function without a link or that does not answer."""
    value = integer(text)
    return value if value is not None and 0 < value < 64 else None


def bars(text: str) -> list[Bar]:
    """The six BARs of a ``resource`` table: lines of start, end, flags (``include/linux/ioport.h``)."""
    found = []
    for index, line in enumerate(text.splitlines()[:6]):
        try:
            start, end, flags = (int(number, 16) for number in line.split())
        except ValueError:
            continue
        if end > start and flags & (_IORESOURCE_IO | _IORESOURCE_MEM):
            memory = bool(flags & _IORESOURCE_MEM)
            found.append(
                Bar(
                    index=index,
                    size_bytes=end - start + 1,
                    prefetchable=bool(flags & _IORESOURCE_PREFETCH) if memory else None,
                    is_64bit=bool(flags & _IORESOURCE_MEM_64) if memory else None,
                )
            )
    return found


def aer_counts(folder: Folder) -> dict[str, int] | None:
    """Counts above zero as ``"correctable/RxErr"``, the totals left out; None if the function has no AER files.

    A root port's own message counts come as ``"rootport/correctable"`` (what devices below reported to it).
    """
    counts: dict[str, int] = {}
    seen = False
    for kind in ("correctable", "fatal", "nonfatal"):
        text = folder.text(f"aer_dev_{kind}")
        if text is None:
            continue
        seen = True
        for line in text.splitlines():
            name, _, number = line.strip().rpartition(" ")
            value = integer(number)
            if value and name and not name.startswith("TOTAL_ERR"):
                counts[f"{kind}/{name}"] = value
    for kind, name in (("correctable", "cor"), ("fatal", "fatal"), ("nonfatal", "nonfatal")):
        value = integer(folder.text(f"aer_rootport_total_err_{name}") or "")
        if value is not None:
            seen = True
            if value:
                counts[f"rootport/{kind}"] = value
    return counts if seen else None


def read(places: Places) -> dict[str, list[str]]:
    """Fill ``snapshot.pci`` and ``snapshot.nvswitches``; returns the directories by address for the readers of HCAs and
    interfaces.
    """
    tree, snapshot = places.tree, places.snapshot
    where = folders(places)
    if not where and not (not places.is_text and tree.exists(DEVICES)):
        return where
    devices: dict[str, PciDevice] = {}
    readers = {address: places.folder(*dirs) for address, dirs in where.items()}
    for address, folder in readers.items():
        if places.is_text and not any(tree.exists(f"{path}/{name}") for path in folder.dirs for name in _OWN):
            continue
        devices[address] = _device(places, address, folder, _asleep(readers, address, folder))
    if devices or not places.is_text:
        snapshot.pci = devices
        _parents(devices)
        _slots(places, devices)
        switches = [
            NvSwitch(pci_address=d.address, origin={"": d.origin[""], "pci_address": d.origin[""]})
            for d in devices.values()
            if d.is_nvswitch
        ]
        if switches or not places.is_text:
            snapshot.nvswitches = switches
    return where


def _asleep(readers: dict[str, Folder], address: str, folder: Folder) -> str | None:
    """Why the function must not be touched, or None.

    The kernel wakes a function in D3cold, and the port above one, to read its configuration (``pci_config_pm_runtime_get``).
    """
    state = folder.text("power_state")
    status = folder.text("power/runtime_status")
    if state == "D3cold" or (status == "suspended" and state in (None, "unknown")):
        return f"in runtime sleep (power_state {state or 'unknown'}); reading it would wake it"
    above = last_address((folder.itself() or folder.dirs[0]).rpartition("/")[0])
    if above is not None and above in readers and readers[above].text("power/runtime_status") == "suspended":
        return f"the port above it, {above}, is in runtime sleep; reading it would wake both"
    return None


def _device(places: Places, address: str, folder: Folder, asleep: str | None) -> PciDevice:
    device = PciDevice(address=address, origin={"": folder.ref("")})
    if places.is_text:
        for name in _OWN:
            if places.tree.exists(folder.path(name)):
                device.origin[""] = folder.ref(name)
                break
    for field, name in (
        ("vendor_id", "vendor"),
        ("device_id", "device"),
        ("subsystem_vendor_id", "subsystem_vendor"),
        ("subsystem_device_id", "subsystem_device"),
        ("revision", "revision"),
        ("numa_node", "numa_node"),
    ):
        folder.take(device, field, name, integer)
    folder.take(device, "class_code", "class", _class_code)
    folder.take(device, "local_cpus", "local_cpulist")
    folder.take(device, "power_state", "power_state")
    _links(places, device, folder)
    if asleep is None:
        _registers(device, folder)
    else:
        why = Missing(Reason.NOT_READABLE, f"{address}: {asleep}", "use the device, then look again")
        device.missing.update(dict.fromkeys(_ASLEEP_FIELDS, why))
    if places.tree.exists(folder.path("sriov_numvfs")):
        folder.take(device, "vfs", "sriov_numvfs", integer)
    text = folder.text("resource")
    if text:
        device.put("bars", bars(text), folder.ref("resource"))
    counts = aer_counts(folder)
    if counts is not None:
        device.put("aer_counts", counts, folder.ref("aer_dev_correctable"))
    elif not places.is_text:
        device.lacks("aer_counts", Reason.NOT_SUPPORTED, "no aer_dev_* files: no AER capability, or the kernel does not own AER")
    if device.class_code is not None and device.class_code >> 8 not in _LINKED_CLASSES:
        # Hundreds of performance counters and system agents of a CPU package: nobody asks for their link.
        device.missing = {field: why for field, why in device.missing.items() if why.reason is not Reason.NOT_SUPPORTED}
    if device.class_code in CLASS_NAMES:
        device.put("class_name", CLASS_NAMES[device.class_code], device.origin.get("class_code"))
    return device


def _class_code(text: str) -> int | None:
    value = integer(text)
    return None if value is None else value >> 8


def _links(places: Places, device: PciDevice, folder: Folder) -> None:
    driver = folder.link_name("driver")
    if driver is None and (uevent := folder.text("uevent")) is not None:
        driver = next((line[7:] for line in uevent.splitlines() if line.startswith("DRIVER=")), "")
        device.put("driver", driver, folder.ref("uevent"))
    elif driver is None and not places.is_text:
        driver = ""
    device.put("driver", driver, folder.ref("driver"))
    group = integer(folder.link_name("iommu_group") or "")
    device.put("iommu_group", group, folder.ref("iommu_group"))
    if group is None and not places.is_text:
        device.lacks("iommu_group", Reason.ABSENT, "no iommu_group link: no IOMMU handles this function")
    physical = pci_address(folder.link_name("physfn") or "")
    device.put("physical_function", physical, folder.ref("physfn"))
    # The device directory is itself a link into /sys/devices; its parent directory there is the bridge above, or the root bus.
    target = folder.itself() or next((path for path in folder.dirs if path.startswith("/sys/devices/")), None)
    if target is not None:
        parts = target.rstrip("/").split("/")
        above = parts[-2] if len(parts) > 1 else ""
        if _NAME.match(above):
            device.put("parent", pci_address(above), folder.ref(""))
        elif _ROOT_BUS.match(above):
            device.put("parent", "", folder.ref(""))


def _registers(device: PciDevice, folder: Folder) -> None:
    """Configuration space first, then the files that the kernel derives from it where the former was not to be had."""
    data = folder.tree.read_bytes(folder.path("config"))
    known = {
        field: (getattr(device, field), device.origin.get(field))
        for field in ("vendor_id", "device_id", "class_code", "revision")
    }
    if data:
        config_space.apply(device, data, folder.ref("config"))
        for field, (value, ref) in known.items():
            device.put(field, value, ref)
    elif not folder.places.is_text:
        device.missing["config_readable"] = folder.places.why(folder.path("config"))
    if device.config_readable is False:
        return
    for field, name in (("secondary_bus", "secondary_bus_number"), ("subordinate_bus", "subordinate_bus_number")):
        if getattr(device, field) is None and folder.tree.exists(folder.path(name)):
            folder.take(device, field, name, integer)
    for field, name, convert in (
        ("link_speed_gts", "current_link_speed", speed_gts),
        ("link_width", "current_link_width", width),
        ("link_speed_max_gts", "max_link_speed", speed_gts),
        ("link_width_max", "max_link_width", width),
    ):
        if getattr(device, field) is None and folder.tree.exists(folder.path(name)):
            before = device.missing.get(field)
            if not folder.take(device, field, name, convert) and before is not None:
                device.missing[field] = before
            elif getattr(device, field) is not None:
                device.missing.pop(field, None)


def _parents(devices: dict[str, PciDevice]) -> None:
    """Parents from the bridges' bus numbers, for captures that do not show where the links lead."""
    by_bus = {(d.address.rpartition(":")[0].rpartition(":")[0], d.secondary_bus): d for d in devices.values() if d.secondary_bus}
    hosts = {d.address.rpartition(":")[0] for d in devices.values() if d.class_code == 0x0600}
    for device in devices.values():
        if device.parent is not None:
            continue
        domain, _, bus = device.address.rpartition(":")[0].rpartition(":")
        bridge = by_bus.get((domain, int(bus, 16)))
        if bridge is not None and bridge is not device:
            device.put("parent", bridge.address, bridge.origin.get("secondary_bus"))
        elif bus == "00" or f"{domain}:{bus}" in hosts:
            device.put("parent", "", device.origin.get(""))


def _slots(places: Places, devices: dict[str, PciDevice]) -> None:
    """Names of hot-plug and firmware slots: ``/sys/bus/pci/slots/<name>/address`` holds ``dddd:bb:dd`` of the device in it."""
    top = "/sys/bus/pci/slots"
    for name in places.tree.names(top):
        folder = places.folder(f"{top}/{name}")
        address = word(folder.text("address") or "")
        if address is None:
            continue
        for device in devices.values():
            if device.address.rpartition(".")[0] == address.lower():
                device.put("slot", name, folder.ref("address"))
