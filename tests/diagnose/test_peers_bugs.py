"""Bugs that were found in other tools, each as a case that kilter reads right (their places stand in each test)."""

from __future__ import annotations

import msgspec
import pytest

from asked import of, verdict
from kilter.diagnose.engine import diagnose
from kilter.diagnose.rules import xid as xid_rules
from kilter.facts.finding import Finding, Severity
from kilter.intake.merge import assemble
from kilter.intake.paste import read_text
from kilter.knowledge import ib_counters, nvlink5, throttle, xid
from kilter.knowledge.explain import explain
from outputs import smi
from outputs import xid as xid_line


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


def test_row_remap_check_fires() -> None:
    """azurehpc-health-checks asks nvidia-smi for three columns and reads the fourth: its check can never fire."""
    row = "remapped_rows.pending, remapped_rows.failure, remapped_rows.uncorrectable, uuid\n{}, {}, 3, GPU-1\n"
    for pending, failure, finding in (
        ("Yes", "No", "gpu.row_remap.pending"),
        ("No", "Yes", "gpu.row_remap.failure"),
        ("1", "0", "gpu.row_remap.pending"),
    ):
        assert of(verdict({"n1/q.csv": row.format(pending, failure)}), finding), (pending, failure)
    assert not of(verdict({"n1/q.csv": row.format("No", "No")}), "gpu.row_remap.pending")


@pytest.mark.parametrize(
    ("mask", "bits"),
    [
        ("0x0000000000000048", {"hw_slowdown", "hw_thermal_slowdown"}),
        ("0x0000000000000024", {"sw_power_cap", "sw_thermal_slowdown"}),
        ("0x0000000000000088", {"hw_slowdown", "hw_power_brake_slowdown"}),
        ("0x0000000000000000", set()),
    ],
)
def test_throttle_reasons_are_bits(mask: str, bits: set[str]) -> None:
    """azurehpc-health-checks compares the mask with single values, and only logs what it finds."""
    row = f"clocks_throttle_reasons.active, pstate, uuid\n{mask}, P0, GPU-1\n"
    loud = {f.id for f in verdict({"n1/q.csv": row}).findings if f.severity is not Severity.INFO}
    assert set(throttle.names_of_mask(int(mask, 16))) == bits
    assert bool(loud) == bool(bits - {"sw_power_cap"}), loud


@pytest.mark.parametrize("value", range(5, 10))
def test_recovery_action_above_four_is_not_ok(value: int) -> None:
    """DCGM 4.6 reports OK for every value above 4."""
    (finding,) = of(verdict({"n1/smi.txt": smi(1, every={"GPU Recovery Action": f"Unknown ({value})"})}), "gpu.recovery_action")
    assert finding.severity.rank >= Severity.ERROR.rank


@pytest.mark.parametrize(
    ("code", "title", "name"),
    [
        (38, "PCIe Bus Error", "FECS_ERR_WATCHDOG_TIMEOUT"),
        (39, "PCIe Fabric Error", "CE0_ERROR"),
        (42, "PCIe Replay Error", "VIC_ERROR"),
        (57, "Clock change due to power", "FB_LINK_TRAINING_FAILURE_ERROR"),
        (62, "Thermal Violation", "PMU_HALT_ERROR"),
        (67, "NVLink Error", "FECS_ERR_VERIF_VIOLATION"),
        (73, "NVLink Flow Control Error", "NVENC2_ERROR"),
    ],
)
def test_the_drivers_name_of_an_xid_wins_over_dcgms_title(code: int, title: str, name: str) -> None:
    """DCGM 4.6's health watch (DcgmHealthWatch.cpp) titles these codes after something else."""
    found = explain(f"xid {code}")
    assert found is not None
    assert name in found.title
    assert title not in found.title
    assert any(title in note and name in note for note in found.disagreements)
    (finding,) = of(verdict({"n1/kern.log": xid_line("10:00:00", code, "text")}), f"gpu.xid.{code}")
    assert title in finding.disagreement


def test_codes_that_dcgm_names_right_have_no_such_note() -> None:
    assert xid.dcgm_title(48) == xid.dcgm_title(79) == ""


def one_layout() -> list[tuple[int, str, int, int, str]]:
    """(code, unit, intrinfo, status, layout) of lines that only one register layout reads, one of each layout."""
    found: dict[str, tuple[int, str, int, int, str]] = {}
    for rule in nvlink5.rules():
        unit, status = rule.unit.split("/")[0], int(rule.error_status, 16)
        for layout, pattern in (("R575 on", rule.intrinfo_r575_on), ("before R575", rule.intrinfo_before_r575)):
            info = int(pattern.replace("-", "0"), 2)
            layouts = {
                one.layout for v in ("570.0", "580.0") if (one := nvlink5.decode(rule.xid, unit, [info, status], v)) is not None
            }
            if layouts == {layout}:
                found.setdefault(layout, (rule.xid, unit, info, status, layout))
    return [found[layout] for layout in sorted(found)]


def nvlink5_line(code: int, unit: str, info: int, status: int) -> str:
    return xid_line("10:00:00", code, f"{unit} Fatal XC0 i0 Link 04 (0x{info:08x} 0x{status:08x} 0x00000000)", pid=None)


@pytest.mark.parametrize(("code", "unit", "info", "status", "layout"), one_layout())
def test_nvlink5_decode_says_by_which_layout_it_read(code: int, unit: str, info: int, status: int, layout: str) -> None:
    """The fields of intrinfo moved at R575 (NVIDIA/NVSentinel#748): without a driver version, the layout is told; with the wrong one, a doubt."""
    text = nvlink5_line(code, unit, info, status)
    (unknown,) = of(verdict({"n1/kern.log": text}), f"gpu.xid.{code}")
    assert f"driver version not known; only the layout of drivers {layout} fits" in unknown.what
    right, wrong = ("580.65.06", "570.124.06") if layout == "R575 on" else ("570.124.06", "580.65.06")
    loading = "2026-03-04T09:00:00.000000+00:00 n1 kernel: NVRM: loading NVIDIA UNIX x86_64 Kernel Module  {}  Tue Mar  5 22:23:56 UTC 2024\n"
    (known,) = of(verdict({"n1/kern.log": loading.format(right) + text}), f"gpu.xid.{code}")
    assert "layout" not in known.what
    (doubt,) = of(verdict({"n1/kern.log": loading.format(wrong) + text}), f"gpu.xid.{code}")
    assert f"the driver is given as {wrong}" in doubt.what


def test_nvlink5_readings_that_differ_are_both_told() -> None:
    """No line of today's sheet is read otherwise by the two layouts; if one ever is, both answers stand in the finding."""
    code, unit, info, status, _ = one_layout()[0]
    one = nvlink5.decode(code, unit, [info, status])
    assert one is not None
    two = msgspec.structs.replace(one, other=msgspec.structs.replace(one, severity="non-fatal", sub_code=63))
    text = xid_rules._decoded(two)
    assert "driver version not known" in text
    assert "before R575 non-fatal, sub-code 63" in text
    assert f"R575 and later {one.severity}, sub-code {one.sub_code}" in text


def test_no_rule_is_evaluated_as_code() -> None:
    """superbenchmark runs rules of its configuration through eval."""
    from pathlib import Path

    import kilter

    for path in Path(kilter.__file__).parent.rglob("*.py"):
        text = path.read_text(encoding="utf-8")
        assert not any(word in text for word in (" eval(", "=eval(", "(eval(", " exec(", "yaml.unsafe_load", "shell=True")), path
