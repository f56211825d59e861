"""The kernel's build configuration: ``zcat /proc/config.gz`` or ``/boot/config-*``."""

from __future__ import annotations

import re

from kilter.intake.captures.bounded import lines
from kilter.intake.fragment import Block, Fragment
from kilter.intake.live.kernel import config_options

_LINE = re.compile(r"(?:#.*|CONFIG_\w+=.*|\s*)$")


def parse(block: Block, fragment: Fragment) -> None:
    """``kernel.config``: the options that kilter knows; all other options are read over."""
    found: dict[str, str] = {}
    first = 0
    for number, line in lines(block, fragment):
        if _LINE.match(line) is None:
            fragment.unparsed(number, line)
        elif option := config_options(line):
            first = first or number
            found |= option
    if found:
        fragment.snapshot.kernel.put("config", found, fragment.ref(first))
