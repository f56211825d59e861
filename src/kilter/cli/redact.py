"""``kilter redact``."""

from __future__ import annotations

import os
import sys

import click

from kilter.cli.common import clear_progress, fail, progress


@click.command("redact")
@click.argument("bundle", metavar="FILE|DIR|BUNDLE")
@click.option("-o", "--output", required=True, metavar="OUT.tar.gz", help="Archive to write.")
@click.option("--host", "hosts", multiple=True, metavar="NAME", help="A host name to replace besides those found. Repeatable.")
@click.option(
    "--word", "words", multiple=True, metavar="WORD", help="Any other word to replace (a project, a customer). Repeatable."
)
@click.option("--map", "map_path", metavar="FILE", help="Write what each token stands for. Keep that file private.")
@click.option("--force", is_flag=True, help="Overwrite OUT.")
def command(bundle: str, output: str, hosts: tuple[str, ...], words: tuple[str, ...], map_path: str | None, force: bool) -> None:
    """Copy a bundle without what names its site, so that it can be shared: diagnosing the copy gives the same findings.

    Host and user names, IP and MAC addresses, InfiniBand GUIDs, serial numbers, UUIDs and e-mail addresses become tokens, the same for the
    same value in all files. Values of names that look like secrets, and private keys, are removed. PCI addresses, versions and times stay.

    Exit code: 0 written, 2 unusable input.
    """
    from kilter.intake.redact import Redactor
    from kilter.intake.redact_bundle import Unreadable, mapping_text, redact_bundle
    from kilter.report.plain import plain

    for path in (output, map_path):
        if path and os.path.exists(path) and not force:
            raise fail(f"{path} exists; give --force to overwrite it")
    redactor = Redactor(hosts, words)
    try:
        report = redact_bundle(bundle, output, redactor=redactor, progress=progress())
        if map_path:
            handle = os.open(map_path, os.O_WRONLY | os.O_CREAT | os.O_TRUNC, 0o600)
            with os.fdopen(handle, "w", encoding="utf-8") as stream:
                stream.write(mapping_text(redactor))
    except Unreadable as error:
        raise fail(str(error)) from None
    except OSError as error:
        raise fail(f"{error.filename or output}: {error.strerror or error}") from None
    finally:
        clear_progress()
    sys.stdout.write(f"{plain(output)}: {report.files} files\n")
    for kind, number in sorted(report.values.items()):
        sys.stdout.write(f"  {kind}: {number} different\n")
    if secrets := report.replaced.get("secret"):
        sys.stdout.write(f"  secrets removed: {secrets} places\n")
    for left in report.left_out[:20]:
        sys.stdout.write(f"  left out: {plain(left)}\n")
    if len(report.left_out) > 20:
        sys.stdout.write(f"  left out: {len(report.left_out) - 20} more\n")
    for warning in report.warnings:
        sys.stderr.write(f"kilter: {warning}\n")
