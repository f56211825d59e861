"""``kilter snapshot``."""

from __future__ import annotations

import sys

import click

from kilter.cli.common import clear_progress, fail, progress, write_file


@click.command("snapshot")
@click.option("-o", "--output", metavar="FILE", help="Write to FILE instead of standard output.")
@click.option("--root", default="/", show_default=True, metavar="DIR", help="Read a captured /sys and /proc tree below DIR.")
@click.option("--script", is_flag=True, help="Print a POSIX sh collector for machines without Python.")
@click.option("--timeout", default=10.0, show_default=True, metavar="SECONDS", help="Time limit of each driver probe.")
def command(output: str | None, root: str, script: bool, timeout: float) -> None:
    """Record the facts of this machine as JSON: a later 'kilter diagnose FILE' works from it anywhere.

    Works as root or not, with or without a GPU. Nothing is written but the output. Driver tools run in child processes with a time limit.
    """
    if script:
        from importlib.resources import files

        text = files("kilter.intake.live").joinpath("collect.sh").read_text(encoding="utf-8")
    else:
        from kilter.intake.host import live_snapshot
        from kilter.report.json import snapshot_json

        if timeout <= 0:
            raise fail("--timeout must be above 0 seconds")
        try:
            text = snapshot_json(live_snapshot(root, timeout_s=timeout, progress=progress()))
        except NotADirectoryError as error:
            raise fail(str(error)) from None
        finally:
            clear_progress()
    if output:
        write_file(output, text)
    else:
        sys.stdout.write(text)
