"""``chronyc tracking`` and ``timedatectl``: whether the node's clock is right.

Formats: chrony client.c (process_cmd_tracking), systemd timedatectl.c (print_status_info).
"""

from __future__ import annotations

import re

from kilter.intake.captures.bounded import lines
from kilter.intake.fragment import Block, Fragment

_PAIR = re.compile(r"\s*([A-Z][\w ()/-]{1,30}?)\s*: (.*)$")
_OFFSET = re.compile(r"(\d{1,12}\.\d{1,12}) seconds (slow|fast) of NTP time")


def parse(block: Block, fragment: Fragment) -> None:
    """``host.clock_offset_s`` (positive: the clock is fast) and ``host.clock_synchronized``."""
    host = fragment.snapshot.host
    for number, raw in lines(block, fragment):
        match = _PAIR.match(raw)
        if match is None:
            if raw.strip():
                fragment.unparsed(number, raw)
            continue
        key, value = match[1], match[2].strip()
        if key == "System time" and (offset := _OFFSET.match(value)):
            host.put("clock_offset_s", float(offset[1]) * (1 if offset[2] == "fast" else -1), fragment.ref(number))
        elif key == "Leap status":
            host.put("clock_synchronized", value != "Not synchronised", fragment.ref(number))
        elif key in ("System clock synchronized", "NTP synchronized"):
            host.put("clock_synchronized", value == "yes", fragment.ref(number))
