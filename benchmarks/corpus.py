"""Score kilter against a corpus of captures with known readings.

    python benchmarks/corpus.py [CORPUS_DIR] [--verbose]

Runs every case that has raw input, prints expected, missed and forbidden findings a case, then recall and false alarms. The corpus' ids
are read as kilter's by corpus_ids.yaml. Cases of which only facts are public are counted apart: their inputs were written from the facts
(tests/data/facts_only), so they show that the tools' formats and the rules fit together, not that real captures are read. Exit code 1 when
something forbidden was reported or a healthy capture raised an alarm.
"""

from __future__ import annotations

import argparse
import fnmatch
import re
import sys
import time
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import yaml

from kilter.diagnose.engine import diagnose
from kilter.facts.finding import Finding, Severity
from kilter.intake.read import read_paths

HERE = Path(__file__).parent
FACTS_ONLY = HERE.parent / "tests" / "data" / "facts_only"
_QUALIFIED = re.compile(r"([\w.*]+?) *(?:\(([^)]*)\))?$")
_DEVICE = re.compile(r"\.(gpu\d+|mlx5_\d+|ib\d+|node\w+)$")


@dataclass
class Result:
    case: str
    kind: str
    found: list[str] = field(default_factory=list)
    missed: list[str] = field(default_factory=list)
    later: list[str] = field(default_factory=list)
    forbidden: list[str] = field(default_factory=list)
    alarms: list[str] = field(default_factory=list)  # warning or worse on a healthy capture
    extra: list[str] = field(default_factory=list)  # warning or worse that the case does not name
    seconds: float = 0.0


def load_ids() -> dict[str, Any]:
    ids: dict[str, Any] = yaml.safe_load((HERE / "corpus_ids.yaml").read_text(encoding="utf-8"))
    return ids


def _split(text: str) -> tuple[str, str, str]:
    """(id, device, qualifier) of an expected or forbidden id."""
    match = _QUALIFIED.match(text.strip())
    if match is None:
        return text.strip(), "", ""
    name, qualifier = match.group(1), match.group(2) or ""
    if device := _DEVICE.search(name):
        return name[: device.start()], device.group(1), qualifier
    return name, "", qualifier


def _patterns(name: str, ids: dict[str, Any]) -> list[str]:
    known = ids["map"].get(name)
    return list(known) if known is not None else [name]


def _matches(finding: Finding, pattern: str, device: str) -> bool:
    pattern, _, severity = pattern.partition("@")
    if not fnmatch.fnmatch(finding.id, pattern):
        return False
    if severity and finding.severity.rank < Severity(severity).rank:
        return False
    return not device or device.lower() in re.split(r"[\s()/]+", f"{finding.subject.name} {finding.subject.node}".lower())


def score(folder: Path, ids: dict[str, Any]) -> Result | None:
    """The result of one case, or None when it has no input file."""
    case_text = yaml.safe_load((folder / "case.yaml").read_text(encoding="utf-8"))
    inputs = [str(p) for p in sorted(folder.rglob("*")) if p.is_file() and p.name != "case.yaml" and p.stat().st_size]
    if not inputs:
        return None
    result = Result(case_text["id"], case_text["kind"])
    start = time.perf_counter()
    findings = diagnose(read_paths(inputs)).findings
    result.seconds = time.perf_counter() - start
    explained: set[int] = set()
    for text in case_text.get("expected_findings") or []:
        name, device, qualifier = _split(str(text))
        hits = [f for f in findings if any(_matches(f, p, device) for p in _patterns(name, ids))]
        explained |= {id(f) for f in hits}
        if hits:
            result.found.append(str(text))
            cap = qualifier.split(",")[0].strip()
            if cap in ("info", "warning"):
                result.forbidden += [
                    f"{f.id} is {f.severity.value}, at most {cap} allowed" for f in hits if f.severity.rank > Severity(cap).rank
                ]
        elif any(fnmatch.fnmatch(name, pattern) for pattern in ids["later"]) or result.case in ids["not_in_input"]:
            result.later.append(str(text))
        else:
            result.missed.append(str(text))
    for text in case_text.get("must_not_report") or []:
        name, device, qualifier = _split(str(text))
        floor = Severity.ERROR.rank if qualifier == "critical" else Severity.INFO.rank
        for finding in findings:
            if finding.severity.rank >= floor and any(_matches(finding, p, device) for p in _patterns(name, ids)):
                result.forbidden.append(f"{finding.id} ({finding.severity.value}) against {text}")
    loud = [f for f in findings if f.severity.rank >= Severity.WARNING.rank]
    if case_text["kind"] in ("healthy", "parser", "benchmark"):
        result.alarms = [f"{f.id} {f.subject}" for f in loud if id(f) not in explained]
    else:
        result.extra = [f"{f.id} {f.subject}" for f in loud if id(f) not in explained]
    return result


def score_all(folder: Path, ids: dict[str, Any]) -> list[Result]:
    """The results of the cases of a folder that have input, in order."""
    folders = sorted(p.parent for p in folder.glob("[si][0-9]*/case.yaml"))
    return [
        r
        for one in folders
        if yaml.safe_load((one / "case.yaml").read_text(encoding="utf-8")).get("kind") and (r := score(one, ids)) is not None
    ]


def show(results: list[Result], *, verbose: bool) -> None:
    """The cases that lack something, or all."""
    for r in results:
        if verbose or r.missed or r.forbidden or r.alarms:
            print(f"{r.case} [{r.kind}] {r.seconds * 1000:.0f} ms: found {len(r.found)}, missed {r.missed}, later {r.later},")
            print(f"    forbidden {r.forbidden}, alarms {r.alarms}, extra {r.extra}")


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    default = HERE.parent.parent / "shared" / "corpus"
    parser.add_argument("corpus", nargs="?", type=Path, default=default if default.is_dir() else HERE.parent / "tests" / "data")
    parser.add_argument("--verbose", action="store_true", help="print every case, not only those that lack something")
    arguments = parser.parse_args()
    ids = load_ids()
    results = score_all(arguments.corpus, ids)
    if not results:
        print(f"{arguments.corpus}: no case.yaml in its folders", file=sys.stderr)
        return 2
    written = score_all(FACTS_ONLY, ids)
    show([*results, *written], verbose=arguments.verbose)
    found = sum(len(r.found) for r in results)
    missed = sum(len(r.missed) for r in results)
    later = sum(len(r.later) for r in results)
    forbidden = sum(len(r.forbidden) for r in results)
    silent = [r for r in results if r.kind == "healthy"]
    noisy = [r for r in results if r.alarms]
    extra = sum(len(r.extra) for r in results)
    print(f"{len(results)} cases with input")
    print(f"recall, families read so far: {found}/{found + missed} = {found / max(found + missed, 1):.3f}")
    print(
        f"recall, everything the corpus expects: {found}/{found + missed + later} = {found / max(found + missed + later, 1):.3f}"
    )
    print(f"forbidden findings: {forbidden}; healthy captures with an alarm: {sum(1 for r in silent if r.alarms)}/{len(silent)};")
    print(f"captures of any kind with an unexpected alarm: {len(noisy)}/{len(results)}")
    print(f"alarms on fault captures that the case does not name: {extra}")
    facts_found = sum(len(r.found) for r in written)
    facts_missed = sum(len(r.missed) + len(r.later) for r in written)
    facts_forbidden = sum(len(r.forbidden) for r in written)
    facts_noisy = [r for r in written if r.alarms]
    print(
        f"facts-only (inputs written from facts): {len(written)} cases, {facts_found}/{facts_found + facts_missed} found, "
        f"{facts_forbidden} forbidden, {len(facts_noisy)} healthy with an alarm"
    )
    return 1 if forbidden or noisy or facts_forbidden or facts_noisy else 0


if __name__ == "__main__":
    sys.exit(main())
