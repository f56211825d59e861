"""Entry point. ``--help`` and ``--version`` answer before any heavy import: click alone takes longer than the interpreter's start."""

from __future__ import annotations

import sys

from kilter import __version__
from kilter.cli.commands import COMMANDS

USAGE = """Usage: kilter [OPTIONS] COMMAND [ARGS]...

  The performance engineer of a GPU fleet: point it at a node, or at the logs
  somebody pasted, and it says what is wrong or slow and why.

Options:
  --version  Show the version and exit.
  --help     Show this message and exit.

Commands:
"""


def help_text() -> str:
    """What ``kilter --help`` prints."""
    return USAGE + "".join(f"  {name:<11}{command.summary}\n" for name, command in COMMANDS.items())


def main() -> None:
    """Run the command line."""
    arguments = sys.argv[1:]
    if arguments in ([], ["--help"], ["-h"]):
        sys.stdout.write(help_text())
        return
    if arguments == ["--version"]:
        sys.stdout.write(f"kilter {__version__}\n")
        return
    from kilter.cli.main import run

    run()


if __name__ == "__main__":
    main()
