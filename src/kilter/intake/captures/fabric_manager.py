"""NVIDIA Fabric Manager's log (``/var/log/fabricmanager.log``). Format: real log of an H100 system (leptonai/gpud test data).

Its lines in the journal ("host nv-fabricmanager[123]: text") say the same without a level.
"""

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
_MISMATCH = re.compile(
    r"version.*(?:mismatch|not match|n't match)|mismatch.*version|not compatible with the (?:current )?driver", re.I
)
_JOURNAL = re.compile(r"[A-Z][a-z]{2} +\d{1,2} [\d:]{8} (?P<node>\S{1,253}) nv-fabricmanager(?:\[\d+\])?: (?P<text>.*)$")
_NOTHING = re.compile(r"NV_WARN_NOTHING_TO_DO|[Nn]o NVSwitch")


def parse(block: Block, fragment: Fragment) -> None:
    """NVSwitch errors become ``sxid`` events (the log names the switch by PCI address); other errors are kept by their text."""
    service = Service(name="nvidia-fabricmanager", origin={"": fragment.ref(block.first_line)})
    for number, line in lines(block, fragment):
        match = _LINE.match(line)
        if match is None:
            journal_line(line, number, fragment)  # else details below a message ("Message payload details: ...") carry no level
            continue
        when, level, text = match.groups()
        if version := _VERSION.search(text):
            service.put("version", version.group(1), fragment.ref(number))
        if (event := _event(text, level)) is not None:
            try:
                event.time = (
                    datetime.datetime.strptime(" ".join(when.split()), "%b %d %Y %H:%M:%S")
                    .replace(tzinfo=datetime.timezone.utc)
                    .timestamp()
                )
                event.clock = Clock.LOCAL
            except ValueError:
                event.clock = Clock.NONE
            event.node, event.uncertainty_s = fragment.source.node, 0.5
            event.source, event.line = fragment.source.name, number
            fragment.events.append(event)
    fragment.snapshot.software.services[service.name] = service


def journal_line(line: str, number: int, fragment: Fragment) -> None:
    """The event of a line that the manager wrote to the journal, if it tells of one; others are no business of this reader."""
    match = _JOURNAL.match(line.strip())
    event = _event(match["text"], "") if match is not None else None
    if match is None or event is None:
        return
    event.node, event.clock = match["node"], Clock.NONE
    event.source, event.line = fragment.source.name, number
    fragment.events.append(event)


def _event(text: str, level: str) -> Event | None:
    """What a message tells, without time and place; ``None`` for one that reports no trouble."""
    if sxid := _SXID.search(text):
        fields = {"link": sxid.group("link")} if sxid.group("link") else {}
        return Event(
            kind="sxid",
            text=text.strip(),
            device=pci_address(sxid.group("bdf")) or "",
            code=int(sxid.group("code")),
            severity=sxid.group("severity").capitalize(),
            fields=fields,
        )
    if _NOTHING.search(text):
        kind = "fabric_manager.nothing_to_do"
    elif _MISMATCH.search(text):
        kind = "fabric_manager.version_mismatch"
    elif level in ("ERROR", "CRITICAL", "FATAL"):
        kind = "fabric_manager.error"
    else:
        return None
    return Event(kind=kind, text=text.strip(), severity=level)
