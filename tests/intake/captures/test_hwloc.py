"""hwloc's XML."""

from __future__ import annotations

from pathlib import Path

import pytest
from hypothesis import given, settings

from kilter.facts.base import Reason
from kilter.intake.captures.hwloc import cpu_list
from mangle import check_references, mangled, parse_text

DATA = Path(__file__).parents[2] / "data"
DGX2 = (DATA / "s045-hwloc-dgx2h/lstopo.xml").read_text()
SPARK = (DATA / "s046-hwloc-dgx-spark-gb10/lstopo.xml").read_text()


def test_the_pci_tree_of_a_dgx2():
    fragment = parse_text("hwloc", DGX2)
    assert fragment.notes == []
    assert fragment.unplaced == []
    snapshot = fragment.snapshot
    gpu = snapshot.pci["0000:34:00.0"]
    assert (gpu.vendor_id, gpu.device_id, gpu.class_code, gpu.subsystem_device_id, gpu.revision) == (
        0x10DE,
        0x1DB8,
        0x0302,
        0x131D,
        0xA1,
    )
    assert gpu.parent == "0000:33:00.0"
    assert snapshot.pci["0000:2b:00.0"].parent == ""
    assert snapshot.pci["0000:2b:00.0"].secondary_bus == 0x2C
    assert snapshot.pci["0000:2b:00.0"].subordinate_bus == 0x3B
    assert gpu.numa_node == 0
    assert sum(d.is_accelerator for d in snapshot.pci.values()) == 16
    check_references(fragment, DGX2)


def test_a_link_speed_of_speed_times_width_is_neither():
    gpu = parse_text("hwloc", DGX2).snapshot.pci["0000:34:00.0"]
    assert gpu.link_speed_gts is None
    assert gpu.link_width is None
    assert gpu.missing["link_width"].reason is Reason.NOT_COLLECTED


def test_gpus_carry_the_vendors_index():
    gpus = parse_text("hwloc", DGX2).snapshot.accelerators
    assert [g.index for g in gpus] == list(range(16))
    assert (gpus[0].name, gpus[0].pci_address, gpus[0].serial) == ("Tesla V100-SXM3-32GB-H", "0000:34:00.0", None)
    assert gpus[0].uuid.startswith("GPU-")
    assert {g.numa_node for g in gpus} == {0, 1}


def test_cpu_and_numa():
    snapshot = parse_text("hwloc", DGX2).snapshot
    assert (snapshot.cpu.sockets, snapshot.cpu.model_number, snapshot.cpu.vendor) == (2, 85, "GenuineIntel")
    assert next((n.id, n.cpus, n.memory_total_bytes) for n in snapshot.cpu.numa) == (0, "0-1", 810234351616)
    assert snapshot.host.dmi_product == "NVIDIA DGX-2H"


def test_an_arm_machine():
    fragment = parse_text("hwloc", SPARK)
    assert fragment.notes == []
    assert (fragment.source.node, fragment.snapshot.kernel.arch, fragment.snapshot.kernel.release) == (
        "node-a",
        "aarch64",
        "6.17.0-1014-nvidia",
    )
    assert (fragment.snapshot.cpu.sockets, fragment.snapshot.cpu.logical) == (1, 20)


def test_device_types_of_older_formats_are_an_enumeration():
    text = """<topology version="2.0"><object type="Machine" os_index="0">
<object type="PCIDev" pci_busid="0000:5e:00.0" pci_type="0207 [15b3:1021] [15b3:0023] 00" pci_link_speed="0.000000">
<object type="OSDev" name="ib0" osdev_type="2"><info name="Address" value="00:11:22:33:44:55"/></object>
<object type="OSDev" name="mlx5_0" osdev_type="3"><info name="NodeGUID" value="a088:c203:00e3:0001"/>
<info name="Port1State" value="4"/><info name="Port1LID" value="0x30"/></object>
</object></object></topology>"""
    snapshot = parse_text("hwloc", text).snapshot
    assert (snapshot.nics[0].name, snapshot.nics[0].pci_address, snapshot.nics[0].mac) == (
        "ib0",
        "0000:5e:00.0",
        "00:11:22:33:44:55",
    )
    assert (snapshot.rdma[0].ports[0].state, snapshot.rdma[0].ports[0].lid) == ("ACTIVE", 48)


@pytest.mark.parametrize(
    ("mask", "cpus"),
    [
        ("0x000fffff", "0-19"),
        ("0x1,0x0", "32"),
        ("0xf,,0x5", "0,2,64-67"),
        ("0x0", None),
        ("0xf...f", None),
        ("", None),
        ("0x3,0x80000000", "31-33"),
    ],
)
def test_bitmaps(mask, cpus):
    assert cpu_list(mask) == cpus


def test_a_cut_file_counts_no_cpus():
    fragment = parse_text("hwloc", DGX2[:8000])
    assert "ends or breaks" in fragment.notes[0]
    assert fragment.snapshot.cpu.sockets is None
    assert fragment.snapshot.pci


def test_entities_are_refused():
    fragment = parse_text("hwloc", '<!DOCTYPE topology [<!ENTITY a "b">]>\n<topology version="2.0"></topology>')
    assert "entity" in fragment.notes[0]


@settings(max_examples=100, deadline=None)
@given(mangled(DGX2[:9000]) | mangled(SPARK[-9000:]))
def test_damage_is_survived(text):
    parse_text("hwloc", text)
