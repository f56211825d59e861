from pathlib import Path

from hypothesis import given, settings

from kilter.facts.base import Reason
from mangle import check_references, long_lines, mangled, parse_text

TEXT = (Path(__file__).parents[2] / "data" / "s036-ibswinfo-fan-error" / "ibswinfo.txt").read_text()


def read(text):
    fragment = parse_text("ibswinfo", text)
    check_references(fragment, text)
    return fragment


def test_fans_supplies_and_temperature():
    fragment = read(TEXT)
    assert (fragment.unplaced, fragment.notes) == ([], [])
    (switch,) = fragment.fabric
    assert (switch.guid, switch.kind, switch.name) == ("1c34:da03:0000:0001", "switch", "Scorpion IB EDR Unmanaged")
    assert (switch.firmware, switch.psid, switch.temperature_c) == ("11.2008.2102", "MT_1880110032", 45)
    assert switch.fans["fan status"] == "ERROR"
    assert switch.fans["fan#8"] == "7232"
    assert switch.power_supplies["PSU1 fan status"] == "OK"
    assert switch.power_supplies["PSU0"] == "OK"


def test_without_the_ruled_lines_the_last_fan_status_is_the_switchs_own():
    text = "\n".join(line for line in TEXT.splitlines() if not line.startswith(("---", "===")))
    (switch,) = read(text).fabric
    assert switch.fans["fan status"] == "ERROR"
    assert switch.power_supplies["PSU1 fan status"] == "OK"


def test_two_switches_one_after_the_other():
    fragment = read(TEXT + TEXT.replace("0x1c34da0300000001", "0x1c34da0300000002"))
    assert [switch.guid for switch in fragment.fabric] == ["1c34:da03:0000:0001", "1c34:da03:0000:0002"]


def test_a_switch_without_guid_keeps_its_name():
    text = "\n".join(line for line in TEXT.splitlines() if not line.startswith("GUID"))
    assert read(text).fabric[0].guid == "Scorpion IB EDR Unmanaged"


def test_no_temperature_is_missing():
    (switch,) = read(TEXT.replace("| 45", "| N/A")).fabric
    assert switch.temperature_c is None
    assert switch.missing["temperature_c"].reason is Reason.NOT_SUPPORTED


def test_a_report_cut_before_its_fans_is_told():
    fragment = read("\n".join(TEXT.splitlines()[:20]))
    assert any("no fan" in note for note in fragment.notes)


@given(mangled(TEXT))
@settings(max_examples=100, deadline=None)
def test_damaged_texts_raise_nothing(text):
    check_references(parse_text("ibswinfo", text), text)


@given(long_lines("", "PSU0 status |", "temperature (C) |", "fan#1 (rpm) | ", "x | "))
@settings(max_examples=40, deadline=2000)
def test_long_lines_take_no_time(text):
    parse_text("ibswinfo", text)
