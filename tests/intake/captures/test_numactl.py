from pathlib import Path

from hypothesis import given, settings

from kilter.intake.captures.cpu_list import to_list_format
from mangle import check_references, long_lines, mangled, parse_text

ONE_NODE = (Path(__file__).parents[2] / "data/host-commands/numactl.txt").read_text()

TWO_NODES = """\
available: 2 nodes (0-1)
node 0 cpus: 0 1 2 3 8 9 10 11
node 0 size: 515712 MB
node 0 free: 498321 MB
node 1 cpus: 4 5 6 7 12 13 14 15
node 1 size: 516088 MB
node 1 free: 501220 MB
node distances:
node   0   1
  0:  10  21
  1:  21  10
"""

GRACE = """\
available: 3 nodes (0-1,9)
node 0 cpus: 0 1 2 3
node 0 size: 490000 MB
node 0 free: 480000 MB
node 1 cpus:
node 1 size: 97280 MB
node 1 free: 97000 MB
node 9 cpus:
node 9 size: <not available>
node distances:
node   0   1   9
  0:  10  80  80
  1:  80  10  255
  9:  80  255  10
"""


def nodes(text):
    fragment = parse_text("numactl", text)
    assert fragment.unplaced == []
    return fragment.snapshot.cpu.numa


def test_two_nodes_with_memory_and_distances():
    first, second = nodes(TWO_NODES)
    assert (first.cpus, second.cpus) == ("0-3,8-11", "4-7,12-15")
    assert first.memory_total_bytes == 515712 << 20
    assert second.memory_free_bytes == 501220 << 20
    assert (first.distances, second.distances) == ([10, 21], [21, 10])


def test_a_real_guest():
    (node,) = nodes(ONE_NODE)
    assert (node.cpus, node.distances) == ("0-1", [10])


def test_memory_only_nodes_have_an_empty_cpu_list():
    assert [(node.id, node.cpus) for node in nodes(GRACE)] == [(0, "0-3"), (1, ""), (9, "")]
    assert nodes(GRACE)[2].memory_total_bytes is None


def test_a_cut_listing_is_noted():
    fragment = parse_text("numactl", "\n".join(TWO_NODES.splitlines()[:3]))
    assert any("2 NUMA nodes are announced, 1 are shown" in note for note in fragment.notes)


def test_list_format():
    assert to_list_format([5, 1, 2, 3, 7]) == "1-3,5,7"
    assert to_list_format([]) == ""


@settings(max_examples=80, deadline=None)
@given(mangled(TWO_NODES) | mangled(GRACE))
def test_no_damage_makes_the_parser_fail(text):
    check_references(parse_text("numactl", text), text)


STARTS = ["node 0 cpus: ", "node 0 size: ", "node distances:\n  0: ", "available: "]


@settings(max_examples=60, deadline=None)
@given(long_lines(*STARTS))
def test_lines_of_any_length_are_survived(text):
    parse_text("numactl", text)
