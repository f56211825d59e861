"""The lines of a block, without those that no tool prints: parsers then need no care for lines of a megabyte."""

from __future__ import annotations

from collections.abc import Iterator

from kilter.intake.fragment import Block, Fragment

#: The longest ordinary lines are the CPU flags of /proc/cpuinfo and lscpu (about 2 KiB) and the kernel's boot line (4 KiB).
MAX_LINE = 4096
#: What is kept of a longer line, to show it.
_SHOWN = 200


def lines(block: Block, fragment: Fragment, *, limit: int = MAX_LINE) -> Iterator[tuple[int, str]]:
    """(line number, text) of each line; one longer than ``limit`` characters goes to ``fragment.unparsed``, shortened."""
    for number, text in enumerate(block.lines, block.first_line):
        if len(text) <= limit:
            yield number, text
        else:
            fragment.unparsed(number, text[:_SHOWN])
