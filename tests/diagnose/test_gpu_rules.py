"""GPU, memory, link, NVLink and heat: a fault is found, its healthy twin is silent."""

import copy
from collections.abc import Callable
from pathlib import Path

import pytest

from kilter.diagnose.engine import diagnose
from kilter.facts.accelerator import Accelerator, EccCounts, NvLink, Reading
from kilter.facts.base import Reason
from kilter.facts.case import Snapshot
from kilter.facts.host import Host, Service, Software
from kilter.facts.pci import PciDevice
from kilter.intake.read import read_paths

Facts = Callable[..., "Verdict"]  # noqa: F821 - the fixture's class lives in conftest


def h100(index: int = 0, **more: object) -> Accelerator:
    """A healthy H100 SXM at work."""
    gpu = Accelerator(
        index=index,
        pci_address=f"0000:{0x18 + index:02x}:00.0",
        name="NVIDIA H100 80GB HBM3",
        uuid=f"GPU-{index}",
        persistence_mode=True,
        recovery_action="None",
        mig_mode=False,
        mig_mode_pending=False,
        ecc_mode=True,
        ecc_mode_pending=True,
        ecc_volatile=EccCounts(sram_corrected=0, sram_uncorrected=0, dram_corrected=3, dram_uncorrected=0, origin={"": (0, 1)}),
        sram_threshold_exceeded=False,
        remap_failure=False,
        remap_pending=False,
        remap_banks={"max": 2560, "high": 0, "partial": 0, "low": 0, "none": 0},
        link_generation_max=5,
        link_generation_device_max=5,
        link_width_max=16,
        replays=3,
        memory_total_mib=81559,
        bar1_total_mib=131072,
        power_limit_w=700.0,
        power_limit_default_w=700.0,
        sm_clock_max_mhz=1980,
        throttle_counters_us={"hw_thermal_slowdown": 0, "hw_power_brake_slowdown": 0, "sw_power_cap": 10**12},
        fabric_state="Completed",
        fabric_status="Success",
        fabric_clique_id=0,
        nvlinks=[NvLink(id=n, state="active", speed_gb_s=26.562) for n in range(18)],
        nvlinks_inactive=False,
        readings=[
            Reading(
                performance_state="P0",
                utilization_percent=99,
                memory_utilization_percent=40,
                power_w=650.0,
                temperature_c=60,
                tlimit_margin_c=25,
                sm_clock_mhz=1755,
                throttle_reasons=["sw_power_cap"],
                link_generation=5,
                link_width=16,
            )
        ],
    )
    for field, value in more.items():
        setattr(gpu, field, value)
    return gpu


def reading(**more: object) -> list[Reading]:
    base = copy.deepcopy(h100().readings[0])
    for field, value in more.items():
        setattr(base, field, value)
    return [base]


def node(*gpus: Accelerator, **more: object) -> Snapshot:
    snap = Snapshot(node="n", accelerators=list(gpus), software=Software(driver_version="570.86.15"))
    for field, value in more.items():
        setattr(snap, field, value)
    return snap


def test_eight_healthy_gpus_are_silent(facts: Facts) -> None:
    verdict = facts(node(*(h100(i) for i in range(8))))
    assert verdict.ids == {}


CASES: list[tuple[str, str, dict[str, object]]] = [
    ("gpu.lost", "critical", {"error": "Unable to determine the device handle: Unknown Error"}),
    ("gpu.recovery_action", "critical", {"recovery_action": "Reset"}),
    ("gpu.recovery_action", "error", {"recovery_action": "Unknown (9)"}),  # DCGM 4.6 says OK above 4
    ("gpu.persistence_mode_off", "info", {"persistence_mode": False}),
    ("gpu.mig_pending", "warning", {"mig_mode_pending": True}),
    ("gpu.row_remap.failure", "critical", {"remap_failure": True}),
    ("gpu.row_remap.pending", "warning", {"remap_pending": True}),
    ("gpu.row_remap.banks_low", "warning", {"remap_banks": {"max": 2558, "none": 2}}),
    ("gpu.row_remap.banks_low", "info", {"remap_banks": {"max": 2558, "low": 2}}),
    ("gpu.page_retirement.pending", "warning", {"retired_pages_pending": True}),
    ("gpu.page_retirement.limit", "error", {"retired_pages_sbe": 58, "retired_pages_dbe": 3}),
    ("gpu.ecc.uncorrected", "error", {"ecc_volatile": EccCounts(sram_uncorrected=0, dram_uncorrected=1)}),
    ("gpu.ecc.sram_threshold", "critical", {"sram_threshold_exceeded": True}),
    ("gpu.memory.repair", "warning", {"channel_repair_pending": True}),
    ("gpu.memory.repair", "critical", {"unrepairable_memory": True}),
    ("gpu.ecc.off", "info", {"ecc_mode": False, "ecc_mode_pending": False}),
    ("pcie.link.gen_degraded", "error", {"readings": reading(link_generation=1)}),
    ("pcie.link.width_degraded", "error", {"readings": reading(link_width=8)}),
    ("pcie.link.gen_capped_by_platform", "info", {"link_generation_max": 4, "readings": reading(link_generation=4)}),
    ("gpu.throttle.thermal", "error", {"readings": reading(throttle_reasons=["hw_slowdown", "hw_thermal_slowdown"])}),
    ("gpu.throttle.thermal", "warning", {"readings": reading(throttle_reasons=["sw_thermal_slowdown"])}),
    ("gpu.throttle.power_brake", "error", {"readings": reading(throttle_reasons=["hw_slowdown", "hw_power_brake_slowdown"])}),
    ("gpu.throttle.hw_slowdown", "warning", {"readings": reading(throttle_reasons=["hw_slowdown"])}),
    ("gpu.throttle.counters", "info", {"throttle_counters_us": {"hw_thermal_slowdown": 600 * 10**6}}),
    ("gpu.temperature_high", "warning", {"readings": reading(tlimit_margin_c=-1)}),
    ("gpu.power_limit_below_default", "info", {"power_limit_w": 500.0}),
    ("gpu.clock_low", "warning", {"readings": reading(sm_clock_mhz=345, throttle_reasons=[], power_w=150.0)}),
    ("nvlink.all_inactive", "critical", {"nvlinks": None, "nvlinks_inactive": True}),
    ("nvlink.inactive", "error", {"nvlinks": [NvLink(id=n, state="active" if n else "inactive") for n in range(18)]}),
    ("nvlink.errors", "warning", {"nvlinks": [NvLink(id=n, state="active", recovery_errors=n // 17) for n in range(18)]}),
    ("fabric.state_in_progress", "error", {"fabric_state": "In Progress"}),
    ("fabric.status_not_success", "error", {"fabric_status": "Insufficient Resources"}),
    ("fabric.clique_id_zero", "info", {"fabric_status": "Insufficient Resources"}),
    ("fabric.health", "warning", {"fabric_health": {"bandwidth": "Degraded"}}),
]


@pytest.mark.parametrize(("finding", "severity", "change"), CASES, ids=[f"{c[0]}-{c[1]}" for c in CASES])
def test_each_fault_on_one_of_eight_is_found_on_that_gpu_alone(
    facts: Facts, finding: str, severity: str, change: dict[str, object]
) -> None:
    gpus = [h100(i) for i in range(8)]
    gpus[3] = h100(3, **change)
    verdict = facts(node(*gpus))
    hits = [f for f in verdict.diagnosis.findings if f.id == finding]
    assert [(f.subject.name, f.severity.value) for f in hits] == [("GPU3 0000:1b:00.0", severity)]
    others = {f.id for f in verdict.diagnosis.findings if f.id != finding and "siblings" not in f.id}
    assert others <= {"fabric.status_not_success", "fabric.clique_id_zero"}, others


@pytest.mark.parametrize(
    "change",
    [
        {
            "readings": reading(
                link_generation=1, performance_state="P8", utilization_percent=0, throttle_reasons=["gpu_idle"], power_w=70.0
            )
        },  # idle Gen1
        {
            "readings": reading(throttle_reasons=["sw_power_cap", "applications_clocks_setting", "sync_boost"])
        },  # normal at full power
        {"ecc_aggregate": EccCounts(sram_uncorrected=0, dram_uncorrected=4)},  # the card's life, not now
        {"remapped_uncorrectable": 7, "remapped_correctable": 2},  # remapped rows are normal wear
        {"retired_pages_sbe": 10, "retired_pages_dbe": 2, "retired_pages_pending": False},
        {"replays": 900},  # a count without a time says nothing
        {"throttle_counters_us": {"sw_power_cap": 10**15}},
        {"fabric_health": {"bandwidth": "Full", "summary": "Healthy", "route_unhealthy": "False"}},
    ],
)
def test_artefacts_of_monitoring_are_silent(facts: Facts, change: dict[str, object]) -> None:
    assert facts(node(*(h100(i, **copy.deepcopy(change)) for i in range(8)))).loud == set()


def test_idle_gen1_is_not_checked_rather_than_fine(facts: Facts) -> None:
    idle = reading(link_generation=1, performance_state="P8", utilization_percent=0)
    assert facts(node(h100(readings=idle))).outcome("pcie.link.gen_degraded") == "not checked"


def test_gen1_idle_and_gen5_under_load_is_fine(facts: Facts) -> None:
    idle = reading(link_generation=1, performance_state="P8", utilization_percent=0)
    assert facts(node(h100(readings=idle + reading()))).outcome("pcie.link.gen_degraded") == "ok"


def test_heat_on_all_gpus_points_to_the_air_not_the_gpu(facts: Facts) -> None:
    verdict = facts(node(*(h100(i, readings=reading(throttle_reasons=["sw_thermal_slowdown"])) for i in range(8))))
    finding = next(f for f in verdict.diagnosis.findings if f.id == "gpu.throttle.thermal")
    assert "air flow" in finding.causes[0].text


def test_replays_against_the_uptime(facts: Facts) -> None:
    snap = node(h100(replays=100_000), host=Host(uptime_s=3600.0))
    assert facts(snap).ids["pcie.replay_high"] == "warning"
    assert "pcie.replay_high" not in facts(node(h100(replays=100_000), host=Host(uptime_s=86400.0 * 30))).ids


def test_x8_of_one_cloud_gpu_is_information_but_of_one_sibling_an_error(facts: Facts) -> None:
    def t4(i: int, width: int) -> Accelerator:
        return h100(i, name="Tesla T4", nvlinks=[], fabric_state=None, fabric_status=None, readings=reading(link_width=width))

    assert facts(node(t4(0, 8))).ids["pcie.link.width_degraded"] == "info"
    assert facts(node(t4(0, 16), t4(1, 16), t4(2, 8))).ids["pcie.link.width_degraded"] == "error"


def test_bridge_cards_without_a_bridge_are_silent(facts: Facts) -> None:
    for name in ("NVIDIA GeForce RTX 3090", "NVIDIA A100-PCIE-40GB", "NVIDIA H100 NVL", "NVIDIA GeForce RTX 2080 SUPER"):
        gpu = h100(name=name, memory_total_mib=None, nvlinks=None, nvlinks_inactive=True, fabric_state=None, fabric_status=None)
        assert facts(node(gpu)).loud == set(), name


def test_h100_nvl_has_twelve_links_by_design(facts: Facts) -> None:
    links = [NvLink(id=n, state="active") for n in range(12)]
    gpus = [
        h100(i, name="NVIDIA H100 NVL", memory_total_mib=95830, nvlinks=list(links), fabric_state=None, fabric_status=None)
        for i in range(2)
    ]
    assert facts(node(*gpus)).loud == set()


def test_half_of_a_nvl_pair_without_its_links_is_seen_by_its_sibling(facts: Facts) -> None:
    pair = [
        h100(
            i,
            name="NVIDIA H100 NVL",
            memory_total_mib=95830,
            nvlinks=[NvLink(id=n, state="active") for n in range(12)],
            fabric_state=None,
            fabric_status=None,
        )
        for i in range(2)
    ]
    pair[1].nvlinks, pair[1].nvlinks_inactive = None, True
    assert facts(node(*pair)).ids["nvlink.all_inactive"] == "warning"


def test_gpu_dropped_without_any_xid_is_seen_by_counting(facts: Facts) -> None:  # NVIDIA/NVSentinel#684
    pci = {
        f"0000:{0x18 + i:02x}:00.0": PciDevice(
            address=f"0000:{0x18 + i:02x}:00.0", vendor_id=0x10DE, device_id=0x26B9, class_code=0x0302
        )
        for i in range(4)
    }
    verdict = facts(node(*(h100(i) for i in range(3)), pci=pci))
    assert verdict.ids["gpu.count_mismatch"] == "critical"
    assert "0000:1b:00.0" in verdict.one("gpu.count_mismatch").what


def test_gpus_given_to_a_vm_do_not_count_as_lost(facts: Facts) -> None:
    pci = {
        f"0000:{0x18 + i:02x}:00.0": PciDevice(
            address=f"0000:{0x18 + i:02x}:00.0", vendor_id=0x10DE, class_code=0x0302, driver="vfio-pci" if i else "nvidia"
        )
        for i in range(4)
    }
    assert "gpu.count_mismatch" not in facts(node(h100(0), pci=pci)).ids


def test_fabric_manager_of_another_version_or_down(facts: Facts) -> None:  # NVIDIA/gpu-operator#544, NVSentinel#883
    switch = {"0000:05:00.0": PciDevice(address="0000:05:00.0", vendor_id=0x10DE, class_code=0x0680)}
    bad = node(
        h100(),
        pci={**switch},
        software=Software(
            driver_version="530.41.03",
            services={"nvidia-fabricmanager": Service(name="nvidia-fabricmanager", state="failed", version="530.30.02")},
        ),
    )
    ids = facts(bad).ids
    assert ids["fabric.manager_version_mismatch"] == "critical"
    assert ids["fabric.manager_down"] == "critical"


def test_fabric_manager_is_not_missed_on_pcie_cards(facts: Facts) -> None:  # NVIDIA/gpu-operator#610
    card = h100(name="NVIDIA A40", nvlinks=[], fabric_state=None, fabric_status=None)
    snap = node(
        card,
        pci={"0000:18:00.0": PciDevice(address="0000:18:00.0", vendor_id=0x10DE, class_code=0x0302)},
        software=Software(
            driver_version="530.41.03", services={"nvidia-fabricmanager": Service(name="nvidia-fabricmanager", state="failed")}
        ),
    )
    assert facts(snap).loud == set()


def test_one_power_limit_out_of_eight_is_told_from_its_siblings(facts: Facts) -> None:
    gpus = [h100(i) for i in range(8)]
    gpus[6].power_limit_w = 350.0
    verdict = facts(node(*gpus))
    assert verdict.one("gpu.siblings_differ.power_limit_w").subject.name == "GPU6 0000:1e:00.0"


def test_hot_gpu_among_cool_siblings_at_equal_power(facts: Facts) -> None:
    gpus = [h100(i) for i in range(8)]
    gpus[2].readings[0].temperature_c = 84
    assert facts(node(*gpus)).one("gpu.hotter_than_siblings").subject.name == "GPU2 0000:1a:00.0"


def test_spinning_gpus_of_a_hung_job(facts: Facts) -> None:  # NVIDIA/nccl#2428
    spin = reading(utilization_percent=100, memory_utilization_percent=0, power_w=118.0, throttle_reasons=[])
    assert (
        "nccl.hang.spinning"
        in facts(
            node(*(h100(i, readings=copy.deepcopy(spin), power_limit_w=400.0, power_limit_default_w=400.0) for i in range(8)))
        ).ids
    )
    assert "nccl.hang.spinning" not in facts(node(*(h100(i) for i in range(8)))).ids


def test_unsupported_memory_checks_do_not_apply_to_workstation_cards(facts: Facts) -> None:
    card = Accelerator(index=0, name="NVIDIA GeForce RTX 4090")
    for field in (
        "remap_failure",
        "remap_pending",
        "ecc_mode",
        "retired_pages_pending",
        "retired_pages_dbe",
        "sram_threshold_exceeded",
    ):
        card.lacks(field, Reason.NOT_SUPPORTED)
    assert facts(node(card)).outcome("gpu.row_remap.failure") == "not applicable"


@pytest.mark.parametrize(("printed", "found"), [("12", 1), ("0", 0), ("N/A", 0)])
def test_uncorrected_count_of_the_default_table_is_read(tmp_path: Path, printed: str, found: int) -> None:
    table = tmp_path / "nvidia-smi.txt"
    table.write_text(
        "| NVIDIA-SMI 550.54.15              Driver Version: 550.54.15      CUDA Version: 12.4     |\n"
        "|-----------------------------------------+------------------------+----------------------+\n"
        f"|   0  NVIDIA A100-SXM4-80GB          On  |   00000000:07:00.0 Off |{printed:>21} |\n"
        "| N/A   31C    P0             62W /  400W |       0MiB /  81920MiB |      0%      Default |\n"
        "|                                         |                        |             Disabled |\n"
    )
    told = [f for f in diagnose(read_paths([str(table)])).findings if f.id == "gpu.ecc.uncorrected"]
    assert len(told) == found
