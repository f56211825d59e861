"""A node's topology for the terminal: the tree, then the distances."""

from __future__ import annotations

import re
import unicodedata

import msgspec

from kilter.report.topology_model import KIND_NAMES, Distance, Node, NumaGroup, Segment, Topology, segment_order, segments
from kilter.report.topology_pci import MEANING, UNKNOWN, bonded_links, rank, short_address

_RESET = "\x1b[0m"
_STYLE = {
    "gpu": "\x1b[32m",
    "xpu": "\x1b[32m",
    "accelerator": "\x1b[32m",
    "hca": "\x1b[36m",
    "nic": "\x1b[36m",
    "nvswitch": "\x1b[35m",
    "nvme": "\x1b[34m",
    "bridge": "",
    "head": "\x1b[1m",
    "dim": "\x1b[2m",
    "warn": "\x1b[33m",
}
#: Control, format (direction overrides, zero width) and private characters: a name must not move the cursor or turn the line.
_UNPRINTABLE = re.compile(
    "[^\x20-\x7e\xa0-\u200a\u2010-\u2027\u2030-\u205e\u2070-\ud7ff\uf900-\ufefe\uff00-\uffef\U00010000-\U0001ffff]"
)
_ASCII = str.maketrans({"├": "|", "└": "`", "─": "-", "│": "|", "·": "-", "…": "~", "→": ">", "▸": ">"})
_MIN_WIDTH = 40


class _Row(msgspec.Struct):
    prefix: str
    label: str
    kind: str
    cells: list[str]  # address, title, link
    marks: list[tuple[str, str]]  # text, style
    whole: str = ""  # a line that is not cut into columns


def render_text(topology: Topology, *, width: int = 100, color: bool = False, unicode: bool = True) -> str:
    """Tree and distances in lines of at most ``width`` (at least 40) columns, without a final newline.

    ``unicode=False`` draws with ASCII and shows other characters as "?". Control characters of device names never get through.
    """
    page = _Page(max(width, _MIN_WIDTH), color, unicode)
    page.head(topology)
    if topology.is_empty:
        page.line("no GPU, NIC, NVSwitch or NVMe is known", "dim")
    for group in topology.numa:
        page.group(group, topology.with_domain)
    page.flush()
    page.nvlinks(topology)
    page.matrices(topology)
    page.remarks(topology)
    return "\n".join(page.lines).lstrip("\n")


class _Page:
    def __init__(self, width: int, color: bool, unicode: bool) -> None:
        self.width = width
        self.color = color
        self.unicode = unicode
        self.lines: list[str] = []
        self.rows: list[_Row] = []
        self.words: set[str] = set()
        self.marked = False

    # -- characters ----------------------------------------------------------------------------------------------------

    def clean(self, text: str) -> str:
        text = _UNPRINTABLE.sub("?", text)
        return text if self.unicode else text.translate(_ASCII).encode("ascii", "replace").decode()

    def cut(self, text: str, width: int) -> str:
        if cells(text) <= width:
            return text
        mark = "…" if self.unicode else "~"
        out, used = [], 0
        for char in text:
            used += cells(char)
            if used >= max(width, 1):
                break
            out.append(char)
        return "".join(out) + mark if width > 0 else ""

    def paint(self, text: str, style: str) -> str:
        code = _STYLE.get(style, "")
        return f"{code}{text}{_RESET}" if self.color and code and text.strip() else text

    def line(self, text: str = "", style: str = "") -> None:
        self.lines.append(self.paint(self.cut(self.clean(text), self.width).rstrip(), style))

    def wrapped(self, text: str, *, indent: str = "", hang: str = "  ", style: str = "") -> None:
        """``text`` broken at blanks."""
        current = indent
        for word in self.clean(text).split(" "):
            candidate = f"{current} {word}" if current.strip() else current + word
            if cells(candidate) > self.width and current.strip():
                self.line(current, style)
                candidate = indent + hang + word
            current = candidate
        self.line(current, style)

    # -- tree ----------------------------------------------------------------------------------------------------------

    def head(self, topology: Topology) -> None:
        parts = [part for part in (topology.node, topology.product, topology.cpu) if part]
        if parts:
            self.line(" · ".join(parts), "head")

    def group(self, group: NumaGroup, with_domain: bool) -> None:
        if not group.buses and not group.hidden:
            return
        self.flush_later("")
        name = f"NUMA node {group.node}" if group.node is not None else "NUMA node not known"
        parts = [name, f"CPUs {group.cpus}" if group.cpus else ""]
        if group.memory_bytes:
            parts.append(f"{group.memory_bytes / 2**30:.0f} GiB")
        if group.hidden:
            parts.append(f"{group.hidden} other PCI functions")
        self.flush_later(" · ".join(part for part in parts if part))
        items: list[tuple[str, list[Segment]]] = []
        singles: list[Segment] = []
        for bus in group.buses:
            below = segments(bus.nodes)
            if bus.name and len(bus.nodes) == 1:
                if below[0].bridges:
                    items.append(("", below))
                else:
                    singles += below  # each on a root bus of its own, as virtual machines have it
            elif bus.name:
                items.append((f"root bus {bus.name if with_domain else bus.name.rpartition(':')[2]}", below))
            elif any(node.address for node in bus.nodes) and len(below) > 1 and len(group.buses) > 1:
                items.append(("root bus not known", below))
            else:
                items.append(("", below))
        items.append(("", sorted(singles, key=segment_order)))
        flat: list[tuple[str, list[Segment]] | Segment] = []
        for title, below in items:
            if title:
                flat.append((title, below))
            else:
                flat += below
        for at, item in enumerate(flat):
            last = at == len(flat) - 1
            if isinstance(item, Segment):
                self.segment(item, "", last, with_domain)
            else:
                self.rows.append(_Row("└─ " if last else "├─ ", item[0], "bridge", ["", "", ""], []))
                for number, one in enumerate(item[1]):
                    self.segment(one, "   " if last else "│  ", number == len(item[1]) - 1, with_domain)

    def flush_later(self, text: str) -> None:
        self.rows.append(_Row("", "", "", [], [], text or " "))

    def segment(self, segment: Segment, lead: str, last: bool, with_domain: bool) -> None:
        device = segment.device
        prefix = lead + ("└─ " if last else "├─ ")
        marks: list[tuple[str, str]] = [
            (f"ACS at {short_address(bridge.address, with_domain=with_domain)}", "warn") for bridge in segment.acs[:2]
        ]
        if segment.gap:
            marks.append(("bridges between not listed", "dim"))
        shown = device or segment.bridges[-1]
        address = short_address(shown.address, with_domain=with_domain) if shown.address else ""
        if device is None:
            label = "switch" if segment.is_switch else (shown.port or "bridge")
            above = [short_address(bridge.address, with_domain=with_domain) for bridge in segment.bridges[:-1]]
            if above:
                port = segment.bridges[0].port or "bridge"
                marks.append((f"{port} {above[0]}" if len(above) == 1 else f"behind {' > '.join(above)}", "dim"))
            row = _Row(prefix, label, "bridge", [address, shown.title, str(segment.link)], marks)
        else:
            marks += [(text, "") for text in [*device.details, *([f"slot {device.slot}"] if device.slot else [])]]
            if not device.slot and (slot := next((bridge.slot for bridge in reversed(segment.bridges) if bridge.slot), "")):
                marks.append((f"slot {slot}", "dim"))
            if device.names:
                marks.append((" ".join(device.names[:3]), "dim"))
            if segment.bridges:
                lowest = segment.bridges[-1]
                short = short_address(lowest.address, with_domain=with_domain)
                marks.append((f"{'root port' if lowest.port == 'root port' else 'port'} {short}", "dim"))
            row = _Row(prefix, _label(device), device.kind, [address, device.title, str(segment.link)], marks)
        self.rows.append(row)
        for number, child in enumerate(segment.children):
            self.segment(child, lead + ("   " if last else "│  "), number == len(segment.children) - 1, with_domain)

    def flush(self) -> None:
        """Print the rows with columns that fit: names give way first, then the marks."""
        tree = [row for row in self.rows if not row.whole]
        for row in tree:
            row.label = self.clean(row.label)
            row.cells = [self.clean(cell) for cell in row.cells]
            row.marks = [(self.clean(text), style) for text, style in row.marks]
        first = min(max((cells(row.prefix + row.label) for row in tree), default=0), self.width // 2)
        wide = [max((cells(row.cells[at]) for row in tree), default=0) for at in range(3)]
        wide[0] = min(wide[0], self.width // 3)
        marks_wanted = max((cells(_joined(row.marks)) for row in tree), default=0)
        marks = min(marks_wanted, self.width // 4)
        rest = self.width - first - wide[0] - marks - 8
        wide[2] = min(wide[2], max(rest - 8, 0))
        wide[1] = min(
            wide[1], max(rest - wide[2], 0), max(self.width // 4, self.width - first - wide[0] - wide[2] - marks_wanted - 8)
        )
        for row in self.rows:
            if row.whole:
                self.line(row.whole.strip(), "head")
                continue
            left = self.paint(self.clean(row.prefix), "dim")
            room = first - cells(row.prefix)
            left += self.paint(_pad(self.cut(row.label, room), room), row.kind)
            used = first
            for at, cell in enumerate(row.cells):
                if not wide[at]:
                    continue
                left += "  " + self.paint(_pad(self.cut(cell, wide[at]), wide[at]), "dim" if at == 0 else "")
                used += 2 + wide[at]
            for number, (text, style) in enumerate(row.marks):
                gap = 2 if number == 0 else 3
                room = self.width - used - gap
                if room < 4:
                    break
                text = self.cut(text, room)
                left += ("  " if number == 0 else self.clean(" · ")) + self.paint(text, style)
                used += gap + cells(text)
            self.lines.append(left.rstrip())
        self.rows = []

    # -- distances -----------------------------------------------------------------------------------------------------

    def nvlinks(self, topology: Topology) -> None:
        links = topology.nvlinks
        gpus = len(topology.gpus)
        if links.all_pairs:
            switches = f" through {links.switches} NVSwitches" if links.switches else ""
            self.line()
            if gpus == 2:
                self.line(f"NVLink  {topology.gpus[0]} - {topology.gpus[1]}: {links.all_pairs}{switches}")
            else:
                self.line(f"NVLink  all pairs {links.all_pairs}{switches}")
            self.words.add(links.all_pairs)

    def matrices(self, topology: Topology) -> None:
        gpus, nics = topology.gpus, topology.nics
        if len(gpus) > 1 and not topology.nvlinks.all_pairs:
            self.matrix("GPU to GPU", gpus, gpus, topology)
        if gpus and nics:
            self.matrix("NIC to GPU", nics, gpus, topology)
            if len(gpus) > 1 and len(nics) > 1 and any(topology.nearest_nics.values()):
                self.nearest(topology)
        if self.words:
            self.line()
            spelt = {"NV#" if w.startswith("NV") else "XL#" if bonded_links(w) is not None else w for w in self.words}
            legend = [f"{word} {MEANING[word]}" for word in sorted(spelt, key=rank) if word in MEANING and word != "X"]
            if self.marked:
                legend.append("* tree and topo -m disagree, see below")
            self.wrapped(" · ".join(part.replace(" ", "\xa0") for part in legend).replace(" ·", "\xa0·"), hang="", style="dim")

    def matrix(self, title: str, rows: list[str], columns: list[str], topology: Topology) -> None:
        if all(topology.distance(row, column).word == UNKNOWN for row in rows for column in columns if row != column):
            self.line()
            self.line(f"{title}: not known (nvidia-smi topo -m shows it)")
            return
        names = max(cells(self.clean(name)) for name in rows)
        names = min(names, self.width // 3)
        short = [self.clean(name.removeprefix("GPU ")) for name in columns]
        wide = min(max(max(cells(name) for name in short), 5), 14)
        fits = max((self.width - names) // (wide + 1), 1)
        for start in range(0, len(columns), fits):
            self.line()
            self.line(title if start == 0 else f"{title}, continued", "head")
            some = list(zip(columns, short, strict=True))[start : start + fits]
            self.line(" " * names + "".join(" " + self.cut(name, wide).rjust(wide) for _, name in some), "dim")
            for row in rows:
                text = _pad(self.cut(self.clean(row), names), names)
                for column, _ in some:
                    text += " " + self.cell(topology.distance(row, column), wide)
                self.lines.append(text.rstrip())

    def cell(self, distance: Distance, wide: int) -> str:
        word = distance.word
        self.words.add(word)
        shown = self.clean(word)
        if distance.disagrees:
            shown += "*"
            self.marked = True
        style = "gpu" if bonded_links(word) or word in ("PIX", "PXB") else "warn" if distance.disagrees else ""
        return self.paint(
            self.cut("-" if word == "X" else shown, wide).rjust(wide), "dim" if word in ("X", "SYS", UNKNOWN) else style
        )

    def nearest(self, topology: Topology) -> None:
        parts = []
        for gpu in topology.gpus:
            near = topology.nearest_nics.get(gpu, [])
            if not near:
                parts.append(f"{gpu} ?")
                continue
            word = topology.distance(gpu, near[0]).word
            which = ",".join(near) if len(near) <= 3 else f"{len(near)} of {len(topology.nics)} NICs"
            parts.append(f"{gpu} {which} {word}")
        self.line()
        self.line("Nearest NIC", "head")
        wide = min(max(cells(self.clean(part)) for part in parts) + 3, self.width)
        fits = max(self.width // wide, 1)
        for start in range(0, len(parts), fits):
            self.line("".join(_pad(self.cut(self.clean(part), wide - 1), wide) for part in parts[start : start + fits]))

    def remarks(self, topology: Topology) -> None:
        for title, items in (("Disagreements", topology.disagreements), ("Notes", topology.notes)):
            if items:
                self.line()
                self.line(title, "head")
                for item in items[:40]:
                    self.wrapped(f"- {item}", style="warn" if title == "Disagreements" else "")
                if len(items) > 40:
                    self.line(f"- and {len(items) - 40} more")


def cells(text: str) -> int:
    """Columns that a terminal needs for ``text``: two for wide characters, none for combining ones."""
    if text.isascii():
        return len(text)
    total = 0
    for char in text:
        if not unicodedata.combining(char):
            total += 2 if unicodedata.east_asian_width(char) in "WF" else 1
    return total


def _pad(text: str, width: int) -> str:
    return text + " " * (width - cells(text))


def _joined(marks: list[tuple[str, str]]) -> str:
    return " · ".join(text for text, _ in marks)


def _label(device: Node) -> str:
    return device.key if device.named or not device.address else KIND_NAMES.get(device.kind, device.kind)
