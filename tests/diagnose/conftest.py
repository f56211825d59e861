"""Short ways to a case and its findings."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import pytest

from kilter.diagnose.engine import diagnose
from kilter.facts.case import Case, Snapshot
from kilter.facts.finding import Diagnosis, Finding
from kilter.intake.merge import assemble
from kilter.intake.paste import read_text

DATA = Path(__file__).parents[1] / "data"


class Verdict:
    """A diagnosis with short look-ups."""

    def __init__(self, case: Case) -> None:
        self.case = case
        self.diagnosis: Diagnosis = diagnose(case)

    @property
    def ids(self) -> dict[str, str]:
        """id -> severity"""
        return {f.id: f.severity.value for f in self.diagnosis.findings}

    @property
    def loud(self) -> set[str]:
        return {f.id for f in self.diagnosis.findings if f.severity.rank >= 1}

    def one(self, finding_id: str) -> Finding:
        (finding,) = [f for f in self.diagnosis.findings if f.id == finding_id]
        return finding

    def outcome(self, rule: str) -> str:
        (check,) = [c for c in self.diagnosis.checks if c.rule == rule]
        return check.outcome.value


@pytest.fixture
def texts() -> Callable[..., Verdict]:
    """Diagnose texts as if each were a file."""

    def run(*contents: str) -> Verdict:
        fragments, inputs = [], []
        for number, content in enumerate(contents):
            found, summary = read_text(f"file{number}", content, year=2026)
            fragments += found
            inputs.append(summary)
        return Verdict(assemble(fragments, inputs))

    return run


@pytest.fixture
def capture() -> Callable[..., Verdict]:
    """Diagnose files of tests/data."""

    def run(*names: str) -> Verdict:
        fragments, inputs = [], []
        for name in names:
            found, summary = read_text(name, (DATA / name).read_text(), year=2026)
            fragments += found
            inputs.append(summary)
        return Verdict(assemble(fragments, inputs))

    return run


@pytest.fixture
def facts() -> Callable[[Snapshot], Verdict]:
    """Diagnose a snapshot made by hand."""
    return lambda *snapshots: Verdict(Case(snapshots=list(snapshots)))
