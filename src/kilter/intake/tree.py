"""One view of ``/sys`` and ``/proc``, whether it is this host, a captured directory, or lines of text.

All live readers work on a :class:`Tree`, so a pasted ``grep -r . /sys/class/infiniband`` yields the same facts as the
host itself.
"""

from __future__ import annotations

import os
import stat
from pathlib import Path
from typing import Protocol

from kilter.facts.base import Missing, Reason

#: No attribute of sysfs is larger than a page; /proc/kallsyms and the like are not read here.
MAX_BYTES = 1 << 20


class Tree(Protocol):
    """Read access to a file tree. Paths are absolute and spelt with ``/``. Nothing raises for a missing or unreadable path."""

    @property
    def name(self) -> str:
        """For evidence: "live:" or the path of the capture."""
        ...

    def read(self, path: str) -> str | None:
        """Text of a file without the final newline; None when it is not there or not readable."""
        ...

    def read_bytes(self, path: str) -> bytes | None: ...

    def names(self, path: str) -> list[str]:
        """Sorted names in a directory; [] when there is none."""
        ...

    def link(self, path: str) -> str | None:
        """What the symbolic link at ``path`` points to, as written; None if it is no link."""
        ...

    def exists(self, path: str) -> bool: ...

    def missing(self, path: str) -> Missing:
        """Why :meth:`read` gave None for ``path``."""
        ...

    def line(self, path: str) -> int:
        """Line of the capture that holds ``path``; 0 for a real tree."""
        ...


class RealTree:
    """The host's own tree, or a captured one below ``root``.

    Links are followed only inside ``root``, so that a hostile capture cannot show files of this host.
    """

    def __init__(self, root: str | os.PathLike[str] = "/") -> None:
        self.root = Path(root).resolve()
        self.name = "live:" if self.root == Path("/") else str(root)

    def _real(self, path: str) -> str:
        full = os.path.join(self.root, path.lstrip("/"))
        if str(self.root) == "/":
            return full
        resolved = os.path.realpath(full)
        if resolved != str(self.root) and not resolved.startswith(f"{self.root}{os.sep}"):
            raise PermissionError(f"{path} leads outside {self.root}")
        return resolved

    def read_bytes(self, path: str) -> bytes | None:
        try:
            fd = os.open(self._real(path), os.O_RDONLY | os.O_NONBLOCK | os.O_CLOEXEC)
            try:
                # A capture may hold a FIFO or device node; only plain files are read.
                if not stat.S_ISREG(os.fstat(fd).st_mode):
                    return None
                chunks = []
                left = MAX_BYTES
                while left > 0 and (chunk := os.read(fd, min(left, 65536))):
                    chunks.append(chunk)
                    left -= len(chunk)
                return b"".join(chunks)
            finally:
                os.close(fd)
        except (OSError, ValueError):
            return None

    def read(self, path: str) -> str | None:
        data = self.read_bytes(path)
        return None if data is None else data.decode("utf-8", "replace").rstrip("\n")

    def names(self, path: str) -> list[str]:
        try:
            return sorted(os.listdir(self._real(path)))
        except (OSError, ValueError):
            return []

    def link(self, path: str) -> str | None:
        parent, _, base = path.rstrip("/").rpartition("/")
        try:
            return os.readlink(os.path.join(self._real(parent or "/"), base))
        except (OSError, ValueError):
            return None

    def exists(self, path: str) -> bool:
        try:
            return os.path.exists(self._real(path))
        except (OSError, ValueError):
            return False

    def missing(self, path: str) -> Missing:
        try:
            fd = os.open(self._real(path), os.O_RDONLY | os.O_NONBLOCK | os.O_CLOEXEC)
            try:
                if stat.S_ISREG(os.fstat(fd).st_mode):
                    os.read(fd, 1)
            finally:
                os.close(fd)
        except FileNotFoundError:
            return Missing(Reason.ABSENT, f"{path} does not exist")
        except PermissionError:
            return Missing(Reason.NOT_READABLE, f"{path}: permission denied", "run as root")
        except (OSError, ValueError) as error:
            return Missing(Reason.NOT_READABLE, f"{path}: {getattr(error, 'strerror', None) or error}")
        return Missing(Reason.NOT_READABLE, f"{path}: no plain file")

    def line(self, path: str) -> int:
        return 0


class TextTree:
    """A tree given as text: ``path`` -> content, as ``grep -r . /sys/...`` or a JSON object prints it."""

    def __init__(self, name: str) -> None:
        self.name = name
        self._files: dict[str, str] = {}
        self._links: dict[str, str] = {}
        self._lines: dict[str, int] = {}
        self._dirs: dict[str, set[str]] = {}

    def _add_dirs(self, path: str) -> None:
        while path != "/":
            path, _, base = path.rpartition("/")
            path = path or "/"
            known = self._dirs.setdefault(path, set())
            if base in known:
                return
            known.add(base)

    def add(self, path: str, value: str, line: int = 0) -> None:
        """Add one line of the file at ``path``; lines of one path are joined in order."""
        if path in self._files:
            self._files[path] += "\n" + value
            return
        self._files[path] = value
        self._lines[path] = line
        self._add_dirs(path)

    def add_link(self, path: str, target: str, line: int = 0) -> None:
        self._links[path] = target
        self._lines.setdefault(path, line)
        self._add_dirs(path)

    def read(self, path: str) -> str | None:
        text = self._files.get(path)
        return None if text is None else text.rstrip("\n")

    def read_bytes(self, path: str) -> bytes | None:
        """Binary files are captured as hexadecimal text (``od -An -v -tx1``)."""
        text = self._files.get(path)
        if text is None:
            return None
        try:
            return bytes.fromhex(text)
        except ValueError:
            return None

    def names(self, path: str) -> list[str]:
        return sorted(self._dirs.get(path, ()))

    def link(self, path: str) -> str | None:
        return self._links.get(path)

    def exists(self, path: str) -> bool:
        return path in self._files or path in self._links or path in self._dirs

    def missing(self, path: str) -> Missing:
        return Missing(Reason.NOT_COLLECTED, f"{path} is not in {self.name}")

    def line(self, path: str) -> int:
        return self._lines.get(path, 0)
