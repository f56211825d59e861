"""A guest for each test, from the same saved machine with kilter in it."""

from __future__ import annotations

import os
from collections.abc import Iterator
from pathlib import Path

import pytest

from integration.guest.guest import Guest, overlay
from integration.guest.image import Machine, with_kilter


@pytest.fixture(scope="session")
def saved() -> Machine:
    if not os.environ.get("KILTER_GUEST"):
        pytest.skip("a virtual machine is built and booted only with KILTER_GUEST=1")
    return with_kilter()


@pytest.fixture
def guest(saved: Machine, tmp_path: Path) -> Iterator[Guest]:
    """A guest that has just booted, with a disk of its own."""
    overlay(saved.disk, tmp_path / "disk.qcow2")
    with Guest(tmp_path, disk=tmp_path / "disk.qcow2") as running:
        running.resume(saved.state)
        yield running
