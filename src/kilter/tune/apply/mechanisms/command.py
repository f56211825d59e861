"""What is read and set by a tool and forgotten at the next boot: ethtool, mlnx_qos, nvidia-smi. One class, a table of settings a tool."""

from __future__ import annotations

import re
from collections.abc import Callable
from typing import NamedTuple

from kilter.facts.applied import Reading
from kilter.facts.plan import Change
from kilter.tune.apply.host import Host
from kilter.tune.apply.mechanisms.base import Base, Refuse, Skip, at_boot, boot_line
from kilter.tune.apply.steps import Call, Step


class Setting(NamedTuple):
    """One setting of a tool. ``{on}`` stands for the device, ``{value}`` for the value."""

    read: list[str]
    found: Callable[[str], str | None]  # output of ``read`` -> value
    write: list[str]
    values: str  # pattern of values that exist
    keeps: bool = False  # whether the device itself remembers it over a boot
    needs: str = ""


def line_of(pattern: str) -> Callable[[str], str | None]:
    """Group 1 of the first match in an output."""

    def find(output: str) -> str | None:
        match = re.search(pattern, output, re.MULTILINE | re.IGNORECASE)
        return match[1] if match else None

    return find


class Tool(Base):
    """Key: ``device/setting``."""

    def __init__(self, name: str, command: str, devices: str, settings: dict[str, Setting], path: str = "") -> None:
        """``path``: what is there once a device is, with ``{on}`` for its name."""
        self.name, self.command, self._devices, self._settings, self._path = name, command, devices, settings, path

    def _split(self, change: Change) -> tuple[str, Setting]:
        device, slash, name = change.key.partition("/")
        if not slash or not re.fullmatch(self._devices, device) or device.startswith("-"):
            raise Refuse(f"{change.key!r} is no device/setting of {self.command}")
        setting = self._settings.get(name)
        if setting is None:
            raise Refuse(
                f"{change.key}: {self.command} has no setting {name!r} here; expected one of {', '.join(self._settings)}"
            )
        if change.value is not None and not re.fullmatch(setting.values, change.value):
            raise Refuse(f"{change.key}: {change.value!r}; expected {setting.values}")
        return device, setting

    def _argv(self, words: list[str], device: str, value: str = "") -> list[str]:
        return [word.replace("{on}", device).replace("{value}", value) for word in words]

    def _value(self, host: Host, device: str, setting: Setting) -> tuple[str | None, str]:
        """(value, why there is none)."""
        if not host.has(self.command):
            return None, f"{self.command} is not installed"
        done = host.run(self._argv(setting.read, device), limit_s=60)
        value = setting.found(done.output) if done.code == 0 else None
        if value is None:
            last = done.output.strip().splitlines()[-1:] or [f"exit code {done.code}"]
            return None, f"{' '.join(self._argv(setting.read, device))}: {last[0][:200]}"
        return value, ""

    def _tag(self, change: Change) -> str:
        return f"{self.name} {change.key}"

    def _line(self, device: str, setting: Setting, value: str) -> str:
        return " ".join(self._argv(setting.write, device, value))

    def read(self, host: Host, change: Change) -> Reading:
        device, setting = self._split(change)
        value, why = self._value(host, device, setting)
        kept = None if setting.keeps else boot_line(host, self._tag(change))
        wanted = None if change.value is None else self._line(device, setting, change.value)
        return Reading(
            runtime=value,
            persistent=change.value if kept is not None and kept == wanted else kept,
            has_runtime=change.value is not None,
            has_persistent=not setting.keeps,
            missing=why,
        )

    def needs(self, host: Host, change: Change) -> str:
        return self._split(change)[1].needs

    def steps(self, host: Host, change: Change) -> list[Step]:
        device, setting = self._split(change)
        value, why = self._value(host, device, setting)
        if value is None:
            raise Skip(why)
        steps: list[Step] = []
        if change.value is not None and value.lower() != change.value.lower():
            if not re.fullmatch(setting.values, value):
                raise Refuse(f"{change.key} is {value!r} now, which kilter could not put back")
            steps.append(Call(self._argv(setting.write, device, change.value), undo=[self._argv(setting.write, device, value)]))
        if change.persistent and not setting.keeps:
            line = None if change.value is None else self._line(device, setting, change.value)
            steps += at_boot(host, self._tag(change), line, self._path.replace("{on}", device))
        return steps


class Either:
    """A mechanism whose tool depends on the key."""

    def __init__(self, choose: Callable[[Change], Tool]) -> None:
        self._choose = choose

    def read(self, host: Host, change: Change) -> Reading:
        return self._choose(change).read(host, change)

    def steps(self, host: Host, change: Change) -> list[Step]:
        return self._choose(change).steps(host, change)

    def needs(self, host: Host, change: Change) -> str:
        return self._choose(change).needs(host, change)
