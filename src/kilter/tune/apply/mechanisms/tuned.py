"""Hand-over to TuneD: switch the active profile. Key ``profile``."""

from __future__ import annotations

import re

from kilter.facts.applied import Reading
from kilter.facts.plan import Change
from kilter.tune.apply.host import Host
from kilter.tune.apply.mechanisms.base import Base, Mechanism, Refuse, Skip
from kilter.tune.apply.steps import Call, Step

_FOLDERS = ("/etc/tuned", "/etc/tuned/profiles", "/usr/lib/tuned", "/usr/lib/tuned/profiles")


def active(host: Host) -> str | None:
    """The active profile; None without TuneD, or where it has none."""
    return (host.text("/etc/tuned/active_profile") or "").strip() or None


def path_of(host: Host, name: str) -> str | None:
    """The file of a profile; None where TuneD has none of that name."""
    return next((path for folder in _FOLDERS if host.exists(path := f"{folder}/{name}/tuned.conf")), None)


class Tuned(Base):
    def read(self, host: Host, change: Change) -> Reading:
        if change.key != "profile" or not re.fullmatch(r"[\w.-]+(?: [\w.-]+)*", change.value or ""):
            raise Refuse(f"{change.key!r} = {change.value!r}; expected profile and its name")
        if not host.has("tuned-adm"):
            return Reading(missing="TuneD is not installed")
        return Reading(persistent=active(host), has_runtime=False)

    def steps(self, host: Host, change: Change) -> list[Step]:
        names = (change.value or "").split()
        for name in names:
            if path_of(host, name) is None:
                raise Skip(f"TuneD has no profile {name}; write it with 'kilter tune export tuned'")
        was = active(host)
        back = ["tuned-adm", "profile", *was.split()] if was else ["tuned-adm", "off"]
        return [Call(["tuned-adm", "profile", *names], undo=[back])]


MECHANISMS: dict[str, Mechanism] = {"tuned": Tuned()}
