"""The picture: well-formed, self-contained, complete, and without text over text."""

from __future__ import annotations

import itertools
import re
import xml.etree.ElementTree as ElementTree
from collections.abc import Callable

from kilter.facts.accelerator import Accelerator, TopologyMatrix
from kilter.facts.case import Snapshot
from kilter.facts.network import RdmaDevice
from kilter.facts.pci import PciDevice
from kilter.report.topology import build
from kilter.report.topology_model import Node, Segment
from kilter.report.topology_svg import LEAF_H, LEAF_W, _columns, escape, render_svg

Machines = dict[str, Callable[[], Snapshot]]
SVG = "{http://www.w3.org/2000/svg}"
HOSTILE = "<script>alert(1)</script>\"'&\x00\x1b]]>"


def picture(snapshot: Snapshot) -> ElementTree.Element:
    return ElementTree.fromstring(render_svg(build(snapshot)))


def boxes(root: ElementTree.Element) -> list[tuple[float, float, ElementTree.Element]]:
    """Absolute corners of all device boxes."""
    found: list[tuple[float, float, ElementTree.Element]] = []

    def walk(element: ElementTree.Element, x: float, y: float) -> None:
        move = re.match(r"translate\(([-\d.]+) ([-\d.]+)\)", element.get("transform", ""))
        if move:
            x, y = x + float(move.group(1)), y + float(move.group(2))
        if element.tag == f"{SVG}svg" and element is not root:
            found.append((x + float(element.get("x", "0")), y + float(element.get("y", "0")), element))
            return
        for child in element:
            walk(child, x, y)

    walk(root, 0.0, 0.0)
    return found


def big() -> Snapshot:
    """16 GPUs and 16 NICs below nested switches on four NUMA nodes."""
    pci: dict[str, PciDevice] = {}
    accelerators, rdma = [], []
    for numa in range(4):
        base = numa * 0x40
        root, top = f"0000:{base:02x}:01.0", f"0000:{base + 1:02x}:00.0"
        common = {"class_code": 0x0604, "numa_node": numa}
        pci[root] = PciDevice(
            address=root, parent="", port_type="root port", secondary_bus=base + 1, subordinate_bus=base + 0x3F, **common
        )
        pci[top] = PciDevice(
            address=top, parent=root, port_type="upstream port", secondary_bus=base + 2, subordinate_bus=base + 0x3F, **common
        )
        for n in range(4):
            down = f"0000:{base + 2:02x}:{n:02x}.0"
            up = f"0000:{base + 3 + 4 * n:02x}:00.0"
            pci[down] = PciDevice(address=down, parent=top, port_type="downstream port", **common)
            pci[up] = PciDevice(address=up, parent=down, port_type="upstream port", **common)
            for at, code in ((0, 0x0302), (1, 0x0207)):
                port = f"0000:{base + 4 + 4 * n:02x}:{at:02x}.0"
                end = f"0000:{base + 5 + 4 * n + at:02x}:00.0"
                pci[port] = PciDevice(address=port, parent=up, port_type="downstream port", **common)
                pci[end] = PciDevice(
                    address=end, parent=port, class_code=code, vendor_id=0x10DE if at == 0 else 0x15B3, numa_node=numa
                )
                if at == 0:
                    accelerators.append(Accelerator(index=len(accelerators), pci_address=end, name="NVIDIA A100-SXM4-80GB"))
                else:
                    rdma.append(RdmaDevice(name=f"mlx5_bond_{len(rdma)}", pci_address=end))
    return Snapshot(pci=pci, accelerators=accelerators, rdma=rdma)


def test_it_is_xml(machine: Snapshot) -> None:
    assert picture(machine).get("viewBox")


def test_nothing_is_loaded(machine: Snapshot) -> None:
    text = render_svg(build(machine))
    assert "<script" not in text
    assert not re.search(r"\b(?:href|src)=|url\(|@import", text)
    assert set(re.findall(r"https?://[^\"]*", text)) <= {"http://www.w3.org/2000/svg"}


def test_each_device_has_one_box(machine: Snapshot) -> None:
    topology = build(machine)
    devices = [node for node in topology.walk() if node.kind != "bridge"]
    assert len(boxes(picture(machine))) == len(devices)


def test_boxes_do_not_overlap_and_lie_inside(machines: Machines) -> None:
    for make in (*machines.values(), big):
        root = picture(make())
        left, top, width, height = (float(part) for part in root.get("viewBox", "").split())
        places = [(x, y) for x, y, _ in boxes(root)]
        for at, (x, y) in enumerate(places):
            assert left <= x
            assert x + LEAF_W <= left + width
            assert top <= y
            assert y + LEAF_H <= top + height
            for other_x, other_y in places[at + 1 :]:
                assert abs(x - other_x) >= LEAF_W or abs(y - other_y) >= LEAF_H


def test_texts_of_a_box_do_not_meet(machines: Machines) -> None:
    """Counted with 6.7 units a letter of the name and 5.8 of the rest, which is above the mean of common sans-serif fonts."""
    for make in (*machines.values(), big):
        for _, _, box in boxes(picture(make())):
            rows: dict[str, list[tuple[float, float]]] = {}
            for text in box.iter(f"{SVG}text"):
                css = text.get("class", "").split()
                width = len(text.text or "") * (6.6 if "k" in css else 5.5)
                x = float(text.get("x", "0"))
                rows.setdefault(text.get("y", ""), []).append((x - width, x) if "e" in css else (x, x + width))
            for spans in rows.values():
                spans.sort()
                assert all(a[1] <= b[0] + 1 for a, b in itertools.pairwise(spans))
                assert spans[-1][1] <= LEAF_W


def test_sixteen_gpus_and_sixteen_nics_stay_within_a_page() -> None:
    root = picture(big())
    assert float(root.get("viewBox", "").split()[2]) <= 1260
    assert len(boxes(root)) == 32


def test_a_mesh_has_a_line_for_each_bonded_pair(machines: Machines) -> None:
    root = picture(machines["v100_cube_mesh"]())
    pairs = [line for line in root.iter(f"{SVG}line") if line.find(f"{SVG}title") is not None]
    assert len(pairs) == 16  # 8 GPUs with 4 peers each


def test_nvswitches_are_a_strip(machines: Machines) -> None:
    texts = [text.text for text in picture(machines["dgx_h100"]()).iter(f"{SVG}text")]
    assert "4 NVSwitches" in texts
    assert "NVLink: all pairs NV18" in texts


def test_names_cannot_break_out() -> None:
    function = PciDevice(address="0000:00:05.0", vendor_id=0x10DE, class_code=0x0302, description=HOSTILE, slot=HOSTILE)
    matrix = TopologyMatrix(devices=["GPU0", "GPU1", HOSTILE], links={"GPU0": {HOSTILE: HOSTILE, "GPU1": "NV2"}})
    facts = Snapshot(
        node=HOSTILE,
        pci={function.address: function},
        accelerators=[
            Accelerator(index=0, pci_address="0000:00:05.0", name=HOSTILE, error=HOSTILE),
            Accelerator(index=1, name=HOSTILE),
        ],
        topology=matrix,
    )
    text = render_svg(build(facts))
    assert "<script" not in text
    assert ElementTree.fromstring(text) is not None


def test_escape_replaces_what_xml_forbids() -> None:
    assert escape("a\x00<&\"'\ud800\ufffe") == "a\ufffd&lt;&amp;&quot;&#x27;\ufffd\ufffd"


def test_nothing_known_is_still_a_picture() -> None:
    assert picture(Snapshot()) is not None


def test_more_kinds_of_devices_than_columns_end() -> None:
    segments = [Segment(bridges=[], device=Node(key=str(n), kind=f"kind{n}")) for n in range(9)]
    assert sum(len(column) for column in _columns(segments)) == 9
