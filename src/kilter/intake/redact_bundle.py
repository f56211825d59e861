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
from kilter.intake.unpack import ARCHIVES, MAX_DEPTH, Budget, is_tar, is_zip, year_of

#: Texts are worked on in pieces of this size, cut at line ends.
PIECE = 8 << 20
#: More than this unpacked from one compressed file is not followed: a bomb, or no log.
MAX_FILE = 2 << 30
_SPOOL = 32 << 20
#: What damaged, encrypted and absurd archives and packed files raise.
_DAMAGE = (
    tarfile.TarError,
    zipfile.BadZipFile,
    EOFError,
    OSError,
    lzma.LZMAError,
    zlib.error,
    ValueError,
    RuntimeError,
    OverflowError,
)
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
    budget: Budget
    why: str = ""  # it cannot be read


class _Item(NamedTuple):
    """A member, looked at: a link, a text, or why it is left out."""

    name: str
    year: int
    link: str
    text: _Text | str


def _items(path: Path) -> Iterator[_Item]:
    """All that the bundle holds; archives in it are opened, and their members stand in a folder of their name."""
    for member in _members(path):
        yield from _look(member, 0)


def _look(member: _Member, depth: int) -> Iterator[_Item]:
    text = _open(member) if member.stream is not None else member.why
    if not isinstance(text, _Archive):
        yield _Item(member.name, member.year, member.link, text)
        return
    if depth == MAX_DEPTH:
        yield _Item(member.name, member.year, "", f"an archive inside {depth} others")
        return
    with tempfile.SpooledTemporaryFile(max_size=_SPOOL) as spool:
        try:
            total = 0
            while data := text.stream.read(PIECE):
                total += len(data)
                text.budget.left -= len(data)
                if total > MAX_FILE or text.budget.left <= 0:
                    break
                spool.write(data)
        except _DAMAGE:
            pass  # a cut-off file gives what it holds
        spool.seek(0)
        try:
            for inner in _zip(spool, text.budget) if text.is_zip else _tar(spool, text.budget):
                yield from _look(inner._replace(name=_inside(member.name, inner.name)), depth + 1)
        except _DAMAGE as error:
            yield _Item(f"{member.name}/(rest)", member.year, "", f"an archive that breaks here: {error}")


def _inside(archive: str, name: str) -> str:
    """Name of a member of an inner archive, so that reading the copy files it under the same node."""
    folder, _, base = archive.rpartition("/")
    if not folder and "/" in name:
        return name
    stem = next((base[: -len(end)] for end in ARCHIVES if base.endswith(end)), base)
    return f"{folder}/{stem}/{name}" if folder else f"{stem}/{name}"


def _zip(file: IO[bytes] | Path, budget: Budget) -> Iterator[_Member]:
    with zipfile.ZipFile(file) as archive:
        for info in archive.infolist():
            if not info.is_dir():
                try:
                    member = archive.open(info)
                except _DAMAGE as error:
                    why = "encrypted" if info.flag_bits & 1 else f"damaged: {error}"
                    yield _Member(info.filename, info.date_time[0], "", None, budget, why)
                    continue
                with member:
                    yield _Member(info.filename, info.date_time[0], "", member, budget)


def _tar(file: IO[bytes] | Path, budget: Budget) -> Iterator[_Member]:
    with tarfile.open(file, mode="r|*") if isinstance(file, Path) else tarfile.open(fileobj=file, mode="r|*") as archive:
        for item in archive:
            if item.issym():
                yield _Member(item.name, year_of(item.mtime), item.linkname, None, budget)
            elif item.isfile() and (content := archive.extractfile(item)) is not None:
                yield _Member(item.name, year_of(item.mtime), "", content, budget)


def _members(path: Path) -> Iterator[_Member]:
    if path.is_dir():
        for folder, folders, files in os.walk(path):
            folders.sort()
            for name in sorted([*files, *(f for f in folders if Path(folder, f).is_symlink())]):
                file = Path(folder, name)
                label = str(file.relative_to(path))
                if file.is_symlink():
                    yield _Member(label, year_of(file.lstat().st_mtime), os.readlink(file), None, Budget(0))
                elif file.is_file():
                    with open(file, "rb") as stream:
                        status = os.fstat(stream.fileno())
                        yield _Member(label, year_of(status.st_mtime), "", stream, Budget(status.st_size))
        return
    budget = Budget(path.stat().st_size)
    with open(path, "rb") as stream:
        head = stream.read(1024)
    if head.startswith(b"PK\x03\x04"):
        yield from _zip(path, budget)
        return
    if _is_tar(path):
        yield from _tar(path, budget)
        return
    with open(path, "rb") as stream:
        yield _Member(path.name, year_of(os.fstat(stream.fileno()).st_mtime), "", stream, budget)


def _is_tar(path: Path) -> bool:
    try:
        with tarfile.open(path, mode="r|*") as archive:
            return archive.next() is not None
    except _DAMAGE:
        return False


class _Text(NamedTuple):
    stream: IO[bytes]
    packing: str  # gz, bz2, xz or ""
    budget: Budget


class _Archive(NamedTuple):
    stream: IO[bytes]
    is_zip: bool
    budget: Budget


#: How packed data begins that is not unpacked here: twice packed, zstd, lz4, 7-Zip, RAR, compress, lzip, cabinet, an empty or split zip.
_OPAQUE = (
    *(magic for magic, _ in _PACKED),
    *(
        b"\x28\xb5\x2f\xfd",
        b"\x04\x22\x4d\x18",
        b"7z\xbc\xaf\x27\x1c",
        b"Rar!",
        b"\x1f\x9d",
        b"\x1f\xa0",
        b"LZIP",
        b"MSCF",
        b"PK\x05\x06",
    ),
    *(b"PK\x07\x08", b"\x5d\x00\x00", b"\x89LZO"),
)


#: Bytes that texts of no encoding hold often: C0 but backspace, tab, line ends, form feed and escape.
_CONTROLS = bytes([*range(8), 11, *range(14, 27), *range(28, 32)])


def _is_text(head: bytes) -> bool:
    """Whether bytes are a text, of whichever encoding."""
    return b"\x00" not in head and len(head) - len(head.translate(None, _CONTROLS)) <= len(head) // 20


def _open(member: _Member) -> _Text | _Archive | str:
    """The member's text stream, unpacked, or an archive, or why it is left out."""
    assert member.stream is not None
    raw = member.stream
    if not isinstance(raw, io.BufferedReader):
        raw = io.BufferedReader(raw)  # type: ignore[type-var]  # zip's stream is raw enough
    try:
        start = raw.peek(8)
    except _DAMAGE as error:
        return f"damaged: {error}"
    packing = next((name for magic, name in _PACKED if start.startswith(magic)), "")
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
    except _DAMAGE as error:
        return f"damaged: {error}"
    if is_zip(head) or is_tar(head):
        return _Archive(stream, is_zip(head), member.budget)
    if head.startswith(_OPAQUE):
        return "packed in a way that is not undone"
    if not _is_text(head):
        return "binary"
    return _Text(stream, packing, member.budget)


def _pieces(text: _Text) -> Iterator[str]:
    """The text in pieces that end at a line's end. Bytes that are no UTF-8 survive the way there and back."""
    rest = b""
    total = 0
    while True:
        try:
            data = text.stream.read(PIECE)
        except _DAMAGE:
            data = b""  # a cut-off compressed file gives what it holds
        total += len(data)
        text.budget.left -= len(data)
        if not data or total > MAX_FILE or text.budget.left < 0:
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
    except (OSError, Unreadable):
        raise
    except _DAMAGE as error:
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
    for item in _items(path):
        if progress is not None:
            progress(item.name)
        parts = item.name.split("/")
        if len(parts) > 1:
            tops.add(parts[0])
        redactor.learn("", item.name)
        if isinstance(item.text, _Text):
            for piece in _pieces(item.text):
                redactor.learn(piece)
    for top in sorted(tops):
        redactor.learn_folder(top)


def _copy(
    path: Path, archive: tarfile.TarFile, redactor: Redactor, report: Report, progress: Callable[[str], None] | None
) -> None:
    for item in _items(path):
        if progress is not None:
            progress(item.name)
        name = redactor.redact_path(item.name)
        if item.link:
            _add(archive, name, item.year, link=redactor.redact_path(item.link))
            continue
        if isinstance(item.text, str):
            report.left_out.append(f"{name}: {item.text}")
            continue
        with tempfile.SpooledTemporaryFile(max_size=_SPOOL) as spool:
            _write(item.text, redactor, spool)
            if item.text.budget.left < 0:
                report.left_out.append(f"{name}: what follows in it, unpacked more than a hundred times its size")
            _add(archive, name, item.year, content=spool)
        report.files += 1


def mapping_text(redactor: Redactor) -> str:
    """The mapping as JSON: token -> original, by kind. Keep it private."""
    kinds: dict[str, dict[str, str]] = {}
    for (kind, original), token in redactor.mapping.items():
        kinds.setdefault(kind, {})[token] = original
    return msgspec.json.format(msgspec.json.encode(kinds), indent=1).decode() + "\n"
