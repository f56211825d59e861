"""Variables of jobs: a profile script for login shells, and NCCL's own file."""

from __future__ import annotations

import re
import shlex

from kilter.facts.applied import Reading
from kilter.facts.plan import Change
from kilter.intake import nccl_conf
from kilter.tune.apply.host import Host
from kilter.tune.apply.mechanisms.base import Base, Mechanism, Refuse, managed, one_line, own_line
from kilter.tune.apply.steps import Put, Step

#: Behind the others of the folder, so that what it says counts.
PROFILE = "/etc/profile.d/zz-kilter.sh"
CONF = "/etc/nccl.conf"
_NAME = re.compile(r"[A-Za-z_][A-Za-z0-9_]*$")


def _check(change: Change) -> None:
    if not _NAME.match(change.key):
        raise Refuse(f"{change.key!r} is no name of a variable")


class Env(Base):
    """``export NAME='value'``, or ``unset NAME`` where the change takes a variable away."""

    def read(self, host: Host, change: Change) -> Reading:
        _check(change)
        said = own_line(host, PROFILE, rf"(?:export |unset )({change.key}(?:=.*)?)$")
        value = None
        if said is not None and "=" in said:
            value = "".join(shlex.split(said.partition("=")[2]))
        if change.value is None:
            # That it is not set elsewhere is not known here: only an unset in this file makes it so.
            value = None if said is not None and "=" not in said else value if value is not None else "not known"
        return Reading(persistent=value, has_runtime=False)

    def needs(self, host: Host, change: Change) -> str:
        return "the next login shell; other jobs source /etc/profile.d/zz-kilter.sh"

    def steps(self, host: Host, change: Change) -> list[Step]:
        _check(change)
        if change.value is None:
            line = f"unset {change.key}"
        else:
            line = f"export {change.key}={shlex.quote(one_line(change.value, change.key))}"
        return managed(host, PROFILE, {rf"(?:export |unset ){change.key}(?:=.*)?$": line})


class NcclConf(Base):
    """/etc/nccl.conf, edited in place: it may hold settings of others."""

    def read(self, host: Host, change: Change) -> Reading:
        _check(change)
        found = nccl_conf.variables(host.text(CONF) or "").get(change.key)
        return Reading(persistent=found[0] if found else None, has_runtime=False)

    def needs(self, host: Host, change: Change) -> str:
        return "the next start of the job; the environment counts more"

    def steps(self, host: Host, change: Change) -> list[Step]:
        _check(change)
        text = (host.read(CONF) or b"").decode("utf-8", "surrogateescape")
        lines = text.split("\n")[:-1] if text.endswith("\n") else text.split("\n") if text else []
        wanted = None if change.value is None else f"{change.key}={one_line(change.value, change.key)}"
        kept: list[str] = []
        for line in lines:
            if line.partition("=")[0] != change.key or "=" not in line:
                kept.append(line)
            elif wanted is not None and wanted not in kept:
                kept.append(wanted)
        if wanted is not None and wanted not in kept:
            kept.append(wanted)
        new = "".join(f"{line}\n" for line in kept)
        return [Put(CONF, new.encode("utf-8", "surrogateescape"))]


MECHANISMS: dict[str, Mechanism] = {"env": Env(), "nccl_conf": NcclConf()}
