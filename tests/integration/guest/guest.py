"""A running guest: start, commands, reboot, power cut, and its whole state for comparison."""

from __future__ import annotations

import base64
import difflib
import json
import os
import re
import shlex
import shutil
import signal
import socket
import subprocess
import tempfile
import time
import zlib
from pathlib import Path
from types import TracebackType
from typing import Any, NamedTuple

from integration.guest import machine

State = dict[str, dict[str, Any]]


class GuestError(Exception):
    """The guest does not do what a running guest does; the message ends with its console."""


class Ran(NamedTuple):
    rc: int
    out: str
    err: str


# What changes by itself, found by comparing machines that nobody touched, before and after reboots; see the kernel's Documentation/admin-guide/sysctl/.
VARIES = {
    "sysctl": (
        r"fs\.(dentry-state|inode-nr|inode-state|file-nr|quota\.syncs)",  # counters
        r"kernel\.(ns_last_pid|random\.(boot_id|uuid|entropy_avail))",  # a counter; chosen anew
        r"vm\.user_reserve_kbytes",  # 3 % of the memory that was free when the kernel started
    ),
    "runtime": (r"/sys/kernel/mm/transparent_hugepage/khugepaged/(full_scans|pages_collapsed)",),  # counters
}


def overlay(base: Path, path: Path) -> None:
    """A disk that begins as ``base`` and leaves it as it is. Both lie in one folder, or ``base`` does not move."""
    name = base.name if base.parent == path.parent else base
    kind = "raw" if base.suffix == ".raw" else "qcow2"
    subprocess.run(["qemu-img", "create", "-q", "-f", "qcow2", "-b", str(name), "-F", kind, str(path)], check=True, timeout=60)


class Guest:
    """One QEMU process and the agent in it. ``disk`` is written to; see ``overlay``."""

    def __init__(self, folder: Path, *, disk: Path, name: str = "guest") -> None:
        self.disk = disk
        self.log = folder / f"{name}.console"
        self._sockets = Path(tempfile.mkdtemp(prefix="guest-"))  # a socket's path must be short
        self._process: subprocess.Popen[bytes] | None = None
        self._agent: socket.socket | None = None
        self._monitor: socket.socket | None = None
        self._rest = b""
        self._number = 0
        self.boot_id = ""

    def __enter__(self) -> Guest:
        return self

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None) -> None:
        self.power_cut()
        shutil.rmtree(self._sockets, ignore_errors=True)

    # The machine

    def start(self, incoming: Path | None = None) -> None:
        """Switch on; with ``incoming`` go on from a saved machine."""
        for name in ("agent", "qmp"):
            (self._sockets / name).unlink(missing_ok=True)
        with (self._sockets / "qemu.log").open("wb") as log:
            argv = machine.command(self.disk, self._sockets, incoming)
            environment = {**os.environ, "PATH": os.environ.get("PATH", "") + ":/usr/sbin:/sbin"}
            self._process = subprocess.Popen(argv, stdin=subprocess.DEVNULL, stdout=log, stderr=log, env=environment)
        self._monitor = self._connect("qmp")
        self._monitor_line()
        self.monitor("qmp_capabilities")
        self._agent = self._connect("agent")
        self._rest = b""
        self.boot_id = ""

    def _connect(self, name: str) -> socket.socket:
        until = time.monotonic() + 30
        while True:
            found = socket.socket(socket.AF_UNIX)
            try:
                found.connect(str(self._sockets / name))
                return found
            except OSError:
                found.close()
                if self._process is None or self._process.poll() is not None or time.monotonic() > until:
                    raise GuestError(f"QEMU did not start:\n{(self._sockets / 'qemu.log').read_text()[-2000:]}") from None
                time.sleep(0.05)

    def _monitor_line(self) -> dict[str, Any]:
        assert self._monitor is not None
        self._monitor.settimeout(60)
        line = b""
        while not line.endswith(b"\n"):
            part = self._monitor.recv(1)
            if not part:
                raise GuestError(f"QEMU has gone:\n{(self._sockets / 'qemu.log').read_text()[-2000:]}")
            line += part
        told: dict[str, Any] = json.loads(line)
        return told

    def monitor(self, command: str, **arguments: object) -> Any:
        """Answer of QEMU's monitor (QMP)."""
        assert self._monitor is not None
        self._monitor.sendall(json.dumps({"execute": command, "arguments": arguments}).encode() + b"\n")
        while True:
            told = self._monitor_line()
            if "error" in told:
                raise GuestError(f"QEMU monitor, {command}: {told['error'].get('desc')}")
            if "return" in told:
                return told["return"]

    def boot(self, timeout_s: float = 300) -> None:
        """Switch on and wait until systemd has started everything."""
        self.start()
        self.settled(timeout_s)

    def resume(self, state: Path) -> None:
        """Go on from a machine that ``save`` stored. The disk must be as it was then."""
        self.start(incoming=state)
        until = time.monotonic() + 120
        while self.monitor("query-status")["status"] == "inmigrate":
            if time.monotonic() > until:
                raise GuestError("the saved machine was not loaded within 120 s")
            time.sleep(0.05)
        self.monitor("cont")
        self.boot_id = str(self.request("hello", timeout_s=60)["boot"])

    def save(self, path: Path) -> None:
        """Store the running machine in ``path``; it is off afterwards."""
        self.run("sync; echo 3 > /proc/sys/vm/drop_caches")
        self.monitor("stop")
        self.monitor("migrate-set-parameters", **{"max-bandwidth": 1 << 40})
        self.monitor("migrate", uri=f"exec:cat > {shlex.quote(str(path))}")
        until = time.monotonic() + 300
        while (status := self.monitor("query-migrate").get("status")) != "completed":
            if status == "failed" or time.monotonic() > until:
                raise GuestError(f"the machine could not be saved: {status}")
            time.sleep(0.1)
        self.monitor("quit")
        self._ended(30)

    def plug_nvme(self, timeout_s: float = 60) -> None:
        """Put a drive into the second port of the switch. It is not there from the start, since QEMU cannot save a machine that has one."""
        self.monitor("device_add", driver="nvme", bus="dn1", drive="nvme", serial="kilter-nvme", id="nvme0")
        until = time.monotonic() + timeout_s
        while self.run("test -b /dev/nvme0n1").rc:
            if time.monotonic() > until:
                raise GuestError(f"the kernel has not found the drive in {timeout_s:.0f} s\n{self.check('dmesg')[-2000:]}")
            time.sleep(0.3)

    def power_cut(self) -> None:
        """Off at once: what the guest has not flushed to its disk is lost."""
        if self._process is not None and self._process.poll() is None:
            self._process.send_signal(signal.SIGKILL)
        self._ended(30)

    def power_off(self, timeout_s: float = 120) -> None:
        """Shut down in order and wait for it."""
        self.request("run", argv=["systemctl", "--no-block", "poweroff"], input=_pack(b""), timeout_s=30)
        self._ended(timeout_s)

    def reset(self, timeout_s: float = 300) -> None:
        """The reset button, and wait for the next boot."""
        before = self.boot_id
        self.monitor("system_reset")
        self._next_boot(before, timeout_s)

    def reboot(self, timeout_s: float = 300) -> None:
        """Reboot in order, and wait until the next boot has started everything."""
        before = self.boot_id
        self.run("systemctl --no-block reboot")
        self._next_boot(before, timeout_s)

    def next_boot(self, timeout_s: float = 300) -> None:
        """Wait for a boot that the guest begins by itself."""
        self._next_boot(self.boot_id, timeout_s)

    def _next_boot(self, before: str, timeout_s: float) -> None:
        until = time.monotonic() + timeout_s
        while self.boot_id == before:
            self._message(until)
        self.settled(until - time.monotonic())

    def settled(self, timeout_s: float) -> None:
        """Wait until systemd has no more jobs of this boot."""
        until = time.monotonic() + timeout_s
        while not self.boot_id:
            self._message(until)
        while self.run("systemctl is-system-running", timeout_s=60).out.strip() in ("initializing", "starting", "offline", ""):
            if time.monotonic() > until:
                jobs = self.run("systemctl list-jobs --no-pager").out
                raise GuestError(f"not settled after {timeout_s:.0f} s; jobs left:\n{jobs}\n{self.console()[-2000:]}")
            time.sleep(0.3)

    def _ended(self, timeout_s: float) -> None:
        if self._process is None:
            return
        try:
            self._process.wait(timeout_s)
        except subprocess.TimeoutExpired:
            self._process.kill()
            self._process.wait(30)
            raise GuestError(f"QEMU did not end within {timeout_s:.0f} s\n{self.console()[-2000:]}") from None
        finally:
            for one in (self._agent, self._monitor):
                if one is not None:
                    one.close()
            self._process = self._agent = self._monitor = None
            with self.log.open("a") as log:
                log.write(self.console())
            (self._sockets / "console").unlink(missing_ok=True)

    def console(self) -> str:
        """What the serial console has shown since the guest was switched on."""
        path = self._sockets / "console"
        return path.read_text(errors="backslashreplace") if path.exists() else ""

    # The agent

    def _message(self, until: float) -> dict[str, Any]:
        """The next line of the agent; a hello is noted."""
        assert self._agent is not None, "the guest is off"
        while b"\n" not in self._rest:
            left = until - time.monotonic()
            self._agent.settimeout(max(left, 0.001))
            try:
                part = self._agent.recv(1 << 20) if left > 0 else b"timeout"
            except TimeoutError:
                part = b"timeout"
            if part == b"timeout":
                raise GuestError(f"no word from the guest in time; its console:\n{self.console()[-3000:]}")
            if not part:
                raise GuestError(f"QEMU has gone; the console:\n{self.console()[-3000:]}")
            self._rest += part
        line, self._rest = self._rest.split(b"\n", 1)
        try:
            told = json.loads(line)
        except ValueError:  # the rest of a line that a reset cut
            return {}
        if isinstance(told, dict) and "hello" in told:
            self.boot_id = told["hello"]
        return told if isinstance(told, dict) else {}

    def request(self, op: str, timeout_s: float, **arguments: object) -> dict[str, Any]:
        assert self._agent is not None, "the guest is off"
        self._number += 1
        line = json.dumps({"id": self._number, "op": op, "timeout_s": timeout_s, **arguments})
        before = self.boot_id
        self._agent.settimeout(60)
        self._agent.sendall(line.encode() + b"\n")
        until = time.monotonic() + timeout_s + 30
        while True:
            told = self._message(until)
            if before and self.boot_id != before:
                raise GuestError(f"the guest rebooted during {op} {arguments.get('argv', '')}")
            if told.get("id") == self._number:
                if "error" in told:
                    raise GuestError(f"{op} {arguments.get('argv', '')}: {told['error']}")
                return told

    def run(self, command: str | list[str], *, input: bytes = b"", timeout_s: float = 120) -> Ran:
        """Run a command as root; a string goes through ``sh -c``."""
        argv = ["sh", "-c", command] if isinstance(command, str) else command
        told = self.request("run", timeout_s, argv=argv, input=_pack(input))
        return Ran(told["rc"], *(_unpack(told[name]).decode(errors="backslashreplace") for name in ("out", "err")))

    def check(self, command: str | list[str], *, timeout_s: float = 120) -> str:
        """Output of a command that must not fail."""
        done = self.run(command, timeout_s=timeout_s)
        assert done.rc == 0, f"{command} ended with {done.rc}:\n{done.out}{done.err}"
        return done.out

    def put(self, path: str, data: bytes, mode: int = 0o644) -> None:
        self.request("put", 120, path=path, data=_pack(data), mode=mode)

    def state(self) -> State:
        """Files of /etc and /boot, sysctl, boot line, units, what the kernel is set to: see ``agent.state``; without what varies by itself."""
        told: State = json.loads(_unpack(self.request("state", 300)["state"]))
        for area, patterns in VARIES.items():
            varies = re.compile("|".join(f"(?:{p})" for p in patterns))
            told[area] = {key: value for key, value in told[area].items() if not varies.fullmatch(key)}
        return told


def _pack(data: bytes) -> str:
    return base64.b64encode(zlib.compress(data, 1)).decode()


def _unpack(text: str) -> bytes:
    return zlib.decompress(base64.b64decode(text))


def difference(before: State, after: State) -> list[str]:
    """What differs, one line or one file's diff an entry; empty if nothing does."""
    found = []
    for area in before:
        old, new = before[area], after[area]
        for key in sorted(old.keys() | new.keys()):
            if key not in new:
                found.append(f"{area}: {key} has gone")
            elif key not in old:
                found.append(f"{area}: {key} is new: {str(new[key])[:300]}")
            elif old[key] != new[key]:
                found.append(f"{area}: {key}: {_change(old[key], new[key])}")
    return found


def _change(old: Any, new: Any) -> str:
    if isinstance(old, dict) and isinstance(new, dict):
        keys = [k for k in sorted(old.keys() | new.keys()) if k != "text" and old.get(k) != new.get(k)]
        fields = "; ".join(f"{k} {old.get(k)} -> {new.get(k)}" for k in keys)
        old, new = old.get("text"), new.get("text")
        return fields + (_lines(old, new) if isinstance(old, str) and isinstance(new, str) else "")
    if "\n" in f"{old}{new}":
        return _lines(str(old), str(new))
    return f"{str(old)[:300]!r} -> {str(new)[:300]!r}"


def _lines(old: str, new: str) -> str:
    """Lines gone and come, at most forty."""
    lines = list(difflib.unified_diff(old.splitlines(), new.splitlines(), lineterm="", n=0))[2:]
    return "".join(f"\n    {line[:200]}" for line in lines if not line.startswith("@@"))[:8000]
