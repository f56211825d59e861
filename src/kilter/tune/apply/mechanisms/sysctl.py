"""Kernel parameters: /proc/sys now, /etc/sysctl.d for the next boot.

The file sorts behind every other that packages bring (``99-sysctl.conf`` is /etc/sysctl.conf), since the last setting wins (man sysctl.d).
"""

from __future__ import annotations

import re

from kilter.facts.applied import Reading
from kilter.facts.plan import Change
from kilter.tune.apply.host import Host
from kilter.tune.apply.mechanisms.base import Base, Mechanism, Refuse, Skip, managed, one_line, own_line, same
from kilter.tune.apply.steps import Poke, Step

FILE = "/etc/sysctl.d/99-zz-kilter.conf"
_KEY = re.compile(r"[a-zA-Z0-9_-]+(?:[./][a-zA-Z0-9_:@*-]+)+$")


def proc_path(key: str) -> str:
    """``net.ipv4.conf.eth0/100.forwarding`` -> /proc/sys/net/ipv4/conf/eth0.100/forwarding (man sysctl.d: "." and "/" change places)."""
    if not _KEY.match(key) or ".." in key:
        raise Refuse(f"{key!r} is no name of a kernel parameter such as vm.swappiness")
    first = re.search(r"[./]", key)
    if first is not None and first[0] == "/":
        return f"/proc/sys/{key}"
    return "/proc/sys/" + key.translate(str.maketrans("./", "/."))


class Sysctl(Base):
    def read(self, host: Host, change: Change) -> Reading:
        path = proc_path(change.key)
        value = host.text(path)
        missing = "" if value is not None else f"this kernel has no {path}" if not host.exists(path) else f"{path} cannot be read"
        return Reading(
            runtime=value,
            persistent=own_line(host, FILE, rf"{re.escape(change.key)} = (.*)$"),
            has_runtime=change.value is not None,  # the kernel's own value is not known; it comes with the next boot
            missing=missing,
        )

    def steps(self, host: Host, change: Change) -> list[Step]:
        path = proc_path(change.key)
        if not host.exists(path):
            raise Skip(f"this kernel has no {path}")
        steps: list[Step] = []
        if change.value is not None and not same(host.text(path), change.value):
            steps.append(Poke(path, one_line(change.value, change.key)))
        if change.persistent:
            line = None if change.value is None else f"{change.key} = {one_line(change.value, change.key)}"
            steps += managed(host, FILE, {rf"{re.escape(change.key)} = ": line})
        return steps


MECHANISMS: dict[str, Mechanism] = {"sysctl": Sysctl()}
