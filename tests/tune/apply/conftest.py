from __future__ import annotations

import os
import shutil
import sys
import tempfile
from collections.abc import Iterator
from pathlib import Path

import pytest

sys.path.insert(0, str(Path(__file__).parent))

from machine import Machine, build

from kilter.tune.apply.host import Host


@pytest.fixture
def tmp_path() -> Iterator[Path]:
    """A folder in memory: every step of an application is synced to disk, and these tests make thousands of them."""
    memory = "/dev/shm"
    path = Path(tempfile.mkdtemp(prefix="kilter-", dir=memory if os.access(memory, os.W_OK) else None))
    yield path
    shutil.rmtree(path, ignore_errors=True)


@pytest.fixture
def host(tmp_path: Path) -> Host:
    root = tmp_path / "machine"
    build(root)
    return Host(root, Machine(root))
