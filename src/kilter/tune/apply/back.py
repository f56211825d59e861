"""The way back from a journal's records: what has to be put back, in which order. kilter follows it, and so does the script beside the journal."""

from __future__ import annotations

from collections.abc import Iterable
from typing import TYPE_CHECKING, NamedTuple

if TYPE_CHECKING:
    from kilter.tune.apply.journal import FileBefore, Record


class File(NamedTuple):
    """A file gets its first state again. ``known``: the sums that it had by this application ("" = gone); None = it may have any, since a
    step was cut short. ``again``: the step whose command makes it anew where somebody else has written it since."""

    file: FileBefore
    known: frozenset[str] | None
    again: int | None
    group: str


class Value(NamedTuple):
    """A file of the kernel gets its first value again; ``known`` as above, values that it read back."""

    path: str
    before: str
    known: frozenset[str] | None
    group: str


class Raw(NamedTuple):
    path: str
    offset: int
    before: bytes
    group: str


class Folder(NamedTuple):
    """A folder that was made for a file goes, if it is empty."""

    path: str
    group: str


class Undo(NamedTuple):
    argv: list[str]
    group: str


Action = File | Value | Raw | Folder | Undo


def way_back(records: Iterable[Record]) -> list[Action]:
    """Actions in their order: the last step first; a place that several steps wrote is put back where the first of them is undone."""
    steps = list(records)
    first: dict[str, int] = {}
    known: dict[str, set[str] | None] = {}
    for record in steps:
        for path, before in _before(record):
            first.setdefault(path, record.number)
            sums = known.setdefault(path, set())
            if not record.done:
                known[path] = None
            elif sums is not None:
                sums |= {before, record.after.get(path, "")}
    actions: list[Action] = []
    for record in reversed(steps):
        again = record.number if record.again else None
        files = [file for file in record.files if first[file.path] == record.number]
        actions += [File(file, _frozen(known[file.path]), again, record.group) for file in files]
        actions += [Folder(path, record.group) for path in reversed(record.folders)]
        if record.kind == "poke" and first[record.path] == record.number:
            actions.append(Value(record.path, record.value, _frozen(known[record.path]), record.group))
        if record.kind == "bytes":
            actions.append(Raw(record.path, record.offset, bytes.fromhex(record.value), record.group))
        actions += [Undo(argv, record.group) for argv in record.undo]
    return actions


def _before(record: Record) -> list[tuple[str, str]]:
    """(path, sum or value before) of what a record is about."""
    if record.kind == "poke":
        return [(record.path, record.value)]
    return [(file.path, file.sha256) for file in record.files]


def _frozen(sums: set[str] | None) -> frozenset[str] | None:
    return None if sums is None else frozenset(sums)
