"""``kilter schema``."""

from __future__ import annotations

import sys

import click


@click.command("schema")
@click.argument("what", type=click.Choice(["snapshot", "diagnosis", "topology", "plan", "workload"]), default="diagnosis")
def command(what: str) -> None:
    """JSON schema (2020-12) of what 'kilter snapshot', 'diagnose', 'topo', 'tune plan' and 'workload show' print with --json."""
    from kilter.report.json import schema

    sys.stdout.write(schema(what))
