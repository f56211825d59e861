"""``nvidia-smi topo -m`` and Kunlunxin's ``xpu-smi topo -m``: the matrix of distances."""

from __future__ import annotations

import re

from kilter.facts.accelerator import TopologyMatrix
from kilter.intake.captures.bounded import lines
from kilter.intake.fragment import Block, Fragment

_COLOUR = re.compile(r"\x1b\[[0-9;]*m")
_NAME = re.compile(r"(?:GPU|XPU|NIC|mlx\w+_|CPU)\d*$")
_WORD = re.compile(r"(?:X|SYS|NODE|PHB|PXB|PIX|PXN|SOC|PSB|NV\d+|XL\d*|SELF|DIS|N/A)$")
_LEGEND = re.compile(r"\s+(NIC\d+|HCA\d+): *(\S+)\s*$")
_EXTRA = re.compile(r"(CPU Affinity|NUMA Affinity|GPU NUMA ID)")


def parse(block: Block, fragment: Fragment) -> None:
    """Fill ``snapshot.topology``. Real outputs separate by tabs; pastes often turn these into spaces, so cells are found by content."""
    matrix: TopologyMatrix | None = None
    columns: list[str] = []
    in_legend = False
    for number, raw in lines(block, fragment):
        line = _COLOUR.sub("", raw)
        words = line.split()
        if not words:
            continue
        if matrix is None:
            names = []
            for word in words:
                if not _NAME.match(word) or word == "CPU":
                    break
                names.append(word)
            if not names:
                fragment.unparsed(number, raw)
                continue
            columns = names
            matrix = TopologyMatrix(devices=list(columns), origin={"": fragment.ref(number)})
            continue
        if line.lstrip().startswith("Legend") or line.strip() == "NIC Legend:":
            in_legend = True
            continue
        if match := _LEGEND.match(line):
            matrix.nic_names[match.group(1)] = match.group(2)
            continue
        if in_legend:
            if not re.match(r"\s+(?:X|SYS|NODE|PHB|PXB|PIX|NV#|XL)\s+= ", line):
                fragment.unparsed(number, raw)
            continue
        if words[0] in columns:
            cells = [word for word in words[1 : len(columns) + 1] if _WORD.match(word)]
            if len(cells) < len(columns):
                fragment.note(f"line {number}: {len(cells)} of {len(columns)} distances; the row is cut short")
            row = dict(zip(columns, cells, strict=False))
            matrix.links[words[0]] = row
            matrix.origin[words[0]] = fragment.ref(number)
            rest = words[1 + len(cells) :]
            if rest and re.match(r"\d", rest[0]):
                matrix.cpu_affinity[words[0]] = rest[0]
                if len(rest) > 1 and re.match(r"\d", rest[1]):
                    matrix.numa_affinity[words[0]] = rest[1]
        else:
            fragment.unparsed(number, raw)
    if matrix is not None:
        fragment.snapshot.topology = matrix
        if not matrix.links:
            fragment.note("nvidia-smi topo -m: no row below the header")
