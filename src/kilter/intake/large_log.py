"""Logs too large for memory: only the lines that hold a mark are brought in, by grep where there is one.

GNU grep searches fixed strings at memory speed; nothing in Python comes near. Without it the file is read in pieces.
"""

from __future__ import annotations

import os
import re
import shutil
import subprocess
from collections.abc import Iterator
from pathlib import Path

from kilter.intake.captures import kernel_log
from kilter.intake.logs import MARKS, Logs

#: Plain files above this are sampled, and read here when the samples are log lines.
LARGE = 64 << 20
PIECE = 16 << 20


def _by_grep(grep: str, path: Path, marks: tuple[str, ...]) -> Iterator[tuple[int, str]]:
    # One extended expression is matched by one automaton; GNU grep takes twice as long for as many fixed strings.
    argv = [grep, "-anE", "-e", "|".join(re.sub(r"([][.()*+?{}|^$\\\\])", r"\\\1", mark) for mark in marks), "--", str(path)]
    with subprocess.Popen(
        argv, stdout=subprocess.PIPE, stderr=subprocess.DEVNULL, stdin=subprocess.DEVNULL, env={**os.environ, "LC_ALL": "C"}
    ) as process:
        assert process.stdout is not None
        for raw in process.stdout:
            number, _, line = raw[: kernel_log.MAX_LINE].partition(b":")
            if number.isdigit():
                yield int(number), line.decode("utf-8", "replace")


def _in_pieces(path: Path, marks: tuple[str, ...]) -> Iterator[tuple[int, str]]:
    first = 1
    rest = b""
    with open(path, "rb") as file:
        while True:
            data = file.read(PIECE)
            piece = rest + data
            end = piece.rfind(b"\n") + 1 if data else len(piece)
            if not end and data and len(piece) < 4 * PIECE:
                rest = piece
                continue
            end = end or len(piece)
            text = piece[:end].decode("utf-8", "replace")
            yield from kernel_log.marked_lines(text, marks, first)
            first += text.count("\n")
            rest = piece[end:]
            if not data:
                return


def marked_lines(path: Path, marks: tuple[str, ...]) -> Iterator[tuple[int, str]]:
    """(number, line) of each line of the file that holds one of ``marks``. Raises OSError when the file cannot be opened."""
    with open(path, "rb"):
        pass
    grep = shutil.which("grep")
    yield from _by_grep(grep, path, marks) if grep else _in_pieces(path, marks)


def is_log(path: Path) -> bool:
    """Whether eight samples spread over the file hold only log lines. A packed file is none."""
    from kilter.intake.paste import is_one_log
    from kilter.intake.unpack import is_packed, is_tar, is_zip

    size = path.stat().st_size
    samples = []
    with open(path, "rb") as file:
        for n in range(8):
            file.seek(size * n // 8)
            data = file.read(8192)
            if n == 0 and (is_packed(data) or is_zip(data) or is_tar(data)):
                return False
            samples.append(data.decode("utf-8", "replace"))
    return all(is_one_log(sample) for sample in samples)


def scan(path: Path, name: str, *, year: int) -> Logs:
    """Events of a large log. Memory grows with the events, not with the file."""
    logs = Logs(name, year=year)
    for number, line in marked_lines(path, MARKS):
        logs.feed(number, line)
    return logs
