from pathlib import Path

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from mangle import check_references, long_lines, mangled, parse_text

DATA = Path(__file__).parents[2] / "data" / "ibsim-lossy-links"
PLAIN = (DATA / "ibqueryerrors.txt").read_text()
DETAILS = (DATA / "ibqueryerrors-details.txt").read_text()
LINKS = (DATA / "ibqueryerrors-r.txt").read_text()
COUNTERS = (DATA / "ibqueryerrors-counters.txt").read_text()
# from a report on the linux-rdma mailing list of March 2021; names and GUIDs changed
REPORTED = """\
Errors for "host01 mlx4_0"
   GUID 0x2c90300000031 port 1: [VL15Dropped == 14] [PortXmitWait == 4294967295]
   GUID 0x2c90300000032 port 2: [PortXmitWait == 2]
Errors for 0x2c90300000090 "MF0;ib4:SX6036/U1"
   GUID 0x2c90300000090 port ALL: [LinkErrorRecoveryCounter == 15] [LinkDownedCounter == 48]
   GUID 0x2c90300000090 port 0: [PortXmitWait == 76959324]
   GUID 0x2c90300000090 port 5: [SymbolErrorCounter == 65535] [LinkErrorRecoveryCounter == 8] [LinkDownedCounter == 2] [PortXmitDiscards == 649]

## Summary: 4 nodes checked, 4 bad nodes found
##          43 ports checked, 14 ports have errors beyond threshold
## Thresholds:
## Suppressed:
"""


def read(text):
    fragment = parse_text("ibqueryerrors", text)
    check_references(fragment, text)
    return fragment


def port(fragment, name, number):
    (node,) = [n for n in fragment.fabric if name in (n.name, n.guid)]
    return next(p for p in node.ports if p.number == number)


def test_counters_have_the_names_of_sysfs():
    fragment = read(PLAIN)
    assert fragment.unplaced == []
    bad = port(fragment, "leaf1", 9)
    assert (bad.counters["symbol_error"], bad.counters["link_downed"]) == (5000, 9)
    assert bad.origin["counters/symbol_error"] == (0, 16)
    assert any("2 queries failed" in note for note in fragment.notes)


def test_an_adapter_with_two_ports_is_one_node():
    fragment = read(REPORTED)
    host, switch = fragment.fabric
    assert (host.name, host.guid, host.kind) == ("host01 mlx4_0", "0002:c903:0000:0031", None)
    assert [(p.number, p.guid) for p in host.ports] == [(1, None), (2, "0002:c903:0000:0032")]
    assert (switch.kind, [p.number for p in switch.ports]) == ("switch", [255, 0, 5])


def test_what_is_not_shown_is_zero_only_where_nothing_was_left_out():
    assert port(read(PLAIN), "leaf1", 9).counters["port_rcv_errors"] == 0
    assert "port_xmit_wait" not in port(read(LINKS), "leaf1", 9).counters  # suppressed
    cut = PLAIN.split("## Summary")[0]
    assert "port_rcv_errors" not in port(read(cut), "leaf1", 9).counters
    limited = PLAIN.replace("## Thresholds: ", "## Thresholds: [LinkDownedCounter = 10]")
    counters = port(read(limited), "leaf1", 2).counters
    assert "link_downed" not in counters
    assert counters["symbol_error"] == 0


def test_data_counters_and_human_numbers():
    assert port(read(DETAILS), "leaf1", 9).counters["port_xmit_packets"] == 260
    plain = port(read(COUNTERS), "leaf2", 1).counters
    assert plain["port_rcv_packets"] == 38
    assert "symbol_error" not in plain
    (node,) = read('Errors for "x"\n   GUID 0x1 port 1: [PortXmitData == 19892634015130 (  infPB)]\n').fabric
    assert node.ports[0].counters == {"port_xmit_data": 19892634015130}


def test_links_of_the_ports():
    found = port(read(LINKS), "leaf1", 2)
    assert (found.remote_name, found.remote_port, found.speed, found.state) == ("node02", 1, "SDR", "ACTIVE")
    assert port(read(LINKS), "spine2", 4).state == "DOWN"
    assert port(read(LINKS), "node03", 1).lid == 7


def test_lines_without_their_node():
    fragment = read("   GUID 0x200000 port 9: [SymbolErrorCounter == 5000]\n   GUID 0x200000 port 10: [LinkDownedCounter == 5]\n")
    (node,) = fragment.fabric
    assert [p.number for p in node.ports] == [9, 10]


@pytest.mark.parametrize("whole", [PLAIN, DETAILS + LINKS, REPORTED, COUNTERS])
@given(data=st.data())
@settings(max_examples=60, deadline=None)
def test_damaged_texts_raise_nothing(whole, data):
    text = data.draw(mangled(whole))
    check_references(parse_text("ibqueryerrors", text), text)


@given(
    long_lines(
        "", "Errors for ", 'Errors for 0x1 "', "   GUID 0x1 port 1: [A == ", "   GUID 0x1 port 1: [A == 1 (", "## Thresholds: "
    )
)
@settings(max_examples=40, deadline=2000)
def test_long_lines_take_no_time(text):
    parse_text("ibqueryerrors", text)
