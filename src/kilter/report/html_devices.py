"""The tables of a node in the HTML report: its accelerators, and facts on which its sources disagree."""

from __future__ import annotations

from kilter.facts.accelerator import Accelerator, EccCounts
from kilter.facts.base import Entity
from kilter.facts.case import Snapshot
from kilter.report.html_parts import badge, table
from kilter.report.topology_svg import escape


def conflicts(snapshot: Snapshot) -> str:
    """Facts that two sources give differently, the one in use first."""
    if not snapshot.conflicts:
        return ""
    rows = [
        (
            escape(one.subject),
            f"<code>{escape(one.field)}</code>",
            f"{escape(one.kept)} <span class=dim>{escape(snapshot.where(one.kept_ref))}</span>",
            f"{escape(one.other)} <span class=dim>{escape(snapshot.where(one.other_ref))}</span>",
        )
        for one in snapshot.conflicts[:1000]
    ]
    return "<h3>Facts on which sources disagree</h3>" + table(
        (("Subject", False), ("Fact", False), ("Used", False), ("Other", False)), rows
    )


def accelerators(snapshot: Snapshot) -> str:
    """One row a device; columns that no device has a value for are named below the table."""
    devices = snapshot.accelerators or []
    if not devices:
        return ""
    heads = [
        ("Device", False),
        ("Name", False),
        ("PCI", False),
        ("Temp. °C", True),
        ("Memory °C", True),
        ("Power W", True),
        ("PCIe link", False),
        ("Memory MiB", True),
        ("ECC", False),
        ("Uncorrected now / ever", True),
        ("Remapped rows", False),
        ("Fabric", False),
        ("UUID", False),
    ]
    rows = [_gpu_row(one) for one in devices]
    keep = [at for at in range(len(heads)) if at in (0, 1) or any(_NOTHING not in row[at] for row in rows)]
    grid = table([heads[at] for at in keep], ([row[at] for at in keep] for row in rows), css="tight")
    absent = [heads[at][0] for at in range(len(heads)) if at not in keep]
    note = f'<p class="dim">Not given for any device: {escape(", ".join(absent))}.</p>' if absent else ""
    return f"<h3>Accelerators</h3>{grid}{note}"


_NOTHING = ">?</span>"


def _or_missing(value: object, entity: Entity, field: str) -> str:
    """Escaped value, or a dash whose tooltip says why there is none."""
    if value not in (None, ""):
        return escape(str(value))
    why = entity.missing.get(field)
    text = "; ".join(part for part in (why.reason.value, why.detail, why.hint) if part) if why else "not collected"
    return f'<span class="dim" title="{escape(text)}"{_NOTHING}'


def _gpu_row(one: Accelerator) -> list[str]:
    reading = one.readings[-1] if one.readings else None
    holder: Entity = reading if reading is not None else one
    power = reading.power_w if reading else None
    limit = f" / {one.power_limit_w:.0f}" if one.power_limit_w is not None else ""
    now = _gen_width(reading.link_generation if reading else None, reading.link_width if reading else None)
    most = _gen_width(one.link_generation_device_max or one.link_generation_max, one.link_width_max)
    ecc = None if one.ecc_mode is None else "on" if one.ecc_mode else "off"
    if one.ecc_mode_pending is not None and one.ecc_mode_pending != one.ecc_mode:
        ecc = f"{ecc or '?'} (pending {'on' if one.ecc_mode_pending else 'off'})"
    remap = None
    if one.remapped_correctable is not None or one.remapped_uncorrectable is not None:
        remap = f"{_plain(one.remapped_correctable)} corr., {_plain(one.remapped_uncorrectable)} uncorr."
        remap += ", pending" if one.remap_pending else ""
        remap += ", FAILED" if one.remap_failure else ""
    fabric = " ".join(part for part in (one.fabric_state, one.fabric_status) if part)
    volatile, ever = _uncorrected(one.ecc_volatile), _uncorrected(one.ecc_aggregate)
    uncorrected = None if volatile is None and ever is None else f"{_plain(volatile)} / {_plain(ever)}"
    prefix = "XPU" if one.vendor == "kunlunxin" else "GPU"
    label = f"{prefix}{one.index}" if one.index is not None else prefix
    label = escape(label) + (f"<div>{badge('error', one.error)}</div>" if one.error else "")
    return [
        label,
        _or_missing(one.name, one, "name"),
        f"<code>{_or_missing(one.pci_address, one, 'pci_address')}</code>",
        _or_missing(reading.temperature_c if reading else None, holder, "temperature_c"),
        _or_missing(reading.memory_temperature_c if reading else None, holder, "memory_temperature_c"),
        _or_missing(f"{power:.0f}{limit}" if power is not None else None, holder, "power_w"),
        _or_missing(f"{now or '?'} (max {most})" if most and most != now else now, holder, "link_generation"),
        _or_missing(one.memory_total_mib, one, "memory_total_mib"),
        _or_missing(ecc, one, "ecc_mode"),
        _or_missing(uncorrected, one, "ecc_volatile"),
        _or_missing(remap, one, "remapped_uncorrectable"),
        _or_missing(fabric, one, "fabric_state"),
        f"<code>{_or_missing(one.uuid, one, 'uuid')}</code>",
    ]


def _plain(value: int | None) -> str:
    return "?" if value is None else str(value)


def _gen_width(gen: int | None, width: int | None) -> str:
    return " ".join(([f"Gen{gen}"] if gen else []) + ([f"x{width}"] if width else []))


def _uncorrected(counts: EccCounts | None) -> int | None:
    """Total of uncorrected errors: the tool's own total, else the sum of the parts that are given."""
    if counts is None:
        return None
    if counts.total_uncorrected is not None:
        return counts.total_uncorrected
    parts = [part for part in (counts.sram_uncorrected, counts.dram_uncorrected) if part is not None]
    return sum(parts) if parts else None
