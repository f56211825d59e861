from pathlib import Path

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from kilter.facts.base import Reason
from mangle import check_references, long_lines, mangled, parse_text

DATA = Path(__file__).parents[2] / "data"
EDR = (DATA / "s034-perfquery-switch-discards" / "perfquery-x.txt").read_text()
TWO = (DATA / "s035-perfquery-switch-clean" / "perfquery-x.txt").read_text()
PLAIN = (DATA / "ibsim-two-spines" / "perfquery.txt").read_text()
WIDE = (DATA / "ibsim-two-spines" / "perfquery-x.txt").read_text()
SUM = (DATA / "ibsim-two-spines" / "perfquery-a.txt").read_text()


def read(text, command=""):
    fragment = parse_text("perfquery", text, command=command)
    check_references(fragment, text)
    return fragment


def test_extended_counters_have_the_names_of_sysfs():
    fragment = read(EDR)
    assert (fragment.unplaced, fragment.notes) == ([], [])
    (node,) = fragment.fabric
    (port,) = node.ports
    assert (node.guid, port.number, port.lid) == ("lid 2052", 1, 2052)
    assert port.counters["port_xmit_discards"] == 20046
    assert port.counters["link_downed"] == 1
    assert port.counters["port_xmit_packets"] == 393094651266
    assert port.counters["VL15_dropped"] == 0
    assert "counterselect" not in port.counters
    assert port.origin["counters/port_xmit_discards"] == (0, 19)


def test_two_ports_of_one_switch_are_one_node():
    (node,) = read(TWO).fabric
    assert [port.number for port in node.ports] == [1, 2]
    assert node.ports[1].counters["port_xmit_wait"] == 36510964


def test_every_port_of_a_simulated_fabric():
    fragment = read(PLAIN)
    assert fragment.unplaced == []
    assert {node.guid: len(node.ports) for node in fragment.fabric} == {
        "lid 1": 8,
        "lid 3": 8,
        "lid 4": 4,
        "lid 5": 4,
        **{f"lid {n}": 1 for n in (2, 6, 7, 8, 9, 10, 11, 12)},
    }


def test_the_sum_over_all_ports_is_port_255():
    (node,) = read(SUM).fabric
    assert [port.number for port in node.ports] == [255]


def test_a_64_bit_value_is_not_overwritten_by_a_32_bit_one():
    title = "# Port {}counters: Lid 4 port 2 (CapMask: 0x1300)\nPortSelect:......................2\nPortXmitData:....................{}\n"
    for text in (
        title.format("extended ", 9000000000) + title.format("", 4294967295),
        title.format("", 7) + title.format("extended ", 9000000000),
    ):
        (node,) = read(text).fabric
        assert node.ports[0].counters["port_xmit_data"] == 9000000000


def test_a_second_reading_is_told():
    title = "# Port counters: Lid 4 port 2 (CapMask: 0x1300)\nSymbolErrorCounter:..............{}\n"
    fragment = read(title.format(3) + title.format(9))
    assert fragment.fabric[0].ports[0].counters == {"symbol_error": 9}
    assert any("more than once" in note for note in fragment.notes)


def test_a_title_without_counters_is_told():
    fragment = read(EDR + "# Port extended counters: Lid 2052 port 2 (CapMask: 0x5300)\n")
    assert any("without a counter" in note for note in fragment.notes)


def test_the_guid_of_the_command_names_the_node():
    (node,) = read(EDR, "perfquery -x -G 0x506b4b03005c2740 1").fabric
    assert node.guid == "506b:4b03:005c:2740"


def test_no_value_is_no_zero():
    fragment = read(
        "# Port counters: Lid 1 port 1 (CapMask: 0x0)\nPortXmitWait:....................N/A\nPortRcvErrors:...................2\n"
    )
    (port,) = fragment.fabric[0].ports
    assert "port_xmit_wait" not in port.counters
    assert port.missing["counters.port_xmit_wait"].reason is Reason.NOT_SUPPORTED


def test_names_of_older_versions():
    fragment = read(
        "# Port counters: Lid 5 port 1\nSymbolErrors:....................7\nLinkRecovers:....................1\nXmtDiscards:.....................3\n"
    )
    assert fragment.fabric[0].ports[0].counters == {"symbol_error": 7, "link_error_recovery": 1, "port_xmit_discards": 3}


def test_a_paste_without_comment_lines_is_still_read():
    text = "\n".join(line for line in TWO.splitlines() if not line.startswith("#"))
    (node,) = read(text).fabric
    assert [port.number for port in node.ports] == [1, 2]
    assert node.ports[0].lid is None


def test_an_error_of_the_tool_is_told():
    fragment = read("ibwarn: [3] mad_rpc: _do_madrpc failed; dport (Lid 7)\nperfquery: iberror: failed: classportinfo query\n")
    assert len(fragment.notes) == 2


@pytest.mark.parametrize("module_text", [EDR + TWO, SUM + WIDE])
@given(data=st.data())
@settings(max_examples=60, deadline=None)
def test_damaged_texts_raise_nothing(module_text, data):
    text = data.draw(mangled(module_text))
    check_references(parse_text("perfquery", text), text)


@given(
    long_lines(
        "", "# Port counters: Lid 1 port 1\n", "# Port ", "# Port counters: ", "PortSelect:", "# Port counters: Lid 1 port 1\nA:"
    )
)
@settings(max_examples=40, deadline=2000)
def test_long_lines_take_no_time(text):
    parse_text("perfquery", text)
