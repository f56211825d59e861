"""Logs too large for memory give the same events, with grep and without it."""

from __future__ import annotations

from pathlib import Path

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from kilter.intake import large_log, paste, read

DATA = Path(__file__).parents[1] / "data"
REAL = (DATA / "s018-xid119-gsp-timeout-h100" / "dmesg.txt").read_text()


def rows(log: large_log.kernel_log.KernelLog) -> list[tuple[str, int, str]]:
    return [(e.kind, e.line, e.text) for e in log.events]


@pytest.mark.parametrize("piece", [64, 4096, 1 << 24])
def test_pieces_grep_and_memory_agree(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, piece: int) -> None:
    path = tmp_path / "kern.log"
    path.write_text(REAL * 3 + "[1.0] NVRM: Xid (PCI:0000:3b:00): 79, GPU has fallen off the bus.")
    expected = rows(large_log.kernel_log.scan(path.read_text(), "kern.log", year=2026))
    assert rows(large_log.scan(path, "kern.log", year=2026).kernel) == expected
    monkeypatch.setattr(large_log.shutil, "which", lambda name: None)
    monkeypatch.setattr(large_log, "PIECE", piece)
    assert rows(large_log.scan(path, "kern.log", year=2026).kernel) == expected


@settings(max_examples=60, deadline=None)
@given(st.lists(st.sampled_from([*REAL.splitlines()[:8], "x" * 300, "\x00\x01", "", "\r", "NCCL WARN x", "é" * 50]), max_size=30))
def test_any_lines_in_any_pieces(tmp_path_factory: pytest.TempPathFactory, lines: list[str]) -> None:
    path = tmp_path_factory.mktemp("log") / "kern.log"
    path.write_bytes("\n".join(lines).encode())
    marks = large_log.kernel_log.MARKS
    with large_log._by_grep("grep", path, marks) as by_grep:
        found = list(by_grep)
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(large_log, "PIECE", 100)
        with large_log._in_pieces(path, marks) as in_pieces:
            assert [n for n, _ in in_pieces] == [n for n, _ in found]


def test_line_longer_than_memory_is_cut(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    path = tmp_path / "kern.log"
    path.write_text("[1.0] NVRM: Xid (PCI:0000:3b:00): 79, " + "y" * (large_log.kernel_log.MAX_LINE * 3) + "\n")
    for which in ("/usr/bin/grep", None):
        monkeypatch.setattr(large_log.shutil, "which", lambda name, which=which: which)
        (event,) = large_log.scan(path, "kern.log", year=2026).kernel.events
        assert event.code == 79
        assert len(event.text) <= large_log.kernel_log.MAX_LINE


def test_read_takes_the_large_way(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    path = tmp_path / "kern.log"
    path.write_text(REAL * 20)
    whole = read.read_paths([str(path)])
    monkeypatch.setattr(large_log, "LARGE", 1000)
    parts = read.read_paths([str(path)])
    assert [(e.kind, e.code, e.count) for e in parts.events] == [(e.kind, e.code, e.count) for e in whole.events]


def test_what_is_no_log_is_not_taken_for_one(tmp_path: Path) -> None:
    path = tmp_path / "q.xml"
    path.write_text((DATA / "s013-8xh100-vm-xml-570" / "nvidia-smi-qx.xml").read_text())
    assert not large_log.is_log(path)
    assert not paste.is_one_log(path.read_text())


@pytest.mark.parametrize("processors", [1, 2])
@pytest.mark.parametrize("piece", [7, 100, 1 << 22])
def test_an_nccl_log_in_pieces_says_the_same(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, piece: int, processors: int
) -> None:
    text = (DATA / "s055-nccl-2xa800-shm-instead-of-p2p" / "nccl.log").read_text() + REAL[:2000]
    path = tmp_path / "job.log"
    path.write_text(text * 3 + "b:7:8 [0] NCCL INFO Using network IB")
    whole = large_log.Logs("job.log", year=2026)
    whole.scan(path.read_text())
    monkeypatch.setattr(large_log, "PIECE", piece)
    monkeypatch.setattr(large_log.os, "sched_getaffinity", lambda _: set(range(processors)))
    parts = large_log.scan(path, "job.log", year=2026)
    assert parts.nccl.finish() == whole.nccl.finish()
    assert parts.nccl.events == whole.nccl.events
    assert rows(parts.kernel) == rows(whole.kernel)
    assert parts.nccl.lines == whole.nccl.lines > 100
