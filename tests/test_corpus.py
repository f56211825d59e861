"""The corpus in tests/data: full recall of the families read so far, nothing forbidden, silence on healthy captures."""

import importlib.util
import sys
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[1]
_spec = importlib.util.spec_from_file_location("corpus", ROOT / "benchmarks" / "corpus.py")
assert _spec is not None
assert _spec.loader is not None
corpus = importlib.util.module_from_spec(_spec)
sys.modules["corpus"] = corpus
_spec.loader.exec_module(corpus)

CASES = sorted(p.parent for p in (ROOT / "tests" / "data").glob("[si][0-9]*/case.yaml"))
IDS = corpus.load_ids()


@pytest.mark.parametrize("folder", CASES, ids=lambda p: p.name)
def test_case_is_read_rightly(folder: Path) -> None:
    result = corpus.score(folder, IDS)
    assert result is not None
    assert (result.missed, result.forbidden, result.alarms) == ([], [], [])


def test_there_are_cases() -> None:
    assert len(CASES) > 35
