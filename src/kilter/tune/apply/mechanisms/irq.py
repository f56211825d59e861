"""CPUs that serve the interrupts of a device: /proc/irq now, a script at every boot. Key: an interface, a PCI address, or an interrupt's number."""

from __future__ import annotations

import re

from kilter.facts.applied import Reading
from kilter.facts.plan import Change
from kilter.tune.apply.host import Host
from kilter.tune.apply.mechanisms.base import Base, Mechanism, Refuse, Skip, at_boot, boot_line, same
from kilter.tune.apply.steps import Poke, Step


class Irq(Base):
    def _folder(self, change: Change) -> str:
        """Where the device lists its interrupts; "" for a single interrupt."""
        if change.key.isdecimal():
            return ""
        if re.fullmatch(r"[0-9a-f]{4,8}:[0-9a-f]{2}:[0-9a-f]{2}\.[0-7]", change.key):
            return f"/sys/bus/pci/devices/{change.key}/msi_irqs"
        if re.fullmatch(r"[\w.-]{1,15}", change.key):
            return f"/sys/class/net/{change.key}/device/msi_irqs"
        raise Refuse(f"{change.key!r} is no interface, PCI address or interrupt")

    def _paths(self, host: Host, change: Change) -> list[str]:
        folder = self._folder(change)
        numbers = [change.key] if not folder else sorted((n for n in host.names(folder) if n.isdecimal()), key=int)
        return [path for n in numbers if host.exists(path := f"/proc/irq/{n}/smp_affinity_list")]

    def read(self, host: Host, change: Change) -> Reading:
        paths = self._paths(host, change)
        values = sorted({host.text(path) or "" for path in paths})
        kept = boot_line(host, f"irq {change.key}")
        return Reading(
            runtime="+".join(values) if paths else None,
            persistent=change.value if kept and kept == self._line(change) else kept,
            has_runtime=change.value is not None,
            missing="" if paths else f"{change.key} has no interrupts here",
        )

    def _line(self, change: Change) -> str | None:
        if change.value is None:
            return None
        folder = self._folder(change)
        if not folder:
            return f"echo {change.value} > /proc/irq/{change.key}/smp_affinity_list"
        return f"for n in $(ls {folder}); do echo {change.value} > /proc/irq/$n/smp_affinity_list; done"

    def steps(self, host: Host, change: Change) -> list[Step]:
        paths = self._paths(host, change)
        if not paths:
            raise Skip(f"{change.key} has no interrupts here")
        if change.value is not None and not re.fullmatch(r"\d{1,5}(?:-\d{1,5})?(?:,\d{1,5}(?:-\d{1,5})?)*", change.value):
            raise Refuse(f"{change.key}: {change.value!r} is no list of CPUs such as 0-15,32-47")
        steps: list[Step] = []
        if change.value is not None:
            steps += [Poke(path, change.value) for path in paths if not same(host.text(path), change.value)]
        if change.persistent:
            steps += at_boot(host, f"irq {change.key}", self._line(change), self._folder(change))
        return steps


MECHANISMS: dict[str, Mechanism] = {"irq": Irq()}
