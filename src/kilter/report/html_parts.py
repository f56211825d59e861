"""Small pieces of HTML that the report is made of. What they return is escaped."""

from __future__ import annotations

import re
from collections.abc import Iterable
from datetime import datetime, timezone

from kilter.facts.finding import Severity
from kilter.report.topology_svg import escape

_URL = re.compile(r"https?://[^\s<>\"'`]{1,2000}")


def badge(severity: Severity | str, text: str = "") -> str:
    name = severity.value if isinstance(severity, Severity) else severity
    return f'<span class="badge {name}">{escape(text or name)}</span>'


def linked(text: str) -> str:
    """Escaped text in which web addresses are links."""
    out, last = [], 0
    for match in _URL.finditer(text):
        url = match.group().rstrip(".,;:)")
        out += [escape(text[last : match.start()]), f'<a href="{escape(url)}" rel="noreferrer noopener">{escape(url)}</a>']
        last = match.start() + len(url)
    return "".join(out) + escape(text[last:])


def time_text(value: float | None) -> str:
    """A log's own time; small numbers count from boot."""
    if value is None:
        return ""
    if abs(value) < 1e8:
        return f"{value:.3f} s after boot"
    try:
        return datetime.fromtimestamp(value, timezone.utc).strftime("%Y-%m-%d %H:%M:%S")
    except (ValueError, OverflowError, OSError):
        return f"{value:g}"


def details(summary: str, inner: str, *, open_: bool = False, css: str = "") -> str:
    """Both texts are HTML already."""
    attributes = (f' class="{css}"' if css else "") + (" open" if open_ else "")
    return f"<details{attributes}><summary>{summary}</summary>{inner}</details>"


def table(heads: Iterable[tuple[str, bool]], rows: Iterable[Iterable[str]], *, css: str = "") -> str:
    """Cells are HTML already; ``True`` in a head makes its column a column of numbers."""
    columns = list(heads)
    top = "".join(f"<th{' class=num' if number else ''}>{escape(name)}</th>" for name, number in columns)
    body = "".join(
        "<tr>"
        + "".join(f"<td{' class=num' if number else ''}>{cell}</td>" for cell, (_, number) in zip(row, columns, strict=False))
        + "</tr>"
        for row in rows
    )
    kind = f' class="{css}"' if css else ""
    return f'<div class="scroll"><table{kind}><thead><tr>{top}</tr></thead><tbody>{body}</tbody></table></div>'
