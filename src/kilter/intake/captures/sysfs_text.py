"""``grep -r . /sys/...`` and ``/proc``: lines of ``path:value``, links as ``path -> target``. kilter's collector writes this too."""

from __future__ import annotations

import re

from kilter.intake.captures.bounded import lines
from kilter.intake.fragment import Block, Fragment
from kilter.intake.tree import TextTree

#: A path; a colon belongs to it only inside a PCI address or the name of a PCI root.
_PATH = re.compile(
    r"(/(?:sys|proc)/(?:[0-9a-f]{4,8}:[0-9a-f]{2}:[0-9a-f]{2}\.[0-7]|pci[0-9a-f]{4}:[0-9a-f]{2}|pci_bus/[0-9a-f]{4}:[0-9a-f]{2}|[^\s:])*)(:| -> )(.*)$"
)


def parse(block: Block, fragment: Fragment) -> None:
    """Fill the facts that the live readers find in this piece of a tree."""
    from kilter.intake.live import read_tree

    tree = TextTree(block.source.name)
    for number, line in lines(block, fragment, limit=1 << 16):
        match = _PATH.match(line)
        if match is None:
            fragment.unparsed(number, line)
        elif match.group(2) == ":":
            tree.add(match.group(1), match.group(3), number)
        else:
            tree.add_link(match.group(1), match.group(3), number)
    read_tree(tree, fragment.snapshot)
