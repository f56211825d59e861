"""The texts here are written after the public parsers named in the module; no whole output of ibdiagnet was at hand."""

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from mangle import check_references, long_lines, mangled, parse_text

CSV = """\
START_NODES
NodeDesc,NumPorts,NodeType,ClassVersion,BaseVersion,SystemImageGUID,NodeGUID,PortGUID,DeviceID,PartitionCap,revision,VendorID,LocalPortNum
"MF0;leaf01:MQM9700/U1",65,2,1,1,0x2c5eab0300000001,0x2c5eab0300000001,0x2c5eab0300000001,54002,8,160,713,0
"node01 mlx5_0",1,1,1,1,0xa088c20300000010,0xa088c20300000010,0xa088c20300000010,4129,128,0,713,1
END_NODES

START_PORTS
NodeGuid,PortGuid,PortNum,LID,LinkWidthActv,LinkSpeedActv,PortPhyState,PortState
0x2c5eab0300000001,0x2c5eab0300000001,1,0,2,2048,5,4
0x2c5eab0300000001,0x2c5eab0300000001,2,0,2,2048,2,1
0xa088c20300000010,0xa088c20300000010,1,12,2,2048,5,4
END_PORTS

START_LINKS
NodeGuid1,PortNum1,NodeGuid2,PortNum2
0x2c5eab0300000001,1,0xa088c20300000010,1
END_LINKS

START_PM_INFO
NodeGUID,PortNumber,LinkDownedCounter,SymbolErrorCounter,PortRcvErrors,LinkDownedCounterExt,SymbolErrorCounterExt,PortXmitPktsExtended,PortXmitWaitExt
0x2c5eab0300000001,1,255,65535,0,300,4000000,1000,10
0xa088c20300000010,1,0,0,0,0,N/A,1000,10
END_PM_INFO

START_CABLE_INFO
NodeGuid,PortNum,Vendor
0x1,1,"any
END_CABLE_INFO
"""
DUMP = """\
Ty : # : #IB : GUID : LID : Sta : PhysSta : LWA : LSA : Conn LID (#) : FEC mode : RTR : Raw BER : Effective BER : Symbol BER : Symbol Err : Effective Err : Node Desc
SW : sw1p1 : 1 : 0x2c5eab0300000001 : 10 (0xa) : ACT : LINK UP : 4x : 100 : 12 (0xc) : STND-RS-FEC : NO-RTR : 1e-07 : 2e-13 : 3e-11 : 4 : 5 : "MF0;leaf01:MQM9700/U1"
CA : 1 : 1 : 0xa088c20300000010 : 12 (0xc) : ACT : LINK UP : 4x : 100 : 10 (0xa) : STND-RS-FEC : NO-RTR : N/A : 2e-13 : N/A : 0 : 0 : "node01 mlx5_0"
"""
# lines of logs that users and tools published
LOG = """\
Port Counters
-I- Ports counters retrieving finished successfully
-E- S7cfe900300a51030/N7cfe900300a51030/P20 - "symbol_error_counter" increased during the run (difference value=117,difference allowed threshold=1)
-E- r9i1n24/U1/P1 - "port_rcv_remote_physical_errors" increased during the run (difference value=3,difference allowed threshold=1)
-E- Link: S0002c90300688830/N0002c90300688830/P20<-->S0002c90300165e63/N0002c90300165e60/P1 - Unexpected actual link speed 2.5 (enable_speed1="2.5 or 5 or 10", enable_speed2="2.5 or 5 or 10" therefore final speed should be 10)
-E- Links Speed Check finished with errors
"""


def read(text):
    fragment = parse_text("ibdiagnet", text)
    check_references(fragment, text)
    return fragment


def ports(fragment, guid):
    (node,) = [n for n in fragment.fabric if n.guid == guid]
    return {port.number: port for port in node.ports}


LEAF, HOST = "2c5e:ab03:0000:0001", "a088:c203:0000:0010"


def test_sections_of_db_csv():
    fragment = read(CSV)
    assert (fragment.unplaced, fragment.notes) == ([], [])
    leaf = fragment.fabric[0]
    assert (leaf.name, leaf.kind, leaf.missing) == ("MF0;leaf01:MQM9700/U1", "switch", {})
    first = ports(fragment, LEAF)[1]
    assert (first.width, first.speed, first.state, first.physical_state) == ("4x", "NDR", "ACTIVE", "LinkUp")
    assert (first.remote_guid, first.remote_port) == (HOST, 1)
    assert (ports(fragment, LEAF)[2].state, ports(fragment, LEAF)[2].speed) == ("DOWN", None)
    assert ports(fragment, HOST)[1].lid == 12


def test_wide_counters_win_and_no_value_is_no_zero():
    fragment = read(CSV)
    counters = ports(fragment, LEAF)[1].counters
    assert (counters["symbol_error"], counters["link_downed"], counters["port_xmit_packets"]) == (4_000_000, 300, 1000)
    swapped = CSV.replace("LinkDownedCounter,Symbol", "X,Symbol").replace("LinkDownedCounterExt", "LinkDownedCounter")
    assert ports(read(swapped), LEAF)[1].counters["link_downed"] == 300
    assert ports(fragment, HOST)[1].counters["symbol_error"] == 0  # the narrow one; the wide one is N/A


def test_bit_error_rates():
    fragment = read(DUMP)
    assert fragment.unplaced == []
    assert ports(fragment, LEAF)[1].ber == {"raw": 1e-07, "effective": 2e-13, "symbol": 3e-11}
    assert ports(fragment, HOST)[1].ber == {"effective": 2e-13}
    assert fragment.fabric[0].name == "MF0;leaf01:MQM9700/U1"


def test_lines_of_the_log():
    fragment = read(LOG)
    assert fragment.unplaced == []
    assert ports(fragment, "7cfe:9003:00a5:1030")[20].growth == {"symbol_error": 117}
    assert ports(fragment, "r9i1n24/U1")[1].growth == {"port_rcv_remote_physical_errors": 3}
    slow = ports(fragment, "0002:c903:0068:8830")[20]
    assert (slow.speed, slow.speed_possible, slow.remote_guid, slow.remote_port) == ("SDR", "QDR", "0002:c903:0016:5e60", 1)
    assert any("finished with errors" in note for note in fragment.notes)


def test_a_section_without_end_is_told():
    assert any("cut short" in note for note in read(CSV[: CSV.index("END_LINKS")]).notes)


@pytest.mark.parametrize("whole", [CSV, DUMP, LOG])
@given(data=st.data())
@settings(max_examples=60, deadline=None)
def test_damaged_texts_raise_nothing(whole, data):
    text = data.draw(mangled(whole))
    check_references(parse_text("ibdiagnet", text), text)


@given(
    long_lines(
        "", "START_PM_INFO\nNodeGUID,PortNumber\n", "-E- ", "-E- Link: S", "Ty : ", DUMP.split("\n")[0] + "\nSW : ", "START_"
    )
)
@settings(max_examples=40, deadline=2000)
def test_long_lines_take_no_time(text):
    parse_text("ibdiagnet", text)
