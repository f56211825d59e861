"""Examples in README.md and docs/ are run, and print what they show.

A ``console`` block holds commands behind ``$`` and their output below; "..." stands for any lines. ``KILTER_UPDATE_DOCS=1 pytest
tests/test_docs.py`` fills in the output of commands that show none.
"""

from __future__ import annotations

import os
import re
import shlex
import subprocess
import sys
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[1]
FILES = [ROOT / "README.md", ROOT / "CONTRIBUTING.md", *sorted((ROOT / "docs").glob("*.md"))]
BLOCK = re.compile(r"^```console\n(.*?)^```$", re.MULTILINE | re.DOTALL)


def examples() -> list[tuple[Path, str, str]]:
    """(file, command, shown output) of every kilter command in a console block."""
    found = []
    for path in FILES:
        for block in BLOCK.findall(path.read_text()):
            for part in re.split(r"^\$ ", block, flags=re.MULTILINE)[1:]:
                command, _, output = part.partition("\n")
                command = command.split(" #")[0].strip()
                if command.startswith("kilter ") and not re.search(r"[<>|&]", command) and "[" not in command:
                    found.append((path, command, output.rstrip("\n")))
    return found


def run(command: str, folder: Path) -> tuple[int, str]:
    environment = {**os.environ, "COLUMNS": "100", "NO_COLOR": "1", "PYTHONIOENCODING": "utf-8"}
    argv = [sys.executable, "-m", "kilter", *shlex.split(command)[1:]]
    done = subprocess.run(argv, capture_output=True, text=True, cwd=folder, env=environment, check=False, timeout=60)
    return done.returncode, done.stdout.rstrip("\n")


def pattern(shown: str) -> re.Pattern[str]:
    """A line "..." stands for any lines, " ... " inside a line for anything in it."""
    blocks = re.split(r"^\.\.\.$\n?", shown, flags=re.MULTILINE)
    parts = [".*".join(re.escape(part) for part in re.split(r"(?<= )\.\.\.(?= )", block)) for block in blocks]
    return re.compile("(?s:.*)".join(parts) + r"\s*\Z")


@pytest.mark.parametrize(
    ("path", "command", "shown"),
    examples(),
    ids=lambda value: value if isinstance(value, str) and value.startswith("kilter") else "",
)
def test_example_prints_what_it_shows(path: Path, command: str, shown: str, tmp_path: Path) -> None:
    (tmp_path / "examples").symlink_to(ROOT / "examples")
    code, output = run(command, tmp_path)
    assert code in (0, 1), output
    if not shown and os.environ.get("KILTER_UPDATE_DOCS"):
        text = path.read_text()
        path.write_text(text.replace(f"$ {command}\n", f"$ {command}\n{output}\n", 1))
        return
    if shown:
        assert pattern(shown).match(output), f"{path.name}: {command} prints\n{output}"


def test_every_command_has_an_example() -> None:
    from kilter.cli.commands import COMMANDS

    shown = {command.split()[1] for _, command, output in examples() if output}
    assert set(COMMANDS) - shown <= {"completion", "snapshot", "schema"}
    mentioned = "".join(path.read_text() for path in FILES)
    assert all(f"kilter {name}" in mentioned for name in COMMANDS)
