"""BMC logs as ipmitool, FreeIPMI and Redfish print them. Forms: ipmitool's and FreeIPMI's sources, public listings, telegraf's ipmi_sensor."""

from __future__ import annotations

import json

import pytest
from hypothesis import given, settings

from kilter.facts.event import Clock
from kilter.intake.captures import ipmi
from kilter.intake.captures.bmc_words import place, what
from mangle import check_references, long_lines, mangled, parse_text

SEL = """\
   1 | 06/03/2014 | 17:38:05 | Event Logging Disabled System Event Log | Log area reset/cleared | Asserted
   2 | 06/03/2014 | 17:38:05 | Power Supply #0x51 | Presence detected | Deasserted
 532 | 08/14/2023 | 11:25:37 | Power Supply #0x3c | Failure detected | Asserted
 534 | 08/14/2023 | 11:25:39 | Power Supply #0x3e | Redundancy Lost | Asserted
 535 | 08/14/2023 | 11:25:41 | Power Supply #0x3e | Redundancy Lost | Deasserted
  34 | 12/08/2024 | 09:31:41 PM EST | Unknown #0xff |  | Asserted
   e |  Pre-Init  |0000000093| Processor CPU0_Status | IERR | Asserted
  81 | 03/05/26 | 15:54:22 UTC | Temperature Inlet Temp | Upper Critical going high | Asserted | Reading 48 > Threshold 47 degrees C
  82 | 03/05/26 | 15:54:22 UTC | Critical Interrupt PCIe Slot3 | Bus Fatal Error | Asserted
  8c | Linux kernel panic: not syncing
  8d | OEM record df | 000137 | 01
"""
FREE = """\
ID  | Date        | Time     | Name             | Type                        | Event
1   | Jan-01-2021 | 00:00:00 | SEL              | Event Logging Disabled      | Log Area Reset/Cleared
2   | Mar-01-2026 | 10:00:00 | PS1 Status       | Power Supply                | Power Supply Failure detected
4   | PostInit    | PostInit | Memory ECC       | Memory                      | Uncorrectable memory error ; OEM Event Data2 code = 00h
"""
VERBOSE = """\
SEL Record ID          : 0018
 Record Type           : 02
 Timestamp             : 01/03/2025 00:29:14
 Sensor Type           : Processor
 Sensor Number         : 70
 Event Direction       : Assertion Event
 Event Data (RAW)      : 010000
 Description           : Thermal Trip

Sensor ID              : CPU0_Status (0x70)
 States Asserted       : Processor
                         [Presence detected]

SEL Record ID          : 00c9
 Timestamp             : 09/03/2024 18:25:43
 Sensor Type           : Drive Slot / Bay
 Sensor Number         : 54
 Event Direction       : Deassertion Event
 Description           : Drive Fault ()
"""
SDR = """\
Inlet Temp       | 04h | cr  |  7.1 | 48 degrees C
PSU1 Status      | C8h | ok  | 10.1 | Presence detected, Failure detected
FAN_2            | 31h | ns  | 29.2 | No Reading
BB +1.8V AUX     | 1.76 Volts        | ok
FAN9             | 0.000      | RPM        | nr    | 300.000   | 500.000   | 700.000   | 25300.000 | 25400.000 | 25500.000
"""
REDFISH = json.dumps(
    {
        "@odata.id": "/redfish/v1/Managers/1/LogServices/Sel/Entries",
        "Members": [
            {
                "@odata.type": "#LogEntry.v1_6_1.LogEntry",
                "Created": "2026-02-03T04:05:06-06:00",
                "EntryCode": "Assert",
                "SensorType": "Critical Interrupt",
                "Severity": "Critical",
                "Message": "A fatal error was detected on a component at bus 59 device 0 function 0.",
            },
            {"Created": "2026-02-03T04:00:06Z", "Severity": "Critical", "Message": "The power input for power supply 2 is lost."},
            {
                "Created": "2026-02-03T04:01:06Z",
                "Severity": "OK",
                "Message": "The input power for power supply 2 has been restored.",
            },
            {"Created": "2026-02-03T04:01:06Z", "Severity": "OK", "Message": "Log cleared."},
        ],
    },
    indent=1,
)


def kinds(text: str) -> list[str]:
    return [event.fields["what"] for event in parse_text("ipmi", text).events]


def test_sel_list_keeps_troubles_and_drops_ordinary_entries() -> None:
    assert kinds(SEL) == ["psu_failed", "redundancy_lost", "redundancy_lost", "cpu_ierr", "inlet_hot", "pcie_fatal", "os_stop"]


def test_times_say_their_clock_and_pre_init_has_none() -> None:
    events = {event.fields["what"]: event for event in parse_text("ipmi", SEL).events}
    assert events["psu_failed"].clock is Clock.LOCAL
    assert events["psu_failed"].time == 1692012337.0
    assert events["inlet_hot"].clock is Clock.UTC
    assert events["cpu_ierr"].time is None
    assert events["cpu_ierr"].clock is Clock.NONE


@pytest.mark.parametrize(
    ("date", "clock", "day"),
    [
        ("03/05/26", "15:54:22 UTC", "2026-03-05"),
        ("25/12/2024", "01:00:00", "2024-12-25"),
        ("2024-12-25", "01:00:00", "2024-12-25"),
        ("Mar-01-2026", "10:00:00", "2026-03-01"),
        ("12/08/2024", "09:31:41 PM EST", "2024-12-08"),
    ],
)
def test_dates_of_locales_and_tools(date: str, clock: str, day: str) -> None:
    import datetime

    time, _ = ipmi.moment(date, clock)
    assert time is not None
    assert datetime.datetime.fromtimestamp(time, tz=datetime.timezone.utc).date().isoformat() == day


@pytest.mark.parametrize(
    ("date", "clock"), [("01/01/1970", "00:16:44"), ("Pre-Init", "0000000093"), ("99/99/2024", "00:00:00"), ("", "")]
)
def test_a_bmc_without_time_gives_none(date: str, clock: str) -> None:
    assert ipmi.moment(date, clock) == (None, Clock.NONE)


def test_freeipmi_columns_are_read_by_their_header() -> None:
    first, second = parse_text("ipmi", FREE).events
    assert first.fields["what"] == "psu_failed"
    assert first.clock is Clock.LOCAL
    assert second.fields["what"] == "memory_ue"
    assert second.time is None


def test_verbose_records_name_sensor_and_direction() -> None:
    trip, drive = parse_text("ipmi", VERBOSE).events
    assert (trip.fields["what"], trip.fields["sensor"]) == ("thermal_trip", "Processor CPU0_Status")
    assert drive.fields["direction"] == "deasserted"


def test_csv_form_reads_like_the_table() -> None:
    import re

    assert kinds(re.sub(r" *\| *", ",", SEL)) == kinds(SEL)


def test_sensor_tables_give_states_and_samples() -> None:
    fragment = parse_text("ipmi", SDR)
    assert [(e.fields["what"], e.fields["direction"]) for e in fragment.events] == [
        ("inlet_hot", "state"),
        ("psu_failed", "state"),
        ("fan_failed", "state"),
    ]
    assert [(s.metric, s.value) for s in fragment.snapshot.samples] == [
        ("bmc.temperature", 48.0),
        ("bmc.voltage", 1.76),
        ("bmc.fan", 0.0),
    ]
    assert not fragment.unplaced


def test_redfish_entries_with_decimal_bus_and_recovery() -> None:
    fatal, lost, over = parse_text("ipmi", REDFISH).events
    assert fatal.device == "0000:3b:00.0"
    assert fatal.clock is Clock.UTC
    assert lost.fields["what"] == "psu_input_lost"
    assert over.fields["what"] == "over"
    assert lost.fields["sensor"] == over.fields["sensor"] == "power supply 2"


def test_a_cut_redfish_log_keeps_whole_entries_and_says_so() -> None:
    fragment = parse_text("ipmi", REDFISH[: REDFISH.index("The input power")])
    assert [e.fields["what"] for e in fragment.events] == ["pcie_fatal", "psu_input_lost"]
    assert "cut short" in fragment.notes[0]


def test_a_log_of_ordinary_entries_is_read_not_unknown() -> None:
    (event,) = parse_text("ipmi", "\n".join(SEL.splitlines()[:2])).events
    assert event.fields["what"] == "ordinary"


@pytest.mark.parametrize(
    ("sensor", "event"),
    [
        ("System ACPI Power State #0xd5", "S0/G0: working"),
        ("OS Boot", "C: boot completed"),
        ("Power Supply PS1", "Presence detected"),
        ("Watchdog2 #0xca", "Timer expired"),
        ("Power Unit #0x01", "Power off/down"),
        ("Physical Security", "General Chassis intrusion"),
        ("Event Logging Disabled", "Log area reset/cleared"),
    ],
)
def test_ordinary_entries_mean_nothing(sensor: str, event: str) -> None:
    assert what(sensor, event) == ""


def test_places_in_hexadecimal_and_decimal() -> None:
    assert place("error at 0000:3b:00.0") == {"device": "0000:3b:00.0"}
    assert place("bus 0x3b device 0x0 function 0x1 in slot 4") == {"device": "0000:3b:00.1", "slot": "4"}
    assert place("bus 999 device 0 function 0") == {}


@settings(max_examples=60, deadline=None)
@given(mangled(SEL + VERBOSE + FREE + SDR))
def test_damaged_tables_raise_nothing(text: str) -> None:
    check_references(parse_text("ipmi", text), text)


@settings(max_examples=40, deadline=None)
@given(mangled(REDFISH))
def test_damaged_json_raises_nothing(text: str) -> None:
    check_references(parse_text("ipmi", text), text)


@settings(max_examples=40, deadline=None)
@given(
    long_lines(
        SEL,
        "  1 | 01/01/2024 | ",
        "1 | 01/01/2024 | 00:00:00 | Power Supply ",
        VERBOSE,
        FREE,
        "SEL Record ID : ",
        '{"Members": [{"Message": "',
    )
)
def test_long_lines_are_harmless(text: str) -> None:
    parse_text("ipmi", text)
