"""Claims about programs run under a time limit."""

from __future__ import annotations

import os
import sys
import time
from pathlib import Path

import pytest

from kilter.intake.live import child
from kilter.intake.live.child import run_limited

PYTHON = sys.executable


def test_output_status_and_errors_of_a_short_program_are_kept() -> None:
    result = run_limited([PYTHON, "-c", "import sys; print('out'); print('err', file=sys.stderr); sys.exit(3)"], timeout_s=20)
    assert (result.stdout, result.stderr, result.returncode) == (b"out\n", b"err\n", 3)
    assert not result.timed_out
    assert not result.truncated
    assert result.signal_name == ""


def test_a_program_that_is_not_there_is_no_exception() -> None:
    result = run_limited(["/nonexistent/tool"], timeout_s=5)
    assert result.error == "No such file or directory"
    assert result.returncode is None


def test_standard_input_is_empty() -> None:
    assert run_limited(["cat"], timeout_s=20).returncode == 0


def test_a_hung_program_is_ended_and_what_it_wrote_before_is_kept() -> None:
    result = run_limited([PYTHON, "-c", "import time; print('before', flush=True); time.sleep(60)"], timeout_s=1.5)
    assert result.timed_out
    assert result.stdout == b"before\n"
    assert result.signal_name == "SIGTERM"


def test_a_program_that_ignores_sigterm_gets_sigkill() -> None:
    code = "import signal, time; signal.signal(15, signal.SIG_IGN); print('deaf', flush=True); time.sleep(60)"
    result = run_limited([PYTHON, "-c", code], timeout_s=1.5)
    assert result.timed_out
    assert result.signal_name == "SIGKILL"


def test_a_process_that_even_sigkill_does_not_end_is_left_behind(monkeypatch: pytest.MonkeyPatch) -> None:
    # Uninterruptible sleep cannot be made to order: let the signals get lost instead.
    monkeypatch.setattr(child, "_signal_group", lambda process, number: None)
    monkeypatch.setattr(child, "KILL_GRACE_S", 0.2)
    start = time.monotonic()
    result = run_limited([PYTHON, "-c", "import time; print('x', flush=True); time.sleep(8)"], timeout_s=1.0)
    assert time.monotonic() - start < 6
    assert result.timed_out
    assert result.returncode is None
    [left] = child._abandoned
    left.kill()
    left.wait()
    run_limited(["true"], timeout_s=5)
    assert child._abandoned == []


def test_a_flood_of_output_is_cut_off_and_ends_the_program() -> None:
    result = run_limited(["yes"], timeout_s=30, max_bytes=1 << 20)
    assert result.truncated
    assert not result.timed_out
    assert len(result.stdout) == 1 << 20


def test_only_the_end_of_a_flood_of_errors_is_kept() -> None:
    code = "import os; [os.write(2, b'x' * 4096) for _ in range(200)]; os.write(2, b'last')"
    result = run_limited([PYTHON, "-c", code], timeout_s=20)
    assert len(result.stderr) == child.STDERR_BYTES
    assert result.stderr.endswith(b"last")


def test_what_a_program_leaves_running_neither_holds_us_up_nor_stays(tmp_path: Path) -> None:
    pid_file = tmp_path / "pid"
    start = time.monotonic()
    result = run_limited(["sh", "-c", f"sleep 60 & echo $! > {pid_file}; echo done"], timeout_s=30)
    assert time.monotonic() - start < 20
    assert result.stdout == b"done\n"
    pid = int(pid_file.read_text())
    for _ in range(100):
        try:
            os.kill(pid, 0)
        except ProcessLookupError:
            return
        if "Z" in Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[:1]:
            return
        time.sleep(0.02)
    pytest.fail("the background process lives on")


def test_a_crash_is_told_by_its_signal() -> None:
    result = run_limited(["sh", "-c", "kill -SEGV $$"], timeout_s=20)
    assert result.signal_name == "SIGSEGV"
