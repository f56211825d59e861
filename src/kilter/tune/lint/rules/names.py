"""Names: unknown, misspelt, renamed, removed, not there yet."""

from __future__ import annotations

import difflib
from collections.abc import Iterator

from kilter.knowledge import env_variables as table
from kilter.tune.expression import version_key
from kilter.tune.lint.report import MANUAL, Report, Target, at_least, say
from kilter.tune.lint.setting import Setting

#: Likeness from which a name is another one misspelt: NCCL_IB_TIMOUT is 0.97 of NCCL_IB_TIMEOUT, NCCL_TIMEOUT 0.89.
_ALIKE = 0.92
_TAGS = "NVIDIA/nccl, release tags"


def name_reports(setting: Setting, target: Target) -> Iterator[Report]:
    """At most one report; none for a name that this version reads."""
    name, value = setting.name, setting.value or ""
    if name in table.moved():
        if at_least(target.torch, "2.2") is not False:
            new = table.moved()[name]
            fix = f"{new}={value}"
            yield say("env.renamed", "warning", setting, f"PyTorch reads {new} since 2.2", fix, "pytorch/pytorch#114077")
        return
    if not name.startswith("NCCL_"):
        return
    variable = table.variables().get(name)
    if variable is None:
        yield from _unknown(setting)
    elif variable.renamed:
        yield say("env.renamed", "warning", setting, f"its name is {variable.renamed} now", f"{variable.renamed}={value}", MANUAL)
    elif variable.removed and at_least(target.nccl, variable.removed) is not False:
        yield from _removed(setting, variable, target)
    elif variable.since and at_least(target.nccl, variable.since) is False:
        message = f"NCCL {target.nccl} does not read it; it came with {variable.since}"
        yield say("env.too-new", "warning", setting, message, None, MANUAL)


def _removed(setting: Setting, variable: table.Variable, target: Target) -> Iterator[Report]:
    if not target.nccl and version_key(variable.removed) > version_key("2.5"):
        return  # the version may have it
    instead = f"; see {variable.instead}" if variable.instead else ""
    since = f"removed in {variable.removed}"
    if version_key(variable.removed) <= version_key("2.4"):
        since = "removed, no version since 2.4 reads it"
    yield say("env.removed", "warning", setting, f"{since}{instead}", "", MANUAL)


def _unknown(setting: Setting) -> Iterator[Report]:
    if table.owner(setting.name):
        return
    near = table.near(setting.name)
    alike = difflib.SequenceMatcher(None, near, setting.name).ratio() if near else 0.0
    if alike >= _ALIKE:
        meant = table.variables()[near]
        more = f" (deprecated since {meant.deprecated})" if meant.deprecated else ""
        fix = f"{near}={setting.value}"
        yield say("env.misspelt", "warning", setting, f"no such variable; did you mean {near}{more}?", fix, _TAGS)
    elif not setting.plain:  # a variable of the script itself may have any name
        nearest = f"; the nearest is {near}" if near else ""
        yield say("env.unknown", "note", setting, f"NCCL 2.4 to 2.30 has no such variable{nearest}", None, _TAGS)
