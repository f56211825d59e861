"""Status words of machine checks against the manuals' bit layout."""

from __future__ import annotations

import pytest

from kilter.knowledge.machine_check import decode, machine_check_fields


@pytest.mark.parametrize(
    ("status", "uncorrected", "unit"),
    [
        (0x9C00000000010090, False, "memory controller"),  # 0000 0000 1001 0000: read on channel 0
        (0xBD80000000100134, True, "CPU cache"),  # 0000 0001 0011 0100: data read, level 0
        (0xBE00000000800400, True, "CPU internal timer"),
        (0xB200000000000005, True, "CPU internal parity"),
        (0x9C00000000000E0B, False, "bus or interconnect"),
        (0x8000000000001010, False, "TLB"),  # bit 12: corrected errors are filtered
        (0x8000000000000001, False, ""),
    ],
)
def test_status(status: int, uncorrected: bool, unit: str) -> None:
    found = decode(status)
    assert (found.is_uncorrected, found.unit) == (uncorrected, unit)


def test_fields_are_what_events_keep() -> None:
    assert machine_check_fields(0xBE00000000800400) == {
        "severity": "uncorrected",
        "status": "be00000000800400",
        "unit": "CPU internal timer",
        "context": "corrupt",
    }
