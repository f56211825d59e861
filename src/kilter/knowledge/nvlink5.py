"""Decoding XID 144-150, the NVLink5 errors, by unit and registers. Table: ``nvlink5_decode`` of ``tables/xid.yaml``.

A line names a unit and prints registers: the first is ``intrinfo`` (bits 25-20 = sub-code, the low bits identify the unit),
the second the error status. The position of the low bits changed with driver R575 (NVIDIA/NVSentinel#748), so the driver's
version is part of the question; where it is unknown, both layouts are tried.
"""

from __future__ import annotations

import functools
import re
from collections.abc import Sequence
from typing import Literal

import msgspec

from kilter.knowledge.table import table, typed

Layout = Literal["before R575", "R575 on"]

#: worst first
_SEVERITIES = ("fatal", "link fatal", "non-fatal")


class Rule(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """One row of the vendor's decode sheet."""

    xid: int
    unit: str  # "NETIR_LINK_EVT/NETIR_LINK_DOWN": a line may print either part
    intrinfo_before_r575: str  # 32 bits, most significant first, "-" = any
    intrinfo_r575_on: str
    error_status: str
    vendor_action: str
    vendor_investigate: str
    severity: Literal["fatal", "link fatal", "non-fatal"]
    severity_uncertain: bool
    origin: str
    victim_hint: str  # local_only, remote
    vendor_action_2: str = ""  # where the sheet gives a second action

    def names(self, unit: str) -> bool:
        """Is ``unit``, as a line prints it, this rule's unit?"""
        return unit == self.unit or unit in self.unit.split("/")


class NvLink5Decode(msgspec.Struct, frozen=True):
    """What an NVLink5 line means. ``other`` is the answer of the other driver layout, where both fit and they differ."""

    code: int
    unit: str
    sub_code: int
    error_status: int | None
    layout: Layout
    severity: str
    severity_uncertain: bool
    vendor_actions: tuple[str, ...]
    vendor_investigate: tuple[str, ...]
    origin: str
    victim_hint: str
    confidence: Literal["high", "medium", "low"]
    notes: tuple[str, ...] = ()
    other: NvLink5Decode | None = None


@functools.cache
def rules() -> tuple[Rule, ...]:
    """The decode table, typed."""
    return tuple(typed(table("xid").head("nvlink5_decode"), list[Rule]))


@functools.cache
def _bits(pattern: str) -> tuple[int, int]:
    """``pattern`` ("--0110...", 32 places) as (mask, value)."""
    mask = int("".join("0" if c == "-" else "1" for c in pattern), 2)
    return mask, int(pattern.replace("-", "0"), 2)


def layout_of(driver_version: str | None) -> Layout | None:
    """The register layout that a driver version ("570.124.06") uses; ``None`` where the version is unknown."""
    major = re.match(r"\s*(\d{3,4})(?!\d)", driver_version or "")
    return None if major is None else "R575 on" if int(major[1]) >= 575 else "before R575"


def _matches(rule: Rule, layout: Layout, intrinfo: int) -> bool:
    mask, value = _bits(rule.intrinfo_before_r575 if layout == "before R575" else rule.intrinfo_r575_on)
    return intrinfo & mask == value


def _answer(code: int, unit: str, intrinfo: int, status: int | None, layout: Layout) -> NvLink5Decode | None:
    found = [
        r
        for r in rules()
        if r.xid == code
        and r.names(unit)
        and (status is None or int(r.error_status, 16) == status)
        and _matches(r, layout, intrinfo)
    ]
    if not found:
        return None
    notes = []
    severities = {r.severity for r in found}
    if len(severities) > 1:
        notes.append("rows of the decode sheet differ in severity for this line: the worse one is shown")
    if status is None:
        notes.append("the error status is missing from the line: rows of every status were taken")
    actions = dict.fromkeys(a for r in found for a in (r.vendor_action, r.vendor_action_2) if a)
    uncertain = len(severities) > 1 or any(r.severity_uncertain for r in found)
    return NvLink5Decode(
        code=code,
        unit=found[0].unit if len({r.unit for r in found}) == 1 else unit,
        sub_code=intrinfo >> 20 & 0x3F,
        error_status=status,
        layout=layout,
        severity=next(s for s in _SEVERITIES if s in severities),
        severity_uncertain=uncertain,
        vendor_actions=tuple(actions),
        vendor_investigate=tuple(dict.fromkeys(r.vendor_investigate for r in found)),
        origin="/".join(dict.fromkeys(r.origin for r in found)),
        victim_hint="remote" if any(r.victim_hint == "remote" for r in found) else found[0].victim_hint,
        confidence="low" if status is None else "medium" if uncertain else "high",
        notes=tuple(notes),
    )


def _same(a: NvLink5Decode, b: NvLink5Decode) -> bool:
    return (a.severity, a.vendor_actions, a.vendor_investigate) == (b.severity, b.vendor_actions, b.vendor_investigate)


def decode(code: int, unit: str, regs: Sequence[int], driver_version: str | None = None) -> NvLink5Decode | None:
    """What the vendor's sheet says of an XID 144-150 line.

    ``unit`` is the word after the code ("NETIR_LINK_EVT"), ``regs`` the registers in brackets, as far as the line has them.
    ``None``: no rule fits, so only the word Fatal or Nonfatal of the line says anything.
    Where the version is unknown and both layouts fit, the decode is that of the newer layout, with ``other`` set where the
    older one says something else. Where the version is known but only the other layout fits, that answer comes with
    confidence "low" and a note: the version may belong to another boot or node than the line.
    """
    if not regs or not 144 <= code <= 150:
        return None
    intrinfo, status = regs[0] & 0xFFFFFFFF, regs[1] if len(regs) > 1 else None
    unit = unit.strip()
    new = _answer(code, unit, intrinfo, status, "R575 on")
    old = _answer(code, unit, intrinfo, status, "before R575")
    layout = layout_of(driver_version)
    if layout is None:
        if new is None or old is None:
            return new or old
        return new if _same(new, old) else msgspec.structs.replace(new, confidence="low", other=old)
    right, wrong = (new, old) if layout == "R575 on" else (old, new)
    if right is not None or wrong is None:
        return right
    drivers = "R575 and later" if wrong.layout == "R575 on" else "before R575"
    note = f"only the register layout of drivers {drivers} fits, but the driver is given as {driver_version}"
    return msgspec.structs.replace(wrong, confidence="low", notes=(*wrong.notes, note))
