"""``ps``: tasks in uninterruptible sleep (state D), with the place in the kernel where they wait, if printed.

Format: procps ps(1): a header of column names, then a row a task; the last column takes the rest of the line.
"""

from __future__ import annotations

from kilter.intake.captures.bounded import lines
from kilter.intake.fragment import Block, Fragment

_STATE = ("STAT", "S")
_NAME = ("COMMAND", "CMD")
MAX_TASKS = 256


def parse(block: Block, fragment: Fragment) -> None:
    """``snapshot.host.blocked_tasks``: ``"4242 nvidia-smi (rwsem_down_write_slowpath)"``; [] when none is blocked."""
    columns: list[str] = []
    found: list[str] = []
    first = None
    for number, raw in lines(block, fragment):
        words = raw.split()
        if not words:
            continue
        if "PID" in words and any(name in words for name in _STATE):
            columns = words
            continue
        state = next((columns.index(name) for name in _STATE if name in columns), None)
        name = next((columns.index(one) for one in _NAME if one in columns), None)
        if state is None or name is None or len(words) < len(columns) or not words[columns.index("PID")].isdigit():
            fragment.unparsed(number, raw)
            continue
        cells = raw.split(None, len(columns) - 1)
        if not cells[state].startswith("D") or len(found) >= MAX_TASKS:
            continue
        command = cells[name].split()[0].rpartition("/")[2]
        wait = cells[columns.index("WCHAN")] if "WCHAN" in columns else ""
        found.append(f"{cells[columns.index('PID')]} {command}" + (f" ({wait})" if wait not in ("", "-") else ""))
        first = first or number
    if columns:
        fragment.snapshot.host.put("blocked_tasks", found, fragment.ref(first or block.first_line))
