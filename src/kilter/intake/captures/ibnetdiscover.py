"""``ibnetdiscover``: switches, adapters and their cables, as a topology file, as a list of ports (``-p``) or of nodes (``-l``).

The list of ports names an adapter by the GUID of its port, the topology file by that of the node; LIDs tell that they are one. GUIDs are spelt
as sysfs spells them. Source of the format: linux-rdma/rdma-core, infiniband-diags/ibnetdiscover.c.
"""

from __future__ import annotations

import re

from kilter.facts.base import Reason
from kilter.facts.fabric import FabricNode, FabricPort
from kilter.intake.captures.bounded import lines
from kilter.intake.captures.ibstat import guid
from kilter.intake.fragment import Block, Fragment

_KINDS = {"switch": "switch", "ca": "ca", "rt": "router", "sw": "switch", "router": "router"}
_HEAD = re.compile(r'(Switch|Ca|Rt)\s+(\d{1,5})\s+"[SHR]-([0-9a-fA-F]{1,16})"(.*)$')
_LINK = re.compile(
    r"\[(\d{1,5})\](?:\[ext \d{1,5}\])?\s{0,16}(?:\(([0-9a-fA-F]{1,16})\))?\s{0,16}"
    r'"([SHR])-([0-9a-fA-F]{1,16})"\[(\d{1,5})\](?:\[ext \d{1,5}\])?(?:\([0-9a-fA-F]{1,16}\))?(.*)$'
)
_PORT = re.compile(
    r"(CA|SW|RT)\s+(\d{1,6})\s+(\d{1,5})\s+0x([0-9a-fA-F]{1,16})\s+(\d{1,2}x|\?{1,4})\s+(\d[\d.]* Gbps|\S+)(?:\s+(\S.*))?$"
)
_PEER = re.compile(r"-\s+(CA|SW|RT)\s+(\d{1,6})\s+(\d{1,5})\s+0x([0-9a-fA-F]{1,16})\s+\(\s*'(.*)'\s*\)$")
_LISTED = re.compile(
    r'(Ca|Switch|Rt|Router)\s*:\s*0x([0-9a-fA-F]{1,16})\s+ports\s+(\d{1,5})\s+devid\s+(\S+)\s+vendid\s+\S+\s+"(.*)"$'
)
_LID = re.compile(r"\blid (\d{1,6})\b")
_RATE = re.compile(r"\b(\d{1,2}x)(\S+(?: Gbps)?)")
_KEY = re.compile(r"(vendid|devid|sysimgguid|switchguid|caguid|rtguid)=(\S+)$")
_IGNORED = re.compile(r"#|Chassis\b|Hostguid\b|(?:Spine|Line)\s+\d")
_TROUBLE = re.compile(r"(?:ibwarn|ibpanic|ibnetdiscover): ")
_INITIATED = re.compile(r"# Initiated from node (\S+)")


class _Reader:
    def __init__(self, fragment: Fragment) -> None:
        self.fragment = fragment
        self.nodes: dict[str, FabricNode] = {}
        self.ports: dict[tuple[str, int], FabricPort] = {}
        self.names: dict[str, str] = {}  # GUID -> name, of far ends
        self.node: FabricNode | None = None
        self.device_id: tuple[str, int] | None = None

    def at(self, digits: str, line: int, kind: str) -> FabricNode:
        full = guid(digits) or digits
        node = self.nodes.get(full)
        if node is None:
            node = self.nodes[full] = FabricNode(guid=full, origin={"": self.fragment.ref(line)})
            self.fragment.fabric.append(node)
        node.put("kind", _KINDS.get(kind.lower(), kind), self.fragment.ref(line))
        return node

    def port(self, node: FabricNode, number: int, line: int) -> FabricPort:
        port = self.ports.get((node.guid, number))
        if port is None:
            port = self.ports[node.guid, number] = FabricPort(number=number, origin={"": self.fragment.ref(line)})
            node.ports.append(port)
        return port

    def head(self, match: re.Match[str], line: int) -> None:
        ref = self.fragment.ref(line)
        node = self.node = self.at(match[3], line, match[1])
        name, rest = _quoted(match[4])
        node.put("name", name, ref)
        if self.device_id is not None:
            node.put("device_id", self.device_id[0], self.fragment.ref(self.device_id[1]))
            self.device_id = None
        if match[1] == "Switch" and (lid := _LID.search(rest)):
            self.port(node, 0, line).put("lid", int(lid[1]), ref)

    def link(self, match: re.Match[str], line: int) -> None:
        assert self.node is not None
        ref = self.fragment.ref(line)
        port = self.port(self.node, int(match[1]), line)
        comment = match[6]
        name, rest = _quoted(comment)
        own = _LID.search(comment.partition('"')[0])  # adapters: "# lid 12 lmc 0 "leaf2" lid 3 4xSDR"
        port.put("lid", int(own[1]) if own else None, ref)
        if match[2] and (full := guid(match[2])) != self.node.guid:
            port.put("guid", full, ref)
        port.put("remote_guid", guid(match[4]), ref)
        port.put("remote_port", int(match[5]), ref)
        port.put("remote_name", name, ref)
        rate = _RATE.search(rest)
        if rate is not None:
            port.put("width", rate[1], ref)
            port.put("speed", rate[2], ref)

    def listed(self, match: re.Match[str], line: int) -> None:
        ref = self.fragment.ref(line)
        node = self.at(match[4], line, match[1])
        port = self.port(node, int(match[3]), line)
        port.put("lid", int(match[2]) or None, ref)
        for field, text in (("width", match[5]), ("speed", match[6])):
            if text.strip("?"):
                port.put(field, text, ref)
            else:
                port.lacks(field, Reason.NOT_SUPPORTED, f"ibnetdiscover prints {text}")
        rest = match[7] or ""
        peer = _PEER.match(rest)
        if peer is not None:
            mine, _, theirs = peer[5].partition("' - '")
            node.put("name", mine or None, ref)
            port.put("remote_guid", guid(peer[4]), ref)
            port.put("remote_port", int(peer[3]), ref)
            port.put("remote_name", theirs or None, ref)
            return
        if len(rest) > 1 and rest[0] == rest[-1] == "'":
            node.put("name", rest[1:-1] or None, ref)
        else:
            self.fragment.note(f"ibnetdiscover: line {line} is cut short")
        port.lacks("remote_guid", Reason.ABSENT, "ibnetdiscover -p shows no peer")


def _quoted(text: str) -> tuple[str | None, str]:
    """(what stands between the first and the last quotation mark, what follows)."""
    start, end = text.find('"'), text.rfind('"')
    if start < 0 or end <= start:
        return None, text
    return text[start + 1 : end] or None, text[end + 1 :]


def _close(reader: _Reader, last: FabricNode | None, initiator: str | None) -> None:
    """A node without links at the very end may be cut off; the only node, from which the search began, is really alone."""
    linked = [node for node in reader.nodes.values() if any(port.remote_guid for port in node.ports)]
    if last is None or any(port.number for port in last.ports):
        return
    if not linked and len(reader.nodes) == 1 and initiator == last.guid:
        return
    last.lacks("ports", Reason.NOT_COLLECTED, "the listing ends here", "ibnetdiscover, whole")
    reader.fragment.note(f"ibnetdiscover: the listing ends at {last.name or last.guid} without a link: cut short?")


def parse(block: Block, fragment: Fragment) -> None:
    """``fragment.fabric``: nodes with kind, name, device id; ports with lid, width, speed and the far end."""
    reader = _Reader(fragment)
    initiator: str | None = None
    for line, raw in lines(block, fragment):
        text = raw.strip()
        if not text:
            continue
        if match := _PORT.match(text):
            reader.listed(match, line)
        elif match := _HEAD.match(text):
            reader.head(match, line)
        elif reader.node is not None and (match := _LINK.match(text)):
            reader.link(match, line)
        elif match := _KEY.match(text):
            if match[1] == "devid":
                reader.device_id = (match[2], line)
        elif match := _LISTED.match(text):
            node = reader.at(match[2], line, match[1])
            node.put("name", match[5] or None, fragment.ref(line))
            node.put("device_id", match[4], fragment.ref(line))
            node.lacks("ports", Reason.NOT_COLLECTED, "a list of nodes has no links", "ibnetdiscover")
        elif match := _INITIATED.match(text):
            initiator = guid(match[1])
        elif _TROUBLE.match(text):
            if "sim_connect" not in text:
                fragment.note(f"ibnetdiscover: {text[:200]}")
        elif not _IGNORED.match(text):
            fragment.unparsed(line, raw)
    _close(reader, reader.node, initiator)
