"""A hardware error that both the kernel log and rasdaemon tell of is one error.

rasdaemon listens to the kernel's trace events and counts since its database was made; the kernel log begins at the boot or where it was cut.
So of what both tell, the kernel's lines stay (they have the better time), and of rasdaemon's count what is more than theirs.
"""

from __future__ import annotations

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


def _same(ras: Event, kernel: list[Event]) -> list[Event]:
    """The kernel's events that are of the same thing: PCI device, DIMM label; where one side does not name it, the node."""
    if ras.kind == "aer":
        return [event for event in kernel if not ras.device or not event.device or event.device == ras.device]
    label = ras.fields.get("label", "")
    if ras.kind == "edac" and label:
        named = [event for event in kernel if label in event.text]
        return named or [event for event in kernel if " on " not in event.text or "#" in event.text]
    return kernel


def once(events: list[Event]) -> list[Event]:
    """``events`` without what is told twice. Counts of rasdaemon's events that stay are what exceeds the kernel's."""
    told: dict[tuple[str, str, str], list[Event]] = {}
    for event in events:
        if event.kind in _KINDS and event.fields.get("reader") != READER:
            told.setdefault((event.node, event.kind, _class(event)), []).append(event)
    if not told:
        return events
    left = {id(event): _errors(event) for group in told.values() for event in group}
    kept: list[Event] = []
    for event in events:
        kernel = told.get((event.node, event.kind, _class(event)), []) if event.fields.get("reader") == READER else []
        rest = _errors(event)
        for known in _same(event, kernel) if kernel else []:
            taken = min(rest, left[id(known)])
            left[id(known)] -= taken
            rest -= taken
        if not rest:
            continue
        if kernel and rest < _errors(event):
            event.count = rest if event.kind != "edac" else 1
            if event.kind == "edac":
                event.fields["count"] = str(rest)
        kept.append(event)
    return kept
