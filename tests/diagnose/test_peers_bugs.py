"""Bugs that were found in other tools, each as a case that kilter reads right (their places stand in each test)."""

from __future__ import annotations

import pytest

from kilter.diagnose.engine import diagnose
from kilter.facts.finding import Finding, Severity
from kilter.intake.merge import assemble
from kilter.intake.paste import read_text
from kilter.knowledge import ib_counters


def findings(text: str) -> list[Finding]:
    fragments, info = read_text("kern.log", text, year=2026)
    return diagnose(assemble(fragments, [info])).findings


def ids(text: str) -> list[str]:
    return [finding.id for finding in findings(text)]


def line(code: int, rest: str = "pid=1, name=x, something", bus: str = "PCI:0000:3b:00") -> str:
    return f"2026-03-04T10:00:00.000000+00:00 n kernel: NVRM: Xid ({bus}): {code}, {rest}\n"


@pytest.mark.parametrize("bus", ["PCI:0000:3b:00", "PCI:0000:3b:00 GPU-I:05", "PCI:0000:3b:00 GPU-I:05 GPU-CI:01"])
def test_mig_forms_of_an_xid_line(bus: str) -> None:
    """gpud's expression wants the bracket right behind the bus address."""
    assert "gpu.xid.31" in ids(line(31, "pid=1, name=x, Ch 00000010", bus))


@pytest.mark.parametrize("code", [133, 174, 175, 176])
def test_codes_that_others_do_not_know_are_reported(code: int) -> None:
    """gpud drops them."""
    assert any(found.startswith(f"gpu.xid.{code}") for found in ids(line(code)))


def test_code_of_a_future_driver_is_reported_too() -> None:
    assert any(found.startswith("gpu.xid.999") for found in ids(line(999)))


@pytest.mark.parametrize("unit", ["RLW_SRC_TRACK", "NETIR_LINK_EVT", "RLW_REMAP2", "TLC_RX0"])
def test_nvlink5_units_with_a_digit_keep_their_parts(unit: str) -> None:
    """gpud's expression takes letters and underscores alone."""
    text = line(
        145, f"pid=1, name=x, {unit} Nonfatal XC0 i0 Link 08 (0x004505c6 0x00000000 0x00000000 0x00000000 0x00000000 0x00000000)"
    )
    fragments, info = read_text("kern.log", text, year=2026)
    (event,) = assemble(fragments, [info]).events
    assert (event.fields["unit"], event.fields["link"]) == (unit, "08")


@pytest.mark.parametrize("code", [94, 95, 140, 143, *range(144, 151)])
def test_memory_and_nvlink_codes_are_faults(code: int) -> None:
    """The failure list of azurehpc-health-checks lacks them."""
    worst = [f.severity for f in findings(line(code, "pid=1, name=x, error")) if f.id.startswith(f"gpu.xid.{code}")]
    assert worst
    if code not in (94, *range(144, 151)):
        assert max(s.rank for s in worst) >= Severity.ERROR.rank


def test_both_spellings_of_the_constraint_counter() -> None:
    """The kernel's ABI text writes port_rcv_contraint_errors."""
    assert ib_counters.lookup("port_rcv_constraint_errors") is not None
    assert ib_counters.lookup("port_rcv_constraint_errors") == ib_counters.lookup("port_rcv_contraint_errors")


def test_storm_of_one_line_is_one_finding() -> None:
    """NVSentinel #1120 counts 800,000 lines of a few distinct ones as faults, #1710 raises XID 45 to fatal."""
    text = line(95, "pid=1, name=x, Uncontained: LTC TAG") * 5000 + line(45, "pid=1, name=x, Ch 00000010") * 600
    found = findings(text)
    assert [f.id for f in found].count("gpu.xid.95") == 1
    assert all(f.severity is not Severity.CRITICAL for f in found if f.id == "gpu.xid.45")
    assert len(found) < 8
