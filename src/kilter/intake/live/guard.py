"""The live tree with a time limit on every read that reaches a device.

A counter file of an HCA sends a command to its firmware, ``speed`` waits for the network lock, ``config`` waits for a reset
in progress: when the device is sick these reads block, and a process in such a read cannot even be killed. So a child process
does them (:mod:`kilter.intake.live.reader`); one that does not answer in time is abandoned and a new one started.
"""

from __future__ import annotations

import contextlib
import errno
import json
import os
import select
import subprocess
import sys
import time
from types import TracebackType

from kilter.facts.base import Missing, Reason
from kilter.intake.tree import RealTree

#: Memory of the kernel alone answers here: read in this process.
_KERNEL_ONLY = (
    "/proc/",
    "/etc/",
    "/boot/",
    "/usr/",
    "/lib/",
    "/run/",
    "/sys/devices/system/",
    "/sys/module/",
    "/sys/kernel/",
    "/sys/class/dmi/",
    "/sys/fs/cgroup/",
)

_NOTHING_PLAIN = errno.EINVAL


class Unanswered(Exception):
    """The child did not answer in time, or could not be started."""


class GuardedTree(RealTree):
    """The host's tree. A read that takes longer than ``limit_s`` is given up; after that the same device is not asked again,
    and when all give-ups together have taken ``budget_s`` no device is.
    """

    def __init__(self, *, limit_s: float = 2.0, budget_s: float = 10.0) -> None:
        super().__init__("/")
        self.limit_s = limit_s
        self.budget_s = budget_s
        self.silent: dict[str, str] = {}  # device directory -> what happened
        self._errors: dict[str, int] = {}
        self._child: subprocess.Popen[bytes] | None = None
        self._buffer = b""

    def __enter__(self) -> GuardedTree:
        return self

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None) -> None:
        self.close()

    def start(self) -> None:
        """Start the child ahead of the first use, so that its start-up overlaps with other reading."""
        if self._child is None:
            command = [
                sys.executable or "python3",
                "-I",
                "-S",
                os.path.join(os.path.dirname(os.path.abspath(__file__)), "reader.py"),
            ]
            try:
                self._child = subprocess.Popen(
                    command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, stderr=subprocess.DEVNULL, bufsize=0, close_fds=True
                )
            except OSError as error:
                raise Unanswered(f"no reader process: {error.strerror or error}") from error
            self._buffer = b""

    def start_quietly(self) -> None:
        """The same; a child that cannot be started is reported with the first read that needs it."""
        with contextlib.suppress(Unanswered):
            self.start()

    def close(self, *, wait: bool = True) -> None:
        """End the child; a hung one is killed and left to the kernel."""
        child, self._child = self._child, None
        if child is None:
            return
        for pipe in (child.stdin, child.stdout):
            if pipe is not None:
                with contextlib.suppress(OSError):
                    pipe.close()
        with contextlib.suppress(subprocess.TimeoutExpired):
            if wait:
                child.wait(0.2)
                return
        child.kill()
        with contextlib.suppress(subprocess.TimeoutExpired):
            child.wait(0.05)
        # One that sleeps in the kernel cannot die yet; nobody waits for it, and init reaps it.
        if child.returncode is None:
            child.returncode = -9

    def _take(self, child: subprocess.Popen[bytes], deadline: float) -> None:
        assert child.stdout is not None
        left = deadline - time.monotonic()
        if left <= 0 or not select.select([child.stdout], [], [], left)[0]:
            raise Unanswered(f"no answer within {self.limit_s:g} s")
        part = os.read(child.stdout.fileno(), 1 << 16)
        if not part:
            raise Unanswered("the reader process ended")
        self._buffer += part

    def _ask(self, kind: str, argument: str) -> tuple[int, bytes]:
        """(errno, data) that the child answers; raises :exc:`Unanswered`."""
        if "\n" in argument:
            return errno.ENOENT, b""
        self.start()
        child = self._child
        assert child is not None
        assert child.stdin is not None
        deadline = time.monotonic() + self.limit_s
        try:
            child.stdin.write(f"{kind} {argument}\n".encode("utf-8", "surrogateescape"))
        except OSError as error:
            raise Unanswered("the reader process ended") from error
        while b"\n" not in self._buffer:
            self._take(child, deadline)
        head, _, self._buffer = self._buffer.partition(b"\n")
        code, length = (int(number) for number in head.split())
        while len(self._buffer) < length:
            self._take(child, deadline)
        data, self._buffer = self._buffer[:length], self._buffer[length:]
        return code, data

    def _guarded(self, kind: str, argument: str, device: str) -> tuple[int, bytes] | None:
        """The answer, or None when the device is silent; see :attr:`silent`."""
        if device in self.silent:
            return None
        if len(self.silent) * self.limit_s >= self.budget_s:
            self.silent[device] = f"not tried: {len(self.silent)} devices did not answer in time"
            return None
        try:
            return self._ask(kind, argument)
        except (Unanswered, ValueError) as error:
            self.close(wait=False)
            self.silent[device] = f"{argument}: {error}"
            return None

    def read_bytes(self, path: str) -> bytes | None:
        if path.startswith(_KERNEL_ONLY):
            return super().read_bytes(path)
        answer = self._guarded("R", path, _device(path))
        if answer is None:
            return None
        code, data = answer
        if code:
            self._errors[path] = code
            return None
        return data

    def missing(self, path: str) -> Missing:
        if path.startswith(_KERNEL_ONLY):
            return super().missing(path)
        if (silent := self.silent.get(_device(path))) is not None:
            return Missing(
                Reason.NOT_READABLE, f"{path}: the device does not answer ({silent})", "see the kernel log for this device"
            )
        code = self._errors.get(path, errno.ENOENT)
        if code == errno.ENOENT:
            return Missing(Reason.ABSENT, f"{path} does not exist")
        if code in (errno.EACCES, errno.EPERM):
            return Missing(Reason.NOT_READABLE, f"{path}: permission denied", "run as root")
        return Missing(Reason.NOT_READABLE, f"{path}: {os.strerror(code)}")

    def ethtool(self, interface: str) -> dict[str, object]:
        """Facts of :func:`kilter.intake.live.ethtool_ioctl.query`; {} when there is none. "" asks for all IPv4 addresses."""
        answer = self._guarded("E", interface, f"/sys/class/net/{interface}")
        if answer is None or answer[0]:
            return {}
        try:
            facts = json.loads(answer[1])
        except ValueError:
            return {}
        return facts if isinstance(facts, dict) else {}


def _device(path: str) -> str:
    """The device that ``path`` belongs to: ``/sys/bus/pci/devices/<address>``, ``/sys/class/<class>/<device>``."""
    parts = path.split("/")
    return "/".join(parts[:6] if path.startswith("/sys/bus/") else parts[:5])
