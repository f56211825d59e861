"""Logs too large for memory: only the lines that say something are brought in.

GNU grep finds the words of the readers at memory speed; nothing in Python comes near. Without it the file is read in pieces. Of an
NCCL log every line holds NCCL's word: what they say is summed up piece by piece, by as many processes as there are processors.
"""

from __future__ import annotations

import contextlib
import os
import re
import shutil
import subprocess
from collections import deque
from collections.abc import Iterator
from pathlib import Path
from typing import TYPE_CHECKING, NamedTuple

from kilter.intake.captures import kernel_log, nccl
from kilter.intake.logs import MARKS, Logs

if TYPE_CHECKING:
    from multiprocessing.pool import AsyncResult

#: Plain files above this are sampled, and read here when the samples are log lines.
LARGE = 64 << 20
PIECE = 4 << 20
#: More processes than this wait for the one that puts their findings together.
MAX_PROCESSES = 8


@contextlib.contextmanager
def _by_grep(grep: str, path: Path, marks: tuple[str, ...]) -> Iterator[Iterator[tuple[int, str]]]:
    # One extended expression is matched by one automaton; GNU grep takes twice as long for as many fixed strings.
    argv = [grep, "-anE", "-e", "|".join(re.sub(r"([][.()*+?{}|^$\\\\])", r"\\\1", mark) for mark in marks), "--", str(path)]
    with subprocess.Popen(
        argv, stdout=subprocess.PIPE, stderr=subprocess.DEVNULL, stdin=subprocess.DEVNULL, env={**os.environ, "LC_ALL": "C"}
    ) as process:
        assert process.stdout is not None
        split = (raw[: kernel_log.MAX_LINE].partition(b":") for raw in process.stdout)
        yield ((int(number), line.decode("utf-8", "replace")) for number, _, line in split if number.isdigit())


class _Piece(NamedTuple):
    """The lines that start in one range of a file. The last is whole unless it is longer than any that is read."""

    ends: int  # line feeds in the range
    before: int  # those of them before the first line
    data: bytes


def _piece(path: Path, start: int, end: int) -> _Piece:
    with open(path, "rb") as file:
        file.seek(max(start - 1, 0))
        offset = start - file.tell()
        data = file.read(offset + end - start + kernel_log.MAX_LINE)
    inside = offset + end - start
    # What runs into the range belongs to the one before.
    first = data.find(b"\n", 0, inside - 1) + 1 if start else 0
    ends = data.count(b"\n", offset, inside)
    if start and not first:
        return _Piece(ends, 0, b"")
    last = data.find(b"\n", max(inside - 1, first))
    return _Piece(ends, int(first > offset), data[first : last if last >= 0 else None])


def _ranges(path: Path) -> Iterator[tuple[Path, int, int]]:
    size = path.stat().st_size
    return ((path, start, min(start + PIECE, size)) for start in range(0, size, PIECE))


@contextlib.contextmanager
def _in_pieces(path: Path, marks: tuple[str, ...]) -> Iterator[Iterator[tuple[int, str]]]:
    def lines() -> Iterator[tuple[int, str]]:
        number = 1
        for part in _ranges(path):
            piece = _piece(*part)
            yield from kernel_log.marked_lines(piece.data.decode("utf-8", "replace"), marks, number + piece.before)
            number += piece.ends

    yield lines()


_Sum = tuple[int, int, list[nccl.Telling]]


def _nccl(part: tuple[Path, int, int]) -> _Sum:
    piece = _piece(*part)
    found = nccl.telling(piece.data.decode("utf-8", "replace")) if b"NCCL " in piece.data else []
    return piece.ends, piece.before, found


def _nccl_sums(path: Path) -> Iterator[_Sum]:
    """Of each piece in order. A few pieces ahead of the one that is read, so that memory stays flat."""
    processes = min(len(os.sched_getaffinity(0)), MAX_PROCESSES)
    pool = None
    if processes > 1 and path.stat().st_size > PIECE:
        import multiprocessing

        with contextlib.suppress(OSError, ImportError, ValueError):  # no processes, no shared memory, no fork: one is enough
            pool = multiprocessing.get_context("fork").Pool(processes)
    if pool is None:
        yield from map(_nccl, _ranges(path))
        return
    with pool:
        waiting: deque[AsyncResult[_Sum]] = deque()
        for part in _ranges(path):
            waiting.append(pool.apply_async(_nccl, (part,)))
            if len(waiting) > 2 * processes:
                yield waiting.popleft().get()
        while waiting:
            yield waiting.popleft().get()


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
    """Events of a large log. Memory grows with the events, not with the file. Raises OSError when the file cannot be opened."""
    with open(path, "rb"):
        pass
    logs = Logs(name, year=year)
    grep = shutil.which("grep")
    with _by_grep(grep, path, MARKS) if grep else _in_pieces(path, MARKS) as lines:
        number = 1  # grep runs meanwhile
        for ends, before, found in _nccl_sums(path):
            logs.feed_nccl(number + before, found)
            number += ends
        for number, line in lines:
            logs.feed(number, line)
    return logs
