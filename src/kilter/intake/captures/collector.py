"""What kilter's own sh collector writes beside the tools' outputs: its manifest and the states of services."""

from __future__ import annotations

import re

from kilter.facts.base import Reason
from kilter.facts.host import Service
from kilter.intake.captures.bounded import lines
from kilter.intake.fragment import Block, Fragment

_SERVICE = re.compile(r"([\w@.-]+): (\S+)\s*$")
_VERSION = re.compile(r"Fabric Manager version is ?: ?([\d.]+)")
_ROW = re.compile(r"(\d{1,9}|missing|skipped|hung|timeout)\t(\d{1,9}(?:\.\d{1,9})?)\t(\S+)\t(.+)$")


def parse(block: Block, fragment: Fragment) -> None:
    """Manifest: when and where it was taken, and which commands gave no answer. Services: ``unit: state``."""
    if block.lines[0].startswith("kilter collector"):
        _manifest(block, fragment)
        return
    services = fragment.snapshot.software.services
    for number, line in lines(block, fragment):
        if match := _SERVICE.match(line):
            name, state = match.groups()
            service = services.setdefault(name, Service(name=name))
            if state == "unknown":
                service.lacks("state", Reason.ABSENT, "systemctl does not know this unit")
            else:
                service.put("state", state, fragment.ref(number))
        elif match := _VERSION.search(line):
            name = "nvidia-fabricmanager"
            services.setdefault(name, Service(name=name)).put("version", match.group(1), fragment.ref(number))
        else:
            fragment.unparsed(number, line)


def _manifest(block: Block, fragment: Fragment) -> None:
    silent: list[str] = []
    for number, line in lines(block, fragment):
        key, _, value = line.partition(": ")
        if key == "epoch" and value.isdecimal():
            fragment.source.time = float(value)
        elif key == "uptime":
            try:
                fragment.snapshot.host.put("uptime_s", float(value), fragment.ref(number))
            except ValueError:
                fragment.unparsed(number, line)
        elif key == "uid" and value.strip() != "0":
            fragment.note(f"collected as uid {value.strip()}, not as root: PCI capabilities and the kernel log may be missing")
        elif (match := _ROW.match(line)) and match.group(1) in ("hung", "timeout", "124", "137"):
            silent.append(match.group(4))
        elif ": " not in line and "\t" not in line and not line.startswith(("kilter collector", "#")):
            fragment.unparsed(number, line)
    if silent:
        fragment.note(f"no answer within the time limit: {', '.join(silent)}")
