"""What every fact has: a value or the reason why it is missing, and the place it was read from.

An :class:`Entity` is one thing of the machine (a GPU, a PCI function, a port). Its fields are plain values;
``None`` means *missing*, and :attr:`Entity.missing` says why where the reader knows more than "nobody looked".
:attr:`Entity.origin` keeps, per field, the source and the line it came from, so that a report can show evidence.
Units stand in the field's name (``_w``, ``_c``, ``_mhz``, ``_bytes``, ``_mib``, ``_gts`` = GT/s, ``_gbps`` = Gbit/s,
``_gb_s`` = 1e9 bytes/s). Enum-like texts are kept as the tool printed them, so an unknown value survives.
"""

from __future__ import annotations

import enum
from typing import TypeVar

import msgspec

T = TypeVar("T")

#: (index into ``Snapshot.sources``, 1-based line; line 0 = the whole source)
Ref = tuple[int, int]


class Reason(str, enum.Enum):
    """Why a fact has no value."""

    NOT_COLLECTED = "not collected"  # nothing that was given contains it
    NOT_READABLE = "not readable"  # it exists, but permission, a time limit or an error kept it from us
    NOT_SUPPORTED = "not supported"  # the device or tool says that it has no such thing
    ABSENT = "absent"  # the thing itself is not there (no such file, no such device)


class Missing(msgspec.Struct, frozen=True, omit_defaults=True):
    """The reason why one fact is missing, and how to get it."""

    reason: Reason
    detail: str = ""
    hint: str = ""


class Entity(msgspec.Struct, kw_only=True, omit_defaults=True):
    """Base of everything that carries facts. See the module's text for the contract."""

    origin: dict[str, Ref] = {}
    missing: dict[str, Missing] = {}

    def put(self, field: str, value: object, ref: Ref | None = None) -> None:
        """Set ``field`` and remember where it came from; ``None`` leaves what is there."""
        if value is None:
            return
        setattr(self, field, value)
        if ref is not None:
            self.origin[field] = ref

    def lacks(self, field: str, reason: Reason, detail: str = "", hint: str = "") -> None:
        """Say why ``field`` has no value. A value read elsewhere still wins."""
        self.missing[field] = Missing(reason, detail, hint)

    def ref(self, field: str) -> Ref | None:
        """Where ``field`` was read: its own line, else that of the whole entity."""
        return self.origin.get(field) or self.origin.get("")


class Source(msgspec.Struct, kw_only=True, omit_defaults=True):
    """One capture or one live source that facts were read from."""

    name: str  # path of the file, or "live:/sys", "live:NVML"
    tool: str  # "nvidia-smi -q", "lspci", "sysfs", ...
    version: str = ""  # of the tool, where the output says it
    time: float | None = None  # seconds since the epoch at which it was taken, if known
    node: str = ""  # host name, where the output says it
    command: str = ""  # the command line seen at a prompt above the output
