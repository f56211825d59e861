from pathlib import Path

import pytest
from hypothesis import given, settings

from mangle import check_references, long_lines, mangled, parse_text

VERSIONS = Path(__file__).parents[2] / "data/lspci-versions"
TREES = {path.stem: path.read_text() for path in sorted(VERSIONS.glob("t*.txt"))}

PARENTS = {
    "0000:00:00.0": "",
    "0000:00:01.0": "",
    "0000:01:00.0": "0000:00:01.0",
    "0000:02:00.0": "0000:01:00.0",
    "0000:02:01.0": "0000:01:00.0",
    "0000:02:02.0": "0000:01:00.0",
    "0000:03:00.0": "0000:02:00.0",
    "0000:04:00.0": "0000:02:01.0",
    "0000:04:00.1": "0000:02:01.0",
    "0000:80:01.0": "",
    "0000:80:02.0": "",
    "0000:81:00.0": "0000:80:01.0",
    "0001:00:00.0": "",
}


@pytest.mark.parametrize("name", TREES)
def test_the_drawing_gives_each_function_its_parent(name):
    fragment = parse_text("lspci_tree", TREES[name])
    assert fragment.unplaced == []
    assert {address: device.parent for address, device in fragment.snapshot.pci.items()} == PARENTS


def test_bus_numbers_of_bridges_are_kept_even_with_nothing_below():
    pci = parse_text("lspci_tree", TREES["t-3.14.0"]).snapshot.pci
    assert (pci["0000:00:01.0"].secondary_bus, pci["0000:00:01.0"].subordinate_bus) == (1, 6)
    assert (pci["0000:02:02.0"].secondary_bus, pci["0000:02:02.0"].subordinate_bus) == (5, 5)


def test_verbose_trees_describe_the_leaves():
    pci = parse_text("lspci_tree", TREES["tv-3.14.0"]).snapshot.pci
    assert pci["0000:04:00.1"].vendor_id == 0x15B3
    assert "ConnectX-7" in pci["0000:04:00.1"].description


def test_a_tree_that_lost_its_first_column_is_still_read():
    text = "\n".join(line.removeprefix(" ") for line in TREES["t-3.14.0"].splitlines())
    pci = parse_text("lspci_tree", text).snapshot.pci
    assert {address: device.parent for address, device in pci.items()} == PARENTS


def test_lines_without_their_branch_are_not_placed():
    text = "\n".join(TREES["t-3.14.0"].splitlines()[2:])
    fragment = parse_text("lspci_tree", text)
    assert [line for line, _ in fragment.unplaced] == [1, 2, 3, 4, 5]
    assert list(fragment.snapshot.pci) == ["0001:00:00.0"]


@settings(max_examples=80, deadline=None)
@given(mangled(TREES["tv-3.14.0"]) | mangled(TREES["t-3.5.6"]))
def test_no_damage_makes_the_parser_fail(text):
    check_references(parse_text("lspci_tree", text), text)


STARTS = ["-[0000:00]-", "-[0000:00]-+-00.0  ", ""]


@settings(max_examples=60, deadline=None)
@given(long_lines(*STARTS))
def test_lines_of_any_length_are_survived(text):
    parse_text("lspci_tree", text)
