"""Accelerators (NVIDIA GPUs, Kunlunxin XPUs), their NVLinks, and NVSwitches."""

from __future__ import annotations

from kilter.facts.base import Entity


class Reading(Entity):
    """What changes by the second, as one tool saw it at one moment. All values of a reading belong together."""

    source: int = 0  # index into Snapshot.sources
    time: float | None = None
    performance_state: str | None = None  # "P0"
    utilization_percent: int | None = None
    memory_utilization_percent: int | None = None
    memory_used_mib: int | None = None
    power_w: float | None = None
    temperature_c: int | None = None
    memory_temperature_c: int | None = None
    tlimit_margin_c: int | None = None  # degrees left before slowdown ("T.Limit")
    fan_percent: int | None = None
    sm_clock_mhz: int | None = None
    graphics_clock_mhz: int | None = None
    memory_clock_mhz: int | None = None
    throttle_reasons: list[str] | None = None  # names of knowledge/tables/throttle_reasons.yaml; [] = none active
    link_generation: int | None = None
    link_width: int | None = None
    tx_kb_s: float | None = None
    rx_kb_s: float | None = None


class NvLink(Entity):
    id: int
    state: str | None = None  # "active", "inactive", "<as printed>"
    speed_gb_s: float | None = None  # one direction, as nvidia-smi nvlink -s prints
    remote: str | None = None  # PCI address or text of the far end
    version: str | None = None
    crc_errors: int | None = None
    replay_errors: int | None = None
    recovery_errors: int | None = None
    errors: dict[str, int] = {}  # further counters by the tool's name


class MigDevice(Entity):
    gpu_instance: int | None = None
    compute_instance: int | None = None
    profile: str | None = None
    uuid: str | None = None
    memory_total_mib: int | None = None


class Process(Entity):
    pid: int
    name: str | None = None
    type: str | None = None  # C, G, C+G, M+C
    memory_mib: int | None = None


class EccCounts(Entity):
    """ECC error counts; ``scope`` volatile = since driver load, aggregate = of the card's life."""

    sram_corrected: int | None = None
    sram_uncorrected: int | None = None  # parity and SEC-DED together where the tool prints both
    dram_corrected: int | None = None
    dram_uncorrected: int | None = None
    total_corrected: int | None = None
    total_uncorrected: int | None = None


class Accelerator(Entity):
    vendor: str = "nvidia"  # nvidia, kunlunxin
    index: int | None = None  # as the vendor's tool counts; changes when a device is lost
    minor: int | None = None
    uuid: str | None = None
    serial: str | None = None
    pci_address: str | None = None
    name: str | None = None
    brand: str | None = None
    architecture: str | None = None
    compute_capability: str | None = None
    pci_device_id: int | None = None  # 0x2330
    pci_subsystem_id: int | None = None
    part_number: str | None = None
    board_part_number: str | None = None
    firmware: str | None = None  # VBIOS, or the XPU's SBL
    gsp_firmware: str | None = None
    module_id: int | None = None
    virtualization: str | None = None  # None, Pass-Through, VGPU, Host VGPU, ...
    persistence_mode: bool | None = None
    compute_mode: str | None = None
    mig_mode: bool | None = None
    mig_mode_pending: bool | None = None
    mig_devices: list[MigDevice] | None = None
    c2c_mode: str | None = None
    confidential_compute: str | None = None
    recovery_action: str | None = None  # as printed: "None", "GPU Reset", "Unknown (6)", ...
    error: str | None = None  # what the tool printed in place of this device ("GPU is lost")
    numa_node: int | None = None
    cpu_affinity: str | None = None
    # memory and its errors
    memory_total_mib: int | None = None
    bar1_total_mib: int | None = None
    ecc_mode: bool | None = None
    ecc_mode_pending: bool | None = None
    ecc_volatile: EccCounts | None = None
    ecc_aggregate: EccCounts | None = None
    sram_threshold_exceeded: bool | None = None
    channel_repair_pending: bool | None = None
    tpc_repair_pending: bool | None = None
    unrepairable_memory: bool | None = None
    retired_pages_sbe: int | None = None
    retired_pages_dbe: int | None = None
    retired_pages_pending: bool | None = None
    remapped_correctable: int | None = None
    remapped_uncorrectable: int | None = None
    remap_pending: bool | None = None
    remap_failure: bool | None = None
    remap_banks: dict[str, int] = {}  # availability histogram: max, high, partial, low, none -> banks
    # bus
    link_generation_max: int | None = None  # what this slot can do ("Max")
    link_generation_device_max: int | None = None  # what the device can do
    link_generation_host_max: int | None = None
    link_width_max: int | None = None
    replays: int | None = None
    replay_rollovers: int | None = None
    # power, clocks, heat
    power_limit_w: float | None = None  # in force
    power_limit_requested_w: float | None = None
    power_limit_default_w: float | None = None
    power_limit_min_w: float | None = None
    power_limit_max_w: float | None = None
    sm_clock_max_mhz: int | None = None
    memory_clock_max_mhz: int | None = None
    application_sm_clock_mhz: int | None = None
    application_sm_clock_default_mhz: int | None = None
    slowdown_temperature_c: int | None = None
    shutdown_temperature_c: int | None = None
    max_operating_temperature_c: int | None = None
    memory_max_operating_temperature_c: int | None = None
    throttle_counters_us: dict[str, int] = {}  # reason -> microseconds since driver load
    # NVLink and fabric
    nvlinks: list[NvLink] | None = None  # None = not collected; [] = the tool says that there are none
    nvlinks_inactive: bool | None = None  # the tool says that all links are inactive
    fabric_state: str | None = None
    fabric_status: str | None = None
    fabric_clique_id: int | None = None
    fabric_cluster_uuid: str | None = None
    fabric_health: dict[str, str] = {}
    processes: list[Process] | None = None
    readings: list[Reading] = []

    @property
    def label(self) -> str:
        """``GPU4 0000:9b:00.0``, as far as known."""
        kind = "XPU" if self.vendor == "kunlunxin" else "GPU"
        parts = [f"{kind}{self.index}" if self.index is not None else kind]
        if self.pci_address:
            parts.append(self.pci_address)
        elif self.index is None and self.uuid:
            parts.append(self.uuid)
        return " ".join(parts)


class NvSwitch(Entity):
    pci_address: str | None = None
    index: int | None = None
    uuid: str | None = None
    firmware: str | None = None
    temperature_c: int | None = None
    links: list[NvLink] | None = None


class TopologyMatrix(Entity):
    """``nvidia-smi topo -m``: how far each pair of devices is apart (X, NV#, PIX, PXB, PHB, NODE, SYS)."""

    devices: list[str]  # GPU0, GPU1, NIC0, ...
    links: dict[str, dict[str, str]] = {}  # row -> column -> word
    nic_names: dict[str, str] = {}  # NIC0 -> mlx5_0
    cpu_affinity: dict[str, str] = {}
    numa_affinity: dict[str, str] = {}
