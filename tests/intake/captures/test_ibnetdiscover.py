from pathlib import Path

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from kilter.facts.base import Reason
from mangle import check_references, long_lines, mangled, parse_text

DATA = Path(__file__).parents[2] / "data"
PORTS = (DATA / "s037-ibnetdiscover-p-parser" / "ibnetdiscover-p.txt").read_text()
RAILS = (DATA / "s038-ibnetdiscover-ndr-rail-gb200" / "ibnetdiscover.txt").read_text()
ALONE = (DATA / "s039-ibnetdiscover-hca-without-link" / "ibnetdiscover.txt").read_text()
SIM = (DATA / "ibsim-two-spines" / "ibnetdiscover.txt").read_text()
SIM_PORTS = (DATA / "ibsim-two-spines" / "ibnetdiscover-p.txt").read_text()
SIM_LIST = (DATA / "ibsim-cable-errors" / "ibnetdiscover-l.txt").read_text()


def read(text):
    fragment = parse_text("ibnetdiscover", text)
    check_references(fragment, text)
    return fragment


def node(fragment, name):
    (found,) = [n for n in fragment.fabric if n.name == name]
    return found


def test_switch_with_its_cables():
    fragment = read(RAILS)
    assert fragment.unplaced == []
    leaf = node(fragment, "MF0;leaf-01:MQM9701/U1")
    assert (leaf.kind, leaf.guid, leaf.device_id) == ("switch", "2c5e:ab03:0000:0002", "0xd2f2")
    ports = {port.number: port for port in leaf.ports}
    assert ports[0].lid == 73
    assert (ports[1].remote_name, ports[1].remote_port, ports[1].width, ports[1].speed) == ("node-001 mlx5_5", 1, "4x", "NDR")
    assert ports[1].lid is None  # the line tells the far end's
    assert ports[35].remote_guid == "2c5e:ab03:0000:0014"
    assert len(ports) == 35


def test_a_listing_that_ends_at_a_node_is_cut_not_a_node_without_link():
    fragment = read(RAILS)
    assert fragment.fabric[-1].missing["ports"].reason is Reason.NOT_COLLECTED
    assert any("cut short" in note for note in fragment.notes)


def test_an_adapter_alone_in_its_own_discovery_has_no_link():
    fragment = read(ALONE)
    (alone,) = fragment.fabric
    assert (alone.kind, alone.name, alone.ports, alone.missing) == ("ca", "node-001 HCA-1", [], {})
    assert (fragment.notes, fragment.unplaced) == ([], [])


def test_list_of_ports_with_and_without_peer():
    fragment = read(PORTS)
    assert (fragment.unplaced, fragment.notes) == ([], [])
    leaf = node(fragment, "ib-i1l1s01")
    ports = {port.number: port for port in leaf.ports}
    assert (ports[10].lid, ports[10].remote_name, ports[10].speed) == (1719, "node0001a HCA-1", "EDR")
    open_port = node(fragment, "ib-i4l1s01").ports[1]
    assert (open_port.width, open_port.speed, open_port.remote_guid) == ("4x", None, None)
    assert open_port.missing["speed"].reason is Reason.NOT_SUPPORTED
    assert open_port.missing["remote_guid"].reason is Reason.ABSENT


def test_adapters_of_the_topology_file_have_their_lid():
    fragment = read(SIM)
    assert fragment.unplaced == []
    (port,) = node(fragment, "node08").ports
    assert (port.lid, port.remote_name, port.remote_port, port.speed) == (12, "leaf2", 4, "SDR")


def test_both_forms_show_the_same_cables():
    def cables(text):
        return {(n.name, p.number, p.remote_name, p.remote_port) for n in read(text).fabric for p in n.ports if p.remote_guid}

    assert cables(SIM) == cables(SIM_PORTS)
    assert len(cables(SIM)) == 32


def test_a_list_of_nodes_knows_no_links():
    fragment = read(SIM_LIST)
    assert (len(fragment.fabric), fragment.unplaced) == (11, [])
    assert all(n.missing["ports"].reason is Reason.NOT_COLLECTED for n in fragment.fabric)


def test_names_with_quotes_and_external_ports():
    fragment = read(
        'switchguid=0xaa(aa)\nSwitch\t36 "S-00000000000000aa"\t\t# "rack "7" leaf" enhanced port 0 lid 3 lmc 0\n'
        '[1][ext 5]\t"S-00000000000000bb"[2][ext 9]\t\t# "spine" lid 4 4xHDR\n'
    )
    (leaf,) = fragment.fabric
    assert leaf.name == 'rack "7" leaf'
    assert (leaf.ports[1].remote_port, leaf.ports[1].speed) == (2, "HDR")


@pytest.mark.parametrize("whole", [PORTS + ALONE, SIM, SIM_LIST + SIM_PORTS[:800]])
@given(data=st.data())
@settings(max_examples=60, deadline=None)
def test_damaged_texts_raise_nothing(whole, data):
    text = data.draw(mangled(whole))
    check_references(parse_text("ibnetdiscover", text), text)


@given(
    long_lines(
        "",
        'Switch 3 "S-aa" ',
        '[1] "S-aa"[2]',
        "CA 1 1 0x1 4x ",
        "SW 1 1 0x1 4x EDR - ",
        "Ca : 0x1 ports 1 devid 0 vendid 0 ",
        '# "',
    )
)
@settings(max_examples=40, deadline=2000)
def test_long_lines_take_no_time(text):
    parse_text("ibnetdiscover", text)
