"""``kilter diagnose``."""

from __future__ import annotations

import sys

import click

from kilter.cli.common import read_case, use_color, width, write_file
from kilter.facts.finding import Severity


@click.command("diagnose")
@click.argument("paths", nargs=-1, metavar="[PATH|DIR|BUNDLE|-]...")
@click.option("--json", "as_json", is_flag=True, help="Print JSON (see 'kilter schema diagnosis').")
@click.option("--html", "html_path", metavar="FILE", help="Write one self-contained HTML file.")
@click.option(
    "--fail-on",
    type=click.Choice([s.value for s in Severity]),
    default="error",
    show_default=True,
    help="Exit 1 at or above this severity.",
)
@click.option("-v", "--verbose", is_flag=True, help="Show information findings in full, and every check.")
def command(paths: tuple[str, ...], as_json: bool, html_path: str | None, fail_on: str, verbose: bool) -> None:
    """Say what is wrong or slow, with the evidence, and what was not checked.

    PATHS are files, folders and archives of captures (nvidia-smi, lspci, dmesg, NCCL logs, ...), recognised by their content; "-" reads a
    paste from standard input. Without a path, this host is looked at.

    Exit code: 0 nothing at or above --fail-on, 1 findings, 2 unusable input.
    """
    from kilter.diagnose.engine import diagnose

    case = read_case(paths)
    diagnosis = diagnose(case)
    if html_path:
        from kilter import __version__
        from kilter.report.html import render_html

        title = ", ".join(s.node for s in case.snapshots if s.node) or ", ".join(paths) or "this host"
        write_file(html_path, render_html(case, diagnosis, title=title, version=__version__))
    if as_json:
        from kilter.report.json import diagnosis_json

        sys.stdout.write(diagnosis_json(case, diagnosis))
    else:
        from kilter.report.text import diagnosis_text

        sys.stdout.write(diagnosis_text(case, diagnosis, width=width(), color=use_color(), verbose=verbose))
        if html_path:
            sys.stdout.write(f"\nHTML report: {html_path}\n")
    limit = Severity(fail_on).rank
    nothing = not any(i.tools for i in case.inputs) if paths else False
    if nothing:
        sys.stderr.write("kilter: nothing in these inputs was recognised; 'kilter diagnose --help' tells what is read\n")
        sys.exit(2)
    sys.exit(1 if any(f.severity.rank >= limit for f in diagnosis.findings) else 0)
