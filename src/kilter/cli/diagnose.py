"""``kilter diagnose``."""

from __future__ import annotations

import sys

import click

from kilter.cli.common import read_case, use_color, width, write_file
from kilter.facts.case import Case
from kilter.facts.finding import Diagnosis, Severity


@click.command("diagnose")
@click.argument("paths", nargs=-1, metavar="[PATH|DIR|BUNDLE|-]...")
@click.option("--json", "as_json", is_flag=True, help="Print JSON (see 'kilter schema diagnosis').")
@click.option("--html", "html_path", metavar="FILE", help="Write one self-contained HTML file.")
@click.option("--report", "report_path", metavar="FILE", help="Write a fault analysis to hand over: FILE.md or FILE.html.")
@click.option(
    "--fail-on",
    type=click.Choice([s.value for s in Severity]),
    default="error",
    show_default=True,
    help="Exit 1 at or above this severity.",
)
@click.option("-v", "--verbose", is_flag=True, help="Show information findings in full, and every check.")
def command(
    paths: tuple[str, ...], as_json: bool, html_path: str | None, report_path: str | None, fail_on: str, verbose: bool
) -> None:
    """Say what is wrong or slow, with the evidence, and what was not checked.

    PATHS are files, folders and archives of captures (nvidia-smi, lspci, dmesg, NCCL logs, ...), recognised by their content; "-" reads a
    paste from standard input. Without a path, this host is looked at.

    Exit code: 0 nothing at or above --fail-on, 1 findings, 2 unusable input.
    """
    from kilter.diagnose.engine import diagnose

    if report_path and not report_path.lower().endswith((".md", ".html")):
        raise click.UsageError(f"--report {report_path}: expected a name that ends in .md or .html")
    case = read_case(paths)
    diagnosis = diagnose(case)
    if html_path:
        from kilter import __version__
        from kilter.report.html import render_html

        write_file(html_path, render_html(case, diagnosis, title=_title(case, paths), version=__version__))
    if report_path:
        write_file(report_path, _analysis(case, diagnosis, _title(case, paths), html=report_path.lower().endswith(".html")))
    if as_json:
        from kilter.report.json import diagnosis_json

        sys.stdout.write(diagnosis_json(case, diagnosis))
    else:
        from kilter.report.plain import plain
        from kilter.report.text import diagnosis_text

        sys.stdout.write(diagnosis_text(case, diagnosis, width=width(), color=use_color(), verbose=verbose))
        for label, path in (("HTML report", html_path), ("Fault analysis", report_path)):
            if path:
                sys.stdout.write(f"\n{label}: {plain(path)}\n")
    limit = Severity(fail_on).rank
    nothing = not any(i.tools for i in case.inputs) if paths else False
    if nothing:
        sys.stderr.write("kilter: nothing in these inputs was recognised; 'kilter diagnose --help' tells what is read\n")
        sys.exit(2)
    sys.exit(1 if any(f.severity.rank >= limit for f in diagnosis.findings) else 0)


def _title(case: Case, paths: tuple[str, ...]) -> str:
    from kilter.intake.stored import node_names

    nodes = [name for name in node_names(case.snapshots) if name]
    return ", ".join(nodes[:8]) + (f" and {len(nodes) - 8} more" if len(nodes) > 8 else "") or ", ".join(paths) or "this host"


def _analysis(case: Case, diagnosis: Diagnosis, title: str, *, html: bool) -> str:
    from kilter.diagnose.first_cause import find, role
    from kilter.diagnose.timeline import build
    from kilter.report.analysis import document, to_html, to_markdown
    from kilter.report.timeline_html import Mark

    line_up = build(case)
    incident = find(case, line_up)
    blocks = document(
        case,
        diagnosis,
        [Mark(m.event, m.time, m.uncertainty_s, role(m.event)) for m in line_up.moments],
        line_up.notes,
        title=title,
        verdict=incident.verdict if incident is not None else "",
    )
    return to_html(blocks) if html else to_markdown(blocks)
