from __future__ import annotations

import msgspec
import pytest
from hypothesis import given
from hypothesis import strategies as st

from kilter.knowledge import explain as module
from kilter.knowledge.explain import explain, suggest, topics


@pytest.mark.parametrize(
    ("topic", "kind", "title"),
    [
        ("xid 79", "xid", "XID 79: ROBUST_CHANNEL_GPU_HAS_FALLEN_OFF_THE_BUS"),
        ("xid79", "xid", "XID 79: ROBUST_CHANNEL_GPU_HAS_FALLEN_OFF_THE_BUS"),
        ("XID: 79", "xid", "XID 79: ROBUST_CHANNEL_GPU_HAS_FALLEN_OFF_THE_BUS"),
        ("79", "xid", "XID 79: ROBUST_CHANNEL_GPU_HAS_FALLEN_OFF_THE_BUS"),
        ("GSP_RPC_TIMEOUT", "xid", "XID 119: GSP_RPC_TIMEOUT"),
        ("sxid 12028", "sxid", "SXid 12028: NPORT_EGRESS_PRIVRSPERR"),
        ("12028", "sxid", "SXid 12028: NPORT_EGRESS_PRIVRSPERR"),
        ("sop-bus", "sop", "SOP-BUS: a GPU or its PCIe link is lost or degraded"),
        ("SOP-NCCL", "sop", "SOP-NCCL: a collective hangs, times out or fails"),
        ("hw_power_brake_slowdown", "throttle", "Throttle reason hw_power_brake_slowdown"),
        ("HW Power Brake Slowdown", "throttle", "Throttle reason hw_power_brake_slowdown"),
        ("clocks_event_reasons.sw_power_cap", "throttle", "Throttle reason sw_power_cap"),
        ("CmpltTO", "aer", "PCIe AER CmpltTO: Completion timeout"),
        ("completion timeout", "aer", "PCIe AER CmpltTO: Completion timeout"),
        ("AdvNonFatalErr", "aer", "PCIe AER NonFatalErr: Advisory non-fatal"),
        ("symbol_error", "counter", "Counter symbol_error"),
        ("SymbolErrorCounter", "counter", "Counter symbol_error"),
        ("rx_prio3_pause", "counter", "Counter rx_prio{p}_pause"),
        ("rx_err_lane_2_phy", "counter", "Counter rx_err_lane_{n}_phy"),
        ("Drain and Reset", "recovery_action", "GPU recovery action 4: Drain and Reset"),
        ("recovery action 2", "recovery_action", "GPU recovery action 2: Node Reboot"),
        ("NVIDIA H100 80GB HBM3", "gpu", "GPU H100-SXM-80GB"),
        ("b200-sxm", "gpu", "GPU B200-SXM"),
        ("Tesla T4", "gpu", "GPU T4"),
    ],
)
def test_topics_are_understood_as_people_write_them(topic, kind, title):
    found = explain(topic)
    assert found.kind == kind
    assert found.title == title
    assert found.paragraphs
    assert found.sources


@pytest.mark.parametrize("topic", ["", "   ", "xid 999", "xid", "sxid 1", "bogus", "99999", "../README", "x" * 100_000])
def test_what_nobody_knows_has_no_explanation(topic):
    assert explain(topic) is None


def test_an_xid_shows_who_says_what_and_which_procedure_to_follow():
    found = explain("xid 63")
    facts = dict(found.facts)
    assert facts["name"] == "INFOROM_PAGE_RETIREMENT_EVENT"
    assert facts["name in the vendor's catalog"] == "INFOROM_DRAM_RETIREMENT_EVENT"
    assert facts["user code can cause it"] == "no"
    assert "gpud says" in facts
    assert any("remap pending" in d for d in found.disagreements)
    assert found.actions[-1].startswith("Follow SOP-MEM")
    assert any(s.startswith("docs.nvidia.com/deploy/xid-errors") for s in found.sources)  # full names, not keys
    assert "sop-mem" in found.see_also


def test_an_uncurated_xid_says_that_it_is_derived_from_its_name():
    found = explain("xid 1")
    assert found.confidence == "low"
    assert "symbol" in found.confidence_why
    assert not any("SOP" in a for a in found.actions)


def test_nvlink5_and_recovery_codes_bring_their_decoding():
    assert "NETIR_BER_EVENT" in dict(explain("xid 149").facts)["units that can be decoded"]
    assert any(name.startswith("action 5") for name, _ in explain("xid 154").facts)


def test_a_power_brake_is_read_over_the_whole_node():
    facts = explain("hw_power_brake_slowdown").facts
    assert any("all GPUs of a node" in value for name, value in facts if name == "read over the node")


def test_a_gpu_shows_its_links_and_what_is_unconfirmed():
    facts = dict(explain("NVIDIA H100 NVL").facts)
    assert "12 of 26.562 GB/s, or none without a bridge" in facts["NVLinks when healthy"]
    assert facts["L2 cache"].endswith("(unconfirmed)")
    assert explain("B100").confidence == "low"


def test_every_topic_is_explained_and_every_see_also_leads_somewhere():
    for topic in topics():
        found = explain(topic)
        assert found is not None, topic
        assert found.sources, topic
        assert found.confidence in ("high", "medium", "low")
        if topic.startswith("sxid") and not topic.endswith("8"):
            continue  # 399 alike: every tenth is enough
        assert all(explain(t) for t in found.see_also), topic
        msgspec.json.encode(found)


def test_near_misses_are_suggested():
    assert suggest("symbl_error")[0] == "symbol_error"
    assert suggest("CmpltT0")[0] == "CmpltTO"
    assert suggest("sop-bsu")[0] == "sop-bus"
    assert "H100-NVL-94GB" in suggest("h100")
    assert suggest("xid 17") == ["xid 17", "xid 170", "xid 171", "xid 172", "xid 173"]
    assert suggest("zzzzzzzz") == []
    assert suggest("") == []


@given(st.text(max_size=60))
def test_any_text_is_answered_without_an_error(text):
    explain(text)
    suggest(text)


def test_the_actions_of_the_table_all_have_words():
    from typing import get_args

    from kilter.knowledge.xid import Action

    assert set(module._ACTIONS) == set(get_args(Action))
