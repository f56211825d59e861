"""NCCL topology files (NCCL_TOPO_FILE, NCCL_TOPO_DUMP_FILE): the tree that NCCL believes in.

Elements and attributes: NVIDIA/nccl src/graph/xml.cc. ``link_speed`` empty and ``link_width`` 0 mean that NCCL could not read the link (a
hypervisor hides it), not a dead one.
"""

from __future__ import annotations

import re
from xml.parsers import expat

from kilter.facts.base import Reason
from kilter.facts.case import NcclTopologyNode
from kilter.facts.pci import pci_address
from kilter.intake.captures.xml_block import feed, new_parser
from kilter.intake.fragment import Block, Fragment

MAX_DEPTH = 64
MAX_NODES = 100_000
_KINDS = {"cpu", "pci", "gpu", "nic", "net", "nvlink", "c2c", "pcilink"}


class _Reader:
    def __init__(self, fragment: Fragment, first_line: int, parser: expat.XMLParserType) -> None:
        self.fragment = fragment
        self.first_line = first_line
        self.parser = parser
        self.nodes: list[NcclTopologyNode] = []
        self.above: list[tuple[str | None, int | None]] = []  # (parent of what stands inside, NUMA node)
        self.systems = 0
        self.unknown: dict[str, int] = {}
        self.bad_addresses = 0

    def start(self, tag: str, attributes: dict[str, str]) -> None:
        if len(self.above) >= MAX_DEPTH:
            raise ValueError(f"XML nested deeper than {MAX_DEPTH}")
        parent, numa = self.above[-1] if self.above else (None, None)
        if tag == "system":
            self.systems += 1
        elif tag not in _KINDS:
            self.unknown[tag] = self.unknown.get(tag, 0) + 1
        else:
            if len(self.nodes) >= MAX_NODES:
                raise ValueError(f"more than {MAX_NODES} nodes")
            parent, numa = self.node(tag, attributes, parent, numa)
        self.above.append((parent, numa))

    def node(self, tag: str, attributes: dict[str, str], parent: str | None, numa: int | None) -> tuple[str | None, int | None]:
        """Add one node; returns what its children have above them."""
        ref = self.fragment.ref(self.first_line + self.parser.CurrentLineNumber - 1)
        node = NcclTopologyNode(kind=tag, parent=parent, origin={"": ref})
        self.nodes.append(node)
        below, rest = parent, dict(attributes)
        if tag == "cpu":
            text = rest.get("numaid", "")
            numa = int(text) if re.fullmatch(r"-?\d{1,6}", text) else None
            below = f"cpu {text}"
        elif tag == "pci":
            printed = rest.pop("busid", "")
            node.bus_id = pci_address(printed)
            if node.bus_id is None:
                self.bad_addresses += 1
                rest["busid"] = printed
            below = node.bus_id or printed or parent
            self.link(node, rest)
        elif tag in ("nvlink", "c2c", "pcilink"):
            node.bus_id = pci_address(rest.get("target", ""))
        elif tag == "gpu":
            node.bus_id = parent
        node.numa_node = numa
        node.attributes = rest
        return below, numa

    def link(self, node: NcclTopologyNode, attributes: dict[str, str]) -> None:
        speed, width = attributes.pop("link_speed", None), attributes.pop("link_width", None)
        ref = node.origin[""]
        if speed is not None and speed.strip() and not speed.strip().lower().startswith("unknown"):
            node.put("link_speed", speed.strip(), ref)
        elif speed is not None:
            node.lacks("link_speed", Reason.NOT_READABLE, f"the file says {speed!r}")
        if width is not None and re.fullmatch(r"\d{1,3}", width) and 0 < int(width) <= 32:
            node.put("link_width", int(width), ref)
        elif width is not None:
            # 0: hidden by the hypervisor; 255 and 63: an unplugged or absent port
            node.lacks("link_width", Reason.NOT_READABLE, f"the file says {width!r}")

    def end(self, _tag: str) -> None:
        if self.above:
            self.above.pop()


def parse(block: Block, fragment: Fragment) -> None:
    """Nodes into ``snapshot.nccl_topology``, in file order, each with what stands above it. A cut file gives what stood before the cut."""
    parser = new_parser()
    reader = _Reader(fragment, block.first_line, parser)
    feed(parser, reader, block, fragment, closing="</system>", what="NCCL topology", has_text=False)
    if reader.unknown:
        fragment.note(f"NCCL topology: elements not known: {', '.join(sorted(reader.unknown)[:5])}")
    if reader.bad_addresses:
        fragment.note(f"NCCL topology: {reader.bad_addresses} busid attribute(s) are no PCI addresses")
    if reader.systems or reader.nodes:
        fragment.snapshot.put("nccl_topology", reader.nodes, fragment.ref(block.first_line))
