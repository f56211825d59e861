"""NVLink5 lines as found in public logs and tests (registers and units are facts; sources beside each)."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from kilter.knowledge.nvlink5 import decode, layout_of, rules

ZERO = [0, 0, 0, 0, 0]


def test_link_down_with_subcode_37_asks_for_the_peer():
    # NVIDIA/NVSentinel health-monitors/syslog-health-monitor csv parser test: 0018:01:00, Link 09
    found = decode(149, "NETIR_LINK_EVT", [0x025525C6, *ZERO], driver_version="570.124.06")
    assert found.unit == "NETIR_LINK_EVT/NETIR_LINK_DOWN"
    assert found.sub_code == 37
    assert found.severity == "link fatal"
    assert found.vendor_actions == ("RESET_GPU",)
    assert found.vendor_investigate == ("INVESTIGATE_PEER_DEVICE",)
    assert found.confidence == "high"


def test_a_link_taken_down_by_software_is_decoded_as_software():
    # public NIXL fault injection notes: B200, driver 570.158.01, link forced down through the driver, so the cause is known
    found = decode(149, "NETIR_LINK_EVT", [0x016415C6], driver_version="570.158.01")
    assert found.sub_code == 22
    assert found.vendor_investigate == ("INVESTIGATE_SW_USER",)


def test_a_whole_gpu_event_is_decoded_by_the_first_part_of_its_unit():
    # leptonai/gpud#1174: Link -1
    found = decode(149, "NETIR", [0x000FE406, *ZERO])
    assert found.unit == "NETIR/NETIR_INT"
    assert found.vendor_investigate == ("SYMPATHETIC_REPORT_SOLO",)


def test_a_nonfatal_receive_error_is_ignored():
    # leptonai/gpud#1174: RLW_RXPIPE Nonfatal XC0 i0 Link 13
    found = decode(145, "RLW_RXPIPE", [0x0409A0C2, 0x8, 0x1, 0x0, 0x00100000, 0x4], driver_version="570.86.15")
    assert found.severity == "non-fatal"
    assert found.vendor_actions == ("IGNORE",)


def test_the_unit_is_part_of_the_key():
    # 145, status 1: RLW_REMAP is not fatal, RLW_SRC_TRACK is
    assert decode(145, "RLW_REMAP", [0x82, 1], driver_version="570.1").severity == "non-fatal"
    assert decode(145, "RLW_SRC_TRACK", [0xE2, 1], driver_version="570.1").severity == "fatal"
    assert decode(145, "RLW_NOBODY", [0x82, 1]) is None


def test_remap_status_40_resets_on_r570():
    # NVIDIA/NVSentinel end-to-end test, driver R570
    found = decode(145, "RLW_REMAP", [0x82, 0x40, 0, 0, 0, 0], driver_version="570.148.08")
    assert found.vendor_actions == ("RESET_GPU",)
    assert found.layout == "before R575"


def test_the_layout_follows_the_driver():
    assert decode(145, "RLW_REMAP", [0x04, 1], driver_version="580.95.05").layout == "R575 on"
    assert layout_of("574.99") == "before R575"
    assert layout_of("575.51.02") == "R575 on"
    assert layout_of("1000.1") == "R575 on"
    assert layout_of(None) is None
    assert layout_of("unknown") is None
    assert layout_of("12345") is None


def test_only_the_other_layout_fits_is_said_with_low_confidence():
    found = decode(145, "RLW_REMAP", [0x82, 0x40], driver_version="580.95.05")
    assert found.layout == "before R575"
    assert found.confidence == "low"
    assert "580.95.05" in found.notes[-1]


def test_an_unknown_version_takes_the_layout_that_fits():
    assert decode(149, "NETIR_LINK_EVT", [0x025525C6, *ZERO]).layout == "before R575"
    assert decode(145, "RLW_REMAP", [0x04, 1]).layout == "R575 on"


def test_an_unknown_version_shows_both_answers_where_they_differ():
    both = [
        (r, o)
        for r in rules()
        for o in rules()
        if r.xid == o.xid and set(r.unit.split("/")) & set(o.unit.split("/")) and r.error_status == o.error_status
    ]
    checked = 0
    for new, old in both:
        unit = (set(new.unit.split("/")) & set(old.unit.split("/"))).pop()
        bits = [n if n != "-" else o for n, o in zip(new.intrinfo_r575_on, old.intrinfo_before_r575, strict=True)]
        clash = any(n != o and "-" not in (n, o) for n, o in zip(new.intrinfo_r575_on, old.intrinfo_before_r575, strict=True))
        if clash:
            continue
        found = decode(new.xid, unit, [int("".join(b if b != "-" else "0" for b in bits), 2), int(new.error_status, 16)])
        assert found is not None
        if found.other is not None:
            assert found.confidence == "low"
            assert found.layout != found.other.layout
        checked += 1
    assert checked  # MSE_WATCHDOG, whose low bits are zero in both


def test_a_line_cut_off_before_the_status_is_decoded_with_low_confidence():
    found = decode(145, "RLW_RXPIPE", [0x0409A0C2])
    assert found.error_status is None
    assert found.confidence == "low"
    assert any("missing" in n for n in found.notes)


@pytest.mark.parametrize("code", [74, 143, 151, 0])
def test_other_codes_have_no_decode(code):
    assert decode(code, "NETIR_LINK_EVT", [0x025525C6, 0]) is None


def test_no_registers_no_decode():
    assert decode(149, "NETIR_LINK_EVT", []) is None


def test_every_rule_is_found_again_by_its_own_pattern():
    for rule in rules():
        for pattern, version in ((rule.intrinfo_before_r575, "570.1"), (rule.intrinfo_r575_on, "580.1")):
            value = int(pattern.replace("-", "0"), 2)
            for unit in (rule.unit, rule.unit.split("/")[0]):
                found = decode(rule.xid, unit, [value, int(rule.error_status, 16)], driver_version=version)
                assert found is not None
                assert rule.vendor_action in found.vendor_actions
                assert rule.vendor_investigate in found.vendor_investigate


@given(
    st.integers(-5, 300),
    st.sampled_from([r.unit for r in rules()]) | st.text(max_size=30),
    st.lists(st.integers(-(2**40), 2**70), max_size=8),
    st.none() | st.text(max_size=12),
)
def test_any_input_is_answered_without_an_error(code, unit, regs, version):
    decode(code, unit, regs, driver_version=version)
