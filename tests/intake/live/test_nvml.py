"""Claims about reading GPUs through NVML, played by a stand-in library through the real ctypes path."""

from __future__ import annotations

import importlib.util
import sys
import time
from collections.abc import Callable
from pathlib import Path
from types import ModuleType

import pytest

from kilter.facts.accelerator import Accelerator
from kilter.facts.base import Reason
from kilter.facts.case import Snapshot
from kilter.facts.pci import PciDevice
from kilter.intake.live import nvml_names
from kilter.intake.live.nvml import FIELDS, READING_FIELDS, read_nvml


def _load_standin() -> ModuleType:
    path = Path(__file__).parents[2] / "standin" / "nvml_standin.py"
    spec = importlib.util.spec_from_file_location("nvml_standin", path)
    assert spec is not None
    assert spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


standin = _load_standin()
pytestmark = pytest.mark.skipif(standin.compiler() is None, reason="needs a C compiler for the stand-in NVML")

Read = Callable[..., Snapshot]


@pytest.fixture(scope="session")
def libraries(tmp_path_factory: pytest.TempPathFactory) -> dict[str, Path]:
    return {
        name: standin.build(tmp_path_factory.mktemp(name), old_driver=name == "old_nvml") for name in ("new_nvml", "old_nvml")
    }


@pytest.fixture
def read(libraries: dict[str, Path], tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Read:
    """Reads a DGX H100 with changes to its state; ``None`` takes a line out."""

    def run(
        changes: dict[str, str | None] | None = None,
        *,
        gpus: int = 8,
        timeout_s: float = 60,
        library: str = "new_nvml",
        snapshot: Snapshot | None = None,
    ) -> Snapshot:
        state = standin.h100_node(gpus) | (changes or {})
        path = standin.write(tmp_path / "state", {key: value for key, value in state.items() if value is not None})
        monkeypatch.setenv("NVML_STANDIN_STATE", str(path))
        monkeypatch.setenv("LD_LIBRARY_PATH", str(libraries[library].parent))
        snapshot = snapshot or Snapshot()
        read_nvml(snapshot, timeout_s=timeout_s)
        return snapshot

    return run


def _gpus(snapshot: Snapshot) -> list[Accelerator]:
    assert snapshot.accelerators is not None
    return snapshot.accelerators


def test_healthy_h100_node_gives_every_fact_that_nvidia_smi_prints(read: Read) -> None:
    snapshot = read()
    assert snapshot.software.driver_version == "590.48.01"
    assert snapshot.software.cuda_driver_version == "13.1"
    assert snapshot.software.driver_library_version == "13.590.48.01"
    assert snapshot.software.driver_error is None
    assert snapshot.accelerators_attached == 8
    [source] = snapshot.sources
    assert (source.name, source.tool, source.version) == ("live:NVML", "NVML", "13.590.48.01")
    gpus = _gpus(snapshot)
    assert [gpu.label for gpu in gpus] == [f"GPU{i} 0000:{bus.lower()}:00.0" for i, bus in enumerate(standin.H100_BUSES)]
    gpu = gpus[5]
    expected = {
        "vendor": "nvidia", "index": 5, "minor": 5, "uuid": "GPU-00000000-0000-4000-8000-000000000005", "serial":
        "1653123000005", "name": "NVIDIA H100 80GB HBM3", "brand": "NVIDIA", "architecture": "Hopper", "compute_capability":
        "9.0", "pci_device_id": 0x2330, "pci_subsystem_id": 0x16C1, "board_part_number": "692-2G520-0200-000", "firmware":
        "96.00.A5.00.01", "gsp_firmware": "590.48.01", "module_id": 6, "virtualization": "None", "persistence_mode": True,
        "compute_mode": "Default", "mig_mode": False, "mig_mode_pending": False, "c2c_mode": "Disabled",
        "confidential_compute": "OFF", "recovery_action": "None", "numa_node": 1, "cpu_affinity": "48-95", "memory_total_mib":
        81559, "bar1_total_mib": 131072, "ecc_mode": True, "sram_threshold_exceeded": False, "channel_repair_pending": False,
        "tpc_repair_pending": False, "unrepairable_memory": False, "remapped_correctable": 0, "remapped_uncorrectable": 0,
        "remap_pending": False, "remap_failure": False, "remap_banks": {"max": 2560, "high": 0, "partial": 0, "low": 0,
        "none": 0}, "link_generation_max": 5, "link_generation_device_max": 5, "link_width_max": 16, "replays": 9,
        "replay_rollovers": 0, "power_limit_w": 700.0, "power_limit_requested_w": 700.0, "power_limit_default_w": 700.0,
        "power_limit_min_w": 200.0, "power_limit_max_w": 700.0, "sm_clock_max_mhz": 1980, "memory_clock_max_mhz": 2619,
        "nvlinks_inactive": False, "fabric_state": "Completed", "fabric_status": "Success", "fabric_clique_id": 0,
        "fabric_cluster_uuid": "00000000-0000-0000-0000-000000000000", "processes": [], "error": None,
    }  # fmt: skip
    assert {field: getattr(gpu, field) for field in expected} == expected
    for counts in (gpu.ecc_volatile, gpu.ecc_aggregate):
        assert counts is not None
        assert (counts.sram_uncorrected, counts.dram_corrected, counts.total_uncorrected) == (0, 0, 0)
    assert gpu.nvlinks is not None
    assert len(gpu.nvlinks) == 18
    link = gpu.nvlinks[1]
    assert (link.state, link.speed_gb_s, link.remote, link.version) == ("active", 26.562, "0000:06:00.0", "4.0")
    assert (link.crc_errors, link.replay_errors, link.recovery_errors) == (0, 0, 0)
    [reading] = gpu.readings
    expected_reading = {
        "performance_state": "P0", "utilization_percent": 0, "memory_used_mib": 0, "power_w": 69.85, "temperature_c": 41,
        "memory_temperature_c": 48, "tlimit_margin_c": 46, "sm_clock_mhz": 345, "memory_clock_mhz": 2619, "throttle_reasons":
        ["gpu_idle"], "link_generation": 5, "link_width": 16, "tx_kb_s": 352, "rx_kb_s": 329,
    }  # fmt: skip
    assert {field: getattr(reading, field) for field in expected_reading} == expected_reading
    assert snapshot.where(gpu.ref("power_limit_w")) == "live:NVML"


def test_no_field_of_a_healthy_gpu_is_empty_without_a_reason(read: Read) -> None:
    [gpu] = _gpus(read(gpus=1))
    for entity, fields in ((gpu, FIELDS), (gpu.readings[0], READING_FIELDS)):
        silent = [field for field in fields if getattr(entity, field) in (None, {}) and field not in entity.missing]
        assert silent == []
    assert gpu.missing["retired_pages_sbe"].reason is Reason.NOT_SUPPORTED
    assert gpu.missing["application_sm_clock_mhz"].reason is Reason.NOT_SUPPORTED
    assert gpu.readings[0].missing["fan_percent"].reason is Reason.NOT_SUPPORTED
    assert gpu.missing["part_number"].reason is Reason.NOT_COLLECTED


def test_a_sick_gpu_reports_its_counts_and_states(read: Read) -> None:
    changes = {
        "1.nvmlDeviceGetMemoryErrorCounter.1.0.7": "2",
        "1.nvmlDeviceGetMemoryErrorCounter.1.1.2": "7",
        "1.nvmlDeviceGetTotalEccErrors.1.0": "2",
        "1.nvmlDeviceGetSramEccErrorStatus": "1 0 0 0 0 0 0 0 0 0 0 0",
        "1.nvmlDeviceGetRemappedRows": "1 9 1 1",
        "1.nvmlDeviceGetRowRemapperHistogram": "2550 5 3 1 1",
        "1.nvmlDeviceGetRepairStatus": "1 0",
        "1.nvmlDeviceGetUnrepairableMemoryFlag_v1": "1",
        "1.nvmlDeviceGetCurrentClocksEventReasons": "0x848",
        "1.nvmlDeviceGetEnforcedPowerLimit": "350000",
        "1.field.230": "4",
        "1.field.270": "5000000",
        "1.nvmlDeviceGetGpuFabricInfoV": "3 23 0 0x1059 2 0123456789abcdef0123456789abcdef",
        "1.nvmlDeviceGetRetiredPages.0": "3",
        "1.nvmlDeviceGetRetiredPages.1": "0",
        "1.nvmlDeviceGetRetiredPagesPendingStatus": "1",
        "1.field.164.4": "0",
        "1.field.165.4": "0",
        "1.nvmlDeviceGetNvLinkState.4": "0",
        "1.field.163.5": "12",
        "1.field.211.5": "3",
        "1.field.162": "!3",
        "1.nvmlDeviceGetNvLinkErrorCounter.5.1": "4",
    }
    gpu = _gpus(read(changes, gpus=2))[1]
    assert gpu.ecc_volatile is not None
    assert (gpu.ecc_volatile.sram_uncorrected, gpu.ecc_volatile.total_uncorrected) == (2, 2)
    assert gpu.ecc_aggregate is not None
    assert gpu.ecc_aggregate.dram_uncorrected == 7
    assert gpu.sram_threshold_exceeded is True
    assert (gpu.remapped_correctable, gpu.remapped_uncorrectable, gpu.remap_pending, gpu.remap_failure) == (1, 9, True, True)
    assert gpu.remap_banks == {"max": 2550, "high": 5, "partial": 3, "low": 1, "none": 1}
    assert (gpu.channel_repair_pending, gpu.tpc_repair_pending, gpu.unrepairable_memory) == (True, False, True)
    assert gpu.readings[0].throttle_reasons == ["hw_slowdown", "hw_thermal_slowdown", "unknown bit 0x800"]
    assert gpu.throttle_counters_us["hw_thermal_slowdown"] == 5000
    assert (gpu.power_limit_w, gpu.power_limit_requested_w) == (350.0, 700.0)
    assert gpu.recovery_action == "Drain and Reset"
    assert (gpu.fabric_state, gpu.fabric_status) == ("Completed", "Insufficient Resources")
    assert gpu.fabric_cluster_uuid == "01234567-89ab-cdef-0123-456789abcdef"
    assert gpu.fabric_health == {
        "bandwidth": "Degraded", "route_recovery_in_progress": "False", "route_unhealthy": "True", "access_timeout_recovery":
        "True", "summary": "Unhealthy",
    }  # fmt: skip
    assert (gpu.retired_pages_sbe, gpu.retired_pages_dbe, gpu.retired_pages_pending) == (3, 0, True)
    assert gpu.nvlinks is not None
    assert gpu.nvlinks[4].state == "inactive"
    assert gpu.nvlinks[4].speed_gb_s == 0
    assert (gpu.nvlinks[5].crc_errors, gpu.nvlinks[5].recovery_errors) == (12, 4)
    assert gpu.nvlinks[5].errors == {"Local link integrity": 3}
    assert "recovery_errors" in gpu.nvlinks[6].missing


def test_unknown_enumeration_values_are_kept_by_number(read: Read) -> None:
    changes = {
        "0.field.230": "9",
        "0.nvmlDeviceGetBrand": "77",
        "0.nvmlDeviceGetArchitecture": "99",
        "0.nvmlDeviceGetComputeMode": "8",
        "0.nvmlDeviceGetVirtualizationMode": "6",
        "0.nvmlDeviceGetPerformanceState": "32",
        "0.nvmlDeviceGetNvLinkVersion": "12",
        "0.nvmlDeviceGetGpuFabricInfoV": "7 0 0 0 0 00000000000000000000000000000000",
        "0.field.95": "?",
    }
    [gpu] = _gpus(read(changes, gpus=1))
    assert gpu.recovery_action == "unknown (9)"
    assert (gpu.brand, gpu.architecture, gpu.compute_mode) == ("unknown (77)", "unknown (99)", "unknown (8)")
    assert gpu.virtualization == "unknown (6)"
    assert gpu.readings[0].performance_state == "unknown (32)"
    assert gpu.nvlinks is not None
    assert gpu.nvlinks[0].version == "unknown (12)"
    assert gpu.fabric_state == "unknown (7)"
    assert gpu.replay_rollovers is None
    assert "unknown type" in gpu.missing["replay_rollovers"].detail


@pytest.mark.parametrize("how", ["hang", "hang!"])
def test_a_hung_call_costs_one_time_limit_names_the_call_and_hides_no_other_gpu(read: Read, how: str) -> None:
    start = time.monotonic()
    snapshot = read({"3.nvmlDeviceGetEnforcedPowerLimit": how}, timeout_s=4)
    assert time.monotonic() - start < 4 + 6  # the limit, the ending of a deaf child, and a slow machine
    gpus = _gpus(snapshot)
    assert len(gpus) == 8
    for gpu in gpus:
        assert gpu.name == "NVIDIA H100 80GB HBM3"
        if gpu.index != 3:
            assert gpu.power_limit_w == 700.0
            assert gpu.nvlinks is not None
            assert gpu.readings[0].tx_kb_s == 352
    sick = gpus[3]
    assert sick.ecc_mode is True  # read before
    for field in ("power_limit_w", "recovery_action", "nvlinks", "processes"):
        missing = sick.missing[field]
        assert missing.reason is Reason.NOT_READABLE
        assert missing.detail.startswith("NVML call nvmlDeviceGetEnforcedPowerLimit on GPU 3 hung for ")
        assert missing.detail.endswith(" s (driver sick?)")
    assert snapshot.software.driver_error is not None
    assert "nvmlDeviceGetEnforcedPowerLimit on GPU 3 hung" in snapshot.software.driver_error
    assert snapshot.software.driver_version == "590.48.01"


def test_two_hung_gpus_still_cost_one_time_limit(read: Read) -> None:
    gpus = _gpus(read({"0.nvmlDeviceGetUUID": "hang", "6.nvmlDeviceGetHandleByIndex_v2": "hang"}, timeout_s=5))
    assert [gpu.index for gpu in gpus if gpu.power_limit_w is None] == [0, 6]
    assert "nvmlDeviceGetHandleByIndex on GPU 6 hung" in gpus[6].missing["uuid"].detail


def test_a_slow_call_is_waited_for(read: Read) -> None:
    snapshot = read({"0.nvmlDeviceGetFanSpeed": "slow 2.5"}, gpus=2, timeout_s=8)
    assert snapshot.software.driver_error is None
    assert [gpu.readings[0].tx_kb_s for gpu in _gpus(snapshot)] == [352, 352]


def test_nvml_that_hangs_at_its_start_is_named(read: Read) -> None:
    snapshot = read({"sys.nvmlInitWithFlags": "hang"}, timeout_s=2)
    assert snapshot.accelerators is None
    assert snapshot.software.driver_error is not None
    assert snapshot.software.driver_error.startswith("NVML call nvmlInitWithFlags hung for ")
    assert snapshot.software.missing["driver_version"].reason is Reason.NOT_READABLE
    assert "persistence" in snapshot.software.missing["driver_version"].hint


def test_a_gpu_lost_from_the_start_keeps_its_place_and_its_error(read: Read) -> None:
    gpus = _gpus(read({"2.*": "!15"}))
    assert [gpu.error for gpu in gpus] == [None, None, "GPU is lost", None, None, None, None, None]
    assert gpus[2].uuid is None
    assert gpus[2].pci_address is None  # nothing says where it sits
    assert gpus[2].missing["uuid"].reason is Reason.NOT_READABLE
    assert "GPU is lost" in gpus[2].missing["uuid"].detail


def test_a_lost_gpu_gets_the_address_that_the_bus_leaves_for_it(read: Read) -> None:
    addresses = [f"0000:{bus.lower()}:00.0" for bus in standin.H100_BUSES]
    bus = {address: PciDevice(address=address, vendor_id=0x10DE, class_code=0x0302) for address in addresses}
    gpus = _gpus(read({"2.*": "!15"}, snapshot=Snapshot(pci=bus)))
    assert gpus[2].pci_address == addresses[2]


def test_a_gpu_lost_on_the_way_keeps_what_was_read_before(read: Read) -> None:
    gpus = _gpus(read({"2.nvmlDeviceGetEccMode": "!15"}))
    assert gpus[2].error == "GPU is lost"
    assert gpus[2].name == "NVIDIA H100 80GB HBM3"
    assert gpus[2].power_limit_w is None
    assert "GPU is lost" in gpus[2].missing["power_limit_w"].detail
    assert gpus[3].power_limit_w == 700.0


def test_a_gpu_that_needs_a_reset_says_so_and_is_read_on(read: Read) -> None:
    gpu = _gpus(read({"1.nvmlDeviceGetClockInfo": "!16", "1.field.230": "1"}, gpus=2))[1]
    assert gpu.error == "GPU requires reset"
    assert gpu.recovery_action == "Reset"
    assert gpu.readings[0].missing["sm_clock_mhz"].reason is Reason.NOT_READABLE


def test_missing_permission_has_a_hint(read: Read) -> None:
    [gpu] = _gpus(read({"0.nvmlDeviceGetSerial": "!4"}, gpus=1))
    missing = gpu.missing["serial"]
    assert (missing.reason, missing.hint) == (Reason.NOT_READABLE, "run as root")
    assert "Insufficient Permissions" in missing.detail


def test_an_old_driver_lacks_calls_not_values(read: Read) -> None:
    changes: dict[str, str | None] = {
        "*.nvmlDeviceGetCurrentClocksThrottleReasons": "0x4",
        "*.nvmlDeviceGetComputeRunningProcesses_v2": f"4242 {512 << 20}",
        "*.nvmlDeviceGetGraphicsRunningProcesses_v2": f"4242 {512 << 20} 4300 {3 << 20}",
        "sys.nvmlSystemGetProcessName.4242": "/usr/bin/python3",
        "*.field.164": None,
        "*.field.90": "25781",
    }
    [gpu] = _gpus(read(changes, gpus=1, library="old_nvml"))
    for field in ("gsp_firmware", "c2c_mode", "sram_threshold_exceeded", "fabric_state"):
        assert gpu.missing[field].reason is Reason.NOT_SUPPORTED, field
        assert "driver too old" in gpu.missing[field].detail
    assert gpu.memory_total_mib == 81559
    assert gpu.readings[0].memory_used_mib == 479
    assert gpu.readings[0].throttle_reasons == ["sw_power_cap"]
    assert "throttle_reasons" not in gpu.readings[0].missing
    assert gpu.nvlinks is not None
    assert gpu.nvlinks[0].speed_gb_s == 25.781
    assert gpu.processes is not None
    assert [(p.pid, p.type, p.name, p.memory_mib) for p in gpu.processes] == [
        (4242, "C+G", "/usr/bin/python3", 512),
        (4300, "G", None, 3),
    ]


@pytest.mark.parametrize(
    ("code", "text", "hint"),
    [
        (18, "Failed to initialize NVML: Driver/library version mismatch", "reload the module"),
        (9, "Failed to initialize NVML: Driver Not Loaded", "modprobe nvidia"),
        (4, "Failed to initialize NVML: Insufficient Permissions", "run as root"),
        (999, "Failed to initialize NVML: Unknown Error", "cgroup"),
    ],
)
def test_an_nvml_that_does_not_start_says_why_in_nvmls_words(read: Read, code: int, text: str, hint: str) -> None:
    snapshot = read({"sys.nvmlInitWithFlags": f"!{code}"})
    assert snapshot.software.driver_error == text
    assert snapshot.software.driver_library_version == "13.590.48.01"
    assert snapshot.accelerators is None
    missing = snapshot.software.missing["driver_version"]
    assert missing.reason is Reason.NOT_READABLE
    assert hint in missing.hint


def test_without_the_library_nobody_says_that_there_are_no_gpus() -> None:
    snapshot = Snapshot()
    read_nvml(snapshot, library="/nonexistent/libnvidia-ml.so.1")
    assert snapshot.accelerators is None
    assert snapshot.software.missing["driver_version"].reason is Reason.ABSENT
    assert snapshot.software.missing["driver_version"].detail.startswith("libnvidia-ml.so.1 not found")
    assert snapshot.software.driver_error is None


def test_without_the_library_the_bus_may_say_that_there_are_no_gpus() -> None:
    bridge = PciDevice(address="0000:00:01.0", vendor_id=0x8086, class_code=0x0604)
    snapshot = Snapshot(pci={bridge.address: bridge})
    read_nvml(snapshot, library="/nonexistent/libnvidia-ml.so.1")
    assert snapshot.accelerators == []


def test_without_the_library_a_gpu_on_the_bus_stays_unknown() -> None:
    gpu = PciDevice(address="0000:1b:00.0", vendor_id=0x10DE, class_code=0x0302)
    snapshot = Snapshot(pci={gpu.address: gpu})
    read_nvml(snapshot, library="/nonexistent/libnvidia-ml.so.1")
    assert snapshot.accelerators is None


def test_a_crash_of_the_library_is_told_with_its_signal_and_call(read: Read) -> None:
    snapshot = read({"1.nvmlDeviceGetRepairStatus": "segv"}, gpus=3)
    gpus = _gpus(snapshot)
    assert (
        snapshot.software.driver_error == "the NVML reader was ended by SIGSEGV in NVML call nvmlDeviceGetRepairStatus on GPU 1"
    )
    assert gpus[0].nvlinks is not None
    assert gpus[1].uuid is not None
    assert gpus[1].missing["nvlinks"].detail == snapshot.software.driver_error
    assert gpus[2].uuid is None
    assert gpus[2].missing["uuid"].detail == f"not reached: {snapshot.software.driver_error}"


def test_a_library_that_prints_without_end_disturbs_nothing_but_itself(read: Read) -> None:
    snapshot = read({"1.nvmlDeviceGetSerial": "flood"}, gpus=2, timeout_s=3)
    gpus = _gpus(snapshot)
    assert gpus[0].power_limit_w == 700.0
    assert "nvmlDeviceGetSerial on GPU 1 hung" in gpus[1].missing["serial"].detail


def test_mig_devices_are_listed_with_their_profile(read: Read) -> None:
    changes = {
        "0.nvmlDeviceGetMigMode": "1 1",
        "0.nvmlDeviceGetMaxMigDeviceCount": "7",
        "0/0.nvmlDeviceGetUUID": "MIG-0",
        "0/0.nvmlDeviceGetName": "NVIDIA H100 80GB HBM3 MIG 3g.40gb",
        "0/0.nvmlDeviceGetGpuInstanceId": "2",
        "0/0.nvmlDeviceGetComputeInstanceId": "0",
        "0/0.nvmlDeviceGetMemoryInfo": f"{40448 << 20} 0 0",
        "0/3.nvmlDeviceGetUUID": "MIG-3",
        "0/3.nvmlDeviceGetName": "NVIDIA H100 80GB HBM3 MIG 1g.10gb",
        "0/3.nvmlDeviceGetGpuInstanceId": "9",
        "0/3.nvmlDeviceGetComputeInstanceId": "!999",
        "0.nvmlDeviceGetUtilizationRates": "!3",
        "0.nvmlDeviceGetNvLinkState": "!3",
    }
    [gpu] = _gpus(read(changes, gpus=1))
    assert gpu.mig_mode is True
    assert gpu.mig_devices is not None
    first, second = gpu.mig_devices
    assert (first.profile, first.gpu_instance, first.compute_instance, first.memory_total_mib) == ("3g.40gb", 2, 0, 40448)
    assert (second.profile, second.uuid, second.compute_instance) == ("1g.10gb", "MIG-3", None)
    assert second.missing["compute_instance"].reason is Reason.NOT_READABLE
    assert gpu.readings[0].missing["utilization_percent"].reason is Reason.NOT_SUPPORTED
    assert gpu.nvlinks is None
    assert "MIG mode" in gpu.missing["nvlinks"].detail


def test_a_pcie_card_without_nvlink_has_an_empty_list(read: Read) -> None:
    [gpu] = _gpus(read({"*.field.91": None, "*.nvmlDeviceGetNvLinkState": "!3"}, gpus=1))
    assert gpu.nvlinks == []
    assert gpu.nvlinks_inactive is None


def test_links_that_are_all_down_are_told(read: Read) -> None:
    [gpu] = _gpus(read({"*.nvmlDeviceGetNvLinkState": "0", "*.field.165": "0", "*.field.164": "0"}, gpus=1))
    assert gpu.nvlinks_inactive is True


def test_a_fabric_that_is_still_starting_has_no_status_yet(read: Read) -> None:
    [gpu] = _gpus(read({"*.nvmlDeviceGetGpuFabricInfoV": "2 0 0 0 0 00000000000000000000000000000000"}, gpus=1))
    assert gpu.fabric_state == "In Progress"
    assert gpu.fabric_status is None
    assert gpu.missing["fabric_status"].reason is Reason.NOT_SUPPORTED


def test_a_gpu_off_the_fabric_is_not_supported_as_nvidia_smi_prints_it(read: Read) -> None:
    [gpu] = _gpus(read({"*.nvmlDeviceGetGpuFabricInfoV": "0 0 0 0 0 00000000000000000000000000000000"}, gpus=1))
    assert gpu.fabric_state is None
    assert gpu.missing["fabric_state"].reason is Reason.NOT_SUPPORTED


def test_the_child_needs_neither_the_users_environment_nor_the_current_directory(
    read: Read, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (tmp_path / "pynvml.py").write_text("raise SystemExit('hijacked')")
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("PYTHONPATH", str(tmp_path))
    monkeypatch.setattr(sys, "path", ["", *sys.path])
    assert len(_gpus(read(gpus=1))) == 1


def test_cpu_masks_become_kernel_lists() -> None:
    assert nvml_names.cpu_list([0xFF, 0b101]) == "0-7,64,66"
    assert nvml_names.cpu_list([1 << 63, 1]) == "63-64"
    assert nvml_names.cpu_list([0, 0]) == ""


def test_throttle_bits_have_names_and_unknown_ones_stay() -> None:
    assert nvml_names.throttle_names(0) == []
    assert nvml_names.throttle_names(0x5) == ["gpu_idle", "sw_power_cap"]
    assert nvml_names.throttle_names(0x800 | 0x400) == ["reliability", "unknown bit 0x800"]
