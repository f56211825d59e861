"""Units (enabled, started, masked and their opposites) and drop-ins of units and of systemd's own daemons."""

from __future__ import annotations

import re

from kilter.facts.applied import Reading
from kilter.facts.plan import Change
from kilter.tune.apply.host import Host
from kilter.tune.apply.mechanisms.base import HEADER, Base, Mechanism, Refuse, Skip, one_line, reload
from kilter.tune.apply.steps import Call, Put, Step

_UNIT = re.compile(r"[\w@:.\\-]+\.(?:service|socket|timer|target|mount|path|slice)$")
#: word -> (what is read, value that it makes, command, command that takes it back)
_STATES = {
    "enabled": ("file", "enabled", "enable", "disable"),
    "disabled": ("file", "disabled", "disable", "enable"),
    "masked": ("file", "masked", "mask", "unmask"),
    "started": ("active", "active", "start", "stop"),
    "stopped": ("active", "inactive", "stop", "start"),
}
#: Section of a daemon's own configuration -> its drop-in folder and the unit that reads it.
_DAEMONS = {
    "Login": ("/etc/systemd/logind.conf.d", "systemd-logind.service"),
    "Manager": ("/etc/systemd/system.conf.d", ""),
    "Journal": ("/etc/systemd/journald.conf.d", "systemd-journald.service"),
}


class Unit(Base):
    def read(self, host: Host, change: Change) -> Reading:
        words = self._words(change)
        if not host.has("systemctl"):
            return Reading(missing="systemd does not run here")
        state = self._state(host, change.key)
        if state["load"] == "not-found":
            return Reading(missing=f"there is no unit {change.key}")
        persistent = [w for w in words if _STATES[w][0] == "file"]
        runtime = [w for w in words if _STATES[w][0] == "active"]
        return Reading(
            has_runtime=bool(runtime) or not persistent,
            has_persistent=bool(persistent),
            # In the words of the change where it holds, so that the two compare.
            runtime=change.value if all(_STATES[w][1] == state["active"] for w in runtime) else state["active"],
            persistent=change.value if all(_STATES[w][1] == state["file"] for w in persistent) else state["file"],
        )

    def _words(self, change: Change) -> list[str]:
        if not _UNIT.match(change.key):
            raise Refuse(f"{change.key!r} is no unit such as irqbalance.service")
        words = (change.value or "").split("+")
        unknown = [word for word in words if word not in _STATES]
        if unknown:
            raise Refuse(f"{change.key}: {change.value!r}; expected {', '.join(_STATES)}, joined by +")
        return words

    def _state(self, host: Host, unit: str) -> dict[str, str]:
        done = host.run(["systemctl", "show", "-p", "LoadState,UnitFileState,ActiveState", "--", unit], limit_s=60)
        found = dict(line.partition("=")[::2] for line in done.output.splitlines() if "=" in line)
        return {
            "load": found.get("LoadState", "not-found"),
            "file": found.get("UnitFileState", ""),
            "active": found.get("ActiveState", "unknown"),
        }

    def steps(self, host: Host, change: Change) -> list[Step]:
        steps: list[Step] = []
        state = self._state(host, change.key)
        if state["load"] == "not-found":
            raise Skip(f"there is no unit {change.key}")
        for word in self._words(change):
            kind, value, command, back = _STATES[word]
            if state[kind] == value or (
                kind == "file" and state["file"] in ("static", "alias", "generated", "transient", "indirect")
            ):
                continue
            steps.append(Call(["systemctl", command, "--", change.key], undo=[["systemctl", back, "--", change.key]]))
        return steps


class Dropin(Base):
    def read(self, host: Host, change: Change) -> Reading:
        path, _, section, directive = self._where(change)
        found, inside = None, False
        for line in (host.text(path) or "").splitlines():
            if line.startswith("["):
                inside = line == f"[{section}]"
            elif inside and line.startswith(f"{directive}="):
                found = line.partition("=")[2]
        return Reading(persistent=found, has_runtime=False)

    def needs(self, host: Host, change: Change) -> str:
        unit = self._where(change)[1]
        return f"a restart of {unit}" if unit else "a reboot"

    def _where(self, change: Change) -> tuple[str, str, str, str]:
        """(file, unit to restart, section, directive)."""
        unit, slash, rest = change.key.partition("/")
        section, dot, directive = rest.partition(".")
        if (
            not slash
            or not dot
            or not _UNIT.match(unit)
            or not re.fullmatch(r"\w+", section)
            or not re.fullmatch(r"\w+", directive)
        ):
            raise Refuse(f"{change.key!r} is no unit/Section.Directive such as slurmd.service/Service.LimitMEMLOCK")
        if section in _DAEMONS:
            folder, daemon = _DAEMONS[section]
            return f"{folder}/90-kilter-{directive.lower()}.conf", daemon, section, directive
        return f"/etc/systemd/system/{unit}.d/90-kilter-{directive.lower()}.conf", unit, section, directive

    def steps(self, host: Host, change: Change) -> list[Step]:
        path, _, section, directive = self._where(change)
        data = None
        if change.value is not None:
            data = f"# {HEADER}[{section}]\n{directive}={one_line(change.value, change.key)}\n".encode()
        return [Call(undo=[["systemctl", "daemon-reload"]]), Put(path, data), *reload()]


MECHANISMS: dict[str, Mechanism] = {"unit": Unit(), "dropin": Dropin()}
