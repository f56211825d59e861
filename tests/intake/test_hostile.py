"""Inputs made to harm: bombs, archives that reach out, lines of 200 MB, pickles that run code, names that write to the terminal.

Each is given to ``kilter diagnose`` in a process of its own that may have :data:`MEMORY` bytes of address space.
"""

from __future__ import annotations

import bz2
import gzip
import io
import json
import lzma
import os
import pickle
import random
import socket
import subprocess
import sys
import tarfile
import zipfile
from pathlib import Path
from typing import NamedTuple

import pytest

import hostile
from kilter.diagnose.engine import diagnose
from kilter.intake.captures.kernel_log import KernelLog
from kilter.intake.paste import read_text
from kilter.intake.read import UnusableInput, read_paths
from kilter.intake.unpack import FREE, MAX_DEPTH
from kilter.report.plain import json_text, plain, utc
from kilter.report.text import diagnosis_text

DATA = Path(__file__).parents[1] / "data"
NVLINK = (DATA / "s023-a100-nvlink-all-inactive/nvidia-smi-nvlink-status.txt").read_bytes()
XID = b"[1.0] NVRM: Xid (PCI:0000:01:00): 79, pid=1, name=x, GPU has fallen off the bus.\n"
MEMORY = 1 << 30
#: Runs the command line with little address space, then says how much memory it took.
CHILD = f"""
import re, resource, sys
resource.setrlimit(resource.RLIMIT_AS, ({MEMORY}, {MEMORY}))
sys.argv = ["kilter", *sys.argv[1:]]
from kilter.__main__ import main
try:
    main()
finally:
    sys.stdout.flush()
    print("peak", re.search(r"VmHWM:\\s+(\\d+)", open("/proc/self/status").read())[1], file=sys.stderr)
"""


class Ran(NamedTuple):
    code: int
    out: str
    err: str
    peak_mib: int


def kilter(*arguments: str | Path, cwd: Path | None = None) -> Ran:
    """Run the command line on hostile input: it must not fail with a traceback, and print nothing that a terminal obeys."""
    done = subprocess.run(
        [sys.executable, "-c", CHILD, *map(str, arguments)],
        capture_output=True,
        check=False,
        cwd=cwd,
        env={**os.environ, "PYTHONPATH": os.pathsep.join(sys.path)},
        timeout=100,
    )
    out, err = done.stdout.decode(), done.stderr.decode()
    assert done.returncode in (0, 1, 2), err[-2000:]
    assert "Traceback" not in err, err[-2000:]
    assert not [c for c in out if c != "\n" and not c.isprintable()]
    assert "failed itself" not in out, out[-2000:]
    return Ran(done.returncode, " ".join(out.split()), err, int(err.rsplit("peak ", 1)[1]) >> 10)


# -- size --------------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    "start", [b"", b"NVRM: Xid (PCI:0000:01:00): 79, ", b'{"entries": [', b"<?xml version='1.0'?><nvidia_smi_log>"]
)
def test_a_line_of_200_mb_is_read_in_bounded_memory(tmp_path: Path, start: bytes) -> None:
    path = tmp_path / "line.log"
    with open(path, "wb") as file:
        file.write(start)
        file.truncate(200 << 20)  # zeros: no space on the disk
        file.write(b"x" * 4096)
    assert kilter("diagnose", path).peak_mib < 700


def test_a_line_of_12_mb_among_others_costs_only_itself(tmp_path: Path) -> None:
    path = tmp_path / "dmesg"
    path.write_bytes(XID + b"a" * (12 << 20) + b"\n" + NVLINK)
    ran = kilter("diagnose", path)
    assert "gpu.xid.79" in ran.out
    assert "NVLink" in ran.out


@pytest.mark.parametrize("make", [gzip.compress, bz2.compress, lambda data: lzma.compress(data, preset=0)])
def test_a_packed_bomb_ends_early_and_says_so(tmp_path: Path, make: object) -> None:
    assert callable(make)
    path = tmp_path / "bomb.log"
    path.write_bytes(make(b"\x00" * (100 << 20)))
    ran = kilter("diagnose", path)
    assert "cut short" in ran.out
    assert ran.peak_mib < 300


def test_a_bomb_of_empty_lines_ends_early(tmp_path: Path) -> None:
    path = tmp_path / "bomb.gz"
    path.write_bytes(gzip.compress(b"NIC statistics:\n" + b"\n" * (6 << 20)))
    ran = kilter("diagnose", path)
    assert "more than 4,000,000 lines" in ran.out
    assert ran.peak_mib < 500


def test_an_archive_of_bombs_ends_early_and_says_so(tmp_path: Path) -> None:
    bombs = [(f"node-{n}/log", b"\x00" * (8 << 20)) for n in range(12)]
    for name, data in (("x.zip", hostile.zip_of(bombs)), ("x.tar.gz", gzip.compress(hostile.tar_of(bombs[:6]), 1))):
        path = tmp_path / name
        path.write_bytes(data)
        ran = kilter("diagnose", path)
        assert "archive ends or breaks here" in ran.out or "cut short" in ran.out
        assert ran.peak_mib < 400


def test_a_zip_whose_members_share_their_bytes_ends_early(tmp_path: Path) -> None:
    """The trick of David Fifield's zip bombs: many entries of the directory point to one member."""
    whole = hostile.zip_of([("0.log", b"a" * (16 << 20))])
    start = whole.index(b"PK\x01\x02")
    end = whole.index(b"PK\x05\x06")
    entry, tail = whole[start:end], bytearray(whole[end:])
    count = 1000
    tail[8:10] = tail[10:12] = count.to_bytes(2, "little")
    tail[12:16] = (len(entry) * count).to_bytes(4, "little")
    path = tmp_path / "x.zip"
    path.write_bytes(whole[:start] + entry * count + bytes(tail))
    ran = kilter("diagnose", "--json", path)
    assert len(json.loads(ran.out)["inputs"]) <= 2 + FREE // (16 << 20)


def test_archives_in_archives_are_opened_to_a_depth_and_no_further(tmp_path: Path) -> None:
    path = tmp_path / "x"
    path.write_bytes(hostile.nested(hostile.tar_of([("node-a/dmesg", XID)]), MAX_DEPTH - 1))
    assert read_paths([str(path)]).events[0].kind == "xid"
    path.write_bytes(hostile.nested(hostile.tar_of([("node-a/dmesg", XID)]), 200))
    ran = kilter("diagnose", path)
    assert "not opened" in ran.out
    assert ran.code == 2


def test_a_gzip_that_unpacks_to_itself_ends(tmp_path: Path) -> None:
    """A quine (swtch.com/r.gz) is only ever a packed file in a packed file; one layer is undone."""
    data = XID
    for _ in range(50):
        data = gzip.compress(data)
    path = tmp_path / "x.gz"
    path.write_bytes(data)
    assert kilter("diagnose", path).code == 2


def test_a_tar_of_headers_that_follow_one_another_is_told_not_raised(tmp_path: Path) -> None:
    info = tarfile.TarInfo("././@LongLink")
    info.type, info.size = tarfile.GNUTYPE_LONGNAME, 4
    path = tmp_path / "x.tar"
    path.write_bytes((info.tobuf(tarfile.GNU_FORMAT) + b"abc\0" + bytes(508)) * 5000)
    ran = kilter("diagnose", path)
    assert "archive ends or breaks here" in ran.out


def test_a_sparse_member_of_a_terabyte_ends_early(tmp_path: Path) -> None:
    out = io.BytesIO()
    with tarfile.open(fileobj=out, mode="w", format=tarfile.PAX_FORMAT) as archive:
        info = tarfile.TarInfo("sparse.log")
        info.pax_headers = {
            "GNU.sparse.major": "0",
            "GNU.sparse.minor": "1",
            "GNU.sparse.size": str(1 << 40),
            "GNU.sparse.map": f"0,1,{(1 << 40) - 1},1",
        }
        info.size = 2
        archive.addfile(info, io.BytesIO(b"ab"))
    path = tmp_path / "x.tar"
    path.write_bytes(out.getvalue())
    assert kilter("diagnose", path).peak_mib < 300


def test_a_member_with_an_absurd_time_is_read(tmp_path: Path) -> None:
    info = tarfile.TarInfo("node-a/dmesg")
    info.size, info.mtime = len(XID), 1 << 60
    out = io.BytesIO()
    with tarfile.open(fileobj=out, mode="w", format=tarfile.GNU_FORMAT) as archive:
        archive.addfile(info, io.BytesIO(XID))
    path = tmp_path / "x.tar"
    path.write_bytes(out.getvalue())
    assert read_paths([str(path)]).events[0].kind == "xid"


# -- archives that reach out -------------------------------------------------------------------------------------------


@pytest.mark.parametrize("make", [hostile.tar_of, hostile.zip_of])
@pytest.mark.parametrize("command", ["diagnose", "redact"])
def test_paths_links_and_devices_of_an_archive_reach_nothing(tmp_path: Path, make: object, command: str) -> None:
    assert callable(make)
    folder = tmp_path / "here"
    folder.mkdir()
    (folder / "x.log").write_bytes(make([(f"{path}dmesg.log", XID) for path in hostile.PATHS], links=True))
    before = sorted(tmp_path.rglob("*"))
    ran = kilter(command, folder / "x.log", *(["-o", tmp_path / "safe.tar.gz"] if command == "redact" else []), cwd=folder)
    (tmp_path / "safe.tar.gz").unlink(missing_ok=True)
    assert sorted(tmp_path.rglob("*")) == before
    assert "root:" not in ran.out
    assert ran.code in (0, 1)


def test_one_bad_member_of_a_zip_costs_only_itself(tmp_path: Path) -> None:
    data = bytearray(hostile.zip_of([("node-a/bad.log", b"a" * 1000), ("node-a/dmesg", XID)]))
    data[data.index(b"bad.log") + 7] ^= 0xFF
    path = tmp_path / "x.zip"
    path.write_bytes(bytes(data))
    case = read_paths([str(path)])
    assert [e.kind for e in case.events] == ["xid"]
    assert any("breaks here" in " ".join(i.unrecognised_sample) for i in case.inputs)


def test_an_encrypted_member_is_told_of(tmp_path: Path) -> None:
    data = bytearray(hostile.zip_of([("node-a/dmesg", XID)]))
    data[6] |= 1
    data[data.index(b"PK\x01\x02") + 8] |= 1
    path = tmp_path / "x.zip"
    path.write_bytes(bytes(data))
    (item,) = read_paths([str(path)]).inputs
    assert "encrypted" in " ".join(item.unrecognised_sample)


def test_packed_logs_and_bundles_of_nodes_in_one_archive_are_read(tmp_path: Path) -> None:
    inner = hostile.tar_of([("dmesg.gz", gzip.compress(XID))])
    path = tmp_path / "all.tar"
    path.write_bytes(hostile.tar_of([("gpu-1.tar.gz", gzip.compress(inner)), ("gpu-2.tar.xz", lzma.compress(inner))]))
    assert sorted(e.node for e in read_paths([str(path)]).events) == ["gpu-1", "gpu-2"]


# -- documents ---------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("seed", range(40))
def test_documents_of_absurd_shape_are_read_or_refused(tmp_path: Path, seed: int) -> None:
    rng = random.Random(seed)
    make = (hostile.json_bomb, hostile.xml_bomb, hostile.yaml_bomb)[seed % 3]
    path = tmp_path / "document"
    path.write_text(make(rng, 100_000), errors="replace")
    case = read_paths([str(path)])
    assert not [n for i in case.inputs for n in i.notes if "failed at line" in n]
    diagnosis_text(case, diagnose(case))


@pytest.mark.parametrize("root", hostile.ROOTS)
def test_xml_entities_are_not_expanded(tmp_path: Path, root: str) -> None:
    for text in (hostile.BILLION_LAUGHS, hostile.OUTSIDE):
        path = tmp_path / "x.xml"
        path.write_text(text.replace("{0}", root))
        ran = kilter("diagnose", path)
        assert ran.peak_mib < 200
        assert "root:" not in ran.out


# -- code --------------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("protocol", [0, 1, 2, 3, 4, 5])
def test_a_pickle_never_runs(tmp_path: Path, protocol: int) -> None:
    owned = tmp_path / "owned"
    path = tmp_path / "nccl_trace_rank_0"
    path.write_bytes(hostile.pickle_that_runs(str(owned), protocol))
    case = read_paths([str(path)])
    diagnose(case)
    assert not owned.exists()
    assert case.inputs[0].notes or case.inputs[0].unrecognised_lines


@pytest.mark.parametrize("seed", range(24))
def test_pickles_that_ask_for_much_end(tmp_path: Path, seed: int) -> None:
    path = tmp_path / "nccl_trace_rank_0"
    path.write_bytes(hostile.pickle_bomb(random.Random(seed), 200_000))
    (item,) = read_paths([str(path)]).inputs
    assert item.notes or item.unrecognised_lines


# -- folders and names -------------------------------------------------------------------------------------------------


def test_a_folder_of_loops_pipes_sockets_and_unreadable_files_is_read(tmp_path: Path) -> None:
    top = tmp_path / "top"
    (top / "a" / "b").mkdir(parents=True)
    (top / "a" / "dmesg").write_bytes(XID)
    (top / "a" / "b" / "loop").symlink_to(top)
    (top / "self").symlink_to("self")
    (top / "passwd.log").symlink_to("/etc/passwd")
    os.mkfifo(top / "fifo.log")
    with socket.socket(socket.AF_UNIX) as server:
        server.bind(str(top / "s.log"))
        ran = kilter("diagnose", top)
    assert "gpu.xid.79" in ran.out
    assert "root:" not in ran.out


def test_a_file_that_cannot_be_opened_is_told_of_and_the_others_are_read(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (tmp_path / "bad.zip").write_bytes(b"PK\x03\x04rubbish")
    (tmp_path / "dmesg").write_bytes(XID)
    (tmp_path / "secret.log").write_bytes(XID)
    real = open

    def refuse(path: object, *arguments: object, **options: object) -> object:
        if str(path).endswith("secret.log"):
            raise PermissionError(13, "Permission denied", str(path))
        return real(path, *arguments, **options)  # type: ignore[call-overload]

    monkeypatch.setattr("builtins.open", refuse)
    case = read_paths([str(tmp_path)])
    assert len(case.events) == 1
    notes = {i.name: " ".join(i.notes) for i in case.inputs}
    assert "Permission denied" in notes["secret.log"]
    assert "zip archive" in notes["bad.zip"]


def test_very_many_files_are_read(tmp_path: Path) -> None:
    for number in range(3000):
        (tmp_path / f"{number}.log").touch()
    (tmp_path / "dmesg").write_bytes(XID)
    assert len(read_paths([str(tmp_path)]).inputs) == 3001


@pytest.mark.parametrize("name", hostile.NAMES)
def test_names_write_nothing_to_the_terminal(tmp_path: Path, name: str) -> None:
    folder = tmp_path / f"in {name}"[:200]
    folder.mkdir()
    path = folder / name
    path.write_bytes(XID + b"what is \x1b[31mthis\x1b[0m\x07\n" + NVLINK)
    for arguments in (["diagnose"], ["diagnose", "--json"]):
        ran = kilter(*arguments, "--", folder)
        assert "gpu.xid.79" in ran.out
        assert not [c for c in ran.err if c != "\n" and not c.isprintable()]
    if name == hostile.NAMES[1]:
        ran = kilter("redact", "-o", tmp_path / "safe.tar.gz", "--", folder)
        assert ran.code == 0
        ran = kilter("diagnose", "--", folder / "absent")
        assert not [c for c in ran.err if c != "\n" and not c.isprintable()]


def test_output_is_plain_whatever_the_lines_hold() -> None:
    assert plain("a\x1b[01;31m\x1b[Kb\x1b[m\x07\tc\x9b2J\u202ed\udcff") == "ab\\x07 cd"[:8] + "\\u202ed\\xff"
    assert plain("名前 ok") == "名前 ok"
    text = json_text({"a\x7f\u202e": ["\udcff", "\x1b[2J"]})
    assert text.isprintable() or text.replace("\n", "").isprintable()
    assert json.loads(text) == {"a\x7f\u202e": ["\\udcff", "\x1b[2J"]} or json.loads(text)["a\x7f\u202e"][1] == "\x1b[2J"


def test_times_beyond_the_calendar_are_printed_as_numbers() -> None:
    assert utc(0, "%Y") == "1970"
    assert utc(1e300, "%Y") == "1e+300 s"
    assert utc(float("inf"), "%Y") == "inf s"


# -- encodings ---------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("encoding", ["utf-8-sig", "utf-16", "utf-16-le", "utf-16-be", "utf-32"])
def test_text_of_other_systems_is_read(tmp_path: Path, encoding: str) -> None:
    path = tmp_path / "dmesg.txt"
    path.write_bytes((XID * 3).decode().replace("\n", "\r\n").encode(encoding))
    case = read_paths([str(path)])
    assert [e.kind for e in case.events] == ["xid"]
    assert case.events[0].count == 3


def test_lone_carriage_returns_end_lines(tmp_path: Path) -> None:
    path = tmp_path / "nvlink.txt"
    path.write_bytes(NVLINK.replace(b"\n", b"\r"))
    (snapshot,) = read_paths([str(path)]).snapshots
    assert (snapshot.accelerators or [])[0].nvlinks_inactive is True


def test_binary_data_is_named_as_such(tmp_path: Path) -> None:
    path = tmp_path / "x.log"
    path.write_bytes(bytes(range(256)) * 100)
    assert "binary" in read_paths([str(path)]).inputs[0].notes[0]


def test_an_archive_that_is_none_says_what_it_is(tmp_path: Path) -> None:
    path = tmp_path / "x.zip"
    with zipfile.ZipFile(path, "w") as archive:
        archive.writestr("a", b"x")
    path.write_bytes(path.read_bytes()[:-30])
    with pytest.raises(UnusableInput, match="zip archive"):
        read_paths([str(path)])


def test_a_terminal_of_few_characters_gets_the_others_spelt_out(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.setenv("PYTHONIOENCODING", "ascii")
    path = tmp_path / "dmesg"
    path.write_text(XID.decode() + "名前\n", encoding="utf-8")
    assert "\\u540d" in kilter("diagnose", path).out


def test_shared_tuples_of_a_pickle_are_not_spelt_out(tmp_path: Path) -> None:
    laughs: object = "ha"
    for _ in range(40):
        laughs = (laughs, laughs)
    entry = {"profiling_name": "nccl:all_reduce", "state": laughs, "process_group": [laughs, laughs], "input_dtypes": [laughs]}
    path = tmp_path / "nccl_trace_rank_0"
    path.write_bytes(pickle.dumps({"version": "2.0", "host_name": laughs, "entries": [entry]}, 2))
    (record,) = read_paths([str(path)]).collectives
    assert record.state is None


def test_a_file_that_claims_thousands_of_gpus_is_drawn_in_bounded_memory(tmp_path: Path) -> None:
    path = tmp_path / "x.xml"
    path.write_text("<!DOCTYPE nvidia_smi_log><nvidia_smi_log>" + "<gpu/>" * 20_000 + "</nvidia_smi_log>")
    assert kilter("topo", "--json", path).peak_mib < 700
    assert "more than 1024 accelerators" in kilter("diagnose", path).out


WATCHDOG = (
    "[rank{rank}]:[E1120 10:00:00.000000000 ProcessGroupNCCL.cpp:616] [Rank {rank}] Watchdog caught collective operation timeout: "
    "WorkNCCL(SeqNum=4, OpType=ALLREDUCE, NumelIn=8, NumelOut=8, Timeout(ms)=600000) ran for 600010 milliseconds before timing out.\n"
)
METRIC = 'DCGM_FI_DEV_SM_CLOCK{{gpu="{gpu}",UUID="GPU-{gpu}",device="nvidia{gpu}",modelName="NVIDIA H100 80GB HBM3"}} 1980\n'


@pytest.mark.parametrize(
    "text",
    [
        "n1:1:1 [0] NCCL INFO comm 0x1 rank 0 nRanks 99999999999 nNodes 1 localRanks 8 localRank 0 MNNVL 0\n"
        + "".join(WATCHDOG.format(rank=rank) for rank in range(8)),
        "".join(WATCHDOG.format(rank=rank) for rank in (0, 1, 2, 9_999_999)),
        "".join(METRIC.format(gpu=gpu) for gpu in (0, 1, 2, 3, 99_999_999_999)),
    ],
    ids=["nccl", "watchdog", "metrics"],
)
def test_a_number_made_huge_by_a_damaged_digit_costs_nothing(tmp_path: Path, text: str) -> None:
    path = tmp_path / "job.log"
    path.write_text(text)
    run = kilter("diagnose", path)
    assert run.peak_mib < 150


def test_a_log_reader_that_fails_costs_one_line_and_is_told(monkeypatch: pytest.MonkeyPatch) -> None:
    feed = KernelLog.feed

    def broken(self: KernelLog, number: int, line: str) -> None:
        if number == 1:
            raise KeyError("x")
        feed(self, number, line)

    monkeypatch.setattr(KernelLog, "feed", broken)
    fragments, summary = read_text("dmesg", XID.decode() * 2, year=2026)
    assert [event.line for fragment in fragments for event in fragment.events] == [2]
    assert summary.notes == ["a log reader failed at line 1 (KeyError: 'x'); please report this line"]
