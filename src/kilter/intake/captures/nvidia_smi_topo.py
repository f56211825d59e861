"""``nvidia-smi topo -m`` and Kunlunxin's ``xpu-smi topo -m``: the matrix of distances."""

from __future__ import annotations

import re

from kilter.facts.accelerator import TopologyMatrix
from kilter.intake.captures.bounded import lines
from kilter.intake.fragment import Block, Fragment

_COLOUR = re.compile(r"\x1b\[[0-9;]*m")
_NAME = re.compile(r"(?:GPU|XPU|NIC|mlx\w+_|CPU)\d*$")
_WORD = re.compile(r"(?:X|SYS|NODE|PHB|PXB|PIX|PXN|SOC|PSB|NV\d+|XL\d*|SELF|DIS|N/A)$")
#: cells of ``topo -p2p``: OK, or why not
_P2P = re.compile(r"(?:X|OK|CNS|GNS|TNS|NS|U|DR)$")
_LEGEND = re.compile(r"\s+(NIC\d+|HCA\d+): *(\S+)\s*$")
_EXTRA = re.compile(r"(CPU Affinity|NUMA Affinity|GPU NUMA ID)")


def _is_p2p(block: Block) -> bool:
    """Whether the cells are those of ``topo -p2p``: that matrix tells of capabilities, not of distances."""
    cells = [word for line in block.lines[1:9] for word in _COLOUR.sub("", line).split()[1:]]
    return "topo -p2p" in block.source.command or "OK" in cells or "CNS" in cells or "Status Ok" in "\n".join(block.lines[:40])


def _p2p(block: Block, fragment: Fragment) -> None:
    """Pairs of GPUs that cannot reach each other become a note: no rule asks for more."""
    names: list[str] = []
    bad: dict[str, list[str]] = {}
    for number, raw in block.numbered():
        words = _COLOUR.sub("", raw).split()
        if words and not names and all(_NAME.match(word) for word in words):
            names = words
        elif words and words[0] in names and len(words) == len(names) + 1 and all(_P2P.match(word) for word in words[1:]):
            for name, cell in zip(names, words[1:], strict=True):
                if cell not in ("X", "OK") and names.index(words[0]) < names.index(name):
                    bad.setdefault(cell, []).append(f"{words[0]}-{name}")
        elif words and not re.match(r"(?:Legend|X|OK|CNS|GNS|TNS|NS|U|DR)\b", raw.strip()):
            fragment.unparsed(number, raw)
    for cell, pairs in bad.items():
        fragment.note(
            f"nvidia-smi topo -p2p: {cell} between {', '.join(pairs[:8])}"
            + (f" and {len(pairs) - 8} more pairs" if len(pairs) > 8 else "")
        )


def parse(block: Block, fragment: Fragment) -> None:
    """Fill ``snapshot.topology``. Real outputs separate by tabs; pastes often turn these into spaces, so cells are found by content."""
    if _is_p2p(block):
        _p2p(block, fragment)
        return
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
