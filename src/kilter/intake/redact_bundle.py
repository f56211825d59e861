"""A file, folder or archive -> a tar.gz of the same structure without what names the site. One file is in hand at a time."""

from __future__ import annotations

import bz2
import datetime
import gzip
import io
import lzma
import os
import tarfile
import tempfile
import zipfile
import zlib
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import IO, NamedTuple

import msgspec

from kilter.intake.redact import Redactor

#: Texts are worked on in pieces of this size, cut at line ends.
PIECE = 8 << 20
#: More than this unpacked from one compressed file is not followed: a bomb, or no log.
MAX_FILE = 2 << 30
_SPOOL = 32 << 20
_PACKED = ((b"\x1f\x8b", "gz"), (b"BZh", "bz2"), (b"\xfd7zXZ\x00", "xz"))


class Unreadable(Exception):
    """The bundle cannot be read. The message says what was expected, what was found and what to do."""


class Report(msgspec.Struct, kw_only=True):
    """What was done. ``replaced`` counts places, ``values`` distinct originals, both by kind."""

    files: int = 0
    replaced: dict[str, int] = {}
    values: dict[str, int] = {}
    left_out: list[str] = []  # "name: why"
    warnings: list[str] = []


class _Member(NamedTuple):
    name: str
    year: int
    link: str  # target of a symbolic link, else ""
    stream: IO[bytes] | None


def _year(mtime: float) -> int:
    return datetime.datetime.fromtimestamp(max(mtime, 0), tz=datetime.timezone.utc).year


def _members(path: Path) -> Iterator[_Member]:
    if path.is_dir():
        for folder, folders, files in os.walk(path):
            folders.sort()
            for name in sorted([*files, *(f for f in folders if Path(folder, f).is_symlink())]):
                file = Path(folder, name)
                label = str(file.relative_to(path))
                if file.is_symlink():
                    yield _Member(label, _year(file.lstat().st_mtime), os.readlink(file), None)
                elif file.is_file():
                    with open(file, "rb") as stream:
                        yield _Member(label, _year(os.fstat(stream.fileno()).st_mtime), "", stream)
        return
    with open(path, "rb") as stream:
        head = stream.read(1024)
    if head.startswith(b"PK\x03\x04"):
        with zipfile.ZipFile(path) as archive:
            for info in archive.infolist():
                if not info.is_dir():
                    with archive.open(info) as member:
                        yield _Member(info.filename, info.date_time[0], "", member)
        return
    if _is_tar(path):
        with tarfile.open(path, mode="r|*") as tar:
            for item in tar:
                if item.issym():
                    yield _Member(item.name, _year(item.mtime), item.linkname, None)
                elif item.isfile() and (content := tar.extractfile(item)) is not None:
                    yield _Member(item.name, _year(item.mtime), "", content)
        return
    with open(path, "rb") as stream:
        yield _Member(path.name, _year(os.fstat(stream.fileno()).st_mtime), "", stream)


def _is_tar(path: Path) -> bool:
    try:
        with tarfile.open(path, mode="r|*") as archive:
            return archive.next() is not None
    except (tarfile.TarError, EOFError, OSError, lzma.LZMAError, ValueError):
        return False


class _Text(NamedTuple):
    stream: IO[bytes]
    packing: str  # gz, bz2, xz or ""


def _open(member: _Member) -> _Text | str:
    """The member's text stream, unpacked, or why it is left out."""
    assert member.stream is not None
    raw = member.stream
    if not isinstance(raw, io.BufferedReader):
        raw = io.BufferedReader(raw)  # type: ignore[type-var]  # zip's stream is raw enough
    packing = next((name for magic, name in _PACKED if raw.peek(8).startswith(magic)), "")
    stream: IO[bytes] = raw
    if packing == "gz":
        stream = io.BufferedReader(gzip.GzipFile(fileobj=raw))
    elif packing == "bz2":
        stream = io.BufferedReader(bz2.BZ2File(raw))
    elif packing == "xz":
        stream = io.BufferedReader(lzma.LZMAFile(raw))  # noqa: SIM115  # read by the caller
    assert isinstance(stream, io.BufferedReader)
    try:
        head = stream.peek(65536)[:65536]
    except (OSError, EOFError, lzma.LZMAError, zlib.error) as error:
        return f"damaged: {error}"
    if head[:4] == b"PK\x03\x04" or head[257:262] == b"ustar":
        return "an archive inside the bundle: redact it by itself"
    if b"\x00" in head:
        return "binary"
    return _Text(stream, packing)


def _pieces(text: _Text) -> Iterator[str]:
    """The text in pieces that end at a line's end. Bytes that are no UTF-8 survive the way there and back."""
    rest = b""
    total = 0
    while True:
        try:
            data = text.stream.read(PIECE)
        except (OSError, EOFError, lzma.LZMAError, zlib.error):
            data = b""  # a cut-off compressed file gives what it holds
        total += len(data)
        if not data or total > MAX_FILE:
            break
        cut = data.rfind(b"\n") + 1
        if not cut and len(rest) < 4 * PIECE:
            rest += data
            continue
        yield (rest + data[:cut]).decode("utf-8", "surrogateescape")
        rest = data[cut:]
    if rest:
        yield rest.decode("utf-8", "surrogateescape")


def _pack(packing: str, stream: IO[bytes]) -> gzip.GzipFile | bz2.BZ2File | lzma.LZMAFile:
    if packing == "gz":
        return gzip.GzipFile(filename="", mode="wb", fileobj=stream, mtime=0)
    if packing == "bz2":
        return bz2.BZ2File(stream, "wb")
    return lzma.LZMAFile(stream, "wb")


def _write(text: _Text, redactor: Redactor, out: IO[bytes]) -> None:
    redactor.start_file()
    packed = _pack(text.packing, out) if text.packing else None
    target: IO[bytes] | gzip.GzipFile | bz2.BZ2File | lzma.LZMAFile = packed or out
    for piece in _pieces(text):
        target.write(redactor.redact(piece).encode("utf-8", "surrogateescape"))
    if packed is not None:
        packed.close()


def _add(archive: tarfile.TarFile, name: str, year: int, *, link: str = "", content: IO[bytes] | None = None) -> None:
    """One member without owner, mode or time; the year stays, since logs without a year are read by it."""
    info = tarfile.TarInfo(name)
    info.mode = 0o644
    info.mtime = int(datetime.datetime(min(max(year, 1980), 2100), 1, 1, tzinfo=datetime.timezone.utc).timestamp())
    if link:
        info.type, info.linkname = tarfile.SYMTYPE, link
        archive.addfile(info)
    elif content is not None:
        info.size = content.tell()
        content.seek(0)
        archive.addfile(info, content)


def redact_bundle(
    source: str,
    output: str,
    *,
    redactor: Redactor | None = None,
    progress: Callable[[str], None] | None = None,
) -> Report:
    """Write a redacted copy of ``source`` to ``output`` (tar.gz), in two passes: names are learnt from all files first.

    Nothing is left at ``output`` when it fails. Raises :class:`Unreadable` for a source that cannot be read, OSError for the output.
    """
    redactor = redactor or Redactor()
    path = Path(source)
    report = Report()
    if not path.exists():
        raise Unreadable(f"{source}: no such file or folder")
    try:
        _learn(path, redactor, progress)
        folder = os.path.dirname(os.path.abspath(output))
        handle, temporary = tempfile.mkstemp(prefix=".kilter-redact-", suffix=".tar.gz", dir=folder)
        try:
            with (
                os.fdopen(handle, "wb") as raw,
                gzip.GzipFile(filename="", mode="wb", fileobj=raw, mtime=0) as packed,
                tarfile.open(fileobj=packed, mode="w|") as archive,
            ):
                _copy(path, archive, redactor, report, progress)
            os.replace(temporary, output)
        except BaseException:
            os.unlink(temporary)
            raise
    except (tarfile.TarError, zipfile.BadZipFile, EOFError, NotImplementedError, lzma.LZMAError) as error:
        raise Unreadable(f"{source}: an archive that cannot be read: {error}") from None
    if not report.files:
        os.unlink(output)
        raise Unreadable(f"{source}: no text in it; expected captures, logs or a support bundle")
    report.replaced = dict(sorted(redactor.replaced.items()))
    for kind, _ in redactor.mapping:
        report.values[kind] = report.values.get(kind, 0) + 1
    if redactor.blobs:
        report.warnings.append(f"{redactor.blobs} long runs of base64 are left in place: look at them before you share the file")
    return report


def _learn(path: Path, redactor: Redactor, progress: Callable[[str], None] | None) -> None:
    tops: set[str] = set()
    for member in _members(path):
        if progress is not None:
            progress(member.name)
        parts = member.name.split("/")
        if len(parts) > 1:
            tops.add(parts[0])
        text = _open(member) if member.stream is not None else "link"
        redactor.learn("", member.name)
        if isinstance(text, _Text):
            for piece in _pieces(text):
                redactor.learn(piece)
    for top in sorted(tops):
        redactor.learn_folder(top)


def _copy(
    path: Path, archive: tarfile.TarFile, redactor: Redactor, report: Report, progress: Callable[[str], None] | None
) -> None:
    for member in _members(path):
        if progress is not None:
            progress(member.name)
        name = redactor.redact_path(member.name)
        if member.link:
            _add(archive, name, member.year, link=redactor.redact_path(member.link))
            continue
        text = _open(member)
        if isinstance(text, str):
            report.left_out.append(f"{name}: {text}")
            continue
        with tempfile.SpooledTemporaryFile(max_size=_SPOOL) as spool:
            _write(text, redactor, spool)
            _add(archive, name, member.year, content=spool)
        report.files += 1


def mapping_text(redactor: Redactor) -> str:
    """The mapping as JSON: token -> original, by kind. Keep it private."""
    kinds: dict[str, dict[str, str]] = {}
    for (kind, original), token in redactor.mapping.items():
        kinds.setdefault(kind, {})[token] = original
    return msgspec.json.format(msgspec.json.encode(kinds), indent=1).decode() + "\n"
