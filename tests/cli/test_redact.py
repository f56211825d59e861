"""``kilter redact`` as a user meets it."""

from __future__ import annotations

import os
import stat
import tarfile
from pathlib import Path

from click.testing import CliRunner

from kilter.cli.redact import command


def test_it_writes_the_archive_and_a_private_map(tmp_path: Path) -> None:
    (tmp_path / "in").mkdir()
    (tmp_path / "in" / "log").write_text("root@gpu-b12:~# uptime\nup on project zeus\n")
    out, names = tmp_path / "safe.tar.gz", tmp_path / "map.json"
    done = CliRunner().invoke(command, [str(tmp_path / "in"), "-o", str(out), "--map", str(names), "--word", "zeus"])
    assert done.exit_code == 0, done.output
    assert "1 files" in done.output
    assert "host: 1 different" in done.output
    with tarfile.open(out) as archive:
        stream = archive.extractfile("log")
        assert stream is not None
        assert stream.read() == b"root@host-1:~# uptime\nup on project word-1\n"
    assert "gpu-b12" in names.read_text()
    assert stat.S_IMODE(os.stat(names).st_mode) == 0o600


def test_unusable_input_ends_with_2(tmp_path: Path) -> None:
    done = CliRunner().invoke(command, [str(tmp_path / "none"), "-o", str(tmp_path / "x.tar.gz")])
    assert done.exit_code == 2
    assert "no such file" in done.output


def test_an_existing_output_is_not_overwritten(tmp_path: Path) -> None:
    (tmp_path / "a").write_text("x\n")
    (tmp_path / "x.tar.gz").write_text("mine")
    done = CliRunner().invoke(command, [str(tmp_path / "a"), "-o", str(tmp_path / "x.tar.gz")])
    assert done.exit_code == 2
    assert (tmp_path / "x.tar.gz").read_text() == "mine"
