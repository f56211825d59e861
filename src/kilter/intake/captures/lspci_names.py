"""Who a PCI function is, from the names and numbers that lspci prints: class, vendor, device, subsystem, revision.

``lspci`` without ``-n``/``-nn`` prints names only; the tables here turn the classes, and the vendors that matter on GPU nodes,
into numbers. Source of the names: the PCI ID Repository (pci.ids).
"""

from __future__ import annotations

import re

from kilter.facts.base import Ref
from kilter.facts.pci import PciDevice

#: class name -> base class and sub-class
CLASS_CODES: dict[str, int] = {
    "Non-VGA unclassified device": 0x0000,
    "VGA compatible unclassified device": 0x0001,
    "SCSI storage controller": 0x0100,
    "IDE interface": 0x0101,
    "RAID bus controller": 0x0104,
    "ATA controller": 0x0105,
    "SATA controller": 0x0106,
    "Serial Attached SCSI controller": 0x0107,
    "Non-Volatile memory controller": 0x0108,
    "Universal Flash Storage controller": 0x0109,
    "Mass storage controller": 0x0180,
    "Ethernet controller": 0x0200,
    "Infiniband controller": 0x0207,
    "InfiniBand controller": 0x0207,
    "Fabric controller": 0x0208,
    "Network controller": 0x0280,
    "VGA compatible controller": 0x0300,
    "XGA compatible controller": 0x0301,
    "3D controller": 0x0302,
    "Display controller": 0x0380,
    "Multimedia video controller": 0x0400,
    "Multimedia audio controller": 0x0401,
    "Audio device": 0x0403,
    "Multimedia controller": 0x0480,
    "RAM memory": 0x0500,
    "FLASH memory": 0x0501,
    "CXL": 0x0502,
    "Memory controller": 0x0580,
    "Host bridge": 0x0600,
    "ISA bridge": 0x0601,
    "PCI bridge": 0x0604,
    "CardBus bridge": 0x0607,
    "Semi-transparent PCI-to-PCI bridge": 0x0609,
    "InfiniBand to PCI host bridge": 0x060A,
    "Bridge": 0x0680,
    "Serial controller": 0x0700,
    "Parallel controller": 0x0701,
    "Communication controller": 0x0780,
    "PIC": 0x0800,
    "DMA controller": 0x0801,
    "Timer": 0x0802,
    "RTC": 0x0803,
    "PCI Hot-plug controller": 0x0804,
    "SD Host controller": 0x0805,
    "IOMMU": 0x0806,
    "System peripheral": 0x0880,
    "Timing Card": 0x0899,
    "Co-processor": 0x0B40,
    "USB controller": 0x0C03,
    "USB Controller": 0x0C03,
    "Fibre Channel": 0x0C04,
    "SMBus": 0x0C05,
    "IPMI Interface": 0x0C07,
    "IPMI SMIC interface": 0x0C07,
    "Serial bus controller": 0x0C80,
    "Network and computing encryption device": 0x1000,
    "Encryption controller": 0x1080,
    "Performance counters": 0x1101,
    "Signal processing controller": 0x1180,
    "Processing accelerators": 0x1200,
    "SNIA Smart Data Accelerator Interface (SDXI) controller": 0x1201,
    "Non-Essential Instrumentation": 0x1300,
    "Coprocessor": 0x4000,
    "Unassigned class": 0xFF00,
}

#: start of the vendor's name -> vendor id; the longer of two that fit comes first. Red Hat has two ids, see vendor_id().
_VENDORS: tuple[tuple[str, int], ...] = (
    ("NVIDIA Corporation", 0x10DE),
    ("nVidia Corporation", 0x10DE),
    ("Mellanox Technologies", 0x15B3),
    ("Broadcom / LSI", 0x1000),
    ("LSI Logic / Symbios Logic", 0x1000),
    ("Broadcom Inc. and subsidiaries", 0x14E4),
    ("Broadcom Limited", 0x14E4),
    ("Broadcom Corporation", 0x14E4),
    ("Intel Corporation", 0x8086),
    ("Advanced Micro Devices, Inc. [AMD/ATI]", 0x1002),
    ("Advanced Micro Devices, Inc. [AMD]", 0x1022),
    ("Advanced Micro Devices [AMD]", 0x1022),
    ("AMD Pensando Systems", 0x1DD8),
    ("Amazon.com, Inc.", 0x1D0F),
    ("PLX Technology, Inc.", 0x10B5),
    ("PMC-Sierra Inc.", 0x11F8),
    ("Microchip Technology", 0x11F8),
    ("Microsemi / PMC / IDT", 0x111D),
    ("Microsoft Corporation", 0x1414),
    ("Google, Inc.", 0x1AE0),
    ("ASPEED Technology, Inc.", 0x1A03),
    ("ASMedia Technology Inc.", 0x1B21),
    ("Samsung Electronics Co Ltd", 0x144D),
    ("Micron Technology Inc", 0x1344),
    ("Huawei Technologies Co., Ltd.", 0x19E5),
    ("Chengdu Haiguang IC Design Co., Ltd.", 0x1D94),
    ("VMware", 0x15AD),
    ("Dell", 0x1028),
    ("Baidu Technology", 0x1D22),
    ("Baidu", 0x1D22),
    ("Kunlunxin", 0x2057),
    ("Beijing Kunlunxin", 0x2057),
)

_IDS = re.compile(r"\[([0-9a-f]{4}):([0-9a-f]{4})\]")
_BARE_IDS = re.compile(r"(?:Device |Unknown device )?\[?([0-9a-f]{4}):([0-9a-f]{4})\]?(?: |$)")
_DEVICE = re.compile(r"(?:Unknown device|Device) ([0-9a-f]{4})(?: |$)")
_BRACKET_CLASS = re.compile(r"(.*?) ?\[([0-9a-f]{4})\]$")
_QUOTED = re.compile(r'"((?:[^"\\]|\\.)*)(?:"|\\?$)|-([rp])([0-9a-f]{2})')
_NUMBER = re.compile(r"(?:^|\[|Device )([0-9a-f]{4})\]?$")
_NUMBER_SUFFIX = re.compile(r" ?\[?[0-9a-f]{4}\]?$")
_BARE_CLASS = re.compile(r"(?:Class )?\[?([0-9a-f]{4})\]?$")


def vendor_id(description: str) -> int | None:
    """Vendor id of ``NVIDIA Corporation GH100 ...``; None for a vendor that is not in the table."""
    for name, number in _VENDORS:
        if description.startswith(name):
            return number
    if description.startswith("Red Hat, Inc."):
        # 1af4 holds virtio devices, 1b36 what QEMU invented (bridges, NVMe, serial).
        return 0x1AF4 if "Virtio" in description or "virtio" in description else 0x1B36
    return None


def class_of(text: str) -> tuple[str | None, int | None]:
    """(name, code) of ``3D controller [0302]``, ``3D controller``, ``0302``, ``Class 0302``; None for what is not known."""
    match = _BARE_CLASS.match(text)
    if match:
        return None, int(match[1], 16)
    match = _BRACKET_CLASS.match(text)
    if match:
        return match[1], int(match[2], 16)
    return text, CLASS_CODES.get(text)


def ids_of(text: str) -> tuple[int | None, int | None, str | None]:
    """(vendor id, device id, description without ids) of what follows the class or ``Subsystem:``."""
    match = _BARE_IDS.match(text)
    if match:
        return int(match[1], 16), int(match[2], 16), None
    found = list(_IDS.finditer(text))
    if found:
        return int(found[-1][1], 16), int(found[-1][2], 16), text[: found[-1].start()].rstrip()
    device = _DEVICE.search(text)
    return vendor_id(text), int(device[1], 16) if device else None, text


def put_subsystem(device: PciDevice, text: str, ref: Ref) -> None:
    """Subsystem ids of a ``Subsystem:`` value, as far as numbers or a known vendor's name give them."""
    vendor, number, _ = ids_of(text)
    device.put("subsystem_vendor_id", vendor, ref)
    device.put("subsystem_device_id", number, ref)


def put_revision(device: PciDevice, revision: str, ref: Ref) -> None:
    """``a1``; ``ff`` is no revision but the sign of a function that does not answer."""
    if revision == "ff":
        device.put("config_readable", False, ref)
    elif revision:
        device.put("revision", int(revision, 16) if re.fullmatch(r"[0-9a-f]{2}", revision) else None, ref)


def put_identity(device: PciDevice, class_text: str, description: str, revision: str, ref: Ref) -> None:
    """Class, vendor, device and revision of an ordinary lspci line."""
    name, code = class_of(class_text)
    device.put("class_name", name, ref)
    vendor, number, words = ids_of(description)
    if vendor == 0xFFFF:  # nothing answers, and the kernel has no cached ids either
        device.put("config_readable", False, ref)
        return
    device.put("class_code", code, ref)
    device.put("vendor_id", vendor, ref)
    device.put("device_id", number, ref)
    device.put("description", words, ref)
    put_revision(device, revision, ref)


def put_quoted(device: PciDevice, text: str, ref: Ref) -> None:
    """``"Class" "Vendor" "Device" -rXX "SVendor" "SDevice"`` of ``lspci -mm``."""
    words: list[str] = []
    for match in _QUOTED.finditer(text):
        if match[2] == "r":
            put_revision(device, match[3], ref)
        elif match[2] is None:
            words.append(re.sub(r"\\(.)", r"\1", match[1]))
    words += [""] * 5
    for key, word in zip(("Class", "Vendor", "Device", "SVendor", "SDevice"), words, strict=False):
        put_machine_field(key, device, word, ref)


def put_machine_field(key: str, device: PciDevice, value: str, ref: Ref) -> None:
    """One field of the machine-readable forms: a name, ``Name [10de]``, ``Device 2330`` or a bare number."""
    if key == "Class":
        name, code = class_of(value)
        device.put("class_name", name or None, ref)
        device.put("class_code", code if code != 0xFFFF else None, ref)
        return
    if key == "Rev":
        put_revision(device, value, ref)
        return
    match = _NUMBER.search(value)
    number = int(match[1], 16) if match else None
    if number == 0xFFFF:
        return
    words = _NUMBER_SUFFIX.sub("", value)
    if key == "Vendor":
        device.put("vendor_id", number if number is not None else vendor_id(value), ref)
        device.put("description", words or None, ref)
    elif key == "Device":
        device.put("device_id", number, ref)
        device.put("description", f"{device.description or ''} {words}".strip() or None, ref)
        if number is None and device.vendor_id in (0x1AF4, 0x1B36):
            device.put("vendor_id", vendor_id(f"Red Hat, Inc. {value}"), ref)
    elif key == "SVendor":
        device.put("subsystem_vendor_id", number if number is not None else vendor_id(value), ref)
    else:
        device.put("subsystem_device_id", number, ref)
