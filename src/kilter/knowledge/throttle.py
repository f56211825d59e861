"""Clocks event (throttle) reasons of NVIDIA GPUs. Table: ``tables/throttle_reasons.yaml``.

Names are kilter's own (``hw_power_brake_slowdown``); :func:`reason` also takes those of nvidia-smi ("HW Power Brake
Slowdown"), of its queries ("clocks_event_reasons.hw_slowdown") and of NVML ("nvmlClocksThrottleReasonSwPowerCap").
"""

from __future__ import annotations

import functools
import re
from typing import Any, Literal

import msgspec

from kilter.knowledge.table import folded, table, typed

_SOPS = {
    "power": "SOP-PWR",
    "thermal": "SOP-THERM",
    "thermal_or_power": "SOP-THERM",
    "hardware": "SOP-THERM",
    "config": "SOP-SW",
}


class _Row(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    bit: int
    mask: str
    name: str
    severity: Literal["info", "warning", "error"]
    meaning: str
    cause: str
    action: str
    aliases: list[str] = []
    note: str = ""
    since: str = ""


class ThrottleReason(msgspec.Struct, frozen=True):
    bit: int
    mask: int
    name: str
    severity: Literal["info", "warning", "error"]
    meaning: str
    cause: str
    action: str
    aliases: list[str] = []
    note: str = ""
    since: str = ""

    @property
    def sop(self) -> str:
        """SOP to follow, ``""`` for reasons that ask for nothing."""
        return _SOPS.get(self.cause, "")


class Reading(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """One rule of how to read reasons over a node or rack."""

    id: str
    when: str
    verdict: str
    why: str = ""
    evidence: str = ""
    action: str = ""

    @property
    def confidence(self) -> Literal["medium", "low"]:
        return "low" if "unconfirmed" in self.action else "medium"


class Threshold(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    source: str
    rule: str


@functools.cache
def reasons() -> tuple[ThrottleReason, ...]:
    """All reasons, by bit."""
    rows = typed(table("throttle_reasons").head("bits"), list[_Row])
    return tuple(
        ThrottleReason(mask=int(r.mask, 16), **{f: getattr(r, f) for f in r.__struct_fields__ if f != "mask"}) for r in rows
    )


@functools.cache
def _by_name() -> dict[str, ThrottleReason]:
    return {name: r for r in reasons() for name in (r.name, *r.aliases)}


def reason(name: str) -> ThrottleReason | None:
    """The reason that ``name`` means in the spelling of any of the tools, or ``None``."""
    text = re.sub(r"^nvmlClocks(Throttle|Event)Reasons?", "", name.strip())
    if text != name.strip():  # NVML's names are in camel case
        text = re.sub(r"(?<=[a-z])(?=[A-Z])", "_", text)
    text = re.sub(r"^clocks_(throttle|event)_reasons?_", "", folded(text))
    return _by_name().get(text)


def names_of_mask(mask: int) -> list[str]:
    """Names of the bits set in ``mask``; a bit that the table does not know becomes ``unknown_0x...``."""
    names = [r.name for r in reasons() if mask & r.mask]
    rest = mask & ~sum(r.mask for r in reasons())
    return names + [f"unknown_{1 << bit:#x}" for bit in range(rest.bit_length()) if rest >> bit & 1]


@functools.cache
def readings() -> tuple[Reading, ...]:
    """How to read reasons over several GPUs: one GPU or all, one node or a rack."""
    return tuple(typed(table("throttle_reasons").head("rules"), list[Reading]))


@functools.cache
def thresholds() -> tuple[Threshold, ...]:
    return tuple(typed(table("throttle_reasons").head("thresholds"), list[Threshold]))


@functools.cache
def policy_names() -> dict[int, str]:
    """NVML performance policy number -> name of the violation counter."""
    counters: Any = table("throttle_reasons").head("perf_policy_counters")
    return typed(counters["policies"], dict[int, str])


def sources() -> list[str]:
    return [str(v) for v in table("throttle_reasons").head("sources").values()]
