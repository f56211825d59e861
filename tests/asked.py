"""Texts in, diagnosis out, through the real entry point."""

from __future__ import annotations

from kilter.diagnose.engine import diagnose
from kilter.facts.finding import Diagnosis, Finding
from kilter.intake.merge import assemble
from kilter.intake.paste import read_text

Files = dict[str, str]  # name -> text; "n1/kern.log" belongs to node n1


def verdict(files: Files) -> Diagnosis:
    """What kilter says of these files."""
    fragments, inputs = [], []
    for name, text in files.items():
        found, summary = read_text(name, text, year=2026)
        for one in found:
            one.group = name.split("/")[0] if "/" in name else ""
        fragments += found
        inputs.append(summary)
    return diagnose(assemble(fragments, inputs))


def of(diagnosis: Diagnosis, finding: str) -> list[Finding]:
    return [f for f in diagnosis.findings if f.id == finding]


def log(*lines: str) -> Files:
    return {"n1/kern.log": "".join(lines)}
