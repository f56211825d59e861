"""Baidu Kunlunxin XPUs: what is publicly known. Tables: ``tables/kunlunxin.yaml``, ``tables/kunlunxin_more.yaml``.

The second table corrects the first; there is no public compatibility matrix, so versions are reported, not judged.
"""

from __future__ import annotations

import functools
import re

import msgspec

from kilter.knowledge.table import table, typed


class Device(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    name: str
    architecture: str = ""
    forms: list[str] = []
    memory_mib: int | None = None
    l3_mib: int | None = None
    pcie: str = ""
    clocks: dict[str, str] = {}
    idle_power_w: str = ""
    part_numbers: dict[str, str] = {}
    pci_ids: list[str] = []
    note: str = ""
    source: str = ""


class LogPattern(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """A line of the XPU stack that means trouble; ``pattern`` is a regular expression."""

    pattern: str
    source: str
    meaning: str = ""
    then: str = ""
    where: str = ""
    hardware: str = ""
    workaround: str = ""


class Correction(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    item: str
    source: str = ""
    correct: str = ""
    consequence: str = ""
    add: list[str] = []
    pypi: str = ""


class KnownIssue(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    issue: str
    text: str


@functools.cache
def devices() -> tuple[Device, ...]:
    return tuple(typed(table("kunlunxin_more").head("devices"), list[Device]))


@functools.cache
def vendor_ids() -> frozenset[int]:
    """PCI vendor ids of the cards."""
    rows: dict[str, str] = table("kunlunxin").head("pci")["vendor_ids"]
    return frozenset(int(k, 16) for k in rows)


@functools.cache
def log_patterns() -> tuple[LogPattern, ...]:
    return tuple(typed(table("kunlunxin_more").head("log_patterns"), list[LogPattern]))


@functools.cache
def _compiled() -> tuple[tuple[re.Pattern[str], LogPattern], ...]:
    return tuple((re.compile(p.pattern), p) for p in log_patterns())


def log_pattern(line: str) -> LogPattern | None:
    """The first pattern that ``line`` matches, or ``None``."""
    return next((p for regex, p in _compiled() if regex.search(line)), None)


@functools.cache
def corrections() -> tuple[Correction, ...]:
    """What the second table corrects in the first."""
    return tuple(typed(table("kunlunxin_more").head("corrections"), list[Correction]))


@functools.cache
def known_issues() -> tuple[KnownIssue, ...]:
    return tuple(typed(table("kunlunxin").head("known_issues"), list[KnownIssue]))
