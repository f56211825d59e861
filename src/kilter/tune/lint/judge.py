"""What is wrong with settings, for one set of versions. What depends on a version that is not known is not said."""

from __future__ import annotations

import re
from collections.abc import Iterator

from kilter.facts.workload import Workload
from kilter.knowledge import env_variables as table
from kilter.tune.lint.report import SEVERITIES, Report, Target, counts, say
from kilter.tune.lint.rules.frameworks import connections, other_reports
from kilter.tune.lint.rules.names import name_reports
from kilter.tune.lint.rules.together import together_reports
from kilter.tune.lint.rules.values import conf_reports, dangerous, value_reports
from kilter.tune.lint.setting import Setting, begins

__all__ = ["SEVERITIES", "Report", "Target", "counts", "judge"]

#: What marks a cloud's own profile, whose values belong together and are not to be judged one by one.
_PROFILE = re.compile(
    r"NCCL_(?:FASTRAK|GPUDIRECTTCPX|LLCM|GIB|SHIMNET)_|NCCL_NET=(?:gIB|FasTrak)|NCCL_TUNER_CONFIG_PATH=.*/(?:gib|tuner)"
)


def judge(found: list[Setting], target: Target, workload: Workload | None = None) -> list[Report]:
    """Reports on settings of one job, in their order."""
    profile = any(_PROFILE.match(s.name) or _PROFILE.match(f"{s.name}={s.value}") for s in found)
    force, reports = _in_force(found)
    holding = {id(setting) for setting in force}
    for setting in found:
        if setting.value is not None:
            reports += _one(setting, target, profile=profile, holds=id(setting) in holding)
    reports += together_reports(force)
    reports += connections(force, target, workload)
    return sorted(reports, key=lambda r: (r.setting.file, r.setting.line, r.setting.column, SEVERITIES.index(r.severity)))


def _in_force(found: list[Setting]) -> tuple[list[Setting], list[Report]]:
    """What no later place takes back, and reports on what one does."""
    by_name: dict[str, list[Setting]] = {}
    for setting in found:
        by_name.setdefault(setting.name, []).append(setting)
    force: list[Setting] = []
    reports: list[Report] = []
    for same in by_name.values():
        for index, setting in enumerate(same):
            later = next((one for one in reversed(same[index + 1 :]) if _replaces(one, setting)), None)
            if later is None:
                if setting.value is not None:
                    force.append(setting)
            elif None not in (setting.value, later.value) and later.value != setting.value and later.known and setting.known:
                message = f"set to {later.value!r} again in line {later.line}"
                reports.append(say("env.overridden", "note", setting, message))
    return sorted(force, key=lambda s: (s.file, s.line, s.column)), reports


def _replaces(later: Setting, earlier: Setting) -> bool:
    return later.file == earlier.file and later.scope == earlier.scope and begins(later.branch, earlier.branch)


def _one(setting: Setting, target: Target, *, profile: bool, holds: bool) -> Iterator[Report]:
    """A name is judged wherever it stands, a value only where no later place takes it back."""
    first = (
        (list(conf_reports(setting)) if setting.verbatim else [])
        or list(dangerous(setting))
        or list(name_reports(setting, target))
    )
    yield from first
    if first or not holds or not setting.known:
        return
    variable = table.variables().get(setting.name)
    if variable is not None:
        yield from value_reports(setting, variable, target, profile=profile)
    else:
        yield from other_reports(setting, target)
