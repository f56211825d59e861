"""``nvidia-bug-report.sh``: sections behind a line of underscores, each with the file or command it holds.

A section begins with 44 underscores and a blank line; then ``*** /path`` and ``*** ls: ...`` (a file), or the command line itself
(``/sbin/lspci -d "10de:*" -v -xxx``). Missing files print ``*** /path does not exist``. Form: public reports of 2009 to 2024 and the scripts that
drivers 390 to 570 install. What the sections hold is recognised by content like any paste; the headers only cut them apart.
"""

from __future__ import annotations

import re

#: A section's head as one alternative of intake/paste.py's PROMPT; the named group is the command. Linear: no repeats of repeats.
HEADER = r"_{40,60}\n\s?\n?(?:\*\*\* )?(?P<section>[^\n_][^\n]{0,400})(?:\n\*\*\* ls: [^\n]*)?"
_SECTION = re.compile(rf"^{HEADER}$", re.M)
_UNAME = re.compile(r"^uname: Linux ([\w.-]+) ", re.M)
_ABSENT = re.compile(r" (?:does not exist|not found|is not available)\.?$")
_START = "Start of NVIDIA bug report log file"


def is_bug_report(text: str) -> bool:
    """Whether ``text`` is such a report: its first section says so."""
    return _START in text[:4096]


def node(text: str) -> str:
    """The host that the report's prologue names, or ""."""
    match = _UNAME.search(text[:8192])
    return match.group(1) if match else ""


def split(text: str) -> list[tuple[str, int, str]]:
    """(command or path, number of the section's first line, its text) of each section, in order; sections of absent files are left out.

    The prologue is the section named "nvidia-bug-report.sh"; what stands before the first head is one named "".
    """
    sections: list[tuple[str, int, str]] = []
    heads = list(_SECTION.finditer(text))
    if not heads:
        return [("", 1, text)] if text.strip() else []
    if text[: heads[0].start()].strip():
        sections.append(("", 1, text[: heads[0].start()]))
    line = 1
    counted = 0
    for index, head in enumerate(heads):
        end = heads[index + 1].start() if index + 1 < len(heads) else len(text)
        start = min(head.end() + 1, end)
        line += text.count("\n", counted, start)
        counted = start
        command = head.group("section").strip()
        if command.startswith(_START):
            command = "nvidia-bug-report.sh"
        body = text[start:end]
        if body.strip() and not (_ABSENT.search(command) and not body.strip()):
            sections.append((command, line, body))
    return sections
