"""The lines of a block, without those that no tool prints: parsers then need no care for lines of a megabyte."""

from __future__ import annotations

import csv
import re
from collections.abc import Iterator

from kilter.intake.fragment import Block, Fragment

#: The longest ordinary lines are the CPU flags of /proc/cpuinfo and lscpu (about 2 KiB) and the kernel's boot line (4 KiB).
MAX_LINE = 4096
#: What is kept of a longer line, to show it.
_SHOWN = 200
#: No tool prints a number of so many digits: with nine more it is no float any more (1.8e308), and Python reads none of 4300.
MAX_DIGITS = 300
_DIGITS = re.compile(rf"(?<!\d)\d{{{MAX_DIGITS}}}")


def is_absurd(line: str) -> bool:
    """Whether a line holds a number that no reader should try to read."""
    return len(line) >= MAX_DIGITS and _DIGITS.search(line) is not None


def lines(block: Block, fragment: Fragment, *, limit: int = MAX_LINE) -> Iterator[tuple[int, str]]:
    """(line number, text) of each line; one longer than ``limit`` characters goes to ``fragment.unparsed``, shortened."""
    for number, text in enumerate(block.lines, block.first_line):
        if len(text) <= limit:
            yield number, text
        else:
            fragment.unparsed(number, text[:_SHOWN])


def csv_row(line: str) -> list[str]:
    """The cells of a line of CSV, without blanks around them; none where it is no CSV (a carriage return inside a cell without quotes)."""
    try:
        return [cell.strip() for cell in next(csv.reader([line], skipinitialspace=True), [])]
    except csv.Error:
        return []
