from __future__ import annotations

import pytest

from kilter.knowledge import sops, sxid, xid
from kilter.knowledge.xid import lookup, recovery_action


def test_every_xid_from_1_to_176_has_an_entry():
    assert xid.codes() == list(range(1, 177))
    assert [x.code for x in xid.all_xids()] == xid.codes()


def test_single_entries_equal_those_of_the_whole_table():
    assert all(lookup(x.code) == x for x in xid.all_xids())


@pytest.mark.parametrize("code", [0, 177, 999, -1])
def test_unknown_codes_have_no_entry(code):
    assert lookup(code) is None
    assert xid.sop(code) == ""
    assert xid.disagreements(code) == ()


def test_codes_that_refer_to_others_refer_to_existing_ones():
    for entry in xid.all_xids():
        assert all(lookup(c) for c in entry.see_also), entry.code


def test_disagreements_name_existing_codes():
    from kilter.knowledge.table import table

    rows = table("xid").head("disagreements")
    assert rows
    assert all(lookup(code) for row in rows for code in row["codes"])
    assert len(xid.disagreements(94)) == 2


def test_an_entry_known_by_its_symbol_only_has_low_confidence():
    assert lookup(1).confidence == "low"
    assert lookup(79).confidence == "high"
    assert lookup(175).confidence == "medium"  # driver header only


@pytest.mark.parametrize(
    ("code", "sop"),
    [(79, "SOP-BUS"), (48, "SOP-MEM"), (31, "SOP-APP"), (119, "SOP-GSP"), (149, "SOP-NVL"), (54, "SOP-PWR"), (154, ""), (1, "")],
)
def test_codes_lead_to_their_procedure(code, sop):
    assert xid.sop(code) == sop


def test_every_procedure_that_a_code_leads_to_exists():
    assert {xid.sop(c) for c in xid.codes()} - {""} <= set(sops.all_ids())
    assert {sxid.lookup(c).sop for c in sxid.codes()} <= set(sops.all_ids())


def test_no_code_has_two_procedures():
    from kilter.knowledge.table import table

    codes = [c for row in table("xid").head("sops") for c in row["codes"]]
    assert len(codes) == len(set(codes))


@pytest.mark.parametrize(
    ("printed", "name"),
    [
        ("None", "none"),
        ("Reset", "gpu_reset"),
        ("GPU Reset Required", "gpu_reset"),
        ("GPU_RESET", "gpu_reset"),
        ("Reboot", "node_reboot"),
        ("0x2 (Node Reboot Required)", "node_reboot"),
        ("Drain P2P", "drain_p2p"),
        ("Drain and Reset", "drain_and_reset"),
        ("NVML_GPU_RECOVERY_ACTION_DRAIN_AND_RESET", "drain_and_reset"),
        ("Recover IMEX Domain", "recover_imex_domain"),
        ("Unknown (6)", "bus_reset"),
        (7, "system_reboot"),
        ("4", "drain_and_reset"),
        (0, "none"),
        (8, "unknown"),
        ("Replace Card", "unknown"),
        ("Unknown", "unknown"),
        ("99999999999999999999", "unknown"),
    ],
)
def test_recovery_actions_are_known_by_every_tools_words(printed, name):
    assert recovery_action(printed).name == name


def test_an_unknown_recovery_action_is_not_health():
    assert not recovery_action("Something New").healthy
    assert "unhealthy" in recovery_action(42).do
    assert recovery_action("None").healthy


@pytest.mark.parametrize("printed", ["N/A", "[N/A]", "", "Not Supported", "Requested functionality has been deprecated"])
def test_a_missing_recovery_action_is_neither_healthy_nor_unknown(printed):
    assert recovery_action(printed) is None


def test_the_root_code_is_read_from_caused_by():
    # NVIDIA/open-gpu-kernel-modules#1150, driver 590.48.01
    assert xid.caused_by("Ch 00000001 caused by previous Xid 149") == 149
    assert xid.caused_by("Ch 00000001") is None


def test_the_log_form_of_a_code_is_the_special_one():
    assert "NETIR_LINK_EVT" in xid.log_form(149).example
    assert "caused by" in xid.log_form(45).example
    assert xid.log_form(79).id == "xid_plain"


def test_sxids_keep_documented_and_inferred_severities_apart():
    assert sxid.lookup(12028).severity == "non_fatal"
    assert sxid.lookup(12028).confidence == "high"
    inferred = sxid.lookup(30004)
    assert inferred.severity == "likely_fatal_for_port"
    assert inferred.inferred
    assert inferred.confidence == "low"
    assert sxid.lookup(10006).confidence == "low"  # unknown
    assert sxid.lookup(99999) is None


def test_an_unlisted_sxid_still_has_its_unit():
    assert sxid.unit(20999) == "NVLink data-link/PHY (DLPL)"
    assert sxid.unit(99999) == ""
    assert all(sxid.unit(c) for c in sxid.codes())
    assert sxid.correlations()
    assert sxid.log_forms()
