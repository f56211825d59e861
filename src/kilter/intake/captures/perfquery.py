"""``perfquery``: counters of ports anywhere in the fabric, default, ``-x`` (64 bit), ``-l`` (port by port) and ``-a`` (all ports summed).

A port is known by its LID and number only, so its node is named ``lid <n>`` until another tool tells the GUID. Port 255 stands for all ports
of a node together (``-a``). Counters carry the names of /sys/class/infiniband where there is one; data counters are in 4-byte words.
Source of the format: linux-rdma/rdma-core, infiniband-diags/perfquery.c and libibmad/dump.c, fields.c.
"""

from __future__ import annotations

import re

from kilter.facts.base import Reason
from kilter.facts.fabric import FabricNode, FabricPort
from kilter.intake.captures.bounded import lines
from kilter.intake.captures.ibstat import guid
from kilter.intake.fragment import Block, Fragment

#: The number that stands for all ports of a node.
ALL_PORTS = 255

#: perfquery's name (and that of versions before 1.5) -> that of sysfs; others keep the tool's name in lower case.
NAMES = {
    "symbolerrorcounter": "symbol_error",
    "symbolerrors": "symbol_error",
    "linkerrorrecoverycounter": "link_error_recovery",
    "linkrecovers": "link_error_recovery",
    "linkdownedcounter": "link_downed",
    "linkdowned": "link_downed",
    "portrcverrors": "port_rcv_errors",
    "rcverrors": "port_rcv_errors",
    "portrcvremotephysicalerrors": "port_rcv_remote_physical_errors",
    "rcvremotephyserrors": "port_rcv_remote_physical_errors",
    "portrcvswitchrelayerrors": "port_rcv_switch_relay_errors",
    "rcvswrelayerrors": "port_rcv_switch_relay_errors",
    "portxmitdiscards": "port_xmit_discards",
    "xmtdiscards": "port_xmit_discards",
    "portxmitconstrainterrors": "port_xmit_constraint_errors",
    "xmtconstrainterrors": "port_xmit_constraint_errors",
    "portrcvconstrainterrors": "port_rcv_constraint_errors",
    "rcvconstrainterrors": "port_rcv_constraint_errors",
    "locallinkintegrityerrors": "local_link_integrity_errors",
    "linkintegrityerrors": "local_link_integrity_errors",
    "excessivebufferoverrunerrors": "excessive_buffer_overrun_errors",
    "excbufoverrunerrors": "excessive_buffer_overrun_errors",
    "vl15dropped": "VL15_dropped",
    "portxmitdata": "port_xmit_data",
    "xmtdata": "port_xmit_data",
    "portrcvdata": "port_rcv_data",
    "rcvdata": "port_rcv_data",
    "portxmitpkts": "port_xmit_packets",
    "xmtpkts": "port_xmit_packets",
    "portrcvpkts": "port_rcv_packets",
    "rcvpkts": "port_rcv_packets",
    "portunicastxmitpkts": "unicast_xmit_packets",
    "portunicastrcvpkts": "unicast_rcv_packets",
    "portmulticastxmitpkts": "multicast_xmit_packets",
    "portmulticastrcvpkts": "multicast_rcv_packets",
    "portxmitwait": "port_xmit_wait",
    "xmtwait": "port_xmit_wait",
}

_TITLE = re.compile(r"#\s{0,8}Port ?(\S[\w ]{0,40}?)?\s{0,8}counters: (\S.{0,200}?) ?port (\d{1,5})\b")
_LID = re.compile(r"\bLid (\d{1,6}|0x[0-9a-fA-F]{1,6})\b", re.IGNORECASE)
_COUNTER = re.compile(r"([A-Za-z]\w*):\s?\.*\s*(\S.*)?$")
_NUMBER = re.compile(r"(?:\d{1,20}|0x[0-9a-fA-F]{1,16})$")
_GUID_ASKED = re.compile(r"\bperfquery\b[^|;&]*?(?:-G|--Guid)[ =]?(?:\d+ )?(0x[0-9a-fA-F]{1,16})\b")
_TROUBLE = re.compile(r"(?:ibwarn|ibpanic|perfquery): ")
_SELECTORS = {"counterselect", "counterselect2"}


class _Reader:
    def __init__(self, fragment: Fragment, asked: str | None) -> None:
        self.fragment = fragment
        self.asked = asked  # GUID of the command line
        self.nodes: dict[str, FabricNode] = {}
        self.ports: dict[tuple[str, int], FabricPort] = {}
        self.wide: set[tuple[str, int, str]] = set()  # (node, port, counter) read as 64 bit
        self.port: FabricPort | None = None
        self.key = ("", 0)
        self.extended = False
        self.seen: set[str] = set()  # counters of the current section
        self.twice = False
        self.empty = 0

    def open(self, where: str, number: int, line: int, *, extended: bool) -> None:
        self.close()
        match = _LID.search(where)
        lid = int(match[1], 0) if match else None
        name = f"lid {lid}" if lid is not None else where[:60] or "lid not shown"
        if self.asked is not None and (not self.nodes or list(self.nodes) == [self.asked]):
            name = self.asked
        node = self.nodes.get(name)
        if node is None:
            node = self.nodes[name] = FabricNode(guid=name, origin={"": self.fragment.ref(line)})
            self.fragment.fabric.append(node)
        self.key = (name, number)
        port = self.ports.get(self.key)
        if port is None:
            port = self.ports[self.key] = FabricPort(number=number, origin={"": self.fragment.ref(line)})
            port.put("lid", lid, self.fragment.ref(line))
            node.ports.append(port)
        self.port, self.extended, self.seen = port, extended, set()

    def close(self) -> None:
        if self.port is not None and not self.seen:
            self.empty += 1
        self.port = None

    def counter(self, name: str, text: str, line: int) -> bool:
        assert self.port is not None
        folded = name.lower()
        if folded in _SELECTORS or folded == "portselect":
            return True
        known = NAMES.get(folded, folded)
        self.seen.add(known)
        if not _NUMBER.match(text):
            if text.lower().strip("[]") in ("n/a", "unknown", "not supported", "unsupported"):
                self.port.lacks(f"counters.{known}", Reason.NOT_SUPPORTED, f"perfquery prints {text[:40]}")
                return True
            return False
        wide = (*self.key, known)
        if wide in self.wide and not self.extended:
            return True  # the 32-bit value of a counter that was read with 64 bits
        value = int(text, 0)
        if known in self.port.counters and self.port.counters[known] != value and (wide in self.wide) == self.extended:
            self.twice = True
        if self.extended:
            self.wide.add(wide)
        self.port.counters[known] = value
        ref = self.fragment.ref(line)
        self.port.origin[f"counters/{known}"] = ref
        self.port.origin.setdefault("counters", ref)
        return True


def _integer(text: str) -> int | None:
    return int(text, 0) if _NUMBER.match(text) and not re.match(r"0\d", text) else None


def parse(block: Block, fragment: Fragment) -> None:
    """``fragment.fabric``: one node a LID, its ports with counters."""
    asked = _GUID_ASKED.search(block.source.command)
    reader = _Reader(fragment, guid(asked[1]) if asked else None)
    for line, raw in lines(block, fragment):
        text = raw.strip()
        if not text:
            continue
        if match := _TITLE.match(text):
            reader.open(match[2].strip(), int(match[3]), line, extended="extended" in (match[1] or ""))
            continue
        if _TROUBLE.match(text):
            if "sim_connect" not in text:
                fragment.note(f"perfquery: {text[:200]}")
            continue
        match = _COUNTER.match(text)
        if match is None or match[2] is None:
            fragment.unparsed(line, raw)
            continue
        name, value = match[1], match[2].lstrip(".").strip()
        if name.lower() == "portselect" and (reader.port is None or reader.seen):
            number = _integer(value)  # the title is missing: a paste without comment lines
            if number is None or number > ALL_PORTS:
                fragment.unparsed(line, raw)
            else:
                reader.open("", number, line, extended=False)
            continue
        if reader.port is None or not _integer_or_word(value) or not reader.counter(name, value, line):
            fragment.unparsed(line, raw)
    reader.close()
    if reader.empty:
        fragment.note(f"perfquery: {reader.empty} port(s) are shown without a counter: cut short?")
    if reader.twice:
        fragment.note(
            "perfquery: a port is shown more than once with different values; the last reading is kept, without its time"
        )


def _integer_or_word(text: str) -> bool:
    return bool(text) and not re.match(r"0\d", text)
