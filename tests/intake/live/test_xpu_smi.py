"""Claims about running Kunlunxin's xpu-smi, played by a script on PATH."""

from __future__ import annotations

import time
from collections.abc import Callable
from pathlib import Path

import pytest

from kilter.facts.accelerator import Accelerator
from kilter.facts.base import Reason
from kilter.facts.case import Snapshot
from kilter.facts.pci import PciDevice
from kilter.intake.live import xpu_smi
from kilter.intake.live.xpu_smi import read_xpu_smi

OUTPUT = """\
==============XPUSMI LOG==============

Driver Version                            : 5.0.21.26
XPU-RT Version                            : 5.0.21

Attached XPUs                             : 1
XPU 00000000:01:00.0
    Product Name                          : P800 OAM
    ECC Errors
        Volatile
            DRAM Uncorrectable            : 2
    Power Readings
        Power Draw                        : 76.00 W
"""

Install = Callable[..., None]


@pytest.fixture
def install(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Install:
    """Puts an ``xpu-smi`` on PATH that prints a text and then runs a line of shell."""
    monkeypatch.setattr(xpu_smi, "_TOOLS", ("xpu-smi", "xpu_smi"))
    monkeypatch.setenv("PATH", f"{tmp_path}:/usr/bin:/bin")

    def put(text: str, then: str = "", *, name: str = "xpu-smi") -> None:
        (tmp_path / "out.txt").write_text(text)
        tool = tmp_path / name
        tool.write_text(f'#!/bin/sh\n[ "$*" = -q ] || exit 9\ncat {tmp_path}/out.txt\n{then}\n')
        tool.chmod(0o755)

    return put


def _with_bus(*vendors: int) -> Snapshot:
    devices = [PciDevice(address=f"0000:0{i}:00.0", vendor_id=vendor, class_code=0x1200) for i, vendor in enumerate(vendors, 1)]
    return Snapshot(pci={device.address: device for device in devices})


def test_xpus_are_added_with_their_own_source(install: Install) -> None:
    install(OUTPUT + "    Processes                             : None\n")
    snapshot = _with_bus(0x1D22)
    snapshot.accelerators = [Accelerator(index=0)]
    read_xpu_smi(snapshot)
    assert snapshot.accelerators is not None
    nvidia, xpu = snapshot.accelerators
    assert nvidia.vendor == "nvidia"
    assert (xpu.vendor, xpu.label) == ("kunlunxin", "XPU0 0000:01:00.0")
    assert snapshot.where(xpu.ref("name")) == "live:xpu-smi -q:8"
    assert xpu.ecc_volatile is not None
    assert snapshot.where(xpu.ecc_volatile.ref("dram_uncorrected")) == "live:xpu-smi -q:11"
    assert snapshot.software.driver_version == "5.0.21.26"
    assert snapshot.software.xpu_runtime_version == "5.0.21"
    assert snapshot.software.driver_error is None


def test_references_point_to_the_right_source_when_others_were_read_before(install: Install) -> None:
    install(OUTPUT)
    snapshot = Snapshot()
    read_xpu_smi(snapshot)
    read_xpu_smi(snapshot)
    assert snapshot.accelerators is not None
    second = snapshot.accelerators[1]
    assert second.origin["name"] == (1, 8)
    assert second.readings[0].source == 1
    assert second.readings[0].origin["power_w"] == (1, 13)
    assert snapshot.software.origin["driver_version"] == (1, 3)


def test_the_tool_under_its_older_name_is_found(install: Install) -> None:
    install(OUTPUT, name="xpu_smi")
    snapshot = _with_bus(0x2057)
    read_xpu_smi(snapshot)
    assert snapshot.accelerators is not None


def test_a_hung_tool_costs_one_time_limit_and_keeps_what_it_printed(install: Install) -> None:
    install(OUTPUT, "exec sleep 60")
    snapshot = _with_bus(0x1D22)
    start = time.monotonic()
    read_xpu_smi(snapshot, timeout_s=1.5)
    assert time.monotonic() - start < 10
    assert snapshot.accelerators is not None
    assert snapshot.accelerators[0].name == "P800 OAM"
    assert snapshot.software.driver_error == "xpu-smi -q hung for 1.5 s (driver sick?)"


def test_a_failing_tool_is_quoted(install: Install) -> None:
    install("", "echo 'no device' >&2; exit 3")
    snapshot = _with_bus(0x1D22)
    read_xpu_smi(snapshot)
    assert snapshot.accelerators is None
    assert snapshot.software.driver_error == "xpu-smi -q ended with status 3: no device"


def test_without_the_tool_an_xpu_on_the_bus_is_told(install: Install) -> None:
    snapshot = _with_bus(0x1D22)
    read_xpu_smi(snapshot)
    assert snapshot.accelerators is None
    assert snapshot.software.missing["xpu_runtime_version"].reason is Reason.ABSENT


def test_no_xpu_on_the_bus_runs_no_tool(install: Install) -> None:
    install(OUTPUT)
    snapshot = _with_bus(0x8086)
    read_xpu_smi(snapshot)
    assert snapshot.accelerators is None
    assert snapshot.sources == []


def test_intels_tool_on_a_node_of_unknown_bus_is_no_trouble(install: Install) -> None:
    install("Intel XPU System Management Interface -- v1.2\n", "exit 1")
    snapshot = Snapshot()
    read_xpu_smi(snapshot)
    assert snapshot.accelerators is None
    assert snapshot.software.driver_error is None
