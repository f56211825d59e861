"""Packed files and archives, read in memory: nothing is written, so that paths cannot escape anywhere, and bombs end early."""

from __future__ import annotations

import bz2
import datetime
import io
import lzma
import tarfile
import zipfile
import zlib
from collections.abc import Callable, Iterator
from typing import IO, NamedTuple, Protocol

from kilter.intake import bundle

#: Larger texts are read up to here, and the report says so.
MAX_TEXT = 256 << 20
MAX_MEMBERS = 200_000
#: How names of archives end.
ARCHIVES = (".tar", ".tgz", ".tar.gz", ".tar.xz", ".txz", ".tar.bz2", ".tbz2", ".zip")
#: Archives in archives: a bundle of a fleet holds one of each node, which holds packed logs.
MAX_DEPTH = 4
#: Logs shrink to a tenth or a thirtieth; deflate ends at 1:1032 (zlib's technical notes), and what comes near it is a bomb.
MAX_RATIO = 100
#: So much is always unpacked, and never more than that, of one input with all that is in it, bytes.
FREE, MAX_UNPACKED = 32 << 20, 4 << 30


class Member(NamedTuple):
    """A plain file of an archive, or a line about what could not be read of it."""

    name: str
    data: bytes
    year: int
    truncated: bool


class Budget:
    """How much may still be unpacked of one input."""

    def __init__(self, packed: int) -> None:
        self.left = min(MAX_UNPACKED, max(FREE, packed * MAX_RATIO))

    @property
    def most(self) -> int:
        """The most that a single text may have, bytes."""
        return min(MAX_TEXT, self.left)

    def read(self, stream: IO[bytes]) -> tuple[bytes, bool]:
        """What ``stream`` holds, and whether it was cut short."""
        most = self.most
        data = stream.read(most + 1)
        self.left -= min(len(data), most)
        return data[:most], len(data) > most


class _Decompressor(Protocol):
    @property
    def eof(self) -> bool: ...
    @property
    def unused_data(self) -> bytes: ...
    def decompress(self, data: bytes, /) -> bytes: ...


def _gunzip() -> zlib._Decompress:
    return zlib.decompressobj(31)


#: magic number -> decompressor
_PACKED: tuple[tuple[bytes, Callable[[], _Decompressor]], ...] = (
    (b"\x1f\x8b", _gunzip),
    (b"BZh", bz2.BZ2Decompressor),
    (b"\xfd7zXZ\x00", lambda: lzma.LZMADecompressor(memlimit=256 << 20)),
)


def is_packed(data: bytes) -> bool:
    return data.startswith(tuple(magic for magic, _ in _PACKED))


def is_zip(data: bytes) -> bool:
    return data[:4] == b"PK\x03\x04"


def is_tar(data: bytes) -> bool:
    return data[257:262] == b"ustar"


def unpack(data: bytes, budget: Budget) -> tuple[bytes, bool]:
    """Undo one layer of gzip, bzip2 or xz, recognised by its magic number; (text, whether it was cut short).

    Fed in small pieces, so that a cut-off stream gives what it holds and a bomb stops at its limit.
    """
    make = next((m for magic, m in _PACKED if data.startswith(magic)), None)
    if make is None:
        return data, False
    out = bytearray()
    most = budget.most
    position = 0
    while position < len(data):
        stream = make()
        try:
            while position < len(data) and not stream.eof:
                piece = data[position : position + 16384]
                position += len(piece)
                out += stream.decompress(piece)
                if len(out) > most:
                    budget.left -= most
                    return bytes(out[:most]), True
        except (OSError, EOFError, lzma.LZMAError, zlib.error, ValueError, MemoryError):
            break
        if not stream.eof:
            break
        position -= len(stream.unused_data)
        if not any(data.startswith(magic, position) for magic, _ in _PACKED):
            budget.left -= len(out)
            return bytes(out), False  # padding or rubbish behind the last member
    else:
        budget.left -= len(out)
        return bytes(out), False
    budget.left -= len(out)
    return bytes(out), True


def year_of(mtime: float) -> int:
    """The year of a file's time; this year for times that no calendar holds."""
    try:
        return datetime.datetime.fromtimestamp(mtime, tz=datetime.timezone.utc).year
    except (ValueError, OverflowError, OSError):  # an archive may claim any time
        return datetime.datetime.now(tz=datetime.timezone.utc).year


def _told(name: str, year: int, why: object) -> Member:
    return Member(name, f"archive ends or breaks here: {why}\n".encode("utf-8", "replace"), year, True)


def tar_members(data: bytes, year: int, budget: Budget) -> Iterator[Member]:
    """Plain files of a tar archive; links and devices are left out. Ends at damage, and says so in a last member."""
    try:
        with tarfile.open(fileobj=io.BytesIO(data), mode="r|") as archive:
            for count, member in enumerate(archive):
                if count >= MAX_MEMBERS or budget.left <= 0:
                    yield _told(
                        "(rest of the archive)", year, f"more than {MAX_MEMBERS:,} members" if budget.left > 0 else "too much"
                    )
                    return
                stream = archive.extractfile(member) if member.isfile() and bundle.interesting(member.name) else None
                if stream is not None:
                    content, cut = budget.read(stream)
                    yield Member(member.name, content, year_of(member.mtime), cut)
    # tarfile's readers of headers follow one another by recursion, and numbers of any size may stand in them.
    except (tarfile.TarError, EOFError, OSError, ValueError, OverflowError, RecursionError, MemoryError) as error:
        yield _told("(rest of the archive)", year, error)


#: What zipfile raises on damaged, encrypted and unknown members.
_ZIP_ERRORS = (
    zipfile.BadZipFile,
    zlib.error,
    lzma.LZMAError,
    EOFError,
    OSError,
    RuntimeError,
    NotImplementedError,
    ValueError,
    OverflowError,
    MemoryError,
)


def zip_members(data: bytes, year: int, budget: Budget) -> Iterator[Member]:
    """Plain files of a zip archive. A member that cannot be read is told of, and the next is read.

    Raises:
        ValueError: it is no zip archive, or its directory is lost.
    """
    try:
        archive = zipfile.ZipFile(io.BytesIO(data))
    except _ZIP_ERRORS as error:
        raise ValueError(str(error)) from None
    with archive:
        for count, member in enumerate(archive.infolist()):
            if count >= MAX_MEMBERS or budget.left <= 0:
                yield _told(
                    "(rest of the archive)", year, f"more than {MAX_MEMBERS:,} members" if budget.left > 0 else "too much"
                )
                return
            is_link = (member.external_attr >> 16) & 0o170000 == 0o120000
            if member.is_dir() or is_link or not bundle.interesting(member.filename):
                continue
            try:
                with archive.open(member) as stream:
                    content, cut = budget.read(stream)
            except _ZIP_ERRORS as error:
                yield _told(member.filename, year, "encrypted" if member.flag_bits & 1 else error)
                continue
            yield Member(member.filename, content, member.date_time[0], cut)
