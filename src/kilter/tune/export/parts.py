"""What all forms are made of: the plan's changes as persistent files, kernel arguments, variables, units and commands."""

from __future__ import annotations

from typing import NamedTuple

import msgspec

from kilter.facts.plan import Advice, Change, Plan, Verdict
from kilter.tune.apply.mechanisms import limits, modprobe, sysctl, sysfs


class Export(msgspec.Struct, kw_only=True):
    """Files by relative path, and what could not be said in them."""

    files: dict[str, str]
    notes: list[str] = []


class Item(NamedTuple):
    """One change with its reason."""

    change: Change
    id: str
    why: str


class Parts(msgspec.Struct, kw_only=True):
    """Changes by kind, each list in the plan's order."""

    items: list[Item] = []
    by_hand: list[str] = []

    def of(self, *mechanisms: str) -> list[Item]:
        return [item for item in self.items if item.change.mechanism in mechanisms]

    def left(self, *said: str) -> list[str]:
        """Notes for what a form does not say: changes of other mechanisms than ``said``, and what is to be done by hand."""
        found = []
        for item in self.items:
            if item.change.mechanism not in said or (item.change.mechanism == "unit" and item.change.value is None):
                value = "unset" if item.change.value is None else item.change.value
                found.append(f"not expressed here: {item.change.mechanism} {item.change.key} = {value} ({item.id})")
        return found + self.by_hand

    def arguments(self) -> tuple[list[str], list[str]]:
        """(kernel arguments to add, names of those to take away)."""
        add, remove = [], []
        for item in self.of("cmdline"):
            change = item.change
            if change.value is None:
                remove.append(change.key)
            else:
                add.append(f"{change.key}={change.value}" if change.value else change.key)
        return add, remove

    def variables(self) -> tuple[dict[str, str], list[str]]:
        """(variables to set, variables to take away) of the job."""
        changes = [item.change for item in self.of("env")]
        return {c.key: c.value for c in changes if c.value is not None}, [c.key for c in changes if c.value is None]

    def files(self) -> dict[str, str]:
        """Absolute path -> text of the files that hold what can be said in files: sysctl.d, tmpfiles.d, modprobe.d, limits.d, udev, drop-ins."""
        lines: dict[str, list[str]] = {}
        whole: dict[str, str] = {}
        for item in self.items:
            change = item.change
            if change.value is None:
                continue
            value = " ".join(change.value.splitlines())
            if change.mechanism == "sysctl":
                lines.setdefault(sysctl.FILE, []).append(f"{change.key} = {value}")
            elif change.mechanism == "sysfs":
                lines.setdefault(sysfs.FILE, []).append(f"w {change.key} - - - - {value.replace('%', '%%')}")
            elif change.mechanism == "modprobe":
                module, _, parameter = change.key.partition(".")
                lines.setdefault(modprobe.FILE, []).append(f"options {module} {parameter}={value}")
            elif change.mechanism == "limits":
                lines.setdefault(limits.FILE, []).extend([f"* - {change.key} {value}", f"root - {change.key} {value}"])
            elif change.mechanism == "nccl_conf":
                lines.setdefault("/etc/nccl.conf", []).append(f"{change.key}={value}")
            elif change.mechanism == "udev":
                whole[f"/etc/udev/rules.d/99-kilter-{change.key}.rules"] = f"{change.value}\n"
            elif change.mechanism == "dropin":
                unit, _, rest = change.key.partition("/")
                section, _, directive = rest.partition(".")
                daemon = {
                    "Login": "/etc/systemd/logind.conf.d",
                    "Manager": "/etc/systemd/system.conf.d",
                    "Journal": "/etc/systemd/journald.conf.d",
                }
                folder = daemon.get(section, f"/etc/systemd/system/{unit}.d")
                whole[f"{folder}/90-kilter-{directive.lower()}.conf"] = f"[{section}]\n{directive}={value}\n"
        found = {path: "# Written by kilter.\n" + "".join(f"{line}\n" for line in body) for path, body in lines.items()}
        return dict(sorted({**found, **whole}.items()))

    def units(self) -> list[tuple[str, str]]:
        """(unit, word of its state) of units: ``("irqbalance.service", "disabled")``."""
        return [(i.change.key, word) for i in self.of("unit") for word in (i.change.value or "").split("+") if word]


#: Mechanisms that :meth:`Parts.files` says.
IN_FILES = ("sysctl", "sysfs", "modprobe", "limits", "nccl_conf", "udev", "dropin")


def parts(plan: Plan) -> Parts:
    """What is recommended or refused; conflicts and questions are for people to decide first."""
    found = Parts()
    seen: set[tuple[str, str]] = set()
    for advice in plan.advice:
        if advice.verdict not in (Verdict.RECOMMEND, Verdict.REFUSE):
            continue
        for change in advice.changes:
            if (change.mechanism, change.key) not in seen:
                seen.add((change.mechanism, change.key))
                found.items.append(Item(change, advice.id, advice.why))
        if advice.by_hand and not advice.changes:
            found.by_hand.append(f"by hand: {_hand(advice)}")
    # A file can say what is to be, not that something is to go.
    return found


def _hand(advice: Advice) -> str:
    return f"{advice.by_hand} ({advice.id})"


def removals(all_parts: Parts, *mechanisms: str) -> list[str]:
    """Notes for what a form of files cannot say: that a setting is to go."""
    return [
        f"to be taken away by hand: {i.change.mechanism} {i.change.key}, now {i.change.was or 'set'} ({i.id})"
        for i in all_parts.of(*mechanisms)
        if i.change.value is None
    ]
