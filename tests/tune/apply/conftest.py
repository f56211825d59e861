from __future__ import annotations

import sys
from pathlib import Path

import pytest

sys.path.insert(0, str(Path(__file__).parent))

from machine import Machine, build

from kilter.tune.apply.host import Host


@pytest.fixture
def host(tmp_path: Path) -> Host:
    root = tmp_path / "machine"
    build(root)
    return Host(root, Machine(root))
