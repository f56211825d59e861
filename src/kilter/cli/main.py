"""The click group, its lazy loading, and how errors end the program."""

from __future__ import annotations

import gc
import importlib
import io
import os
import sys

import click

from kilter import __version__
from kilter.cli.commands import COMMANDS
from kilter.intake.errors import UnusableInput

#: Exit codes: 0 fine, 1 findings or a failed gate, 2 usage or unusable input.
OK, FINDINGS, USAGE = 0, 1, 2


class _Lazy(click.Group):
    """Imports a command when it is used."""

    def list_commands(self, ctx: click.Context) -> list[str]:
        return list(COMMANDS)

    def get_command(self, ctx: click.Context, cmd_name: str) -> click.Command | None:
        known = COMMANDS.get(cmd_name)
        if known is None:
            return None
        command: click.Command = importlib.import_module(f"kilter.cli.{known.module}").command
        return command

    def resolve_command(self, ctx: click.Context, args: list[str]) -> tuple[str | None, click.Command | None, list[str]]:
        try:
            return super().resolve_command(ctx, args)
        except click.UsageError:
            import difflib

            near = difflib.get_close_matches(args[0], COMMANDS, 1)
            hint = f" Did you mean {near[0]!r}?" if near else ""
            raise click.UsageError(f"no command {args[0]!r}.{hint} 'kilter --help' lists them.", ctx) from None

    def format_commands(self, ctx: click.Context, formatter: click.HelpFormatter) -> None:
        with formatter.section("Commands"):
            formatter.write_dl([(name, command.summary) for name, command in COMMANDS.items()])


@click.group(cls=_Lazy, context_settings={"help_option_names": ["-h", "--help"], "max_content_width": 100})
@click.version_option(__version__, message="kilter %(version)s")
def cli() -> None:
    """The performance engineer of a GPU fleet."""


def run() -> None:
    """Run the group; end quietly on a closed pipe or an interrupt."""
    # One short process whose objects live to its end: looking through them for cycles again and again is the larger cost of a fleet.
    gc.set_threshold(200_000, 50, 1000)
    if isinstance(sys.stdout, io.TextIOWrapper):  # a terminal of few characters shows the others as \uXXXX
        sys.stdout.reconfigure(errors="backslashreplace")
    try:
        cli(prog_name="kilter", windows_expand_args=False)
    except BrokenPipeError:
        # The reader went away (kilter ... | head). Python would complain again when it flushes at exit.
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
        sys.exit(OK)
    except UnusableInput as error:  # a file that changed under our hands
        sys.stderr.write(f"Error: {error}\n")
        sys.exit(USAGE)
