"""Events: things that happened at a time, read from logs."""

from __future__ import annotations

import enum
from collections.abc import Iterable

import msgspec


class Clock(str, enum.Enum):
    """What an event's ``time`` counts from."""

    UTC = "utc"  # seconds since the epoch, zone known
    LOCAL = "local"  # wall clock of the node, zone not printed: read as if it were UTC
    BOOT = "boot"  # seconds since the node's boot
    NONE = "none"  # the line carries no time


class Event(msgspec.Struct, kw_only=True, omit_defaults=True):
    """One event, or ``count`` merged repeats of it.

    ``uncertainty_s`` is half the width of the interval that the time stands for (a stamp without fraction: 0.5 s; without a year,
    the year is the file's or the reader's, and ``fields["year"]`` is ``"assumed"``).
    """

    kind: str  # "xid", "sxid", "aer", "gpu.off_bus", "oom", ... see intake/captures/kernel_log.py and nccl.py
    text: str
    node: str = ""
    device: str = ""  # PCI address, HCA, network interface or rank
    time: float | None = None
    clock: Clock = Clock.NONE
    uncertainty_s: float = 0.0
    code: int | None = None
    severity: str = ""  # the word in the line, not kilter's judgement
    source: str = ""
    line: int = 0
    fields: dict[str, str] = {}
    count: int = 1
    last_time: float | None = None

    @property
    def where(self) -> str:
        """``file:line`` of the first occurrence."""
        return f"{self.source}:{self.line}" if self.line else self.source


def by_device(events: Iterable[Event]) -> dict[str, list[Event]]:
    """Device -> its events, in their order."""
    groups: dict[str, list[Event]] = {}
    for event in events:
        groups.setdefault(event.device, []).append(event)
    return groups


def count_of(events: Iterable[Event]) -> int:
    """How often it happened: an event may stand for many lines."""
    return sum(event.count for event in events)
