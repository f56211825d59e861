"""NVSwitch SXid codes (HGX A100/H100 boards, whose switches the host's driver runs). Table: ``tables/sxid.yaml``.

The word Fatal or Non-fatal in a line outranks the table. Severities that the Fabric Manager guide does not document are
inferred from the symbol's name, or unknown: :attr:`Sxid.confidence` says which.
"""

from __future__ import annotations

import functools
from typing import Literal

import msgspec

from kilter.knowledge.table import table, typed

#: SOP by cause class; the first class that a code has wins
_SOPS = {"thermal": "SOP-THERM"}


class _Row(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    sxid: int
    name: str
    unit: str
    severity: str
    cause_class: list[str]
    action: str
    sources: list[str]
    doc_name: str = ""
    note: str = ""


class Sxid(msgspec.Struct, frozen=True):
    code: int
    name: str
    unit: str
    severity: Literal[
        "always_fatal", "fatal_for_port", "likely_fatal_for_port", "non_fatal", "corrected", "corrected_or_rate", "unknown"
    ]
    inferred: bool  # severity is our reading of the name, not documented
    cause_class: list[str]
    action: str
    sources: list[str]
    doc_name: str = ""
    note: str = ""

    @property
    def confidence(self) -> Literal["high", "low"]:
        return "low" if self.inferred or self.severity == "unknown" else "high"

    @property
    def sop(self) -> str:
        return next((_SOPS[c] for c in self.cause_class if c in _SOPS), "SOP-NVL")


class Group(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    range: str
    unit: str


def _typed(entry: object) -> Sxid:
    row = typed(entry, _Row)
    severity = row.severity.removesuffix(" (from name)")
    return msgspec.convert(
        {
            "code": row.sxid,
            "inferred": severity != row.severity,
            **{f: getattr(row, f) for f in row.__struct_fields__ if f not in ("sxid", "severity")},
            "severity": severity,
        },
        Sxid,
    )


@functools.cache
def lookup(code: int) -> Sxid | None:
    """The entry of ``code``, or ``None`` for a code that the table does not have. Parses that entry only."""
    entry = table("sxid").entry("sxids", "sxid", code)
    return None if entry is None else _typed(entry)


def codes() -> list[int]:
    """All codes of the table."""
    return [int(c) for c in table("sxid").keys("sxids", "sxid")]


@functools.cache
def all_sxids() -> tuple[Sxid, ...]:
    """The whole table, typed. Takes about 0.1 s: use :func:`lookup` where single codes are enough."""
    return tuple(_typed(e) for e in table("sxid").head("sxids"))


@functools.cache
def _groups() -> tuple[tuple[int, int, str], ...]:
    rows = []
    for group in typed(table("sxid").head("groups"), list[Group]):
        low, _, high = group.range.partition("-")
        rows.append((int(low), int(high), group.unit))
    return tuple(rows)


def unit(code: int) -> str:
    """The part of the switch that ``code`` comes from, by its range; also for codes without an entry. ``""`` if unknown."""
    return next((name for low, high, name in _groups() if low <= code <= high), "")


def correlations() -> list[str]:
    """How to read SXids together with XIDs and with each other."""
    return typed(table("sxid").head("correlate"), list[str])


def log_forms() -> list[str]:
    return typed(table("sxid").head("log_forms"), list[str])
