"""rasdaemon's tables and log lines. Forms: mchehab/rasdaemon (util/ras-mc-ctl.in, ras-*-handler.c), messages on the linux-edac list."""

from __future__ import annotations

from hypothesis import given, settings

from kilter.facts.event import Clock
from kilter.intake.captures import kernel_log
from kilter.intake.merge import assemble
from kilter.intake.paste import read_text
from mangle import check_references, long_lines, mangled, parse_text

SUMMARY = """\
Memory controller events summary:
	Corrected on DIMM Label(s): 'CPU_SrcID#0_MC#1_Chan#0_DIMM#0' location: 1:0:0:-1 errors: 340
	Uncorrected on DIMM Label(s): 'B2' location: 0:1:1:-1 errors: 2

PCIe AER events summary:
	2 Uncorrected (Non-Fatal) errors: Completion Timeout

No Extlog errors.

MCE records summary:
	3 Uncorrected, software containable error. errors
"""
ERRORS = """\
Memory controller events:
1 2026-09-30 10:00:00 +0000 1 Uncorrected error(s): memory read error at B2 location: 0:1:1:-1, addr 123

PCIe AER events:
1 2026-09-30 10:00:00 +0000 0000:3b:00.0 Corrected error: Receiver Error

No MCE errors.
"""
LOG = """\
Feb 11 22:34:40 milan-3 rasdaemon[918]:            <...>-42552 [001]     0.007845: mce_record:           2022-02-11 22:34:40 +0100 \
Unified Memory Controller (bank=18), status= 9c2040000000011b, Corrected error, no action required., mci=CECC, mca= DRAM ECC error.
Feb 11 22:34:41 milan-3 rasdaemon[918]: rasdaemon: mce_record store: 0x1d3ab48
Feb 11 22:34:41 milan-3 rasdaemon[918]: <...>-42552 [001]     0.007845: aer_event: 2022-02-11 22:34:40 +0100 0000:e0:00.0 Uncorrected (Fatal) error: Surprise Down
"""
PYTHON = """\
Hostname: srv01
  mc_event:
    err_type=Uncorrected, label=CPU_SrcID#0_MC#0_Chan#1_DIMM#0: 2 event(s)
  mce_record: 3 event(s)
"""
CLEAN = "No Memory errors.\n\nNo PCIe AER errors.\n\nNo Extlog errors.\n\nNo MCE errors.\n"


def test_summary_counts_by_dimm_device_and_kind() -> None:
    found = [(e.kind, e.severity, e.fields.get("label", "")) for e in parse_text("rasdaemon", SUMMARY).events]
    assert found == [
        ("edac", "CE", "CPU_SrcID#0_MC#1_Chan#0_DIMM#0"),
        ("edac", "UE", "B2"),
        ("aer", "Uncorrected (Non-Fatal)", ""),
        ("machine_check", "uncorrected", ""),
    ]


def test_error_rows_carry_time_device_and_label() -> None:
    memory, pcie = parse_text("rasdaemon", ERRORS).events
    assert memory.fields == {"reader": "rasdaemon", "severity": "UE", "count": "1", "label": "B2"}
    assert (memory.time, memory.clock) == (1790762400.0, Clock.UTC)
    assert (pcie.device, pcie.fields["errors"]) == ("0000:3b:00.0", "RxErr")


def test_daemon_lines_name_the_node_and_skip_bookkeeping() -> None:
    fragment = parse_text("rasdaemon", LOG)
    mce, aer = fragment.events
    assert (mce.kind, mce.severity, mce.node, mce.fields["bank"]) == ("machine_check", "corrected", "milan-3", "18")
    assert (aer.device, aer.severity) == ("0000:e0:00.0", "Uncorrected (Fatal)")
    assert not fragment.unplaced


def test_python_summary_of_version_1() -> None:
    memory, mce = parse_text("rasdaemon", PYTHON).events
    assert memory.fields["count"] == "2"
    assert mce.count == 3


def test_error_count_table_drops_zeros() -> None:
    (event,) = parse_text("rasdaemon", "Label                 CE      UE\nmc#0csrow#2channel#0  0   0\nDIMM_A1  7 0\n").events
    assert event.fields == {"reader": "rasdaemon", "severity": "CE", "count": "7", "label": "DIMM_A1"}


def test_a_clean_database_gives_no_event() -> None:
    fragment = parse_text("rasdaemon", CLEAN)
    assert not fragment.events
    assert not fragment.unplaced


def test_pstore_records_are_read_as_kernel_log() -> None:
    # Form of dmesg-erst-* and dmesg-efi-*: a "Panic#1 Part1" line, then <level>[seconds] lines (leptonai/gpud pkg/pstore/testdata).
    text = "Panic#1 Part1\n<6>[  201.650687] sysrq: Trigger a crash\n<0>[  201.7] Kernel panic - not syncing: Fatal exception\n<4>[  201.8] Oops: 0002 [#1] SMP\n"
    kinds = [e.kind for e in kernel_log.scan(text, "dmesg-erst-1", year=2026).events]
    assert kinds == ["kernel.panic", "kernel.oops"]


@settings(max_examples=60, deadline=None)
@given(mangled(SUMMARY + ERRORS + LOG + PYTHON))
def test_damaged_text_raises_nothing(text: str) -> None:
    check_references(parse_text("rasdaemon", text), text)


@settings(max_examples=30, deadline=None)
@given(
    long_lines(
        SUMMARY, "Memory controller events:\n1 2026-09-30 10:00:00 1 Corrected error:", "PCIe AER events summary:\n1 ", LOG
    )
)
def test_long_lines_are_harmless(text: str) -> None:
    parse_text("rasdaemon", text)


KERNEL = """\
Nov  3 08:00:00 node1 kernel: EDAC MC0: 1 CE memory read error on DIMM_A1 (channel:0 slot:0 page:0x0 offset:0x0 grain:32 syndrome:0x0)
Nov  3 08:00:01 node1 kernel: EDAC MC0: 2 CE memory read error on DIMM_A1 (channel:0 slot:0 page:0x0 offset:0x0 grain:32 syndrome:0x0)
Nov  3 08:00:02 node1 kernel: pcieport 0000:00:01.0: AER: Corrected error received: 0000:3b:00.0
Nov  3 08:00:02 node1 kernel: nvidia 0000:3b:00.0: PCIe Bus Error: severity=Corrected, type=Physical Layer, (Receiver ID)
Nov  3 08:00:02 node1 kernel: nvidia 0000:3b:00.0:   device [10de:2330] error status/mask=00000001/0000a000
Nov  3 08:00:02 node1 kernel: nvidia 0000:3b:00.0:    [ 0] RxErr
"""


def counted(*texts: str) -> dict[str, int]:
    """Errors by kind and, where one is named, DIMM or device."""
    fragments = [one for n, text in enumerate(texts) for one in read_text(f"f{n}", text, year=2026)[0]]
    for one in fragments:
        one.group = "node1"
    out: dict[str, int] = {}
    for event in assemble(fragments, []).events:
        errors = int(event.fields.get("count", "1")) if event.kind == "edac" else 1
        out[event.kind] = out.get(event.kind, 0) + event.count * errors
    return out


def test_what_the_kernel_and_rasdaemon_both_tell_counts_once() -> None:
    alone = counted(KERNEL)
    summary = "Memory controller events summary:\n\tCorrected on DIMM Label(s): 'DIMM_A1' location: 0:0:-1:-1 errors: 3\n"
    assert counted(KERNEL, summary) == alone
    aer = "PCIe AER events:\n1 2026-11-03 08:00:02 +0000 0000:3b:00.0 Corrected error: Receiver Error\n"
    assert counted(KERNEL, aer) == alone


def test_what_rasdaemon_knows_beyond_the_kernel_log_stays() -> None:
    summary = "Memory controller events summary:\n\tCorrected on DIMM Label(s): 'DIMM_A1' location: 0:0:-1:-1 errors: 120\n"
    assert counted(KERNEL, summary)["edac"] == 120
    other = summary.replace("DIMM_A1", "DIMM_B2")
    assert counted(KERNEL, other)["edac"] == 123
    worse = summary.replace("Corrected on", "Uncorrected on").replace("errors: 120", "errors: 1")
    assert counted(KERNEL, worse)["edac"] == 4
    assert counted(summary)["edac"] == 120
