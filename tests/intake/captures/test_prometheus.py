"""Scrapes of dcgm-exporter and nvidia_gpu_exporter."""

from __future__ import annotations

from pathlib import Path

from hypothesis import given, settings

from kilter.facts.base import Reason
from kilter.intake.captures.prometheus import sample
from mangle import long_lines, mangled, parse_text

DATA = Path(__file__).parents[2] / "data/s054-prom-h200-idle-load"
LOAD = (DATA / "load.metrics").read_text()


def series(name, value, gpu=0, **more):
    labels = {
        "gpu": str(gpu),
        "UUID": f"GPU-{gpu}",
        "pci_bus_id": f"00000000:{16 + gpu:02X}:00.0",
        "modelName": "NVIDIA H100",
        **more,
    }
    inside = ",".join(f'{label}="{text}"' for label, text in labels.items())
    return f"{name}{{{inside}}} {value}\n"


OLD = (
    "# HELP DCGM_FI_DEV_SM_CLOCK SM clock frequency (in MHz).\n# TYPE DCGM_FI_DEV_SM_CLOCK gauge\n"
    + series("DCGM_FI_DEV_SM_CLOCK", 1980, Hostname="node-a", DCGM_FI_DRIVER_VERSION="550.54.15")
    + series("DCGM_FI_DEV_GPU_TEMP", 61, Hostname="node-a")
    + series("DCGM_FI_DEV_MEMORY_TEMP", 0, Hostname="node-a")
    + series("DCGM_FI_DEV_POWER_USAGE", "650.120000", Hostname="node-a")
    + series("DCGM_FI_DEV_GPU_UTIL", 97, Hostname="node-a")
    + series("DCGM_FI_DEV_XID_ERRORS", 79, Hostname="node-a", err_code="79", err_msg='a \\"b\\", c}')
    + series("DCGM_FI_DEV_ROW_REMAP_FAILURE", 0, Hostname="node-a")
    + series("DCGM_FI_DEV_ECC_DBE_VOL_TOTAL", 2, Hostname="node-a")
    + series("DCGM_FI_DEV_CLOCK_THROTTLE_REASONS", 4, Hostname="node-a")
    + series("DCGM_FI_DEV_PCIE_REPLAY_COUNTER", "9223372036854775794", Hostname="node-a")
)


def read(text):
    fragment = parse_text("prometheus", text)
    assert fragment.unplaced == []
    return fragment, fragment.snapshot.accelerators


def test_old_names_fill_the_gpu():
    fragment, (gpu,) = read(OLD)
    assert (gpu.index, gpu.uuid, gpu.pci_address, gpu.name) == (0, "GPU-0", "0000:10:00.0", "NVIDIA H100")
    (reading,) = gpu.readings
    assert (reading.sm_clock_mhz, reading.temperature_c, reading.power_w, reading.utilization_percent) == (1980, 61, 650.12, 97)
    assert reading.throttle_reasons == ["sw_power_cap"]
    assert gpu.remap_failure is False
    assert gpu.ecc_volatile.total_uncorrected == 2
    assert fragment.source.node == "node-a"
    assert fragment.snapshot.software.driver_version == "550.54.15"
    assert fragment.snapshot.origin["metrics.DCGM_FI_DEV_XID_ERRORS"] == (0, 8)
    assert list(fragment.snapshot.metrics["DCGM_FI_DEV_XID_ERRORS"].values()) == [79]


def test_new_names_are_the_same_fields():
    _, (gpu,) = read(
        series("DCGM_FI_DEV_GPU_TEMP_CELSIUS", 61)
        + series("DCGM_FI_DEV_GPU_UTIL_RATIO", 97)
        + series("DCGM_FI_DEV_BOARD_POWER_WATTS", 70)
    )
    assert (gpu.readings[0].temperature_c, gpu.readings[0].utilization_percent, gpu.readings[0].power_w) == (61, 97, 70)


def test_a_fraction_under_the_new_name_is_a_ratio():
    _, (gpu,) = read(series("DCGM_FI_DEV_GPU_UTIL_RATIO", "0.970000"))
    assert gpu.readings[0].utilization_percent == 97


def test_sentinels_are_missing_and_never_numbers():
    fragment, (gpu,) = read(OLD)
    assert gpu.replays is None
    assert gpu.missing["replays"].reason is Reason.NOT_SUPPORTED
    assert "DCGM_FI_DEV_PCIE_REPLAY_COUNTER" not in fragment.snapshot.metrics
    assert gpu.readings[0].memory_temperature_c is None
    assert any("blank" in note for note in fragment.notes)


def test_values_of_a_mig_instance_are_not_the_whole_gpus():
    _, (gpu,) = read(
        series("DCGM_FI_DEV_FB_USED", 100, GPU_I_ID="7", GPU_I_PROFILE="1g.10gb")
        + series("DCGM_FI_DEV_GPU_TEMP", 40, GPU_I_ID="7")
    )
    assert gpu.readings[0].memory_used_mib is None
    assert gpu.readings[0].temperature_c == 40


def test_the_pod_of_the_exporter_is_no_node():
    fragment, _ = read(series("DCGM_FI_DEV_GPU_TEMP", 40, Hostname="nvidia-dcgm-exporter-pqwfv"))
    assert fragment.source.node == ""


def test_a_federation_gives_each_node_its_own():
    fragment, gpus = read(
        series("DCGM_FI_DEV_GPU_TEMP", 40, Hostname="a", instance="10.0.0.1:9400")
        + series("DCGM_FI_DEV_GPU_TEMP", 41, Hostname="b", instance="10.0.0.2:9400")
        + series("DCGM_FI_DEV_XID_ERRORS", 79, instance="10.0.0.2:9400")
    )
    (other,) = fragment.more
    assert (fragment.source.node, other.source.node) == ("a", "b")
    assert [gpu.readings[0].temperature_c for gpu in gpus] == [40]
    assert [gpu.readings[0].temperature_c for gpu in other.snapshot.accelerators] == [41]
    assert "DCGM_FI_DEV_XID_ERRORS" not in fragment.snapshot.metrics
    assert list(other.snapshot.metrics["DCGM_FI_DEV_XID_ERRORS"].values()) == [79]


def test_hosts_are_told_by_node_or_by_instance_and_never_mixed():
    by_node = read(
        series("DCGM_FI_DEV_GPU_TEMP", 40, Hostname="dcgm-exporter-x1", node="a") + series("DCGM_FI_DEV_GPU_TEMP", 41, node="b")
    )[0]
    assert [by_node.source.node, *(f.source.node for f in by_node.more)] == ["a", "b"]
    by_instance = read(
        series("DCGM_FI_DEV_GPU_TEMP", 40, instance="h1:9400") + series("DCGM_FI_DEV_GPU_TEMP", 41, instance="h2:9400")
    )[0]
    assert [by_instance.source.node, *(f.source.node for f in by_instance.more)] == ["h1", "h2"]
    one = read(series("DCGM_FI_DEV_GPU_TEMP", 40, instance="10.0.0.1:9400"))[0]
    assert (one.source.node, one.more) == ("", [])


def test_samples_without_a_host_belong_to_none_of_several():
    fragment, _ = read(
        series("DCGM_FI_DEV_GPU_TEMP", 40, Hostname="a")
        + series("DCGM_FI_DEV_GPU_TEMP", 41, Hostname="b")
        + series("DCGM_FI_DEV_GPU_TEMP", 99)
    )
    assert any("1 samples name no host" in note for note in fragment.notes)
    assert [gpu.readings[0].temperature_c for gpu in fragment.snapshot.accelerators] == [40]


def test_a_real_scrape_of_nvidia_gpu_exporter():
    fragment, (gpu,) = read(LOAD)
    assert (gpu.name, gpu.index, gpu.pci_address) == ("NVIDIA H200", 0, "0000:83:00.0")
    (reading,) = gpu.readings
    assert (reading.temperature_c, reading.memory_temperature_c, reading.tlimit_margin_c) == (52, 40, 35)
    assert (reading.utilization_percent, reading.memory_utilization_percent, reading.power_w) == (100, 7, 627.4)
    assert (reading.sm_clock_mhz, reading.memory_used_mib, reading.performance_state) == (1980, 32362, "P0")
    assert reading.throttle_reasons == []
    assert (gpu.power_limit_w, gpu.power_limit_default_w, gpu.memory_total_mib) == (700, 700, 143771)
    assert (gpu.ecc_volatile.dram_uncorrected, gpu.ecc_mode, gpu.remap_pending, gpu.remap_banks["max"]) == (0, True, False, 3072)
    assert (gpu.fabric_state, gpu.recovery_action, gpu.persistence_mode) == ("Completed", "None", True)
    assert gpu.throttle_counters_us["hw_thermal_slowdown"] == 0
    assert [p.pid for p in gpu.processes] == [10291, 10293, 10309]
    assert fragment.snapshot.software.driver_version == "590.48.01"


def test_sample_lines():
    one = sample('a_b{x="1 \\" , }",y="2"} 1.5e3 1700000000000')
    assert (one.name, one.labels, one.value, one.time) == ("a_b", {"x": '1 " , }', "y": "2"}, 1500, 1.7e9)
    assert sample("a 1").value == 1
    assert sample('a{x="1"} NaN').value != 0
    assert sample('a{x="1} 1') is None
    assert sample("a b c") is None


@settings(max_examples=120, deadline=None)
@given(mangled(OLD) | mangled(LOAD[:3000] + LOAD[-3000:]))
def test_damage_is_survived(text):
    parse_text("prometheus", text)


@settings(max_examples=30, deadline=None)
@given(long_lines("a{", 'a{x="', "DCGM_FI_DEV_GPU_TEMP 1", 'a{x="1",'))
def test_long_lines_are_survived(text):
    parse_text("prometheus", text)
