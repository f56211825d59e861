"""The terminal drawing: it fits, it is complete, it says what it knows."""

from __future__ import annotations

import re
from collections.abc import Callable

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from kilter.facts.accelerator import Accelerator
from kilter.facts.case import Snapshot
from kilter.facts.pci import PciDevice
from kilter.report.topology import build
from kilter.report.topology_text import cells, render_text

Machines = dict[str, Callable[[], Snapshot]]
_COLOUR = re.compile(r"\x1b\[[0-9;]*m")


@pytest.mark.parametrize("unicode", [True, False])
@pytest.mark.parametrize("width", [60, 80, 100, 160])
def test_no_line_is_wider_than_asked(machine: Snapshot, width: int, unicode: bool) -> None:
    text = render_text(build(machine), width=width, unicode=unicode)
    assert max(cells(line) for line in text.splitlines()) <= width


def test_ascii_is_ascii(machine: Snapshot) -> None:
    assert render_text(build(machine), unicode=False).isascii()


def test_colour_changes_nothing_but_colour(machine: Snapshot) -> None:
    topology = build(machine)
    painted = render_text(topology, color=True)
    assert "\x1b[" in painted
    plain = render_text(topology).splitlines()
    assert [line.rstrip() for line in _COLOUR.sub("", painted).splitlines()] == plain


def test_each_gpu_has_one_line_in_the_tree(machines: Machines) -> None:
    for name in ("dgx_h100", "v100_cube_mesh", "workstation", "pcie_server"):
        topology = build(machines[name]())
        text = render_text(topology)
        for gpu in topology.gpus:
            assert len(re.findall(rf"[├└]─ {gpu}\b", text)) == 1, (name, gpu)
    assert len(re.findall(r"[├└]─ GPU ", render_text(build(machines["azure_nd_a100"]())))) == 8


def test_all_pairs_alike_are_one_line(machines: Machines) -> None:
    text = render_text(build(machines["dgx_h100"]()))
    assert "NVLink  all pairs NV18 through 4 NVSwitches" in text
    assert "GPU to GPU" not in text


def test_a_mesh_is_a_matrix(machines: Machines) -> None:
    text = render_text(build(machines["v100_cube_mesh"]()))
    assert "GPU0     -   NV1   NV1   NV2   NV2   SYS   SYS   SYS" in text


def test_the_legend_explains_used_words_only(machines: Machines) -> None:
    text = render_text(build(machines["v100_cube_mesh"]())).replace("\xa0", " ")
    assert "NODE between host bridges of one NUMA node" in text
    assert "PXB" not in text


def test_unknown_distances_are_said_in_one_line_with_the_command(machines: Machines) -> None:
    text = render_text(build(machines["azure_nd_a100"]()))
    assert "NIC to GPU: not known (nvidia-smi topo -m shows it)" in text


def test_the_address_of_a_redirecting_port_is_named(machines: Machines) -> None:
    text = render_text(build(machines["dgx_h100"]()))
    assert text.count("ACS at 82:0") == 4
    assert not any("ACS" in line for line in text.splitlines() if "GPU" in line)


def test_nothing_known_is_said() -> None:
    assert render_text(build(Snapshot())) == "no GPU, NIC, NVSwitch or NVMe is known"


def test_control_characters_of_a_name_do_not_reach_the_terminal() -> None:
    bad = "\x1b[31mred\x07\u202egpj\x9b2J"
    topology = build(Snapshot(node=bad, accelerators=[Accelerator(index=0, pci_address="0000:00:05.0", name=bad)]))
    text = render_text(topology)
    assert not re.search(r"[\x00-\x09\x0b-\x1f\x7f-\x9f\u202a-\u202e]", text)


@settings(max_examples=100, deadline=None)
@given(st.text(min_size=1), st.integers(40, 120))
def test_any_name_fits(name: str, width: int) -> None:
    function = PciDevice(address="0000:00:05.0", vendor_id=0x10DE, class_code=0x0302, description=name, slot=name)
    topology = build(Snapshot(node=name, pci={function.address: function}))
    assert all(cells(line) <= width for line in render_text(topology, width=width).split("\n"))


def test_sixteen_gpus_and_nics_fit_in_a_hundred_columns() -> None:
    accelerators = [Accelerator(index=n, pci_address=f"0000:{n + 1:02x}:00.0", numa_node=n // 8) for n in range(16)]
    pci = {
        f"0000:{n + 1:02x}:00.0": PciDevice(address=f"0000:{n + 1:02x}:00.0", class_code=0x0302, vendor_id=0x10DE)
        for n in range(16)
    }
    for n in range(16):
        address = f"0000:{n + 0x41:02x}:00.0"
        pci[address] = PciDevice(address=address, class_code=0x0207, numa_node=n // 8)
    text = render_text(build(Snapshot(accelerators=accelerators, pci=pci)), width=100)
    assert max(map(len, text.splitlines())) <= 100
