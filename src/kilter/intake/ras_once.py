"""A hardware error that both the kernel log and rasdaemon tell of is one error.

rasdaemon listens to the kernel's trace events and counts since its database was made; the kernel log begins at the boot or where it was cut.
So of what both tell, the kernel's lines stay (they have the better time), and of rasdaemon's count what is more than theirs.
"""

from __future__ import annotations

import re

from kilter.facts.event import Event

#: ``Event.fields["reader"]`` of what rasdaemon told
READER = "rasdaemon"
_KINDS = ("edac", "aer", "machine_check")


def _errors(event: Event) -> int:
    """How many errors an event stands for; a line of EDAC may count several."""
    count = event.fields.get("count", "1") if event.kind == "edac" else "1"
    return event.count * (int(count) if count.isdigit() and len(count) < 10 else 1)


def _class(event: Event) -> str:
    word = (event.fields.get("severity") or event.severity).lower()
    if event.kind == "machine_check":
        return ""
    return "corrected" if word.startswith(("corr", "ce")) else "uncorrected"


_LABEL = re.compile(r" on (?P<label>\S[^()]{0,120}?) \(")


def _thing(event: Event) -> str:
    """What an event is of: PCI device, DIMM label, "" where it is not named."""
    if event.kind == "aer":
        return event.device
    if event.kind == "edac":
        label = _LABEL.search(event.text)
        return event.fields.get("label", "") or (label["label"] if label else "")
    return ""


def _matching(event: Event, left: dict[str, int]) -> list[str]:
    """The things of the kernel's events that rasdaemon's event can be of; names that drivers make up (#) can be any DIMM's."""
    thing = _thing(event)
    if thing in left:
        return [thing]
    if not thing:
        return list(left)
    return [name for name in left if not name or (event.kind == "edac" and "#" in name)]


def once(events: list[Event]) -> list[Event]:
    """``events`` without what is told twice. Counts of rasdaemon's events that stay are what exceeds the kernel's."""
    told: dict[tuple[str, str, str], dict[str, int]] = {}
    for event in events:
        if event.kind in _KINDS and event.fields.get("reader") != READER:
            left = told.setdefault((event.node, event.kind, _class(event)), {})
            left[_thing(event)] = left.get(_thing(event), 0) + _errors(event)
    if not told:
        return events
    kept: list[Event] = []
    for event in events:
        ours = told.get((event.node, event.kind, _class(event)), {}) if event.fields.get("reader") == READER else {}
        rest = _errors(event)
        for name in _matching(event, ours) if ours else []:
            taken = min(rest, ours[name])
            ours[name] -= taken
            rest -= taken
        if not rest:
            continue
        if rest < _errors(event):
            event.count = rest if event.kind != "edac" else 1
            if event.kind == "edac":
                event.fields["count"] = str(rest)
        kept.append(event)
    return kept
