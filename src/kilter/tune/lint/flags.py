"""Flags of serving engines in scripts and manifests: gone, not there yet, or misspelt for the engine's version."""

from __future__ import annotations

import re
from collections.abc import Iterator

from kilter.facts.workload import Workload
from kilter.knowledge import engine_flags as table
from kilter.tune.expression import version_key
from kilter.tune.lint.report import Report
from kilter.tune.lint.setting import Setting

_SOURCE = "source distributions of the engine, see knowledge/tables/engine_flags.yaml"


def judge_flags(work: Workload, text: str, file: str, version: str = "") -> Iterator[Report]:
    """Reports on the engine's flags of a workload that was read from ``text``. ``version`` of the engine; "" = that of its image, if known."""
    engine = work.framework or ""
    if engine not in table.ENGINES:
        return
    version = version or work.framework_version or ""
    for name in work.flags:
        if "." in name or len(name) < 4 or not re.fullmatch(r"[a-z][a-z0-9_-]+", name):
            continue
        place = _place(name, text, file)
        if place is not None:
            yield from _one(engine, name.replace("_", "-"), place, version)


def _place(name: str, text: str, file: str) -> Setting | None:
    match = re.search(rf"(?<![\w-])--{re.escape(name)}(?![\w-])", text)
    if match is None:
        return None
    line = text.count("\n", 0, match.start()) + 1
    column = match.start() - (text.rfind("\n", 0, match.start()) + 1) + 1
    return Setting(f"--{name}", "", file, line, column, len(match[0]))


def _one(engine: str, name: str, place: Setting, version: str) -> Iterator[Report]:
    known = table.flags(engine)
    flag = known.get(name) or known.get(name.removeprefix("no-"))
    title = {"vllm": "vLLM", "sglang": "SGLang"}[engine]
    if flag is None:
        near = table.near(engine, name)
        if near and (not version or version_key(version) <= version_key(table.read_to(engine))):
            message = f"{place.name}: {title} has no such flag; did you mean --{near}?"
            yield Report(id="flag.misspelt", severity="error", setting=place, message=message, fix=f"--{near}", source=_SOURCE)
        return
    if not version:
        return
    if flag.removed and version_key(version) >= version_key(flag.removed):
        message = f"{place.name}: {title} {version} has it no more (gone in {flag.removed}) and does not start with it"
        yield Report(id="flag.removed", severity="error", setting=place, message=message, source=_SOURCE)
    elif version_key(version) < version_key(flag.since) and flag.since != _first(engine):
        message = f"{place.name}: {title} {version} does not know it (seen first in {flag.since})"
        yield Report(id="flag.too-new", severity="error", setting=place, message=message, source=_SOURCE)


def _first(engine: str) -> str:
    """The oldest release that was read: what it has may be older."""
    return min((flag.since for flag in table.flags(engine).values()), key=version_key)
