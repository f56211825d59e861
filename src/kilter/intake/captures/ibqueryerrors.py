"""``ibqueryerrors``: the ports of the fabric whose counters are above the thresholds, with any of its options.

A counter that is not shown is at most its threshold. Where the summary tells that there were none and what was left out, that is zero, and
the shown ports get that zero: siblings are compared with it. Ports that are not shown are not listed, so nothing is said of them.
Port 255 stands for "ALL", the sum over a switch. GUIDs are those of ports. Source of the format: linux-rdma/rdma-core,
infiniband-diags/ibqueryerrors.c.
"""

from __future__ import annotations

import re

from kilter.facts.base import Reason
from kilter.facts.fabric import FabricNode, FabricPort
from kilter.intake.captures.bounded import lines
from kilter.intake.captures.iblinkinfo import link
from kilter.intake.captures.ibstat import guid
from kilter.intake.captures.perfquery import ALL_PORTS, NAMES
from kilter.intake.fragment import Block, Fragment

_HEAD = re.compile(r'(Errors|Data Counters) for (?:0x([0-9a-fA-F]{1,16}) ?)?(?:"(.*)")?$')
_PORT = re.compile(r"GUID 0x([0-9a-fA-F]{1,16}) port (\d{1,5}|ALL):(.*)$")
_COUNTER = re.compile(r"\[(\w{1,60}) == (\d{1,20})(?: \([^()\]]{0,40}\))?\]")
_LINK = re.compile(r"Link info: ")
_SUMMARY = re.compile(r"## (?:Summary:|\d|Thresholds:|Suppressed:)|## {2,}\d")
_FAILURES = re.compile(r"## +(\d{1,9}) PMA query failures")
_TROUBLE = re.compile(r"(?:ibwarn|ibpanic|ibqueryerrors): |(?:Failed to reset|Query SA failed)")
#: counters that the tool looks at, and shows where they are above the threshold
_CHECKED = {
    "symbol_error",
    "link_error_recovery",
    "link_downed",
    "port_rcv_errors",
    "port_rcv_remote_physical_errors",
    "port_rcv_switch_relay_errors",
    "port_xmit_discards",
    "port_xmit_constraint_errors",
    "port_rcv_constraint_errors",
    "local_link_integrity_errors",
    "excessive_buffer_overrun_errors",
    "VL15_dropped",
    "port_xmit_wait",
}


class _Reader:
    def __init__(self, fragment: Fragment) -> None:
        self.fragment = fragment
        self.nodes: dict[str, FabricNode] = {}
        self.ports: dict[tuple[str, int], FabricPort] = {}
        self.checked: list[FabricPort] = []
        self.head: tuple[str | None, str | None, int] | None = None  # GUID, name, line
        self.errors = True  # else the section shows data counters only
        self.node: FabricNode | None = None
        self.port: FabricPort | None = None
        self.thresholds: set[str] | None = None
        self.suppressed: set[str] | None = None

    def section(self, match: re.Match[str], line: int) -> None:
        self.node = self.port = None
        self.errors = match[1] == "Errors"
        self.head = (guid(match[2]) if match[2] else None, match[3], line)

    def open(self, digits: str, number: int, line: int) -> FabricPort:
        own = guid(digits) or digits
        ref = self.fragment.ref(line)
        if self.node is None:
            head, name, at = self.head or (None, None, line)
            node = self.nodes.get(head or own)
            if node is None:
                node = self.nodes[head or own] = FabricNode(guid=head or own, origin={"": self.fragment.ref(at)})
                node.lacks("ports", Reason.NOT_COLLECTED, "ibqueryerrors shows ports with errors only", "ibnetdiscover")
                self.fragment.fabric.append(node)
            node.put("name", name, self.fragment.ref(at))
            self.node = node if self.head is not None else None
        else:
            node = self.node
        if number in (0, ALL_PORTS):
            node.put("kind", "switch", ref)
        port = self.ports.get((node.guid, number))
        if port is None:
            port = self.ports[node.guid, number] = FabricPort(number=number, origin={"": ref})
            node.ports.append(port)
        if own != node.guid:
            port.put("guid", own, ref)
        return port

    def counters(self, text: str, line: int) -> int:
        """Take the counters of a port's line; how many there were."""
        assert self.port is not None
        ref, found = self.fragment.ref(line), 0
        for name, value in _COUNTER.findall(text):
            known = NAMES.get(name.lower(), name.lower())
            self.port.counters[known] = int(value)
            self.port.origin[f"counters/{known}"] = ref
            found += 1
        self.port.origin.setdefault("counters", ref)
        if found and self.errors:
            self.checked.append(self.port)
        return found

    def link(self, text: str, line: int) -> None:
        found = link(text)
        if found is None or self.port is None or found.number != self.port.number:
            self.fragment.unparsed(line, text)
            return
        ref = self.fragment.ref(line)
        if self.node is not None and self.node.kind != "switch":
            self.port.put("lid", found.lid or None, ref)
        found.put(self.port, ref)

    def names(self, text: str) -> set[str]:
        return {NAMES.get(word.lower(), word.lower()) for word in re.findall(r"[A-Za-z]\w{2,60}", text)}

    def close(self) -> None:
        """Counters that were looked at and not shown are zero, where the summary says that nothing was left out."""
        if self.thresholds is None or self.suppressed is None:
            return
        for port in self.checked:
            for name in _CHECKED - self.thresholds - self.suppressed:
                port.counters.setdefault(name, 0)


def parse(block: Block, fragment: Fragment) -> None:
    """``fragment.fabric``: nodes with name and GUID; the shown ports with counters and, with ``-r``, their link."""
    reader = _Reader(fragment)
    for line, raw in lines(block, fragment, limit=16384):
        text = raw.strip()
        if not text:
            continue
        if match := _HEAD.match(text):
            reader.section(match, line)
        elif match := _PORT.match(text):
            reader.port = reader.open(match[1], ALL_PORTS if match[2] == "ALL" else int(match[2]), line)
            if not reader.counters(match[3], line):
                fragment.unparsed(line, raw)
        elif match := _LINK.match(text):
            reader.link(text[match.end() :].strip(), line)
        elif match := _FAILURES.match(text):
            fragment.note(f"ibqueryerrors: {match[1]} queries failed; nothing is known of those ports")
        elif text.startswith("## Thresholds:"):
            reader.thresholds = reader.names(text[14:])
        elif text.startswith("## Suppressed:"):
            reader.suppressed = reader.names(text[14:])
        elif _TROUBLE.match(text):
            fragment.note(f"ibqueryerrors: {text[:200]}")
        elif not _SUMMARY.match(text):
            fragment.unparsed(line, raw)
    reader.close()
