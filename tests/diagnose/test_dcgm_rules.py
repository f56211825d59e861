"""DCGM, metrics and NCCL topology: a fault is found, its healthy twin is silent."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import pytest

import kilter.diagnose.rules.dcgm
import kilter.diagnose.rules.metrics
import kilter.diagnose.rules.nccl_topology  # noqa: F401 - registers its rules
from kilter.facts.accelerator import Accelerator, Reading
from kilter.facts.case import Snapshot
from kilter.facts.host import Service, Software
from kilter.facts.measure import DiagnosticTest
from kilter.intake.merge import assemble
from mangle import parse_text

DATA = Path(__file__).parents[1] / "data"
Facts = Callable[..., "Verdict"]  # noqa: F821 - the fixture's class lives in conftest


def snapshot_of(module: str, text: str) -> Snapshot:
    """The snapshot that one capture gives."""
    (snapshot,) = assemble([parse_text(module, text)], []).snapshots
    return snapshot


def result(name: str, result: str, device: str = "GPU 2", message: str | None = None, tool: str = "dcgmi diag") -> Snapshot:
    return Snapshot(diagnostics=[DiagnosticTest(tool=tool, name=name, result=result, device=device, message=message)])


A10G = (DATA / "s060-dcgmi-diag-a10g-targeted-power/dcgmi-diag.txt").read_text()


def test_a_tenth_of_a_watt_is_marginal(facts: Facts):
    verdict = facts(snapshot_of("dcgmi", A10G))
    assert verdict.loud == {"dcgm.targeted_power.marginal"}
    finding = verdict.one("dcgm.targeted_power.marginal")
    assert finding.subject.name == "GPU1"
    assert "224.1 W of a floor of 224.2" in finding.what


def test_far_below_the_floor_is_a_failure(facts: Facts):
    verdict = facts(snapshot_of("dcgmi", A10G.replace("224.1 did", "150.1 did")))
    assert verdict.ids["dcgm.diag.targeted_power_failed"] == "error"


def test_all_tests_passed_is_silent(facts: Facts):
    text = A10G.replace("Fail - GPU: 1", "Pass - GPU: 1")
    verdict = facts(snapshot_of("dcgmi", text))
    assert verdict.loud == set()
    assert verdict.outcome("dcgm.diag") == "ok"


def test_a_failed_pcie_test_is_found_although_the_run_succeeded(facts: Facts):
    text = A10G.replace("| PCIe                      | Pass - All ", "| PCIe                      | Fail - All ")
    assert facts(snapshot_of("dcgmi", text)).ids["dcgm.diag.pcie_failed"] == "error"


def test_a_setting_is_no_hardware_fault(facts: Facts):
    assert facts(result("Persistence Mode", "fail", "")).ids["dcgm.diag.persistence_mode_failed"] == "warning"
    assert (
        facts(result("software", "fail", message="Persistence mode for GPU 2 is disabled.")).ids["dcgm.diag.software_failed"]
        == "warning"
    )
    assert facts(result("software", "fail", message="NVML could not be loaded")).ids["dcgm.diag.software_failed"] == "error"


def test_warn_skip_and_no_result(facts: Facts):
    assert facts(result("Memory", "warn")).ids["dcgm.diag.memory_warning"] == "warning"
    assert facts(result("EUD Test", "skip")).loud == set()
    assert facts(result("Memory", "Not Run")).ids["dcgm.diag.memory_no_result"] == "warning"


def test_a_violation_of_no_time_is_a_warning(facts: Facts):
    message = "GPU 2 Thermal violations totaling 0.0 seconds started at 30.0 seconds into the test"
    assert facts(result("Diagnostic", "fail", message=message)).ids["dcgm.diag.diagnostic_failed"] == "warning"


def test_power_violation_and_imex_are_information(facts: Facts):
    power = result("Power system", "warn", message="Detected clocks event due to power violation in GPU 2.", tool="dcgmi health")
    imex = result("NVLINK system", "fail", message="DCGM_FR_IMEX_UNHEALTHY: IMEX daemon status -3", tool="dcgmi health")
    assert facts(power).ids == {"dcgm.health.power_violation": "info"}
    assert facts(imex).ids == {"dcgm.health.imex": "info"}


def test_a_thermal_warning_with_a_cool_core_names_other_sensors(facts: Facts):
    snapshot = result(
        "Thermal system", "warn", message="Detected clocks event due to thermal violation in GPU 2.", tool="dcgmi health"
    )
    snapshot.accelerators = [Accelerator(index=2, pci_address="0000:3b:00.0", readings=[Reading(temperature_c=75)])]
    verdict = facts(snapshot)
    finding = verdict.one("gpu.throttle.thermal")
    assert finding.severity.value == "warning"
    assert finding.subject.name == "GPU2 0000:3b:00.0"
    assert finding.causes[0].text == "memory temperature"


def test_other_watches_are_told_by_their_system(facts: Facts):
    assert (
        facts(result("Memory system", "fail", message="row remap failed", tool="dcgmi health")).ids["dcgm.health.memory"]
        == "error"
    )
    assert facts(result("Overall Health", "pass", "", tool="dcgmi health")).loud == set()
    assert facts(result("Overall Health", "fail", "", tool="dcgmi health")).ids["dcgm.health.overall_health"] == "error"


def line(name: str, gpu: int, value: object, model: str = "NVIDIA H100", **more: str) -> str:
    labels = {"gpu": str(gpu), "UUID": f"GPU-{gpu}", "modelName": model, **more}
    inside = ",".join(f'{label}="{text}"' for label, text in labels.items())
    return f"{name}{{{inside}}} {value}\n"


BASE = {"DCGM_FI_DEV_GPU_TEMP": 60, "DCGM_FI_DEV_POWER_USAGE": 600, "DCGM_FI_DEV_SM_CLOCK": 1900, "DCGM_FI_DEV_FB_USED": 1000}


def scrape(gpus: int = 4, without: dict[int, set[str]] | None = None, model: str = "NVIDIA H100", extra: str = "") -> Snapshot:
    text = "".join(
        line(name, gpu, value, model)
        for name, value in BASE.items()
        for gpu in range(gpus)
        if name not in (without or {}).get(gpu, set())
    )
    return snapshot_of("prometheus", text + extra)


def test_a_gpu_that_lost_its_series_is_found(facts: Facts):
    extra = line("DCGM_FI_DEV_XID_ERRORS", 3, 0) + "".join(line("DCGM_FI_DEV_XID_ERRORS", g, 0) for g in range(3))
    verdict = facts(scrape(without={3: set(BASE)}, extra=extra))
    finding = verdict.one("gpu.metric_missing_for_one")
    assert (finding.severity.value, finding.subject.name) == ("warning", "GPU3")
    assert facts(scrape(extra=extra)).loud == set()


def test_one_missing_field_is_information(facts: Facts):
    assert facts(scrape(without={3: {"DCGM_FI_DEV_FB_USED"}})).ids == {"gpu.metric_missing_for_one": "info"}


def test_a_gpu_with_mig_instances_is_not_compared_with_whole_ones(facts: Facts):
    extra = line("DCGM_FI_DEV_GPU_TEMP", 9, 50, GPU_I_ID="1", GPU_I_PROFILE="1g.10gb")
    assert facts(scrape(extra=extra)).loud == set()


def test_a_gpu_of_which_the_exporter_says_nothing_is_found(facts: Facts):
    snapshot = scrape(3)
    snapshot.accelerators = [*(snapshot.accelerators or []), Accelerator(index=3, pci_address="0000:5e:00.0")]
    assert facts(snapshot).one("gpu.metric_missing_for_one").subject.name == "GPU3 0000:5e:00.0"


def test_the_xid_gauge_tells_of_the_last_one_only(facts: Facts):
    verdict = facts(scrape(extra=line("DCGM_FI_DEV_XID_ERRORS", 1, 79)))
    assert verdict.ids["metrics.xid_last"] == "info"
    assert verdict.loud == set()
    recent = line("DCGM_EXP_XID_ERRORS_COUNT", 1, 2, xid="79", window_size_in_ms="300000")
    assert facts(scrape(extra=recent)).ids["metrics.xid_recent"] == "warning"
    assert facts(scrape(extra=recent.replace(" 2\n", " 0\n"))).loud == set()


def test_thermal_violation_is_judged_against_siblings(facts: Facts):
    def violations(*seconds: int) -> str:
        return "".join(line("DCGM_FI_DEV_THERMAL_VIOLATION", gpu, s * 10**9) for gpu, s in enumerate(seconds))

    assert facts(scrape(extra=violations(1, 0, 1200, 2))).one("gpu.throttle.thermal").subject.name == "GPU2"
    assert facts(scrape(extra=violations(1000, 900, 1200, 1100))).loud == set()
    assert facts(scrape(extra="".join(line("DCGM_FI_DEV_POWER_VIOLATION", g, 10**15 * (g == 2)) for g in range(4)))).loud == set()


@pytest.mark.parametrize(
    ("version", "model", "extra", "loud"),
    [
        ("3.3.5", "NVIDIA RTX PRO 6000 Blackwell Server Edition", "", True),
        ("4.2.3", "NVIDIA RTX PRO 6000 Blackwell Server Edition", "", False),
        ("3.3.5", "NVIDIA H100 80GB HBM3", "", False),
        ("3.3.5", "NVIDIA B200", line("DCGM_FI_PROF_GR_ENGINE_ACTIVE", 0, 0.5), False),
        (None, "NVIDIA GB200", "", False),
    ],
)
def test_an_old_dcgm_is_a_gap_of_monitoring_only_with_the_evidence(facts: Facts, version, model, extra, loud):
    snapshot = scrape(model=model, extra=extra)
    if version:
        snapshot.software = Software(services={"nvidia-dcgm": Service(name="nvidia-dcgm", version=version)})
    assert ("monitoring.dcgm_too_old_for_gpu" in facts(snapshot).loud) is loud


def test_readings_that_never_move_under_load(facts: Facts):
    rows = "# gpu    pwr  gtemp     sm    mem   pclk     fb\n" + "    0    650     62     99     40   1755  70000\n" * 25
    assert facts(snapshot_of("nvidia_smi_mon", rows)).ids["metrics.stuck"] == "warning"
    assert facts(snapshot_of("nvidia_smi_mon", rows + "    0    651     62     99     40   1755  70000\n")).loud == set()
    idle = rows.replace("     99     40", "      0      0")
    assert "metrics.stuck" not in facts(snapshot_of("nvidia_smi_mon", idle)).ids


def test_thermal_violation_in_dmon(facts: Facts):
    rows = "# gpu    pwr  gtemp  pviol  tviol\n    0    650     62      0      1\n    1    650     62     50      0\n"
    verdict = facts(snapshot_of("nvidia_smi_mon", rows))
    assert verdict.one("gpu.throttle.thermal").subject.name == "GPU0"


TOPOLOGIES = [
    "s041-nccl-topo-azure-ndv4",
    "s042-nccl-topo-azure-ncv4",
    "s043-nccl-topo-aws-p4d",
    "s044-nccl-topo-aws-g5-48xl",
    "s063-nccl-topo-oci-h100",
    "s064-nccl-topo-oci-flattened",
]


@pytest.mark.parametrize("case", TOPOLOGIES)
def test_topologies_of_good_machines_are_silent(facts: Facts, case: str):
    assert facts(snapshot_of("nccl_topology", (DATA / case / "topo.xml").read_text())).loud == set()


def test_information_on_what_a_topology_hides(facts: Facts):
    def ids(case: str) -> dict[str, str]:
        return facts(snapshot_of("nccl_topology", (DATA / case / "topo.xml").read_text())).ids

    assert set(ids("s042-nccl-topo-azure-ncv4")) == {"topo.link_unknown", "topo.flattened"}
    assert set(ids("s063-nccl-topo-oci-h100")) == {"topo.switch_uplink_slow"}
    assert set(ids("s064-nccl-topo-oci-flattened")) == {"topo.flattened"}


OCI = (DATA / "s063-nccl-topo-oci-h100/topo.xml").read_text()


def test_a_gpu_whose_nic_is_gone_is_far(facts: Facts):
    start = OCI.index('<pci busid="0000:0a:00.0"')
    end = OCI.index("</nic>", start)
    end = OCI.index("</pci>", OCI.index("</pci>", end) + 1) + len("</pci>")
    verdict = facts(snapshot_of("nccl_topology", OCI[:start] + OCI[end:]))
    assert verdict.one("topo.gpu_nic_far").subject.name == "GPU 0000:0f:00.0"


def test_one_narrow_gpu_is_found(facts: Facts):
    at = OCI.index('busid="0000:0f:00.0"')
    text = OCI[:at] + OCI[at:].replace('link_width="16"', 'link_width="8"', 1)
    assert facts(snapshot_of("nccl_topology", text)).one("topo.link_width_narrow").what.startswith("x8")


def test_one_slow_uplink_of_several_is_a_warning(facts: Facts):
    good = OCI.replace("5.0 GT/s", "32.0 GT/s")
    assert facts(snapshot_of("nccl_topology", good)).ids == {}
    text = good.replace('link_speed="32.0 GT/s PCIe"', 'link_speed="8.0 GT/s PCIe"', 1)
    finding = facts(snapshot_of("nccl_topology", text)).one("topo.switch_uplink_slow")
    assert (finding.severity.value, finding.subject.name) == ("warning", "0000:08:00.0")
