"""Makes the helpers in this folder importable from every test (``from mangle import mangled``)."""

import sys
from pathlib import Path

import pytest

from kilter.diagnose import engine
from kilter.facts.finding import Check, Subject

sys.path.insert(0, str(Path(__file__).parent))


def _raise(check: Check, subject: Subject, error: Exception) -> None:
    raise error


@pytest.fixture(autouse=True)
def failing_checks_raise(monkeypatch: pytest.MonkeyPatch) -> None:
    """A rule that fails costs users one check; in tests it is an error."""
    monkeypatch.setattr(engine, "_failed", _raise)
