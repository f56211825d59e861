"""Snapshots that stay in their files are read as those in memory are."""

from __future__ import annotations

from pathlib import Path

import pytest

from kilter.diagnose.engine import diagnose
from kilter.facts.case import Snapshot
from kilter.facts.event import Clock, Event
from kilter.intake import read
from kilter.intake.read import UnusableInput, read_paths
from kilter.intake.stored import Snapshots, Stored
from kilter.report.json import diagnosis_json, snapshot_json
from kilter.report.text import diagnosis_text

DATA = Path(__file__).parents[1] / "data"
EXAMPLES = Path(__file__).parents[2] / "examples"


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    """Snapshots of real captures under other names; one node twice, one with a log beside it, one without a name, one broken."""
    number = 0
    for given in sorted(DATA.glob("s0[0-2]*")) + sorted((EXAMPLES / "4-nodes-drift").iterdir()):
        for snapshot in read_paths([str(given)]).snapshots:
            snapshot.node, snapshot.time = f"node-{number:02}", 1_790_000_000.0
            snapshot.host.uptime_s = 5000.0
            snapshot.events = [Event(kind="xid", code=79, time=100.0, clock=Clock.BOOT, text="fell off", source="dmesg", line=3)]
            (tmp_path / f"node-{number:02}.json").write_text(snapshot_json(snapshot))
            number += 1
    assert number > 20
    twice = read_paths([str(tmp_path / "node-03.json")]).snapshots[0]
    twice.time = 1_790_000_600.0
    for device in twice.rdma or []:
        for port in device.ports:
            port.counters = {name: value + 7000 for name, value in port.counters.items()}
    (tmp_path / "node-03-later.json").write_text(snapshot_json(twice))
    twice.node = ""
    (tmp_path / "nameless.json").write_text(snapshot_json(twice))
    (tmp_path / "node-05").mkdir()
    (tmp_path / "node-05" / "dmesg").write_text("[ 12.0] node-05 kernel: mce: [Hardware Error]: Machine check events logged\n")
    (tmp_path / "broken.json").write_text('{"schema": 1, "kilter": "0.1", "node": 7}')
    return tmp_path


def test_findings_reports_and_notes_are_the_same(folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    results = []
    for limit in (10**9, 0):
        monkeypatch.setattr(read, "MAX_KEPT", limit)
        case = read_paths([str(folder)])
        found = diagnose(case)
        results.append((diagnosis_json(case, found), diagnosis_text(case, found, width=100, color=False), case.kernel_logs))
    assert results[0] == results[1]
    assert '"fleet.' in results[0][0]
    assert "2026-" in results[0][1]  # the event's time since boot was placed


def test_stored_snapshots_are_a_sequence(folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(read, "MAX_KEPT", 3)
    snapshots = read_paths([str(folder)]).snapshots
    assert isinstance(snapshots, Snapshots)
    assert sum(isinstance(one, Stored) for one in snapshots._items) > 15
    assert [one.node for one in snapshots] == [snapshots[i].node for i in range(len(snapshots))]
    assert all(isinstance(one, Snapshot) for one in snapshots[4:8])


def test_only_plain_files_stay_where_they_are(folder: Path, monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    """Members of archives and packed files cannot be read again by their path."""
    import tarfile

    monkeypatch.setattr(read, "MAX_KEPT", 0)
    archive = tmp_path / "all.tar.gz"
    with tarfile.open(archive, "w:gz") as tar:
        for path in sorted(folder.glob("node-0*.json")):
            tar.add(path, path.name)
    snapshots = read_paths([str(archive)]).snapshots
    assert isinstance(snapshots, Snapshots)
    assert not any(isinstance(one, Stored) for one in snapshots._items)
    assert len(snapshots) >= 10


def test_a_file_that_changed_meanwhile_is_an_error_that_says_so(folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(read, "MAX_KEPT", 0)
    snapshots = read_paths([str(folder)]).snapshots
    (folder / "node-00.json").write_text("{")
    with pytest.raises(UnusableInput, match="start again"):
        list(snapshots)
