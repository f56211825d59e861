"""This machine, read live, against the tools that are here."""

from __future__ import annotations

import json
import os
import platform
import re
import shutil
import subprocess
import time
from pathlib import Path

import msgspec
import pytest

from kilter import __version__
from kilter.facts.base import Entity
from kilter.facts.case import SCHEMA_VERSION, Snapshot
from kilter.intake import live

pytestmark = pytest.mark.skipif(platform.system() != "Linux", reason="needs /sys and /proc")


@pytest.fixture(scope="module")
def snapshot() -> Snapshot:
    return live.snapshot()


def output(*command: str) -> str:
    if shutil.which(command[0]) is None:
        pytest.skip(f"{command[0]} is not installed")
    done = subprocess.run(command, capture_output=True, text=True, timeout=30, check=False)
    if done.returncode != 0:
        pytest.skip(f"{' '.join(command)}: {done.stderr.strip()}")
    return done.stdout


def test_head_of_the_snapshot(snapshot: Snapshot) -> None:
    assert snapshot.schema == SCHEMA_VERSION
    assert snapshot.kilter == __version__
    assert snapshot.time is not None
    assert abs(snapshot.time - time.time()) < 300
    assert snapshot.node == platform.node()
    assert snapshot.kernel.release == platform.release()
    assert snapshot.kernel.arch == platform.machine()


def test_snapshot_survives_json(snapshot: Snapshot) -> None:
    assert msgspec.json.decode(msgspec.json.encode(snapshot), type=Snapshot) == snapshot


def entities(value: object) -> list[Entity]:
    found: list[Entity] = []
    if isinstance(value, Entity):
        found.append(value)
        for field in value.__struct_fields__:
            if field not in ("origin", "missing"):
                found += entities(getattr(value, field))
    elif isinstance(value, dict):
        for part in value.values():
            found += entities(part)
    elif isinstance(value, list):
        for part in value:
            found += entities(part)
    return found


def test_every_value_has_its_source(snapshot: Snapshot) -> None:
    for entity in entities(snapshot):
        for field, (source, line) in entity.origin.items():
            assert 0 <= source < len(snapshot.sources), field
            assert line == 0
        for field in entity.missing:
            assert field.partition(".")[0] in entity.__struct_fields__


def test_lscpu_counts_the_same(snapshot: Snapshot) -> None:
    told = {field["field"].rstrip(":"): field["data"] for field in json.loads(output("lscpu", "-J"))["lscpu"] if "data" in field}
    cpu = snapshot.cpu
    assert cpu.logical == int(told["CPU(s)"])
    if told.get("Socket(s)", "-").isdigit():
        counts = tuple(int(told[key]) for key in ("Socket(s)", "Core(s) per socket", "Thread(s) per core"))
        assert (cpu.sockets, cpu.cores_per_socket, cpu.threads_per_core) == counts
    if "NUMA node(s)" in told:
        assert cpu.numa is not None
        assert len(cpu.numa) == int(told["NUMA node(s)"])


def test_lspci_lists_the_same_functions(snapshot: Snapshot) -> None:
    told = {}
    for line in output("lspci", "-Dn").splitlines():
        address, code, ids = line.split()[:3]
        told[address] = (int(code.rstrip(":"), 16), *(int(part, 16) for part in ids.split(":")))
    assert {address: (d.class_code, d.vendor_id, d.device_id) for address, d in (snapshot.pci or {}).items()} == told


def test_ip_link_lists_the_same_interfaces(snapshot: Snapshot) -> None:
    told = {entry["ifname"]: entry for entry in json.loads(output("ip", "-j", "link"))}
    assert snapshot.nics is not None
    for nic in snapshot.nics:
        assert nic.mtu == told[nic.name]["mtu"]
        assert nic.mac == told[nic.name]["address"]
        assert (nic.operstate or "").upper() == told[nic.name]["operstate"]
        for address in nic.addresses or []:
            assert re.fullmatch(r"[0-9a-f.:]+/\d+", address)


def test_numactl_sees_the_same_nodes(snapshot: Snapshot) -> None:
    nodes = re.findall(r"^node (\d+) size: (\d+) MB", output("numactl", "-H"), re.M)
    assert snapshot.cpu.numa is not None
    assert [(str(node.id), str((node.memory_total_bytes or 0) >> 20)) for node in snapshot.cpu.numa] == nodes


def test_ethtool_reads_the_same_driver(snapshot: Snapshot) -> None:
    for nic in snapshot.nics or []:
        told = dict(line.split(": ", 1) for line in output("ethtool", "-i", nic.name).splitlines() if ": " in line)
        assert nic.driver == told["driver"]
        assert (nic.driver_version or "") == told.get("version", "")


def test_environment_holds_what_matters_and_no_secrets(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("NCCL_IB_HCA", "mlx5")
    monkeypatch.setenv("SLURM_JOB_ID", "7")
    monkeypatch.setenv("NCCL_SECRET_X", "x")
    monkeypatch.setenv("NVIDIA_API_KEY", "x")
    monkeypatch.setenv("HOME_THING", "x")
    variables = live.snapshot().environment.variables
    assert variables is not None
    assert variables["NCCL_IB_HCA"] == "mlx5"
    assert variables["SLURM_JOB_ID"] == "7"
    assert not {"NCCL_SECRET_X", "NVIDIA_API_KEY", "HOME_THING"} & set(variables)
    assert live.snapshot(env=False).environment.variables is None


def test_progress_names_the_subjects() -> None:
    said: list[str] = []
    live.snapshot(progress=said.append)
    assert "PCI functions" in said


def test_limits_are_those_of_this_process(snapshot: Snapshot) -> None:
    import resource

    soft = resource.getrlimit(resource.RLIMIT_NOFILE)[0]
    assert snapshot.limits.nofile == (-1 if soft == resource.RLIM_INFINITY else soft)
    assert snapshot.limits.scope == "this process"


def test_no_file_with_side_effects_is_opened(monkeypatch: pytest.MonkeyPatch) -> None:
    from kilter.intake.live.guard import GuardedTree

    opened: list[str] = []
    real = GuardedTree.read_bytes

    def watch(tree: GuardedTree, path: str) -> bytes | None:
        opened.append(path)
        return real(tree, path)

    monkeypatch.setattr(GuardedTree, "read_bytes", watch)
    live.snapshot(env=False)
    assert any(path.endswith("/config") for path in opened) or not os.path.exists("/sys/bus/pci/devices")
    forbidden = re.compile(r"/(?:reset|reset_method|remove|rescan|vpd|rom|resource\d\w*|kmsg|trace_pipe|mem|kcore)$")
    assert [path for path in opened if forbidden.search(path)] == []


def test_nothing_is_left_running() -> None:
    live.snapshot(env=False)
    children = Path(f"/proc/self/task/{os.getpid()}/children")
    if not children.exists():
        pytest.skip("no list of children in /proc")
    for child in children.read_text().split():
        assert b"reader.py" not in Path(f"/proc/{child}/cmdline").read_bytes()
