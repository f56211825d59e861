"""Kernel log lines become events, in every form in which logs reach us."""

from pathlib import Path

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from kilter.facts.event import Clock, Event
from kilter.intake.captures import kernel_log
from kilter.intake.captures.log_time import read_stamp
from mangle import mangled

DATA = Path(__file__).parents[2] / "data"


def events(text: str) -> list[Event]:
    return kernel_log.scan(text, "log", year=2026).events


def one(text: str) -> Event:
    (event,) = events(text)
    return event


XID = "NVRM: Xid (PCI:0000:18:00): 79, pid=1234, name=python, GPU has fallen off the bus."


@pytest.mark.parametrize(
    ("prefix", "time", "clock", "node"),
    [
        ("[12345.678901] ", 12345.678901, Clock.BOOT, ""),
        ("<4>[12345.678901] ", 12345.678901, Clock.BOOT, ""),
        ("[12345.678901][ T1234] ", 12345.678901, Clock.BOOT, ""),
        ("[  +0.000002] ", None, Clock.NONE, ""),
        ("[Sun Feb 23 16:24:18 2025] ", 1740327858.0, Clock.LOCAL, ""),
        ("kern  :warn  : 2025-01-21T04:41:44,283302+00:00 ", 1737434504.283302, Clock.UTC, ""),
        ("kern  :err   : [   12.5] ", 12.5, Clock.BOOT, ""),
        ("4,3973,227996636,-;", 227.996636, Clock.BOOT, ""),
        ("Feb 23 16:24:18 gpu-17 kernel: ", 1771863858.0, Clock.LOCAL, "gpu-17"),
        ("Feb 23 16:24:18 gpu-17 kernel: [12345.678901] ", 1771863858.0, Clock.LOCAL, "gpu-17"),
        ("2月 23 16:24:18 gpu-17 kernel: ", 1771863858.0, Clock.LOCAL, "gpu-17"),
        ("févr. 23 16:24:18 gpu-17 kernel: ", 1771863858.0, Clock.LOCAL, "gpu-17"),
        ("2025-02-23T16:24:18+0000 gpu-17 kernel: ", 1740327858.0, Clock.UTC, "gpu-17"),
        ("2025-02-23T17:24:18.5+01:00 gpu-17 kernel: ", 1740327858.5, Clock.UTC, "gpu-17"),
        ("2025-02-23 16:24:18 gpu-17 kernel: ", 1740327858.0, Clock.LOCAL, "gpu-17"),
        ("gpu-17: [12345.678901] ", 12345.678901, Clock.BOOT, "gpu-17"),
        ("", None, Clock.NONE, ""),
    ],
)
def test_every_log_form_gives_time_clock_and_host(prefix: str, time: float | None, clock: Clock, node: str) -> None:
    event = one(prefix + XID)
    assert (event.kind, event.code, event.device) == ("xid", 79, "0000:18:00.0")
    assert event.time == (pytest.approx(time) if time is not None else None)
    assert (event.clock, event.node) == (clock, node)
    assert event.fields["pid"] == "1234"


def test_journal_json_is_read_with_its_host_and_microseconds() -> None:
    event = one('{"_HOSTNAME":"n1","__REALTIME_TIMESTAMP":"1740327858500000","MESSAGE":"' + XID + '","_TRANSPORT":"kernel"}')
    assert (event.time, event.clock, event.node, event.code) == (1740327858.5, Clock.UTC, "n1", 79)


def test_syslog_year_is_assumed_and_marked() -> None:
    assert one("Feb 23 16:24:18 h kernel: " + XID).fields["year"] == "assumed"


# The MIG form and units with digits are lost by leptonai/gpud 4a8de33 (research: health.md section 8).
def test_mig_form_keeps_the_xid_and_its_instances() -> None:
    event = one(
        "NVRM: Xid (PCI:0000:18:00 GPU-I:01 GPU-CI:00): 94, pid=7194, Contained: CE User Channel (0x9). RST: No, D-RST: No"
    )
    assert (event.code, event.device) == (94, "0000:18:00.0")
    assert (event.fields["gi"], event.fields["ci"]) == ("01", "00")


@pytest.mark.parametrize("unit", ["NETIR_LINK_EVT", "TLW_RX/TLW_RX_PIPE0", "RLW_SRC_TRACK"])
def test_nvlink5_form_keeps_unit_link_severity_and_registers(unit: str) -> None:
    event = one(f"NVRM: Xid (PCI:0000:18:00): 149, {unit} Fatal XC0 i0 Link 04 (0x004505c6 0x00000000 0x00000000)")
    assert (event.code, event.severity) == (149, "Fatal")
    assert (event.fields["unit"], event.fields["link"]) == (unit, "04")
    assert event.fields["regs"].split()[0] == "0x004505c6"


def test_caused_by_previous_xid_is_read() -> None:
    assert one("NVRM: Xid (PCI:0000:18:00): 45, pid=1, name=x, channel 0x8 caused by previous Xid 31").fields["caused_by"] == "31"


def test_recovery_action_of_xid_154_is_read() -> None:
    event = one("NVRM: Xid (PCI:0000:18:00): 154, GPU recovery action changed from 0x0 (None) to 0x2 (Node Reboot Required)")
    assert (event.fields["action"], event.fields["action_value"]) == ("Node Reboot Required", "2")


@pytest.mark.parametrize("code", [133, 174, 176, 999])
def test_codes_that_other_tables_lack_are_not_dropped(code: int) -> None:
    assert one(f"NVRM: Xid (PCI:0000:18:00): {code}, text").code == code


def test_xid_in_a_form_nobody_knows_is_an_unknown_fault_and_not_dropped() -> None:
    assert one("[1.0] NVRM: GPU3 new style XID report code=79").kind == "unknown_fault"


def test_gpu_fallen_off_the_bus_on_three_lines_is_one_event_with_its_address() -> None:
    text = (
        "[5.0] NVRM: The NVIDIA GPU 0000:18:00.0\n[5.0] NVRM: (PCI ID: 10de:2330) installed in this system has\n"
        "[5.0] NVRM: fallen off the bus and is not responding to commands.\n"
    )
    event = one(text)
    assert (event.kind, event.device) == ("gpu.off_bus", "0000:18:00.0")


def test_gsp_timeout_dump_is_xids_and_no_unknown_lines() -> None:
    found = events((DATA / "s018-xid119-gsp-timeout-h100/dmesg.txt").read_text())
    assert {e.kind for e in found} == {"xid"}
    assert {e.code for e in found} == {119}
    assert {e.fields["function_name"] for e in found} == {"GSP_RM_ALLOC", "GSP_RM_CONTROL", "FREE"}
    assert {e.fields["gpu_index"] for e in found} == {"4"}


def test_aer_lines_of_one_error_are_one_event_with_its_bits() -> None:
    text = (
        "[1.0] pcieport 0000:15:01.0: AER: Corrected error message received from 0000:18:00.0\n"
        "[1.0] nvidia 0000:18:00.0: PCIe Bus Error: severity=Corrected, type=Physical Layer, (Receiver ID)\n"
        "[1.0] nvidia 0000:18:00.0:   device [10de:2330] error status/mask=00000041/0000e000\n"
        "[1.0] nvidia 0000:18:00.0:    [ 0] RxErr                  (First)\n"
        "[1.0] nvidia 0000:18:00.0:    [ 6] BadTLP                \n"
    )
    root, error = events(text)
    assert (root.kind, root.fields["from"]) == ("aer.root", "0000:18:00.0")
    assert (error.kind, error.device, error.severity) == ("aer", "0000:18:00.0", "Corrected")
    assert error.fields["errors"].split() == ["RxErr", "BadTLP"]
    assert error.fields["agent"] == "Receiver ID"


@pytest.mark.parametrize(
    ("line", "kind"),
    [
        ("pcieport 0000:15:01.0: pciehp: Slot(3): Link Down", "pcie.hotplug"),
        ("nvidia-nvswitch3: SXid (PCI:0000:05:00.0): 12028, Non-fatal, Link 32 egress non-posted PRIV error (First)", "sxid"),
        ("NVRM: GPU 0000:18:00.0: RmInitAdapter failed! (0x62:0x0:2000)", "gpu.init_failed"),
        ("NVRM: API mismatch: the client has the version 550.54.15, but", "driver.api_mismatch"),
        ("NVRM: Slow RPC response from GPU0 GSP (5000000us)", "gpu.gsp_slow"),
        ("NVRM: knvlinkUpdatePostRxDetectLinkMask_IMPL: Failed to update Rx Detect Link mask!", "nvlink.detect_failed"),
        ("NVRM: GPU 18:00.0: GPU has fallen off the bus.", "gpu.off_bus"),
        ("pcieport 0000:e8:00.4: AER: Corrected error received: 0000:e9:00.0", "aer.root"),
        ("NVRM: krcWatchdog_IMPL: RC watchdog: GPU is probably locked!", "gpu.watchdog"),
        ("mlx5_core 0000:1a:00.0: poll_health:803:(pid 0): device's health compromised - reached miss count", "mlx5.health"),
        (
            "mlx5_core 0000:1a:00.0: wait_func:1155:(pid 9): ACCESS_REG(0x805) timeout. Will cause a leak of a command resource",
            "mlx5.timeout",
        ),
        ("mlx5_core 0000:1a:00.0: Port module event[error]: module 0, Cable error, Bad or shorted cable", "mlx5.module"),
        (
            "mlx5_core 0000:1a:00.0: mlx5_pcie_event:304:(pid 1): Detected insufficient power on the PCIe slot (26W).",
            "mlx5.power",
        ),
        ("mlx5_core 0000:1a:00.0 ib0: Link down", "mlx5.link_down"),
        ("Out of memory: Killed process 4242 (python3) total-vm:100kB, anon-rss:1kB", "oom.kill"),
        ("Memory cgroup out of memory: Killed process 4242 (python3) total-vm:100kB", "oom.kill"),
        ("INFO: task nvidia-smi:4242 blocked for more than 120 seconds.", "hung_task"),
        ("watchdog: BUG: soft lockup - CPU#3 stuck for 22s! [python:4242]", "lockup"),
        ("EDAC MC0: 1 UE memory read error on CPU_SrcID#0_MC#0", "edac"),
        ("mce: [Hardware Error]: CPU 3: Machine Check: 0 Bank 5: be00000000800400", "machine_check"),
        (
            "pt_main_thread[2536443]: segfault at 7f79 ip 00007f7 sp 00007f7 error 4 in libnccl.so.2[7f7c7ac00000+d3d3000]",
            "segfault",
        ),
        ("DMAR: [DMA Read NO_PASID] Request device [18:00.0] fault addr 0xff", "iommu.fault"),
        ("EXT4-fs (nvme0n1p2): Remounting filesystem read-only", "filesystem.read_only"),
        ("Kernel panic - not syncing: Fatal exception", "kernel.panic"),
        (
            "nvidia-peermem nv_get_p2p_free_callback:127 ERROR detected invalid context, skipping further processing",
            "peermem.invalid_context",
        ),
    ],
)
def test_known_lines_have_their_kind(line: str, kind: str) -> None:
    assert one(f"[100.0] {line}").kind == kind


@pytest.mark.parametrize(
    "line",
    [
        "[1.0] NVRM: loading NVIDIA UNIX x86_64 Kernel Module  550.54.15  Tue Mar  5 22:23:56 UTC 2024",
        "[1.0] mlx5_core 0000:1a:00.0: Port module event: module 0, Cable plugged",
        "[1.0] mlx5_core 0000:1a:00.0: firmware version: 28.41.1000",
        "[1.0] nvidia: module verification failed: signature and/or required key missing - tainting kernel",
        "[1.0] nvidia-nvlink: Nvlink Core is being initialized, major device number 510",
        "[1.0] pci 0000:18:00.0: BAR 1: assigned [mem 0x0000-0xffff 64bit pref]",
        "DEBUG: error in my own program",
        "RuntimeError: CUDA out of memory. Tried to allocate 2.00 GiB",
    ],
)
def test_ordinary_lines_are_silent(line: str) -> None:
    assert events(line) == []


def test_a_boot_log_tells_of_the_machine_too() -> None:
    text = (
        "[0.0] Linux version 6.8.0-45-generic (buildd@x) (gcc)\n[0.0] Command line: BOOT_IMAGE=/vmlinuz root=/dev/sda1 iommu=pt\n"
        "[0.0] DMI: Dell Inc. PowerEdge XE9680/0KK0RG, BIOS 2.3.5 09/10/2024\n"
        "[1.0] NVRM: loading NVIDIA UNIX x86_64 Kernel Module  550.54.15  Tue Mar  5\n"
    )
    assert {name: value for name, (value, _) in kernel_log.scan(text, "log", year=2026).facts.items()} == {
        "kernel.release": "6.8.0-45-generic",
        "kernel.cmdline": "BOOT_IMAGE=/vmlinuz root=/dev/sda1 iommu=pt",
        "host.dmi_product": "Dell Inc. PowerEdge XE9680",
        "software.driver_version": "550.54.15",
    }


def test_lines_are_numbered_as_in_the_file() -> None:
    text = "\n".join(["noise"] * 99 + [f"[1.0] {XID}"] + ["noise"] * 50 + [f"[2.0] {XID}"])
    assert [e.line for e in events(text)] == [100, 151]


LOGS = [
    "s018-xid119-gsp-timeout-h100/dmesg.txt",
    "s019-xid13-43-user-fault/dmesg.txt",
    "s021-peermem-invalid-context/kmsg.txt",
    "s059-xid79-rtx4090-fell-off-bus/kernel.log",
]


@given(st.sampled_from(LOGS).flatmap(lambda name: mangled((DATA / name).read_text())))
@settings(max_examples=100, deadline=None)
def test_damaged_logs_never_raise(text: str) -> None:
    events(text)


@given(st.text(max_size=200))
@settings(max_examples=200, deadline=None)
def test_any_line_has_a_stamp(line: str) -> None:
    stamp = read_stamp(line, year=2026)
    assert 0 <= stamp.end <= len(line)


APEI = """\
[  100.1] {1}[Hardware Error]: Hardware error from APEI Generic Hardware Error Source: 512
[  100.1] {1}[Hardware Error]: event severity: SEVERITY
[  100.1] {1}[Hardware Error]:  Error 0, type: SEVERITY
[  100.1] {1}[Hardware Error]:   section_type: SECTION
[  100.1] {1}[Hardware Error]:   port_type: 0, PCIe end point
[  100.1] {1}[Hardware Error]:   device_id: 0000:18:00.0
"""


def test_pcie_error_that_firmware_reports_is_an_aer_event_of_its_device():
    """Firmware-first systems leave sysfs at 0 and tell by APEI (drivers/firmware/efi/cper.c)."""
    for word, severity in (("fatal", "Uncorrectable (Fatal)"), ("corrected", "Corrected")):
        (event,) = kernel_log.scan(APEI.replace("SEVERITY", word).replace("SECTION", "PCIe error"), "x", year=2026).events
        assert (event.kind, event.device, event.severity) == ("aer", "0000:18:00.0", severity)


def test_memory_error_that_firmware_reports_stays_a_machine_check():
    (event,) = kernel_log.scan(APEI.replace("SEVERITY", "recoverable").replace("SECTION", "memory error"), "x", year=2026).events
    assert event.kind == "machine_check"
    twice = APEI.replace("SEVERITY", "recoverable").replace("SECTION", "memory error") * 2
    assert [e.kind for e in kernel_log.scan(twice, "x", year=2026).events] == ["machine_check"] * 2


@pytest.mark.parametrize(
    "stamp", ["[Fri Nov 77777777777777777777 12:24:18 2025]", "[Fri Nov 99 12:24:18 2025]", "[Fri Nov  7 12:24:18 0000]"]
)
def test_a_moment_that_does_not_exist_costs_only_the_time(stamp: str) -> None:
    event = one(f"{stamp} {XID}")
    assert (event.kind, event.time) == ("xid", None)
