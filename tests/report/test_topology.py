"""What build() makes of machines: places, distances, and what is not known."""

from __future__ import annotations

import re
from collections.abc import Callable
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from kilter.facts.accelerator import Accelerator, NvLink, NvSwitch, TopologyMatrix
from kilter.facts.case import Snapshot
from kilter.facts.host import NumaNode
from kilter.facts.network import NetInterface, RdmaDevice
from kilter.facts.pci import PciDevice
from kilter.report.topology import build
from kilter.report.topology_model import LinkState, Topology, segments
from kilter.report.topology_pci import MAX_DEPTH, PciTree, bonded_links, rank, short_title
from kilter.report.topology_svg import render_svg
from kilter.report.topology_text import render_text

Machines = dict[str, Callable[[], Snapshot]]


def gpu(address: str, **facts: Any) -> PciDevice:
    return PciDevice(address=address, vendor_id=0x10DE, class_code=0x0302, **facts)


def hca(address: str, **facts: Any) -> PciDevice:
    return PciDevice(address=address, vendor_id=0x15B3, class_code=0x0207, **facts)


def bridge(address: str, secondary: int, last: int, port: str | None = None, **facts: Any) -> PciDevice:
    return PciDevice(address=address, class_code=0x0604, secondary_bus=secondary, subordinate_bus=last, port_type=port, **facts)


def snapshot(*functions: PciDevice, **facts: Any) -> Snapshot:
    return Snapshot(pci={one.address: one for one in functions}, **facts)


def test_every_gpu_of_a_machine_is_drawn_once(machine: Snapshot) -> None:
    topology = build(machine)
    drawn = [node.key for node in topology.walk() if node.kind == "gpu"]
    assert sorted(drawn) == sorted(set(drawn)) == sorted(topology.gpus)
    expected = len(machine.accelerators or []) or sum(one.is_accelerator for one in (machine.pci or {}).values())
    assert len(drawn) == expected


def two_switches() -> list[PciDevice]:
    """Root bus 00: a root port with nested switches, and a second root port. Root bus 80 (node 0) and c0 (node 1) beside it."""
    return [
        bridge("0000:00:01.0", 0x01, 0x0F, "root port", parent=""),
        bridge("0000:01:00.0", 0x02, 0x0F, "upstream port"),
        bridge("0000:02:00.0", 0x03, 0x03, "downstream port"),
        bridge("0000:02:01.0", 0x04, 0x04, "downstream port"),
        bridge("0000:02:02.0", 0x05, 0x0F, "downstream port"),
        bridge("0000:05:00.0", 0x06, 0x0F, "upstream port"),
        bridge("0000:06:00.0", 0x07, 0x07, "downstream port"),
        bridge("0000:00:02.0", 0x10, 0x10, "root port", parent=""),
        bridge("0000:80:01.0", 0x81, 0x81, "root port", parent=""),
        bridge("0000:c0:01.0", 0xC1, 0xC1, "root port", parent=""),
        gpu("0000:03:00.0", numa_node=0),
        hca("0000:04:00.0", numa_node=0),
        hca("0000:07:00.0", numa_node=0),
        hca("0000:10:00.0", numa_node=0),
        hca("0000:81:00.0", numa_node=0),
        hca("0000:c1:00.0", numa_node=1),
    ]


@pytest.mark.parametrize(
    ("nic", "word"),
    [("04:00.0", "PIX"), ("07:00.0", "PXB"), ("10:00.0", "PHB"), ("81:00.0", "NODE"), ("c1:00.0", "SYS")],
)
def test_distances_of_a_tree_are_nvidias(nic: str, word: str) -> None:
    topology = build(snapshot(*two_switches()))
    assert topology.distance("GPU 03:00.0", nic).word == word
    assert topology.distance(nic, "GPU 03:00.0").computed == word


def test_nearest_nics_are_those_at_the_least_distance() -> None:
    topology = build(snapshot(*two_switches()))
    assert topology.nearest_nics == {"GPU 03:00.0": ["04:00.0"]}
    assert topology.nearest_gpus["c1:00.0"] == ["GPU 03:00.0"]


def test_functions_of_one_card_behind_one_root_port_are_pix() -> None:
    functions = (bridge("0000:00:01.0", 1, 1, "root port", parent=""), gpu("0000:01:00.0"), hca("0000:01:00.1"))
    assert build(snapshot(*functions)).distance("GPU 01:00.0", "01:00.1").word == "PIX"


def test_parents_are_found_from_bus_numbers_when_no_reader_gave_them() -> None:
    tree = PciTree({one.address: one for one in two_switches()})
    assert tree.chain("0000:07:00.0") == (
        "0000:00:01.0",
        "0000:01:00.0",
        "0000:02:02.0",
        "0000:05:00.0",
        "0000:06:00.0",
        "0000:07:00.0",
    )
    assert tree.root_bus("0000:07:00.0") == ("0000", 0)


def test_a_switch_that_the_listing_leaves_out_gives_no_pix() -> None:
    cut = [one for one in two_switches() if not one.address.startswith(("0000:01", "0000:02"))]
    topology = build(snapshot(*cut))
    assert topology.distance("GPU 03:00.0", "04:00.0").word == "?"
    assert topology.distance("GPU 03:00.0", "10:00.0").word == "PHB"  # the root port above still tells this
    assert any(node.gap for node in topology.walk())


def test_without_any_bridge_only_different_numa_nodes_say_something() -> None:
    functions = [one for one in two_switches() if not one.is_bridge]
    topology = build(snapshot(*functions))
    assert topology.distance("GPU 03:00.0", "c1:00.0").word == "SYS"
    assert topology.distance("GPU 03:00.0", "81:00.0").word == "?"
    assert topology.distance("GPU 03:00.0", "04:00.0").word == "?"
    assert any("bridges above some devices" in note for note in topology.notes)


def test_minus_one_is_no_numa_node() -> None:
    functions = [gpu("0001:00:00.0", numa_node=-1), hca("0002:00:00.0", numa_node=-1)]
    topology = build(snapshot(*functions))
    assert topology.distance(topology.gpus[0], topology.nics[0]).word == "?"
    assert [group.node for group in topology.numa] == [None]


def test_the_only_numa_node_of_a_machine_holds_all() -> None:
    one = snapshot(gpu("0001:00:00.0", numa_node=-1), hca("0002:00:00.0"))
    one.cpu.numa = [NumaNode(id=0, cpus="0-7")]
    topology = build(one)
    assert topology.distance(topology.gpus[0], topology.nics[0]).word == "NODE"


def test_matrix_and_tree_that_differ_are_both_kept_and_flagged() -> None:
    matrix = TopologyMatrix(devices=["GPU0", "NIC0"], nic_names={"NIC0": "mlx5_0"}, links={"GPU0": {"GPU0": "X", "NIC0": "PXB"}})
    one = snapshot(
        *two_switches(),
        topology=matrix,
        accelerators=[Accelerator(index=0, pci_address="0000:03:00.0")],
        rdma=[RdmaDevice(name="mlx5_0", pci_address="0000:04:00.0")],
    )
    topology = build(one)
    distance = topology.distance("GPU0", "mlx5_0")
    assert (distance.word, distance.computed, distance.reported, distance.disagrees) == ("PXB", "PIX", "PXB", True)
    assert topology.disagreements == ["GPU0 - mlx5_0: PIX by the PCI tree, PXB by topo -m"]
    assert "PXB*" in render_text(topology)


def test_nvlink_contradicts_no_pcie_distance(machines: Machines) -> None:
    topology = build(machines["dgx_h100"]())
    assert topology.distance("GPU0", "GPU7").word == "NV18"
    assert topology.distance("GPU0", "GPU7").computed == "SYS"
    assert topology.disagreements == []
    assert topology.nvlinks.all_pairs == "NV18"
    assert topology.nvlinks.switches == 4
    assert topology.nvlinks.active["GPU3"] == topology.nvlinks.total["GPU3"] == 18


def test_a_matrix_that_contradicts_itself_is_flagged() -> None:
    links = {"GPU0": {"GPU1": "NODE"}, "GPU1": {"GPU0": "SYS"}}
    topology = build(Snapshot(topology=TopologyMatrix(devices=["GPU0", "GPU1"], links=links)))
    assert topology.disagreements == ["GPU0 - GPU1: topo -m says NODE one way and SYS the other"]


def test_a_row_cut_off_the_matrix_is_read_from_the_column() -> None:
    links = {"GPU0": {"GPU0": "X", "GPU1": "NV4"}}
    topology = build(Snapshot(topology=TopologyMatrix(devices=["GPU0", "GPU1", "GPU2"], links=links)))
    assert topology.distance("GPU1", "GPU0").word == "NV4"
    assert topology.distance("GPU1", "GPU2").word == "?"


def test_hybrid_cube_mesh_keeps_bonds_by_pair_and_places_the_nic_by_node(machines: Machines) -> None:
    topology = build(machines["v100_cube_mesh"]())
    assert topology.nvlinks.all_pairs == ""
    assert topology.nvlinks.pairs["GPU0"] == {"GPU1": 1, "GPU2": 1, "GPU3": 2, "GPU4": 2}
    assert topology.nvlinks.active["GPU5"] == 6
    # NODE to GPU0..3 means the NUMA node of GPU0..3.
    assert {node.key: node.numa for node in topology.walk()}["mlx5_2"] == 0
    assert topology.nearest_nics["GPU7"] == ["mlx5_2"]


def test_gpus_in_domains_of_their_own_have_no_distance_without_more(machines: Machines) -> None:
    topology = build(machines["azure_nd_a100"]())
    assert len(topology.gpus) == 8
    assert topology.nvlinks.switches == 6
    words = {topology.distance(a, b).word for a in topology.gpus for b in topology.nics}
    assert words == {"?"}
    assert all(near == [] for near in topology.nearest_nics.values())
    assert any("virtual machine" in note for note in topology.notes)


def test_numbers_of_topo_m_are_not_guessed_onto_pci_addresses() -> None:
    devices = ["GPU0", "GPU1"]
    matrix = TopologyMatrix(devices=devices, links={"GPU0": {"GPU1": "PIX"}, "GPU1": {"GPU0": "PIX"}})
    topology = build(snapshot(gpu("0000:03:00.0"), gpu("0000:04:00.0"), topology=matrix))
    assert topology.gpus == devices
    assert sorted(node.key for node in topology.walk()) == ["GPU 03:00.0", "GPU 04:00.0"]
    assert any("not matched with PCI addresses" in note for note in topology.notes)


def test_one_gpu_here_and_one_there_are_the_same() -> None:
    matrix = TopologyMatrix(devices=["GPU0"], links={"GPU0": {"GPU0": "X"}}, numa_affinity={"GPU0": "1"})
    topology = build(snapshot(gpu("0000:03:00.0"), topology=matrix))
    assert [node.key for node in topology.walk()] == ["GPU0"]
    assert [group.node for group in topology.numa if group.buses] == [1]
    listed = build(snapshot(gpu("0000:03:00.0"), accelerators=[Accelerator(index=0, uuid="GPU-1", name="L40S")]))
    assert [(node.key, node.title) for node in listed.walk()] == [("GPU0", "L40S")]


def test_a_gpu_that_nvidia_smi_knows_and_lspci_does_not_is_drawn_and_marked() -> None:
    functions = [one for one in two_switches() if not one.is_accelerator]
    topology = build(snapshot(*functions, accelerators=[Accelerator(index=0, pci_address="0000:03:00.0", error="GPU is lost")]))
    lost = next(node for node in topology.walk() if node.key == "GPU0")
    assert lost.details == ["not in the PCI listing", "GPU is lost"]
    assert topology.distance("GPU0", "04:00.0").word == "PIX"  # its port is still there


def test_numa_nodes_that_two_sources_give_differently_are_flagged() -> None:
    topology = build(
        snapshot(gpu("0000:00:05.0", numa_node=0), accelerators=[Accelerator(index=0, pci_address="0000:00:05.0", numa_node=1)])
    )
    assert topology.disagreements == ["0000:00:05.0: NUMA node 0 (PCI), 1 (the accelerator's tool)"]


def test_only_nvidia_smi_gives_gpus_without_a_tree() -> None:
    accelerators = [Accelerator(index=n, pci_address=f"0000:{n + 4:02x}:00.0", name="NVIDIA H100") for n in range(8)]
    topology = build(Snapshot(accelerators=accelerators))
    assert topology.gpus == [f"GPU{n}" for n in range(8)]
    assert topology.distance("GPU0", "GPU1").word == "?"
    assert topology.nvlinks.switches is None
    assert any("no PCI listing" in note for note in topology.notes)


def test_nothing_known_is_empty() -> None:
    topology = build(Snapshot())
    assert topology.is_empty
    assert (topology.gpus, topology.nics, topology.notes) == ([], [], [])


def test_virtual_functions_fold_into_their_physical_one() -> None:
    functions = [bridge("0000:00:01.0", 1, 2, "root port", parent=""), hca("0000:01:00.0", vfs=3)]
    functions += [hca(f"0000:01:00.{n}", physical_function="0000:01:00.0") for n in (2, 3, 4)]
    topology = build(snapshot(*functions))
    assert [node.details for node in topology.walk() if node.kind == "hca"] == [["3 VFs"]]


def test_virtual_function_beyond_the_bus_range_hangs_where_its_physical_one_does() -> None:
    functions = [bridge("0000:00:01.0", 1, 1, "root port", parent=""), hca("0000:01:00.0")]
    functions.append(hca("0000:02:00.0", physical_function="0000:01:00.0"))
    tree = PciTree({one.address: one for one in functions})
    assert tree.places["0000:02:00.0"].parent == "0000:00:01.0"


def test_acs_is_marked_only_for_redirection() -> None:
    def acs_of(bits: list[str]) -> bool:
        functions = [bridge("0000:00:01.0", 1, 1, "root port", parent="", acs_enabled=bits), gpu("0000:01:00.0")]
        return next(node for node in build(snapshot(*functions)).walk() if node.kind == "bridge").acs

    assert acs_of(["SrcValid", "ReqRedir"])
    assert acs_of(["CmpltRedir"])
    assert not acs_of(["SrcValid", "UpstreamFwd"])


def test_uninteresting_devices_are_counted_not_drawn(machines: Machines) -> None:
    topology = build(machines["dgx_h100"]())
    assert topology.numa[0].hidden == 42  # 40 chipset functions, the BMC's display and the root port above it
    assert not any("Matrox" in node.title for node in topology.walk())


def test_a_nic_is_known_by_the_name_of_any_source() -> None:
    nics = [NetInterface(name="eth0", pci_address="0000:00:03.0")]
    function = PciDevice(address="0000:00:03.0", vendor_id=0x1D0F, class_code=0x0200)
    assert build(snapshot(function, nics=nics)).nics == ["eth0"]


def test_two_devices_of_one_name_keep_apart() -> None:
    twice = [Accelerator(index=0, pci_address="0000:00:03.0"), Accelerator(index=0, pci_address="0000:00:04.0")]
    assert build(Snapshot(accelerators=twice)).gpus == ["GPU0", "GPU0#2"]


def test_nvswitches_without_address_are_counted() -> None:
    topology = build(Snapshot(nvswitches=[NvSwitch(index=n) for n in range(6)]))
    assert topology.nvlinks.switches == 6


def test_links_of_gpus_that_cannot_be_placed_are_not_lost() -> None:
    strays = [Accelerator(index=n, nvlinks=[NvLink(id=0, speed_gb_s=25.0)]) for n in range(2)]
    topology = build(snapshot(gpu("0000:03:00.0"), gpu("0000:04:00.0"), accelerators=strays))
    assert "1 of 1 NVLinks active: GPU0, GPU1" in topology.notes


def test_inactive_links_do_not_count_as_active() -> None:
    links = [NvLink(id=0, state="active"), NvLink(id=1, state="inactive"), NvLink(id=2, speed_gb_s=25.0)]
    topology = build(Snapshot(accelerators=[Accelerator(index=0, nvlinks=links)]))
    assert (topology.nvlinks.active, topology.nvlinks.total) == ({"GPU0": 2}, {"GPU0": 3})


def test_link_text_names_the_maximum_only_where_it_is_higher() -> None:
    assert str(LinkState(4, 16, 4, 16)) == "Gen4 x16"
    assert str(LinkState(1, 16, 4, 16)) == "Gen1 x16 (max Gen4 x16)"
    assert str(LinkState(4, 8, 4, 16)) == "Gen4 x8 (max Gen4 x16)"
    assert str(LinkState(None, None, 4, 16)) == ""


def test_words_rank_from_near_to_far() -> None:
    words = ["?", "SYS", "NODE", "PHB", "PXB", "PIX", "NV2"]
    assert sorted(words, key=rank) == words[::-1]
    assert bonded_links("NV18") == 18
    assert bonded_links("XL4") == 4
    assert bonded_links("NODE") is None


def test_titles_are_short() -> None:
    assert short_title("NVIDIA Corporation GA100 [A100 SXM4 80GB] [10de:20b2] (rev a1)") == "A100 SXM4 80GB"
    assert short_title("Mellanox Technologies MT2910 Family [ConnectX-7]") == "ConnectX-7"
    assert short_title("NVIDIA Corporation Device [10de:1af1] (rev a1)") == "NVIDIA Device 1af1"
    assert short_title("Broadcom / LSI PEX890xx PCIe Gen 5 Switch (rev b0)") == "PEX890xx PCIe Gen 5 Switch"


def test_a_link_is_one_segment(machines: Machines) -> None:
    topology = build(machines["dgx_h100"]())
    first = segments(topology.numa[0].buses[0].nodes)
    assert len(first) == 1
    assert [one.address for one in first[0].bridges] == ["0000:15:01.0", "0000:16:00.0"]
    assert [child.device.key if child.device else "" for child in first[0].children] == ["GPU0", "mlx5_0", "NVMe 1b:00.0"]


def test_loops_and_endless_chains_of_bridges_end() -> None:
    loop = [bridge("0000:01:00.0", 2, 2, parent="0000:02:00.0"), bridge("0000:02:00.0", 1, 1, parent="0000:01:00.0")]
    assert not build(snapshot(*loop, gpu("0000:02:01.0"))).is_empty
    itself = bridge("0000:01:00.0", 1, 1, parent="0000:01:00.0")
    assert build(snapshot(itself)).is_empty
    chain = [bridge(f"{n:04x}:00:00.0", 1, 1, parent=f"{n - 1:04x}:00:00.0" if n else "") for n in range(3000)]
    deep = build(snapshot(*chain, gpu("ffff:00:00.0", parent="0bb7:00:00.0")))
    assert render_text(deep)
    assert render_svg(deep)
    assert len(PciTree({one.address: one for one in chain}).chain("0bb7:00:00.0")) <= MAX_DEPTH + 1


def test_switches_below_switches_are_drawn_in_one_pass() -> None:
    functions = []
    for n in range(40):
        functions.append(bridge(f"{n:04x}:00:00.0", 1, 1, parent=f"{n - 1:04x}:00:00.0" if n else ""))
        functions.append(gpu(f"1{n:03x}:00:00.0", parent=f"{n:04x}:00:00.0"))
    topology = build(snapshot(*functions))
    assert len(topology.gpus) == 40
    assert render_svg(topology).count("<svg") == 41
    assert len(set(re.findall(r"1[0-9a-f]{3}:00:00.0", render_text(topology, width=200)))) == 40


# -- any input ---------------------------------------------------------------------------------------------------------

_addresses = st.builds(
    "{:04x}:{:02x}:{:02x}.{}".format, st.integers(0, 2), st.integers(0, 6), st.integers(0, 3), st.integers(0, 1)
)
_junk = st.text(max_size=12)
_anything = st.one_of(_addresses, _junk)
_functions = st.builds(
    PciDevice,
    address=_anything,
    vendor_id=st.sampled_from([None, 0x10DE, 0x15B3, 0x1D22, 0x8086]),
    class_code=st.sampled_from([None, 0x0604, 0x0302, 0x0300, 0x0680, 0x0207, 0x0200, 0x0108, 0x0403, 0x1200]),
    description=st.one_of(st.none(), _junk),
    parent=st.one_of(st.none(), st.just(""), _anything),
    physical_function=st.one_of(st.none(), _anything),
    secondary_bus=st.one_of(st.none(), st.integers(0, 6)),
    subordinate_bus=st.one_of(st.none(), st.integers(0, 7)),
    numa_node=st.one_of(st.none(), st.integers(-1, 2)),
    port_type=st.sampled_from([None, "root port", "upstream port", "downstream port", "endpoint", "odd"]),
    link_speed_gts=st.sampled_from([None, 8.0, 32.0, 3.3]),
    link_width=st.sampled_from([None, 0, 8, 16]),
    acs_enabled=st.sampled_from([None, [], ["ReqRedir"]]),
    slot=st.one_of(st.none(), _junk),
)
_words = st.sampled_from(["X", "NV1", "NV18", "PIX", "PXB", "PHB", "NODE", "SYS", "XL2", "N/A", "?", "<b>"])
_names = st.sampled_from(["GPU0", "GPU1", "XPU0", "NIC0", "mlx5_0", "CPU0", "<script>"])
_matrices = st.builds(
    TopologyMatrix,
    devices=st.lists(_names, max_size=6),
    links=st.dictionaries(_names, st.dictionaries(_names, _words, max_size=6), max_size=6),
    nic_names=st.dictionaries(st.just("NIC0"), st.sampled_from(["mlx5_0", "a\x00b"])),
    numa_affinity=st.dictionaries(_names, st.sampled_from(["0", "1", "0-1", "N/A", "²"])),
    cpu_affinity=st.dictionaries(_names, _junk),
)
_accelerators = st.builds(
    Accelerator,
    vendor=st.sampled_from(["nvidia", "kunlunxin"]),
    index=st.one_of(st.none(), st.integers(0, 3)),
    pci_address=st.one_of(st.none(), _anything),
    uuid=st.one_of(st.none(), _junk),
    name=st.one_of(st.none(), _junk),
    numa_node=st.one_of(st.none(), st.integers(-1, 2)),
    nvlinks=st.one_of(
        st.none(), st.lists(st.builds(NvLink, id=st.integers(0, 3), state=st.sampled_from([None, "active", "odd"])), max_size=3)
    ),
)
_snapshots = st.builds(
    Snapshot,
    pci=st.one_of(st.none(), st.lists(_functions, max_size=16).map(lambda some: {one.address: one for one in some})),
    accelerators=st.one_of(st.none(), st.lists(_accelerators, max_size=4)),
    rdma=st.one_of(
        st.none(), st.lists(st.builds(RdmaDevice, name=_junk, pci_address=st.one_of(st.none(), _anything)), max_size=3)
    ),
    nics=st.one_of(
        st.none(), st.lists(st.builds(NetInterface, name=_junk, pci_address=st.one_of(st.none(), _anything)), max_size=3)
    ),
    nvswitches=st.one_of(st.none(), st.lists(st.builds(NvSwitch, pci_address=st.one_of(st.none(), _anything)), max_size=3)),
    topology=st.one_of(st.none(), _matrices),
)


@settings(max_examples=400, deadline=None)
@given(_snapshots, st.integers(0, 140), st.booleans(), st.booleans())
def test_no_facts_break_the_drawing(facts: Snapshot, width: int, color: bool, unicode: bool) -> None:
    topology = build(facts)
    assert isinstance(topology, Topology)
    keys = [node.key for node in topology.walk()]
    assert len(keys) == len(set(keys))
    assert render_text(topology, width=width, color=color, unicode=unicode) is not None
    assert render_svg(topology).startswith("<svg")
