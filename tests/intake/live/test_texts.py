"""sysfs as pasted text and as a map of paths: the same facts as from the host itself."""

from __future__ import annotations

import json
from pathlib import Path

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from kilter.facts.base import Reason, Source
from kilter.facts.case import Snapshot
from kilter.facts.network import RdmaDevice
from kilter.intake.live import read_tree
from kilter.intake.tree import TextTree

DATA = Path(__file__).parents[2] / "data"


def read(tree: TextTree) -> Snapshot:
    snapshot = Snapshot(sources=[Source(name=tree.name, tool="sysfs")])
    read_tree(tree, snapshot)
    return snapshot


def grep_lines(text: str) -> TextTree:
    tree = TextTree("paste.txt")
    for number, line in enumerate(text.splitlines(), 1):
        path, arrow, target = line.partition(" -> ")
        if arrow:
            tree.add_link(path, target, number)
        else:
            head, _, value = line.partition(":")
            tree.add(head, value, number)
    return tree


def paths(case: str) -> TextTree:
    tree = TextTree("sysfs.json")
    content = json.loads((DATA / case / "sysfs.json").read_text())
    for number, (path, value) in enumerate(content.items(), 2):
        tree.add(path, value, number)
    return tree


def by_name(snapshot: Snapshot) -> dict[str, RdmaDevice]:
    assert snapshot.rdma is not None
    return {device.name: device for device in snapshot.rdma}


def test_s017_saturated_link_downed_is_read_with_its_line() -> None:
    text = (DATA / "s017-h100-ib-linkdowned-saturated" / "sysfs-class-infiniband.txt").read_text()
    snapshot = read(grep_lines(text))
    devices = by_name(snapshot)
    assert len(devices) == 9
    port = devices["mlx5_1"].ports[0]
    assert port.counters["link_downed"] == 255
    ref = port.ref("counters.link_downed")
    assert ref is not None
    assert text.splitlines()[ref[1] - 1] == "/sys/class/infiniband/mlx5_1/ports/1/counters/link_downed:255"
    assert {device.ports[0].counters["link_downed"] for name, device in devices.items() if name != "mlx5_1"} == {0}
    assert (port.state, port.physical_state, port.rate_gbps, port.rate_text) == ("ACTIVE", "LinkUp", 400.0, "4X NDR")
    assert (devices["mlx5_0"].firmware, devices["mlx5_0"].hca_type) == ("28.41.1000", "MT4129")
    assert "lifespan" not in port.hw_counters
    assert port.hw_counters["roce_adp_retrans"] == 3
    assert port.gids is None
    assert devices["mlx5_0"].pci_address is None
    # What the paste does not hold is not collected, and not absent.
    assert snapshot.pci is None
    assert snapshot.nics is None
    assert snapshot.cpu.sockets is None
    assert snapshot.kernel.modules is None
    assert snapshot.software.driver_version is None
    assert len(snapshot.sources) == 1


def test_s047_all_ports_at_edr_below_the_pci_functions() -> None:
    snapshot = read(paths("s047-ib-8x-edr-instead-of-hdr"))
    devices = by_name(snapshot)
    assert len(devices) == 8
    assert {device.ports[0].rate_text for device in devices.values()} == {"4X EDR"}
    assert devices["mlx5_8"].pci_address == "0000:ba:00.0"
    assert devices["mlx5_8"].ports[0].netdev == "ib6"
    assert snapshot.nics is not None
    assert {nic.speed_mbps for nic in snapshot.nics} == {200000}
    # No file of the functions themselves was captured: a list of eight would look like a whole machine without GPUs.
    assert snapshot.pci is None


def test_s047_masked_contents_are_missing_and_not_values() -> None:
    device = by_name(read(paths("s047-ib-8x-edr-instead-of-hdr")))["mlx5_8"]
    assert device.firmware is None
    assert device.missing["firmware"].reason is Reason.NOT_COLLECTED
    assert device.ports[0].lid is None
    assert device.node_desc == "node1720 HCA-11"


def test_s048_interface_down_on_an_active_port() -> None:
    snapshot = read(paths("s048-ib-netdev-down-port-active"))
    assert snapshot.nics is not None
    nic = next(nic for nic in snapshot.nics if nic.name == "ib4")
    assert (nic.operstate, nic.carrier_down_count, nic.pci_address) == ("down", 49, "0000:8d:00.0")
    assert nic.carrier is None
    assert nic.speed_mbps is None
    assert nic.missing["carrier"].reason is Reason.NOT_READABLE
    port = next(device.ports[0] for device in by_name(snapshot).values() if device.pci_address == "0000:8d:00.0")
    assert (port.state, port.netdev) == ("ACTIVE", "ib4")


def test_s049_two_ports_stuck_in_init() -> None:
    devices = by_name(read(paths("s049-ib-two-ports-stuck-init")))
    assert {name for name, device in devices.items() if device.ports[0].state == "INIT"} == {"mlx5_6", "mlx5_8"}
    assert {device.ports[0].physical_state for device in devices.values()} == {"LinkUp"}
    assert devices["mlx5_8"].firmware == "20.31.2354"


def test_s050_good_node_also_tells_links_of_functions_by_bus() -> None:
    snapshot = read(paths("s050-ib-8x-hdr-good"))
    assert {device.ports[0].rate_text for device in by_name(snapshot).values()} == {"4X HDR"}
    assert snapshot.pci is not None
    assert (snapshot.pci["0000:cc:00.0"].link_speed_gts, snapshot.pci["0000:cc:00.0"].link_width) == (16.0, 16)
    assert snapshot.pci["0000:e2:00.0"].link_speed_gts == 2.5


def test_gid_table_skips_unused_entries_and_roce_ports_name_their_interface() -> None:
    base = "/sys/class/infiniband/mlx5_bond_0"
    port = f"{base}/ports/1"
    tree = grep_lines(
        f"{base} -> ../../devices/pci0000:20/0000:20:01.0/0000:21:00.0/infiniband/mlx5_bond_0\n"
        f"{base}/fw_ver:22.39.1002\n{port}/state:4: ACTIVE\n{port}/link_layer:Ethernet\n{port}/rate:100 Gb/sec (4X EDR)\n"
        f"{port}/sm_lid:0x0\n{port}/counters/symbol_error:N/A (no PMA)\n{port}/counters/link_downed:2\n"
    )
    for index, gid, kind in (
        (0, "fe80:0000:0000:0000:0e42:a1ff:fe00:0001", "IB/RoCE v1"),
        (3, "0000:0000:0000:0000:0000:ffff:0a00:0005", "RoCE v2"),
        (4, "0000:0000:0000:0000:0000:0000:0000:0000", ""),
    ):
        tree.add(f"{port}/gids/{index}", gid)
        if kind:
            tree.add(f"{port}/gid_attrs/types/{index}", kind)
            tree.add(f"{port}/gid_attrs/ndevs/{index}", "bond0")
    device = by_name(read(tree))["mlx5_bond_0"]
    assert device.pci_address == "0000:21:00.0"
    read_port = device.ports[0]
    assert read_port.gids is not None
    assert [(gid.index, gid.type, gid.netdev) for gid in read_port.gids] == [(0, "IB/RoCE v1", "bond0"), (3, "RoCE v2", "bond0")]
    assert read_port.netdev == "bond0"
    assert read_port.sm_lid == 0
    assert read_port.counters == {"link_downed": 2}
    assert read_port.missing["counters"].reason is Reason.NOT_SUPPORTED


def test_parents_come_from_bus_numbers_where_no_links_are_shown() -> None:
    tree = TextTree("paste")
    for address, code in (("0000:16:01.0", "0x060400"), ("0000:17:00.0", "0x030200"), ("0000:00:1f.0", "0x060100")):
        tree.add(f"/sys/bus/pci/devices/{address}/class", code)
        tree.add(f"/sys/bus/pci/devices/{address}/vendor", "0x10de" if code == "0x030200" else "0x8086")
    tree.add("/sys/bus/pci/devices/0000:16:01.0/secondary_bus_number", "23")
    pci = read(tree).pci
    assert pci is not None
    assert pci["0000:17:00.0"].parent == "0000:16:01.0"
    assert pci["0000:00:1f.0"].parent == ""
    assert pci["0000:16:01.0"].parent is None  # nothing shows what is above bus 16
    assert pci["0000:17:00.0"].driver is None  # a text without links does not say that no driver is bound


def test_devices_below_sys_devices_are_found_too() -> None:
    tree = TextTree("paste")
    tree.add("/sys/devices/pci0000:16/0000:16:01.0/0000:17:00.0/vendor", "0x10de")
    tree.add("/sys/devices/pci0000:16/0000:16:01.0/0000:17:00.0/class", "0x030200")
    tree.add("/sys/devices/pci0000:16/0000:16:01.0/0000:17:00.0/infiniband/mlx5_0/fw_ver", "28.41.1000")
    snapshot = read(tree)
    assert snapshot.pci is not None
    assert snapshot.pci["0000:17:00.0"].parent == "0000:16:01.0"
    assert by_name(snapshot)["mlx5_0"].pci_address == "0000:17:00.0"


def test_nvswitches_are_functions_of_class_0680_by_nvidia() -> None:
    tree = TextTree("paste")
    for address, vendor, code in (("0000:05:00.0", "0x10de", "0x068000"), ("0000:06:00.0", "0x8086", "0x068000")):
        tree.add(f"/sys/bus/pci/devices/{address}/vendor", vendor)
        tree.add(f"/sys/bus/pci/devices/{address}/class", code)
    switches = read(tree).nvswitches
    assert switches is not None
    assert [switch.pci_address for switch in switches] == ["0000:05:00.0"]


@pytest.mark.parametrize("value", ["", "N/A", "Unknown", "4:", ":", "999999999999999999999999", "-1", "\x00\x01"])
def test_odd_contents_never_raise_and_are_never_zero(value: str) -> None:
    tree = TextTree("odd")
    for path in (
        "/sys/class/infiniband/m/ports/1/rate",
        "/sys/class/infiniband/m/ports/1/state",
        "/sys/class/infiniband/m/ports/1/counters/link_downed",
        "/sys/class/infiniband/m/ports/x/state",
        "/sys/class/net/ib0/speed",
        "/sys/class/net/ib0/carrier",
        "/sys/bus/pci/devices/0000:01:00.0/config",
        "/sys/bus/pci/devices/0000:01:00.0/class",
        "/sys/bus/pci/devices/0000:01:00.0/resource",
        "/sys/bus/pci/devices/0000:01:00.0/aer_dev_fatal",
        "/sys/devices/system/cpu/cpu0/topology/thread_siblings_list",
        "/sys/devices/system/cpu/present",
        "/sys/devices/system/node/node0/distance",
        "/proc/meminfo",
        "/proc/modules",
        "/proc/uptime",
        "/proc/driver/nvidia/version",
        "/proc/irq/default_smp_affinity",
    ):
        tree.add(path, value)
    snapshot = read(tree)
    assert snapshot.rdma is not None
    assert snapshot.rdma[0].ports[0].rate_gbps is None


@given(st.integers(0, 34000), st.integers(0, 1 << 30))
@settings(max_examples=40, deadline=None)
def test_any_cut_or_shuffle_of_a_paste_is_read(cut: int, seed: int) -> None:
    import random

    lines = (DATA / "s017-h100-ib-linkdowned-saturated" / "sysfs-class-infiniband.txt").read_text()[:cut].splitlines()
    random.Random(seed).shuffle(lines)
    read(grep_lines("\n".join(line for line in lines if line.startswith("/"))))


@given(
    st.dictionaries(
        st.text("abcdefgh0123456789:./_", max_size=30).map(lambda name: "/sys/bus/pci/devices/0000:01:00.0/" + name),
        st.text(max_size=40),
    )
)
@settings(max_examples=60, deadline=None)
def test_any_names_and_contents_are_read(content: dict[str, str]) -> None:
    tree = TextTree("any")
    for path, value in content.items():
        tree.add(path, value)
    read(tree)
