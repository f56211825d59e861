"""``kilter completion``."""

from __future__ import annotations

import sys

import click
from click.shell_completion import get_completion_class

from kilter.cli.common import fail


@click.command("completion")
@click.argument("shell", type=click.Choice(["bash", "zsh", "fish"]))
def command(shell: str) -> None:
    """Print the completion script of a shell, e.g.: kilter completion bash > /etc/bash_completion.d/kilter"""
    from kilter.cli.main import cli

    kind = get_completion_class(shell)
    if kind is None:
        raise fail(f"no completion for {shell}")
    sys.stdout.write(kind(cli, {}, "kilter", "_KILTER_COMPLETE").source() + "\n")
