"""Files, folders, archives and standard input -> a :class:`Case`."""

from __future__ import annotations

import bz2
import datetime
import io
import lzma
import os
import sys
import tarfile
import zipfile
import zlib
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import IO, NamedTuple, Protocol

from kilter.facts.base import Source
from kilter.facts.case import Case, Input
from kilter.intake import bundle, large_log
from kilter.intake.captures import flight_recorder
from kilter.intake.encoding import decode
from kilter.intake.fragment import Fragment
from kilter.intake.merge import assemble
from kilter.intake.paste import read_text

#: Larger texts are read up to here, and the report says so.
MAX_TEXT = 256 << 20
MAX_MEMBERS = 200_000


class UnusableInput(Exception):
    """An input that cannot be read at all. The message says what was expected, what was found and what to do."""


class _File(NamedTuple):
    name: str  # for evidence
    group: str  # node directory, "" at the top
    data: bytes
    year: int
    truncated: bool


class _Decompressor(Protocol):
    @property
    def eof(self) -> bool: ...
    @property
    def unused_data(self) -> bytes: ...
    def decompress(self, data: bytes, /) -> bytes: ...


def _limited(stream: IO[bytes]) -> tuple[bytes, bool]:
    data = stream.read(MAX_TEXT + 1)
    return data[:MAX_TEXT], len(data) > MAX_TEXT


def _year(mtime: float) -> int:
    try:
        return datetime.datetime.fromtimestamp(mtime, tz=datetime.timezone.utc).year
    except (ValueError, OverflowError, OSError):  # an archive may claim any time
        return datetime.datetime.now(tz=datetime.timezone.utc).year


def _gunzip() -> zlib._Decompress:
    return zlib.decompressobj(31)


#: magic number -> decompressor
_PACKED: tuple[tuple[bytes, Callable[[], _Decompressor]], ...] = (
    (b"\x1f\x8b", _gunzip),
    (b"BZh", bz2.BZ2Decompressor),
    (b"\xfd7zXZ\x00", lzma.LZMADecompressor),
)


def _unpack(data: bytes) -> tuple[bytes, bool]:
    """Undo one layer of gzip, bzip2 or xz, recognised by its magic number; (text, whether it was cut short).

    Fed in small pieces, so that a cut-off stream gives what it holds and a bomb stops at MAX_TEXT.
    """
    make = next((m for magic, m in _PACKED if data.startswith(magic)), None)
    if make is None:
        return data, False
    out = bytearray()
    position = 0
    while position < len(data):
        stream = make()
        try:
            while position < len(data) and not stream.eof:
                piece = data[position : position + 16384]
                position += len(piece)
                out += stream.decompress(piece)
                if len(out) > MAX_TEXT:
                    return bytes(out[:MAX_TEXT]), True
        except (OSError, EOFError, lzma.LZMAError, zlib.error, ValueError):
            return bytes(out), True
        if not stream.eof:
            return bytes(out), True
        position -= len(stream.unused_data)
        if not any(data.startswith(magic, position) for magic, _ in _PACKED):
            break  # padding or rubbish behind the last member
    return bytes(out), False


def _group(label: str) -> str:
    """The node that a member of a bundle or a file of a folder belongs to, "" for one at the top."""
    first, slash, _ = label.partition("/")
    return bundle.node(label) or (first if slash else "")


def _tar_members(data: bytes, name: str, year: int) -> Iterator[_File]:
    """Plain files of a tar archive. Names are only labels: nothing is ever written, so paths cannot escape anywhere."""
    try:
        with tarfile.open(fileobj=io.BytesIO(data), mode="r|*") as archive:
            for count, member in enumerate(archive):
                if count >= MAX_MEMBERS:
                    raise UnusableInput(f"{name}: more than {MAX_MEMBERS} members in the archive")
                stream = archive.extractfile(member) if member.isfile() and bundle.interesting(member.name) else None
                if stream is not None:
                    content, cut = _limited(stream)
                    yield _File(f"{name}:{member.name}", _group(member.name), content, _year(member.mtime), cut)
    except (tarfile.TarError, EOFError, OSError, lzma.LZMAError, ValueError) as error:
        yield _File(f"{name}:(rest of the archive)", "", f"archive ends or breaks here: {error}\n".encode(), year, True)


def _zip_members(data: bytes, name: str) -> Iterator[_File]:
    with zipfile.ZipFile(io.BytesIO(data)) as archive:
        for member in archive.infolist()[:MAX_MEMBERS]:
            if member.is_dir() or not bundle.interesting(member.filename):
                continue
            with archive.open(member) as stream:
                content, cut = _limited(stream)
            yield _File(f"{name}:{member.filename}", _group(member.filename), content, member.date_time[0], cut)


def _file(path: Path, name: str, group: str, fragments: list[Fragment], inputs: list[Input]) -> Iterator[_File]:
    if path.stat().st_size > large_log.LARGE and large_log.is_log(path):
        _large(path, name, group, fragments, inputs)
        return
    with open(path, "rb") as stream:
        data, cut = _limited(stream)
        year = _year(os.fstat(stream.fileno()).st_mtime)
    yield from _expand(_File(name, group, data, year, cut))


def _large(path: Path, name: str, group: str, fragments: list[Fragment], inputs: list[Input]) -> None:
    """A log larger than memory should hold: its events, without its text."""
    logs = large_log.scan(path, name, year=_year(path.stat().st_mtime))
    summary = Input(
        name=name, notes=[f"{path.stat().st_size >> 20} MiB: read as a log only, other tools' outputs in it were not looked for"]
    )
    found = logs.fragments(summary, is_kernel_log=not logs.job_lines)
    for fragment in found:
        fragment.group = group
    fragments.extend(found)
    inputs.append(summary)


_ARCHIVES = (".tar", ".tgz", ".tar.gz", ".tar.xz", ".txz", ".tar.bz2", ".zip")


def _expand(file: _File) -> Iterator[_File]:
    """A plain file, or the members of an archive."""
    data = file.data
    if data[:4] == b"PK\x03\x04":
        try:
            yield from _zip_members(data, file.name)
        except (zipfile.BadZipFile, OSError, RuntimeError, NotImplementedError) as error:
            raise UnusableInput(f"{file.name}: a zip archive that cannot be read: {error}") from None
        return
    unpacked, cut = _unpack(data)
    if unpacked[257:262] == b"ustar":
        yield from (member._replace(group=file.group or member.group) for member in _tar_members(unpacked, file.name, file.year))
        return
    yield file._replace(data=unpacked, truncated=file.truncated or cut)


def _is_tree(path: Path) -> bool:
    return (path / "sys" / "bus").is_dir() or (path / "proc" / "cpuinfo").is_file() or (path / "sys" / "class").is_dir()


def _walk(top: Path) -> Iterator[tuple[Path, str, str]]:
    """(path, label, node group) of the plain files below ``top``, links not followed."""
    for folder, folders, files in os.walk(top):
        folders[:] = sorted(f for f in folders if f not in (".git", "__pycache__"))
        for name in sorted(files):
            path = Path(folder, name)
            label = path.relative_to(top).as_posix()
            if bundle.interesting(label) and path.is_file() and not path.is_symlink():
                yield path, label, _group(label)


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
    stem = path.name.split(".")[0]
    return (bundle.node(stem) or stem) if path.name.endswith(_ARCHIVES) else ""


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
            files = list(_walk(path))
            if not files:
                raise UnusableInput(
                    f"{given}: a folder without files; expected captures such as the output of nvidia-smi -q, lspci -vvv, dmesg"
                )
            for file, label, group in files:
                yield from _file(file, label, group, fragments, inputs)
        elif path.exists() and not path.is_file():
            raise UnusableInput(f"{given}: neither a plain file nor a folder")
        else:
            yield from _file(path, given, "", fragments, inputs)
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
