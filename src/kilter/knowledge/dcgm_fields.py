"""DCGM fields as exporters name them, old names and new, and the values that mean "no value". Table: ``tables/dcgm_fields.yaml``.

DCGM 4.6 renamed half of its fields; scrapes with either set of names are in use, so :func:`canonical` gives one name for both.
"""

from __future__ import annotations

import functools
import re
from typing import Any, Literal

import msgspec

from kilter.knowledge.table import table, typed

Blank = Literal["blank", "not found", "not supported", "not permissioned"]
_KINDS: tuple[Blank, ...] = ("blank", "not found", "not supported", "not permissioned")
_ENTRY = re.compile(r"^- metric: (\w+)\n(?:  legacy_names: \[([^\]\n]*)\])?", re.MULTILINE)


class DcgmField(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """One field. ``type`` with "(by name)" is inferred; ``curated`` false: the meaning is only the name spelled out."""

    metric: str
    id: int
    unit: str
    type: str
    meaning: str
    legacy_names: list[str] = []
    exporter: str = ""  # default, commented_out: in dcgm-exporter's list of metrics
    use: str = ""
    curated: bool = True

    @property
    def is_counter(self) -> bool:
        return self.type.startswith("counter")


class ExporterMetric(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """A metric that dcgm-exporter computes itself; DCGM has no field for it."""

    metric: str
    type: str
    unit: str
    meaning: str
    exporter: str


@functools.cache
def _names() -> dict[str, str]:
    """Every name, old and new -> the new one."""
    names: dict[str, str] = {}
    for match in _ENTRY.finditer(table("dcgm_fields").sections["fields"]):
        for name in (match[1], *re.findall(r"\w+", match[2] or "")):
            names.setdefault(name, match[1])
    return names


def canonical(name: str) -> str | None:
    """The name of DCGM 4.6 for ``name``, which may be the older one; ``None`` if it is no DCGM field."""
    return _names().get(name)


def lookup(name: str) -> DcgmField | None:
    """The field of an old or new name, or ``None``."""
    known = canonical(name)
    return None if known is None else typed(table("dcgm_fields").entry("fields", "metric", known), DcgmField)


def all_names() -> list[str]:
    """The new name of every field."""
    return table("dcgm_fields").keys("fields", "metric")


@functools.cache
def exporter_only() -> tuple[ExporterMetric, ...]:
    return tuple(typed(table("dcgm_fields").head("exporter_only"), list[ExporterMetric]))


@functools.cache
def _sentinels() -> tuple[int, int, int]:
    values: Any = table("dcgm_fields").head("blank_values")
    return int(values["int32"]), int(values["int64"]), int(values["fp64"])


def blank(text: str) -> Blank | None:
    """Why a printed value is no value: one of DCGM's sentinels; ``None`` for an ordinary number or another text.

    Exporters that pass through a double lose the last digits of the 64-bit sentinels; such a number reads as "blank".
    """
    int32, int64, fp64 = _sentinels()
    try:
        number = int(text) if re.fullmatch(r"[+-]?\d{1,25}", text) else float(text)
    except ValueError:
        return None
    if isinstance(number, float) and number != number:
        return "blank"
    if isinstance(number, float) and number >= 9.2e18:
        return "blank"
    if number >= int64 - 16:
        return _KINDS[int(number) - int64] if int64 <= number < int64 + 4 else "blank"
    for start in (int32, fp64):
        if start <= number < start + 4:
            return _KINDS[int(number) - start]
    return None


def pitfalls() -> list[str]:
    """What goes wrong when these metrics are read."""
    return typed(table("dcgm_fields").head("pitfalls"), list[str])


def sources() -> list[str]:
    return typed(table("dcgm_fields").head("sources"), list[str])
