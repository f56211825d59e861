"""What the linter says of one setting, and what it says it for."""

from __future__ import annotations

from collections.abc import Iterable

import msgspec

from kilter.tune.expression import version_key
from kilter.tune.lint.setting import Setting

SEVERITIES = ("error", "warning", "note")
MANUAL = "NVIDIA/nccl docs/userguide/source/env.rst"


class Target(msgspec.Struct, omit_defaults=True):
    """What the settings are for; "" or None = not known."""

    nccl: str = ""
    torch: str = ""
    gpu_sm: int | None = None  # compute capability times 10


class Report(msgspec.Struct, kw_only=True, omit_defaults=True):
    """One thing to say of one setting. ``fix``: the new text of the setting, "" = take the line away, None = none is known."""

    id: str
    severity: str
    setting: Setting
    message: str
    fix: str | None = None
    source: str = ""


def say(id_: str, severity: str, setting: Setting, message: str, fix: str | None = None, source: str = "") -> Report:
    return Report(id=id_, severity=severity, setting=setting, message=f"{setting.name}: {message}", fix=fix, source=source)


def at_least(version: str, bound: str) -> bool | None:
    """Whether a version is ``bound`` or newer; None where it is not known."""
    return None if not version else version_key(version) >= version_key(bound)


def counts(reports: Iterable[Report]) -> dict[str, int]:
    found = dict.fromkeys(SEVERITIES, 0)
    for report in reports:
        found[report.severity] += 1
    return found
