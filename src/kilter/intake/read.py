"""Files, folders, archives and standard input -> a :class:`Case`."""

from __future__ import annotations

import datetime
import os
import stat
import sys
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import IO, NamedTuple

from kilter.facts.base import Source
from kilter.facts.case import Case, Input, Snapshot
from kilter.intake import bundle, large_log
from kilter.intake.captures import flight_recorder
from kilter.intake.documents import snapshot_of_bytes
from kilter.intake.encoding import decode
from kilter.intake.errors import UnusableInput as UnusableInput
from kilter.intake.fragment import Fragment
from kilter.intake.merge import assemble
from kilter.intake.paste import read_text
from kilter.intake.stored import store
from kilter.intake.unpack import (
    ARCHIVES,
    MAX_DEPTH,
    MAX_TEXT,
    Budget,
    Member,
    is_tar,
    is_zip,
    tar_members,
    unpack,
    year_of,
    zip_members,
)

#: Snapshots of more inputs than this stay in their files.
MAX_KEPT = 64
_NOTHING = Snapshot()


class _File(NamedTuple):
    name: str  # for evidence
    group: str  # node directory, "" at the top
    data: bytes
    year: int
    truncated: bool
    path: str = ""  # of the file whose bytes ``data`` are


def _limited(stream: IO[bytes], size: int = MAX_TEXT) -> tuple[bytes, bool]:
    """What a stream holds, and whether that is not all. ``size``: how much is expected (a read makes room for all that it asks for)."""
    data = stream.read(min(size, MAX_TEXT) + 1)
    if size < len(data) <= MAX_TEXT:  # a file that grows
        data += stream.read(MAX_TEXT + 1 - len(data))
    return data[:MAX_TEXT], len(data) > MAX_TEXT


def _group(label: str) -> str:
    """The node that a member of a bundle or a file of a folder belongs to, "" for one at the top."""
    first, slash, _ = label.partition("/")
    return bundle.node(label) or (first if slash else "")


def _file(path: str, name: str, group: str, fragments: list[Fragment], inputs: list[Input]) -> Iterator[_File]:
    with open(path, "rb") as stream:
        status = os.fstat(stream.fileno())
        if status.st_size > large_log.LARGE and large_log.is_log(Path(path)):
            _large(Path(path), name, group, fragments, inputs)
            return
        data, cut = _limited(stream, status.st_size or MAX_TEXT)  # files of /proc say 0
    yield from _expand(_File(name, group, data, year_of(status.st_mtime), cut, path))


def _large(path: Path, name: str, group: str, fragments: list[Fragment], inputs: list[Input]) -> None:
    """A log larger than memory should hold: its events, without its text."""
    logs = large_log.scan(path, name, year=year_of(path.stat().st_mtime))
    summary = Input(
        name=name, notes=[f"{path.stat().st_size >> 20} MiB: read as a log only, other tools' outputs in it were not looked for"]
    )
    found = logs.fragments(summary, is_kernel_log=not logs.job_lines)
    for fragment in found:
        fragment.group = group
    fragments.extend(found)
    inputs.append(summary)


def _stem(name: str) -> str:
    """What an archive without folders is filed under: its name, or the node that it names; "" for what is no archive by name."""
    base = name.replace(":", "/").rsplit("/", 1)[-1]
    stem = base.split(".")[0]
    return (bundle.node(stem) or stem) if base.endswith(ARCHIVES) else ""


def _expand(file: _File, budget: Budget | None = None, depth: int = 0) -> Iterator[_File]:
    """A plain file, or the members of an archive, also of archives and packed files in it."""
    data = file.data
    budget = budget or Budget(len(data))
    members: Iterator[Member]
    if is_zip(data):
        members = zip_members(data, file.year, budget)
    else:
        unpacked, cut = unpack(data, budget)
        if not is_tar(unpacked) and not is_zip(unpacked):
            yield file._replace(data=unpacked, truncated=file.truncated or cut, path=file.path if unpacked is data else "")
            return
        members = tar_members(unpacked, file.year, budget) if is_tar(unpacked) else zip_members(unpacked, file.year, budget)
    if depth == MAX_DEPTH:
        yield file._replace(data=f"an archive inside {depth} others: not opened\n".encode(), truncated=True)
        return
    try:
        for member in members:
            group = file.group or _group(member.name) or (_stem(file.name) if depth else "")
            inner = _File(f"{file.name}:{member.name}", group, member.data, member.year, member.truncated)
            yield from _expand(inner, budget, depth + 1)
    except ValueError as error:
        if not depth:
            raise UnusableInput(f"{file.name}: a zip archive that cannot be read: {error}") from None
        yield file._replace(data=f"a zip archive that cannot be read: {error}\n".encode("utf-8", "replace"), truncated=True)


def _is_tree(path: Path) -> bool:
    return (path / "sys" / "bus").is_dir() or (path / "proc" / "cpuinfo").is_file() or (path / "sys" / "class").is_dir()


def _walk(top: str, unread: list[OSError]) -> Iterator[tuple[str, str, str]]:
    """(path, label, node group) of the plain files below ``top``, links not followed."""
    for folder, folders, files in os.walk(top, onerror=unread.append):
        folders[:] = sorted(f for f in folders if f not in (".git", "__pycache__"))
        inside = os.path.relpath(folder, top).replace(os.sep, "/")
        for name in sorted(files):
            path = os.path.join(folder, name)
            label = name if inside == "." else f"{inside}/{name}"
            if bundle.interesting(label) and _is_plain(path):
                yield path, label, _group(label)


def _is_plain(path: str) -> bool:
    """Whether a path is a file itself: no link, device, FIFO, and not gone meanwhile."""
    try:
        return stat.S_ISREG(os.lstat(path).st_mode)
    except OSError:
        return False


def read_paths(paths: list[str], *, progress: Callable[[str], None] | None = None) -> Case:
    """Read everything that ``paths`` name ("-" = standard input).

    Raises:
        UnusableInput: a path does not exist, cannot be opened, or is empty.
    """
    fragments: list[Fragment] = []
    inputs: list[Input] = []
    for given in paths:
        label = _label(given) if len(paths) > 1 else ""
        for file in _files(given, fragments, inputs):
            if label and not file.group:
                file = file._replace(group=label, name=file.name if file.name.startswith(given) else f"{given}/{file.name}")
            if progress is not None:
                progress(file.name)
            _read(file, fragments, inputs)
    return assemble(fragments, inputs)


def _label(given: str) -> str:
    """What several folders or archives on one command line are filed under; files stand together."""
    path = Path(given)
    if path.is_dir():
        return path.resolve().name
    return _stem(path.name)


def _files(given: str, fragments: list[Fragment], inputs: list[Input]) -> Iterator[_File]:
    now = datetime.datetime.now(tz=datetime.timezone.utc).year
    if given == "-":
        data, cut = _limited(sys.stdin.buffer)
        if not data.strip():
            raise UnusableInput("standard input is empty: paste the output of a tool, or name a file")
        yield from _expand(_File("<stdin>", "", data, now, cut))
        return
    path = Path(given)
    try:
        if path.is_dir():
            if _is_tree(path):
                fragments.append(_tree(path, inputs))
                return
            unread: list[OSError] = []
            files = list(_walk(given, unread))
            inputs += [Input(name=f"{error.filename}", notes=[f"not read: {error.strerror}"]) for error in unread]
            if not files:
                raise UnusableInput(
                    f"{given}: a folder without files; expected captures such as the output of nvidia-smi -q, lspci -vvv, dmesg"
                )
            for file, label, group in files:
                try:
                    yield from _file(file, label, group, fragments, inputs)
                except (OSError, UnusableInput) as error:  # one bad file costs itself, not the folder
                    inputs.append(Input(name=label, notes=[f"not read: {getattr(error, 'strerror', None) or error}"]))
        elif path.exists() and not path.is_file():
            raise UnusableInput(f"{given}: neither a plain file nor a folder")
        else:
            yield from _file(given, given, "", fragments, inputs)
    except FileNotFoundError:
        raise UnusableInput(f"{given}: no such file or folder") from None
    except OSError as error:
        raise UnusableInput(f"{given}: {error.strerror or error}") from None


def _tree(path: Path, inputs: list[Input]) -> Fragment:
    from kilter.facts.base import Source
    from kilter.intake.live import snapshot

    fragment = Fragment(Source(name=str(path), tool="captured tree"))
    fragment.snapshot = snapshot(str(path))
    fragment.source.node = fragment.snapshot.node
    inputs.append(Input(name=str(path), tools=["captured tree"]))
    return fragment


def _read(file: _File, fragments: list[Fragment], inputs: list[Input]) -> None:
    whole = None if file.truncated else snapshot_of_bytes(file.name, file.data)
    if whole is not None:
        whole.group = file.group
        if file.path and len(fragments) >= MAX_KEPT:
            whole.stored = store(whole.snapshot, file.path)
            whole.snapshot = _NOTHING
        fragments.append(whole)
        lines = file.data.count(b"\n") + (not file.data.endswith(b"\n"))
        inputs.append(Input(name=file.name, tools=[whole.source.tool], lines=lines, notes=whole.notes))
        return
    dump = Fragment(Source(name=file.name, tool="Flight Recorder"))
    if flight_recorder.read_bytes(file.data, dump):
        dump.group = file.group
        fragments.append(dump)
        inputs.append(Input(name=file.name, tools=["Flight Recorder"], notes=dump.notes))
        return
    text = decode(file.data)
    found, summary = read_text(file.name, text, year=file.year)
    for fragment in found:
        fragment.group = file.group
    if file.truncated:
        summary.notes.append(f"cut short: only the first {len(file.data):,} bytes were read")
    fragments.extend(found)
    inputs.append(summary)
