"""Rates of counters between two snapshots of one node: wrap, saturation and start from 0 told apart.

Limits are those that ``knowledge/tables/ib_counters.yaml`` and DCGM's replay table name, with their sources.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator

import msgspec

from kilter.diagnose.fleet.profile import Profile
from kilter.facts.base import Ref
from kilter.facts.case import Snapshot
from kilter.knowledge import aer, ib_counters

#: Counters of the PMA PortCounters attribute stop at their largest value (InfiniBand Architecture Specification, PortCounters).
_STOPS_AT = {
    "symbol_error": 0xFFFF,
    "link_error_recovery": 0xFF,
    "link_downed": 0xFF,
    "port_rcv_errors": 0xFFFF,
    "port_rcv_remote_physical_errors": 0xFFFF,
    "port_rcv_switch_relay_errors": 0xFFFF,
    "port_xmit_discards": 0xFFFF,
    "port_xmit_constraint_errors": 0xFF,
    "port_rcv_constraint_errors": 0xFF,
    "local_link_integrity_errors": 0xF,
    "excessive_buffer_overrun_errors": 0xF,
    "VL15_dropped": 0xFFFF,
}
_LIMIT = re.compile(r"> ?(\d+(?:\.\d+)?)/(h|min|s)\b")
_PER_HOUR = {"h": 1.0, "min": 60.0, "s": 3600.0}
#: A shorter interval says little about a rate per hour.
MIN_INTERVAL_S = 10.0


class Delta(msgspec.Struct, frozen=True):
    """How far a counter moved. ``how``: counted, wrapped32, wrapped64, restarted (from 0: at least this many), saturated (at least)."""

    value: int
    how: str = "counted"

    @property
    def is_lower_bound(self) -> bool:
        return self.how in ("restarted", "saturated")


class Rate(msgspec.Struct, kw_only=True):
    counter: str
    node: str
    subject: str
    subject_kind: str  # gpu, port, interface, pci
    before: int
    after: int
    delta: int
    how: str
    interval_s: float
    per_hour: float
    limit_per_hour: float | None = None  # None: no source names one
    severity: str = "info"
    source: str = ""
    note: str = ""
    where: str = ""

    @property
    def is_over(self) -> bool:
        return self.limit_per_hour is not None and self.delta > 0 and self.per_hour > self.limit_per_hour


def delta(before: int, after: int, *, rebooted: bool = False, stops_at: int | None = None) -> Delta:
    """How far a counter moved from ``before`` to ``after``.

    A smaller value is a wrap only when the earlier one was in the last quarter of a 32- or 64-bit range and the later one is in the first;
    else somebody started the counter again. ``stops_at``: a counter that stops there instead of wrapping.
    """
    if rebooted:
        return Delta(after, "restarted")
    if after >= before:
        # Ports that have 64-bit counters go on above the old limit; only a counter exactly at its limit has stopped.
        return Delta(after - before, "saturated" if stops_at is not None and after == stops_at else "counted")
    if stops_at is None:
        for bits in (32, 64):
            size = 1 << bits
            if size * 3 // 4 <= before < size and after < size // 4:
                return Delta(after + size - before, f"wrapped{bits}")
    return Delta(after, "restarted")


def rebooted(before: Snapshot, after: Snapshot) -> bool | None:
    """Whether the node booted in between; None when nothing tells."""
    if before.host.boot_id and after.host.boot_id:
        return before.host.boot_id != after.host.boot_id
    if after.host.uptime_s is not None and before.time is not None and after.time is not None:
        return after.host.uptime_s < after.time - before.time - 1.0
    if before.host.uptime_s is not None and after.host.uptime_s is not None:
        return True if after.host.uptime_s < before.host.uptime_s else None
    return None


def _limit(name: str) -> tuple[float | None, str, str, str]:
    """(limit per hour, severity, source, note) of a port or interface counter. "delta > 0" means any."""
    known = ib_counters.lookup(name)
    if known is None or known.severity == "info":
        return None, "info", "", ""
    if match := _LIMIT.search(known.rule):
        return float(match[1]) * _PER_HOUR[match[2]], "warning", f"{known.source}: {known.rule}", known.note
    if "delta > 0" in known.rule:
        # One event is no proof of a bad link: the far end's reboot counts too.
        return 0.0, "warning", f"{known.source}: {known.rule}", known.note
    return None, "info", f"{known.source}: {known.rule}", known.note


_Counter = tuple[str, str, str, str, int, Ref | None]  # kind, subject, identity, counter, value, ref


def _counters(s: Snapshot) -> Iterator[_Counter]:
    for device in s.rdma or []:
        for port in device.ports:
            name = device.name if len(device.ports) == 1 else f"{device.name}/{port.number}"
            for table, field in ((port.counters, "counters"), (port.hw_counters, "hw_counters")):
                for counter, value in table.items():
                    yield "port", name, name, counter, value, port.ref(field)
    for nic in s.nics or []:
        for counter, value in nic.statistics.items():
            yield "interface", nic.name, nic.name, counter, value, nic.ref("statistics")
        if nic.carrier_down_count is not None:
            yield "interface", nic.name, nic.name, "carrier_down_count", nic.carrier_down_count, nic.ref("carrier_down_count")
    for gpu in s.accelerators or []:
        # The index changes when a device is lost.
        identity = gpu.uuid or gpu.pci_address or str(gpu.index)
        if gpu.replays is not None:
            yield "gpu", gpu.label, identity, "pcie_replays", gpu.replays, gpu.ref("replays")
        for link in gpu.nvlinks or []:
            for counter in ("crc_errors", "replay_errors", "recovery_errors"):
                value = getattr(link, counter)
                if value is not None:
                    yield (
                        "gpu",
                        f"{gpu.label} NVLink {link.id}",
                        f"{identity}/{link.id}",
                        f"nvlink_{counter}",
                        value,
                        link.ref(counter),
                    )
    for pci in (s.pci or {}).values():
        for counter, value in pci.aer_counts.items():
            yield "pci", pci.address, pci.address, f"aer {counter}", value, pci.ref("aer_counts")


def counter_rates(before: Snapshot, after: Snapshot) -> list[Rate]:
    """Rates of all counters that both snapshots of a node have. Empty when their times do not tell an interval."""
    if before.time is None or after.time is None or after.time - before.time < MIN_INTERVAL_S:
        return []
    interval = after.time - before.time
    boot = rebooted(before, after)
    if boot and after.host.uptime_s is not None:
        interval = max(min(interval, after.host.uptime_s), MIN_INTERVAL_S)
    old = {(kind, identity, counter): value for kind, _, identity, counter, value, _ in _counters(before)}
    links = {g.uuid or g.pci_address or str(g.index): g for g in after.accelerators or []}
    found = []
    for kind, subject, identity, counter, value, ref in _counters(after):
        start = old.get((kind, identity, counter))
        if start is None:
            continue
        moved = delta(start, value, rebooted=bool(boot), stops_at=_STOPS_AT.get(counter) if kind == "port" else None)
        rate = Rate(
            counter=counter,
            node=after.node,
            subject=subject,
            subject_kind=kind,
            before=start,
            after=value,
            delta=moved.value,
            how=moved.how,
            interval_s=interval,
            per_hour=moved.value * 3600 / interval,
            where=after.where(ref),
        )
        if counter == "pcie_replays":
            gpu = links[identity]
            limit = aer.replay_limit(gpu.link_generation_max or 0, gpu.link_width_max or 0)
            if limit is not None:
                rate.limit_per_hour, rate.severity = limit * 60.0, "warning"
                rate.source = f"NVIDIA/DCGM 4.6.0 health watch: {limit} a minute on this link"
        elif kind in ("port", "interface") and moved.value:
            rate.limit_per_hour, rate.severity, rate.source, rate.note = _limit(counter)
            if moved.how == "restarted" and rate.limit_per_hour == 0.0:
                rate.limit_per_hour = None  # links go down and up at every boot and driver load
        elif counter == "nvlink_crc_errors":
            rate.limit_per_hour, rate.severity, rate.source = (
                100 * 3600.0,
                "warning",
                "NVIDIA/DCGM: NVLink CRC errors, 100 a second",
            )
        found.append(rate)
    return found


def pairs(profiles: Iterable[Profile]) -> list[tuple[Profile, Profile]]:
    """First and last profile of every node that has two with times."""
    nodes: dict[str, list[Profile]] = {}
    for profile in profiles:
        if profile.time is not None and profile.node:
            nodes.setdefault(profile.node, []).append(profile)
    found = []
    for group in nodes.values():
        first = min(group, key=lambda p: p.time or 0.0)
        last = max(group, key=lambda p: p.time or 0.0)
        if first is not last:
            found.append((first, last))
    return found
