"""Runs one program under a time limit that holds even when the program cannot be killed.

A process that sits in an ioctl of a sick driver is in uninterruptible sleep (state D): it ignores SIGKILL, never closes its
pipes, and ``subprocess.run(timeout=...)`` waits for it without end. Here the pipes are read with a selector, and a child that
outlives SIGKILL by a second is left behind, so the caller's own time is bounded whatever the driver does.
"""

from __future__ import annotations

import contextlib
import os
import selectors
import signal
import subprocess
import time
from collections.abc import Mapping
from typing import IO

import msgspec

#: How much of the end of standard error is kept.
STDERR_BYTES = 64 << 10
#: Between SIGTERM and SIGKILL.
TERM_GRACE_S = 0.5
#: How long a killed child may take to vanish before it is left behind.
KILL_GRACE_S = 1.0
#: How long pipes are read on after the child has ended (a grandchild may hold them open).
DRAIN_S = 0.2

#: Children that outlived SIGKILL: kept so that a later call can reap them.
_abandoned: list[subprocess.Popen[bytes]] = []


class ChildResult(msgspec.Struct, frozen=True, kw_only=True):
    """What became of a child process."""

    stdout: bytes = b""
    stderr: bytes = b""  # its last STDERR_BYTES
    returncode: int | None = None  # negative = ended by that signal; None = not started, or left behind alive
    timed_out: bool = False
    truncated: bool = False  # it wrote more than ``max_bytes`` and was ended for that
    duration_s: float = 0.0
    error: str = ""  # why it could not be started, e.g. "No such file or directory"

    @property
    def signal_name(self) -> str:
        """``SIGSEGV`` when a signal ended the child, else ``""``."""
        if self.returncode is None or self.returncode >= 0:
            return ""
        try:
            return signal.Signals(-self.returncode).name
        except ValueError:
            return f"signal {-self.returncode}"


class _Reader:
    """Collects both pipes of a child without ever blocking on one."""

    def __init__(self, process: subprocess.Popen[bytes], max_bytes: int) -> None:
        self.stdout = bytearray()
        self.stderr = bytearray()
        self.truncated = False
        self._max_bytes = max_bytes
        self._selector = selectors.DefaultSelector()
        self._pipes: list[IO[bytes]] = []
        for pipe in (process.stdout, process.stderr):
            assert pipe is not None
            os.set_blocking(pipe.fileno(), False)
            self._selector.register(pipe, selectors.EVENT_READ, self.stdout if pipe is process.stdout else self.stderr)
            self._pipes.append(pipe)
        self.pidfd = -1
        # Wakes the selector when the child ends; kernels before 5.3 have no pidfd, there the wait below is short instead.
        with contextlib.suppress(AttributeError, OSError):
            self.pidfd = os.pidfd_open(process.pid)
            self._selector.register(self.pidfd, selectors.EVENT_READ, None)

    def drain(self, deadline: float) -> None:
        """Reads what an ended child left in its pipes; one that escaped its group may hold them open."""
        if self.pidfd >= 0:
            self._selector.unregister(self.pidfd)
        while self._selector.get_map() and (left := deadline - time.monotonic()) > 0:
            self.step(left)

    def step(self, wait_s: float) -> None:
        """Reads what is there, waiting at most ``wait_s`` for it."""
        if self.pidfd < 0:
            wait_s = min(wait_s, 0.02)
        for key, _ in self._selector.select(max(wait_s, 0.0)):
            if key.data is None:
                continue
            try:
                data = os.read(key.fd, 65536)
            except BlockingIOError:
                continue
            except OSError:
                data = b""
            if not data:
                self._selector.unregister(key.fileobj)
                continue
            key.data.extend(data)
        if len(self.stdout) > self._max_bytes:
            # No longer read: a flooding child then blocks on its full pipe instead of filling our memory.
            self.truncated = True
            del self.stdout[self._max_bytes :]
            self._selector.unregister(self._pipes[0])
        if len(self.stderr) > 2 * STDERR_BYTES:
            del self.stderr[:-STDERR_BYTES]

    def close(self) -> None:
        self._selector.close()
        for pipe in self._pipes:
            with contextlib.suppress(OSError):
                pipe.close()
        if self.pidfd >= 0:
            os.close(self.pidfd)


def _ended(process: subprocess.Popen[bytes]) -> bool:
    """Whether the child has ended. It is not reaped yet, so its process group id cannot have been given to another."""
    if process.returncode is not None:
        return True
    try:
        return os.waitid(os.P_PID, process.pid, os.WEXITED | os.WNOHANG | os.WNOWAIT) is not None
    except ChildProcessError:
        return True


def _signal_group(process: subprocess.Popen[bytes], number: signal.Signals) -> None:
    with contextlib.suppress(ProcessLookupError, PermissionError):
        os.killpg(process.pid, number)


def _read_until(process: subprocess.Popen[bytes], reader: _Reader, deadline: float, *, stop_when_full: bool = False) -> bool:
    """Reads until the child has ended (True), or until the deadline or too much output (False)."""
    while not _ended(process):
        left = deadline - time.monotonic()
        if left <= 0 or (stop_when_full and reader.truncated):
            return False
        reader.step(left)
    return True


def _reap_abandoned() -> None:
    _abandoned[:] = [process for process in _abandoned if process.poll() is None]


def run_limited(
    argv: list[str],
    *,
    timeout_s: float,
    max_bytes: int = 64 << 20,
    env: Mapping[str, str] | None = None,
) -> ChildResult:
    """Runs ``argv`` for at most ``timeout_s`` seconds; never raises for what the child does.

    The child gets its own session, no standard input, and at most ``max_bytes`` of standard output. When its time is up (or its
    output too long) its process group gets SIGTERM, half a second later SIGKILL, and is waited for one more second. ``env``
    replaces the environment. What was read until then is kept.
    """
    _reap_abandoned()
    start = time.monotonic()
    try:
        process = subprocess.Popen(
            argv,
            stdin=subprocess.DEVNULL,
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
            env=env,
            start_new_session=True,
        )
    except (OSError, ValueError) as error:
        return ChildResult(error=getattr(error, "strerror", None) or str(error), duration_s=time.monotonic() - start)
    reader = _Reader(process, max_bytes)
    timed_out = False
    try:
        if not _read_until(process, reader, start + timeout_s, stop_when_full=True):
            timed_out = not reader.truncated
            _signal_group(process, signal.SIGTERM)
            if not _read_until(process, reader, time.monotonic() + TERM_GRACE_S):
                _signal_group(process, signal.SIGKILL)
                _read_until(process, reader, time.monotonic() + KILL_GRACE_S)
        if _ended(process):
            _signal_group(process, signal.SIGKILL)  # what it started and left behind
            reader.drain(time.monotonic() + DRAIN_S)
    finally:
        _signal_group(process, signal.SIGKILL)
        if _ended(process):
            process.wait()
        else:
            _abandoned.append(process)
        reader.close()
    return ChildResult(
        stdout=bytes(reader.stdout),
        stderr=bytes(reader.stderr[-STDERR_BYTES:]),
        returncode=process.returncode,
        timed_out=timed_out,
        truncated=reader.truncated,
        duration_s=time.monotonic() - start,
    )
