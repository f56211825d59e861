"""JSON inputs that are one document: kilter's own snapshots, results of serving benchmarks, and maps of sysfs paths to contents."""

from __future__ import annotations

from typing import Any

import msgspec

from kilter.facts.base import Source
from kilter.facts.case import SCHEMA_VERSION, Snapshot
from kilter.intake.fragment import Fragment
from kilter.intake.tree import TextTree


def read_document(name: str, text: str) -> Fragment | None:
    """The fragment of a JSON document that kilter knows, else None."""
    head = text[:4096].lstrip("\ufeff \t\r\n")
    if not head.startswith("{"):
        return None
    if '"schema"' in head and ('"kilter"' in head or '"sources"' in head):
        return _snapshot(name, text.encode("utf-8", "replace"))
    if '"request_throughput"' in head or '"load_summary"' in head:
        return _serving(name, text)
    if '"/sys/' in head or '"/proc/' in head:
        return _path_map(name, text)
    return None


def snapshot_of_bytes(name: str, data: bytes) -> Fragment | None:
    """The fragment of a snapshot's file, read without making text of it; None for anything else, also for a snapshot that is broken."""
    if not data.startswith(b"{") or b'"schema"' not in data[:4096] or b'"kilter"' not in data[:4096]:
        return None
    fragment = _snapshot(name, data)
    return fragment if fragment.snapshot.schema else None


def decode_snapshot(data: bytes) -> Snapshot:
    """A kilter snapshot of a file.

    Raises:
        msgspec.DecodeError, RecursionError: it is none.
    """
    return _DECODER.decode(data.removeprefix(b"\xef\xbb\xbf"))


_DECODER = msgspec.json.Decoder(Snapshot)


def _snapshot(name: str, data: bytes) -> Fragment:
    source = Source(name=name, tool="kilter snapshot")
    try:
        snapshot = decode_snapshot(data)
    except (msgspec.DecodeError, RecursionError) as error:
        fragment = Fragment(source)
        fragment.note(f"not a kilter snapshot that this version reads: {error}")
        return fragment
    fragment = Fragment(source)
    if snapshot.schema > SCHEMA_VERSION:
        fragment.note(
            f"written by a newer kilter (schema {snapshot.schema}, this one knows {SCHEMA_VERSION}): fields it does not know are ignored"
        )
    fragment.snapshot = snapshot
    fragment.events = snapshot.events
    snapshot.events = []
    source.node, source.time = snapshot.node, snapshot.time
    return fragment


def _serving(name: str, text: str) -> Fragment | None:
    from kilter.intake.captures.serving_bench import read_json

    fragment = Fragment(Source(name=name, tool="serving benchmark"))
    return fragment if read_json(name, text, fragment) else None


def _path_map(name: str, text: str) -> Fragment | None:
    from kilter.intake.live import read_tree

    try:
        content: Any = msgspec.json.decode(text.encode("utf-8", "replace"))
    except (msgspec.DecodeError, RecursionError):
        return None
    fragment = Fragment(Source(name=name, tool="sysfs"))
    tree = TextTree(name)
    lines = {path: number for number, line in enumerate(text.split("\n"), 1) if (path := line.partition('": ')[0].strip(' "\t'))}
    for path, value in content.items():
        if isinstance(path, str) and isinstance(value, str):
            tree.add(path, value, lines.get(path, 0))
    read_tree(tree, fragment.snapshot)
    return fragment
