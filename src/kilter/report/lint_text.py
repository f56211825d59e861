"""Reports of the linter on a terminal: ``file:line:column: severity: message [id]``, as compilers print them."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Protocol

from kilter.report.plain import plain
from kilter.report.writer import Writer, count

_COLORS = {"error": "31", "warning": "33", "note": "2"}


class _Place(Protocol):
    @property
    def file(self) -> str: ...
    @property
    def line(self) -> int: ...
    @property
    def column(self) -> int: ...


class ReportLike(Protocol):
    """What is printed of a report."""

    @property
    def id(self) -> str: ...
    @property
    def severity(self) -> str: ...
    @property
    def message(self) -> str: ...
    @property
    def fix(self) -> str | None: ...
    @property
    def source(self) -> str: ...
    @property
    def setting(self) -> _Place: ...


def lint_text(reports: Sequence[ReportLike], counts: dict[str, int], files: int, *, width: int, color: bool) -> str:
    out = Writer(width, color)
    for report in reports:
        place = report.setting
        out.add(
            plain(f"{place.file}:{place.line}:{place.column}: ")
            + out.paint(report.severity, _COLORS[report.severity])
            + f" [{report.id}]"
        )
        out.labelled("", report.message, indent=4, gutter=0)
        if report.fix is not None:
            out.labelled("fix", report.fix or "take it away", indent=4, gutter=8)
        if report.source:
            out.labelled("source", report.source, indent=4, gutter=8)
    said = ", ".join(count(number, name) for name, number in counts.items() if number) or "nothing to say"
    out.add(f"{count(files, 'file')}: {said}.")
    return out.text()
