"""The collector script, run for real under each shell that is here."""

from __future__ import annotations

import os
import re
import shutil
import subprocess
import tarfile
import time
from pathlib import Path

import pytest

from kilter.facts.base import Source
from kilter.facts.case import Snapshot
from kilter.intake import live
from kilter.intake.fragment import Block, Fragment
from kilter.intake.live import kernel_names

SCRIPT = Path(live.__file__).with_name("collect.sh")
SHELLS = [shell for shell in (["dash"], ["busybox", "sh"], ["bash", "--posix"]) if shutil.which(shell[0])]


def name(shell: list[str]) -> str:
    return shell[0]


def fake(directory: Path, program: str, body: str) -> None:
    path = directory / program
    path.write_text(f"#!/bin/sh\n{body}\n")
    path.chmod(0o755)


def collect(
    shell: list[str], tmp_path: Path, *, limit: str = "20", **extra: str
) -> tuple[dict[str, str], subprocess.CompletedProcess[str], float]:
    """Files of the archive by their name, the finished process, and how long it took."""
    tools = tmp_path / "bin"
    tools.mkdir(exist_ok=True)
    temporary = tmp_path / "tmp"
    temporary.mkdir(exist_ok=True)
    environment = {"PATH": f"{tools}:{os.environ['PATH']}", "TMPDIR": str(temporary), "KILTER_TIMEOUT": limit, **extra}
    began = time.monotonic()
    archive = tmp_path / "out.tar.gz"
    done = subprocess.run(
        [*shell, str(SCRIPT), str(archive)],
        capture_output=True,
        text=True,
        timeout=100,
        env=environment,
        cwd=tmp_path,
        check=False,
    )
    took = time.monotonic() - began
    assert done.returncode == 0, done.stderr
    assert list(temporary.iterdir()) == [], "the temporary directory is removed"
    files = {}
    with tarfile.open(archive) as tar:
        members = tar.getmembers()
        top = {member.name.split("/")[0] for member in members}
        assert len(top) == 1
        assert re.fullmatch(r"kilter-[\w.-]+-\d{8}T\d{6}Z", top.pop())
        for member in members:
            if member.isfile():
                file = tar.extractfile(member)
                assert file is not None
                files[member.name.partition("/")[2]] = file.read().decode("utf-8", "replace")
    return files, done, took


def manifest(files: dict[str, str]) -> dict[str, tuple[str, str]]:
    """Command -> (status, file)."""
    rows = [line.split("\t") for line in files["manifest.txt"].splitlines() if line.count("\t") == 3]
    return {row[3]: (row[0], row[2]) for row in rows}


def read_back(text: str) -> Snapshot:
    from kilter.intake.captures.sysfs_text import parse

    fragment = Fragment(Source(name="sysfs.txt", tool="sysfs"))
    parse(Block(source=fragment.source, lines=text.splitlines()), fragment)
    assert fragment.unplaced == []
    return fragment.snapshot


@pytest.mark.parametrize("shell", SHELLS, ids=name)
def test_archive_tells_the_same_as_the_live_readers(shell: list[str], tmp_path: Path) -> None:
    files, done, _ = collect(shell, tmp_path, NCCL_DEBUG="INFO", NCCL_API_KEY="hidden", HF_TOKEN="hidden")
    assert done.stdout.strip() == str(tmp_path / "out.tar.gz")
    told, direct = read_back(files["sysfs.txt"]), live.snapshot(env=False)
    assert told.kernel.release == direct.kernel.release
    assert told.kernel.cmdline == direct.kernel.cmdline
    assert told.kernel.sysctls.keys() == direct.kernel.sysctls.keys()
    if os.path.exists("/proc/config.gz"):
        assert told.kernel.config == direct.kernel.config
    assert told.cpu.logical == direct.cpu.logical
    assert (told.cpu.sockets, told.cpu.cores_per_socket, told.cpu.threads_per_core) == (
        direct.cpu.sockets,
        direct.cpu.cores_per_socket,
        direct.cpu.threads_per_core,
    )
    assert told.cpu.mitigations == direct.cpu.mitigations
    assert told.memory.total_bytes == direct.memory.total_bytes
    assert told.host.virtualization == direct.host.virtualization
    assert (told.pci or {}).keys() == (direct.pci or {}).keys()
    for address, device in (told.pci or {}).items():
        live_device = (direct.pci or {})[address]
        for field in ("vendor_id", "class_code", "parent", "numa_node", "port_type", "link_speed_gts", "bars", "has_acs"):
            assert getattr(device, field) == getattr(live_device, field), (address, field)
    assert [nic.name for nic in told.nics or []] == [nic.name for nic in direct.nics or []]
    env = files["env.txt"].splitlines()
    assert env[0] == "### kilter: env"
    assert "NCCL_DEBUG=INFO" in env
    assert "hidden" not in "".join(files.values())
    assert files["ulimit.txt"].startswith("### kilter: ulimit -a\n")
    assert files["uname.txt"].startswith("### kilter: uname -a\nLinux ")
    head = files["manifest.txt"].splitlines()
    assert head[0].startswith("kilter collector ")
    assert any(re.fullmatch(r"epoch: \d+", line) for line in head)
    assert head[-1].startswith("### end after ")


@pytest.mark.parametrize("shell", SHELLS, ids=name)
def test_hung_nvidia_smi_costs_one_limit_and_is_recorded(shell: list[str], tmp_path: Path) -> None:
    (tmp_path / "bin").mkdir()
    fake(tmp_path / "bin", "nvidia-smi", "trap '' TERM\necho partial\nsleep 300 &\nwait\nsleep 300")
    files, done, took = collect(shell, tmp_path, limit="2")
    rows = manifest(files)
    assert rows["nvidia-smi -q -x"] == ("timeout", "nvidia-smi-q-x.txt")
    assert rows["nvidia-smi topo -m"][0] == "skipped"
    assert rows["lscpu"][0] == "0"
    assert files["nvidia-smi-q-x.txt"] == "### kilter: nvidia-smi -q -x\npartial\n### stderr\nkilter: no answer within 2 s\n"
    assert "no answer within 2 s: nvidia-smi -q -x" in done.stderr
    assert took < 30
    assert not subprocess.run(
        ["pgrep", "-f", str(tmp_path / "bin" / "nvidia-smi")], capture_output=True, text=True, check=False
    ).stdout


@pytest.mark.parametrize("shell", SHELLS, ids=name)
def test_output_status_and_stderr_of_tools_are_kept(shell: list[str], tmp_path: Path) -> None:
    (tmp_path / "bin").mkdir()
    fake(tmp_path / "bin", "nvidia-smi", '[ "$1" = -q ] && { echo "<nvidia_smi_log>"; exit 0; }\necho "no devices" >&2\nexit 6')
    fake(tmp_path / "bin", "xpu-smi", "cat; echo read stdin to its end")
    files, _, _ = collect(shell, tmp_path)
    rows = manifest(files)
    assert files["nvidia-smi-q-x.txt"] == "### kilter: nvidia-smi -q -x\n<nvidia_smi_log>\n"
    assert files["nvidia-smi-topo.txt"] == "### kilter: nvidia-smi topo -m\n### stderr\nno devices\n"
    assert rows["nvidia-smi topo -m"][0] == "6"
    assert files["xpu-smi-q.txt"] == "### kilter: xpu-smi -q\nread stdin to its end\n"


def test_script_from_standard_input_runs_whole(tmp_path: Path) -> None:
    done = subprocess.run(
        ["sh", "-s", str(tmp_path / "piped.tar.gz")],
        input=SCRIPT.read_text(),
        capture_output=True,
        text=True,
        timeout=100,
        check=False,
    )
    assert done.returncode == 0, done.stderr
    assert (tmp_path / "piped.tar.gz").exists()


def test_existing_archive_is_not_overwritten(tmp_path: Path) -> None:
    (tmp_path / "mine.tar.gz").write_text("precious")
    done = subprocess.run(
        ["sh", str(SCRIPT), "mine.tar.gz"], cwd=tmp_path, capture_output=True, text=True, timeout=30, check=False
    )
    assert done.returncode == 2
    assert (tmp_path / "mine.tar.gz").read_text() == "precious"


def test_bad_limit_is_refused(tmp_path: Path) -> None:
    done = subprocess.run(
        ["sh", str(SCRIPT)],
        cwd=tmp_path,
        capture_output=True,
        text=True,
        timeout=30,
        check=False,
        env={**os.environ, "KILTER_TIMEOUT": "2s"},
    )
    assert done.returncode == 2
    assert "KILTER_TIMEOUT" in done.stderr


def test_script_asks_for_the_options_and_sysctls_that_the_reader_knows() -> None:
    options = re.search(r"^OPTIONS='([^']*)'", SCRIPT.read_text(), re.M)
    assert options is not None
    names = options[1].split()
    assert {name for name in names if not name.endswith("*")} == kernel_names.CONFIG_EXACT
    assert {name[:-1] for name in names if name.endswith("*")} == set(kernel_names.CONFIG_PREFIX)
    match = re.search(r"^SYSCTLS='([^']*)'", SCRIPT.read_text(), re.M)
    assert match is not None
    assert match[1].split() == list(kernel_names.SYSCTLS)
    assert all(name in SCRIPT.read_text() for name in kernel_names.CONF_SYSCTLS)


@pytest.mark.skipif(shutil.which("shellcheck") is None, reason="shellcheck is not installed")
def test_shellcheck_has_nothing_to_say() -> None:
    done = subprocess.run(["shellcheck", "-s", "sh", str(SCRIPT)], capture_output=True, text=True, timeout=60, check=False)
    assert done.stdout == ""
