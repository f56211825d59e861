"""Rules of udev: one file a rule in /etc/udev/rules.d."""

from __future__ import annotations

import re

from kilter.facts.applied import Reading
from kilter.facts.plan import Change
from kilter.tune.apply.host import Host
from kilter.tune.apply.mechanisms.base import HEADER, Base, Mechanism, Refuse, one_line
from kilter.tune.apply.steps import Call, Put, Step


class Udev(Base):
    def _path(self, change: Change) -> str:
        if not re.fullmatch(r"[a-zA-Z0-9_-]{1,64}", change.key):
            raise Refuse(f"{change.key!r}: a rule's name has letters, digits, - and _ only")
        return f"/etc/udev/rules.d/99-kilter-{change.key}.rules"

    def read(self, host: Host, change: Change) -> Reading:
        lines = [line for line in (host.text(self._path(change)) or "").splitlines() if not line.startswith("#")]
        return Reading(persistent="\n".join(lines) or None, has_runtime=False)

    def needs(self, host: Host, change: Change) -> str:
        return "the next event of the device: udevadm trigger, or a reboot"

    def steps(self, host: Host, change: Change) -> list[Step]:
        path = self._path(change)
        data = None
        if change.value is not None:
            rule = "\n".join(one_line(line, change.key) for line in change.value.splitlines())
            if not re.search(r"^[A-Z]+(?:\{[^}]*\})?\s*(?:==|!=|=|\+=|:=)", rule, re.MULTILINE):
                raise Refuse(f"{change.key}: {rule!r} is no rule of udev")
            data = f"# {HEADER}{rule}\n".encode()
        load: list[Step] = [Call(["udevadm", "control", "--reload"])] if host.has("udevadm") else []
        back: list[Step] = [Call(undo=[["udevadm", "control", "--reload"]])] if load else []
        return [*back, Put(path, data), *load]


MECHANISMS: dict[str, Mechanism] = {"udev": Udev()}
