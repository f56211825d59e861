"""What applying, verifying and rolling back print on a terminal."""

from __future__ import annotations

import time
from collections.abc import Iterable

from kilter.facts.applied import Applied, Difference, Outcome, Reading, RolledBack, Status, Verification
from kilter.facts.plan import Change
from kilter.report.plain import plain
from kilter.report.writer import Writer, count

_COLORS = {Outcome.APPLIED: "32", Outcome.FAILED: "31", Outcome.REFUSED: "31", Outcome.SKIPPED: "33", Outcome.ALREADY: "2"}


def _name(change: Change) -> str:
    return f"{change.mechanism} {change.key}"


def _values(reading: Reading, change: Change) -> str:
    """``60 -> 10``; where the next boot differs from now, both."""
    to_be = "unset" if change.value is None else repr(change.value) if change.value == "" else change.value
    parts = []
    if reading.has_runtime:
        parts.append(f"now {_shown(reading.runtime)}")
    if reading.has_persistent:
        parts.append(f"next boot {_shown(reading.persistent)}" if reading.has_runtime else _shown(reading.persistent))
    return f"{', '.join(parts)} -> {to_be}" if parts else to_be


def _shown(value: str | None) -> str:
    return "not set" if value is None else "set" if value == "" else " ".join(value.split())[:120]


def diff_text(differences: Iterable[Difference], *, width: int, color: bool) -> str:
    """What would be written: change by change, with the lines of files and the commands."""
    out = Writer(width, color)
    found = list(differences)
    for one in found:
        word = "would be applied" if one.outcome is Outcome.APPLIED else one.outcome.value
        out.add(out.paint(plain(f"{_name(one.change)}: {_values(one.reading, one.change)}"), "1"))
        out.add(f"  {out.paint(word, _COLORS[one.outcome])}{plain(f': {one.why}') if one.why else ''}")
        for owner in one.owners:
            wins = "; it overrides kilter at the next boot" if owner.wins else ""
            out.labelled("also set", f"by {owner.name} to {owner.value}{wins}  ({owner.where})", indent=2)
        if one.needs and one.outcome is Outcome.APPLIED:
            out.labelled("needs", one.needs, indent=2)
        for text in one.files.values():
            for line in text.splitlines():
                out.add(f"    {out.paint(plain(line)[: width - 4], _line_color(line))}")
        for command in one.commands:
            out.labelled("$", command, indent=4, gutter=2)
    out.add()
    would = sum(one.outcome is Outcome.APPLIED for one in found)
    out.add(f"{count(would, 'change')} would be written, {len(found) - would} not. Nothing has been written.")
    return out.text()


def _line_color(line: str) -> str:
    return "32" if line.startswith("+") else "31" if line.startswith("-") else "2"


def applied_text(applied: Applied, *, width: int, color: bool) -> str:
    out = Writer(width, color)
    for result in applied.results:
        out.add(
            f"{out.paint(result.outcome.value.ljust(8), _COLORS[result.outcome])} "
            f"{plain(f'{_name(result.change)}: {_values(result.before, result.change)}')[: width - 9]}"
        )
        if result.why:
            out.labelled("", result.why, indent=9, gutter=0)
        if result.needs and result.outcome is Outcome.APPLIED:
            out.labelled("", f"in force after {result.needs}", indent=9, gutter=0)
        for owner in result.owners:
            if owner.wins and result.outcome is Outcome.APPLIED:
                out.labelled("", f"{owner.name} sets {owner.value} at the next boot ({owner.where})", indent=9, gutter=0)
    for note in applied.notes:
        out.labelled("note", note, indent=0)
    out.add()
    if not applied.id:
        out.add("Nothing was written.")
        return out.text()
    done, bad = applied.count(Outcome.APPLIED), applied.count(Outcome.FAILED)
    out.add(f"Change {applied.id}: {done} applied, {bad} failed, {len(applied.results) - done - bad} left alone.")
    out.add(f"Way back: kilter tune rollback {applied.id}, or sh /var/lib/kilter/changes/{applied.id}/rollback.sh")
    if applied.confirm_by is not None:
        out.add(f"It is rolled back at {_clock(applied.confirm_by)} unless you run: kilter tune confirm {applied.id}")
    return out.text()


def _clock(moment: float) -> str:
    return time.strftime("%Y-%m-%d %H:%M:%S UTC", time.gmtime(moment))


def status_text(found: list[Status], *, width: int, color: bool) -> str:
    out = Writer(width, color)
    if not found:
        out.add("kilter has changed nothing on this machine.")
    for one in found:
        when = _clock(one.time) if one.time else ""
        out.add(plain(f"{one.id:17} {one.state:12} {when}  {count(one.changes, 'change')}, {count(one.steps, 'step')}"))
        if one.note:
            out.labelled("", one.note, indent=18, gutter=0)
    return out.text()


def verify_text(found: Verification, *, width: int, color: bool) -> str:
    out = Writer(width, color)
    for drift in found.drifts:
        word, paint = ("pending", "33") if drift.pending else ("holds", "32") if drift.holds else ("drifted", "31")
        out.add(f"{out.paint(word.ljust(8), paint)} {plain(f'{_name(drift.change)}: {_shown(drift.change.value)}')[: width - 9]}")
        if drift.why:
            out.labelled("", drift.why, indent=9, gutter=0)
    out.add()
    out.add(f"Change {found.id} ({found.state}) {'holds' if found.holds else 'does not hold'}.")
    return out.text()


def rollback_text(found: RolledBack, *, width: int, color: bool) -> str:
    out = Writer(width, color)
    for path in found.restored:
        out.add(f"{out.paint('restored', '32')} {plain(path)}")
    for path in found.left:
        out.add(
            f"{out.paint('left    ', '33')} {plain(path)}: changed by somebody else since (--force puts it back all the same)"
        )
    for text in found.failed:
        out.labelled("failed", text, indent=0)
    out.add()
    if found.failed:
        out.add(f"Change {found.id} could not be rolled back whole.")
    else:
        out.add(f"Change {found.id} is rolled back.{f' In force after {found.needs}.' if found.needs else ''}")
    return out.text()
