"""Reads of devices that do not answer."""

from __future__ import annotations

import sys
import time
from pathlib import Path

import pytest

from kilter.facts.base import Reason
from kilter.intake.live import guard
from kilter.intake.live.guard import GuardedTree


@pytest.fixture
def slow_reader(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> list[Path]:
    """A child that never answers for paths with "mlx5_0" in them, and ignores SIGTERM."""
    script = tmp_path / "reader.py"
    script.write_text(
        "import signal, sys, time\n"
        "signal.signal(signal.SIGTERM, signal.SIG_IGN)\n"
        "for line in sys.stdin.buffer:\n"
        "    path = line.decode().split(' ', 1)[1].strip()\n"
        "    if 'mlx5_0' in path:\n"
        "        time.sleep(60)\n"
        "    sys.stdout.buffer.write(b'0 5\\nvalue'); sys.stdout.buffer.flush()\n"
    )
    monkeypatch.setattr(guard, "__file__", str(tmp_path / "guard.py"))
    return [script]


@pytest.mark.usefixtures("slow_reader")
def test_hung_device_costs_one_limit_and_the_next_one_is_still_read() -> None:
    with GuardedTree(limit_s=0.5) as tree:
        began = time.monotonic()
        for counter in range(50):
            assert tree.read(f"/sys/class/infiniband/mlx5_0/ports/1/counters/{counter}") is None
        assert tree.read("/sys/class/infiniband/mlx5_1/fw_ver") == "value"
        assert time.monotonic() - began < 10
        why = tree.missing("/sys/class/infiniband/mlx5_0/ports/1/counters/7")
        assert why.reason is Reason.NOT_READABLE
        assert "does not answer" in why.detail
        assert list(tree.silent) == ["/sys/class/infiniband/mlx5_0"]


@pytest.mark.usefixtures("slow_reader")
def test_many_hung_devices_use_up_the_budget() -> None:
    with GuardedTree(limit_s=0.2, budget_s=0.6) as tree:
        for number in range(10):
            tree.read(f"/sys/class/net/mlx5_0{number}/speed")
        assert len(tree.silent) == 10
        assert "not tried" in tree.silent["/sys/class/net/mlx5_09"]


def test_child_tells_absent_from_forbidden_and_gives_the_bytes() -> None:
    with GuardedTree() as tree:
        assert tree.read_bytes(__file__) == Path(__file__).read_bytes()
        assert tree.read("/sys/class/net/no-such-interface/speed") is None
        assert tree.missing("/sys/class/net/no-such-interface/speed").reason is Reason.ABSENT
        assert tree.read("/sys/class/net") is None
        assert tree.missing("/sys/class/net").reason is Reason.NOT_READABLE
        assert tree.read("/tmp/with\nnewline") is None


def test_reader_that_cannot_start_leaves_facts_missing(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(sys, "executable", "/no/such/python")
    with GuardedTree() as tree:
        tree.start_quietly()
        assert tree.read("/sys/class/net/lo/mtu") is None
        assert tree.missing("/sys/class/net/lo/mtu").reason is Reason.NOT_READABLE
        assert tree.ethtool("lo") == {}


def test_ethtool_of_loopback_has_no_errors() -> None:
    with GuardedTree() as tree:
        facts = tree.ethtool("lo")
    assert isinstance(facts.get("errors", {}), dict)
