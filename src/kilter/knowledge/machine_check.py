"""What the status word of an x86 machine check says.

Layout of IA32_MCi_STATUS and the compound error codes: Intel 64 and IA-32 Architectures Software Developer's Manual, volume 3B, machine-check
architecture; the flags and the compound codes of TLB, cache and bus are the same in AMD64 Architecture Programmer's Manual, volume 2, chapter 9.
"""

from __future__ import annotations

from typing import NamedTuple

_UNCORRECTED, _CONTEXT_CORRUPT, _OVERFLOW = 1 << 61, 1 << 57, 1 << 62
#: (bits that are fixed, their value, what is meant); bit 12 only says that corrected errors are filtered.
_CODES = (
    (0xEF80, 0x0080, "memory controller"),
    (0xEF80, 0x0280, "memory controller"),
    (0xEFF0, 0x0010, "TLB"),
    (0xEF00, 0x0100, "CPU cache"),
    (0xEFFC, 0x000C, "CPU cache"),
    (0xE800, 0x0800, "bus or interconnect"),
    (0xFFFF, 0x0005, "CPU internal parity"),
    (0xFFFF, 0x0400, "CPU internal timer"),
    (0xFC00, 0x0400, "CPU internal"),
)


class Status(NamedTuple):
    is_uncorrected: bool
    is_context_corrupt: bool  # the processor's state may be wrong: the system has to stop
    has_overflow: bool  # more errors came than were kept
    unit: str  # "" = a code that has no general meaning


def decode(status: int) -> Status:
    """``status``: the 64-bit word that the kernel prints behind ``Bank N:``."""
    code = status & 0xFFFF
    unit = next((name for mask, value, name in _CODES if code & mask == value), "")
    return Status(bool(status & _UNCORRECTED), bool(status & _CONTEXT_CORRUPT), bool(status & _OVERFLOW), unit)


def machine_check_fields(status: int) -> dict[str, str]:
    """What an event keeps of a status word: ``severity`` (corrected, uncorrected), ``status`` (16 hexadecimal digits), ``unit``, ``context``."""
    known = decode(status)
    fields = {"severity": "uncorrected" if known.is_uncorrected else "corrected", "status": f"{status:016x}"}
    if known.unit:
        fields["unit"] = known.unit
    if known.is_context_corrupt:
        fields["context"] = "corrupt"
    return fields
