from pathlib import Path

import pytest
from hypothesis import given, settings

from kilter.facts.host import UNLIMITED
from mangle import check_references, long_lines, mangled, parse_text

DATA = Path(__file__).parents[2] / "data/host-commands"
SHELLS = {name: (DATA / f"ulimit-{name}.txt").read_text() for name in ("bash", "dash", "busybox")}
ZSH = """\
-t: cpu time (seconds)              unlimited
-f: file size (blocks)              unlimited
-d: data seg size (kbytes)          unlimited
-s: stack size (kbytes)             8192
-c: core file size (blocks)         0
-m: resident set size (kbytes)      unlimited
-u: processes                       96365
-n: file descriptors                20000
-l: locked-in-memory size (kbytes)  8192
-v: address space (kbytes)          unlimited
-x: file locks                      unlimited
"""


@pytest.mark.parametrize("text", [*SHELLS.values(), ZSH], ids=[*SHELLS, "zsh"])
def test_every_shell_tells_the_same_limits(text):
    fragment = parse_text("ulimit", text)
    limits = fragment.snapshot.limits
    assert fragment.unplaced == []
    assert (limits.scope, limits.memlock_bytes, limits.stack_bytes) == ("shell", 8 << 20, 8 << 20)
    assert (limits.nofile, limits.nproc, limits.core_bytes) == (20000, 96365, 0)


@pytest.mark.parametrize("text", [*SHELLS.values(), ZSH], ids=[*SHELLS, "zsh"])
def test_unlimited_is_minus_one(text):
    lines = [line.replace("8192", "unlimited") if "lock" in line else line for line in text.splitlines()]
    assert parse_text("ulimit", "\n".join(lines)).snapshot.limits.memlock_bytes == UNLIMITED


def test_the_64_kb_default_of_old_systems():
    limits = parse_text(
        "ulimit", "core file size          (blocks, -c) 4\nmax locked memory       (kbytes, -l) 64\n"
    ).snapshot.limits
    assert (limits.memlock_bytes, limits.core_bytes) == (64 << 10, 4096)


def test_foreign_lines_are_kept():
    assert parse_text("ulimit", SHELLS["bash"] + "done 12\n").unplaced[0][1] == "done 12"


@settings(max_examples=80, deadline=None)
@given(mangled(SHELLS["bash"]) | mangled(SHELLS["dash"]) | mangled(ZSH))
def test_no_damage_makes_the_parser_fail(text):
    check_references(parse_text("ulimit", text), text)


STARTS = ["max locked memory (kbytes, -l) ", "-l: ", ""]


@settings(max_examples=60, deadline=None)
@given(long_lines(*STARTS))
def test_lines_of_any_length_are_survived(text):
    parse_text("ulimit", text)
