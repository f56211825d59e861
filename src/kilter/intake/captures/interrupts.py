"""``/proc/interrupts``: on which CPUs the interrupts of GPUs and NICs arrive.

Format: Linux kernel/irq/proc.c (show_interrupts): a header of CPUs, then number, counts by CPU, chip, hardware number and the actions' names.
"""

from __future__ import annotations

import re

from kilter.intake.captures.bounded import lines
from kilter.intake.captures.cpu_list import to_list_format
from kilter.intake.fragment import Block, Fragment

_HEADER = re.compile(r"\s+CPU\d+(?:\s+CPU\d+)*\s*$")
_ANY_ROW = re.compile(r"\s*[\w-]{1,12}:\s")
_ROW = re.compile(r"\s*(\d{1,6}):((?:\s+\d{1,20})+)\s+(\S.*)$")
_DRIVER = re.compile(r"\b(mlx[45]|nvidia(?!-drm)|bnxt_en|irdma|efa|ena|ice|i40e|gve)")
_ADDRESS = re.compile(r"@pci:([0-9a-f]{4}:[0-9a-f]{2}:[0-9a-f]{2}\.[0-7])")


def device_cpus(text: str) -> dict[str, str]:
    """``"mlx5 0000:1a:00.0"`` or ``"nvidia"`` -> CPUs (list format) that took more than a hundredth of its interrupts since boot."""
    rows = text.splitlines()
    if not rows or not _HEADER.match(rows[0]):
        return {}
    cpus = [int(word[3:]) for word in rows[0].split()]
    counts: dict[str, dict[int, int]] = {}
    for row in rows[1:]:
        match = _ROW.match(row[:65536])
        driver = _DRIVER.search(match[3]) if match else None
        if match is None or driver is None:
            continue
        numbers = [int(word) for word in match[2].split()]
        if len(numbers) != len(cpus):
            continue
        address = _ADDRESS.search(match[3])
        total = counts.setdefault(f"{driver[1]} {address[1]}" if address else driver[1], {})
        for cpu, number in zip(cpus, numbers, strict=True):
            total[cpu] = total.get(cpu, 0) + number
    found = {}
    for name, by_cpu in counts.items():
        limit = sum(by_cpu.values()) / 100
        taken = [cpu for cpu, number in by_cpu.items() if number > limit]
        if taken:
            found[name] = to_list_format(taken)
    return found


def parse(block: Block, fragment: Fragment) -> None:
    """``snapshot.cpu.device_interrupts``."""
    kept = []
    for line, raw in lines(block, fragment):
        kept.append(raw)
        if not (_HEADER.match(raw) or _ANY_ROW.match(raw)):
            fragment.unparsed(line, raw)
    found = device_cpus("\n".join(kept))
    if found:
        fragment.snapshot.cpu.put("device_interrupts", found, fragment.ref(block.first_line))
