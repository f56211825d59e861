"""Each BMC rule with its fault and its healthy twin."""

from __future__ import annotations

import pytest

import kilter.diagnose.rules.bmc
from kilter.diagnose.engine import diagnose
from kilter.facts.accelerator import Accelerator, Reading
from kilter.facts.case import Case, Snapshot
from kilter.facts.event import Clock, Event
from kilter.facts.finding import Finding
from mangle import parse_text

assert kilter.diagnose.rules.bmc


def rows(*entries: str) -> str:
    """SEL rows of one hour in 2026, a minute apart."""
    return "\n".join(f" {n:x} | 03/05/2026 | 10:{n:02d}:00 | {entry}" for n, entry in enumerate(entries, 1))


def findings(text: str, *, snapshot: Snapshot | None = None, events: tuple[Event, ...] = ()) -> dict[str, Finding]:
    found = [*parse_text("ipmi", text).events, *events]
    case = Case(snapshots=[snapshot] if snapshot else [], events=found)
    return {f.id: f for f in diagnose(case).findings}


@pytest.mark.parametrize(
    ("entry", "finding", "severity"),
    [
        ("Power Supply PS1 | Failure detected | Asserted", "power.psu_failed", "error"),
        ("Power Supply PS1 | Power Supply AC lost | Asserted", "power.psu_failed", "error"),
        ("Power Supply PS1 | Predictive failure | Asserted", "power.psu_failed", "warning"),
        ("Power Supply PS Redundancy | Redundancy Lost | Asserted", "power.redundancy_lost", "warning"),
        ("Fan Fan 3 | Lower Critical going low | Asserted", "host.fan_failed", "error"),
        ("Temperature Inlet Temp | Upper Critical going high | Asserted", "host.inlet_hot", "error"),
        ("Temperature CPU1 Temp | Upper Critical going high | Asserted", "host.temperature_critical", "error"),
        ("Memory DIMM A1 | Uncorrectable ECC | Asserted", "host.bmc_memory_error", "error"),
        ("Memory DIMM A1 | Correctable ECC logging limit reached | Asserted", "host.bmc_memory_error", "warning"),
        ("Memory DIMM A1 | Correctable ECC | Asserted", "host.bmc_memory_error", "info"),
        ("Critical Interrupt PCIe Slot 3 | Bus Fatal Error | Asserted", "host.bmc_pcie_error", "error"),
        ("Critical Interrupt PCIe Slot 3 | Bus Correctable Error | Asserted", "host.bmc_pcie_error", "info"),
        ("Processor CPU1 | IERR | Asserted", "host.cpu_ierr", "error"),
        ("Power Unit #0x01 | AC lost | Asserted", "host.unexpected_power_cycle", "warning"),
        ("Watchdog2 #0xca | Hard reset | Asserted", "host.unexpected_power_cycle", "warning"),
        ("Power Unit #0x01 | Power cycle | Asserted", "host.unexpected_power_cycle", "info"),
        ("Drive Slot / Bay #0x44 | Drive Fault | Asserted", "host.drive_fault", "warning"),
    ],
)
def test_an_entry_that_stands_is_found(entry: str, finding: str, severity: str) -> None:
    found = findings(rows(entry))
    assert {id_: f.severity.value for id_, f in found.items()} == {finding: severity}


@pytest.mark.parametrize(
    "pair",
    [
        ("Power Supply PS1 | Failure detected | Asserted", "Power Supply PS1 | Failure detected | Deasserted"),
        ("Power Supply PS R | Redundancy Lost | Asserted", "Power Supply PS R | Fully Redundant | Asserted"),
        ("Fan Fan 3 | Transition to Critical from less severe | Asserted", "Fan Fan 3 | Transition to OK | Asserted"),
        (
            "Temperature Inlet Temp | Upper Critical going high | Asserted",
            "Temperature Inlet Temp | Upper Critical going high | Deasserted",
        ),
        ("Drive Slot / Bay #0x44 | Drive Fault | Asserted", "Drive Slot / Bay #0x44 | Drive Fault | Deasserted"),
    ],
)
def test_what_was_taken_back_is_information(pair: tuple[str, str]) -> None:
    found = findings(rows(*pair))
    assert found
    assert all(f.severity.value == "info" for f in found.values())


def test_what_was_asserted_again_stands() -> None:
    on, off = "Power Supply PS1 | Failure detected | Asserted", "Power Supply PS1 | Failure detected | Deasserted"
    assert findings(rows(on, off, on))["power.psu_failed"].severity.value == "error"


def test_what_is_long_ago_is_information() -> None:
    old = " 1 | 01/01/2024 | 10:00:00 | Memory DIMM A1 | Uncorrectable ECC | Asserted\n"
    assert findings(old)["host.bmc_memory_error"].severity.value == "error"  # nothing newer is known
    now = " 2 | 03/05/2026 | 10:00:00 | Fan Fan 1 | Transition to OK | Asserted\n"
    assert findings(old + now)["host.bmc_memory_error"].severity.value == "info"


def test_ordinary_content_is_healthy_and_checked() -> None:
    text = rows(
        "Event Logging Disabled SEL | Log area reset/cleared | Asserted",
        "OS Boot | C: boot completed | Asserted",
        "Power Supply PS1 | Presence detected | Asserted",
        "System ACPI Power State #0xd5 | S4/S5: soft-off | Asserted",
    )
    diagnosis = diagnose(Case(events=parse_text("ipmi", text).events))
    assert not diagnosis.findings
    outcomes = {c.rule: c.outcome.value for c in diagnosis.checks}
    assert outcomes["power.psu_failed"] == outcomes["host.bmc_pcie_error"] == "ok"


def test_without_a_bmc_log_nothing_passes_for_healthy() -> None:
    event = Event(kind="xid", text="x", code=13, time=1.0)
    outcomes = {c.rule: c.outcome.value for c in diagnose(Case(events=[event])).checks}
    assert outcomes["power.psu_failed"] == "not checked"


def test_a_failed_supply_is_why_gpus_are_braked() -> None:
    gpus = [Accelerator(index=i, readings=[Reading(throttle_reasons=["hw_power_brake_slowdown"])]) for i in range(2)]
    found = findings(rows("Power Supply PS1 | Failure detected | Asserted"), snapshot=Snapshot(accelerators=gpus))
    finding = found["power.psu_failed"]
    assert "why 2 GPUs are under the power brake" in finding.what
    assert any("GPU1: power brake active" in e.text for e in finding.evidence)


def test_a_pcie_error_near_xid_79_is_a_second_witness() -> None:
    text = rows("Critical Interrupt PCIe Slot 3 | Bus Fatal Error | Asserted")
    time = parse_text("ipmi", text).events[0].time
    assert time is not None
    xid = Event(kind="xid", code=79, text="Xid 79", device="0000:3b:00.0", time=time + 60, clock=Clock.LOCAL)
    finding = findings(text, events=(xid,))["host.bmc_pcie_error"]
    assert "slot 3" in finding.what
    assert "fell off the bus" in finding.what
    boot = Event(kind="xid", code=79, text="Xid 79", device="0000:3b:00.0", time=60.0, clock=Clock.BOOT)
    other = findings(text, events=(boot,))["host.bmc_pcie_error"]
    assert "fell off" not in other.what
    assert any(e.role == "missing" for e in other.evidence)


def test_a_log_is_read_in_its_own_order_when_the_clock_was_set_back() -> None:
    text = (
        " 1 | 03/05/2026 | 10:00:00 | Fan Fan 1 | Lower Critical going low | Asserted\n"
        " 2 | 03/05/2026 | 08:30:00 | Fan Fan 1 | Lower Critical going low | Deasserted\n"
        " 3 | 03/05/2026 | 11:00:00 | OS Boot | C: boot completed | Asserted\n"
        " 4 | 03/05/2026 | 11:10:00 | Fan Fan 2 | Transition to OK | Asserted\n"
    )
    assert findings(text)["host.fan_failed"].severity.value == "info"


def test_newest_first_lists_are_turned_round() -> None:
    text = (
        " 2 | 03/05/2026 | 10:30:00 | Fan Fan 1 | Lower Critical going low | Deasserted\n"
        " 1 | 03/05/2026 | 10:00:00 | Fan Fan 1 | Lower Critical going low | Asserted\n"
    )
    assert findings(text)["host.fan_failed"].severity.value == "info"


def test_lost_input_before_a_boot_is_said_with_little_confidence() -> None:
    finding = findings(
        rows("Power Supply PS1 | Power Supply AC lost | Asserted", "System Event BIOS | OEM System boot event | Asserted")
    )["power.psu_failed"]
    assert (finding.severity.value, finding.confidence) == ("warning", "low")


def test_redfish_entries_are_put_in_time_order() -> None:
    def entry(minute: int, severity: str, message: str) -> str:
        return f'{{"@odata.type": "#LogEntry.v1_6_1.LogEntry", "Created": "2026-02-03T04:{minute:02d}:06Z", "Severity": "{severity}", "Message": "{message}"}}'

    lost = entry(0, "Critical", "The power input for power supply 2 is lost.")
    back = entry(1, "OK", "The input power for power supply 2 has been restored.")
    other = entry(5, "Critical", "Fan 3 has failed.")
    text = '{"Members": [\n' + ",\n".join([other, lost, back]) + "\n]}"
    found = {id_: f.severity.value for id_, f in findings(text).items()}
    assert found == {"host.fan_failed": "error", "power.psu_failed": "info"}
