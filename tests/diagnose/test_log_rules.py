"""Kernel logs: causes told from consequences, storms from single lines, unknown codes from silence."""

from collections.abc import Callable

import pytest

Texts = Callable[..., "Verdict"]  # noqa: F821 - the fixture's class lives in conftest

OFF_BUS = "NVRM: Xid (PCI:0000:18:00): 79, pid=1, name=x, GPU has fallen off the bus."


def test_xid45_caused_by_31_is_information(texts: Texts) -> None:  # NVIDIA/NVSentinel#1710
    verdict = texts("[1.0] NVRM: Xid (PCI:0000:18:00): 45, pid=1, name=x, channel 0x8 caused by previous Xid 31\n")
    assert verdict.ids == {"gpu.xid.45": "info"}
    assert "follows XID 31" in verdict.one("gpu.xid.45").what


def test_xid45_storm_without_a_cause_is_a_warning(texts: Texts) -> None:
    text = "".join(f"[{t}.0] NVRM: Xid (PCI:0000:18:00): 45, pid={t}, name=x, Ch 00000008\n" for t in range(1000, 8000, 1000))
    assert texts(text).ids == {"gpu.xid.45": "warning"}


def test_memory_burst_is_one_finding_named_by_the_worst(texts: Texts) -> None:
    text = "".join(f"[10.{i}] NVRM: Xid (PCI:0000:18:00): {code}, pid=1, name=x, text\n" for i, code in enumerate((48, 63, 94)))
    verdict = texts(text)
    assert verdict.ids == {"gpu.xid.48": "error"}
    assert [e.role for e in verdict.one("gpu.xid.48").evidence].count("supports") == 3


def test_memory_codes_of_different_days_are_different_findings(texts: Texts) -> None:
    verdict = texts("[10.0] NVRM: Xid (PCI:0000:18:00): 63, text\n[90000.0] NVRM: Xid (PCI:0000:18:00): 94, text\n")
    assert set(verdict.ids) == {"gpu.xid.63", "gpu.xid.94"}


def test_xid79_after_aer_storm_blames_the_riser(texts: Texts) -> None:
    text = (
        "[50.0] nvidia 0000:18:00.0: PCIe Bus Error: severity=Uncorrected (Fatal), type=Data Link Layer, (Receiver ID)\n[50.1] nvidia 0000:18:00.0:    [ 5] SDES                   (First)\n[52.0] "
        + OFF_BUS
        + "\n"
    )
    finding = texts(text).one("gpu.xid.79")
    assert "riser" in finding.causes[0].text


def test_xid79_after_gsp_timeout_blames_the_firmware(texts: Texts) -> None:
    text = (
        "[50.0] NVRM: Xid (PCI:0000:18:00): 119, pid=1, name=x, Timeout after 6s of waiting for RPC response from GPU0 GSP! Expected function 76 (GSP_RM_CONTROL) (0x1 0x2).\n[60.0] "
        + OFF_BUS
        + "\n"
    )
    assert "GSP" in texts(text).one("gpu.xid.79").causes[0].text


def test_xid79_alone_says_that_its_cause_is_not_known(texts: Texts) -> None:
    finding = texts("[50.0] " + OFF_BUS + "\n").one("gpu.xid.79")
    assert any(e.role == "contradicts" for e in finding.evidence)
    assert all(c.likelihood == "possible" for c in finding.causes)


def test_several_gpus_gone_at_once_point_to_power(texts: Texts) -> None:
    text = "".join(f"[50.{i}] " + OFF_BUS.replace(":18:", f":{18 + i}:") + "\n" for i in range(4))
    verdict = texts(text)
    assert all("power" in f.causes[0].text for f in verdict.diagnosis.findings if f.id == "gpu.xid.79")


def test_off_bus_on_several_lines_without_the_word_xid(texts: Texts) -> None:  # leptonai/gpud#1209
    text = "[5.0] NVRM: The NVIDIA GPU 0000:18:00.0\n[5.0] NVRM: (PCI ID: 10de:2330) installed in this system has\n[5.0] NVRM: fallen off the bus and is not responding to commands.\n"
    assert texts(text).ids == {"gpu.xid.79": "critical"}


def test_lost_gpu_reads_as_one_trouble_with_its_signs(capture: Texts) -> None:
    folder = "s059-xid79-rtx4090-fell-off-bus"
    verdict = capture(
        *(f"{folder}/{n}" for n in ("kernel.log", "lspci-nvidia.txt", "nvidia-smi-after-drain.txt", "nvidia-smi.err"))
    )
    assert {f.id: f.explained_by for f in verdict.diagnosis.findings if f.severity.rank >= 1} == {
        "gpu.xid.79": "",
        "gpu.lost": "gpu.xid.79",
        "gpu.count_mismatch": "gpu.xid.79",
        "pcie.device_config_space_ff": "gpu.xid.79",
    }


def test_user_fault_is_no_hardware_fault(capture: Texts) -> None:
    verdict = capture("s019-xid13-43-user-fault/dmesg.txt")
    assert verdict.ids == {"gpu.xid.13": "warning", "gpu.xid.43": "info"}
    assert "compute-sanitizer" in verdict.one("gpu.xid.13").next_test


@pytest.mark.parametrize(("word", "severity"), [("Fatal", "critical"), ("Nonfatal", "warning")])
def test_the_word_in_an_nvlink5_line_outranks_the_table(texts: Texts, word: str, severity: str) -> None:
    verdict = texts(
        f"[1.0] NVRM: Xid (PCI:0000:18:00): 149, NETIR_LINK_EVT {word} XC0 i0 Link 04 (0x004505c6 0x00000000 0x00000000)\n"
    )
    assert verdict.ids["gpu.xid.149"] == severity


def test_unknown_xid_is_reported_with_low_confidence(texts: Texts) -> None:
    finding = texts("[1.0] NVRM: Xid (PCI:0000:18:00): 999, text\n").one("gpu.xid.999")
    assert (finding.severity.value, finding.confidence) == ("warning", "low")


def test_disagreement_of_the_tools_is_shown(texts: Texts) -> None:
    assert "gpud" in texts("[1.0] NVRM: Xid (PCI:0000:18:00): 94, Contained\n").one("gpu.xid.94").disagreement


def test_recovery_action_change_is_as_bad_as_the_action(texts: Texts) -> None:
    line = "[1.0] NVRM: Xid (PCI:0000:18:00): 154, GPU recovery action changed from 0x{} ({}) to 0x{} ({})\n"
    assert texts(line.format(0, "None", 2, "Node Reboot Required")).ids == {"gpu.xid.154": "error"}
    assert texts(line.format(2, "Node Reboot Required", 0, "None")).ids == {"gpu.xid.154": "info"}


def test_nonfatal_sxid_is_a_warning_and_no_drain(capture: Texts) -> None:
    assert capture("s022-fabricmanager-nvswitch-nonfatal-12028/fabricmanager.log").ids == {"nvswitch.sxid.12028": "warning"}


def test_switch_is_a_witness_when_the_gpu_died(texts: Texts) -> None:
    verdict = texts(
        "[50.0] " + OFF_BUS + "\n[50.5] nvidia-nvswitch0: SXid (PCI:0000:a9:00.0): 20034, Fatal, Link 30 LTSSM Fault Up\n"
    )
    assert "witness" in verdict.one("nvswitch.sxid.20034").causes[0].text


def test_a_few_corrected_errors_are_information_a_storm_is_not(texts: Texts) -> None:
    line = "[{}.0] nvidia 0000:18:00.0: PCIe Bus Error: severity=Corrected, type=Physical Layer, (Receiver ID)\n[{}.0] nvidia 0000:18:00.0:    [ 0] RxErr                  (First)\n"
    assert texts(line.format(1, 1) + line.format(4000, 4000)).ids == {"pcie.aer.corrected": "info"}
    assert texts("".join(line.format(t, t) for t in range(10, 60, 2))).ids == {"pcie.aer.corrected_storm": "warning"}


@pytest.mark.parametrize(
    ("line", "finding", "severity"),
    [
        ("NVRM: GPU 0000:18:00.0: RmInitAdapter failed! (0x62:0x0:2000)", "gpu.init_failed", "critical"),
        (
            "NVRM: API mismatch: the client has the version 550.54.15, but this kernel module has the version 535.1",
            "driver.version_mismatch",
            "error",
        ),
        (
            "nvidia-peermem nv_get_p2p_free_callback:127 ERROR detected invalid context, skipping further processing",
            "rdma.peermem.invalid_context",
            "warning",
        ),
        ("pcieport 0000:15:01.0: pciehp: Slot(3): Link Down", "pcie.hotplug.link_down", "error"),
        ("mlx5_core 0000:1a:00.0: device's health compromised - reached miss count", "nic.mlx5.health", "error"),
        (
            "mlx5_core 0000:1a:00.0: Port module event[error]: module 0, Cable error, Bad or shorted cable",
            "nic.mlx5.module",
            "error",
        ),
        ("Out of memory: Killed process 4242 (python3) total-vm:100kB", "host.oom_kill", "warning"),
        ("INFO: task nvidia-smi:4242 blocked for more than 120 seconds.", "host.hung_task", "warning"),
        ("watchdog: BUG: soft lockup - CPU#3 stuck for 22s! [python:4242]", "host.lockup", "error"),
        ("Kernel panic - not syncing: Fatal exception", "host.kernel_crash", "critical"),
        ("EDAC MC0: 1 UE memory read error on CPU_SrcID#0_MC#0", "host.hardware_error", "error"),
        ("EXT4-fs (nvme0n1p2): Remounting filesystem read-only", "host.storage_error", "error"),
        ("NVRM: GPU 0000:18:00.0: something failed in a way nobody knows", "log.unknown_fault", "info"),
    ],
)
def test_lines_become_their_finding(texts: Texts, line: str, finding: str, severity: str) -> None:
    assert texts(f"[100.0] {line}\n").ids == {finding: severity}


def test_hung_task_beside_xid119_points_to_the_driver(texts: Texts) -> None:
    text = "[100.0] NVRM: Xid (PCI:0000:18:00): 119, pid=1, name=x, Timeout after 6s of waiting for RPC response from GPU0 GSP!\n[220.0] INFO: task nvidia-smi:1 blocked for more than 120 seconds.\n"
    assert "GSP" in texts(text).one("host.hung_task").causes[0].text


def test_quiet_kernel_log_counts_as_checked(texts: Texts) -> None:
    verdict = texts("[1.0] Linux version 6.8.0\n[2.0] NVRM: loading NVIDIA UNIX x86_64 Kernel Module  550.54.15  Tue Mar  5\n")
    assert verdict.ids == {}
    assert verdict.outcome("gpu.xid.*") == "ok"
    assert texts("hello\n").outcome("gpu.xid.*") == "not checked"
