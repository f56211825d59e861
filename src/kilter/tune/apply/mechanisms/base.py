"""What mechanisms have in common."""

from __future__ import annotations

import re
from typing import Protocol

from kilter.facts.applied import Reading
from kilter.facts.plan import Change
from kilter.tune.apply.host import Host
from kilter.tune.apply.steps import Call, Put, Step


class Skip(Exception):
    """This machine has no such parameter, or nothing to write it with. The message says why."""


class Refuse(Exception):
    """The change is not written because it would do harm or is not well-formed. The message says why."""


class Mechanism(Protocol):
    """One kind of parameter."""

    def read(self, host: Host, change: Change) -> Reading:
        """The parameter as it is. Never raises for what is not there: that is ``Reading.missing``. Raises :class:`Refuse` for a key or
        value that is not well-formed."""

    def steps(self, host: Host, change: Change) -> list[Step]:
        """What has to be done, given the files as they are now. Called only where reading shows that something is to be done. Raises
        :class:`Skip` or :class:`Refuse`."""

    def needs(self, host: Host, change: Change) -> str:
        """What it takes until the change is in force; "" = nothing."""


def same(value: str | None, wanted: str | None) -> bool:
    """Whether two values are one; blanks count for nothing, and numbers by value."""
    if value is None or wanted is None:
        return value is wanted
    left, right = value.split(), wanted.split()
    return left == right or [_number(word) for word in left] == [_number(word) for word in right]


def _number(word: str) -> str | int:
    return int(word, 0) if re.fullmatch(r"-?(?:0x[0-9a-fA-F]{1,16}|[1-9]\d{0,18}|0)", word) else word


def holds(reading: Reading, change: Change) -> tuple[bool, bool]:
    """(the value in force is right, that of the next boot is right); a form that does not exist counts as right."""
    now = not reading.has_runtime or same(reading.runtime, change.value)
    then = not reading.has_persistent or not change.persistent or same(reading.persistent, change.value)
    return now, then


def one_line(value: str, what: str) -> str:
    """A value that goes into a line of a file. Raises Refuse for line ends and control characters."""
    if re.search(r"[\x00-\x08\x0a-\x1f\x7f]", value):
        raise Refuse(f"{what} holds control characters")
    return value


HEADER = "Written by kilter; 'kilter tune rollback' takes it back.\n"


def managed(host: Host, path: str, edits: dict[str, str | None], *, mode: int = 0o644) -> list[Step]:
    """Steps that make, for each pattern of ``edits``, its line the only one of kilter's own file ``path`` that the pattern matches; None
    takes such lines away. A file that holds nothing more goes away as a whole.
    """
    before = host.read(path)
    text = before.decode("utf-8", "surrogateescape") if before is not None else f"# {HEADER}"
    kept = [line for line in text.splitlines() if not any(re.match(pattern, line) for pattern in edits)]
    kept += [line for line in edits.values() if line is not None]
    if all(not line.strip() or line.startswith("#") for line in kept):
        return [Put(path, None)] if before is not None else []
    data = ("\n".join(kept) + "\n").encode("utf-8", "surrogateescape")
    return [] if data == before else [Put(path, data, mode)]


def own_line(host: Host, path: str, pattern: str) -> str | None:
    """Group 1 of the last line of a file that ``pattern`` matches; None without one."""
    found = [match[1] for one in (host.text(path) or "").splitlines() if (match := re.match(pattern, one))]
    return found[-1] if found else None


BOOT_SCRIPT = "/etc/kilter/boot.sh"
BOOT_UNIT = "/etc/systemd/system/kilter-boot.service"
_UNIT = """\
# Written by kilter; 'kilter tune rollback' takes it back.
[Unit]
Description=Settings of kilter that the kernel forgets at every boot
Wants=systemd-udev-settle.service
After=network-pre.target systemd-udev-settle.service openibd.service nvidia-persistenced.service
Before=slurmd.service kubelet.service

[Service]
Type=oneshot
RemainAfterExit=yes
ExecStart=/bin/sh /etc/kilter/boot.sh

[Install]
WantedBy=multi-user.target
"""


#: Drivers find their devices when they do: a line waits for its own, a minute at most.
_WAIT = "i=0; while [ ! -e {device} ] && [ $i -lt 60 ]; do sleep 1; i=$((i + 1)); done; "


def at_boot(host: Host, tag: str, line: str | None, device: str = "") -> list[Step]:
    """Steps that put ``line`` into the script that runs at boot, in place of an earlier one with the same ``tag``; None takes it away.
    The line waits for the path ``device``."""
    wait = _WAIT.format(device=device) if device else ""
    marked = None if line is None else f"{wait}{line}  # {tag}"
    steps = managed(host, BOOT_SCRIPT, {rf".*  # {re.escape(tag)}$": marked})
    if not steps:
        return []
    if isinstance(steps[0], Put) and steps[0].data is None:
        return [
            Call(undo=[["systemctl", "daemon-reload"]]),
            *steps,
            Call(["systemctl", "disable", "kilter-boot.service"], undo=[["systemctl", "enable", "kilter-boot.service"]]),
            Put(BOOT_UNIT, None),
            *reload(),
        ]
    if host.exists(BOOT_UNIT):
        return steps
    return [
        Call(undo=[["systemctl", "daemon-reload"]]),
        *steps,
        Put(BOOT_UNIT, _UNIT.encode()),
        *reload(),
        Call(["systemctl", "enable", "kilter-boot.service"], undo=[["systemctl", "disable", "kilter-boot.service"]]),
    ]


def boot_line(host: Host, tag: str) -> str | None:
    """The line of the boot script with a tag, without what it waits for."""
    return own_line(host, BOOT_SCRIPT, rf"(?:i=0; while .*? done; )?(.*)  # {re.escape(tag)}$")


def reload() -> list[Step]:
    return [Call(["systemctl", "daemon-reload"])]


class Base:
    """Defaults of a mechanism."""

    def needs(self, host: Host, change: Change) -> str:
        return ""
