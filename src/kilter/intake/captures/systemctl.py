"""``systemctl status`` and ``systemctl is-active``: what became of a daemon, and the last lines of its journal.

Format: systemd src/systemctl/systemctl-show.c (print_status_info). The mark in front is a dot, a cross or a circle, by the state.
"""

from __future__ import annotations

import re

from kilter.facts.base import Reason
from kilter.facts.host import Service
from kilter.intake.captures import fabric_manager
from kilter.intake.captures.bounded import lines
from kilter.intake.fragment import Block, Fragment

_UNIT = re.compile(r"[\u25cf\u25cb\u00d7\u2717\u21bb*] ?([\w@.:\\-]{1,200})\.service(?: - .*)?$")
_MISSING = re.compile(r"Unit ([\w@.:\\-]{1,200})\.service could not be found\.$")
_ACTIVE = re.compile(r"Active: (?P<state>[a-z-]+)(?: \((?P<why>[^)]{0,80})\))?(?: since (?P<since>[^;]{1,60}))?")
_LOADED = re.compile(r"Loaded: (?P<loaded>[a-z-]+)")
_FIELD = re.compile(r"(?:[A-Z][A-Za-z ]{1,20}: |[├└│] ?|Warning: |\d+ \S)")
_JOURNAL = re.compile(r"[A-Z][a-z]{2} +\d{1,2} [\d:]{8} \S+ [^\s:\[\]]{1,80}(?:\[\d+\])?: ")
_WORD = re.compile(r"(active|inactive|failed|activating|deactivating|reloading|unknown|not-found)$")
_ASKED = re.compile(r"systemctl +(?:--\S+ +)*(?:is-active|is-failed) +(.+)$")


def parse(block: Block, fragment: Fragment) -> None:
    """States go to ``software.services``; lines of Fabric Manager's journal become its events."""
    asked = _ASKED.search(block.source.command)
    if asked:
        _answers(block, fragment, asked[1].split())
        return
    service: Service | None = None
    for number, raw in lines(block, fragment):
        text = raw.strip()
        if not text:
            continue
        if (match := _UNIT.match(text)) or (match := _MISSING.match(text)):
            service = fragment.snapshot.software.services.setdefault(match[1], Service(name=match[1]))
            service.origin.setdefault("", fragment.ref(number))
            if text.startswith("Unit "):
                service.put("state", "not-found", fragment.ref(number))
        elif service is not None and (match := _ACTIVE.match(text)):
            service.put("state", match["state"], fragment.ref(number))
            if match["since"]:
                service.put("since", match["since"].strip(), fragment.ref(number))
        elif service is not None and (match := _LOADED.match(text)):
            if match["loaded"] == "not-found":
                service.put("state", "not-found", fragment.ref(number))
        elif _JOURNAL.match(text):
            fabric_manager.journal_line(text, number, fragment)
        elif service is None or not _FIELD.match(text):
            fragment.unparsed(number, raw)


def _answers(block: Block, fragment: Fragment, units: list[str]) -> None:
    """``is-active`` prints one word a unit, in the order in which they were named."""
    names = [unit.removesuffix(".service") for unit in units if not unit.startswith("-")]
    for number, raw in lines(block, fragment):
        match = _WORD.match(raw.strip())
        if match is None or not names:
            fragment.unparsed(number, raw)
            continue
        service = fragment.snapshot.software.services.setdefault(names[0], Service(name=names[0]))
        del names[0]
        if match[1] == "unknown":
            service.lacks("state", Reason.ABSENT, "systemctl does not know this unit")
        else:
            service.put("state", match[1], fragment.ref(number))
