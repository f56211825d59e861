from pathlib import Path

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from kilter.facts.base import Reason
from mangle import check_references, long_lines, mangled, parse_text

DATA = Path(__file__).parents[2] / "data" / "ibsim-lossy-links"
NODES = (DATA / "iblinkinfo.txt").read_text()
LINES = (DATA / "iblinkinfo-l.txt").read_text()
TOPOLOGY = (DATA / "ibnetdiscover.txt").read_text()
# an EDR cluster's "iblinkinfo | grep Up", as published in a cluster's HPL notes; names and GUIDs changed
GREPPED = """\
      0x0c42a10300000002      4    1[  ] ==( 4X      25.78125 Gbps Active/  LinkUp)==>       2   17[  ] "MF0;SB7700:MSB7700/U1" ( )
           2   17[  ] ==( 4X      25.78125 Gbps Active/  LinkUp)==>       4    1[  ] "node02 HCA-1" ( )
           2   36[  ] ==( 4X      25.78125 Gbps   Init/  LinkUp)==>       3    1[  ] "mgt mlx5_0" ( )
"""


def read(text):
    fragment = parse_text("iblinkinfo", text)
    check_references(fragment, text)
    return fragment


def node(fragment, name):
    (found,) = [n for n in fragment.fabric if n.name == name]
    return found


def test_ports_of_a_switch_by_node():
    fragment = read(NODES)
    assert (fragment.unplaced, fragment.notes) == ([], [])
    leaf = node(fragment, "leaf2")
    ports = {port.number: port for port in leaf.ports}
    assert (leaf.kind, leaf.guid, ports[0].lid) == ("switch", "0000:0000:0020:0001", 3)
    assert (ports[1].width, ports[1].speed, ports[1].state, ports[1].physical_state) == ("4x", "SDR", "ACTIVE", "LinkUp")
    assert (ports[1].remote_name, ports[1].remote_port, ports[1].width_possible, ports[1].speed_possible) == (
        "node05",
        1,
        "12x",
        "QDR",
    )
    assert (ports[5].state, ports[5].physical_state, ports[5].width, ports[5].remote_guid) == ("DOWN", "Polling", None, None)
    assert ports[5].missing["remote_guid"].reason is Reason.ABSENT


def test_both_forms_and_ibnetdiscover_show_the_same_cables():
    def cables(fragment):
        return {
            (n.name, p.number, p.remote_name, p.remote_port, p.width) for n in fragment.fabric for p in n.ports if p.remote_guid
        }

    assert cables(read(NODES)) == cables(read(LINES))
    assert {c[:4] for c in cables(read(NODES))} == {c[:4] for c in cables(parse_text("ibnetdiscover", TOPOLOGY))}


def test_lines_tell_switches_from_adapters():
    kinds = {n.name: n.kind for n in read(LINES).fabric}
    assert {name for name, kind in kinds.items() if kind == "switch"} == {"leaf1", "leaf2", "spine1", "spine2"}
    assert kinds["node01"] == "ca"


def test_lines_without_their_node_are_known_by_lid():
    fragment = read(GREPPED)
    assert fragment.unplaced == []
    adapter, switch = fragment.fabric
    assert (adapter.guid, switch.guid) == ("0c42:a103:0000:0002", "lid 2")
    assert [(p.number, p.speed, p.state) for p in switch.ports] == [(17, "EDR", "ACTIVE"), (36, "EDR", "INIT")]
    assert adapter.ports[0].remote_guid == "lid 2"
    assert switch.ports[0].remote_guid == adapter.guid


@pytest.mark.parametrize(
    ("line", "expected"),
    [
        (
            '  1  2[  ] ==( 4X 10.0 Gbps (FDR10) Active/  LinkUp)==>  3  1[  ] "a "b" c" (Could be FDR10)',
            ("FDR10", "ACTIVE", 'a "b" c'),
        ),
        ('  1  2[ 7] ==( 4X 106.25 Gbps Active/  LinkUp) (HOQ:12 VL_Stall:7)==>  3  1[ 9] "far" ( )', ("NDR", "ACTIVE", "far")),
        ('  1  2[  ] ==( 4X 999 Gbps Armed/  LinkUp)==>  3  1[  ] "far" ( )', ("999 Gbps", "ARMED", "far")),
        ('  1  2[  ] ==( 4X 2.5 Gbps Active/  LinkUp)==>      "Port not available"', ("SDR", "ACTIVE", None)),
        ('  1  2[  ] ==(                Down/Disabled)==>             [  ] "" ( )', (None, "DOWN", None)),
    ],
)
def test_forms_of_a_line(line, expected):
    (found,) = read(line).fabric
    port = next(p for p in found.ports if p.number == 2)
    assert (port.speed, port.state, port.remote_name) == expected


@pytest.mark.parametrize("whole", [NODES, LINES, GREPPED])
@given(data=st.data())
@settings(max_examples=60, deadline=None)
def test_damaged_texts_raise_nothing(whole, data):
    text = data.draw(mangled(whole))
    check_references(parse_text("iblinkinfo", text), text)


@given(long_lines("", "Switch: 0x1 ", '0x1 "', " 1 2[", " 1 2[  ] ==(", ' 1 2[  ] ==( 4X 2.5 Gbps Active/ LinkUp)==> 3 1[  ] "'))
@settings(max_examples=40, deadline=2000)
def test_long_lines_take_no_time(text):
    parse_text("iblinkinfo", text)
