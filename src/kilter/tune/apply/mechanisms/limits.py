"""Limits of login sessions: /etc/security/limits.d, soft and hard, for everybody and for root (whom ``*`` does not mean: man limits.conf)."""

from __future__ import annotations

import re

from kilter.facts.applied import Reading
from kilter.facts.plan import Change
from kilter.tune.apply.host import Host
from kilter.tune.apply.mechanisms.base import Base, Mechanism, Refuse, managed
from kilter.tune.apply.steps import Step

FILE = "/etc/security/limits.d/99-zz-kilter.conf"
_ITEMS = (
    "core",
    "data",
    "fsize",
    "memlock",
    "nofile",
    "rss",
    "stack",
    "cpu",
    "nproc",
    "as",
    "locks",
    "sigpending",
    "msgqueue",
    "nice",
    "rtprio",
)
_WHO = ("*", "root")


class Limits(Base):
    def read(self, host: Host, change: Change) -> Reading:
        self._check(change)
        lines = [line.split() for line in (host.text(FILE) or "").splitlines() if not line.startswith("#")]
        values = {tuple(words[:3]): words[3] for words in lines if len(words) == 4}
        found = {values.get((who, "-", change.key)) for who in _WHO}
        persistent = next(iter(found)) if len(found) == 1 else None
        return Reading(persistent=persistent, has_runtime=False)

    def needs(self, host: Host, change: Change) -> str:
        return "a new login; services have limits of their own (Limit...= of their unit)"

    def _check(self, change: Change) -> None:
        if change.key not in _ITEMS:
            raise Refuse(f"{change.key!r} is no item of limits.conf; expected one of {', '.join(_ITEMS)}")
        if change.value is not None and not re.fullmatch(r"unlimited|infinity|-?\d{1,18}", change.value):
            raise Refuse(f"{change.key}: {change.value!r} is neither a number nor unlimited")

    def steps(self, host: Host, change: Change) -> list[Step]:
        self._check(change)
        lines = {who: None if change.value is None else f"{who} - {change.key} {change.value}" for who in _WHO}
        return managed(host, FILE, {rf"{re.escape(who)}\s+-\s+{change.key}\s": line for who, line in lines.items()})


MECHANISMS: dict[str, Mechanism] = {"limits": Limits()}
