"""Comparisons of nodes on a terminal: drift table, outliers, gaps; the verdict of a bisection. At most 100 columns."""

from __future__ import annotations

import textwrap
from collections.abc import Iterable, Sequence
from typing import NamedTuple

from kilter.report.plain import plain

MAX_ODD = 12


class DriftRow(NamedTuple):
    area: str
    fact: str
    is_warning: bool
    common: str  # "550.54.15 (31 of 32)", or "no common value"
    odd: Sequence[tuple[str, str]]  # (nodes, value)
    kind: str = ""  # GPU models, where there are several kinds


def _wrap(text: str, width: int, first: str, rest: str) -> list[str]:
    return textwrap.wrap(plain(text), width, initial_indent=first, subsequent_indent=rest, break_on_hyphens=False) or [
        first.rstrip()
    ]


def _cut(text: str, room: int) -> str:
    return text if len(text) <= room else text[: room - 3] + "..."


def drift_lines(rows: Iterable[DriftRow], *, width: int, color: bool) -> list[str]:
    """The drift table: one line a fact, the odd nodes below it."""
    lines: list[str] = []
    area = ""
    for row in rows:
        if row.area != area:
            area = row.area
            mark = "WARNING" if row.is_warning else "info"
            code = "1;33" if row.is_warning else "36"
            lines.append(f"{area.replace('_', ' ')}  " + (f"\x1b[{code}m{mark}\x1b[0m" if color else mark))
        kind = f" [{row.kind}]" if row.kind else ""
        fact = _cut(plain(row.fact + kind), 38)
        lines += _wrap(_cut(row.common, 200), width, f"  {fact:<38}  ", " " * 42)
        for nodes, value in row.odd[:MAX_ODD]:
            lines += _wrap(f"{_cut(value, 200)}  on {nodes}", width, "      ", "          ")
        if len(row.odd) > MAX_ODD:
            lines.append(f"      ... {len(row.odd) - MAX_ODD} more values or nodes in --json")
    return lines


def comparison_text(
    rows: Sequence[DriftRow],
    outliers: Sequence[tuple[str, str]],
    gaps: Sequence[tuple[str, int, Sequence[str]]],
    *,
    nodes: int,
    facts: int,
    width: int,
    color: bool,
) -> str:
    """The whole comparison. ``outliers``: (subject, text). ``gaps``: (area, facts that others have, nodes that lack them)."""
    lines = [f"{nodes} nodes, {facts} facts compared: {len(rows)} differ, {len(outliers)} outliers", ""]
    lines += drift_lines(rows, width=width, color=color) or ["No configuration drift."]
    if outliers:
        lines += ["", "Outliers"]
        for subject, text in outliers:
            lines += _wrap(f"{subject}: {text}", width, "  ", "      ")
    if gaps:
        lines += ["", "Not compared, since nodes lack the facts"]
        for area, count, lacking in gaps:
            few = ", ".join(lacking[:6]) + (f" and {len(lacking) - 6} more" if len(lacking) > 6 else "")
            lines += _wrap(f"{area.replace('_', ' ')} ({count} facts): {few}", width, "  ", "      ")
    return "\n".join(lines) + "\n"


def verdict_text(
    accused: Sequence[tuple[str, str, str]],
    *,
    suspects: Sequence[str],
    good: int,
    spread: float | None,
    tests: int,
    not_tested: str,
    following: str,
    width: int,
) -> str:
    """``accused``: (kind, confidence, text)."""
    lines = [f"{tests} results, {good} nodes cleared" + (f", spread of good pairs {100 * spread:.1f} %" if spread else "")]
    for kind, confidence, text in accused:
        lines += _wrap(f"{text} (confidence {confidence})", width, f"GUILTY {kind}  ", "    ")
    if not accused:
        lines.append("Nobody is guilty on these results." if tests else "No results yet.")
    if suspects:
        few = ", ".join(suspects[:10]) + (f" and {len(suspects) - 10} more" if len(suspects) > 10 else "")
        lines += _wrap(f"undecided: {few}", width, "", "    ")
    if not_tested:
        lines += _wrap(f"not tested: {not_tested}", width, "", "    ")
    if following:
        lines += _wrap(f"next: {following}", width, "", "    ")
    return "\n".join(lines) + "\n"
