"""CPU lists in the kernel's list format."""

from __future__ import annotations

from collections.abc import Iterable


def to_list_format(cpus: Iterable[int]) -> str:
    """``0 1 2 8`` -> ``0-2,8`` (Documentation/core-api/kernel-api.rst, bitmap list format)."""
    parts: list[str] = []
    first = last = None
    for cpu in sorted(set(cpus)):
        if last is not None and cpu == last + 1:
            last = cpu
            continue
        if first is not None:
            parts.append(f"{first}-{last}" if first != last else f"{first}")
        first = last = cpu
    if first is not None:
        parts.append(f"{first}-{last}" if first != last else f"{first}")
    return ",".join(parts)
