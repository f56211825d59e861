"""Redacting: nothing that names a site remains, everything that diagnosis needs does."""

from __future__ import annotations

import bz2
import gzip
import io
import lzma
import tarfile
import uuid
import zipfile
from pathlib import Path

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

import hostile
from kilter.diagnose.engine import diagnose
from kilter.intake.read import read_paths
from kilter.intake.redact import REMOVED, Redactor
from kilter.intake.redact_bundle import Unreadable, mapping_text, redact_bundle

DATA = Path(__file__).parents[1] / "data"

SITE = """\
[alice@gpu-b12 ~]$ nvidia-smi -L
GPU 0: NVIDIA H100 80GB HBM3 (UUID: GPU-1a2b3c4d-1111-2222-3333-abcdefabcdef)
Serial Number                         : 1654922006536
Board Serial: MT2217X01234
May  3 10:11:12 gpu-b12 kernel: NVRM: Xid (PCI:0000:9b:00): 79, pid=1234, name=python, GPU has fallen off the bus.
2026-05-03T10:11:12.123+02:00 gpu-b13.corp.acme.com sshd[1]: Accepted from 10.20.30.40 port 22 for alice
gpu-b13:123:456 [0] NCCL INFO NET/IB : Using [0]mlx5_0:1/RoCE; OOB eth0:10.20.30.41<0>
inet6 fe80::42:acff:fe11:2/64 link/ether 0c:42:a1:b2:c3:d4 brd ff:ff:ff:ff:ff:ff
inet6 2a01:4f8:1:2::7/64 scope global
GID[0] fe80:0000:0000:0000:0e42:a1ff:feb2:c3d4
GID[3] 0000:0000:0000:0000:0000:ffff:0a14:1e28
node_guid: 0c42:a103:00b2:c3d4
Node GUID: 0x0c42a10300b2c3d4
PATH=/home/alice/bin:/usr/bin
mail bob@acme.com, getty@tty1.service
Linux gpu-b12 5.15.0-91-generic #101-Ubuntu SMP
"""
PRIVATE = ["alice", "gpu-b12", "gpu-b13", "acme", "1654922006536", "MT2217X01234", "10.20.30", "0a14:1e28", "a1b2c3", "a1:b2", "00b2c3d4", "feb2:c3d4", "1a2b3c4d", "2a01", "bob@"]  # fmt: skip


def redacted(text: str, **options: tuple[str, ...]) -> str:
    redactor = Redactor(**options)
    redactor.learn(text)
    return redactor.redact(text)


def ids(path: str) -> list[tuple[str, str]]:
    return sorted((f.id, f.severity.value) for f in diagnose(read_paths([path])).findings)


@pytest.mark.parametrize("case", sorted(p.name for p in DATA.iterdir() if p.is_dir()))
def test_every_capture_diagnoses_the_same_after_redaction(case: str, tmp_path: Path) -> None:
    out = str(tmp_path / "safe.tar.gz")
    redact_bundle(str(DATA / case), out)
    assert ids(out) == ids(str(DATA / case))


def test_nothing_private_remains_and_lines_stay() -> None:
    safe = redacted(SITE)
    assert not [word for word in PRIVATE if word in safe.lower() or word in safe]
    assert len(safe.splitlines()) == len(SITE.splitlines())


def test_same_value_same_token_everywhere() -> None:
    safe = redacted(SITE)
    assert safe.count("host-1") == 3
    assert "GID[3] 0000:0000:0000:0000:0000:ffff:c000:02" in safe  # the RoCE GID is that of its IPv4 token
    assert "node_guid: 0200:00ff:fe00:00" in safe and "Node GUID: 0x020000fffe0000" in safe  # noqa: PT018  # one GUID, two spellings


def test_redacting_twice_changes_nothing() -> None:
    redactor = Redactor()
    redactor.learn(SITE)
    once = redactor.redact(SITE)
    assert redactor.redact(once) == once


@pytest.mark.parametrize(
    "line",
    [
        "NVRM: Xid (PCI:0000:9b:00): 79, pid=1234, name=python",
        "00000000:3B:00.0 Off | 0000:3b:00.1",
        "OFED version 5.8-1.1.2.1 firmware-version: 22.31.1014 (MT_0000000834)",
        "kernel 4.18.0-372.9.1.el8.x86_64 driver 570.124.06 VBIOS 96.00.68.00.01",
        "NCCL version 2.21.5+cuda12.4",
        "NVIDIA-SMI version : 570.124.6.1",
        "May  3 10:11:12 and 12:34:56 and 2026-01-01T00:00:00",
        "tokens per second: 12345.6, total_tokens: 5555",
        "inet 127.0.0.1/8 scope host lo; 0.0.0.0; 255.255.255.0; ::1",
        "UUID: GPU-00000000-0000-0000-0000-000000000000",
        "Serial Number : N/A",
        "0x00002330 0xffffffffbd3d1956",
        "GPU0 X NV18 NV18 0-47 0",
    ],
)
def test_what_diagnosis_needs_stays(line: str) -> None:
    assert redacted(line) == line


@pytest.mark.parametrize(
    "line",
    [
        "export WANDB_API_KEY=0123456789abcdef0123456789abcdef01234567",
        "HF_TOKEN=hf_abcdefghijklmnopqrstuvwxyzABCDEF",
        '"password": "hunter2hunter2"',
        "Authorization: Bearer abcdefghijklmnop0123456789",
        "git clone https://me:ghp_abcdefghijklmnopqrstuvwxyz0123456789@host/x",
        "aws AKIAABCDEFGHIJKLMNOP",
    ],
)
def test_secrets_are_removed(line: str) -> None:
    safe = redacted(line)
    assert REMOVED in safe
    assert not [w for w in ("0123456789abcdef", "hf_", "hunter2", "abcdefghijklmnop", "ghp_", "AKIAABC") if w in safe]


def test_private_keys_go_line_by_line() -> None:
    text = "a\n-----BEGIN OPENSSH PRIVATE KEY-----\nb3BlbnNzaC1rZXk\nxyz\n-----END OPENSSH PRIVATE KEY-----\nz\n"
    assert redacted(text) == f"a\n{REMOVED}\n{REMOVED}\n{REMOVED}\n{REMOVED}\nz\n"


def test_long_base64_is_left_and_counted() -> None:
    redactor = Redactor()
    blob = "aGVsbG8gd29ybGQ1" * 6
    assert redactor.redact(blob) == blob
    assert redactor.blobs == 1


def test_common_words_are_replaced_only_where_a_host_stands() -> None:
    text = "ID=ubuntu\nroot@ubuntu:~# cat /etc/os-release\nMay  3 10:11:12 ubuntu kernel: hello\n"
    assert redacted(text) == "ID=ubuntu\nroot@host-1:~# cat /etc/os-release\nMay  3 10:11:12 host-1 kernel: hello\n"


def test_named_hosts_and_words_go_without_being_found() -> None:
    assert redacted("on falcon7 by Acme", hosts=("falcon7",), words=("acme",)) == "on host-1 by word-1"


def test_serials_below_a_csv_column_are_learnt() -> None:
    safe = redacted("index, serial, name\n0, 1654922006536, NVIDIA H100\n1, [N/A], NVIDIA H100\n")
    assert "1654922006536" not in safe
    assert "[N/A]" in safe


_NAME = st.from_regex(r"[a-z]{2,6}-[a-z]{1,4}[0-9]{2,4}", fullmatch=True)
_IP = st.builds(lambda a, b, c: f"10.{a}.{b}.{c}", st.integers(0, 255), st.integers(0, 255), st.integers(1, 254))
_SERIAL = st.from_regex(r"[1-9][0-9]{12}|[A-Z]{2}[0-9]{4}[A-Z][0-9]{5}", fullmatch=True)


@settings(max_examples=100, deadline=None)
@given(_NAME, _IP, st.uuids(version=4), _SERIAL, st.binary(min_size=6, max_size=6).filter(lambda b: len(set(b)) > 3))
def test_no_original_remains(host: str, address: str, identity: uuid.UUID, serial: str, mac: bytes) -> None:
    ether = mac.hex(":")
    text = (
        f"May  3 10:11:12 {host} kernel: eth0 {address}\n{host}:1:2 [0] NCCL INFO OOB eth0:{address}<0>\n"
        f"GPU UUID : GPU-{identity}\nSerial Number : {serial}\nlink/ether {ether}\nsee {host}.log, {serial}, ({address}), {identity}\n"
    )
    safe = redacted(text)
    for word in (host, address, str(identity), serial, ether):
        assert word not in safe


@settings(max_examples=80, deadline=None)
@given(st.text(max_size=300) | st.binary(max_size=300).map(lambda b: b.decode("utf-8", "surrogateescape")))
def test_any_text_keeps_its_lines(text: str) -> None:
    assert redacted(text).count("\n") == text.count("\n")


@pytest.mark.parametrize(
    "piece", ["a", "1.", "ab:", "0x", "token", "/home/", "serial: ", "-----BEGIN PRIVATE KEY-----", "a@b.", "guid ", "00:"]
)
def test_long_lines_end_soon(piece: str) -> None:
    redacted(piece * 20_000)


def test_bundle_keeps_structure_and_loses_times_and_owners(tmp_path: Path) -> None:
    source = tmp_path / "kilter-gpu-b12-20260503T101112Z"
    (source / "logs").mkdir(parents=True)
    (source / "site.txt").write_text(SITE)
    (source / "logs" / "old.gz").write_bytes(gzip.compress(SITE.encode()))
    (source / "core.bin").write_bytes(b"\x00\x01gpu-b12" * 100)
    inner = tmp_path / "in.tar.gz"
    with tarfile.open(inner, "w:gz") as archive:
        archive.add(source, source.name)
    out = tmp_path / "safe.tar.gz"
    report = redact_bundle(str(inner), str(out))
    assert report.files == 2
    assert report.left_out == ["kilter-host-1-20260503T101112Z/core.bin: binary"]
    with tarfile.open(out) as archive:
        members = archive.getmembers()
        assert {m.name for m in members} == {f"kilter-host-1-20260503T101112Z/{n}" for n in ("site.txt", "logs/old.gz")}
        assert {(m.uid, m.gid, m.uname, m.gname) for m in members} == {(0, 0, "", "")}
        for member in members:
            stream = archive.extractfile(member)
            assert stream is not None
            data = stream.read()
            text = (gzip.decompress(data) if member.name.endswith(".gz") else data).decode()
            assert not [word for word in PRIVATE if word in text]


def test_single_file_and_zip(tmp_path: Path) -> None:
    (tmp_path / "a.txt").write_text(SITE)
    redact_bundle(str(tmp_path / "a.txt"), str(tmp_path / "a.tar.gz"))
    with zipfile.ZipFile(tmp_path / "b.zip", "w") as archive:
        archive.writestr("gpu-b12/a.txt", SITE)
    redact_bundle(str(tmp_path / "b.zip"), str(tmp_path / "b.tar.gz"))
    for name, member in (("a", "a.txt"), ("b", "host-1/a.txt")):
        with tarfile.open(tmp_path / f"{name}.tar.gz") as redone:
            assert redone.getnames() == [member]


def test_damaged_archive_is_told_and_leaves_nothing(tmp_path: Path) -> None:
    buffer = io.BytesIO()
    with tarfile.open(fileobj=buffer, mode="w:gz") as archive:
        info = tarfile.TarInfo("a")
        info.size = 100_000
        archive.addfile(info, io.BytesIO(bytes(range(32, 127)) * 1100))
    cut = tmp_path / "cut.tar.gz"
    cut.write_bytes(buffer.getvalue()[:-60])
    out = tmp_path / "out.tar.gz"
    with pytest.raises(Unreadable):
        redact_bundle(str(cut), str(out))
    assert not out.exists()
    assert [p.name for p in tmp_path.iterdir()] == ["cut.tar.gz"]


def test_the_map_names_each_token() -> None:
    redactor = Redactor()
    redactor.learn("root@gpu-b12:~# ls\n")
    assert '"host-1": "gpu-b12"' in mapping_text(redactor)


def _unpacked(path: str) -> bytes:
    """Names and contents of all members, unpacked to the last layer."""
    out = b""
    with tarfile.open(path) as archive:
        for member in archive:
            stream = archive.extractfile(member)
            data = stream.read() if stream is not None else b""
            while data[:2] == b"\x1f\x8b" or data[:3] == b"BZh":
                data = gzip.decompress(data) if data[:2] == b"\x1f\x8b" else bz2.decompress(data)
            out += f"{member.name} {member.linkname}\n".encode() + data
    return out


def test_archives_in_archives_are_redacted(tmp_path: Path) -> None:
    """A bundle of a fleet holds one of each node; nothing may pass inside an inner layer."""
    log = SITE.encode()
    node = hostile.tar_of(
        [("kilter-gpu-b12-20260503T101112Z/dmesg", log), ("kilter-gpu-b12-20260503T101112Z/syslog.gz", gzip.compress(log))]
    )
    outer = hostile.tar_of(
        [
            ("gpu-b12.tar.gz", gzip.compress(node)),
            ("more/gpu-b13.zip", hostile.zip_of([("dmesg", log), ("inner.tar.bz2", bz2.compress(node))])),
            ("plain.log", log),
        ]
    )
    path = tmp_path / "fleet.tar.xz"
    path.write_bytes(lzma.compress(outer))
    out = str(tmp_path / "safe.tar.gz")
    report = redact_bundle(str(path), out)
    assert report.files == 6
    assert not report.left_out
    text = _unpacked(out).decode()
    assert not [word for word in PRIVATE if word in text]
    assert ids(out) == ids(str(path))


@pytest.mark.parametrize(
    "data",
    [
        gzip.compress(gzip.compress(SITE.encode())),
        bz2.compress(bz2.compress(SITE.encode())),
        b"\x28\xb5\x2f\xfd" + SITE.encode(),
        b"7z\xbc\xaf\x27\x1c" + SITE.encode(),
        b"Rar!" + SITE.encode(),
        SITE.encode("utf-16"),
        lzma.compress(SITE.encode(), format=lzma.FORMAT_ALONE),
        hostile.nested(hostile.tar_of([("dmesg", SITE.encode())]), 12),
    ],
)
def test_what_cannot_be_opened_is_left_out_and_named(tmp_path: Path, data: bytes) -> None:
    folder = tmp_path / "in"
    folder.mkdir()
    (folder / "x.bin").write_bytes(data)
    (folder / "dmesg").write_text(SITE)
    out = str(tmp_path / "safe.tar.gz")
    report = redact_bundle(str(folder), out)
    assert report.files == 1
    assert len(report.left_out) == 1
    assert not [word for word in PRIVATE if word.encode() in _unpacked(out)]


def test_a_damaged_inner_archive_is_named(tmp_path: Path) -> None:
    inner = hostile.tar_of([("dmesg", SITE.encode()), ("more", SITE.encode() * 20)])
    path = tmp_path / "x.tar"
    path.write_bytes(hostile.tar_of([("gpu-b12.tar", inner[:5000])]))
    out = str(tmp_path / "safe.tar.gz")
    report = redact_bundle(str(path), out)
    assert "breaks" in " ".join(report.left_out)
    assert not [word for word in PRIVATE if word.encode() in _unpacked(out)]


def test_an_encrypted_member_is_named(tmp_path: Path) -> None:
    data = bytearray(hostile.zip_of([("a.log", SITE.encode()), ("b.log", b"hello\n")]))
    data[6] |= 1
    data[data.index(b"PK\x01\x02") + 8] |= 1
    path = tmp_path / "x.zip"
    path.write_bytes(bytes(data))
    report = redact_bundle(str(path), str(tmp_path / "safe.tar.gz"))
    assert report.files == 1
    assert report.left_out == ["a.log: encrypted"]


def test_a_bomb_is_cut_and_named(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("kilter.intake.unpack.FREE", 1 << 16)
    path = tmp_path / "log.gz"
    path.write_bytes(gzip.compress(b"hello gpu-b12\n" * (1 << 17)))
    report = redact_bundle(str(path), str(tmp_path / "safe.tar.gz"), redactor=Redactor(hosts=["gpu-b12"]))
    assert "a hundred times" in report.left_out[0]
    assert (tmp_path / "safe.tar.gz").stat().st_size < 1 << 20
