from pathlib import Path

from hypothesis import given, settings

from kilter.facts.base import Reason
from mangle import check_references, long_lines, mangled, parse_text

VERBOSE = (Path(__file__).parents[2] / "data/ib-tools/ibv_devinfo-v.txt").read_text()


def read(text=VERBOSE):
    fragment = parse_text("ibv_devinfo", text)
    assert fragment.unplaced == []
    return {device.name: device for device in fragment.snapshot.rdma}


def test_a_device_with_its_port():
    device = read()["mlx5_0"]
    assert (device.firmware, device.board_id, device.hca_type, device.node_guid) == (
        "28.39.1002",
        "MT_0000000838",
        "MT4129",
        "a088:c203:00e3:0001",
    )
    port = device.ports[0]
    assert (port.state, port.physical_state, port.link_layer) == ("ACTIVE", "LinkUp", "InfiniBand")
    assert (port.active_mtu, port.max_mtu, port.lid, port.sm_lid) == (4096, 4096, 48, 1)


def test_the_rate_is_lanes_times_lane_speed():
    assert read()["mlx5_0"].ports[0].rate_gbps == 400
    assert read()["mlx5_bond_0"].ports[0].rate_gbps == 100


def test_an_invalid_speed_is_missing_and_not_zero():
    port = read()["mlx5_1"].ports[0]
    assert (port.state, port.physical_state, port.rate_gbps) == ("DOWN", "Disabled", None)
    assert port.missing["rate_gbps"].reason is Reason.NOT_SUPPORTED


def test_roce_gids_carry_the_type_as_sysfs_spells_it():
    gids = read()["mlx5_bond_0"].ports[0].gids
    assert [(gid.index, gid.type) for gid in gids] == [(0, "IB/RoCE v1"), (1, "RoCE v2"), (2, "IB/RoCE v1"), (3, "RoCE v2")]
    assert gids[3].gid == "::ffff:10.0.0.3"
    assert read()["mlx5_0"].ports[0].gids[0].type == ""


def test_the_plain_form_has_no_rate():
    keep = [
        line
        for line in VERBOSE.splitlines()
        if not any(word in line for word in ("active_width", "active_speed", "phys_state", "GID["))
    ]
    port = read("\n".join(keep))["mlx5_0"].ports[0]
    assert (port.rate_gbps, port.gids, port.state) == (None, None, "ACTIVE")


def test_no_devices_is_an_answer():
    fragment = parse_text("ibv_devinfo", "No IB devices found\n")
    assert fragment.snapshot.rdma == []


@settings(max_examples=80, deadline=None)
@given(mangled(VERBOSE))
def test_no_damage_makes_the_parser_fail(text):
    check_references(parse_text("ibv_devinfo", text), text)


STARTS = [
    "hca_id: a\n\tport: 1\n\t\tGID[ 0]: ",
    "hca_id: a\n\tport: ",
    "hca_id: a\n\tport: 1\n\t\tactive_speed: ",
    "hca_id: a\n\tvendor_id: ",
]


@settings(max_examples=60, deadline=None)
@given(long_lines(*STARTS))
def test_lines_of_any_length_are_survived(text):
    parse_text("ibv_devinfo", text)
