"""A node's topology as one self-contained SVG: no script, no font, no image from elsewhere. Tooltips are ``<title>`` elements."""

from __future__ import annotations

import html
import math
import re

import msgspec

from kilter.report.topology_model import GPU_KINDS, KIND_NAMES, Node, NumaGroup, Segment, Topology, segment_order, segments
from kilter.report.topology_pci import MEANING, UNKNOWN, bonded_links, rank, short_address
from kilter.report.topology_text import cells

PAGE = 1200.0  # drawing units; a box that fits is never scaled below readable size at this width
LEAF_W, LEAF_H = 158.0, 44.0
BAR_H = 26.0
GAP = 10.0
INDENT = 14.0
MAX_MESH = 32

_STYLE = """
.kt{--ink:#1f2328;--dim:#59636e;--line:#afb8c1;--box:#fff;--page:#f6f8fa;--edge:#d1d9e0;--warn:#9a6700;--gpu:#dff2dd;
--gpu-e:#2f8132;--nic:#ddebfb;--nic-e:#2b6cb0;--nvs:#eee3fa;--nvs-e:#7446ad;--nvm:#fbeed5;--nvm-e:#a06a10;--br:#eaeef2;
--br-e:#8c959f;--d0:#2f8132;--d1:#6bb368;--d2:#a5d3a0;--d3:#d7e6c5;--d4:#efe3bd;--d5:#f3d2bb;--t0:#fff;--m1:#7fa8d1;
--m2:#2f8132;--m3:#7446ad;--m4:#b3541e;
font-family:ui-sans-serif,system-ui,-apple-system,"Segoe UI",Roboto,"Helvetica Neue",Arial,sans-serif;font-size:11px;
color-scheme:light dark}
@media (prefers-color-scheme:dark){.kt{--ink:#e6edf3;--dim:#9198a1;--line:#57606a;--box:#161b22;--page:#0d1117;
--edge:#30363d;--warn:#d29922;--gpu:#12331a;--gpu-e:#3fb950;--nic:#10294a;--nic-e:#58a6ff;--nvs:#2b1d45;--nvs-e:#b083f0;
--nvm:#3a2a0c;--nvm-e:#d29922;--br:#21262d;--br-e:#6e7681;--d0:#238636;--d1:#1d6b2f;--d2:#1a5128;--d3:#2c4023;
--d4:#463c18;--d5:#4f2f1c;--t0:#fff;--m1:#4a7fb5;--m2:#3fb950;--m3:#b083f0;--m4:#e3884f}}
@media print{.kt{--ink:#000;--dim:#444;--box:#fff;--page:#fff}}.kt text{fill:var(--ink)}
.kt .h{font-weight:600;font-size:12px}.kt .k{font-weight:600}.kt .d,.kt .d text{fill:var(--dim)}.kt .s{font-size:10px}
.kt .w{fill:var(--warn);font-weight:600;font-size:10px}.kt .e{text-anchor:end}.kt .m{text-anchor:middle}
.kt .numa{fill:var(--page);stroke:var(--edge)}.kt .wire{fill:none;stroke:var(--line);stroke-width:1.5}
.kt .gpu{fill:var(--gpu);stroke:var(--gpu-e)}.kt .nic{fill:var(--nic);stroke:var(--nic-e)}
.kt .nvs{fill:var(--nvs);stroke:var(--nvs-e)}.kt .nvm{fill:var(--nvm);stroke:var(--nvm-e)}
.kt .br{fill:var(--br);stroke:var(--br-e)}.kt .gap{stroke-dasharray:4 3}.kt .nvl{stroke:var(--gpu-e);stroke-width:3}
.kt .d0{fill:var(--d0)}.kt .d1{fill:var(--d1)}.kt .d2{fill:var(--d2)}.kt .d3{fill:var(--d3)}.kt .d4{fill:var(--d4)}
.kt .d5{fill:var(--d5)}.kt .du{fill:var(--page);stroke:var(--edge)}.kt text.t0{fill:var(--t0)}
.kt .m1{stroke:var(--m1)}.kt .m2{stroke:var(--m2)}.kt .m3{stroke:var(--m3)}.kt .m4{stroke:var(--m4)}
"""

_CLASS = {
    "gpu": "gpu",
    "xpu": "gpu",
    "accelerator": "gpu",
    "hca": "nic",
    "nic": "nic",
    "nvswitch": "nvs",
    "nvme": "nvm",
    "bridge": "br",
}
#: What XML forbids, and characters that turn the direction of text, which could show a line as another.
_NOT_XML = re.compile("[^\t\n\r\x20-\x7e\xa0-\u2029\u202f-\u2065\u206a-\ud7ff\ue000-\ufffd\U00010000-\U0010ffff]")


def escape(text: str) -> str:
    """``text`` for the content or a quoted attribute of XML and HTML; characters that XML forbids become U+FFFD."""
    return html.escape(_NOT_XML.sub("\ufffd", text), quote=True)


def render_svg(topology: Topology) -> str:
    """One ``<svg>`` element that scales to its container and follows the light or dark preference of the reader."""
    page = _Flow(PAGE)
    for group in topology.numa:
        if group.buses:
            page.add(_numa(group, topology.with_domain))
    top = page.place(0.0, 0.0)
    panels = _Flow(PAGE, gap=24.0)
    for panel in _panels(topology, page.width):
        panels.add(panel)
    bottom = panels.place(0.0, 0.0)
    width = max(page.width, panels.width, 320.0)
    height = top + (bottom + 14 if panels.boxes else 0.0)
    legend, legend_h = _legend(topology, width, height + 8)
    parts = [*page.draw(0.0, 0.0), *panels.draw(0.0, top + 14), *legend]
    total = height + 8 + legend_h
    name = f"Topology of {topology.node}" if topology.node else "Topology"
    return (
        f'<svg xmlns="http://www.w3.org/2000/svg" class="kt" role="img" viewBox="-8 -8 {width + 16:.0f} {total + 16:.0f}" '
        f'width="100%" style="max-width:{width + 16:.0f}px" preserveAspectRatio="xMinYMin meet">'
        f"<title>{escape(name)}</title><style>{_STYLE}</style>{''.join(parts)}</svg>"
    )


# -- layout ------------------------------------------------------------------------------------------------------------


class _Box(msgspec.Struct):
    """A drawing of known size; ``parts`` are relative to (0, 0)."""

    width: float
    height: float
    parts: list[str]


class _Flow:
    """Boxes from left to right in rows no wider than ``limit`` (one box may be wider)."""

    def __init__(self, limit: float, gap: float = GAP) -> None:
        self.limit = limit
        self.gap = gap
        self.boxes: list[_Box] = []
        self.width = 0.0
        self.places: list[tuple[float, float]] = []

    def add(self, box: _Box) -> None:
        self.boxes.append(box)

    def place(self, left: float, top: float) -> float:
        """Set all places; returns the bottom."""
        x, y, row = left, top, 0.0
        self.places = []
        self.width = 0.0
        for box in self.boxes:
            if x > left and x + box.width > left + self.limit:
                x, y, row = left, y + row + self.gap, 0.0
            self.places.append((x, y))
            self.width = max(self.width, x - left + box.width)
            row = max(row, box.height)
            x += box.width + self.gap
        return y + row

    def draw(self, left: float, top: float) -> list[str]:
        return [_at(left + x, top + y, box.parts) for box, (x, y) in zip(self.boxes, self.places, strict=True)]


def _at(x: float, y: float, parts: list[str]) -> str:
    return f'<g transform="translate({x:.1f} {y:.1f})">{"".join(parts)}</g>'


def _text(x: float, y: float, text: str, css: str = "", *, room: float = 0.0, char: float = 6.3) -> str:
    """Text cut to ``room``, counting ``char`` units a column."""
    if room:
        text = _fit(text, room, char)
    return (
        f'<text x="{x:.1f}" y="{y:.1f}"{f" class={chr(34)}{css}{chr(34)}" if css else ""}>{escape(text)}</text>' if text else ""
    )


def _fit(text: str, room: float, char: float = 6.3) -> str:
    most = max(int(room / char), 1)
    if cells(text) <= most:
        return text
    out, used = "", 0
    for one in text:
        used += cells(one)
        if used > most - 1:
            break
        out += one
    return out + "…"


def _rect(x: float, y: float, width: float, height: float, css: str, radius: float = 5.0) -> str:
    return f'<rect x="{x:.1f}" y="{y:.1f}" width="{width:.1f}" height="{height:.1f}" rx="{radius:g}" class="{css}"/>'


# -- the PCI tree ------------------------------------------------------------------------------------------------------


def _numa(group: NumaGroup, with_domain: bool) -> _Box:
    inside = _Flow(PAGE - 2 * GAP)
    singles: list[Segment] = []
    for bus in group.buses:
        below = segments(bus.nodes)
        if bus.name and len(bus.nodes) == 1 and below[0].bridges:
            if len(below) > 1 or below[0].device is not None:
                inside.add(_bus(f"root port {_short(below[0].bridges[0], with_domain)}", below, with_domain))
            else:
                inside.add(_bridge(below[0], with_domain))
        elif bus.name and len(bus.nodes) == 1:
            singles += below
        else:
            name = bus.name if with_domain else bus.name.rpartition(":")[2]
            has_place = any(node.address for node in bus.nodes)
            title = f"root bus {name}" if name else "root bus not known" if has_place else "PCI place not known"
            inside.add(_bus(title, below, with_domain))
    if singles:
        inside.add(_bus("each on a root bus of its own", sorted(singles, key=segment_order), with_domain))
    bottom = inside.place(0.0, 0.0)
    title = f"NUMA node {group.node}" if group.node is not None else "NUMA node not known"
    facts = [f"CPUs {group.cpus}" if group.cpus else "", f"{group.memory_bytes / 2**30:.0f} GiB" if group.memory_bytes else ""]
    if group.hidden:
        facts.append(f"{group.hidden} other PCI functions")
    said = " · ".join(fact for fact in facts if fact)
    head = 24.0
    width = max(inside.width, 300.0) + 2 * GAP
    title_room = 7.7 * len(title) + 14
    parts = [
        _rect(0, 0, width, bottom + head + 2 * GAP, "numa", 8),
        _text(GAP, 19, title, "h"),
        _text(GAP + title_room, 19, said, "d s", room=width - title_room - 2 * GAP, char=5.6),
        *inside.draw(GAP, head + GAP),
    ]
    return _Box(width, bottom + head + 2 * GAP, parts)


def _columns(items: list[Segment]) -> list[list[Segment]]:
    """Few devices in one column; many by kind, in as few rows as keep the columns to six."""
    if len(items) <= 4:
        return [items]
    kinds: dict[str, list[Segment]] = {}
    for item in items:
        kinds.setdefault(item.device.kind if item.device else "", []).append(item)
    rows = 4
    while rows < len(items) and sum(-(-len(some) // rows) for some in kinds.values()) > 6:  # more than six kinds never fit
        rows += 1
    columns = []
    for some in kinds.values():
        even = -(-len(some) // -(-len(some) // rows))
        columns += [some[start : start + even] for start in range(0, len(some), even)]
    return columns


def _stack(items: list[Segment], with_domain: bool) -> _Box:
    """Devices below one bus, in columns, each column on a wire at its left."""
    columns = _columns(items)
    parts: list[str] = []
    for column, some in enumerate(columns):
        x = column * (INDENT + LEAF_W + GAP)
        last = (len(some) - 1) * (LEAF_H + 8) + LEAF_H / 2 + 8
        parts.append(f'<path class="wire" d="M{x + 5:.1f} 0V{last:.1f}"/>')
        for row, item in enumerate(some):
            y = 8 + row * (LEAF_H + 8)
            dashed = " gap" if item.gap else ""
            parts.append(f'<path class="wire{dashed}" d="M{x + 5:.1f} {y + LEAF_H / 2:.1f}H{x + INDENT:.1f}"/>')
            parts.append(_leaf(x + INDENT, y, item, with_domain))
    tallest = max(len(some) for some in columns)
    return _Box(len(columns) * (INDENT + LEAF_W) + (len(columns) - 1) * GAP, 8 + tallest * (LEAF_H + 8) - 8, parts)


def _below(children: list[Segment], with_domain: bool) -> tuple[_Flow, list[bool]]:
    """Boxes below a bar, and for each whether it is a bridge of its own."""
    flow = _Flow(PAGE - 4 * GAP)
    leaves = [child for child in children if child.device is not None]
    is_bridge = []
    if leaves:
        flow.add(_stack(leaves, with_domain))
        is_bridge.append(False)
    for child in children:
        if child.device is None:
            flow.add(_bridge(child, with_domain))
            is_bridge.append(True)
    return flow, is_bridge


def _under_bar(bar: list[str], flow: _Flow, is_bridge: list[bool], title: str, dashed: bool) -> _Box:
    bottom = flow.place(0.0, 0.0)
    width = max(flow.width, INDENT + LEAF_W)
    parts = [f"<g><title>{escape(title)}</title>", _rect(0, 0, width, BAR_H, "br gap" if dashed else "br"), *bar, "</g>"]
    for box, (x, y), bridge in zip(flow.boxes, flow.places, is_bridge, strict=True):
        if bridge:
            # Wires end at the box's left part, so that rows below one another do not cross the boxes above.
            parts.append(f'<path class="wire" d="M{x + 12:.1f} {BAR_H + y:.1f}V{BAR_H + 10 + y:.1f}"/>')
            parts.append(_at(x, BAR_H + 10 + y, box.parts))
        else:
            parts.append(_at(x, BAR_H + y, box.parts))
    return _Box(width, BAR_H + bottom + 10, parts)


def _bus(title: str, children: list[Segment], with_domain: bool) -> _Box:
    flow, is_bridge = _below(children, with_domain)
    flow.place(0.0, 0.0)
    width = max(flow.width, INDENT + LEAF_W)
    return _under_bar([_text(8, 17, title, "s", room=width - 16, char=5.8)], flow, is_bridge, title, False)


def _bridge(segment: Segment, with_domain: bool) -> _Box:
    flow, is_bridge = _below(segment.children, with_domain)
    flow.place(0.0, 0.0)
    width = max(flow.width, INDENT + LEAF_W)
    lowest = segment.bridges[-1]
    word = "switch" if segment.is_switch else (lowest.port or "bridge")
    link = str(segment.link)
    acs = " ACS" if segment.acs else ""
    room = width - 16 - 5.8 * (len(link) + len(acs)) - 10
    title = f"{word} {_short(lowest, with_domain)}"
    if room > 5.8 * (len(title) + 12):
        title += f"  {lowest.title}"
    bar = [_text(8, 17, title, "k s", room=room, char=5.9), _text(width - 8 - 6 * len(acs), 17, link, "d s e")]
    if acs:
        bar.append(_text(width - 8, 17, acs.strip(), "w e"))
    return _under_bar(bar, flow, is_bridge, "\n".join(_about(one) for one in segment.bridges), segment.gap)


def _short(node: Node, with_domain: bool) -> str:
    return short_address(node.address, with_domain=with_domain)


def _about(node: Node) -> str:
    facts = [node.port or KIND_NAMES.get(node.kind, node.kind), node.address, node.title, str(node.link)]
    facts += [" ".join(node.names), *node.details, f"slot {node.slot}" if node.slot else "", "ACS redirects" if node.acs else ""]
    return " · ".join(fact for fact in facts if fact)


def _leaf(x: float, y: float, segment: Segment, with_domain: bool) -> str:
    node = segment.device
    assert node is not None
    tip = [_about(node) if node.key == node.address else f"{node.key} · {_about(node)}"]
    tip += [f"below {_about(bridge)}" for bridge in reversed(segment.bridges)]
    name = node.key if node.named or not node.address else KIND_NAMES.get(node.kind, node.kind)
    link = str(node.link if str(node.link) else segment.link)
    short = link.partition(" (")[0]
    capped = "*" if short != link else ""
    missing = any("not in the PCI listing" in detail for detail in node.details)
    badge = "ACS" if segment.acs else "absent" if missing else ""
    # A nested <svg> clips: whatever a name contains, it stays in its box.
    parts = [
        f'<svg x="{x:.1f}" y="{y:.1f}" width="{LEAF_W:g}" height="{LEAF_H:g}"><title>{escape(chr(10).join(tip))}</title>',
        _rect(0.75, 0.75, LEAF_W - 1.5, LEAF_H - 1.5, _CLASS.get(node.kind, "br") + (" gap" if missing else "")),
        _text(8, 18, name, "k", room=LEAF_W - 20 - 5.8 * len(short + capped), char=6.6),
        _text(LEAF_W - 8, 18, short + capped, "d s e"),
        _text(8, 34, _second_line(node, with_domain), "d s", room=LEAF_W - 16 - (6.6 * len(badge) + 6 if badge else 0), char=5.5),
        _text(LEAF_W - 8, 34, badge, "w e"),
        "</svg>",
    ]
    return "".join(parts)


def _second_line(node: Node, with_domain: bool) -> str:
    short = _short(node, with_domain) if node.address else ""
    rate = next((d for d in node.details if "bit/s" in d), "") if node.kind in ("hca", "nic") else ""
    rate = rate.replace(" Gbit/s", "G")
    return " ".join(part for part in (short, rate or node.title) if part)


# -- NVLink and distances ----------------------------------------------------------------------------------------------


def _panels(topology: Topology, tree_width: float) -> list[_Box]:
    out: list[_Box] = []
    gpus, nics = topology.gpus, topology.nics
    links = topology.nvlinks
    if links.all_pairs:
        out.append(_switched(topology, min(max(tree_width, 80.0 * len(gpus), 420.0), PAGE)))
    elif links.pairs and len(gpus) <= MAX_MESH:
        out.append(_mesh(topology))
    if len(gpus) > 1 and not links.all_pairs and len(gpus) <= MAX_MESH:
        out.append(_heat("GPU to GPU", gpus, gpus, topology))
    if gpus and nics and len(gpus) <= MAX_MESH and len(nics) <= 2 * MAX_MESH:
        out.append(_heat("NIC to GPU", nics, gpus, topology))
    return [box for box in out if box.parts]


def _switched(topology: Topology, width: float) -> _Box:
    """All pairs alike: GPUs over a strip of NVSwitches (or a bare strip where no switch is known)."""
    gpus, links = topology.gpus, topology.nvlinks
    step = width / len(gpus)
    chip = min(step - 8, 120.0)
    switches = links.switches or 0
    parts = [_text(0, 14, f"NVLink: all pairs {links.all_pairs}", "h")]
    for at, gpu in enumerate(gpus):
        x = at * step + step / 2
        up = f"{links.active[gpu]} of {links.total.get(gpu, 0)} links active" if gpu in links.active else ""
        tip = " · ".join(part for part in (gpu, f"{links.all_pairs} to each other GPU", up) if part)
        parts.append(f'<g><title>{escape(tip)}</title><path class="nvl" d="M{x:.1f} 54V84"/>')
        parts.append(_rect(x - chip / 2, 26, chip, 28, "gpu") + _text(x, 44, gpu, "k s m", room=chip - 6, char=6.2) + "</g>")
    parts.append(_rect(0, 84, width, 30, "nvs"))
    if switches:
        text = f"{switches} NVSwitch{'es' if switches > 1 else ''}"
    else:
        text = "direct links, or NVSwitches that were not listed"
    parts.append(_text(width / 2, 103, text, "k m"))
    return _Box(width, 116, parts)


def _mesh(topology: Topology) -> _Box:
    """GPUs on a circle; colour and thickness of a line are its number of bonded links."""
    gpus, pairs = topology.gpus, topology.nvlinks.pairs
    count = len(gpus)
    radius = max(110.0, count * 13.0)
    chip_w, chip_h = 62.0, 24.0
    size = 2 * radius + chip_w
    middle_x, middle_y = size / 2, radius + 24 + chip_h / 2
    spots = {
        gpu: (
            middle_x + radius * math.sin(2 * math.pi * (at + 0.5) / count),
            middle_y - radius * math.cos(2 * math.pi * (at + 0.5) / count),
        )
        for at, gpu in enumerate(gpus)
    }
    bonds = sorted({number for row in pairs.values() for number in row.values()})
    parts = [_text(0, 14, "NVLink mesh", "h")]
    for one, row in pairs.items():
        for other, number in row.items():
            (x1, y1), (x2, y2) = spots[one], spots[other]
            css = f"m{min(bonds.index(number) + 1, 4)}"
            parts.append(
                f'<line x1="{x1:.1f}" y1="{y1:.1f}" x2="{x2:.1f}" y2="{y2:.1f}" class="{css}" '
                f'stroke-width="{min(1.2 + 1.1 * number, 8):.1f}"><title>{escape(f"{one} - {other}: NV{number}")}</title></line>'
            )
    for gpu, (x, y) in spots.items():
        parts.append(_rect(x - chip_w / 2, y - chip_h / 2, chip_w, chip_h, "gpu"))
        parts.append(_text(x, y + 4, gpu.removeprefix("GPU "), "k s m", room=chip_w - 6, char=6.0))
    x = 0.0
    bottom = 2 * radius + chip_h + 46
    for at, number in enumerate(bonds[:8]):
        css = f"m{min(at + 1, 4)}"
        parts.append(
            f'<line x1="{x:.1f}" y1="{bottom - 4:.1f}" x2="{x + 22:.1f}" y2="{bottom - 4:.1f}" class="{css}" stroke-width="4"/>'
        )
        parts.append(_text(x + 27, bottom, f"NV{number}", "s"))
        x += 66
    return _Box(max(size, x), bottom + 6, parts)


_HEAT = {"PSB": "d1", "PIX": "d1", "PXB": "d2", "PHB": "d3", "NODE": "d4", "SYS": "d5", "SOC": "d5"}


def _heat(title: str, rows: list[str], columns: list[str], topology: Topology) -> _Box:
    words = {topology.distance(row, column).word for row in rows for column in columns if row != column}
    if words <= {UNKNOWN}:
        text = f"{title}: not known (nvidia-smi topo -m shows it)"
        return _Box(6.2 * len(text), 20, [_text(0, 14, text, "d")])
    cell_w = min(max(max(6.4 * cells(name.removeprefix("GPU ")) + 8 for name in columns), 44.0), 84.0)
    if cell_w * len(columns) > PAGE - 160:
        cell_w = max((PAGE - 160) / len(columns), 40.0)
    name_w = min(max(6.4 * cells(name) for name in rows) + 8, 150.0)
    cell_h = 21.0
    parts = [_text(0, 14, title, "h")]
    for at, column in enumerate(columns):
        x = name_w + at * cell_w + cell_w / 2
        parts.append(_text(x, 33, column.removeprefix("GPU "), "d s m", room=cell_w - 2, char=6.0))
    for at, row in enumerate(rows):
        y = 39 + at * cell_h
        parts.append(_text(name_w - 6, y + 14, row, "s e", room=name_w - 6, char=6.2))
        for column_at, column in enumerate(columns):
            x = name_w + column_at * cell_w
            if row == column:
                continue
            distance = topology.distance(row, column)
            strong = bonded_links(distance.word) is not None
            css = "d0" if strong else _HEAT.get(distance.word, "du")
            tip = f"{row} - {column}: {distance.word}"
            if distance.disagrees:
                tip += f" (topo -m; the PCI tree gives {distance.computed})"
            shown = distance.word + ("*" if distance.disagrees else "")
            parts.append(f"<g><title>{escape(tip)}</title>{_rect(x + 1, y + 1, cell_w - 2, cell_h - 2, css, 3)}")
            parts.append(
                _text(x + cell_w / 2, y + 14.5, shown, "s m t0" if strong else "s m", room=cell_w - 2, char=6.0) + "</g>"
            )
    return _Box(name_w + cell_w * len(columns), 39 + cell_h * len(rows) + 4, parts)


def _legend(topology: Topology, width: float, top: float) -> tuple[list[str], float]:
    kinds = {node.kind for node in topology.walk()}
    items: list[tuple[str, str]] = []
    for css, text, some in (
        ("gpu", "GPU or XPU", set(GPU_KINDS)),
        ("nic", "NIC, HCA", {"hca", "nic"}),
        ("nvs", "NVSwitch", {"nvswitch"}),
        ("nvm", "NVMe", {"nvme"}),
        ("br", "PCIe bridge", {"bridge"}),
    ):
        if kinds & some:
            items.append((css, text))
    nodes = list(topology.walk())
    if any(node.acs for node in nodes):
        items.append(("", "ACS: the port above redirects peer-to-peer traffic"))
    if any("(max" in str(node.link) for node in nodes):
        items.append(("", "* link below what the device can do"))
    words = {one.word for row in topology.distances.values() for one in row.values()}
    spelt = {
        "NV#" if (b := bonded_links(word)) is not None and word.startswith("NV") else "XL#" if b is not None else word
        for word in words
    }
    items += [("", f"{word}: {MEANING[word]}") for word in sorted(spelt, key=rank) if word in MEANING and word != "X"]
    if any(one.disagrees for row in topology.distances.values() for one in row.values()):
        items.append(("", "* on a distance: PCI tree and topo -m disagree"))
    parts, x, y = [], 0.0, top + 12
    for css, text in items:
        need = (16 if css else 0) + 5.7 * len(text) + 18
        if x and x + need > width:
            x, y = 0.0, y + 17
        if css:
            parts.append(_rect(x, y - 9, 11, 11, css, 2))
        parts.append(_text(x + (16 if css else 0), y, text, "d s"))
        x += need
    return parts, y - top + 6
