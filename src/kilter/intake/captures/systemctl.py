"""``systemctl status``, ``list-units`` and ``--failed``: the states of services.

Of a list, the services that GPU nodes need and all that failed are kept; a list shows loaded units only, so one that is not in it is not known.
Source of the format: systemd, src/systemctl/systemctl-show.c and systemctl-list-units.c.
"""

from __future__ import annotations

import re

from kilter.facts.host import Service
from kilter.intake.captures.bounded import lines
from kilter.intake.fragment import Block, Fragment

#: Services that matter to GPUs, their network and their schedulers.
_WANTED = re.compile(
    r"nvidia|dcgm|nv-|fabricmanager|imex|persistenced|opensm|openibd|rdma|mlx|mst|slurm|munge|kubelet|containerd|docker|crio|cri-o|chrony|ntp"
    r"|irqbalance|tuned|lldp|iommu|nvsm|gpud|rasdaemon|mcelog|lustre|beegfs|nfs|autofs|multipathd"
)
_STATUS = re.compile(r"(?:[●○\u00d7↻*•x] )?(?P<unit>[\w@:.\\-]{1,200})\.service(?: - .*)?$")
_LOADED = re.compile(r"Loaded: (?P<word>[\w-]+)")
_ACTIVE = re.compile(r"Active: (?P<state>[a-z-]+)")
_ROW = re.compile(
    r"(?:[●○\u00d7↻*•] )?(?P<unit>[\w@:.\\-]{1,200})\.(?P<kind>service|socket|target|mount|timer|path|slice|scope|device|swap|automount)"
    r" +(?P<load>loaded|not-found|masked|error|bad-setting|stub|merged) +(?P<active>[a-z-]+) +(?P<sub>[a-z-]+)(?: +\S.*)?$"
)
_ABSENT = re.compile(r"Unit (?P<unit>[\w@:.\\-]{1,200})\.service could not be found\.?$")
_REST = re.compile(
    r"(?:UNIT +LOAD|LOAD +=|ACTIVE +=|SUB +=|\d+ (?:loaded )?units? listed|To show all|Process:|Main PID:|Tasks:|Memory:|CPU:|CGroup:|Docs:|Status:|"
    r"Drop-In:|IO:|IP:|TriggeredBy:|Triggers:|Condition:|Until:|Invocation:|[├└│]|\d+ \S|Hint:|Warning:|Legend:|Transient:|FD Store:)"
)


def _put(fragment: Fragment, name: str, state: str, line: int) -> None:
    services = fragment.snapshot.software.services
    service = services.setdefault(name, Service(name=name))
    service.put("state", state, fragment.ref(line))


def parse(block: Block, fragment: Fragment) -> None:
    """``software.services``: unit without ".service" -> active, inactive, failed, activating, not-found."""
    unit, loaded = "", ""
    for line, raw in lines(block, fragment):
        text = raw.strip()
        if not text:
            continue
        if match := _ROW.match(text):
            state = "not-found" if match["load"] == "not-found" else match["active"]
            if match["kind"] == "service" and (_WANTED.search(match["unit"]) or state == "failed"):
                _put(fragment, match["unit"], state, line)
        elif match := _ABSENT.match(text):
            _put(fragment, match["unit"], "not-found", line)
        elif match := _LOADED.match(text):
            loaded = match["word"]
        elif unit and (match := _ACTIVE.match(text)):
            _put(fragment, unit, "not-found" if loaded == "not-found" else match["state"], line)
            unit = loaded = ""
        elif match := _STATUS.match(text):
            unit, loaded = match["unit"], ""
        elif not _REST.match(text):
            fragment.unparsed(line, raw)
