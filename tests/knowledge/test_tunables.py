"""Every entry of the parameter table, and what people type."""

from __future__ import annotations

import pytest

from kilter.knowledge import nccl_results, tunables
from kilter.knowledge.explain import explain
from kilter.knowledge.table import parse, table


def test_every_entry_is_read_as_the_whole_file_has_it() -> None:
    whole = parse(table("tunables").text)["tunables"]
    assert [entry["id"] for entry in whole] == tunables.names()
    assert len(set(tunables.names())) == len(whole)
    for entry in whole:
        one = tunables.lookup(entry["id"])
        assert one is not None
        assert one.id == entry["id"]
        assert one.source


def test_what_rests_on_no_source_says_so() -> None:
    for name in tunables.names():
        entry, told = tunables.lookup(name), explain(name)
        assert entry is not None
        assert told is not None
        assert (told.confidence_why != "") == entry.unverified, name


@pytest.mark.parametrize(
    ("typed", "id"),
    [
        ("NCCL_IB_GID_INDEX", "nccl.NCCL_IB_GID_INDEX"),
        ("export NCCL_IB_GID_INDEX=3", "nccl.NCCL_IB_GID_INDEX"),
        ("nccl_ib_gid_index", "nccl.NCCL_IB_GID_INDEX"),
        ("vm.swappiness", "vm.swappiness"),
        ("swappiness", "vm.swappiness"),
        ("vllm.max_num_seqs", "fw.vllm.max_num_seqs"),
    ],
)
def test_names_as_people_type_them(typed: str, id: str) -> None:
    entry = tunables.lookup(typed)
    assert entry is not None
    assert entry.id == id


def test_nccl_results_are_found_inside_a_sentence() -> None:
    for one in nccl_results.results():
        told = explain(f"{one.name}: some words of a framework")
        assert told is not None
        assert told.topic == one.name
        assert all(explain(topic) is not None for topic in one.look_at)
    assert nccl_results.find("ncclSomething went wrong") is None
