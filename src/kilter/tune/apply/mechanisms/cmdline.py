"""Parameters of the kernel command line."""

from __future__ import annotations

import re

from kilter.facts.applied import Reading
from kilter.facts.plan import Change
from kilter.tune.apply import boot
from kilter.tune.apply.host import Host
from kilter.tune.apply.mechanisms.base import Base, Mechanism, Refuse, Skip, one_line
from kilter.tune.apply.steps import Step

#: What keeps a machine from booting as a system that can be reached is not written, whatever a plan says.
_REFUSED = re.compile(r"(?:init|rdinit|root|rootfstype|rd\.break|single|S|1|emergency|systemd\.unit)$")


class Cmdline(Base):
    def _check(self, change: Change) -> None:
        if not re.fullmatch(r"[A-Za-z0-9_.:-]+", change.key):
            raise Refuse(f"{change.key!r} is no parameter of the kernel")
        if _REFUSED.match(change.key):
            raise Refuse(f"{change.key} decides whether the machine boots at all; kilter does not write it")
        if change.value is not None and re.search(r"[\"'$`\\]", one_line(change.value, change.key)):
            raise Refuse(f"{change.key}: {change.value!r} holds quotes or signs of a shell")

    def read(self, host: Host, change: Change) -> Reading:
        self._check(change)
        found = boot.loader(host)
        if found is None:
            return Reading(
                missing="no boot loader was found whose line kilter can change (GRUB, boot loader entries, rpm-ostree)"
            )
        return Reading(
            runtime=self._seen(host.text("/proc/cmdline") or "", change), persistent=self._seen(found.line(host) or "", change)
        )

    def _seen(self, line: str, change: Change) -> str | None:
        """The value on a line; in the words of the change where it holds there, so that elements of a list compare."""
        return change.value if boot.holds(line, change.key, change.value) else boot.get(line, change.key)

    def needs(self, host: Host, change: Change) -> str:
        return "a reboot"

    def steps(self, host: Host, change: Change) -> list[Step]:
        self._check(change)
        found = boot.loader(host)
        if found is None:
            raise Skip("no boot loader was found whose line kilter can change")
        steps = found.steps(host, change.key, change.value)
        if not steps and not boot.holds(found.line(host) or "", change.key, change.value):
            raise Skip(f"{change.key} is on the boot line, but in none of the files that {found.name} makes it from")
        return steps


MECHANISMS: dict[str, Mechanism] = {"cmdline": Cmdline()}
