"""NVIDIA XID codes: what they mean, what to do, and where the tools disagree. Table: ``tables/xid.yaml``.

Entries with ``curated: false`` are derived from the symbol's name only; :attr:`Xid.confidence` says so.
"""

from __future__ import annotations

import functools
import re
from typing import Literal

import msgspec

from kilter.knowledge.nvlink5 import NvLink5Decode, decode
from kilter.knowledge.table import folded, table, typed

Action = Literal[
    "contact_support",
    "decode_subcode",
    "drain_and_reset_gpu",
    "follow_other_xid",
    "follow_recovery_action",
    "inspect_hw",
    "none",
    "reboot_node",
    "reset_gpu",
    "reset_gpu_at_next_drain",
    "reset_gpu_then_inspect",
    "restart_app",
    "restart_vm",
    "update_software",
    "watch",
]
CauseClass = Literal[
    "app",
    "bus",
    "config",
    "driver",
    "fabric",
    "gpu_memory",
    "hardware",
    "informational",
    "power",
    "system_memory",
    "test",
    "thermal",
    "unknown",
]

#: SOP by cause class, for codes that the table's ``sops`` do not name; the first class that an XID has wins
_SOP_BY_CLASS = {
    "app": "SOP-APP",
    "gpu_memory": "SOP-MEM",
    "fabric": "SOP-NVL",
    "bus": "SOP-BUS",
    "power": "SOP-PWR",
    "thermal": "SOP-THERM",
    "config": "SOP-SW",
    "driver": "SOP-SW",
    "hardware": "SOP-GSP",
}


class Gpud(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """What leptonai/gpud makes of a code."""

    event: str
    actions: list[str] = []


class OtherTools(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """What other tools make of a code (names are keys of the table's ``sources``)."""

    gpud: Gpud | None = None
    ignored_by: list[str] = []
    listed_as_fault_by: list[str] = []
    dcgm_4_6_always_on: str | None = None


class Xid(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    code: int
    name: str
    meaning: str
    cause_class: list[CauseClass]
    severity: Literal["info", "warning", "error", "fatal", "unknown"]
    action: Action
    user_code: Literal["yes", "possible", "no", "unknown"]  # can a user's program cause it
    curated: bool
    sources: list[str]
    tell_apart: str = ""
    see_also: list[int] = []
    catalog_name: str = ""  # where the vendor's catalog and the driver header differ
    vendor_immediate: str | None = None
    vendor_investigate: str | None = None
    other_tools: OtherTools = OtherTools()
    documented_causes: list[str] = []

    @property
    def confidence(self) -> Literal["high", "medium", "low"]:
        """``low``: derived from the symbol's name; ``medium``: curated, but absent from the vendor's catalog."""
        if not self.curated:
            return "low"
        return "high" if "catalog" in self.sources else "medium"


class Disagreement(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    codes: list[int]
    note: str


class LogForm(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    id: str
    example: str
    note: str = ""


class RecoveryAction(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """A value of NVML's GPU recovery action; ``name`` "unknown" for a value that the table does not know."""

    value: int | None
    name: str
    printed: list[str]
    do: str
    printed_unconfirmed: bool = False

    @property
    def healthy(self) -> bool:
        return self.name == "none"


class _Sops(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    sop: str
    codes: list[int]


@functools.cache
def lookup(code: int) -> Xid | None:
    """The entry of ``code``, or ``None`` for a code that the table does not have. Parses that entry only."""
    entry = table("xid").entry("xids", "code", code)
    return None if entry is None else typed(entry, Xid)


def codes() -> list[int]:
    """All codes of the table."""
    return [int(c) for c in table("xid").keys("xids", "code")]


@functools.cache
def all_xids() -> tuple[Xid, ...]:
    """The whole table, typed. Takes about 0.1 s: use :func:`lookup` where single codes are enough."""
    return tuple(typed(table("xid").head("xids"), list[Xid]))


def dcgm_title(code: int) -> str:
    """What DCGM 4.6's health watch calls ``code``, where that is something else than the driver's name; else ``""``."""
    titles = typed(table("xid").head("dcgm_titles"), dict[int, str])
    return titles.get(code, "")


@functools.cache
def disagreements(code: int) -> tuple[str, ...]:
    """Where the tools and the vendor's texts disagree on ``code``."""
    rows = typed(table("xid").head("disagreements"), list[Disagreement])
    notes = [r.note for r in rows if code in r.codes]
    title, entry = dcgm_title(code), lookup(code)
    if title and entry is not None:
        notes.append(
            f"DCGM 4.6 titles XID {code} {title!r}; the driver's header names it {entry.name}. The driver's name is the right one."
        )
    return tuple(notes)


@functools.cache
def log_forms() -> tuple[LogForm, ...]:
    """The forms in which the driver logs errors, with an example each."""
    return tuple(typed(table("xid").head("log_forms"), list[LogForm]))


def log_form(code: int) -> LogForm | None:
    """The form that a line of ``code`` has: the special one where there is one, else the plain one."""
    special = {45: "xid_caused_by", 119: "xid_119", 120: "xid_119", 154: "xid_154"}
    wanted = "xid_nvlink5" if 144 <= code <= 150 else special.get(code, "xid_plain")
    return next((f for f in log_forms() if f.id == wanted), None)


@functools.cache
def _sops() -> dict[int, str]:
    rows = typed(table("xid").head("sops"), list[_Sops])
    return {code: row.sop for row in rows for code in row.codes}


def sop(code: int) -> str:
    """Id of the SOP to follow for ``code``; ``""`` where the entry asks for nothing or points elsewhere (XID 154)."""
    named = _sops().get(code)
    if named:
        return named
    xid = lookup(code)
    if xid is None or (not xid.curated and xid.severity == "unknown"):
        return ""  # codes that current drivers do not log: their cause classes are too vague to send anybody anywhere
    if xid.action in ("follow_recovery_action", "none") and "app" not in xid.cause_class:
        return ""
    return next((s for c, s in _SOP_BY_CLASS.items() if c in xid.cause_class), "")


@functools.cache
def recovery_actions() -> tuple[RecoveryAction, ...]:
    """All recovery actions; the last one is "unknown"."""
    return tuple(typed(table("xid").head("recovery_actions"), list[RecoveryAction]))


#: what tools print where they have no value; not an action
_NO_VALUE = {"", "n_a", "not_supported", "requested_functionality_has_been_deprecated", "not_available"}


def recovery_action(printed: str | int) -> RecoveryAction | None:
    """The entry for a recovery action as a number or as printed.

    Takes nvidia-smi's words ("Reset", "Drain P2P"), those of an XID 154 line ("GPU Reset Required", "0x2 (Node Reboot
    Required)"), NVML's names ("NVML_GPU_RECOVERY_ACTION_GPU_RESET") and numbers ("Unknown (6)"). Anything else is the entry
    "unknown", which says to treat the GPU as unhealthy. ``None`` only where the text says that there is no value ("N/A").
    """
    entries = recovery_actions()
    unknown = entries[-1]
    if isinstance(printed, int):
        return next((e for e in entries if e.value == printed), unknown)
    text = re.sub(r"^(nvml_)?(gpu_)?recovery_action_", "", folded(printed))
    if text in _NO_VALUE:
        return None
    for entry in entries:
        if text == entry.name or any(text == folded(p) for p in entry.printed):
            return entry
    coded = re.match(r"(?:unknown_)?(0x[0-9a-f]+|\d+)(?:_|$)", text)
    return recovery_action(int(coded[1], 0)) if coded and len(coded[1]) < 12 else unknown


def caused_by(text: str) -> int | None:
    """The root code of "caused by previous Xid N" (seen from driver 570 on), or ``None``."""
    match = re.search(r"caused by previous Xid (\d{1,3})\b", text)
    return int(match[1]) if match else None


#: :func:`kilter.knowledge.nvlink5.decode` under the name that callers of this module look for
decode_nvlink5 = decode

__all__ = ["NvLink5Decode", "Xid", "decode_nvlink5", "lookup", "recovery_action", "sop"]
