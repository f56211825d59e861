"""nvidia-smi in all its formats says the same of one GPU, and damaged text never raises."""

from pathlib import Path

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from kilter.facts.base import Reason
from kilter.facts.case import Case, Snapshot
from kilter.intake.merge import assemble
from kilter.intake.paste import read_text
from mangle import mangled

DATA = Path(__file__).parents[2] / "data"


def case_of(*names: str) -> Case:
    fragments, inputs = [], []
    for name in names:
        found, summary = read_text(name, (DATA / name).read_text(), year=2026)
        fragments += found
        inputs.append(summary)
    return assemble(fragments, inputs)


def snapshot(*names: str) -> Snapshot:
    return case_of(*names).snapshots[0]


def of_text(text: str) -> Snapshot:
    fragments, inputs = read_text("paste", text, year=2026)
    return assemble(fragments, inputs).snapshots[0]


H100 = "s001-h100-sxm-590-idle-load"


def test_text_query_fills_identity_health_and_one_reading() -> None:
    gpu = (snapshot(f"{H100}/load.nvidia-smi-q.txt").accelerators or [])[0]
    assert (gpu.name, gpu.pci_address, gpu.index) == ("NVIDIA H100 80GB HBM3", "0000:00:09.0", 0)
    assert gpu.pci_device_id == 0x2330
    assert (gpu.persistence_mode, gpu.mig_mode, gpu.ecc_mode) == (True, False, True)
    assert (gpu.remap_pending, gpu.remap_failure, gpu.remapped_correctable) == (False, False, 0)
    assert gpu.remap_banks == {"max": 2560, "high": 0, "partial": 0, "low": 0, "none": 0}
    assert gpu.ecc_aggregate is not None
    assert (gpu.ecc_aggregate.sram_uncorrected, gpu.ecc_aggregate.dram_uncorrected) == (0, 0)
    assert gpu.sram_threshold_exceeded is False
    assert (gpu.power_limit_w, gpu.power_limit_default_w, gpu.power_limit_max_w) == (700.0, 700.0, 700.0)
    assert (gpu.fabric_state, gpu.fabric_status, gpu.fabric_clique_id) == ("Completed", "Success", 0)
    assert gpu.replays == 9
    assert gpu.recovery_action == "None"
    assert [p.name for p in gpu.processes or []] == ["/root/tools/memhog", "/root/tools/memhog", "./gpu_burn"]
    (reading,) = gpu.readings
    assert (reading.performance_state, reading.utilization_percent, reading.memory_utilization_percent) == ("P0", 100, 11)
    assert (reading.link_generation, reading.link_width) == (5, 16)
    assert (reading.temperature_c, reading.tlimit_margin_c, reading.memory_temperature_c) == (59, 26, 55)
    assert (reading.sm_clock_mhz, reading.power_w) == (1980, 629.45)
    assert reading.throttle_reasons == []


def test_not_supported_is_missing_with_its_reason_and_never_zero() -> None:
    gpu = (snapshot(f"{H100}/load.nvidia-smi-q.txt").accelerators or [])[0]
    assert gpu.retired_pages_sbe is None
    assert gpu.missing["retired_pages_sbe"].reason is Reason.NOT_SUPPORTED
    assert gpu.application_sm_clock_mhz is None  # "Requested functionality has been deprecated"


def test_every_value_knows_its_file_and_line() -> None:
    name = f"{H100}/load.nvidia-smi-q.txt"
    snap = snapshot(name)
    gpu = (snap.accelerators or [])[0]
    lines = (DATA / name).read_text().splitlines()
    for field, word in (("remap_pending", "Pending"), ("power_limit_w", "Current Power Limit"), ("fabric_state", "State")):
        file, line = snap.where(gpu.ref(field)).rsplit(":", 1)
        assert file == name
        assert word in lines[int(line) - 1]


def test_text_xml_and_csv_spell_the_same_fields() -> None:
    text = (snapshot(f"{H100}/idle.nvidia-smi-q.txt").accelerators or [])[0]
    row = (snapshot(f"{H100}/idle.query-gpu.csv").accelerators or [])[0]
    for field in (
        "name",
        "pci_address",
        "pci_device_id",
        "firmware",
        "persistence_mode",
        "ecc_mode",
        "memory_total_mib",
        "power_limit_w",
        "power_limit_default_w",
        "link_generation_max",
        "link_width_max",
        "remap_pending",
        "remap_failure",
        "remap_banks",
        "fabric_state",
        "fabric_status",
        "sm_clock_max_mhz",
        "mig_mode",
        "recovery_action",
        "sram_threshold_exceeded",
    ):
        assert getattr(text, field) == getattr(row, field), field
    assert text.ecc_volatile is not None
    assert row.ecc_volatile is not None
    assert text.ecc_volatile.sram_uncorrected == row.ecc_volatile.sram_uncorrected == 0


def test_xml_of_eight_gpus_gives_eight_in_order() -> None:
    snap = snapshot("s013-8xh100-vm-xml-570/nvidia-smi-qx.xml")
    gpus = snap.accelerators or []
    assert [g.index for g in gpus] == list(range(8))
    assert {g.fabric_status for g in gpus} == {"Success"}
    assert (gpus[0].link_generation_max, gpus[0].link_generation_device_max) == (4, 5)
    assert gpus[0].virtualization == "Pass-Through"
    assert snap.software.driver_version == "570.86.15"
    assert snap.software.cuda_driver_version == "12.8"


def test_header_of_r610_is_read_under_its_new_names() -> None:
    for name in ("idle.nvidia-smi.txt", "nvidia-smi.version.txt", "idle.nvidia-smi-q.txt"):
        snap = snapshot(f"s006-rtx2080s-610-idle-load/{name}")
        assert snap.software.driver_version == "610.57.04", name
        assert snap.software.cuda_driver_version == "13.3", name


def test_table_gives_state_and_leaves_cut_names_out() -> None:
    gpus = snapshot("s059-xid79-rtx4090-fell-off-bus/nvidia-smi-after-drain.txt").accelerators or []
    assert [g.pci_address for g in gpus] == ["0000:01:00.0", "0000:81:00.0", "0000:c1:00.0"]
    assert gpus[2].readings[0].power_w == 386.0
    assert gpus[2].readings[0].performance_state == "P2"
    (geforce,) = snapshot("s006-rtx2080s-610-idle-load/idle.nvidia-smi.txt").accelerators or []
    assert geforce.name is None  # printed as "NVIDIA GeForce RTX 2080 ..."


def test_mig_table_names_instances_and_has_no_utilisation() -> None:
    (gpu,) = snapshot("s002-h100-mig-590-idle-load/idle.nvidia-smi.txt").accelerators or []
    assert gpu.mig_mode is True
    assert [(m.gpu_instance, m.memory_total_mib) for m in gpu.mig_devices or []] == [
        (2, 40448),
        (3, 20096),
        (9, 9984),
        (10, 9984),
    ]
    assert gpu.readings[0].utilization_percent is None


def test_idle_and_load_captures_stay_two_readings_of_one_gpu() -> None:
    snap = snapshot(f"{H100}/idle.nvidia-smi-q.txt", f"{H100}/load.nvidia-smi-q.txt", f"{H100}/nvidia-smi-nvlink-s.txt")
    (gpu,) = snap.accelerators or []
    assert [r.utilization_percent for r in gpu.readings] == [0, 100]
    assert len(gpu.nvlinks or []) == 18


def test_nvlink_status_active_inactive_and_absent_are_three_things() -> None:
    (good,) = snapshot("s024-a100-nvlink-good/nvidia-smi-nvlink-status.txt").accelerators or []
    (dead,) = snapshot("s023-a100-nvlink-all-inactive/nvidia-smi-nvlink-status.txt").accelerators or []
    (none,) = snapshot("s004-l40s-595-idle-load/nvidia-smi-nvlink-s.txt").accelerators or []
    (mig,) = snapshot("s002-h100-mig-590-idle-load/nvidia-smi-nvlink-s.txt").accelerators or []
    assert [link.state for link in good.nvlinks or []] == ["active"] * 12
    assert dead.nvlinks_inactive is True
    assert none.nvlinks == []
    assert none.nvlinks_inactive is False
    assert mig.nvlinks is None
    assert mig.missing["nvlinks"].reason is Reason.NOT_SUPPORTED


def test_nvlink_mixed_links_and_error_counters() -> None:
    snap = of_text(
        "GPU 0: NVIDIA H100 80GB HBM3 (UUID: GPU-1)\n\t Link 0: 26.562 GB/s\n\t Link 1: <inactive>\n"
        "GPU 0: NVIDIA H100 80GB HBM3 (UUID: GPU-1)\n\t Link 0: Replay Errors: 3\n\t Link 0: Recovery Errors: 1\n\t Link 0: CRC Errors: 7\n"
    )
    (gpu,) = snap.accelerators or []
    link0, link1 = gpu.nvlinks or []
    assert (link0.state, link1.state) == ("active", "inactive")
    assert (link0.replay_errors, link0.recovery_errors, link0.crc_errors) == (3, 1, 7)


def test_topo_matrix_survives_tabs_turned_to_spaces() -> None:
    name = "s061-8xv100-hybrid-cube-topo/nvidia-smi-topo-m.txt"
    matrix = snapshot(name).topology
    spaced = of_text((DATA / name).read_text().replace("\t", "  ")).topology
    assert matrix is not None
    assert spaced is not None
    assert matrix.links["GPU0"]["GPU3"] == "NV2"
    assert matrix.links["GPU7"]["NIC0"] == "SYS"
    assert matrix.nic_names == {"NIC0": "mlx5_2"}
    assert matrix.cpu_affinity["GPU4"] == "20-39,60-79"
    assert spaced.links == matrix.links
    assert spaced.numa_affinity == matrix.numa_affinity


def test_coloured_topo_header_is_read() -> None:
    matrix = snapshot(f"{H100}/nvidia-smi-topo-m.txt").topology
    assert matrix is not None
    assert matrix.devices == ["GPU0"]
    assert matrix.cpu_affinity == {"GPU0": "0-19"}


def test_device_handle_error_is_a_gpu_that_does_not_answer() -> None:
    (gpu,) = snapshot("s059-xid79-rtx4090-fell-off-bus/nvidia-smi.err").accelerators or []
    assert gpu.pci_address == "0000:c2:00.0"
    assert "Unknown Error" in (gpu.error or "")


@pytest.mark.parametrize(
    "text",
    [
        "Failed to initialize NVML: Driver/library version mismatch\nNVML library version: 550.90\n",
        "NVIDIA-SMI has failed because it couldn't communicate with the NVIDIA driver. Make sure that the latest NVIDIA driver is installed and running.\n",
        "No devices were found\n",
    ],
)
def test_tool_errors_are_driver_errors(text: str) -> None:
    assert of_text(text).software.driver_error


def test_lost_gpu_in_a_csv_row_is_marked() -> None:
    snap = of_text(
        "index, name, pci.bus_id, temperature.gpu\n0, NVIDIA A100, 00000000:01:00.0, 40\n1, [GPU is lost], 00000000:41:00.0, [GPU is lost]\n"
    )
    good, lost = snap.accelerators or []
    assert good.error is None
    assert lost.error == "GPU is lost"
    assert lost.readings == [] or lost.readings[0].temperature_c is None


def test_looping_csv_query_is_one_gpu_with_many_readings() -> None:
    rows = "".join(f"2026/07/14 08:12:{s:02d}.000, 0, GPU-a, {s} %\n" for s in range(5))
    (gpu,) = of_text("timestamp, index, uuid, utilization.gpu [%]\n" + rows).accelerators or []
    assert [r.utilization_percent for r in gpu.readings] == [0, 1, 2, 3, 4]


def test_csv_of_another_tool_is_left_alone() -> None:
    fragments, summary = read_text("x.csv", "name, memory.used_by, foo\na, b, c\n", year=2026)
    assert not assemble(fragments, [summary]).snapshots or not assemble(fragments, [summary]).snapshots[0].accelerators


def test_xml_with_entities_is_refused_and_said_so() -> None:
    text = '<?xml version="1.0" ?>\n<!DOCTYPE nvidia_smi_log [<!ENTITY a "aaaa">]>\n<nvidia_smi_log><driver_version>&a;</driver_version></nvidia_smi_log>\n'
    _, summary = read_text("x.xml", text, year=2026)
    assert any("entity" in note for note in summary.notes)


def test_cut_xml_keeps_the_gpus_before_the_cut_and_says_so() -> None:
    text = (DATA / "s013-8xh100-vm-xml-570/nvidia-smi-qx.xml").read_text()
    fragments, summary = read_text("cut.xml", text[: len(text) // 2], year=2026)
    gpus = assemble(fragments, [summary]).snapshots[0].accelerators or []
    assert 3 <= len(gpus) <= 5
    assert any("ends or breaks" in note for note in summary.notes)


REAL = [
    f"{H100}/load.nvidia-smi-q.txt",
    f"{H100}/load.nvidia-smi.txt",
    f"{H100}/load.query-gpu.csv",
    f"{H100}/nvidia-smi-nvlink-s.txt",
    "s002-h100-mig-590-idle-load/idle.nvidia-smi.txt",
    "s008-a10g-xml-515-idle/nvidia-smi-qx.xml",
    "s025-retired-pages-pending/nvidia-smi-q-page-retirement.txt",
    "s061-8xv100-hybrid-cube-topo/nvidia-smi-topo-m.txt",
]


@given(st.sampled_from(REAL).flatmap(lambda name: mangled((DATA / name).read_text())))
@settings(max_examples=150, deadline=None)
def test_damaged_captures_never_raise(text: str) -> None:
    fragments, summary = read_text("damaged", text, year=2026)
    assemble(fragments, [summary])
    assert not any("please report" in note for note in summary.notes)


def test_a_carriage_return_inside_a_csv_row_costs_only_the_row() -> None:
    text = "index, name, uuid\n0, NVIDIA H100, GPU-1\n1, NVIDIA\rH100, GPU-2\n2, NVIDIA H100, GPU-3\n"
    fragments, summary = read_text("smi.csv", text, year=2026)
    assert [gpu.index for gpu in assemble(fragments, [summary]).snapshots[0].accelerators or []] == [0, 2]
    assert (summary.notes, summary.unrecognised_lines) == ([], 1)
