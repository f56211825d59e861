"""The merged time line as one self-contained HTML file: a lane a node, a mark an event."""

from __future__ import annotations

from collections.abc import Sequence
from html import escape
from typing import NamedTuple

from kilter.facts.event import Event
from kilter.report.timeline_text import clock_text

_STYLE = """
:root{color-scheme:light dark;--fg:#1f2328;--dim:#656d76;--bg:#fff;--line:#d0d7de;--root:#cf222e;--victim:#9a6700;--other:#0969da}
@media(prefers-color-scheme:dark){:root{--fg:#e6edf3;--dim:#8d96a0;--bg:#0d1117;--line:#30363d;--root:#ff7b72;--victim:#d29922;--other:#58a6ff}}
body{font:14px system-ui,sans-serif;color:var(--fg);background:var(--bg);margin:24px}table{border-collapse:collapse;width:100%}
td{padding:2px 8px;border-bottom:1px solid var(--line);vertical-align:top;font:12px ui-monospace,monospace}td.t{white-space:nowrap;color:var(--dim)}
svg{width:100%;height:auto}text{font:11px system-ui,sans-serif;fill:var(--fg)}.dim{color:var(--dim);fill:var(--dim)}
.root{fill:var(--root);color:var(--root)}.victim{fill:var(--victim);color:var(--victim)}.other{fill:var(--other)}line{stroke:var(--line)}
"""
MAX_LANES = 64
MAX_ROWS = 2000


class Mark(NamedTuple):
    """One event to draw. ``role``: root, victim, other."""

    event: Event
    time: float | None
    uncertainty_s: float
    role: str


def _svg(marks: Sequence[Mark], nodes: list[str]) -> str:
    timed = [m for m in marks if m.time is not None]
    if not timed:
        return "<p>No event has a time that compares with others.</p>"
    start, end = min(m.time or 0.0 for m in timed), max(m.time or 0.0 for m in timed)
    span = max(end - start, 1.0)
    left, width, step = 160, 1000, 22
    row = {node: 30 + step * n for n, node in enumerate(nodes[:MAX_LANES])}
    height = 40 + step * len(row)
    parts = [f'<svg viewBox="0 0 {left + width + 20} {height}" role="img" aria-label="time line">']
    for node, y in row.items():
        parts.append(f'<text x="{left - 8}" y="{y + 4}" text-anchor="end">{escape(node or "(not named)")[:22]}</text>')
        parts.append(f'<line x1="{left}" y1="{y}" x2="{left + width}" y2="{y}"/>')
    for n in range(6):
        x = left + width * n / 5
        parts.append(f'<text class="dim" x="{x:.0f}" y="14" text-anchor="middle">+{span * n / 5:.1f} s</text>')
    for mark in sorted(timed, key=lambda m: m.role == "root"):
        lane = row.get(mark.event.node)
        if lane is None:
            continue
        y = lane
        x = left + width * ((mark.time or 0.0) - start) / span
        wide = max(width * mark.uncertainty_s / span, 0.0)
        title = escape(f"{clock_text(mark.time, mark.event)} {mark.event.node} {mark.event.text}")
        if wide > 2:
            parts.append(
                f'<rect class="{mark.role}" opacity="0.2" x="{x - wide:.1f}" y="{y - 5}" width="{2 * wide:.1f}" height="10"/>'
            )
        parts.append(
            f'<circle class="{mark.role}" cx="{x:.1f}" cy="{y}" r="{5 if mark.role == "root" else 3.5}"><title>{title}</title></circle>'
        )
    return "".join(parts) + "</svg>"


def render_timeline_html(marks: Sequence[Mark], *, verdict: str, notes: list[str], title: str) -> str:
    """One HTML file without outside loads. Everything that was read is escaped."""
    nodes = sorted(
        {m.event.node for m in marks}, key=lambda n: (not any(m.role == "root" and m.event.node == n for m in marks), n)
    )
    rows = "".join(
        f'<tr><td class="t">{escape(clock_text(m.time, m.event))}</td><td class="t">{f"±{m.uncertainty_s:.1f} s" if m.time is not None else ""}</td>'
        f'<td>{escape(m.event.node)}</td><td class="{m.role}">{escape(m.event.text)}{f" (x{m.event.count})" if m.event.count > 1 else ""}</td>'
        f'<td class="t">{escape(m.event.where)}</td></tr>'
        for m in marks[:MAX_ROWS]
    )
    more = (
        f"<p>{len(marks) - MAX_ROWS} more events are left out here; kilter timeline --json has them.</p>"
        if len(marks) > MAX_ROWS
        else ""
    )
    lanes = f"<p>{len(nodes) - MAX_LANES} more nodes are not drawn.</p>" if len(nodes) > MAX_LANES else ""
    listed = "".join(f"<li>{escape(note)}</li>" for note in notes)
    return (
        f'<!DOCTYPE html><html lang="en"><head><meta charset="utf-8"><title>{escape(title)}</title><style>{_STYLE}</style></head><body>'
        f"<h1>{escape(title)}</h1><p><b>{escape(verdict)}</b></p>{_svg(marks, nodes)}{lanes}"
        f'<p class="dim">red: a fault of the node itself; amber: a complaint of its peers; shaded: uncertainty of the clocks</p><ul>{listed}</ul>'
        f"<table>{rows}</table>{more}</body></html>\n"
    )
