"""Runs inside the guest as root: answers one JSON line with one JSON line over a virtio-serial port. Only the standard library.

A request is ``{"id", "op", ...}``; its answer ``{"id", "ok", ...}`` or ``{"id", "error"}``. After each start it says hello with the boot's id, so that
the host knows one boot from the next. Bytes travel as base64 of zlib.
"""

from __future__ import annotations

import base64
import glob
import hashlib
import json
import os
import stat
import subprocess
import time
import zlib
from pathlib import Path

PORT = "kilter.agent"
WHOLE = 64 << 10  # files up to this size are told in full, so that a difference can be shown
RUNTIME = (
    "/sys/kernel/mm/transparent_hugepage/**",
    "/sys/kernel/mm/ksm/*",
    "/sys/devices/system/node/node*/hugepages/*/nr_hugepages",
    "/sys/block/*/queue/*",
    "/sys/module/*/parameters/*",
    "/sys/class/net/*/mtu",
    "/sys/class/net/*/tx_queue_len",
    "/sys/class/net/*/queues/*/*_cpus",
    "/proc/irq/default_smp_affinity",
)
NIC = ("-g", "-k", "-c", "-a")


def pack(data: bytes) -> str:
    return base64.b64encode(zlib.compress(data, 1)).decode()


def unpack(text: str) -> bytes:
    return zlib.decompress(base64.b64decode(text))


def boot_id() -> str:
    return Path("/proc/sys/kernel/random/boot_id").read_text().strip()


def output(*argv: str) -> str:
    done = subprocess.run(argv, stdout=subprocess.PIPE, stderr=subprocess.DEVNULL, check=False, timeout=300)
    return done.stdout.decode(errors="backslashreplace")


def entry(path: str) -> dict[str, object]:
    """What a path is: kind, mode, owner and content. Times are left out."""
    info = os.lstat(path)
    told: dict[str, object] = {"mode": oct(info.st_mode), "owner": f"{info.st_uid}:{info.st_gid}"}
    if stat.S_ISLNK(info.st_mode):
        told["link"] = os.readlink(path)
    elif stat.S_ISREG(info.st_mode):
        data = Path(path).read_bytes()
        told |= {"size": len(data), "sha256": hashlib.sha256(data).hexdigest()}
        if len(data) <= WHOLE:
            told["text"] = data.decode(errors="backslashreplace")
    for name in os.listxattr(path, follow_symlinks=False):
        told[f"xattr {name}"] = os.getxattr(path, name, follow_symlinks=False).hex()
    return told


def tree(top: str) -> dict[str, dict[str, object]]:
    found = {top: entry(top)}
    for folder, folders, files in os.walk(top):
        for name in (*folders, *files):
            path = os.path.join(folder, name)
            found[path] = entry(path)
    return found


def readable(path: str) -> str:
    try:
        return Path(path).read_text(errors="backslashreplace").strip()
    except OSError as error:
        return f"({error.strerror})"


def runtime() -> dict[str, str]:
    paths = {path for pattern in RUNTIME for path in glob.glob(pattern, recursive=True) if os.path.isfile(path)}
    return {path: readable(path) for path in sorted(paths) if os.stat(path).st_mode & 0o444}


def irqs() -> dict[str, str]:
    """CPUs of each interrupt by what it is for; numbers depend on which driver came first."""
    return {
        os.path.basename(os.path.dirname(path)): readable(path.rsplit("/", 2)[0] + "/smp_affinity_list")
        for path in glob.glob("/proc/irq/*/*/")
    }


def pci() -> dict[str, str]:
    """What ``lspci -vv`` tells of each function, without the messages of interrupts. QEMU does not reset its expander bridges, so they are left out."""
    blocks = [block.splitlines() for block in output("lspci", "-D", "-vv").split("\n\n") if block.strip()]
    skip = ("Address:", "Masking:", "Interrupt:")
    told = {lines[0]: "\n".join(line for line in lines[1:] if not line.strip().startswith(skip)) for lines in blocks}
    return {name: text for name, text in told.items() if "Expander bridge" not in name}


def state(_request: dict[str, object]) -> dict[str, object]:
    nics = sorted(os.path.basename(path) for path in glob.glob("/sys/class/net/*") if os.path.exists(f"{path}/device"))
    told = {
        "files": {path: told for top in ("/etc", "/boot") for path, told in tree(top).items()},
        "sysctl": dict(line.partition(" = ")[::2] for line in output("sysctl", "-a").splitlines() if " = " in line),
        "cmdline": {"line": Path("/proc/cmdline").read_text().strip()},
        "units": units(),
        "runtime": runtime(),
        "irq": irqs(),
        "pci": pci(),
        "ethtool": {f"{nic} {what}": output("ethtool", what, nic) for nic in nics for what in NIC},
    }
    return {"state": pack(json.dumps(told).encode())}


def units() -> dict[str, str]:
    """Load, active and sub state. What is enabled shows as links in /etc."""
    lines = output("systemctl", "list-units", "--all", "--plain", "--no-legend", "--no-pager", "--full").splitlines()
    found = {}
    for line in lines:
        name, *rest = line.split(None, 4)
        found[name] = " ".join(rest[:3])
    return found


def run(request: dict[str, object]) -> dict[str, object]:
    done = subprocess.run(
        request["argv"],  # type: ignore[arg-type]
        input=unpack(str(request["input"])),
        capture_output=True,
        check=False,
        timeout=float(str(request["timeout_s"])),
        cwd="/root",
        start_new_session=True,
    )
    return {"rc": done.returncode, "out": pack(done.stdout), "err": pack(done.stderr)}


def put(request: dict[str, object]) -> dict[str, object]:
    path = Path(str(request["path"]))
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_bytes(unpack(str(request["data"])))
    path.chmod(int(str(request["mode"])))
    return {}


def hello(_request: dict[str, object]) -> dict[str, object]:
    return {"boot": boot_id()}


OPS = {"run": run, "put": put, "state": state, "hello": hello}


def answer(line: bytes) -> bytes:
    request: dict[str, object] = {}
    try:
        request = json.loads(line)
        told = {"ok": True, **OPS[str(request["op"])](request)}
    except Exception as error:  # the host is told, whatever it is
        told = {"error": f"{type(error).__name__}: {error}"}
    return json.dumps({"id": request.get("id"), **told}).encode() + b"\n"


def device() -> str:
    while True:
        for name in glob.glob("/sys/class/virtio-ports/*/name"):
            if readable(name) == PORT:
                return "/dev/" + name.split("/")[-2]
        time.sleep(0.1)


def write(port: int, data: bytes) -> None:
    while data:
        data = data[os.write(port, data) :]


def main() -> None:
    port = os.open(device(), os.O_RDWR)
    write(port, json.dumps({"hello": boot_id()}).encode() + b"\n")
    rest = b""
    while True:
        got = os.read(port, 1 << 16)
        if not got:  # nobody on the other side
            time.sleep(0.05)
            continue
        *lines, rest = (rest + got).split(b"\n")
        for line in lines:
            if line.strip():
                write(port, answer(line))


if __name__ == "__main__":
    main()
