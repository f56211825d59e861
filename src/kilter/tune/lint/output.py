"""Reports as a patch and as SARIF 2.1.0 (docs.oasis-open.org/sarif), for code review."""

from __future__ import annotations

import difflib
from typing import Any

from kilter.tune.lint.report import Report

_LEVELS = {"error": "error", "warning": "warning", "note": "note"}
_RULES = {
    "env.unknown": "A variable that nobody reads",
    "env.misspelt": "A variable whose name is probably misspelt",
    "env.removed": "A variable that this version no longer reads",
    "env.renamed": "A variable that has another name now",
    "env.too-new": "A variable that this version does not read yet",
    "env.deprecated": "A deprecated variable",
    "env.debug": "A setting for diagnosis",
    "env.dangerous": "A setting that spoils results or hides faults",
    "env.range": "A value that does not exist",
    "env.legacy-value": "A value in an old form",
    "env.obsolete": "A setting that this version makes needless and harmful",
    "env.above-default": "A value above the default",
    "env.algorithm": "An algorithm without a way out",
    "env.syntax": "A list that is not written as NCCL reads it",
    "env.prefix": "A name that matches more than is meant",
    "env.redundant": "The default of this version",
    "env.overridden": "A setting that a later line overrides",
    "env.conflict": "Settings that contradict each other",
    "flag.misspelt": "A flag that the engine does not have",
    "flag.removed": "A flag that this version of the engine has no more",
    "flag.too-new": "A flag that this version of the engine does not have yet",
    "env.framework": "A value that the framework does not want on this GPU",
}


def sarif(reports: list[Report], version: str) -> dict[str, Any]:
    used = sorted({report.id for report in reports})
    rules = [{"id": id_, "shortDescription": {"text": _RULES[id_]}} for id_ in used]
    results = []
    for report in reports:
        place = report.setting
        region = {"startLine": place.line, "startColumn": place.column, "endColumn": place.column + max(place.length, 1)}
        results.append(
            {
                "ruleId": report.id,
                "level": _LEVELS[report.severity],
                "message": {"text": report.message},
                "locations": [{"physicalLocation": {"artifactLocation": {"uri": place.file}, "region": region}}],
            }
        )
    driver = {"name": "kilter lint", "version": version, "rules": rules}
    return {
        "$schema": "https://json.schemastore.org/sarif-2.1.0.json",
        "version": "2.1.0",
        "runs": [{"tool": {"driver": driver}, "results": results}],
    }


def patch(texts: dict[str, str], reports: list[Report]) -> str:
    """A unified diff of the fixes that are known and that the form of the text lets one write."""
    from kilter.tune.lint.fix import fixed

    made: list[str] = []
    for file, text in texts.items():
        own = [r for r in reports if r.setting.file == file and r.fix is not None and r.severity in ("error", "warning")]
        old, new = fixed(text, own)
        name = file.lstrip("/")
        made += difflib.unified_diff(old, new, f"a/{name}", f"b/{name}", n=2)
    return "".join(line if line.endswith("\n") else f"{line}\n\\ No newline at end of file\n" for line in made)
