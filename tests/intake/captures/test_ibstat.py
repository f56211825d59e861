from pathlib import Path

from hypothesis import given, settings

from mangle import check_references, long_lines, mangled, parse_text

DATA = Path(__file__).parents[2] / "data/ib-tools"
IBSTAT = (DATA / "ibstat.txt").read_text()
IBSTATUS = (DATA / "ibstatus.txt").read_text()


def ports(text):
    fragment = parse_text("ibstat", text)
    assert fragment.unplaced == []
    return {device.name: port for device in fragment.snapshot.rdma for port in device.ports}


def test_states_are_spelt_as_sysfs_spells_them():
    states = {name: (port.state, port.physical_state) for name, port in ports(IBSTAT).items()}
    assert states == {
        "mlx5_0": ("ACTIVE", "LinkUp"),
        "mlx5_1": ("INIT", "LinkUp"),
        "mlx5_2": ("DOWN", "Polling"),
        "mlx5_3": ("ACTIVE", "LinkUp"),
        "mlx5_4": ("DOWN", "Disabled"),
    }


def test_ibstat_and_ibstatus_agree():
    for name, port in ports(IBSTATUS).items():
        other = ports(IBSTAT)[name]
        for field in ("state", "physical_state", "rate_gbps", "lid", "sm_lid", "link_layer"):
            assert getattr(port, field) == getattr(other, field), (name, field)
    assert ports(IBSTATUS)["mlx5_0"].rate_text == "4X NDR"


def test_device_facts():
    device = parse_text("ibstat", IBSTAT).snapshot.rdma[0]
    assert (device.name, device.hca_type, device.firmware) == ("mlx5_0", "MT4129", "28.39.1002")
    assert device.node_guid == "a088:c203:00e3:0001"
    assert (device.ports[0].rate_gbps, device.ports[0].lid, device.ports[0].sm_lid) == (400, 48, 1)


def test_the_short_form_shows_devices_without_ports_and_says_so():
    fragment = parse_text("ibstat", (DATA / "ibstat-s.txt").read_text())
    assert len(fragment.snapshot.rdma) == 5
    assert any("no port of mlx5_0" in note for note in fragment.notes)


def test_the_fabric_simulator_is_read_too():
    fragment = parse_text("ibstat", (DATA / "ibstat-ibsim.txt").read_text())
    assert fragment.unplaced == []
    assert fragment.snapshot.rdma[0].ports[0].state == "INIT"


def test_an_h100_server_with_one_port_polling_and_one_disabled():
    text = (DATA.parent / "gpud-ibstat-h100-some-down/ibstat.txt").read_text()
    down = {name: port.physical_state for name, port in ports(text).items() if port.state != "ACTIVE"}
    assert down == {"mlx5_11": "Polling", "mlx5_5": "Disabled"}
    assert len(ports(text)) == 12


def test_ibpanic_is_told():
    fragment = parse_text(
        "ibstat", IBSTAT + "ibpanic: [1234] main: stat of IB device 'mlx5_9' failed: No such file or directory\n"
    )
    assert any("mlx5_9" in note for note in fragment.notes)
    assert fragment.unplaced == []


def test_a_rate_with_words_and_an_unknown_state_are_kept():
    text = IBSTAT.replace("Rate: 400", "Rate: 400 Gb/s (NDR)").replace("State: Active", "State: Sleeping")
    port = ports(text)["mlx5_0"]
    assert (port.rate_gbps, port.rate_text, port.state) == (400, "NDR", "Sleeping")


def test_trailing_foreign_lines_are_not_lost():
    fragment = parse_text("ibstat", IBSTAT + "\nmlx5_0 port 1 ==> ibp24s0 (Up)\n")
    assert [text for _, text in fragment.unplaced] == ["mlx5_0 port 1 ==> ibp24s0 (Up)"]


@settings(max_examples=80, deadline=None)
@given(mangled(IBSTAT) | mangled(IBSTATUS))
def test_no_damage_makes_the_parser_fail(text):
    check_references(parse_text("ibstat", text), text)


STARTS = ["CA 'a'\n\tPort 1:\n\t\tRate: ", "CA 'a'\n\tPort ", "CA '", "CA 'a'\n\tPort 1:\n\t\tBase lid: "]


@settings(max_examples=60, deadline=None)
@given(long_lines(*STARTS))
def test_lines_of_any_length_are_survived(text):
    parse_text("ibstat", text)
