"""The machine that is changed: every file and every command of ``tune.apply`` goes through here.

``Host(root)`` maps absolute paths below ``root``, so that the same code works on a captured tree and on the machine itself (``/``).
"""

from __future__ import annotations

import errno
import glob
import hashlib
import os
import shutil
import stat
import subprocess
from collections.abc import Callable
from pathlib import Path
from typing import NamedTuple

#: A command that has not ended after so many seconds is ended. Making an initramfs is the slowest of them.
COMMAND_LIMIT_S = 900.0
_MAX_READ = 64 << 20


class Meta(NamedTuple):
    """What belongs to a file beside its bytes."""

    mode: int
    uid: int
    gid: int


class Done(NamedTuple):
    """How a command ended. ``code`` 127 = there is no such command, 124 = it took too long."""

    code: int
    output: str


Runner = Callable[[list[str]], Done]
_PATH = os.environ.get("PATH", "") + ":/usr/local/sbin:/usr/sbin:/sbin:/usr/local/bin:/usr/bin:/bin"


class Host:
    """A machine, or the tree of one."""

    def __init__(self, root: str | os.PathLike[str] = "/", runner: Runner | None = None) -> None:
        self.root = Path(root)
        self._runner = runner

    @property
    def is_live(self) -> bool:
        """Whether this is the running machine, whose commands may be called."""
        return str(self.root) == "/"

    def real(self, path: str) -> Path:
        return self.root / path.lstrip("/")

    # -- reading ------------------------------------------------------------------------------------------------------------------

    def exists(self, path: str) -> bool:
        return os.path.lexists(self.real(path))

    def is_dir(self, path: str) -> bool:
        return self.real(path).is_dir()

    def read(self, path: str) -> bytes | None:
        """The bytes of a file; None where it is not there. Raises OSError for what cannot be read."""
        pieces: list[bytes] = []
        try:
            # Unbuffered and in small pieces: /proc/sys refuses a read larger than the kernel would allocate at once.
            with open(self.real(path), "rb", buffering=0) as file:
                while (piece := file.read(1 << 16)) and len(pieces) < _MAX_READ >> 16:
                    pieces.append(piece)
        except (FileNotFoundError, NotADirectoryError):
            return None
        return b"".join(pieces)

    def text(self, path: str) -> str | None:
        """The text of a file without the last line's end; None where it cannot be read."""
        try:
            data = self.read(path)
        except OSError:
            return None
        return None if data is None else data.decode("utf-8", "surrogateescape").rstrip("\n")

    def read_at(self, path: str, offset: int, length: int) -> bytes | None:
        """Bytes of a binary file such as PCI configuration space; None where they are not there or not readable."""
        try:
            with open(self.real(path), "rb") as file:
                file.seek(offset)
                data = file.read(length)
        except OSError:
            return None
        return data if len(data) == length else None

    def meta(self, path: str) -> Meta | None:
        try:
            found = os.stat(self.real(path))
        except OSError:
            return None
        return Meta(stat.S_IMODE(found.st_mode), found.st_uid, found.st_gid)

    def digest(self, path: str) -> str | None:
        """SHA-256 of a file of any size; None where it is not there."""
        summed = hashlib.sha256()
        try:
            with open(self.real(path), "rb") as file:
                while piece := file.read(1 << 20):
                    summed.update(piece)
        except OSError:
            return None
        return summed.hexdigest()

    def names(self, folder: str) -> list[str]:
        try:
            return sorted(os.listdir(self.real(folder)))
        except OSError:
            return []

    def matches(self, pattern: str) -> list[str]:
        """Absolute paths that a pattern with ``*`` names."""
        if not glob.has_magic(pattern):
            return [pattern] if self.exists(pattern) else []
        base = str(self.root).rstrip("/")
        return sorted(path[len(base) :] for path in glob.glob(glob.escape(base) + pattern))

    # -- writing ------------------------------------------------------------------------------------------------------------------

    def replace(self, path: str, data: bytes, meta: Meta | None = None) -> None:
        """Put a whole file in place at once: a reader sees the old or the new one, also after a power cut."""
        target = self.real(path)
        if target.is_symlink():
            target = target.resolve()
        make_folders(target.parent)
        if meta is None:
            meta = self.meta(path) or Meta(0o644, os.getuid(), os.getgid())
        temporary = target.with_name(f".{target.name}.kilter")
        descriptor = os.open(temporary, os.O_WRONLY | os.O_CREAT | os.O_TRUNC | os.O_CLOEXEC, 0o600)
        try:
            with open(descriptor, "wb") as file:
                file.write(data)
                file.flush()
                os.fchmod(descriptor, meta.mode)
                if (os.getuid(), os.getgid()) != (meta.uid, meta.gid):
                    os.fchown(descriptor, meta.uid, meta.gid)
                os.fsync(descriptor)
            os.replace(temporary, target)
        except BaseException:
            temporary.unlink(missing_ok=True)
            raise
        sync_folder(target.parent)

    def remove(self, path: str) -> None:
        """Take a file away; one that is not there is gone already."""
        target = self.real(path)
        target.unlink(missing_ok=True)
        if target.parent.is_dir():
            sync_folder(target.parent)

    def poke(self, path: str, data: bytes, offset: int = 0) -> None:
        """Write into a file of the kernel, in one call, as ``echo`` does."""
        whole = 0 if offset or self.is_live else os.O_TRUNC  # in a captured tree it is an ordinary file
        descriptor = os.open(self.real(path), os.O_WRONLY | os.O_CLOEXEC | whole)
        try:
            if offset:
                os.lseek(descriptor, offset, os.SEEK_SET)
            if os.write(descriptor, data) != len(data):
                raise OSError(errno.EIO, "written in part only")
        finally:
            os.close(descriptor)

    # -- commands -----------------------------------------------------------------------------------------------------------------

    def has(self, command: str) -> bool:
        """Whether a command can be called: on the running machine, where it is installed; on a tree, where its runner knows it."""
        if self._runner is not None:
            return self._runner(["which", command]).code == 0
        return self.is_live and shutil.which(command, path=_PATH) is not None

    def run(self, argv: list[str], *, limit_s: float = COMMAND_LIMIT_S) -> Done:
        """Call a command, never through a shell."""
        if self._runner is not None:
            return self._runner(argv)
        if not self.is_live:
            return Done(127, f"{argv[0]}: not called, since {self.root} is not the running machine")
        environment = {**os.environ, "PATH": _PATH, "LC_ALL": "C", "DEBIAN_FRONTEND": "noninteractive"}
        try:
            done = subprocess.run(
                argv,
                capture_output=True,
                text=True,
                errors="replace",
                timeout=limit_s,
                check=False,
                env=environment,
                stdin=subprocess.DEVNULL,
            )
        except FileNotFoundError:
            return Done(127, f"{argv[0]}: not found")
        except (OSError, subprocess.SubprocessError) as error:
            return Done(124 if isinstance(error, subprocess.TimeoutExpired) else 126, f"{argv[0]}: {error}")
        return Done(done.returncode, (done.stdout + done.stderr)[-8192:])


def sync_folder(folder: Path) -> None:
    """Make names of a folder last over a power cut."""
    descriptor = os.open(folder, os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC)
    try:
        os.fsync(descriptor)
    finally:
        os.close(descriptor)


def make_folders(folder: Path, mode: int = 0o755) -> None:
    """Make a folder and those above it, each lasting over a power cut."""
    missing = []
    while not folder.is_dir():
        missing.append(folder)
        folder = folder.parent
    for one in reversed(missing):
        one.mkdir(mode=mode, exist_ok=True)
        sync_folder(one.parent)
