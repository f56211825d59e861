"""Applying changes, seeing whether they hold, taking them back.

Nothing is written before what was there is on disk; every step is undone by the same record, by :func:`rollback` or by the script beside the
journal. A change that cannot be written, or reads back something else, is undone by itself; the others go on.
"""

from __future__ import annotations

import difflib
import fcntl
import os
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager

from kilter.facts.applied import Applied, Difference, Drift, Outcome, Reading, Result, RolledBack, Status, Verification
from kilter.facts.plan import Change
from kilter.tune.apply import guards, journal
from kilter.tune.apply.back import Action, File, Folder, Raw, Undo, Value, way_back
from kilter.tune.apply.host import Host, Meta, make_folders
from kilter.tune.apply.journal import Header, Journal, JournalError, Record
from kilter.tune.apply.mechanisms import mechanism, names
from kilter.tune.apply.mechanisms.base import Mechanism, Refuse, Skip, holds
from kilter.tune.apply.owners import owners
from kilter.tune.apply.sh import written
from kilter.tune.apply.steps import Bytes, Poke, Put, Step

LOCK = "/var/lib/kilter/lock"
Progress = Callable[[str], None]


class ApplyError(Exception):
    """Nothing can be done: what stands in the way, and what to do."""


class _StepFailed(Exception):
    """One step did not work."""


@contextmanager
def lock(host: Host) -> Iterator[None]:
    """One writer at a time. Raises ApplyError where another one is at work, or where the lock cannot be made."""
    path = host.real(LOCK)
    try:
        make_folders(path.parent)
        descriptor = os.open(path, os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o600)
    except OSError as error:
        raise ApplyError(f"{LOCK}: {error.strerror or error}; changing a machine needs root") from None
    try:
        try:
            fcntl.flock(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except OSError:
            raise ApplyError("another kilter is changing this machine; wait until it has ended") from None
        yield
    finally:
        os.close(descriptor)


# --- what would be done


def _mechanism(change: Change) -> Mechanism:
    found = mechanism(change.mechanism)
    if found is None:
        raise Refuse(f"no mechanism {change.mechanism!r}; there are {', '.join(names())}")
    return found


def _look(host: Host, change: Change) -> tuple[Reading, Outcome, str]:
    """(what is there, what would come of it, why)."""
    try:
        reading = _mechanism(change).read(host, change)
    except Refuse as error:
        return Reading(), Outcome.REFUSED, str(error)
    except OSError as error:
        return Reading(missing=str(error)), Outcome.SKIPPED, str(error)
    if reading.missing:
        return reading, Outcome.SKIPPED, reading.missing
    now, then = holds(reading, change)
    if now and then:
        return reading, Outcome.ALREADY, ""
    needs = _mechanism(change).needs(host, change)
    if then and needs and reading.has_persistent and change.persistent:
        return reading, Outcome.ALREADY, f"not in force yet: needs {needs}"
    return reading, Outcome.APPLIED, ""


def diff(changes: list[Change], host: Host) -> list[Difference]:
    """What :func:`apply` would do, change by change. Reads only."""
    found = []
    for change in changes:
        reading, outcome, why = _look(host, change)
        one = Difference(change=change, reading=reading, outcome=outcome, why=why, owners=owners(host, change))
        if outcome is Outcome.APPLIED:
            mech = _mechanism(change)
            try:
                one.needs = mech.needs(host, change)
                for step in mech.steps(host, change):
                    _describe(step, one, host)
            except Skip as error:
                one.outcome, one.why = Outcome.SKIPPED, str(error)
            except Refuse as error:
                one.outcome, one.why = Outcome.REFUSED, str(error)
        found.append(one)
    return found


def _describe(step: Step, into: Difference, host: Host) -> None:
    if isinstance(step, Put):
        before = (host.read(step.path) or b"").decode("utf-8", "replace").splitlines()
        after = (step.data or b"").decode("utf-8", "replace").splitlines()
        lines = difflib.unified_diff(
            before, after, step.path, step.path if step.data is not None else "/dev/null", n=1, lineterm=""
        )
        into.files[step.path] = "\n".join(lines)
    elif isinstance(step, Poke):
        into.commands.append(f"echo {step.value} > {step.path}")
    elif isinstance(step, Bytes):
        into.commands.append(f"{step.path} at 0x{step.offset:x}: {step.data.hex(' ')}")
    elif step.argv:
        into.commands.append(" ".join(step.argv))


# --- doing it


def apply(
    changes: list[Change],
    host: Host,
    *,
    confirm_within: float | None = None,
    sentinel: bool = True,
    progress: Progress | None = None,
    now: float | None = None,
) -> Applied:
    """Write ``changes``. ``confirm_within``: seconds until they are rolled back unless confirmed. Raises ApplyError before anything is
    written."""
    with lock(host):
        return _apply(changes, host, confirm_within, sentinel, progress, time.time() if now is None else now)


def _apply(
    changes: list[Change], host: Host, confirm_within: float | None, sentinel: bool, progress: Progress | None, now: float
) -> Applied:
    cut_short = [one.id for one in status(host) if one.state in ("applying", "failed")]
    if cut_short:
        raise ApplyError(f"change {cut_short[0]} was cut short; 'kilter tune rollback {cut_short[0]}' first")
    twice = {(c.mechanism, c.key) for c in changes if sum((o.mechanism, o.key) == (c.mechanism, c.key) for o in changes) > 1}
    if twice:
        raise ApplyError(f"{', '.join(sorted(f'{m} {k}' for m, k in twice))}: asked for more than once")
    looked = [_look(host, change) for change in changes]
    if not any(outcome is Outcome.APPLIED for _, outcome, _ in looked):
        results = [Result(change=c, outcome=o, why=w, before=r) for c, (r, o, w) in zip(changes, looked, strict=True)]
        return Applied(results=results)
    id_ = _new_id(host, now)
    header = Header(
        id=id_,
        time=now,
        host=host.text("/proc/sys/kernel/hostname") or "",
        boot_id=host.text("/proc/sys/kernel/random/boot_id") or "",
        changes=changes,
    )
    try:
        log = Journal.begin(host, header)
    except JournalError as error:
        raise ApplyError(str(error)) from None
    applied = Applied(id=id_)
    try:
        if confirm_within is not None:
            deadline = now + confirm_within
            steps = guards.time_limit(host, id_, deadline)
            if not steps:
                raise _StepFailed("a time limit needs systemd")
            _guard(host, log, steps, "confirm")
            applied.confirm_by = deadline
        for number, (change, (reading, outcome, why)) in enumerate(zip(changes, looked, strict=True)):
            if progress is not None:
                progress(f"{change.mechanism} {change.key}")
            if outcome is not Outcome.APPLIED:
                applied.results.append(Result(change=change, outcome=outcome, why=why, before=reading))
            else:
                applied.results.append(_change(host, log, number, change))
        if sentinel and any(r.outcome is Outcome.APPLIED and r.change.mechanism == "cmdline" for r in applied.results):
            steps, note = guards.sentinel(host, log)
            _guard(host, log, steps, "sentinel")
            applied.notes += [note] if note else []
    except (JournalError, _StepFailed) as error:
        # The guard or the journal itself does not work: without a way back nothing stays.
        undone = _undo_all(host, log, force=False)
        log.set_state("rolled back" if not undone.failed else "failed")
        raise ApplyError(f"{error}; everything was taken back" + (f", but {undone.failed[0]}" if undone.failed else "")) from None
    log.put_result(applied)
    log.set_state("applied" if any(r.outcome is Outcome.APPLIED for r in applied.results) else "rolled back")
    return applied


def _new_id(host: Host, now: float) -> str:
    """Sorts by time: 20261130-175501, with a letter where that second has one already."""
    base = time.strftime("%Y%m%d-%H%M%S", time.gmtime(now))
    taken = journal.ids(host)
    return next(name for name in (base, *(f"{base}{chr(97 + n)}" for n in range(26))) if name not in taken)


def _guard(host: Host, log: Journal, steps: list[Step], group: str) -> None:
    for step in steps:
        _step(host, log, step, -1, group)


def _step(host: Host, log: Journal, step: Step, change: int, group: str = "") -> None:
    """One step by the book: what was there goes to disk, it is done, what it made goes to disk."""
    record = log.before(step, change, group)
    _do(host, step)
    log.after(record, step)


def _do(host: Host, step: Step) -> None:
    try:
        if isinstance(step, Put):
            if step.data is None:
                host.remove(step.path)
            else:
                host.replace(step.path, step.data, None if host.exists(step.path) else Meta(step.mode, os.getuid(), os.getgid()))
        elif isinstance(step, Poke):
            host.poke(step.path, step.value.encode("utf-8", "surrogateescape"))
        elif isinstance(step, Bytes):
            host.poke(step.path, step.data, step.offset)
        elif step.argv:
            done = host.run(step.argv)
            if done.code != 0:
                last = done.output.strip().splitlines()[-1:] or [f"exit code {done.code}"]
                raise _StepFailed(f"{' '.join(step.argv)}: {last[0][:300]}")
    except OSError as error:
        path = getattr(step, "path", "")
        raise _StepFailed(f"{path}: {error.strerror or error}") from None


def _change(host: Host, log: Journal, number: int, change: Change) -> Result:
    mech = _mechanism(change)
    before = mech.read(host, change)
    result = Result(change=change, outcome=Outcome.APPLIED, before=before, owners=owners(host, change))
    try:
        result.needs = mech.needs(host, change)
        for step in mech.steps(host, change):
            _step(host, log, step, number)
        result.after = mech.read(host, change)
        now, then = holds(result.after, change)
        if not now and not result.needs:
            raise _StepFailed(f"reads back {result.after.runtime!r}")
        if not then:
            raise _StepFailed(f"for the next boot it reads back {result.after.persistent!r}")
    except Skip as error:
        result.outcome, result.why = Outcome.SKIPPED, str(error)
    except Refuse as error:
        result.outcome, result.why = Outcome.REFUSED, str(error)
    except _StepFailed as error:
        result.outcome, result.why = Outcome.FAILED, str(error)
        undone = _undo_some(host, log, [record for record in log.records if record.change == number])
        if undone.failed:
            result.why += f"; and taking it back failed: {'; '.join(undone.failed)}"
        result.after = None
    return result


# --- looking back


def status(host: Host) -> list[Status]:
    """All applications of this host, the oldest first."""
    found = []
    for id_ in journal.ids(host):
        try:
            log = Journal.open(host, id_)
            header = log.header()
        except JournalError as error:
            state = "unknown" if host.exists(f"{journal.FOLDER}/{id_}/rollback.sh") else "never begun"
            found.append(Status(id=id_, state=state, time=0.0, changes=0, steps=0, note=str(error)))
            continue
        state = log.state if log.records or log.state != "unknown" else "never begun"
        note = "cut short; roll it back" if state == "applying" else ""
        found.append(
            Status(id=id_, state=state, time=header.time, changes=len(header.changes), steps=len(log.records), note=note)
        )
    return found


def _chosen(host: Host, id_: str | None, states: tuple[str, ...]) -> Journal:
    """The application ``id_``, or the newest in one of ``states``."""
    if id_ is None:
        open_ = [one.id for one in status(host) if one.state in states]
        if not open_:
            raise ApplyError(f"there is no change that is {' or '.join(states)}")
        id_ = open_[-1]
    elif id_ not in journal.ids(host):
        known = ", ".join(journal.ids(host)[-5:]) or "none"
        raise ApplyError(f"there is no change {id_!r}; the last ones are {known}")
    try:
        return Journal.open(host, id_)
    except JournalError as error:
        raise ApplyError(str(error)) from None


_STANDING = ("applied", "confirmed")


def verify(host: Host, id_: str | None = None) -> Verification:
    """Whether the changes of an application (the newest that stands) still hold. Raises ApplyError where there is none."""
    log = _chosen(host, id_, _STANDING)
    result = log.result()
    outcomes = [r.outcome for r in result.results] if result else []
    found = Verification(id=log.id, state=log.state)
    for number, change in enumerate(log.header().changes):
        if number < len(outcomes) and outcomes[number] not in (Outcome.APPLIED, Outcome.ALREADY):
            continue
        reading, outcome, why = _look(host, change)
        drift = Drift(change=change, holds=outcome is Outcome.ALREADY, reading=reading, why=why)
        if outcome is Outcome.APPLIED:
            drift.why = _drifted(reading, *holds(reading, change))
        elif outcome is Outcome.ALREADY and why:
            drift.pending = drift.holds = _same_boot(host, log)
            if not drift.holds:
                drift.why = f"not in force, though the machine has been booted since; {_drifted(reading, False, True)}"
        found.drifts.append(drift)
    return found


def _same_boot(host: Host, log: Journal) -> bool:
    return log.header().boot_id == (host.text("/proc/sys/kernel/random/boot_id") or "")


def _drifted(reading: Reading, now: bool, then: bool) -> str:
    parts = [] if now else [f"in force is {reading.runtime if reading.runtime is not None else 'nothing'}"]
    parts += [] if then else [f"for the next boot {reading.persistent if reading.persistent is not None else 'nothing'} is set"]
    return "; ".join(parts)


def confirm(host: Host, id_: str | None = None) -> Status:
    """Keep an application: its time limit goes. Raises ApplyError where there is none to confirm."""
    with lock(host):
        log = _chosen(host, id_, ("applied",))
        if log.state != "applied":
            raise ApplyError(f"change {log.id} is {log.state}; only one that is applied can be confirmed")
        undone = _undo_some(host, log, [r for r in log.records if r.group == "confirm" and not log.is_done("confirm")])
        if undone.failed:
            raise ApplyError(f"the time limit of {log.id} could not be taken away: {'; '.join(undone.failed)}")
        log.set_done("confirm")
        log.set_state("confirmed")
        return next(one for one in status(host) if one.id == log.id)


def rollback(host: Host, id_: str | None = None, *, force: bool = False, progress: Progress | None = None) -> RolledBack:
    """Put back what was there before an application (the newest that stands or was cut short). What somebody else has changed since is left
    and named, unless ``force``. Raises ApplyError where there is none, or where a later one stands upon it."""
    with lock(host):
        log = _chosen(host, id_, (*_STANDING, "applying", "failed"))
        if not force and (above := _standing_upon(host, log)):
            raise ApplyError(
                f"change {above} has written to the same places since; 'kilter tune rollback {above}' first, or --force"
            )
        done = _undo_all(host, log, force=force, progress=progress, commands=log.state != "rolled back")
        log.set_state("failed" if done.failed else "rolled back")
        return done


def _places(log: Journal) -> set[str]:
    return {path for r in log.records if not log.is_done(r.group) for path in (r.path, *(f.path for f in r.files)) if path}


def _standing_upon(host: Host, log: Journal) -> str:
    """A later application that stands and has written to the same places; "" if there is none."""
    mine = _places(log)
    for one in reversed(status(host)):
        if one.id > log.id and one.state in (*_STANDING, "applying") and mine & _places(Journal.open(host, one.id)):
            return one.id
    return ""


def _undo_all(host: Host, log: Journal, *, force: bool, progress: Progress | None = None, commands: bool = True) -> RolledBack:
    """``commands`` False: files and values alone, for a second time."""
    done = RolledBack(id=log.id)
    records = [record for record in log.records if not log.is_done(record.group)]
    again: set[int] = set()
    for action in way_back(records):
        if progress is not None and isinstance(action, (File, Value)):
            progress(action.file.path if isinstance(action, File) else action.path)
        if isinstance(action, Undo):
            if commands:
                _call(host, action.argv, done)
        else:
            _put_back(host, log, action, done, again, force=force)
    for record in records:
        if record.number in again:
            _call(host, record.again, done)
    if done.restored and any(c.mechanism == "cmdline" for c in log.header().changes):
        done.needs = "" if _same_boot(host, log) else "a reboot"
    return done


def _undo_some(host: Host, log: Journal, records: list[Record]) -> RolledBack:
    """Undo some steps right after they were done, when nobody else can have changed their places."""
    done = RolledBack(id=log.id)
    for action in way_back(records):
        if isinstance(action, Undo):
            _call(host, action.argv, done)
        else:
            _put_back(host, log, action, done, set(), force=True)
    return done


def _call(host: Host, argv: list[str], done: RolledBack) -> None:
    ended = host.run(argv)
    if ended.code != 0:
        done.failed.append(f"{' '.join(argv)}: {ended.output.strip()[-200:] or ended.code}")


def _put_back(host: Host, log: Journal, action: Action, done: RolledBack, again: set[int], *, force: bool) -> None:
    try:
        if isinstance(action, File):
            _file_back(host, log, action, done, again, force=force)
        elif isinstance(action, Value):
            _value_back(host, log, action, done, force=force)
        elif isinstance(action, Raw):
            if host.read_at(action.path, action.offset, len(action.before)) != action.before:
                host.poke(action.path, action.before, action.offset)
                done.restored.append(action.path)
        elif isinstance(action, Folder) and host.is_dir(action.path) and not host.names(action.path):
            host.real(action.path).rmdir()
    except (OSError, JournalError) as error:
        done.failed.append(str(error))


def _file_back(host: Host, log: Journal, action: File, done: RolledBack, again: set[int], *, force: bool) -> None:
    file, now = action.file, host.digest(action.file.path) or ""
    if now == file.sha256:
        return
    if action.known is not None and now not in action.known and not force:
        if action.again is not None:
            again.add(action.again)
        else:
            done.left.append(file.path)
        return
    if file.saved is None:
        host.remove(file.path)
    else:
        host.replace(file.path, log.saved(file), Meta(file.mode, file.uid, file.gid))
    done.restored.append(file.path)


def _value_back(host: Host, log: Journal, action: Value, done: RolledBack, *, force: bool) -> None:
    """Values of the kernel end with its boot, and numbers of interrupts mean other devices in the next one."""
    if action.path.startswith("/proc/irq/") and not _same_boot(host, log):
        return
    now = host.text(action.path)
    if now is None:
        if _same_boot(host, log):
            done.failed.append(f"{action.path} is gone")
    elif now == action.before:
        return
    elif action.known is not None and now not in action.known and not force:
        done.left.append(action.path)
    else:
        host.poke(action.path, written(action.before).encode("utf-8", "surrogateescape"))
        done.restored.append(action.path)
