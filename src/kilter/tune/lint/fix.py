"""Writes fixes into a text: new names and values in their places, settings taken away with the option or line that they stand in."""

from __future__ import annotations

import re

from kilter.tune.lint.report import Report
from kilter.tune.lint.setting import Edit, Span

_OPENS = re.compile(r"(?:\bthen|\bdo|\belse|\{|^[^()]*\))\s*(?:#.*)?$")
_CLOSES = re.compile(r"\s*(?:fi|done|else|elif|\}|;;|esac)\b|\s*(?:\}|;;)")


def fixed(text: str, reports: list[Report]) -> tuple[list[str], list[str]]:
    """The lines of a text, line ends kept, and those after all fixes that can be written. Two fixes of one place: the first holds."""
    # As git and patch count lines: other signs that end a line for Python end none for them.
    lines = re.findall(r"[^\n]*\n|[^\n]+$", text)
    new: list[str | None] = list(lines)
    if len(text.splitlines()) != len(lines):
        return lines, lines  # line numbers of the readers are not those of the patch
    whole: set[int] = set()
    pieces: list[tuple[Span, str]] = []
    for report in reports:
        edit = report.setting.edit
        if edit is not None and report.fix is not None:
            changed = _changes(edit, report)
            whole |= {span.line for span, _ in changed if span.end < 0}
            pieces += [(span, said) for span, said in changed if span.end >= 0]
    last = (0, 0)
    for span, said in sorted(pieces, key=lambda piece: (-piece[0].line, -piece[0].start)):
        if span.line in whole or (span.line == last[0] and span.end > last[1]):
            continue
        line = lines[span.line - 1] if new[span.line - 1] is None else new[span.line - 1] or ""
        new[span.line - 1] = _tidy(line[: span.start] + said + line[span.end :], said)
        last = (span.line, span.start)
    for number in whole:
        new[number - 1] = None
    _continuations(lines, new)
    _empty_blocks(lines, new)
    return lines, [line for line in new if line is not None]


def _changes(edit: Edit, report: Report) -> list[tuple[Span, str]]:
    if not report.fix:
        return [(span, "") for span in edit.cut]
    name, _, value = report.fix.partition("=")
    changed = [(edit.name, name)] if name != report.setting.name else []
    if value != report.setting.value:
        if edit.value is None:
            return []
        changed.append((edit.value, value))
    return changed


def _tidy(line: str, said: str) -> str:
    """No blanks at the end where a word went."""
    if said:
        return line
    body = line.rstrip("\n")
    return body.rstrip() + line[len(body) :] if not body.rstrip().endswith("\\") else line


def _continuations(lines: list[str], new: list[str | None]) -> None:
    """Where the last line of a command went, the one before no longer goes on."""
    for index, line in enumerate(new):
        if line is not None or lines[index].rstrip().endswith("\\"):
            continue
        before = index - 1
        while before >= 0 and new[before] is None and lines[before].rstrip().endswith("\\"):
            before -= 1
        kept = new[before] if before >= 0 else None
        if kept is not None and lines[before].rstrip().endswith("\\"):
            body = kept.rstrip()
            new[before] = body[:-1].rstrip() + "\n" if body.endswith("\\") else kept


def _empty_blocks(lines: list[str], new: list[str | None]) -> None:
    """``if x; then`` and ``fi`` with nothing between is no shell: a colon stands there."""
    for index, line in enumerate(new):
        if line is not None:
            continue
        before = next(
            (one for one in reversed(new[:index]) if one is not None and one.strip() and not one.lstrip().startswith("#")), ""
        )
        after = next(
            (one for one in new[index + 1 :] if one is not None and one.strip() and not one.lstrip().startswith("#")), ""
        )
        if before and after and _OPENS.search(before.rstrip()) and _CLOSES.match(after):
            indent = lines[index][: len(lines[index]) - len(lines[index].lstrip())]
            new[index] = f"{indent}:\n"
