"""Reading the tables in ``knowledge/tables`` without parsing more of them than is asked for.

The tables are YAML, the one source that people edit. Parsing the largest (XID, SXid) whole takes 50-100 ms, more than the
command line may spend, and a diagnosis needs a handful of entries. So a table is cut by its text first: top-level keys start
at column 0, and the entries of a list start with the same ``- key: value`` at one indentation. Only the slice asked for is
parsed. A test compares every slice with the whole file.
"""

from __future__ import annotations

import functools
import re
from collections.abc import Mapping
from pathlib import Path
from typing import Any, TypeVar

import msgspec

T = TypeVar("T")

_FOLDER = Path(__file__).parent / "tables"
_TOP_KEY = re.compile(r"^(\w+):", re.MULTILINE)


def parse(text: str) -> Any:
    """YAML to plain Python values; the C parser where PyYAML has it."""
    import yaml  # late: 15 ms that most commands do not need

    return yaml.load(text, Loader=getattr(yaml, "CSafeLoader", yaml.SafeLoader))  # noqa: S506 (both are safe loaders)


def typed(value: object, kind: type[T]) -> T:
    """``value`` of a table as ``kind``, strictly: a wrong type or an unknown key is an error of the table.

    Raises :class:`msgspec.ValidationError`, which says where.
    """
    return msgspec.convert(value, kind, strict=True)


class Table:
    """One YAML file of ``knowledge/tables``, read and parsed piece by piece. Use :func:`table`."""

    def __init__(self, name: str, text: str) -> None:
        self.name = name
        self.text = text

    @functools.cached_property
    def sections(self) -> dict[str, str]:
        """Top-level key -> its raw text, in file order."""
        starts = list(_TOP_KEY.finditer(self.text))
        ends = [m.start() for m in starts[1:]] + [len(self.text)]
        return {m[1]: self.text[m.start() : end] for m, end in zip(starts, ends, strict=True)}

    @functools.cached_property
    def _heads(self) -> dict[str, Any]:
        return {}

    def head(self, key: str) -> Any:
        """The value of one top-level key (parsed once); ``None`` where the table has no such key."""
        if key not in self._heads:
            section = self.sections.get(key)
            self._heads[key] = None if section is None else parse(section)[key]
        return self._heads[key]

    def entry(self, section: str, key: str, value: str | int) -> Any:
        """The entry of list ``section`` whose first line is ``- key: value``, or ``None``.

        ``key`` must be the first key of the entries and ``value`` a plain scalar, as the table writes it.
        """
        text = self.sections.get(section, "")
        start = text.find(f"\n- {key}: {value}\n")
        if start < 0:
            return None
        end = text.find("\n- ", start + 1)
        return parse(text[start : None if end < 0 else end])[0]

    def member(self, section: str, key: str) -> Any:
        """The value of ``key`` in mapping ``section`` whose members are one line each, or ``None``."""
        text = self.sections.get(section, "")
        start = text.find(f"\n  {key}: ")
        if start < 0:
            return None
        end = text.find("\n", start + 1)
        return parse(text[start : None if end < 0 else end])[key]

    def keys(self, section: str, key: str) -> list[str]:
        """The values of ``key`` that open the entries of list ``section``, as written, without parsing them."""
        return re.findall(rf"^- {re.escape(key)}: (.*)$", self.sections.get(section, ""), re.MULTILINE)

    def members(self, section: str) -> list[str]:
        """The keys of mapping ``section``, without parsing their values."""
        return re.findall(r"^  ([\w.-]+): ", self.sections.get(section, ""), re.MULTILINE)

    def source_names(self, keys: tuple[str, ...] | list[str]) -> list[str]:
        """Full names of source keys, by the table's ``sources`` mapping; a key that is not there is its own name."""
        known = self.head("sources")
        if not isinstance(known, Mapping):
            return list(keys)
        return [str(known.get(k, k)) for k in keys]


@functools.cache
def table(name: str) -> Table:
    """The table ``tables/<name>.yaml``; its text is read once a process."""
    return Table(name, (_FOLDER / f"{name}.yaml").read_text(encoding="utf-8"))


def folded(name: str) -> str:
    """``name`` for comparing: lower case, every run of other characters one underscore (``HW Slowdown`` -> ``hw_slowdown``)."""
    return re.sub(r"[^a-z0-9]+", "_", name.lower()).strip("_")
