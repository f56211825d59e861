"""``numactl -H`` (``--hardware``): NUMA nodes, their CPUs, memory and distances.

``MB`` there means 2**20 bytes. Source of the format: numactl/numactl, numactl.c (hardware()).
"""

from __future__ import annotations

import re

from kilter.facts.base import Reason
from kilter.facts.host import NumaNode
from kilter.intake.captures.bounded import lines
from kilter.intake.captures.cpu_list import to_list_format
from kilter.intake.fragment import Block, Fragment

_AVAILABLE = re.compile(r"available: (\d+) nodes?(?: \(([\d,-]*)\))?")
_NODE = re.compile(r"node (\d+) (cpus|size|free|zones|kernel_size|weight|mempolicy):\s*(.*)")
_ROW = re.compile(r"(\d+):((?:\s+\d+)*)$")


def _node(nodes: dict[int, NumaNode], index: int, line: int, fragment: Fragment) -> NumaNode:
    if index not in nodes:
        nodes[index] = NumaNode(id=index, origin={"": fragment.ref(line)})
    return nodes[index]


def parse(block: Block, fragment: Fragment) -> None:
    """``snapshot.cpu.numa``; a node without CPUs (HBM, CXL memory, GPU memory of Grace systems) has ``cpus`` ""."""
    nodes: dict[int, NumaNode] = {}
    expected = None
    in_distances = False
    for line, raw in lines(block, fragment):
        text = raw.strip()
        if not text:
            continue
        ref = fragment.ref(line)
        if match := _AVAILABLE.match(text):
            expected = int(match[1])
        elif match := _NODE.match(text):
            node = _node(nodes, int(match[1]), line, fragment)
            key, value = match[2], match[3]
            if key == "cpus":
                words = value.split()
                if all(word.isdecimal() for word in words):
                    node.put("cpus", to_list_format(int(word) for word in words), ref)
                else:
                    fragment.unparsed(line, raw)
            elif key in ("size", "free"):
                field = "memory_total_bytes" if key == "size" else "memory_free_bytes"
                words = value.split()
                if words and words[0].isdecimal() and words[1:] == ["MB"]:
                    node.put(field, int(words[0]) << 20, ref)
                elif value.startswith("<not available>"):
                    node.lacks(field, Reason.NOT_READABLE, "numactl prints <not available>")
                else:
                    fragment.unparsed(line, raw)
        elif text.startswith("node distances:"):
            in_distances = True
        elif in_distances and re.fullmatch(r"node(?:\s+\d+)*", text):
            continue
        elif in_distances and (match := _ROW.match(text)):
            _node(nodes, int(match[1]), line, fragment).put("distances", [int(word) for word in match[2].split()] or None, ref)
        elif text.startswith(("No NUMA", "physcpubind", "No distance information")):
            fragment.note(f"numactl: {text[:120]}")
        else:
            fragment.unparsed(line, raw)
    if nodes:
        first = min(nodes)
        fragment.snapshot.cpu.put("numa", [nodes[index] for index in sorted(nodes)], nodes[first].ref(""))
    if expected is not None and len(nodes) < expected:
        fragment.note(f"numactl: {expected} NUMA nodes are announced, {len(nodes)} are shown")
