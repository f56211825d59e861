"""``kilter timeline``."""

from __future__ import annotations

import sys

import click

from kilter.cli.common import fail, read_case, width, write_file


@click.command("timeline")
@click.argument("paths", nargs=-1, metavar="[PATH|DIR|BUNDLE|-]...")
@click.option("--node", "nodes", multiple=True, help="Only events of this node (repeatable).")
@click.option("--kind", "kinds", multiple=True, help="Only events of this kind or family, e.g. xid, nccl (repeatable).")
@click.option("--text", metavar="WORDS", help="Only events whose line holds WORDS.")
@click.option("--html", "html_path", metavar="FILE", help="Write a picture: one self-contained HTML file.")
@click.option("--json", "as_json", is_flag=True, help="Print JSON.")
def command(
    paths: tuple[str, ...], nodes: tuple[str, ...], kinds: tuple[str, ...], text: str | None, html_path: str | None, as_json: bool
) -> None:
    """The merged time line of all logs: clocks of the nodes brought together, order with its uncertainty, and the first cause."""
    from kilter.diagnose.first_cause import find, role
    from kilter.diagnose.timeline import build
    from kilter.report.plain import plain

    case = read_case(paths)
    line_up = build(case)
    if not line_up.moments:
        raise fail("no events in these inputs: expected kernel logs, NCCL or job logs")
    incident = find(case, line_up)
    verdict = "no complaint of a peer and no fault on several nodes" if incident is None else incident.verdict
    chosen = [
        m
        for m in line_up.moments
        if (not nodes or m.event.node in nodes)
        and (not kinds or any(m.event.kind == k or m.event.kind.startswith(k + ".") for k in kinds))
        and (text is None or text.lower() in m.event.text.lower())
    ]
    if html_path:
        from kilter.report.timeline_html import Mark, render_timeline_html

        marks = [Mark(m.event, m.time, m.uncertainty_s, role(m.event)) for m in chosen]
        write_file(
            html_path, render_timeline_html(marks, verdict=verdict, notes=line_up.notes, title=", ".join(paths) or "this host")
        )
        sys.stdout.write(f"wrote {plain(html_path)}\n")
    elif as_json:
        from kilter.report.plain import json_text

        document = {
            "schema": 1,
            "verdict": incident,
            "clocks": line_up.clocks,
            "notes": line_up.notes,
            "events": [
                {"time": m.time, "uncertainty_s": m.uncertainty_s, "role": role(m.event), "event": m.event} for m in chosen
            ],
        }
        sys.stdout.write(json_text(document))
    else:
        from kilter.report.timeline_text import line

        columns = width()
        node_width = min(max((len(m.event.node) for m in chosen), default=4), 16)
        for moment in chosen:
            sys.stdout.write(line(moment.time, moment.uncertainty_s, moment.event, width=columns, node_width=node_width) + "\n")
        sys.stdout.write(f"\nFirst cause: {plain(verdict)}\n")
        if incident is not None:
            for word, items in (("because", incident.why), ("but", incident.against), ("missing", incident.missing)):
                for item in items:
                    sys.stdout.write(f"  {word}: {plain(item)}\n")
        for note in line_up.notes:
            sys.stdout.write(f"  clocks: {plain(note)}\n")
