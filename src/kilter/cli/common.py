"""What several commands share: progress on stderr, output files, reading inputs."""

from __future__ import annotations

import os
import sys
from collections.abc import Callable
from pathlib import Path

import click

from kilter.facts.case import Case
from kilter.report.plain import plain


def use_color() -> bool:
    """Whether to colour standard output: a terminal, and nobody said NO_COLOR (no-color.org)."""
    return "NO_COLOR" not in os.environ and os.environ.get("TERM") != "dumb" and sys.stdout.isatty()


def width() -> int:
    """Columns to fill, at most 100."""
    try:
        return max(60, min(100, os.get_terminal_size(sys.stdout.fileno()).columns))
    except (OSError, ValueError):
        return 100


def progress() -> Callable[[str], None] | None:
    """A function that shows what is being done on a terminal's stderr; None where stderr is no terminal."""
    if not sys.stderr.isatty():
        return None

    def show(text: str) -> None:
        sys.stderr.write(f"\r\x1b[Kreading {plain(text)[:80]}")
        sys.stderr.flush()

    return show


def clear_progress() -> None:
    if sys.stderr.isatty():
        sys.stderr.write("\r\x1b[K")
        sys.stderr.flush()


class Unusable(click.ClickException):
    """Usage or input error: ends the program with code 2."""

    exit_code = 2


def fail(message: str) -> Unusable:
    """An error that says what was expected, what was found and what to do."""
    return Unusable(plain(message))


def read_case(paths: tuple[str, ...]) -> Case:
    """The case of ``paths``; without any, of this host. Raises a click error for unusable input."""
    from kilter.intake.read import UnusableInput, read_paths

    try:
        if not paths:
            from kilter.intake.host import live_case

            return live_case(progress=progress())
        return read_paths(list(paths), progress=progress())
    except UnusableInput as error:
        raise fail(str(error)) from None
    finally:
        clear_progress()


def write_file(path: str, text: str) -> None:
    """Write an output file. Raises a click error with the reason when that fails."""
    try:
        Path(path).write_text(text, encoding="utf-8", errors="backslashreplace")
    except OSError as error:
        raise fail(f"cannot write {path}: {error.strerror or error}") from None
