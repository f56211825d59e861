"""NCCL topology files."""

from __future__ import annotations

from pathlib import Path

from hypothesis import given, settings

from kilter.facts.base import Reason
from mangle import mangled, parse_text

DATA = Path(__file__).parents[2] / "data"


def text_of(case):
    return (DATA / case / "topo.xml").read_text()


def read(text):
    fragment = parse_text("nccl_topology", text)
    assert fragment.unplaced == []
    assert fragment.notes == []
    return fragment.snapshot.nccl_topology


def test_each_node_knows_what_stands_above_it():
    nodes = read(text_of("s063-nccl-topo-oci-h100"))
    pci = {n.bus_id: n for n in nodes if n.kind == "pci"}
    gpus = [n for n in nodes if n.kind == "gpu"]
    assert len(gpus) == 8
    first = gpus[0]
    assert (first.bus_id, first.parent, first.numa_node, first.attributes["sm"]) == ("0000:0f:00.0", "0000:0f:00.0", 0, "90")
    assert pci["0000:0f:00.0"].parent == "0000:0d:00.0"
    assert pci["0000:0d:00.0"].parent == "0000:08:00.0"
    assert pci["0000:08:00.0"].parent == "cpu 0"
    assert (pci["0000:08:00.0"].link_speed, pci["0000:08:00.0"].link_width) == ("5.0 GT/s PCIe", 16)
    nets = [n for n in nodes if n.kind == "net"]
    assert (nets[0].parent, nets[0].attributes["name"]) == ("0000:0c:00.0", "mlx5_0")
    links = [n for n in nodes if n.kind == "nvlink" and n.parent == "0000:0f:00.0"]
    assert sum(int(n.attributes["count"]) for n in links) == 18
    assert links[0].bus_id == "0000:1c:00.0"


def test_an_empty_speed_and_width_0_are_unknown_and_not_zero():
    nodes = read(text_of("s042-nccl-topo-azure-ncv4"))
    gpu = next(n for n in nodes if n.kind == "pci")
    assert gpu.link_speed is None
    assert gpu.link_width is None
    assert gpu.missing["link_width"].reason is Reason.NOT_READABLE
    assert next(n for n in nodes if n.kind == "net").parent == "cpu 0"


def test_other_files_are_read_whole():
    assert len([n for n in read(text_of("s044-nccl-topo-aws-g5-48xl")) if n.kind == "pci"]) == 9
    assert len([n for n in read(text_of("s064-nccl-topo-oci-flattened")) if n.attributes.get("class") == "0x030200"]) == 8
    assert len([n for n in read(text_of("s043-nccl-topo-aws-p4d")) if n.attributes.get("class") == "0x020000"]) == 4


def test_a_cut_file_gives_what_stood_before():
    text = text_of("s063-nccl-topo-oci-h100")
    fragment = parse_text("nccl_topology", text[: len(text) // 2])
    assert "ends or breaks" in fragment.notes[0]
    assert len([n for n in fragment.snapshot.nccl_topology if n.kind == "gpu"]) >= 3


def test_entities_are_refused():
    fragment = parse_text("nccl_topology", '<!DOCTYPE system [<!ENTITY a "b">]>\n<system version="1">&a;</system>')
    assert "entity" in fragment.notes[0]


@settings(max_examples=150, deadline=None)
@given(mangled(text_of("s063-nccl-topo-oci-h100")[:4000]) | mangled(text_of("s042-nccl-topo-azure-ncv4")))
def test_damage_is_survived(text):
    parse_text("nccl_topology", text)


def test_depth_is_bounded():
    parse_text("nccl_topology", '<system version="1">' + '<pci busid="0000:01:00.0">' * 5000)
