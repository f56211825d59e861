"""What is kept of one application, on disk before the first write.

``/var/lib/kilter/changes/ID/``::

    plan.json     the changes that were asked for
    journal       a record a line: before each write what was there, after it what it became; each with a checksum, each fsynced
    before/N      the bytes of file N as they were
    rollback.sh   undoes everything recorded so far, without kilter; made anew before each write
    state         applying, applied, confirmed, rolled back, failed

A torn last line of the journal (power cut) belongs to a write that had not begun.
"""

from __future__ import annotations

import os
import shutil
import zlib
from pathlib import Path
from typing import Literal

import msgspec

from kilter.facts.applied import Applied
from kilter.facts.plan import Change
from kilter.tune.apply import sh
from kilter.tune.apply.host import Host, Meta, make_folders, sync_folder
from kilter.tune.apply.steps import Bytes, Call, Poke, Put, Step

FOLDER = "/var/lib/kilter/changes"
State = Literal["applying", "applied", "confirmed", "rolled back", "failed"]


class JournalError(Exception):
    """The journal cannot be written or read: what, where, and what to do."""


class FileBefore(msgspec.Struct, omit_defaults=True):
    """A file as it was. ``saved`` is its number below ``before/``; None = there was none."""

    path: str
    saved: int | None = None
    mode: int = 0o644
    uid: int = 0
    gid: int = 0
    sha256: str = ""


class Record(msgspec.Struct, omit_defaults=True):
    """One step: what was there before it, and, once it is done, what is there now."""

    number: int = 0
    change: int = -1  # index into the changes; -1 = of a guard
    group: str = ""  # "sentinel" or "confirm": a guard, which goes when it has done its work
    kind: str = ""  # put, poke, bytes, call
    files: list[FileBefore] = []  # put: one; call: those that the command writes
    path: str = ""  # poke, bytes
    offset: int = 0
    value: str = ""  # poke: the text that was there; bytes: hexadecimal
    undo: list[list[str]] = []  # call
    again: list[str] = []  # call: makes its files anew where somebody else has written them since
    folders: list[str] = []  # folders that did not exist, deepest last
    done: bool = False
    after: dict[str, str] = {}  # path -> sha256 ("" = gone), or the value that was read back


class Header(msgspec.Struct, omit_defaults=True):
    id: str
    time: float
    host: str
    boot_id: str = ""
    changes: list[Change] = []


class Journal:
    """The folder of one application. Use :meth:`begin` or :meth:`open`."""

    def __init__(self, host: Host, id_: str) -> None:
        self.host, self.id = host, id_
        self.path = f"{FOLDER}/{id_}"
        self.folder: Path = host.real(self.path)
        self.records: list[Record] = []
        self._saved = 0
        self._boot_id = ""

    # -- making -------------------------------------------------------------------------------------------------------------------

    @classmethod
    def begin(cls, host: Host, header: Header) -> Journal:
        """A new one. Raises JournalError where it cannot be put on disk: then nothing must be changed."""
        journal = cls(host, header.id)
        journal._boot_id = header.boot_id
        try:
            make_folders(journal.folder.parent, 0o755)
            journal.folder.mkdir(mode=0o700)
            (journal.folder / "before").mkdir(mode=0o700)
            journal._write("plan.json", msgspec.json.format(msgspec.json.encode(header), indent=1))
            journal._write("journal", b"")
            journal.set_state("applying")
            journal._write_rollback()
            sync_folder(journal.folder.parent)
        except OSError as error:
            raise JournalError(f"{journal.path}: {error.strerror or error}; nothing was changed") from None
        return journal

    @classmethod
    def open(cls, host: Host, id_: str) -> Journal:
        """An existing one. Raises JournalError where it is not there or not readable."""
        journal = cls(host, id_)
        try:
            lines = (journal.folder / "journal").read_bytes().split(b"\n")
        except OSError as error:
            raise JournalError(f"{journal.path}/journal: {error.strerror or error}") from None
        for number, line in enumerate(lines):
            record = _checked(line)
            if record is None:
                if any(_checked(later) for later in lines[number + 1 :]):
                    raise JournalError(
                        f"{journal.path}/journal:{number + 1} is damaged and not the last line; undo by hand with {journal.path}/rollback.sh"
                    )
                break
            journal._take(record)
        journal._saved = max((f.saved for r in journal.records for f in r.files if f.saved is not None), default=-1) + 1
        return journal

    def _take(self, record: Record) -> None:
        if record.number < len(self.records):
            self.records[record.number] = record
        else:
            self.records.append(record)

    def _write(self, name: str, data: bytes, mode: int = 0o600) -> None:
        self.host.replace(f"{self.path}/{name}", data, Meta(mode, os.getuid(), os.getgid()))

    def header(self) -> Header:
        try:
            return msgspec.json.decode((self.folder / "plan.json").read_bytes(), type=Header)
        except (OSError, msgspec.DecodeError) as error:
            raise JournalError(f"{self.path}/plan.json: {error}") from None

    @property
    def state(self) -> str:
        try:
            return (self.folder / "state").read_text("ascii").strip()
        except (OSError, UnicodeDecodeError):
            return "unknown"

    def set_state(self, state: State) -> None:
        self._write("state", f"{state}\n".encode())

    def _append(self, record: Record) -> None:
        body = msgspec.json.encode(record)
        line = b"%08x %s\n" % (zlib.crc32(body), body)
        with open(self.folder / "journal", "ab") as file:
            file.write(line)
            file.flush()
            os.fsync(file.fileno())
        self._take(record)

    def _write_rollback(self) -> None:
        self._write("rollback.sh", sh.script(self.id, self.records, self._boot_id).encode("utf-8", "surrogateescape"), 0o700)
        for group in sorted({record.group for record in self.records} - {""}):
            text = sh.disarm(self.id, self.records, group, self._boot_id)
            self._write(f"{group}-disarm.sh", text.encode("utf-8", "surrogateescape"), 0o700)

    # -- recording ----------------------------------------------------------------------------------------------------------------

    def before(self, step: Step, change: int, group: str = "") -> Record:
        """Put on disk what ``step`` is about to change. Raises JournalError; then the step must not be done."""
        record = Record(number=len(self.records), change=change, group=group, kind=str(step.__struct_config__.tag))
        try:
            if isinstance(step, Put):
                record.files = [self._save(step.path)]
                record.folders = self._missing_folders(step.path)
            elif isinstance(step, Poke):
                record.path, record.value = step.path, self.host.text(step.path) or ""
            elif isinstance(step, Bytes):
                was = self.host.read_at(step.path, step.offset, len(step.data))
                record.path, record.offset, record.value = step.path, step.offset, (was or b"").hex()
            elif isinstance(step, Call):
                record.undo, record.again = step.undo, step.again
                record.files = [self._save(path) for path in step.touches]
            # The script first: one that undoes a step which never came does no harm, the other way round would.
            self.records.append(record)
            self._write_rollback()
            self.records.pop()
            self._append(record)
        except OSError as error:
            raise JournalError(f"{self.path}: {error.strerror or error}; nothing more is changed") from None
        return record

    def after(self, record: Record, step: Step) -> None:
        """Put on disk what a step has made, so that a rollback knows its own work from that of others."""
        done = msgspec.structs.replace(record, done=True, after={})
        if isinstance(step, (Put, Call)):
            done.after = {file.path: self.host.digest(file.path) or "" for file in record.files}
        elif isinstance(step, Poke):
            done.after = {step.path: self.host.text(step.path) or ""}
        elif isinstance(step, Bytes):
            done.after = {step.path: (self.host.read_at(step.path, step.offset, len(step.data)) or b"").hex()}
        self._append(done)
        self._write_rollback()

    def _save(self, path: str) -> FileBefore:
        """Keep a copy of a file, which may be large (an initramfs)."""
        meta = self.host.meta(path)
        if meta is None:
            return FileBefore(path=path)
        number, self._saved = self._saved, self._saved + 1
        target = self.folder / "before" / str(number)
        with open(self.host.real(path), "rb") as source, open(target, "wb") as copy:
            shutil.copyfileobj(source, copy, 1 << 20)
            copy.flush()
            os.fsync(copy.fileno())
        sync_folder(target.parent)
        return FileBefore(
            path=path, saved=number, mode=meta.mode, uid=meta.uid, gid=meta.gid, sha256=self.host.digest(path) or ""
        )

    def _missing_folders(self, path: str) -> list[str]:
        missing: list[str] = []
        folder = os.path.dirname(path)
        while folder not in ("", "/") and not self.host.is_dir(folder):
            missing.append(folder)
            folder = os.path.dirname(folder)
        return missing[::-1]

    def is_done(self, group: str) -> bool:
        """Whether a guard has been taken away."""
        return bool(group) and (self.folder / f"{group}.done").exists()

    def set_done(self, group: str) -> None:
        self._write(f"{group}.done", b"")

    def put_result(self, applied: Applied) -> None:
        self._write("result.json", msgspec.json.format(msgspec.json.encode(applied), indent=1))

    def result(self) -> Applied | None:
        """What the application reported; None where it was cut short."""
        try:
            return msgspec.json.decode((self.folder / "result.json").read_bytes(), type=Applied)
        except (OSError, msgspec.DecodeError):
            return None

    def saved(self, file: FileBefore) -> bytes:
        """The bytes of a file as they were. Raises JournalError where the copy is damaged."""
        try:
            data = (self.folder / "before" / str(file.saved)).read_bytes()
        except OSError as error:
            raise JournalError(f"{self.path}/before/{file.saved}: {error.strerror or error}") from None
        return data


def _checked(line: bytes) -> Record | None:
    """A record, or None for a line that is torn, damaged or empty."""
    checksum, space, body = line.partition(b" ")
    try:
        if not space or int(checksum, 16) != zlib.crc32(body):
            return None
        return msgspec.json.decode(body, type=Record)
    except (ValueError, msgspec.DecodeError):
        return None


def ids(host: Host) -> list[str]:
    """All applications of this host, the oldest first."""
    return [name for name in host.names(FOLDER) if host.is_dir(f"{FOLDER}/{name}")]
