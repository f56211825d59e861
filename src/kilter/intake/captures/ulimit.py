"""``ulimit -a`` of bash, dash, busybox and zsh: the soft limits of the shell.

Sources of the formats: bash, builtins/ulimit.def; dash, src/miscbltin.c; busybox, shell/shell_common.c; zsh,
Src/Builtins/rlimits.c.
"""

from __future__ import annotations

import re

from kilter.facts.base import Reason
from kilter.facts.host import UNLIMITED
from kilter.intake.captures.bounded import lines
from kilter.intake.fragment import Block, Fragment

_LINE = re.compile(r"(.{1,100}?)\s{1,100}(-?\d{1,20}|unlimited|hard|soft)$")
_OPTION = re.compile(r"(?:^|[(, ])-([a-zA-Z])(?:[):]|$)")
_FIELDS = {"l": "memlock_bytes", "s": "stack_bytes", "n": "nofile", "u": "nproc", "c": "core_bytes"}
_WORDS = {"locked memory": "l", "stack": "s", "nofiles": "n", "process": "u", "coredump": "c", "memory": "m"}
_PLAIN = re.compile(r"(time|file|data|stack|coredump|memory|locked memory|process|nofiles|vmemory|locks|rtprio|swap|sbsize)\b")


def _factor(text: str, option: str) -> int:
    if "kbytes" in text or "(kb" in text or "kilobytes" in text:
        return 1024
    if "blocks" in text:
        # bash, whose spelling is "(blocks, -c)", counts core files in blocks of 1024 bytes unless in POSIX mode; others in 512.
        return 1024 if f"(blocks, -{option})" in text else 512
    return 1


def parse(block: Block, fragment: Fragment) -> None:
    """``snapshot.limits`` of scope "shell"; -1 is unlimited."""
    limits = fragment.snapshot.limits
    for line, raw in lines(block, fragment):
        text = raw.strip()
        if not text:
            continue
        match = _LINE.match(text)
        option = _OPTION.search(match[1]) if match else None
        plain = _PLAIN.match(text)
        if match is None or (option is None and plain is None):
            fragment.unparsed(line, raw)
            continue
        if limits.scope is None:
            limits.put("scope", "shell", fragment.ref(line))
        letter = option[1] if option else _WORDS.get(plain[1] if plain else "", "")
        field = _FIELDS.get(letter)
        if field is None:
            continue
        if match[2] == "unlimited" or match[2] == "-1":
            limits.put(field, UNLIMITED, fragment.ref(line))
        elif match[2].isdecimal():
            limits.put(field, int(match[2]) * _factor(match[1], letter), fragment.ref(line))
        else:
            limits.lacks(field, Reason.NOT_READABLE, f"ulimit prints {match[2]!r}")
