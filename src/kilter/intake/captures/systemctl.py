"""``systemctl status``, ``is-active``, ``list-units`` and ``--failed``: what became of daemons, and the last lines of their journals.

Of a list, the services that GPU nodes need and all that failed are kept; a list shows loaded units only, so one that is not in it is not known.
Format: systemd src/systemctl/systemctl-show.c (print_status_info) and systemctl-list-units.c. The mark in front is a dot, a cross or a circle.
"""

from __future__ import annotations

import re

from kilter.facts.base import Reason
from kilter.facts.host import Service
from kilter.intake.captures import fabric_manager
from kilter.intake.captures.bounded import lines
from kilter.intake.fragment import Block, Fragment

#: Services that matter to GPUs, their network and their schedulers.
_WANTED = re.compile(
    r"nvidia|dcgm|nv-|fabricmanager|imex|persistenced|opensm|openibd|rdma|mlx|mst|slurm|munge|kubelet|containerd|docker|crio|cri-o|chrony|ntp"
    r"|irqbalance|tuned|lldp|iommu|nvsm|gpud|rasdaemon|mcelog|lustre|beegfs|nfs|autofs|multipathd"
)
_MARK = r"(?:[\u25cf\u25cb\u00d7\u2717\u21bb*\u2022x] ?)?"
_UNIT = re.compile(_MARK + r"([\w@.:\\-]{1,200})\.service(?: - .*)?$")
_MISSING = re.compile(r"Unit ([\w@.:\\-]{1,200})\.service could not be found\.?$")
_ACTIVE = re.compile(r"Active: (?P<state>[a-z-]+)(?: \((?P<why>[^)]{0,80})\))?(?: since (?P<since>[^;]{1,60}))?")
_LOADED = re.compile(r"Loaded: (?P<loaded>[a-z-]+)")
_ROW = re.compile(
    _MARK + r"(?P<unit>[\w@:.\\-]{1,200})\.(?P<kind>service|socket|target|mount|timer|path|slice|scope|device|swap|automount)"
    r" +(?P<load>loaded|not-found|masked|error|bad-setting|stub|merged) +(?P<active>[a-z-]+) +(?P<sub>[a-z-]+)(?: +\S.*)?$"
)
_FIELD = re.compile(
    r"(?:[A-Z][A-Za-z ]{1,20}: |[├└│] ?|Warning: |\d+ \S|UNIT +LOAD|LOAD +=|ACTIVE +=|SUB +=|To show all|Drop-In:|[A-Z][A-Za-z ]{1,20}:$)"
)
_JOURNAL = re.compile(r"[A-Z][a-z]{2} +\d{1,2} [\d:]{8} \S+ [^\s:\[\]]{1,80}(?:\[\d+\])?: ")
_WORD = re.compile(r"(active|inactive|failed|activating|deactivating|reloading|unknown|not-found)$")
_ASKED = re.compile(r"systemctl +(?:--\S+ +)*(?:is-active|is-failed) +(.+)$")


def _service(fragment: Fragment, name: str, line: int) -> Service:
    service = fragment.snapshot.software.services.setdefault(name, Service(name=name))
    service.origin.setdefault("", fragment.ref(line))
    return service


def parse(block: Block, fragment: Fragment) -> None:
    """``software.services``: unit without ".service" -> active, inactive, failed, activating, not-found. Lines of Fabric Manager's journal
    become its events."""
    asked = _ASKED.search(block.source.command)
    if asked:
        _answers(block, fragment, asked[1].split())
        return
    service: Service | None = None
    for number, raw in lines(block, fragment):
        text = raw.strip()
        ref = fragment.ref(number)
        if not text:
            continue
        if match := _ROW.match(text):
            state = "not-found" if match["load"] == "not-found" else match["active"]
            if match["kind"] == "service" and (_WANTED.search(match["unit"]) or state == "failed"):
                _service(fragment, match["unit"], number).put("state", state, ref)
        elif match := _MISSING.match(text):
            _service(fragment, match[1], number).put("state", "not-found", ref)
        elif match := _UNIT.match(text):
            service = _service(fragment, match[1], number)
        elif service is not None and (match := _ACTIVE.match(text)):
            if service.state != "not-found":
                service.put("state", match["state"], ref)
            if match["since"]:
                service.put("since", match["since"].strip(), ref)
        elif service is not None and (match := _LOADED.match(text)):
            if match["loaded"] == "not-found":
                service.put("state", "not-found", ref)
        elif _JOURNAL.match(text):
            fabric_manager.journal_line(text, number, fragment)
        elif not _FIELD.match(text):
            fragment.unparsed(number, raw)


def _answers(block: Block, fragment: Fragment, units: list[str]) -> None:
    """``is-active`` prints one word a unit, in the order in which they were named."""
    names = [unit.removesuffix(".service") for unit in units if not unit.startswith("-")]
    for number, raw in lines(block, fragment):
        match = _WORD.match(raw.strip())
        if match is None or not names:
            fragment.unparsed(number, raw)
            continue
        service = _service(fragment, names.pop(0), number)
        if match[1] == "unknown":
            service.lacks("state", Reason.ABSENT, "systemctl does not know this unit")
        else:
            service.put("state", match[1], fragment.ref(number))
