"""``lspci -t``, ``-tv``, ``-tvv``, ``-tnn``: the PCI tree drawn with characters.

Source of the drawing: pciutils/pciutils, ls-tree.c. A line that starts with ``+-`` or ``\\-`` continues the node whose
branch was opened in that column by an earlier line.
"""

from __future__ import annotations

import re

from kilter.facts.pci import PciDevice
from kilter.intake.captures.bounded import lines
from kilter.intake.captures.lspci_names import ids_of
from kilter.intake.fragment import Block, Fragment

_ROOT = re.compile(r"\[([0-9a-f]{4,8})(?::([0-9a-f]{2})(?:-[0-9a-f]{2})?)?\]")
_BUS = re.compile(r"\[([0-9a-f]{2})(?:-([0-9a-f]{2}))?\]")
_DEVICE = re.compile(r"([0-9a-f]{2})\.([0-7])")
_LINE = re.compile(r"[ |]*(?:[-+\\]-|-)")

#: (domain, bus, address of the bridge above; "" = root)
_Node = tuple[str, int, str]


def parse(block: Block, fragment: Fragment) -> None:
    """``parent``, ``secondary_bus``, ``subordinate_bus`` and, with ``-v``, vendor and description of each function."""
    branches: dict[int, _Node | None] = {}
    for number, raw in lines(block, fragment):
        line = raw.rstrip()
        if not line:
            continue
        if not _LINE.match(line) or not _draw(line, number, fragment, branches):
            fragment.unparsed(number, raw)


def _draw(line: str, number: int, fragment: Fragment, branches: dict[int, _Node | None]) -> bool:
    """Place what one line shows; False when it cannot be placed."""
    at = len(line) - len(line.lstrip(" |"))
    node: _Node | None = None
    if line[at] in "+\\":
        # Pastes lose or gain one leading blank.
        column = next((c for c in (at, at + 1, at - 1) if c in branches), None)
        if column is None:
            return False
        node = branches[column]
        for deeper in [c for c in branches if c > column]:
            del branches[deeper]
        at += 2
    elif at == 0:
        branches.clear()
    else:
        return False
    placed = False
    while at < len(line):
        char = line[at]
        if char == "-":
            at += 1
        elif char in "+\\" and line[at + 1 : at + 2] == "-":
            branches[at] = node
            at += 2
        elif char == "[":
            root, bus = _ROOT.match(line, at), _BUS.match(line, at)
            if root is not None:
                parent = node[2] if node else ""
                node = (root[1], int(root[2] or "0", 16), parent)
                at = root.end()
            elif bus is not None and node is not None:
                node = (node[0], int(bus[1], 16), node[2])
                at = bus.end()
            else:
                return placed
            placed = True
        else:
            match = _DEVICE.match(line, at)
            if match is None or node is None:
                return placed
            placed = True
            at = match.end()
            address = f"{node[0]}:{node[1]:02x}:{match[1]}.{match[2]}"
            if int(match[1], 16) > 31:
                return False
            device = fragment.device(address, number)
            ref = fragment.ref(number)
            device.put("parent", node[2], ref)
            if line.startswith("  ", at):
                _describe(device, line[at:].strip(), ref)
                return True
            below = _BUS.match(line, at + 1)
            if below is not None:
                device.put("secondary_bus", int(below[1], 16), ref)
                device.put("subordinate_bus", int(below[2] or below[1], 16), ref)
                node = (node[0], int(below[1], 16), device.address)
                at = below.end()
            elif line[at:].strip("-"):
                # A bridge whose buses carry domains, or one that was never set up.
                node = (node[0], node[1], device.address)
    return placed


def _describe(device: PciDevice, text: str, ref: tuple[int, int]) -> None:
    vendor, number, words = ids_of(text)
    device.put("vendor_id", vendor, ref)
    device.put("device_id", number, ref)
    device.put("description", words, ref)
