"""Standard operating procedures: one Markdown file each, see ``README.md`` in this folder for their form and placeholders."""

from __future__ import annotations

import functools
import re
from pathlib import Path

import msgspec

_FOLDER = Path(__file__).parent

#: what may stand in place of a placeholder; a value with anything else (it was read from a machine) stays out of the commands
_PLAIN = re.compile(r"[A-Za-z0-9][A-Za-z0-9._:-]{0,252}")

PLACEHOLDERS = ("node", "gpu", "address", "hca", "interface", "peer", "job", "bmc")


class Sop(msgspec.Struct, frozen=True):
    id: str  # "SOP-BUS"
    title: str
    text: str  # Markdown, placeholders not filled

    @property
    def purpose(self) -> str:
        """The purpose section as one line."""
        return " ".join(self.section("Purpose").split())

    def section(self, name: str) -> str:
        """The text of a section whose heading starts with ``name``, or ``""``."""
        match = re.search(rf"^## {re.escape(name)}[^\n]*\n(.*?)(?=^## |\Z)", self.text, re.MULTILINE | re.DOTALL)
        return match[1].strip() if match else ""


@functools.cache
def all_ids() -> tuple[str, ...]:
    """Ids of all procedures, sorted."""
    return tuple(sorted(p.stem for p in _FOLDER.glob("SOP-*.md")))


@functools.cache
def load(sop_id: str) -> Sop:
    """The procedure ``sop_id``, in any case ("sop-bus").

    Raises :class:`KeyError` for an id that does not exist.
    """
    name = sop_id.strip().upper()
    if name not in all_ids():
        raise KeyError(f"no SOP {sop_id!r}; there are {', '.join(all_ids())}")
    text = (_FOLDER / f"{name}.md").read_text(encoding="utf-8")
    title = text.split("\n", 1)[0].partition(": ")[2]
    return Sop(name, title, text)


def fill(text: str, **known: str | int) -> str:
    """``text`` with the placeholders of ``known`` filled in: ``fill(sop.text, node="gpu-017", address="0000:9b:00.0")``.

    Values that are not plain names stay out, since the commands are made for pasting into a shell.
    Raises :class:`TypeError` for a name that is no placeholder.
    """
    for name, value in known.items():
        if name not in PLACEHOLDERS:
            raise TypeError(f"{name!r} is no placeholder; there are {', '.join(PLACEHOLDERS)}")
        if _PLAIN.fullmatch(str(value)):
            text = text.replace("{" + name + "}", str(value))
    return text
