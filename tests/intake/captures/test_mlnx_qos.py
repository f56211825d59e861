import pytest
from hypothesis import given, settings

from kilter.intake.captures.mlnx_qos import interface_of
from mangle import check_references, long_lines, mangled, parse_text

TEXT = """DCBX mode: OS controlled
Priority trust state: dscp
dscp2prio mapping:
\tprio:0 dscp:07,06,05,04,03,02,01,00,
\tprio:3 dscp:31,30,29,28,27,26,25,24,
default priority:
Receive buffer size (bytes): 130944,130944,0,0,0,0,0,0,max_buffer_size=262016
Cable len: 7
PFC configuration:
\tpriority    0   1   2   3   4   5   6   7
\tenabled     0   0   0   1   0   0   0   0
\tbuffer      0   0   0   1   0   0   0   0
tc: 0 ratelimit: unlimited, tsa: vendor
\t priority:  1
tc: 1 ratelimit: unlimited, tsa: ets, bw: 40%
\t priority:  0
"""


def read(text, command="mlnx_qos -i ens1f0"):
    fragment = parse_text("mlnx_qos", text, command=command)
    check_references(fragment, text)
    return fragment


def test_lossless_priority_and_trust():
    fragment = read(TEXT)
    assert (fragment.unplaced, fragment.notes) == ([], [])
    (nic,) = fragment.snapshot.nics
    assert (nic.name, nic.pfc_priorities, nic.trust) == ("ens1f0", [3], "dscp")


def test_no_lossless_priority_is_an_empty_list():
    assert read(TEXT.replace("1   0   0   0   0\n\tbuffer", "0   0   0   0   0\n\tbuffer")).snapshot.nics[0].pfc_priorities == []


def test_a_table_without_its_row_is_missing():
    fragment = read("\n".join(TEXT.splitlines()[:10]))
    assert fragment.snapshot.nics[0].pfc_priorities is None
    assert any("cut short" in note for note in fragment.notes)


def test_a_row_of_another_length_is_not_guessed():
    fragment = read(TEXT.replace("enabled     0   0   0   1   0   0   0   0", "enabled     0   0   0   1"))
    assert fragment.snapshot.nics[0].pfc_priorities is None
    assert fragment.unplaced


@pytest.mark.parametrize(
    ("command", "name"),
    [("mlnx_qos -i eth2 --trust dscp", "eth2"), ("sudo mlnx_qos --interface=eth3", "eth3"), ("mlnx_qos", ""), ("ls -i x", "")],
)
def test_the_interface_in_a_command(command, name):
    assert interface_of(command) == name


def test_roce_v1_of_the_connection_manager_is_told():
    assert read("IB/RoCE v1\n", "cma_roce_mode -d mlx5_0 -p 1").notes
    fragment = read("RoCE v2\n", "cma_roce_mode -d mlx5_0 -p 1")
    assert (fragment.notes, fragment.unplaced, fragment.snapshot.nics) == ([], [], None)
    assert read("106\n", "cma_roce_tos -d mlx5_0").unplaced == []
    assert read("IB/RoCE v1\n", "cat types/0").unplaced == [(1, "IB/RoCE v1")]


@given(mangled(TEXT))
@settings(max_examples=100, deadline=None)
def test_damaged_texts_raise_nothing(text):
    check_references(parse_text("mlnx_qos", text), text)


@given(long_lines("", "PFC configuration:\npriority ", "PFC configuration:\nenabled 0 ", "Priority trust state: "))
@settings(max_examples=40, deadline=2000)
def test_long_lines_take_no_time(text):
    parse_text("mlnx_qos", text)
