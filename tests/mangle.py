"""Help for tests of parsers: damaged captures, and a short way to run one parser on a text.

``mangled(text)`` is a hypothesis strategy of texts as they reach us in practice: cut at a byte, with lines lost, repeated,
swapped or indented otherwise, with binary or foreign lines in between. Import it as ``from mangle import mangled``.
"""

from __future__ import annotations

import ast
import importlib
from pathlib import Path

from hypothesis import strategies as st

from kilter.facts.base import Source
from kilter.intake.fragment import Block, Fragment

FOREIGN = [
    "",
    "\x00\x01\x02\xff\ufffd",
    "]0;root@host: ~\x07root@host:~# ",
    "--More--",
    "\x1b[01;31m\x1b[Kerror\x1b[m\x1b[K",
    "command not found",
    "N/A",
    ":" * 40,
    "= = =",
    "9" * 400,
    "4²5",
    "٣٤",
    "0x" + "f" * 80,
    "名前：値　架构",
    "-----BEGIN OPENSSH PRIVATE KEY-----",
    '{"a": [1, 2',
    "<xml attr='",
    "\t\t\t",
    "node 99999999999999999999 cpus: 1-",
]


def _cut(lines: list[str], at: int, amount: int, word: str) -> list[str]:
    data = "\n".join(lines).encode("utf-8", "surrogatepass")
    return data[: at % (len(data) + 1)].decode("utf-8", "replace").split("\n")


def _behead(lines: list[str], at: int, amount: int, word: str) -> list[str]:
    return lines[at % (len(lines) + 1) :]


def _drop(lines: list[str], at: int, amount: int, word: str) -> list[str]:
    start = at % (len(lines) + 1)
    return lines[:start] + lines[start + amount :]


def _repeat(lines: list[str], at: int, amount: int, word: str) -> list[str]:
    start = at % (len(lines) + 1)
    return lines[: start + amount] + lines[start:]


def _swap(lines: list[str], at: int, amount: int, word: str) -> list[str]:
    start = at % (len(lines) + 1)
    return lines[:start] + lines[start : start + amount][::-1] + lines[start + amount :]


def _insert(lines: list[str], at: int, amount: int, word: str) -> list[str]:
    start = at % (len(lines) + 1)
    return [*lines[:start], word, *lines[start:]]


def _splice(lines: list[str], at: int, amount: int, word: str) -> list[str]:
    """Something foreign in the middle of a line."""
    if not lines:
        return lines
    at %= len(lines)
    line = lines[at]
    middle = amount * 7 % (len(line) + 1)
    return [*lines[:at], line[:middle] + word + line[middle:], *lines[at + 1 :]]


def _flatten(lines: list[str], at: int, amount: int, word: str) -> list[str]:
    """Indentation lost, as chat programs do."""
    return [line.strip() for line in lines]


def _join(lines: list[str], at: int, amount: int, word: str) -> list[str]:
    start = at % (len(lines) + 1)
    return [*lines[:start], "".join(lines[start : start + amount]), *lines[start + amount :]]


HARMS = [_cut, _behead, _drop, _repeat, _swap, _insert, _splice, _flatten, _join]


@st.composite
def mangled(draw: st.DrawFn, text: str) -> str:
    """A damaged copy of ``text``: up to four kinds of damage, one after the other."""
    lines = text.split("\n")
    for harm in draw(st.lists(st.sampled_from(HARMS), min_size=1, max_size=4)):
        word = draw(st.sampled_from(FOREIGN) | st.text(max_size=30))
        lines = harm(lines, draw(st.integers(0, 1 << 20)), draw(st.integers(1, 40)), word)
    return "\n".join(lines)


def written_samples() -> list[tuple[str, str]]:
    """(module, text) of the outputs of tools that stand in the tests themselves, as texts of three lines or more."""
    paths = [path for path in sorted(Path(__file__).parent.rglob("test_*.py")) if path.parent.name in ("captures", "diagnose")]
    return [
        (path.stem, node.value)
        for path in paths
        for node in ast.walk(ast.parse(path.read_text(encoding="utf-8")))
        if isinstance(node, ast.Constant) and isinstance(node.value, str) and node.value.count("\n") > 2
    ]


def parse_text(module: str, text: str, *, command: str = "", tool: str = "") -> Fragment:
    """Run ``kilter.intake.captures.<module>`` on ``text`` as one block of ``capture.txt``."""
    block = Block(source=Source(name="capture.txt", tool=tool or module, command=command), lines=text.splitlines())
    fragment = Fragment(block.source)
    importlib.import_module(f"kilter.intake.captures.{module}").parse(block, fragment)
    return fragment


def check_references(fragment: Fragment, text: str) -> None:
    """Every line number that a fragment cites lies inside the text."""
    last = max(len(text.splitlines()), 1)
    entities = [*(fragment.snapshot.pci or {}).values(), *(fragment.snapshot.rdma or []), *(fragment.snapshot.nics or [])]
    entities += [
        fragment.snapshot.cpu,
        fragment.snapshot.memory,
        fragment.snapshot.limits,
        fragment.snapshot.kernel,
        fragment.snapshot.host,
    ]
    for entity in entities:
        for _, line in entity.origin.values():
            assert 0 <= line <= last
    for line, content in fragment.unplaced:
        assert 1 <= line <= last
        assert content.strip()


#: Pieces that make regular expressions slow, or numbers too large, when repeated.
PIECES = [*'a ()0:"\\-|+=/\t[{', "0 ", "9.", "1,", "1-", "a+ ", "x: ", "(rev a1) "]


def long_lines(*prefixes: str) -> st.SearchStrategy[str]:
    """Texts whose last line is a prefix (which may hold whole lines) and then one piece, repeated a few thousand times."""
    return st.builds(
        lambda prefix, piece, length: prefix + piece * length,
        st.sampled_from(prefixes),
        st.sampled_from(PIECES),
        st.sampled_from([50, 400, 3900, 100_000]),
    )
