from pathlib import Path

import pytest
from hypothesis import given, settings

from kilter.facts.base import Reason
from kilter.intake.captures.ethtool import interface_of
from mangle import check_references, long_lines, mangled, parse_text

DATA = Path(__file__).parents[2] / "data"
MLX5 = (DATA / "s062-ethtool-mlx5-rx-overload/ethtool-S.txt").read_text()
ENA = (DATA / "s065-ethtool-ena-bw-allowance/ethtool-S.txt").read_text()
VIRTIO = (DATA / "host-commands/ethtool-i-virtio.txt").read_text()
SETTINGS = (DATA / "host-commands/ethtool-settings-virtio.txt").read_text()
RINGS = (DATA / "host-commands/ethtool-g-virtio.txt").read_text()

MLX5_DRIVER = """\
driver: mlx5_core
version: 5.15.0-91-generic
firmware-version: 28.39.1002 (MT_0000000838)
expansion-rom-version:
bus-info: 0000:1a:00.0
supports-statistics: yes
supports-test: yes
"""


def read(text, command=""):
    fragment = parse_text("ethtool", text, command=command)
    assert fragment.unplaced == []
    (nic,) = fragment.snapshot.nics
    return nic


def test_mlx5_counters():
    statistics = read(MLX5).statistics
    assert statistics["rx_out_of_buffer"] == 990473555
    assert statistics["rx_steer_missed_packets"] == 1962570491
    assert len(statistics) == len(MLX5.splitlines()) - 1


def test_ena_counters_under_the_name_at_the_prompt():
    nic = read(ENA, "sudo ethtool -S ens5 | head -200")
    assert nic.name == "ens5"
    assert nic.statistics["bw_in_allowance_exceeded"] == 11072


def test_the_name_is_unknown_without_a_prompt():
    assert read(ENA).name == ""


@pytest.mark.parametrize(
    ("command", "name"),
    [
        ("ethtool -S eth0", "eth0"),
        ("ethtool eth0 -S", "eth0"),
        ("for i in *; do ethtool -i $i", "$i"),
        ("ls", ""),
        ("ethtool --version", ""),
    ],
)
def test_the_interface_in_a_command(command, name):
    assert interface_of(command) == name


def test_driver_and_firmware():
    nic = read(MLX5_DRIVER, "ethtool -i enp26s0np0")
    assert (nic.name, nic.driver, nic.firmware, nic.pci_address) == (
        "enp26s0np0",
        "mlx5_core",
        "28.39.1002 (MT_0000000838)",
        "0000:1a:00.0",
    )


def test_an_empty_firmware_version_is_not_supported():
    nic = read(VIRTIO)
    assert (nic.driver, nic.firmware, nic.pci_address) == ("virtio_net", None, "0000:00:03.0")
    assert nic.missing["firmware"].reason is Reason.NOT_SUPPORTED


def test_per_queue_counters_with_brackets_and_strings():
    nic = read(
        "NIC statistics:\n     [0]: rx_ucast_packets: 17\n     tx_queue_0_bytes: 5\n     fw_state: running\n     temp: -3\n"
    )
    assert nic.statistics == {"[0]: rx_ucast_packets": 17, "tx_queue_0_bytes": 5, "temp": -3}


def test_unknown_speed_is_missing():
    nic = read(SETTINGS)
    assert (nic.name, nic.speed_mbps, nic.carrier) == ("eth0", None, True)
    assert nic.missing["speed_mbps"].reason is Reason.NOT_SUPPORTED


def test_speed_and_rings():
    assert read(SETTINGS.replace("Unknown!", "400000Mb/s")).speed_mbps == 400000
    nic = read(RINGS)
    assert (nic.rx_ring, nic.tx_ring) == (256, 256)


def test_rings_in_force_are_taken_and_not_the_maximum():
    nic = read(
        "Ring parameters for ens5:\nPre-set maximums:\nRX:\t\t8192\nTX:\t\t8192\n"
        "Current hardware settings:\nRX:\t\t1024\nRX Mini:\tn/a\nTX:\t\tn/a\n"
    )
    assert (nic.rx_ring, nic.tx_ring) == (1024, None)


def test_pause_frames():
    nic = read("Pause parameters for ens5:\nAutonegotiate:\toff\nRX:\t\ton\nTX:\t\toff\n")
    assert (nic.pause_rx, nic.pause_tx) == (True, False)


@settings(max_examples=80, deadline=None)
@given(mangled(ENA) | mangled(MLX5_DRIVER) | mangled(SETTINGS + RINGS))
def test_no_damage_makes_the_parser_fail(text):
    check_references(parse_text("ethtool", text), text)


STARTS = [
    "NIC statistics:\n     a: ",
    "driver: ",
    "Settings for a:\n\tSpeed: ",
    "Ring parameters for a:\nCurrent hardware settings:\nRX: ",
]


@settings(max_examples=60, deadline=None)
@given(long_lines(*STARTS))
def test_lines_of_any_length_are_survived(text):
    parse_text("ethtool", text)
