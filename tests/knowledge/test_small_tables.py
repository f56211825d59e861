"""Throttle reasons, AER errors, RDMA counters, driver branches."""

from __future__ import annotations

import pytest

from kilter.knowledge import aer, drivers, ib_counters, sops, throttle


@pytest.mark.parametrize(
    ("name", "reason"),
    [
        ("hw_slowdown", "hw_slowdown"),
        ("HW Slowdown", "hw_slowdown"),
        ("HW Thermal Slowdown", "hw_thermal_slowdown"),
        ("HW Power Braking", "hw_power_brake_slowdown"),
        ("SW Power Capping", "sw_power_cap"),
        ("Idle", "gpu_idle"),
        ("Applications Clocks Setting", "applications_clocks_setting"),
        ("clocks_throttle_reasons.sync_boost", "sync_boost"),
        ("nvmlClocksThrottleReasonHwPowerBrakeSlowdown", "hw_power_brake_slowdown"),
        ("nvmlClocksEventReasonGpuIdle", "gpu_idle"),
        ("nvmlClocksThrottleReasonUserDefinedClocks", "applications_clocks_setting"),
    ],
)
def test_throttle_reasons_are_known_by_every_tools_name(name, reason):
    assert throttle.reason(name).name == reason


def test_nvml_names_every_reason_that_the_table_has():
    pynvml = pytest.importorskip("pynvml")
    masks = {
        getattr(pynvml, name)
        for name in dir(pynvml)
        if name.startswith(("nvmlClocksThrottleReason", "nvmlClocksEventReason")) and isinstance(getattr(pynvml, name), int)
    }
    single = {m for m in masks if m and m & (m - 1) == 0}
    assert {r.mask for r in throttle.reasons()} >= single


def test_masks_are_taken_apart_bit_by_bit():
    assert throttle.names_of_mask(0) == []
    assert throttle.names_of_mask(0x5) == ["gpu_idle", "sw_power_cap"]
    assert throttle.names_of_mask(0x88) == ["hw_slowdown", "hw_power_brake_slowdown"]
    assert throttle.names_of_mask(0x1 | 1 << 40) == ["gpu_idle", "unknown_0x10000000000"]
    assert all(r.mask == 1 << r.bit for r in throttle.reasons())
    assert throttle.reason("bogus") is None


def test_reasons_lead_to_procedures_that_exist():
    assert throttle.reason("hw_power_brake_slowdown").sop == "SOP-PWR"
    assert throttle.reason("gpu_idle").sop == ""
    assert {r.sop for r in throttle.reasons()} - {""} <= set(sops.all_ids())


@pytest.mark.parametrize(
    ("name", "error"),
    [
        ("RxErr", "RxErr"),
        ("Receiver Error", "RxErr"),
        ("RELAY_NUM Rollover", "Rollover"),
        ("AdvNonFatalErr", "NonFatalErr"),
        ("Surprise Down Error", "SDES"),
        ("poisoned tlp", "TLP"),
        ("PCRC_CHECK", "PCRC_CHECK"),
    ],
)
def test_aer_errors_are_known_by_kernel_lspci_and_rasdaemon_names(name, error):
    assert aer.lookup(name).name == error


def test_no_aer_name_means_two_errors():
    from kilter.knowledge.table import folded

    names = [n for e in aer.errors() for n in {folded(x) for x in (e.name, *e.aliases, e.long)}]
    assert len(names) == len(set(names))
    assert len({(e.correctable, e.bit) for e in aer.errors()}) == len(aer.errors())
    assert aer.lookup("nothing") is None


def test_status_registers_are_taken_apart():
    assert aer.names_of_status(0x1, correctable=True) == ["RxErr"]
    assert aer.names_of_status(0x00004010, correctable=False) == ["DLP", "CmpltTO"]
    assert aer.names_of_status(0x2, correctable=True) == ["unknown_bit_1"]


def test_errors_masked_by_default_prove_nothing_by_their_absence():
    assert aer.lookup("NonFatalErr").masked_by_default
    assert not aer.lookup("RxErr").masked_by_default
    assert not aer.lookup("FCP").masked_by_default  # bit 13 too, but of the other register


def test_severities_and_layers():
    assert aer.lookup("SDES").default_severity == "fatal"
    assert aer.lookup("SDES").layer == "data_link"
    assert aer.lookup("BadTLP").default_severity == "corrected"
    assert aer.lookup("IDECheck").confidence == "low"


@pytest.mark.parametrize(
    ("generation", "width", "limit"), [(4, 16, 16), (5, 16, 31), (3, 8, 4), (1, 1, 1), (7, 16, None), (4, 0, None)]
)
def test_replay_limits_follow_generation_and_width(generation, width, limit):
    assert aer.replay_limit(generation, width) == limit


def test_counters_keep_apart_what_a_source_says_and_what_is_ours():
    assert ib_counters.lookup("link_downed").confidence == "high"
    assert ib_counters.lookup("rx_corrected_bits_phy").confidence == "medium"
    assert ib_counters.lookup("port_rcv_data").unit == "4-byte words"
    assert ib_counters.lookup("link_downed").where == "/sys/class/infiniband/<hca>/ports/<n>/counters/link_downed"


@pytest.mark.parametrize(
    ("name", "counter"),
    [
        ("LinkDownedCounter", "link_downed"),
        ("port_rcv_contraint_errors", "port_rcv_constraint_errors"),
        ("VL15Dropped", "VL15_dropped"),
        ("rx_prio0_pause", "rx_prio{p}_pause"),
        ("tx_prio7_pause", "tx_prio{p}_pause"),
        ("rx_err_lane_3_phy", "rx_err_lane_{n}_phy"),
    ],
)
def test_counters_are_known_by_every_tools_name(name, counter):
    assert ib_counters.lookup(name).name == counter


def test_unknown_counters_have_no_entry():
    assert ib_counters.lookup("rx_prio_pause") is None
    assert ib_counters.lookup("") is None


def test_counters_lead_to_procedures_that_exist():
    assert {c.sop for c in ib_counters.counters()} - {""} <= set(sops.all_ids())
    assert ib_counters.lookup("symbol_error").sop == "SOP-IB"
    assert ib_counters.lookup("tx_prio3_pause").sop == "SOP-CONG"


def test_a_driver_version_belongs_to_its_branch():
    assert drivers.branch("580.95.05").branch == "R580"
    assert drivers.branch("570.124.06").branch == "R570"
    assert drivers.branch("999.1") is None
    assert drivers.branch("N/A") is None


def test_versions_compare_as_versions():
    assert drivers.version_key("580.142") > drivers.version_key("580.95.05")
    assert drivers.version_key("") == ()


def test_the_security_floor_is_said_only_to_those_below_it():
    assert drivers.below_security_floor("580.95.05").version == "580.159.03"
    assert drivers.below_security_floor("580.159.03") is None
    assert drivers.below_security_floor("999.1") is None


def test_end_of_life_is_unknown_where_no_date_is_published():
    by_name = {b.branch: b for b in drivers.branches()}
    assert drivers.is_end_of_life(by_name["R550"], "2026-11") is True
    assert drivers.is_end_of_life(by_name["R580"], "2026-11") is False
    assert drivers.is_end_of_life(by_name["R545"], "2026-11") is None
    assert by_name["R560"].confidence == "low"
    assert by_name["R580"].newest == "580.178.04"


def test_known_bugs_of_drivers_end_at_their_fix_and_stay_in_their_branch():
    bug = drivers.known_bug("525.60.13", 119)
    assert bug is not None
    assert bug.below == "525.105.17"
    assert "NVIDIA/open-gpu-kernel-modules#446" in bug.source
    for version, xid in (("525.105.17", 119), ("525.60.13", 79), ("530.41.03", 119), ("N/A", 119)):
        assert drivers.known_bug(version, xid) is None, version
    for row in drivers.bugs():
        assert drivers.branch(row.below).branch == row.branch
