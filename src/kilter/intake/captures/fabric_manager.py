"""NVIDIA Fabric Manager's log (``/var/log/fabricmanager.log``). Format: real log of an H100 system (leptonai/gpud test data)."""

from __future__ import annotations

import datetime
import re

from kilter.facts.event import Clock, Event
from kilter.facts.host import Service
from kilter.facts.pci import pci_address
from kilter.intake.captures.bounded import lines
from kilter.intake.fragment import Block, Fragment

_LINE = re.compile(r"\[([A-Z][a-z]{2} +\d+ \d{4} \d\d:\d\d:\d\d)\] \[([A-Z]+) *\] \[tid \d+\] (.*)$")
_SXID = re.compile(
    r"detected NVSwitch (?P<severity>(?:non-)?fatal) error (?P<code>\d+) on .*?NVSwitch pci bus id (?P<bdf>[0-9a-fA-F:.]+)(?:.*?port (?P<link>\d+))?"
)
_VERSION = re.compile(r"[Ff]abric [Mm]anager version (?:is:? *)?(\d+\.\d+(?:\.\d+)?)")
_MISMATCH = re.compile(r"version.*(?:mismatch|not match)|mismatch.*version|not compatible with the (?:current )?driver", re.I)
_NOTHING = re.compile(r"NV_WARN_NOTHING_TO_DO|[Nn]o NVSwitch")


def parse(block: Block, fragment: Fragment) -> None:
    """NVSwitch errors become ``sxid`` events (the log names the switch by PCI address); other errors are kept by their text."""
    service = Service(name="nvidia-fabricmanager", origin={"": fragment.ref(block.first_line)})
    for number, line in lines(block, fragment):
        match = _LINE.match(line)
        if match is None:
            continue  # details below a message ("Message payload details: ...") carry no level
        when, level, text = match.groups()
        if version := _VERSION.search(text):
            service.put("version", version.group(1), fragment.ref(number))
        kind = ""
        code = None
        device = ""
        severity = level
        fields: dict[str, str] = {}
        if sxid := _SXID.search(text):
            kind, code, severity = "sxid", int(sxid.group("code")), sxid.group("severity").capitalize()
            device = pci_address(sxid.group("bdf")) or ""
            if sxid.group("link"):
                fields["link"] = sxid.group("link")
        elif _NOTHING.search(text):
            kind = "fabric_manager.nothing_to_do"
        elif _MISMATCH.search(text):
            kind = "fabric_manager.version_mismatch"
        elif level in ("ERROR", "CRITICAL", "FATAL"):
            kind = "fabric_manager.error"
        if not kind:
            continue
        try:
            time = (
                datetime.datetime.strptime(" ".join(when.split()), "%b %d %Y %H:%M:%S")
                .replace(tzinfo=datetime.timezone.utc)
                .timestamp()
            )
        except ValueError:
            time = None
        fragment.events.append(
            Event(
                kind=kind,
                text=text.strip(),
                node=fragment.source.node,
                device=device,
                time=time,
                clock=Clock.LOCAL if time is not None else Clock.NONE,
                uncertainty_s=0.5,
                code=code,
                severity=severity,
                source=fragment.source.name,
                line=number,
                fields=fields,
            )
        )
    fragment.snapshot.software.services[service.name] = service
