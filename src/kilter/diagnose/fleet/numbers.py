"""The numbers of one node that have a good and a bad direction, each with its role and the condition under which it can be compared."""

from __future__ import annotations

from collections.abc import Iterator
from typing import NamedTuple

from kilter.facts.accelerator import Accelerator
from kilter.facts.base import Ref
from kilter.facts.case import Snapshot
from kilter.facts.network import RdmaDevice, RdmaPort


class Metric(NamedTuple):
    name: str
    text: str
    unit: str
    bad: str  # "high" or "low"
    floor: float  # least scale, so that equal values do not make any difference infinite
    effect: float  # least difference from the median that matters
    counter: bool = False  # counts since some start that may differ
    depends: str = ""  # what else may explain a difference
    severity: str = "warning"


_METRICS = (
    Metric("temperature", "GPU temperature at like power", "C", "high", 2, 10),
    Metric("memory_temperature", "memory temperature at like power", "C", "high", 2, 10),
    Metric("sm_clock", "SM clock under load", "MHz", "low", 20, 100, depends="whether all of them ran the same job"),
    Metric("pcie_width", "PCIe width", "lanes", "low", 0.5, 1),
    Metric("pcie_generation", "PCIe generation under load", "", "low", 0.1, 1),
    Metric("pcie_replays", "PCIe replays", "", "high", 20, 200, True),
    Metric("ecc_corrected", "corrected ECC errors", "", "high", 20, 200, True),
    Metric("remapped_rows", "remapped rows", "", "high", 1, 8, True),
    Metric("nvlink_errors", "NVLink errors", "", "high", 20, 200, True),
    Metric("nvlinks_active", "NVLinks active", "", "low", 0.1, 1),
    Metric("throttle_seconds", "seconds throttled by heat or hardware", "s", "high", 10, 120, True),
    Metric("link_downed", "link_downed", "", "high", 1, 5, True),
    Metric("link_error_recovery", "link_error_recovery", "", "high", 1, 10, True),
    Metric("symbol_error", "symbol_error", "", "high", 50, 1000, True),
    Metric("port_rcv_errors", "port_rcv_errors", "", "high", 20, 200, True),
    Metric("port_xmit_discards", "port_xmit_discards", "", "high", 50, 1000, True),
    Metric("local_ack_timeout_err", "local_ack_timeout_err", "", "high", 10, 100, True),
    Metric("req_transport_retries_exceeded", "req_transport_retries_exceeded", "", "high", 1, 5, True),
    Metric("packet_seq_err", "packet_seq_err", "", "high", 100, 5000, True),
    Metric("roce_adp_retrans", "roce_adp_retrans", "", "high", 100, 5000, True),
    Metric("rnr_nak_retry_err", "rnr_nak_retry_err", "", "high", 1, 5, True),
    Metric("port_rate", "port rate", "Gbit/s", "low", 1, 10),
    Metric("carrier_down", "carrier losses", "", "high", 1, 5, True),
    Metric("memory_corrected", "corrected memory errors (EDAC)", "", "high", 10, 100, True),
    Metric(
        "memory_available",
        "memory available",
        "%",
        "low",
        5,
        40,
        depends="which jobs and page caches hold the memory",
        severity="info",
    ),
    Metric(
        "numa_memory_free",
        "free memory of the fullest NUMA node",
        "%",
        "low",
        5,
        40,
        depends="which jobs and page caches hold the memory",
        severity="info",
    ),
    Metric("pcie_correctable", "correctable PCIe errors", "", "high", 20, 200, True),
)
METRICS = {metric.name: metric for metric in _METRICS}
_PORT_COUNTERS = [m.name for m in _METRICS if m.name in m.text and m.counter and m.name != "carrier_down"]
_HEAT = ("hw_slowdown", "hw_thermal_slowdown", "sw_thermal_slowdown", "hw_power_brake_slowdown")


class Number(NamedTuple):
    """One number of a device or node, and whom it may be compared with."""

    metric: str
    condition: str  # values under different conditions are not compared
    role: str
    subject: str  # "GPU4 0000:9b:00.0", "mlx5_0", "" = the node
    kind: str  # gpu, port, interface, pci, node
    value: float
    ref: Ref | None


def _load(gpu: Accelerator) -> tuple[str, float] | None:
    """Power band of the last reading that tells power, and its watts."""
    for reading in reversed(gpu.readings):
        if reading.power_w is not None:
            share = reading.power_w / gpu.power_limit_w if gpu.power_limit_w else None
            if share is None:
                return None
            return ("load" if share >= 0.7 else "half" if share >= 0.35 else "idle"), reading.power_w
    return None


def _gpu(gpu: Accelerator) -> Iterator[Number]:
    role = f"{gpu.name or 'GPU'} {gpu.index}" if gpu.index is not None else ""
    band = _load(gpu)

    def of(metric: str, value: float | None, ref: Ref | None, condition: str = "") -> Iterator[Number]:
        if value is not None:
            yield Number(metric, f"{gpu.name}|{condition}", role, gpu.label, "gpu", float(value), ref)

    if gpu.readings:
        last = gpu.readings[-1]
        busy = (last.utilization_percent or 0) >= 90
        if band is not None and last.power_w is not None:
            yield from of("temperature", last.temperature_c, last.ref("temperature_c"), band[0])
            yield from of("memory_temperature", last.memory_temperature_c, last.ref("memory_temperature_c"), band[0])
            if band[0] == "load" and busy:
                yield from of("sm_clock", last.sm_clock_mhz, last.ref("sm_clock_mhz"), str(gpu.application_sm_clock_mhz))
        yield from of("pcie_width", last.link_width, last.ref("link_width"))
        if busy:  # an idle GPU lowers its link speed
            yield from of("pcie_generation", last.link_generation, last.ref("link_generation"))
    yield from of("pcie_replays", gpu.replays, gpu.ref("replays"))
    if gpu.ecc_volatile is not None:
        counts = gpu.ecc_volatile
        parts = [n for n in (counts.sram_corrected, counts.dram_corrected) if n is not None]
        total = counts.total_corrected if counts.total_corrected is not None else sum(parts) if parts else None
        yield from of("ecc_corrected", total, counts.ref("total_corrected") or counts.ref("dram_corrected"))
    rows = [n for n in (gpu.remapped_correctable, gpu.remapped_uncorrectable) if n is not None]
    yield from of("remapped_rows", sum(rows) if rows else None, gpu.ref("remapped_correctable"))
    if gpu.nvlinks:
        counted = [
            n for link in gpu.nvlinks for n in (link.crc_errors, link.replay_errors, link.recovery_errors) if n is not None
        ]
        yield from of("nvlink_errors", sum(counted) if counted else None, gpu.ref("nvlinks"))
        active = [link for link in gpu.nvlinks if link.state == "active" or link.speed_gb_s]
        yield from of("nvlinks_active", len(active), gpu.ref("nvlinks"))
    heat = [gpu.throttle_counters_us[name] for name in _HEAT if name in gpu.throttle_counters_us]
    yield from of("throttle_seconds", max(heat) / 1e6 if heat else None, gpu.ref("throttle_counters_us"))


def _port(device: RdmaDevice, port: RdmaPort) -> Iterator[Number]:
    name = device.name if len(device.ports) == 1 else f"{device.name}/{port.number}"
    condition = f"{device.hca_type}|{port.link_layer}"
    for counter in _PORT_COUNTERS:
        for table, field in ((port.counters, "counters"), (port.hw_counters, "hw_counters")):
            if counter in table:
                yield Number(counter, condition, name, name, "port", float(table[counter]), port.ref(field))
                break
    if port.state == "ACTIVE" and port.rate_gbps is not None:
        yield Number("port_rate", condition, name, name, "port", port.rate_gbps, port.ref("rate_gbps"))


def numbers(s: Snapshot) -> Iterator[Number]:
    """All numbers with a direction of one node."""
    for gpu in s.accelerators or []:
        if gpu.error is None:
            yield from _gpu(gpu)
    for device in s.rdma or []:
        for port in device.ports:
            yield from _port(device, port)
    for nic in s.nics or []:
        if nic.carrier_down_count is not None and nic.pci_address:
            ref = nic.ref("carrier_down_count")
            yield Number("carrier_down", nic.driver or "", nic.name, nic.name, "interface", float(nic.carrier_down_count), ref)
    memory = s.memory
    if memory.edac_ce is not None:
        yield Number("memory_corrected", "", "node", "", "node", float(memory.edac_ce), memory.ref("edac_ce"))
    if memory.available_bytes is not None and memory.total_bytes:
        share = 100 * memory.available_bytes / memory.total_bytes
        yield Number("memory_available", "", "node", "", "node", share, memory.ref("available_bytes"))
    parts = [
        100 * n.memory_free_bytes / n.memory_total_bytes
        for n in s.cpu.numa or []
        if n.memory_total_bytes and n.memory_free_bytes is not None
    ]
    if len(parts) > 1:
        yield Number("numa_memory_free", "", "node", "", "node", min(parts), s.cpu.ref("numa"))
    for pci in (s.pci or {}).values():
        if pci.aer_counts and (pci.is_accelerator or pci.is_nic):
            count = sum(n for name, n in pci.aer_counts.items() if name.startswith("correctable/"))
            kind = f"{pci.vendor_id}:{pci.device_id}"
            yield Number("pcie_correctable", kind, pci.address, pci.address, "pci", float(count), pci.ref("aer_counts"))
