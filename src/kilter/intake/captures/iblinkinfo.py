"""``iblinkinfo``: every port of the fabric with its width, speed, states and far end, by node or (``-l``) one line a port.

GUIDs are those of ports; a switch has one for all its ports. Without ``-l`` the far end is known by LID only. Speeds, printed per lane, are
turned into the words of ``ibnetdiscover``. "Could be" names what both ends support and do not use. The same line stands below a port in
``ibqueryerrors -r``. Source of the format: linux-rdma/rdma-core, infiniband-diags/iblinkinfo.c, ibdiag_common.c and libibmad/dump.c.
"""

from __future__ import annotations

import re

from kilter.facts.base import Reason, Ref
from kilter.facts.fabric import FabricNode, FabricPort
from kilter.intake.captures.bounded import lines
from kilter.intake.captures.ibstat import guid, physical_word, state_word
from kilter.intake.fragment import Block, Fragment

#: what is printed of one lane -> the word
SPEEDS = {
    "2.5 Gbps": "SDR",
    "5.0 Gbps": "DDR",
    "10.0 Gbps": "QDR",
    "10.0 Gbps (FDR10)": "FDR10",
    "14.0625 Gbps": "FDR",
    "25.78125 Gbps": "EDR",
    "53.125 Gbps": "HDR",
    "106.25 Gbps": "NDR",
    "212.5 Gbps": "XDR",
}

_HEAD = re.compile(r"(CA|Switch|Router): (?:0x([0-9a-fA-F]{1,16}) )?(.*):$")
#: what stands before "==(": GUID, name (only with -l), LID, port
_OWN = re.compile(r'(?:0x([0-9a-fA-F]{1,16}) )?(?:"(.*)" )? *(\d{1,6}) +(\d{1,5})\[ *\d{0,5} *\] $')
_FAR = re.compile(r'(?:0x([0-9a-fA-F]{1,16}) +)?(\d{1,6}) +(\d{1,5})\[ *\d{0,5} *\] "')
_COULD_WIDTH = re.compile(r"Could be (\d{1,2})X")
_COULD_SPEED = re.compile(r"Could be (\d[\d.]{0,9} Gbps|FDR10)")
_TROUBLE = re.compile(r"(?:ibwarn|ibpanic|iblinkinfo): ")


class Link:
    """One line about a port, taken apart. ``far_*`` are None when nothing hangs on it."""

    def __init__(self, own: re.Match[str], inside: str, rest: str) -> None:
        self.guid = guid(own[1]) if own[1] else None
        self.name = (own[2] or "").strip() or None
        self.lid, self.number = int(own[3]), int(own[4])
        before, _, physical = inside.rpartition("/")
        words = before.split()
        self.physical = physical_word(physical.strip()) or None
        self.state = state_word(words.pop()) if words else None
        self.width = words.pop(0)[:-1] + "x" if words and re.fullmatch(r"\d{1,2}X", words[0]) else None
        text = " ".join(words)
        self.speed = SPEEDS.get(text, text) or None
        self.far_guid: str | None = None
        self.far_lid: int | None = None
        self.far_number: int | None = None
        self.far_name: str | None = None
        self.width_possible: str | None = None
        self.speed_possible: str | None = None
        far = _FAR.match(rest)
        if far is None:
            return
        self.far_guid = guid(far[1]) if far[1] else None
        self.far_lid, self.far_number = int(far[2]), int(far[3])
        name, quote, message = rest[far.end() :].rpartition('" (')
        self.far_name = (name if quote else rest[far.end() :].rstrip('"')).strip() or None
        if width := _COULD_WIDTH.search(message):
            self.width_possible = width[1] + "x"
        if speed := _COULD_SPEED.search(message):
            self.speed_possible = SPEEDS.get(speed[1], speed[1])

    @property
    def down(self) -> bool:
        return self.state == "DOWN"

    def put(self, port: FabricPort, ref: Ref) -> None:
        """Set what the line tells of its own port."""
        port.put("state", self.state, ref)
        port.put("physical_state", self.physical, ref)
        for field in ("width", "speed"):
            port.put(field, getattr(self, field), ref)
        port.put("width_possible", self.width_possible, ref)
        port.put("speed_possible", self.speed_possible, ref)
        if self.far_lid is None:
            port.lacks("remote_guid", Reason.ABSENT, "the tool shows no far end")
            return
        port.put("remote_guid", self.far_guid or f"lid {self.far_lid}", ref)
        port.put("remote_port", self.far_number, ref)
        port.put("remote_name", self.far_name, ref)


def link(text: str) -> Link | None:
    """The line of a port, or None. Lines of ``--diff`` (with < or > in front) are none."""
    left, arrow, right = text.partition("==>")
    own, bracket, inside = left.partition("==(")
    match = _OWN.match(own.lstrip()) if arrow and bracket else None
    if match is None:
        return None
    inside = inside.split(" (HOQ:")[0].rstrip()
    return Link(match, inside.removesuffix(")"), right.strip())


class _Reader:
    def __init__(self, fragment: Fragment) -> None:
        self.fragment = fragment
        self.nodes: dict[str, FabricNode] = {}
        self.ports: dict[tuple[str, int], FabricPort] = {}
        self.head: tuple[str, str, int] | None = None  # kind, name, line of a node whose GUID comes with its first port
        self.node: FabricNode | None = None

    def at(self, name: str, line: int) -> FabricNode:
        node = self.nodes.get(name)
        if node is None:
            node = self.nodes[name] = FabricNode(guid=name, origin={"": self.fragment.ref(line)})
            self.fragment.fabric.append(node)
        return node

    def port(self, node: FabricNode, number: int, line: int) -> FabricPort:
        port = self.ports.get((node.guid, number))
        if port is None:
            port = self.ports[node.guid, number] = FabricPort(number=number, origin={"": self.fragment.ref(line)})
            node.ports.append(port)
        return port

    def section(self, match: re.Match[str], line: int) -> None:
        self.node, kind = None, {"CA": "ca", "Switch": "switch", "Router": "router"}[match[1]]
        self.head = (kind, match[3].strip(), line)
        full = guid(match[2]) if match[2] else None
        if full is not None:
            self.node = self.described(self.at(full, line))

    def described(self, node: FabricNode) -> FabricNode:
        if self.head is not None:
            kind, name, line = self.head
            node.put("kind", kind, self.fragment.ref(line))
            node.put("name", name or None, self.fragment.ref(line))
        return node

    def take(self, found: Link, line: int) -> None:
        ref = self.fragment.ref(line)
        if found.name is not None:  # -l: each line names its node
            self.head = self.node = None
        node = self.node
        if node is None or (self.head is None and found.name is None):
            node = self.at(found.guid or f"lid {found.lid}", line)
            if self.head is not None:
                self.node = self.described(node)
            node.put("name", found.name, ref)
        port = self.port(node, found.number, line)
        port.put("guid", found.guid, ref)
        if node.kind == "switch":
            self.port(node, 0, line).put("lid", found.lid or None, ref)
        else:
            port.put("lid", found.lid or None, ref)
        found.put(port, ref)


def _far_guids(reader: _Reader) -> None:
    """Replace the LID of a far end by its node's GUID, where the same listing tells it. LIDs are unique in one listing."""
    by_lid = {port.lid: node.guid for node in reader.nodes.values() for port in node.ports if port.lid}
    for node in reader.nodes.values():
        for port in node.ports:
            if port.remote_guid is not None and port.remote_guid.startswith("lid "):
                port.remote_guid = by_lid.get(int(port.remote_guid[4:]), port.remote_guid)


def _kinds(reader: _Reader) -> None:
    """``-l`` tells no kind. A switch has one GUID for all its ports; an adapter's GUID is that of one port."""
    unknown = [node for node in reader.nodes.values() if node.kind is None and not node.guid.startswith("lid ")]
    switches = [node for node in unknown if sum(1 for port in node.ports if port.number) > 2]
    for node in switches:
        node.put("kind", "switch", node.ref(""))
        lid = next((port.lid for port in node.ports if port.lid), None)
        reader.port(node, 0, (node.ref("") or (0, 0))[1]).put("lid", lid, node.ref(""))
        for port in node.ports:
            if port.number:
                port.lid = None
    for node in unknown if switches else []:
        if node.kind is None and any(port.remote_guid for port in node.ports):
            node.put("kind", "ca", node.ref(""))


def parse(block: Block, fragment: Fragment) -> None:
    """``fragment.fabric``: nodes with kind and name; ports with lid, states, width, speed, what they could be, and the far end."""
    reader = _Reader(fragment)
    for line, raw in lines(block, fragment):
        text = raw.strip()
        if not text:
            continue
        if found := link(text):
            reader.take(found, line)
        elif match := _HEAD.match(text):
            reader.section(match, line)
        elif _TROUBLE.match(text):
            fragment.note(f"iblinkinfo: {text[:200]}")
        else:
            fragment.unparsed(line, raw)
    _far_guids(reader)
    _kinds(reader)
