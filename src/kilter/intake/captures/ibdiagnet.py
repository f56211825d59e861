"""``ibdiagnet``: its log, the sections of ``ibdiagnet2.db_csv`` that tell of nodes, links, ports and counters, and ``ibdiagnet2.net_dump_ext``.

Read from db_csv: NODES, LINKS, PORTS, PM_INFO, FANS_SPEED, TEMP_SENSING; other sections are passed over. Columns are found by name.
Totals (PM_INFO) become counters; what the log says of a run ("increased during the run") becomes growth, which is not a total.
Sources of the formats: the column lists read by public parsers of these files (rapimt's ib loader, guilbaultm/infiniband-exporter's relatives,
NCAR's ib_diagnostics for the log); words of widths and speeds: ibutils2, ibdm/IBFabric.h. No whole output of the tool was at hand.
"""

from __future__ import annotations

import re

from kilter.facts.base import Reason, Ref
from kilter.facts.fabric import FabricNode, FabricPort
from kilter.intake.captures.bounded import csv_row, lines
from kilter.intake.captures.ibstat import PHYSICAL_STATES, STATES, guid
from kilter.intake.captures.perfquery import NAMES
from kilter.intake.fragment import Block, Fragment

_SECTION = re.compile(r"(START|END)_([A-Z0-9_]{2,60})$")
_WIDTHS = {"1": "1x", "2": "4x", "4": "8x", "8": "12x", "16": "2x"}
_SPEEDS = {
    1: "SDR",
    2: "DDR",
    4: "QDR",
    1 << 8: "FDR",
    2 << 8: "EDR",
    4 << 8: "HDR",
    8 << 8: "NDR",
    1 << 16: "FDR10",
    1 << 24: "XDR",
}
#: the log's numbers of a lane's speed
_LANE = {
    "2.5": "SDR",
    "5": "DDR",
    "10": "QDR",
    "14": "FDR",
    "25": "EDR",
    "50": "HDR",
    "100": "NDR",
    "200": "XDR",
    "FDR10": "FDR10",
}
_KINDS = {"1": "ca", "2": "switch", "3": "router"}
#: names of ibdiagnet's log -> those of sysfs, where they differ
_LOG_NAMES = {
    "link_down_counter": "link_downed",
    "link_error_recovery_counter": "link_error_recovery",
    "symbol_error_counter": "symbol_error",
    "port_xmit_discard": "port_xmit_discards",
    "excessive_buffer_errors": "excessive_buffer_overrun_errors",
    "local_link_integrity": "local_link_integrity_errors",
}
_PORT_NAME = r"(?:S([0-9a-f]{16})/)?(?:N([0-9a-f]{16})|([^\s/<>\"]{1,120}(?:/U\d{1,3})?))/P(\d{1,3})(?:/[\d/]{1,12})?(?:\([^()\s]{0,120}\))?"
_GROWTH = re.compile(rf'-E- {_PORT_NAME} - "(\w{{1,60}})" increased during the run \(difference value=(\d{{1,20}})')
_SLOW = re.compile(
    rf"-[EW]- Link: {_PORT_NAME}<-->{_PORT_NAME} - Unexpected actual link (speed|width) (\S{{1,12}})"
    r"(?: .{0,200}final (?:speed|width) should be (\S{1,12}?)\))?"
)
_MESSAGE = re.compile(r"-[EW]- ")
_IGNORED = re.compile(
    r"-I- |-{3,}|#|Running |Load |Running version|Timestamp|Plugin|Discovering|Retrieving|Summary|[A-Z][\w /-]{2,60}$"
)


def _number(text: str) -> int | None:
    text = text.strip().strip('"')
    return int(text, 0) if re.fullmatch(r"\d{1,20}|0x[0-9a-fA-F]{1,16}", text) and not re.match(r"0\d", text) else None


class _Reader:
    def __init__(self, fragment: Fragment) -> None:
        self.fragment = fragment
        self.nodes: dict[str, FabricNode] = {}
        self.ports: dict[tuple[str, int], FabricPort] = {}
        self.section = ""
        self.columns: list[str] = []
        self.unplaced = 0

    def at(self, name: str, line: int) -> FabricNode:
        node = self.nodes.get(name)
        if node is None:
            node = self.nodes[name] = FabricNode(guid=name, origin={"": self.fragment.ref(line)})
            node.lacks("ports", Reason.NOT_COLLECTED, "no section of links", "ibnetdiscover")
            self.fragment.fabric.append(node)
        return node

    def port(self, name: str, number: int, line: int) -> FabricPort:
        node = self.at(name, line)
        port = self.ports.get((name, number))
        if port is None:
            port = self.ports[name, number] = FabricPort(number=number, origin={"": self.fragment.ref(line)})
            node.ports.append(port)
        return port

    def row(self, text: str, line: int) -> None:
        values = csv_row(text)
        if not self.columns:
            self.columns = [name.strip().lower() for name in values]
            return
        if len(values) != len(self.columns):
            self.fragment.unparsed(line, text)
            return
        cells = dict(zip(self.columns, values, strict=True))
        if not _SECTIONS[self.section](self, cells, line):
            self.fragment.unparsed(line, text)

    def node_row(self, cells: dict[str, str], line: int) -> bool:
        full = guid(cells.get("nodeguid", ""))
        if full is None:
            return False
        node, ref = self.at(full, line), self.fragment.ref(line)
        node.put("name", cells.get("nodedesc", "").strip('"') or None, ref)
        node.put("kind", _KINDS.get(cells.get("nodetype", "")), ref)
        node.put("device_id", cells.get("deviceid") or None, ref)
        return True

    def link_row(self, cells: dict[str, str], line: int) -> bool:
        ends = [(guid(cells.get(f"nodeguid{n}", "")), _number(cells.get(f"portnum{n}", ""))) for n in (1, 2)]
        for (mine, number), (other, theirs) in (ends, ends[::-1]):
            if mine is None or number is None or other is None or theirs is None:
                return False
            port, ref = self.port(mine, number, line), self.fragment.ref(line)
            port.put("remote_guid", other, ref)
            port.put("remote_port", theirs, ref)
            self.nodes[mine].missing.pop("ports", None)
        return True

    def port_row(self, cells: dict[str, str], line: int) -> bool:
        full, number = guid(cells.get("nodeguid", "")), _number(cells.get("portnum", ""))
        if full is None or number is None:
            return False
        port, ref = self.port(full, number, line), self.fragment.ref(line)
        own = guid(cells.get("portguid", ""))
        if own is not None and own != full:
            port.put("guid", own, ref)
        port.put("lid", _number(cells.get("lid", "")) or None, ref)
        port.put("state", STATES.get(_number(cells.get("portstate", "")) or 0), ref)
        port.put("physical_state", PHYSICAL_STATES.get(_number(cells.get("portphystate", "")) or 0), ref)
        if port.state != "DOWN":  # width and speed of a port that is down mean nothing
            port.put("width", _WIDTHS.get(cells.get("linkwidthactv", "")), ref)
            port.put("speed", _SPEEDS.get(_number(cells.get("linkspeedactv", "")) or 0), ref)
        return True

    def counter_row(self, cells: dict[str, str], line: int) -> bool:
        full, number = guid(cells.get("nodeguid", "")), _number(cells.get("portnumber", cells.get("portnum", "")))
        if full is None or number is None:
            return False
        port, ref = self.port(full, number, line), self.fragment.ref(line)
        wide: set[str] = set()
        for column, text in cells.items():
            plain = column.removesuffix("extended").removesuffix("ext")
            known, value = NAMES.get(plain), _number(text)
            if known is None or value is None or (known in wide and plain == column):
                continue
            if plain != column:
                wide.add(known)
            port.counters[known] = value
            port.origin[f"counters/{known}"] = ref
        return True

    def fan_row(self, cells: dict[str, str], line: int) -> bool:
        full, index = guid(cells.get("nodeguid", "")), cells.get("fanindex", cells.get("sensorindex", ""))
        speed = cells.get("fanspeed", "")
        if full is None or not index:
            return False
        if _number(speed) is not None:
            node = self.at(full, line)
            node.fans[f"fan#{index}"] = speed
            node.origin[f"fans/fan#{index}"] = self.fragment.ref(line)
        return True

    def temperature_row(self, cells: dict[str, str], line: int) -> bool:
        full = guid(cells.get("nodeguid", ""))
        value = next((_number(text) for name, text in cells.items() if name.startswith("temp") and name != "tempsensing"), None)
        if full is None:
            return False
        if value is not None and 0 < value < 200:
            self.at(full, line).put("temperature_c", value, self.fragment.ref(line))
        return True

    def named(self, match: tuple[str | None, ...], line: int) -> FabricPort:
        """The port of a name of the log: ``S<system>/N<node>/P20`` or ``<name>/U1/P1``."""
        _, node, name, number = match
        full = guid(node) if node else None
        if full is None:
            return self.port(name or "", int(number or 0), line)
        return self.port(full, int(number or 0), line)

    def growth(self, match: re.Match[str], line: int) -> None:
        port, ref = self.named(match.groups()[:4], line), self.fragment.ref(line)
        name = _LOG_NAMES.get(match[5], match[5])
        port.growth[name] = int(match[6])
        port.origin[f"growth/{name}"] = ref

    def slow(self, match: re.Match[str], line: int) -> None:
        ref = self.fragment.ref(line)
        groups = match.groups()
        ends = [self.named(groups[:4], line), self.named(groups[4:8], line)]
        field, actual, possible = groups[8], groups[9], groups[10]
        words = _LANE if field == "speed" else {}
        keys = [groups[1], groups[5]]
        names = [groups[2], groups[6]]
        for at, port in enumerate(ends):
            port.put("state", "ACTIVE", ref)
            port.put(field or "", words.get(actual or "", actual), ref)
            if possible:
                port.put(f"{field}_possible", words.get(possible, possible), ref)
            far = keys[1 - at]
            port.put("remote_guid", (guid(far) if far else None) or names[1 - at], ref)
            port.put("remote_port", ends[1 - at].number, ref)


_SECTIONS = {
    "NODES": _Reader.node_row,
    "LINKS": _Reader.link_row,
    "PORTS": _Reader.port_row,
    "PM_INFO": _Reader.counter_row,
    "FANS_SPEED": _Reader.fan_row,
    "TEMP_SENSING": _Reader.temperature_row,
}

_BER = {"raw ber": "raw", "effective ber": "effective", "symbol ber": "symbol"}


def _dump_row(reader: _Reader, columns: list[str], text: str, line: int) -> bool:
    """One port of net_dump_ext; the description, last, may hold colons."""
    cells = dict(zip(columns, (cell.strip() for cell in text.split(" : ", len(columns) - 1)), strict=False))
    full, number = guid(cells.get("guid", "").split(" ")[0]), _number(cells.get("#ib", ""))
    if full is None or number is None:
        return False
    ref: Ref = reader.fragment.ref(line)
    node, port = reader.at(full, line), reader.port(full, number, line)
    node.put("kind", {"SW": "switch", "CA": "ca", "RT": "router"}.get(cells.get("ty", "")), ref)
    node.put("name", cells.get("node desc", "").strip('" ') or None, ref)
    lid = _number(cells.get("lid", "").split(" ")[0])
    if node.kind == "switch":
        reader.port(full, 0, line).put("lid", lid, ref)
    else:
        port.put("lid", lid, ref)
    for column, name in _BER.items():
        try:
            value = float(cells.get(column, ""))
        except ValueError:
            continue  # N/A
        if 0 <= value <= 1:
            port.ber[name] = value
            port.origin[f"ber/{name}"] = ref
    return True


def parse(block: Block, fragment: Fragment) -> None:
    """``fragment.fabric``: nodes, ports with states, width, speed, counters, growth of counters, bit error rates and far ends."""
    reader = _Reader(fragment)
    dump: list[str] = []
    for line, raw in lines(block, fragment, limit=16384):
        text = raw.strip()
        if not text:
            continue
        if match := _SECTION.match(text):
            reader.section, reader.columns = (match[2], []) if match[1] == "START" else ("", [])
        elif reader.section:
            if reader.section in _SECTIONS:
                reader.row(text, line)
        elif text.startswith("Ty ") and "BER" in text:
            dump = [name.strip().lower() for name in text.split(":")]
        elif dump and re.match(r"(?:SW|CA|RT) +:", text):
            if not _dump_row(reader, dump, text, line):
                fragment.unparsed(line, raw)
        elif match := _GROWTH.match(text):
            reader.growth(match, line)
        elif match := _SLOW.match(text):
            reader.slow(match, line)
        elif _MESSAGE.match(text):
            fragment.note(f"ibdiagnet: {text[:200]}")
        elif not _IGNORED.match(text):
            fragment.unparsed(line, raw)
    if reader.section:
        fragment.note(f"ibdiagnet: section {reader.section} has no end: cut short?")
