"""Files, folders, archives and standard input; fragments of one node become one snapshot."""

import bz2
import gzip
import io
import lzma
import os
import sys
import tarfile
import zipfile
from pathlib import Path

import msgspec
import pytest

from kilter.facts.accelerator import Accelerator
from kilter.facts.case import SCHEMA_VERSION
from kilter.facts.event import Clock, Event
from kilter.intake.merge import assemble, match_accelerator, merge_events
from kilter.intake.paste import read_text
from kilter.intake.read import UnusableInput, read_paths
from kilter.report.json import snapshot_json

DATA = Path(__file__).parents[1] / "data"
NVLINK = (DATA / "s023-a100-nvlink-all-inactive/nvidia-smi-nvlink-status.txt").read_bytes()


def test_folder_of_one_node_is_one_snapshot_under_the_logs_host_name() -> None:
    folder = DATA / "s059-xid79-rtx4090-fell-off-bus"
    case = read_paths(
        [str(folder / n) for n in ("kernel.log", "lspci-nvidia.txt", "nvidia-smi-after-drain.txt", "nvidia-smi.err")]
    )
    (snap,) = case.snapshots
    assert snap.node == "node-a"
    assert len(snap.accelerators or []) == 4
    assert sum(1 for a in snap.accelerators or [] if a.error) == 1


def test_journal_and_dmesg_of_one_event_are_told_once() -> None:
    case = read_paths([str(DATA / "s059-xid79-rtx4090-fell-off-bus" / "kernel.log")])
    (xid,) = [e for e in case.events if e.kind == "xid"]
    assert xid.count == 1
    assert "kernel.log:3" in xid.fields["also"]


@pytest.mark.parametrize("pack", [gzip.compress, bz2.compress, lzma.compress])
def test_packed_files_are_read_whatever_their_name(tmp_path: Path, pack: object) -> None:
    assert callable(pack)
    path = tmp_path / "strange.bin"
    path.write_bytes(pack(NVLINK))
    (snap,) = read_paths([str(path)]).snapshots
    assert (snap.accelerators or [])[0].nvlinks_inactive is True


def test_cut_gzip_gives_what_it_holds_and_says_so(tmp_path: Path) -> None:
    text = (DATA / "s013-8xh100-vm-xml-570/nvidia-smi-qx.xml").read_bytes()
    path = tmp_path / "cut.gz"
    path.write_bytes(gzip.compress(text)[:-1500])
    case = read_paths([str(path)])
    assert case.snapshots[0].accelerators
    assert any("cut short" in note for note in case.inputs[0].notes)


def test_tar_archive_with_hostile_names_is_only_read(tmp_path: Path) -> None:
    path = tmp_path / "bundle.tar.gz"
    with tarfile.open(path, "w:gz") as archive:
        for name in ("../../etc/evil", "/abs/nvlink.txt", "node-a/nvlink.txt"):
            info = tarfile.TarInfo(name)
            info.size = len(NVLINK)
            archive.addfile(info, io.BytesIO(NVLINK))
        link = tarfile.TarInfo("node-a/link")
        link.type, link.linkname = tarfile.SYMTYPE, "/etc/passwd"
        archive.addfile(link)
    before = sorted(p for p in tmp_path.parent.rglob("*"))
    case = read_paths([str(path)])
    assert sorted(p for p in tmp_path.parent.rglob("*")) == before
    assert all("passwd" not in i.name and "link" not in i.name.rsplit("/", 1)[-1].replace("nvlink", "") for i in case.inputs)
    assert len(case.inputs) == 3


def test_zip_archive_is_read(tmp_path: Path) -> None:
    path = tmp_path / "x.zip"
    with zipfile.ZipFile(path, "w") as archive:
        archive.writestr("n1/nvlink.txt", NVLINK)
    assert read_paths([str(path)]).snapshots[0].node == "n1"


def test_folders_name_the_nodes(tmp_path: Path) -> None:
    for node in ("gpu-1", "gpu-2"):
        (tmp_path / node).mkdir()
        (tmp_path / node / "nvlink.txt").write_bytes(NVLINK)
        (tmp_path / node / "dmesg").write_text(
            "[1.0] NVRM: Xid (PCI:0000:01:00): 79, pid=1, name=x, GPU has fallen off the bus.\n"
        )
    case = read_paths([str(tmp_path)])
    assert [s.node for s in case.snapshots] == ["gpu-1", "gpu-2"]
    assert [e.node for e in case.events] == ["gpu-1", "gpu-2"]


def test_standard_input_is_read(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(sys, "stdin", io.TextIOWrapper(io.BytesIO(NVLINK)))
    assert read_paths(["-"]).inputs[0].tools == ["nvidia-smi list"]


def test_unusable_inputs_say_what_was_expected(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    with pytest.raises(UnusableInput, match="no such file"):
        read_paths([str(tmp_path / "absent")])
    with pytest.raises(UnusableInput, match="without files"):
        (tmp_path / "empty").mkdir()
        read_paths([str(tmp_path / "empty")])
    os.mkfifo(tmp_path / "fifo")
    with pytest.raises(UnusableInput, match="neither a plain file nor a folder"):
        read_paths([str(tmp_path / "fifo")])
    monkeypatch.setattr(sys, "stdin", io.TextIOWrapper(io.BytesIO(b"")))
    with pytest.raises(UnusableInput, match="standard input is empty"):
        read_paths(["-"])
    bad = tmp_path / "bad.zip"
    bad.write_bytes(b"PK\x03\x04rubbish")
    with pytest.raises(UnusableInput, match="zip archive"):
        read_paths([str(bad)])


def test_snapshot_survives_the_way_to_a_file_and_back(tmp_path: Path) -> None:
    (snap,) = read_paths([str(DATA / "s013-8xh100-vm-xml-570/nvidia-smi-qx.xml")]).snapshots
    path = tmp_path / "node.json"
    path.write_text(snapshot_json(snap))
    (again,) = read_paths([str(path)]).snapshots
    assert msgspec.to_builtins(again) == msgspec.to_builtins(snap)
    assert again.schema == SCHEMA_VERSION


def test_snapshot_of_a_newer_schema_is_read_with_a_warning(tmp_path: Path) -> None:
    path = tmp_path / "node.json"
    path.write_text('{"schema": 99, "kilter": "9", "node": "n", "a_field_of_the_future": 1}')
    case = read_paths([str(path)])
    assert case.snapshots[0].node == "n"
    assert "newer kilter" in case.inputs[0].notes[0]


def test_broken_snapshot_is_said_not_raised(tmp_path: Path) -> None:
    path = tmp_path / "node.json"
    path.write_text('{"schema": 1, "kilter": "0", "node": 7}')
    assert "not a kilter snapshot" in read_paths([str(path)]).inputs[0].notes[0]


def test_accelerators_are_one_by_address_then_uuid_then_index() -> None:
    a = Accelerator(pci_address="0000:01:00.0", uuid="GPU-a", index=0)
    b = Accelerator(pci_address="0000:02:00.0", uuid="GPU-b", index=1)
    assert match_accelerator(Accelerator(pci_address="0000:02:00.0"), [a, b]) is b
    assert match_accelerator(Accelerator(uuid="GPU-a"), [a, b]) is a
    assert match_accelerator(Accelerator(index=1), [a, b]) is b
    assert match_accelerator(Accelerator(index=1, uuid="GPU-c"), [a, b]) is None
    assert match_accelerator(Accelerator(pci_address="0000:03:00.0", index=1), [a, b]) is None


def _event(time: float | None, text: str = "m", source: str = "log", **more: object) -> Event:
    return msgspec.structs.replace(
        Event(kind="oom.kill", text=text, source=source, time=time, clock=Clock.UTC if time else Clock.NONE), **more
    )


def test_repeats_within_three_minutes_are_one_event_with_a_count() -> None:
    merged = merge_events([_event(float(t)) for t in (100, 110, 200)] + [_event(5000.0)])
    assert [(e.time, e.count, e.last_time) for e in merged] == [(100.0, 3, 200.0), (5000.0, 1, None)]


def test_different_texts_are_never_merged() -> None:
    assert len(merge_events([_event(1.0, "a"), _event(2.0, "b")])) == 2


def test_later_capture_wins_and_the_disagreement_is_kept(tmp_path: Path) -> None:
    head = "==============NVSMI LOG==============\n\nTimestamp                                 : {}\nDriver Version                            : {}\nAttached GPUs                             : 1\nGPU 00000000:01:00.0\n    Product Name                          : NVIDIA A100\n"
    (tmp_path / "a.txt").write_text(head.format("Thu Mar 14 20:46:07 2024", "550.54.15"))
    (tmp_path / "b.txt").write_text(head.format("Thu Mar 14 10:00:00 2024", "535.86.10"))
    (snap,) = read_paths([str(tmp_path)]).snapshots
    assert snap.software.driver_version == "550.54.15"
    assert [(c.field, c.kept, c.other) for c in snap.conflicts] == [("driver_version", "550.54.15", "535.86.10")]


def test_two_folders_are_two_nodes_under_the_names_they_give() -> None:
    case = read_paths([str(DATA / "s013-8xh100-vm-xml-570"), str(DATA / "s059-xid79-rtx4090-fell-off-bus")])
    assert sorted(s.node for s in case.snapshots) == ["node-a", "s013-8xh100-vm-xml-570"]
    assert {s.node: len(s.accelerators or []) for s in case.snapshots} == {"node-a": 4, "s013-8xh100-vm-xml-570": 8}


def test_folder_of_folders_takes_the_host_that_each_names(tmp_path: Path) -> None:
    (tmp_path / "a").mkdir()
    (tmp_path / "a" / "smi.txt").write_bytes(NVLINK)
    (tmp_path / "a" / "dmesg").write_text(
        "Feb 23 16:24:18 gpu-17 kernel: NVRM: Xid (PCI:0000:01:00): 79, pid=1, name=x, GPU has fallen off the bus.\n"
    )
    (tmp_path / "b").mkdir()
    (tmp_path / "b" / "smi.txt").write_bytes(NVLINK)
    case = read_paths([str(tmp_path)])
    assert sorted(s.node for s in case.snapshots) == ["b", "gpu-17"]


def test_a_list_that_was_filtered_stays_marked_after_merging() -> None:
    text = "$ lsmod | grep nvidia\nModule                  Size  Used by\nnvidia               54095872  0\n$ uname -r\n5.15.0\n"
    fragments, info = read_text("a.txt", text, year=2026)
    (snapshot,) = assemble(fragments, [info]).snapshots
    assert "modules" in snapshot.kernel.missing
