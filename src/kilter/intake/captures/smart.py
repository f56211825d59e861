"""Health of disks: ``smartctl -a``/``-H`` and ``nvme smart-log``. Each drive gives results of kind "health", "media" and "spare".

Formats: smartmontools ataprint.cpp and nvmeprint.cpp; linux-nvme/nvme-cli nvme-print-stdout.c (smart log).
"""

from __future__ import annotations

import re

from kilter.facts.measure import DiagnosticTest
from kilter.intake.captures.bounded import lines
from kilter.intake.fragment import Block, Fragment

_DEVICE = re.compile(r"(?:/dev/|device: ?)(nvme\d+(?:n\d+)?|sd[a-z]{1,2})\b")
_HEALTH = re.compile(r"SMART (?:overall-health self-assessment test result|Health Status): *(\S+)")
_WARNING = re.compile(r"[Cc]ritical[ _][Ww]arning\s*: *(0x[0-9a-fA-F]{1,4}|\d{1,5})")
_MEDIA = re.compile(r"(?:Media and Data Integrity Errors|media_errors)\s*: *([\d,]{1,20})")
_SPARE = re.compile(r"(?:Available Spare|available_spare)\s*: *(\d{1,3})%")
_LIMIT = re.compile(r"(?:Available Spare Threshold|available_spare_threshold)\s*: *(\d{1,3})%")
_ATA = re.compile(
    r"\s*(?:5|187|197|198) (Reallocated_Sector_Ct|Reported_Uncorrect|Current_Pending_Sector|Offline_Uncorrectable)\s.*\s(\d{1,10})(?: \(.*\))?$"
)


class _Drive:
    """The results of one drive."""

    def __init__(self, fragment: Fragment, device: str) -> None:
        self.fragment, self.device = fragment, device
        self.spare: int | None = None

    def add(self, name: str, ok: bool, message: str, line: int) -> None:
        test = DiagnosticTest(tool="SMART", name=name, result="pass" if ok else "fail", device=self.device, message=message)
        test.origin[""] = self.fragment.ref(line)
        snapshot = self.fragment.snapshot
        snapshot.diagnostics = [*(snapshot.diagnostics or []), test]

    def read(self, line: int, text: str) -> None:
        if match := _HEALTH.search(text):
            self.add("health", match[1].rstrip("!") in ("PASSED", "OK"), text.strip(), line)
        elif match := _WARNING.search(text):
            self.add("health", int(match[1], 0) == 0, text.strip(), line)
        elif match := _MEDIA.search(text):
            self.add("media", match[1].replace(",", "").strip("0") == "", text.strip(), line)
        elif match := _SPARE.search(text):
            self.spare = int(match[1])
        elif (match := _LIMIT.search(text)) and self.spare is not None:
            self.add("spare", self.spare >= int(match[1]), f"available spare {self.spare} %, threshold {match[1]} %", line)
        elif match := _ATA.match(text):
            self.add("media", int(match[2]) == 0, f"{match[1]} {match[2]}", line)


def parse(block: Block, fragment: Fragment) -> None:
    """Fill ``snapshot.diagnostics``."""
    match = _DEVICE.search(block.source.command)
    drive = _Drive(fragment, match[1] if match else "")
    for number, raw in lines(block, fragment):
        if not drive.device and (match := _DEVICE.search(raw)):
            drive.device = match[1]
        drive.read(number, raw)
