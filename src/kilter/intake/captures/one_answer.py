"""Commands that answer with nothing but a value: what it means is in the command behind the prompt alone.

``cat`` of a file below /sys or /proc/sys, ``systemd-detect-virt``, ``uname -r`` and ``-m``, ``getconf PAGESIZE``, ``ulimit -s``, ``-l`` and ``-n``.
"""

from __future__ import annotations

import re
from collections.abc import Callable

from kilter.facts.host import UNLIMITED
from kilter.intake.captures.bounded import lines
from kilter.intake.fragment import Block, Fragment
from kilter.intake.tree import TextTree

_Put = Callable[[Fragment, str, int], bool]


def _virtualization(fragment: Fragment, word: str, line: int) -> bool:
    if not re.fullmatch(r"[a-z0-9-]+", word):
        return False
    fragment.snapshot.host.put("virtualization", word, fragment.ref(line))
    return True


def _container(fragment: Fragment, word: str, line: int) -> bool:
    if not re.fullmatch(r"[a-z0-9-]+", word):
        return False
    fragment.snapshot.host.put("container", word, fragment.ref(line))
    return True


def _release(fragment: Fragment, word: str, line: int) -> bool:
    if not re.fullmatch(r"\d+\.\d\S*", word):
        return False
    fragment.snapshot.kernel.put("release", word, fragment.ref(line))
    return True


def _arch(fragment: Fragment, word: str, line: int) -> bool:
    if not re.fullmatch(r"\w+", word):
        return False
    fragment.snapshot.kernel.put("arch", word, fragment.ref(line))
    return True


def _page(fragment: Fragment, word: str, line: int) -> bool:
    if not re.fullmatch(r"\d{4,8}", word):
        return False
    fragment.snapshot.kernel.put("page_bytes", int(word), fragment.ref(line))
    return True


def _limit(field: str, unit: int) -> _Put:
    def put(fragment: Fragment, word: str, line: int) -> bool:
        if word != "unlimited" and not re.fullmatch(r"\d{1,15}", word):
            return False
        fragment.snapshot.limits.put("scope", "shell", fragment.ref(line))
        fragment.snapshot.limits.put(field, UNLIMITED if word == "unlimited" else int(word) * unit, fragment.ref(line))
        return True

    return put


_COMMANDS: tuple[tuple[re.Pattern[str], _Put], ...] = (
    (re.compile(r"systemd-detect-virt +(?:-c|--container)$"), _container),
    (re.compile(r"systemd-detect-virt(?: +(?:-v|--vm))?$"), _virtualization),
    (re.compile(r"uname +(?:-r|--kernel-release)$"), _release),
    (re.compile(r"uname +(?:-m|--machine)$"), _arch),
    (re.compile(r"getconf +PAGE_?SIZE$"), _page),
    (re.compile(r"ulimit +-S?s$"), _limit("stack_bytes", 1024)),
    (re.compile(r"ulimit +-S?l$"), _limit("memlock_bytes", 1024)),
    (re.compile(r"ulimit +-S?n$"), _limit("nofile", 1)),
)
_CAT = re.compile(r"cat +(/sys/\S+|/proc/sys/\S+)$")


def _file(path: str, block: Block, fragment: Fragment) -> None:
    """The values of one file, or of the files of a pattern in their order."""
    from kilter.intake.live import read_tree

    tree = TextTree(block.source.name)
    values = [(number, line) for number, line in lines(block, fragment) if line.strip()]
    if path.count("*") > 1 or any(c in path for c in "?[{") or (len(values) > 1 and "*" not in path):
        for number, line in values:
            fragment.unparsed(number, line)
        return
    for index, (number, line) in enumerate(values):
        # Which file a value came from is not told; for settings of CPUs their number is what counts.
        tree.add(path.replace("*", str(index)), line.strip(), number)
    read_tree(tree, fragment.snapshot)


def parse(block: Block, fragment: Fragment) -> None:
    """Facts of the one line that the command printed; more lines are not its own."""
    command = block.source.command.strip().removeprefix("sudo ").strip()
    if (match := _CAT.match(command)) is not None:
        _file(match[1], block, fragment)
        return
    put = next((put for pattern, put in _COMMANDS if pattern.match(command)), None)
    first = True
    for number, line in lines(block, fragment):
        word = line.strip()
        if not word:
            continue
        if put is None or not first or " " in word or not put(fragment, word, number):
            fragment.unparsed(number, line)
        first = False
