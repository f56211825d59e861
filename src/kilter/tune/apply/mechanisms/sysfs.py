"""Files below /sys and /proc: written now, and by systemd-tmpfiles (``w`` lines) at every boot."""

from __future__ import annotations

import re

from kilter.facts.applied import Reading
from kilter.facts.plan import Change
from kilter.tune.apply.host import Host
from kilter.tune.apply.mechanisms.base import Base, Mechanism, Refuse, Skip, managed, one_line, own_line, same
from kilter.tune.apply.sh import written
from kilter.tune.apply.steps import Poke, Step

FILE = "/etc/tmpfiles.d/kilter.conf"


def _paths(host: Host, key: str) -> list[str]:
    if not re.match(r"/(?:sys|proc)/[^\s]+$", key) or "/../" in key:
        raise Refuse(f"{key!r} is no path below /sys or /proc")
    return host.matches(key)


def _pattern(key: str) -> str:
    return rf"w {re.escape(key)} - - - - "


class Sysfs(Base):
    def read(self, host: Host, change: Change) -> Reading:
        paths = _paths(host, change.key)
        values = sorted({written(host.text(path) or "") for path in paths})
        return Reading(
            runtime="+".join(values) if paths else None,
            persistent=own_line(host, FILE, _pattern(change.key) + "(.*)$"),
            has_runtime=change.value is not None,
            missing="" if paths else f"there is no {change.key}",
        )

    def steps(self, host: Host, change: Change) -> list[Step]:
        paths = _paths(host, change.key)
        if not paths:
            raise Skip(f"there is no {change.key}")
        steps: list[Step] = []
        if change.value is not None:
            value = one_line(change.value, change.key)
            steps += [Poke(path, value) for path in paths if not same(written(host.text(path) or ""), value)]
        if change.persistent:
            # "%" begins a specifier in tmpfiles.d.
            line = None if change.value is None else f"w {change.key} - - - - {change.value.replace('%', '%%')}"
            steps += managed(host, FILE, {_pattern(change.key): line})
        return steps


MECHANISMS: dict[str, Mechanism] = {"sysfs": Sysfs()}
