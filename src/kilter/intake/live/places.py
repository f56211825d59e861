"""Where the live readers look and how they cite it: sources, references, and the reason why a file gave nothing."""

from __future__ import annotations

import os
import stat
from collections.abc import Callable

from kilter.facts.base import Entity, Missing, Reason, Ref, Source
from kilter.facts.case import Snapshot
from kilter.intake.tree import RealTree, TextTree, Tree

#: What drivers and tools print where there is no value. Compared in lower case.
NO_VALUE = frozenset(
    {"n/a", "[n/a]", "unknown", "not supported", "[not supported]", "requested functionality has been deprecated", "n/a (no pma)"}
)

Convert = Callable[[str], object]


def integer(text: str) -> int | None:
    """A decimal or 0x-hexadecimal integer; None for anything else."""
    text = text.strip()
    try:
        return int(text, 16) if text[:2].lower() == "0x" else int(text)
    except ValueError:
        return None


def word(text: str) -> str | None:
    """The text without blanks around it; None if nothing is left."""
    return text.strip() or None


def kibibytes(text: str) -> int | None:
    """Bytes of ``"1234 kB"`` as ``/proc/meminfo`` prints sizes (kB there means KiB)."""
    number, _, unit = text.strip().partition(" ")
    value = integer(number)
    if value is None:
        return None
    return value * 1024 if unit.strip().lower() == "kb" else value


def list_length(text: str) -> int | None:
    """Number of CPUs in kernel list format, ``"0-3,8"`` -> 5. None if it is no list."""
    total = 0
    for part in text.strip().split(","):
        if not part:
            continue
        first, _, last = part.partition("-")
        low, high = integer(first), integer(last or first)
        if low is None or high is None or high < low:
            return None
        total += high - low + 1
    return total


def mask_to_list(text: str) -> str | None:
    """A CPU mask as the kernel prints it (``"ff,ffffffff"``) in list format (``"0-39"``)."""
    try:
        mask = int(text.strip().replace(",", ""), 16)
    except ValueError:
        return None
    if mask.bit_length() > 1 << 16:
        return None
    bits = [bit for bit in range(mask.bit_length()) if mask >> bit & 1]
    ranges: list[list[int]] = []
    for bit in bits:
        if ranges and ranges[-1][1] == bit - 1:
            ranges[-1][1] = bit
        else:
            ranges.append([bit, bit])
    return ",".join(str(low) if low == high else f"{low}-{high}" for low, high in ranges)


def selected(text: str) -> str | None:
    """The choice in brackets: ``"always [madvise] never"`` -> ``"madvise"``; a lone word stands for itself."""
    for choice in text.split():
        if choice.startswith("[") and choice.endswith("]"):
            return choice[1:-1] or None
    return text.strip() if len(text.split()) == 1 else None


class Places:
    """A tree, the snapshot that it fills, and the snapshot's sources for it.

    A text has one source, already in the snapshot, and lines. A real tree gets one source a folder (the entity's directory).
    """

    def __init__(self, tree: Tree, snapshot: Snapshot, *, time: float | None = None) -> None:
        self.tree = tree
        self.snapshot = snapshot
        self.time = time
        self.is_text = isinstance(tree, TextTree)
        self.is_live = tree.name == "live:"
        self._sources: dict[str, int] = {}
        if self.is_text and not snapshot.sources:
            snapshot.sources.append(Source(name=tree.name, tool="sysfs"))

    def ref(self, path: str, folder: str) -> Ref:
        """The reference for a value read from ``path``, which belongs to the entity of ``folder``."""
        if self.is_text:
            return (0, self.tree.line(path))
        index = self._sources.get(folder)
        if index is None:
            index = self._sources[folder] = len(self.snapshot.sources)
            tool = "procfs" if folder.startswith("/proc") else "sysfs" if folder.startswith("/sys") else "file"
            self.snapshot.sources.append(Source(name=f"{self.tree.name}{folder}", tool=tool, time=self.time))
        return (index, 0)

    def folder(self, *dirs: str) -> Folder:
        return Folder(self, *dirs)

    def why(self, path: str) -> Missing:
        """Why ``path`` gave nothing. A FIFO or device node of a captured tree is never opened for it."""
        if isinstance(self.tree, RealTree) and not self.is_live:
            try:
                mode = os.stat(os.path.join(self.tree.root, path.lstrip("/"))).st_mode
            except OSError:
                mode = stat.S_IFREG
            if not stat.S_ISREG(mode):
                return Missing(Reason.NOT_READABLE, f"{path}: no plain file")
        return self.tree.missing(path)

    def walk(self, top: str, *, depth: int = 6, limit: int = 20000) -> list[str]:
        """Paths of files below ``top``, links not followed; bounded in depth and number."""
        found: list[str] = []
        todo = [(top, 0)]
        while todo and len(found) < limit:
            path, level = todo.pop()
            names = self.tree.names(path)
            if not names:
                found.append(path)
            elif level < depth:
                todo += [(f"{path}/{name}", level + 1) for name in reversed(names)]
        return found


class Folder:
    """The directory of one entity; several when a capture shows it under several paths, then the first that has a name wins."""

    def __init__(self, places: Places, *dirs: str) -> None:
        self.places = places
        self.tree = places.tree
        self.dirs = dirs

    def path(self, name: str) -> str:
        if not name:
            return self.dirs[0]
        for folder in self.dirs[:-1]:
            if self.tree.exists(f"{folder}/{name}"):
                return f"{folder}/{name}"
        return f"{self.dirs[-1]}/{name}"

    def ref(self, name: str) -> Ref:
        return self.places.ref(self.path(name), self.dirs[0])

    def text(self, name: str) -> str | None:
        """Content without blanks around it; None if there is none or a capture masked it (see :meth:`masked`)."""
        text = self.tree.read(self.path(name))
        if text is None:
            return None
        text = text.strip()
        return None if self.masked(name, text) else text

    def masked(self, name: str, text: str) -> bool:
        """Collectors that hide a value write the file's own name in its place (facebookresearch/gcm test data)."""
        return self.places.is_text and text == name.rpartition("/")[2]

    def names(self, name: str = "") -> list[str]:
        found: set[str] = set()
        for folder in self.dirs:
            found.update(self.tree.names(f"{folder}/{name}" if name else folder))
        return sorted(found)

    def link(self, name: str) -> str | None:
        """Target of the link ``name`` as written."""
        for folder in self.dirs:
            target = self.tree.link(f"{folder}/{name}")
            if target is not None:
                return target
        return None

    def itself(self) -> str | None:
        """Where the directory itself leads, if it is a link (entries of ``/sys/bus/.../devices`` and ``/sys/class/<class>``
        are).
        """
        for folder in self.dirs:
            target = self.tree.link(folder)
            if target is not None:
                return target
        return None

    def link_name(self, name: str) -> str | None:
        """Last component of the link's target: the driver, the group, the device."""
        target = self.link(name)
        return target.rstrip("/").rpartition("/")[2] if target else None

    def take(self, entity: Entity, field: str, name: str, convert: Convert = word, *, hint: str = "") -> bool:
        """Put the converted content of ``name`` into ``field``, or say why it is missing. True if there is a value.

        For a text, a file that it does not show stays plainly "not collected".
        """
        path = self.path(name)
        text = self.tree.read(path)
        if text is None:
            if not self.places.is_text:
                why = self.places.why(path)
                entity.missing[field] = Missing(why.reason, why.detail, hint or why.hint)
            return False
        text = text.strip()
        if self.masked(name, text):
            entity.lacks(field, Reason.NOT_COLLECTED, f"{path} is masked in {self.tree.name}")
            return False
        if text.lower() in NO_VALUE:
            entity.lacks(field, Reason.NOT_SUPPORTED, f"{path}: {text}", hint)
            return False
        value = convert(text)
        if value is None:
            shown = repr(text[:60]) if text else "nothing"
            entity.lacks(field, Reason.NOT_READABLE, f"{path} holds {shown}", hint)
            return False
        entity.put(field, value, self.ref(name))
        return True
