"""The PCI tree: one :class:`PciDevice` a function, by its full address ``dddd:bb:dd.f``."""

from __future__ import annotations

import re

from kilter.facts.base import Entity

NVIDIA = 0x10DE
MELLANOX = 0x15B3
KUNLUNXIN = (0x1D22, 0x2057)

_ADDRESS = re.compile(r"(?:PCI:)?(?:([0-9a-fA-F]{1,8}):)?([0-9a-fA-F]{1,2}):([0-9a-fA-F]{1,2})(?:\.([0-7]))?$")

#: link speed in GT/s of each PCIe generation (PCI Express Base Specification 6.0)
GENERATION_GTS = {1: 2.5, 2: 5.0, 3: 8.0, 4: 16.0, 5: 32.0, 6: 64.0, 7: 128.0}


def pci_address(text: str) -> str | None:
    """``00000000:3B:00.0``, ``PCI:0000:3b:00``, ``3b:00.0`` -> ``0000:3b:00.0``; None if it is no PCI address.

    A missing domain reads as 0, a missing function as 0. Domains beyond 16 bits (VMD, Hyper-V) are kept whole.
    """
    match = _ADDRESS.match(text.strip())
    if match is None:
        return None
    domain, bus, device, function = match.groups()
    return f"{int(domain or '0', 16):04x}:{int(bus, 16):02x}:{int(device, 16):02x}.{function or '0'}"


def generation(speed_gts: float | None) -> int | None:
    """PCIe generation of a link speed in GT/s; None for a speed that is no PCIe speed."""
    for gen, gts in GENERATION_GTS.items():
        if speed_gts is not None and abs(gts - speed_gts) < 0.01:
            return gen
    return None


class Bar(Entity):
    index: int
    size_bytes: int | None = None
    prefetchable: bool | None = None
    is_64bit: bool | None = None


class PciDevice(Entity):
    address: str
    vendor_id: int | None = None
    device_id: int | None = None
    subsystem_vendor_id: int | None = None
    subsystem_device_id: int | None = None
    class_code: int | None = None  # 0x0302 = 3D controller
    class_name: str | None = None  # as lspci prints it
    description: str | None = None
    revision: int | None = None
    driver: str | None = None  # "" = none bound
    numa_node: int | None = None  # -1 = the firmware does not say
    local_cpus: str | None = None
    iommu_group: int | None = None
    parent: str | None = None  # address of the bridge above; "" = on a root bus
    physical_function: str | None = None  # of an SR-IOV virtual function
    vfs: int | None = None  # virtual functions enabled
    secondary_bus: int | None = None
    subordinate_bus: int | None = None
    port_type: str | None = None  # "root port", "upstream port", "downstream port", "endpoint", "root complex endpoint", ...
    slot: str | None = None
    config_readable: bool | None = None  # False: configuration space reads all ones
    link_speed_gts: float | None = None
    link_width: int | None = None
    link_speed_max_gts: float | None = None
    link_width_max: int | None = None
    link_speed_target_gts: float | None = None
    aspm: str | None = None
    max_payload_bytes: int | None = None
    max_payload_supported_bytes: int | None = None
    mrrs_bytes: int | None = None
    relaxed_ordering: bool | None = None
    extended_tag: bool | None = None
    no_snoop: bool | None = None
    device_errors: list[str] | None = None  # latched DevSta bits: CorrErr, NonFatalErr, FatalErr, UnsupReq
    acs_capable: list[str] | None = None  # names as lspci prints; [] = capability present, no bit
    acs_enabled: list[str] | None = None
    has_acs: bool | None = None
    ats_enabled: bool | None = None
    has_ats: bool | None = None
    aer_correctable: list[str] | None = None  # latched status bits
    aer_uncorrectable: list[str] | None = None
    aer_counts: dict[str, int] = {}  # "correctable/RxErr" -> count since boot (sysfs aer_dev_*)
    lane_errors: list[int] | None = None
    power_state: str | None = None
    bars: list[Bar] | None = None
    rebar_bytes: int | None = None

    @property
    def is_bridge(self) -> bool:
        return self.class_code == 0x0604 or self.secondary_bus is not None or self.class_name == "PCI bridge"

    @property
    def is_accelerator(self) -> bool:
        """A GPU or XPU function, judged by vendor and class (0x0300 VGA, 0x0302 3D, 0x1200 accelerator)."""
        if self.vendor_id == NVIDIA:
            return self.class_code in (0x0300, 0x0302)
        return self.vendor_id in KUNLUNXIN

    @property
    def is_nvswitch(self) -> bool:
        """NVSwitch functions are NVIDIA's of class 0x0680 (other bridge), see lspci of DGX A100/H100."""
        return self.vendor_id == NVIDIA and self.class_code == 0x0680

    @property
    def is_nic(self) -> bool:
        return self.class_code in (0x0200, 0x0207, 0x0280)
