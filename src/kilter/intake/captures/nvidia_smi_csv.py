"""``nvidia-smi --query-gpu=... --format=csv`` with its header line (``nounits`` or not)."""

from __future__ import annotations

import re

from kilter.intake.captures.bounded import csv_row
from kilter.intake.captures.nvidia_smi import Values, boolean, fill, integer, timestamp
from kilter.intake.fragment import Block, Fragment

_UNIT = re.compile(r" \[[^\]]*\]$")
#: Names that only nvidia-smi's GPU query has: a CSV without any of them is another tool's.
KNOWN = {"uuid", "gpu_uuid", "pci.bus_id", "gpu_bus_id", "driver_version", "pstate", "temperature.gpu", "utilization.gpu", "power.draw",
         "memory.total", "memory.used", "ecc.mode.current", "name", "gpu_name", "index", "persistence_mode", "clocks.sm",
         "remapped_rows.pending", "pcie.link.gen.current", "fabric.state", "mig.mode.current", "serial"}  # fmt: skip


#: No row of nvidia-smi comes near; the csv module refuses fields of 128 KiB.
MAX_LINE = 64 << 10


def parse(block: Block, fragment: Fragment) -> None:
    """One accelerator a row; several rows of one GPU (``-l``) become several readings when merged."""
    if "without header" in block.source.tool:
        fragment.note(
            "rows of nvidia-smi --query-gpu without a header: which column is which is not known; run it again without noheader"
        )
        for number, line in block.numbered():
            fragment.unparsed(number, line)
        return
    header = [_UNIT.sub("", name.strip()) for name in block.lines[0].split(",")]
    if not KNOWN.intersection(header):
        for number, line in block.numbered():
            fragment.unparsed(number, line)
        fragment.source.tool = ""
        return
    for number, line in block.numbered()[1:]:
        if not line.strip():
            continue
        if len(line) > MAX_LINE:
            fragment.unparsed(number, line)
            continue
        row = csv_row(line)
        if len(row) != len(header):
            if row[: len(header)] != header and len(row) > 1 and number == block.first_line + len(block.lines) - 1:
                fragment.note(f"line {number}: {len(row)} of {len(header)} columns; the row is cut short and was left out")
            fragment.unparsed(number, line)
            continue
        values: Values = {name: (cell, number) for name, cell in zip(header, row, strict=True)}
        accelerator = fragment.accelerator(number)
        time = timestamp(values["timestamp"][0]) if "timestamp" in values else None
        fragment.source.time = fragment.source.time or time
        fill(accelerator, values, "csv", fragment, time)
        for name in ("driver_version", "kmd_version"):
            if name in values and re.match(r"\d", values[name][0]):
                fragment.snapshot.software.put("driver_version", values[name][0], fragment.ref(number))
        if "count" in values:
            fragment.snapshot.put("accelerators_attached", integer(values["count"][0]), fragment.ref(number))
        if "gsp.mode.current" in values and boolean(values["gsp.mode.current"][0]) is False:
            accelerator.put("gsp_firmware", "disabled", fragment.ref(number))
