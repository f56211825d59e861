"""``kilter explain``."""

from __future__ import annotations

import sys

import click

from kilter.cli.common import fail, use_color, width


@click.command("explain")
@click.argument("topic", nargs=-1, required=True)
@click.option("--json", "as_json", is_flag=True, help="Print JSON.")
def command(topic: tuple[str, ...], as_json: bool) -> None:
    """The knowledge behind a finding id, "xid 79", "sxid 12028", "sop-bus", a throttle reason, an AER bit, a counter or a GPU.

    With its sources, and with what they disagree on.
    """
    from kilter.diagnose.explain import explain, suggest
    from kilter.report.text import explanation_text

    text = " ".join(topic)
    found = explain(text)
    if found is None:
        near = suggest(text)
        raise fail(f"nothing is known of {text!r}." + (f" Near: {', '.join(near)}." if near else " Try 'kilter explain xid 79'."))
    if as_json:
        from kilter.report.plain import json_text

        sys.stdout.write(json_text(found))
    else:
        sys.stdout.write(explanation_text(found, width=width(), color=use_color()))
