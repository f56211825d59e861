"""Parameters of kernel modules: /etc/modprobe.d, and the initramfs where the module is in it."""

from __future__ import annotations

import re

from kilter.facts.applied import Reading
from kilter.facts.plan import Change
from kilter.tune.apply.host import Host
from kilter.tune.apply.mechanisms.base import Base, Mechanism, Refuse, managed, one_line
from kilter.tune.apply.steps import Call, Put, Step

FILE = "/etc/modprobe.d/zz-kilter.conf"
_FOLDERS = ("/etc/modprobe.d", "/run/modprobe.d", "/usr/local/lib/modprobe.d", "/usr/lib/modprobe.d", "/lib/modprobe.d")


def _split(key: str) -> tuple[str, str]:
    module, dot, parameter = key.partition(".")
    if not dot or not re.fullmatch(r"[\w-]+", module) or not re.fullmatch(r"\w+", parameter):
        raise Refuse(f"{key!r} is no module.parameter such as nvidia.NVreg_EnableGpuFirmware")
    return module, parameter


def files(host: Host) -> list[str]:
    """Configuration files in the order in which modprobe reads them: by name, /etc over /run over /usr."""
    found: dict[str, str] = {}
    for folder in _FOLDERS:
        for name in host.names(folder):
            if name.endswith(".conf"):
                found.setdefault(name, f"{folder}/{name}")
    return [found[name] for name in sorted(found)]


def option(module: str, parameter: str) -> re.Pattern[str]:
    words = re.escape(module).replace("_", "[-_]").replace(r"\-", "[-_]")
    return re.compile(rf"(?P<head>\s*options\s+{words}\s.*?)(?<=\s){re.escape(parameter)}=(?P<value>\"[^\"]*\"|\S*)")


class Modprobe(Base):
    def read(self, host: Host, change: Change) -> Reading:
        module, parameter = _split(change.key)
        loaded = module.replace("-", "_")
        # /sys/module shows parameters of open permissions only; the nvidia driver shows its own.
        runtime = host.text(f"/sys/module/{loaded}/parameters/{parameter}")
        if runtime is None and module == "nvidia":
            short = parameter.removeprefix("NVreg_")
            match = re.search(rf"^{re.escape(short)}: (.*)$", host.text("/proc/driver/nvidia/params") or "", re.MULTILINE)
            runtime = match[1] if match else None
        persistent = None
        for path in files(host):
            for line in (host.text(path) or "").splitlines():
                if (found := option(module, parameter).match(line)) is not None:
                    persistent = found["value"].strip('"')
        return Reading(runtime=runtime, persistent=persistent, has_runtime=runtime is not None and change.value is not None)

    def needs(self, host: Host, change: Change) -> str:
        return f"a reload of {_split(change.key)[0]}, or a reboot"

    def steps(self, host: Host, change: Change) -> list[Step]:
        module, parameter = _split(change.key)
        steps: list[Step] = [
            Put(path if path.startswith("/etc/") else f"/etc/modprobe.d/{path.rpartition('/')[2]}", edited)
            for path in files(host)
            if path != FILE and (edited := self._without(host, path, module, parameter)) is not None
        ]
        pattern = rf"options {re.escape(module)} {re.escape(parameter)}="
        value = None if change.value is None else one_line(change.value, change.key)
        if value is not None and re.search(r"[\s\"]", value):
            value = '"' + value.replace('"', "") + '"'
        steps += managed(host, FILE, {pattern: None if value is None else f"options {module} {parameter}={value}"})
        return [*steps, *initramfs(host, module)] if steps else []

    def _without(self, host: Host, path: str, module: str, parameter: str) -> bytes | None:
        """The file without this option; None where it has none."""
        text = (host.read(path) or b"").decode("utf-8", "surrogateescape")
        lines = text.split("\n")
        for number, line in enumerate(lines):
            while (found := option(module, parameter).match(line)) is not None:
                rest = line[found.end() :]
                line = found["head"].rstrip() + rest
            if re.fullmatch(rf"\s*options\s+{re.escape(module)}\s*", line):
                line = f"# {lines[number]}"
            lines[number] = line
        new = "\n".join(lines)
        return None if new == text else new.encode("utf-8", "surrogateescape")


def initramfs(host: Host, module: str) -> list[Step]:
    """Make the initramfs of the running kernel anew, where the module is in it."""
    release = host.text("/proc/sys/kernel/osrelease") or ""
    for image, lister, maker in (
        (f"/boot/initrd.img-{release}", ["lsinitramfs"], ["update-initramfs", "-u", "-k", release]),
        (f"/boot/initramfs-{release}.img", ["lsinitrd"], ["dracut", "-f", f"/boot/initramfs-{release}.img", release]),
    ):
        if release and host.exists(image) and host.has(lister[0]) and host.has(maker[0]):
            listed = host.run([*lister, image])
            if listed.code == 0 and re.search(rf"/{re.escape(module)}\.ko", listed.output):
                return [Call(maker, touches=[image], again=maker)]
    return []


MECHANISMS: dict[str, Mechanism] = {"modprobe": Modprobe()}
