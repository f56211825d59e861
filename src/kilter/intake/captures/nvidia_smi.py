"""What the fields of ``nvidia-smi`` mean, whichever of its formats prints them.

The three long formats (``-q`` text, ``-q -x`` XML, ``--query-gpu`` CSV) show the same NVML values under three spellings. Their readers
flatten one GPU into ``spelling -> (value, line)``; :func:`fill` turns that into an :class:`Accelerator` with one :class:`Reading`.
Spellings were read off real outputs of drivers 515 to 610 (the corpus) and the query help of driver 595. From R610 on the header says
"KMD Version" and "CUDA UMD Version" (sgl-project/sglang#27487).
"""

from __future__ import annotations

import datetime
import re
from collections.abc import Callable, Iterable
from typing import NamedTuple

from kilter.facts.accelerator import Accelerator, EccCounts, Reading
from kilter.facts.base import Entity, Reason, Ref
from kilter.facts.pci import pci_address
from kilter.intake.fragment import Fragment
from kilter.knowledge import throttle

Values = dict[str, tuple[str, int]]

#: Texts that stand where a value would be. None of them is a value, and none is zero.
NOT_VALUES = {
    "n/a": Reason.NOT_SUPPORTED,
    "[n/a]": Reason.NOT_SUPPORTED,
    "not supported": Reason.NOT_SUPPORTED,
    "[not supported]": Reason.NOT_SUPPORTED,
    "requested functionality has been deprecated": Reason.NOT_SUPPORTED,
    "[requested functionality has been deprecated]": Reason.NOT_SUPPORTED,
    "not available": Reason.NOT_SUPPORTED,
    "err!": Reason.NOT_READABLE,
    "[unknown error]": Reason.NOT_READABLE,
    "unknown error": Reason.NOT_READABLE,
    "[gpu is lost]": Reason.NOT_READABLE,
    "gpu is lost": Reason.NOT_READABLE,
    "[insufficient permissions]": Reason.NOT_READABLE,
    "insufficient permissions": Reason.NOT_READABLE,
    "[gpu requires reset]": Reason.NOT_READABLE,
    "gpu requires reset": Reason.NOT_READABLE,
    "[reset required]": Reason.NOT_READABLE,
    "redacted": Reason.NOT_READABLE,
    "[redacted]": Reason.NOT_READABLE,
    "unknown": Reason.NOT_READABLE,
    "": Reason.NOT_COLLECTED,
}
_LOST = {"[gpu is lost]": "GPU is lost", "gpu is lost": "GPU is lost", "[gpu requires reset]": "GPU requires reset",
         "gpu requires reset": "GPU requires reset", "[reset required]": "GPU requires reset"}  # fmt: skip

#: No counter has more than 20 digits (64 bits); a longer run is damage, and 309 digits no longer fit a float.
_NUMBER = re.compile(r"(-?\d{1,20})(?:\.(\d{1,20}))?(?!\d)")
_YES = {"enabled", "yes", "active", "on", "1"}
_NO = {"disabled", "no", "not active", "off", "0"}


def number(text: str) -> float | None:
    """First number of ``text`` ("81559 MiB" -> 81559.0); None if it does not begin with one."""
    match = _NUMBER.match(text.strip())
    return float(match.group()) if match else None


def integer(text: str) -> int | None:
    """As :func:`number`, for whole numbers; hexadecimal with 0x is read too."""
    text = text.strip()
    if text.lower().startswith("0x"):
        try:
            value = int(text.split()[0], 16)
        except ValueError:
            return None
        return value if value < 1 << 64 else None
    match = _NUMBER.match(text)
    return int(match.group(1)) if match and not (match.group(2) or "").strip("0") else None


def boolean(text: str) -> bool | None:
    word = text.strip().lower()
    return True if word in _YES else False if word in _NO else None


def verbatim(text: str) -> str:
    return text.strip()


def device_ids(text: str) -> int | None:
    """``0x233010DE`` or ``233010DE`` (device, vendor) -> 0x2330; masked ids (device 0000) are no ids."""
    try:
        value = int(text.strip().removeprefix("0x"), 16)
    except ValueError:
        return None
    return value >> 16 or None


class Field(NamedTuple):
    """One fact: its field, how to read it, and its spellings (alternatives separated by ``|``)."""

    name: str
    convert: Callable[[str], object]
    text: str
    xml: str
    csv: str


STATIC: tuple[Field, ...] = (
    Field("name", verbatim, "Product Name", "product_name", "name|gpu_name"),
    Field("brand", verbatim, "Product Brand", "product_brand", ""),
    Field("architecture", verbatim, "Product Architecture", "product_architecture", ""),
    Field("compute_capability", verbatim, "", "", "compute_cap"),
    Field("persistence_mode", boolean, "Persistence Mode", "persistence_mode", "persistence_mode"),
    Field("mig_mode", boolean, "MIG Mode/Current", "mig_mode/current_mig", "mig.mode.current"),
    Field("mig_mode_pending", boolean, "MIG Mode/Pending", "mig_mode/pending_mig", "mig.mode.pending"),
    Field("serial", verbatim, "Serial Number", "serial", "serial|gpu_serial"),
    Field("uuid", verbatim, "GPU UUID", "uuid", "uuid|gpu_uuid"),
    Field("index", integer, "", "", "index"),
    Field("minor", integer, "Minor Number", "minor_number", ""),
    Field("firmware", verbatim, "VBIOS Version", "vbios_version", "vbios_version"),
    Field("board_part_number", verbatim, "Board Part Number", "board_part_number", ""),
    Field("part_number", verbatim, "GPU Part Number", "gpu_part_number", ""),
    Field("module_id", integer, "Platform Info/Module Id|Module ID", "platformInfo/module_id|gpu_module_id", "platform.module_id"),
    Field("virtualization", verbatim, "GPU Virtualization Mode/Virtualization Mode", "gpu_virtualization_mode/virtualization_mode", ""),
    Field("c2c_mode", verbatim, "GPU C2C Mode", "c2c_mode", "c2c.mode"),
    Field("recovery_action", verbatim, "GPU Recovery Action", "gpu_recovery_action", "gpu_recovery_action"),
    Field("gsp_firmware", verbatim, "GSP Firmware Version", "gsp_firmware_version", ""),
    Field("pci_address", pci_address, "PCI/Bus Id", "pci/pci_bus_id", "pci.bus_id|gpu_bus_id"),
    Field("pci_device_id", device_ids, "PCI/Device Id", "pci/pci_device_id", "pci.device_id"),
    Field("pci_subsystem_id", device_ids, "PCI/Sub System Id", "pci/pci_sub_system_id", "pci.sub_device_id"),
    Field("link_generation_max", integer, "PCI/GPU Link Info/PCIe Generation/Max", "pci/pci_gpu_link_info/pcie_gen/max_link_gen", "pcie.link.gen.max"),
    Field("link_generation_device_max", integer, "PCI/GPU Link Info/PCIe Generation/Device Max", "pci/pci_gpu_link_info/pcie_gen/max_device_link_gen", "pcie.link.gen.gpumax"),
    Field("link_generation_host_max", integer, "PCI/GPU Link Info/PCIe Generation/Host Max", "pci/pci_gpu_link_info/pcie_gen/max_host_link_gen", "pcie.link.gen.hostmax"),
    Field("link_width_max", integer, "PCI/GPU Link Info/Link Width/Max", "pci/pci_gpu_link_info/link_widths/max_link_width", "pcie.link.width.max"),
    Field("replays", integer, "PCI/Replays Since Reset", "pci/replay_counter", ""),
    Field("replay_rollovers", integer, "PCI/Replay Number Rollovers", "pci/replay_rollover_counter", ""),
    Field("compute_mode", verbatim, "Compute Mode", "compute_mode", "compute_mode"),
    Field("memory_total_mib", integer, "FB Memory Usage/Total", "fb_memory_usage/total", "memory.total"),
    Field("bar1_total_mib", integer, "BAR1 Memory Usage/Total", "bar1_memory_usage/total", ""),
    Field("ecc_mode", boolean, "ECC Mode/Current|Ecc Mode/Current", "ecc_mode/current_ecc", "ecc.mode.current"),
    Field("ecc_mode_pending", boolean, "ECC Mode/Pending|Ecc Mode/Pending", "ecc_mode/pending_ecc", "ecc.mode.pending"),
    Field("sram_threshold_exceeded", boolean, "ECC Errors/Aggregate/SRAM Threshold Exceeded", "ecc_errors/aggregate/sram_threshold_exceeded", "ecc.errors.uncorrected.aggregate.sram.thresholdExceeded"),
    Field("channel_repair_pending", boolean, "ECC Errors/Channel Repair Pending", "ecc_errors/channel_repair_pending", ""),
    Field("tpc_repair_pending", boolean, "ECC Errors/TPC Repair Pending", "ecc_errors/tpc_repair_pending", ""),
    Field("unrepairable_memory", boolean, "ECC Errors/Unrepairable Memory", "ecc_errors/unrepairable_memory", ""),
    Field("retired_pages_sbe", integer, "Retired Pages/Single Bit ECC", "retired_pages/multiple_single_bit_retirement/retired_count", "retired_pages.single_bit_ecc.count|retired_pages.sbe"),
    Field("retired_pages_dbe", integer, "Retired Pages/Double Bit ECC", "retired_pages/double_bit_retirement/retired_count", "retired_pages.double_bit.count|retired_pages.dbe"),
    Field("retired_pages_pending", boolean, "Retired Pages/Pending Page Blacklist|Retired Pages/Pending", "retired_pages/pending_blacklist|retired_pages/pending_retirement", "retired_pages.pending"),
    Field("remapped_correctable", integer, "Remapped Rows/Correctable Error", "remapped_rows/remapped_row_corr", "remapped_rows.correctable"),
    Field("remapped_uncorrectable", integer, "Remapped Rows/Uncorrectable Error", "remapped_rows/remapped_row_unc", "remapped_rows.uncorrectable"),
    Field("remap_pending", boolean, "Remapped Rows/Pending", "remapped_rows/remapped_row_pending", "remapped_rows.pending"),
    Field("remap_failure", boolean, "Remapped Rows/Remapping Failure Occurred", "remapped_rows/remapped_row_failure", "remapped_rows.failure"),
    Field("power_limit_w", number, "GPU Power Readings/Current Power Limit|Power Readings/Enforced Power Limit|GPU Power Readings/Enforced Power Limit|Power Readings/Power Limit", "gpu_power_readings/current_power_limit|power_readings/enforced_power_limit|power_readings/power_limit", "enforced.power.limit|power.limit"),
    Field("power_limit_requested_w", number, "GPU Power Readings/Requested Power Limit|Power Readings/Power Limit", "gpu_power_readings/requested_power_limit|power_readings/power_limit", "power.limit"),
    Field("power_limit_default_w", number, "GPU Power Readings/Default Power Limit|Power Readings/Default Power Limit", "gpu_power_readings/default_power_limit|power_readings/default_power_limit", "power.default_limit"),
    Field("power_limit_min_w", number, "GPU Power Readings/Min Power Limit|Power Readings/Min Power Limit", "gpu_power_readings/min_power_limit|power_readings/min_power_limit", "power.min_limit"),
    Field("power_limit_max_w", number, "GPU Power Readings/Max Power Limit|Power Readings/Max Power Limit", "gpu_power_readings/max_power_limit|power_readings/max_power_limit", "power.max_limit"),
    Field("sm_clock_max_mhz", integer, "Max Clocks/SM", "max_clocks/sm_clock", "clocks.max.sm"),
    Field("memory_clock_max_mhz", integer, "Max Clocks/Memory", "max_clocks/mem_clock", "clocks.max.memory|clocks.max.mem"),
    Field("application_sm_clock_mhz", integer, "Applications Clocks/Graphics", "applications_clocks/graphics_clock", "clocks.applications.graphics|clocks.applications.gr"),
    Field("application_sm_clock_default_mhz", integer, "Default Applications Clocks/Graphics", "default_applications_clocks/graphics_clock", "clocks.default_applications.graphics|clocks.default_applications.gr"),
    Field("slowdown_temperature_c", integer, "Temperature/GPU Slowdown Temp", "temperature/gpu_temp_slow_threshold", ""),
    Field("shutdown_temperature_c", integer, "Temperature/GPU Shutdown Temp", "temperature/gpu_temp_max_threshold", ""),
    Field("max_operating_temperature_c", integer, "Temperature/GPU Max Operating Temp", "temperature/gpu_temp_max_gpu_threshold", ""),
    Field("memory_max_operating_temperature_c", integer, "Temperature/Memory Max Operating Temp", "temperature/gpu_temp_max_mem_threshold", ""),
    Field("fabric_state", verbatim, "Fabric/State", "fabric/state", "fabric.state"),
    Field("fabric_status", verbatim, "Fabric/Status", "fabric/status", "fabric.status"),
    Field("fabric_clique_id", integer, "Fabric/CliqueId", "fabric/cliqueId", "fabric.cliqueId"),
    Field("fabric_cluster_uuid", verbatim, "Fabric/ClusterUUID", "fabric/clusterUuid", "fabric.clusterUuid"),
)  # fmt: skip

READING: tuple[Field, ...] = (
    Field("performance_state", verbatim, "Performance State", "performance_state", "pstate"),
    Field("utilization_percent", integer, "Utilization/GPU|Utilization/Gpu", "utilization/gpu_util", "utilization.gpu"),
    Field("memory_utilization_percent", integer, "Utilization/Memory", "utilization/memory_util", "utilization.memory"),
    Field("memory_used_mib", integer, "FB Memory Usage/Used", "fb_memory_usage/used", "memory.used"),
    Field("power_w", number, "GPU Power Readings/Average Power Draw|GPU Power Readings/Power Draw|Power Readings/Power Draw|GPU Power Readings/Instantaneous Power Draw", "gpu_power_readings/average_power_draw|gpu_power_readings/power_draw|power_readings/power_draw|gpu_power_readings/instant_power_draw", "power.draw|power.draw.average|power.draw.instant"),
    Field("temperature_c", integer, "Temperature/GPU Current Temp", "temperature/gpu_temp", "temperature.gpu"),
    Field("memory_temperature_c", integer, "Temperature/Memory Current Temp", "temperature/memory_temp", "temperature.memory"),
    Field("tlimit_margin_c", integer, "Temperature/GPU T.Limit Temp", "temperature/gpu_temp_tlimit", "temperature.gpu.tlimit"),
    Field("fan_percent", integer, "Fan Speed", "fan_speed", "fan.speed"),
    Field("sm_clock_mhz", integer, "Clocks/SM", "clocks/sm_clock", "clocks.current.sm|clocks.sm"),
    Field("graphics_clock_mhz", integer, "Clocks/Graphics", "clocks/graphics_clock", "clocks.current.graphics|clocks.gr"),
    Field("memory_clock_mhz", integer, "Clocks/Memory", "clocks/mem_clock", "clocks.current.memory|clocks.mem"),
    Field("link_generation", integer, "PCI/GPU Link Info/PCIe Generation/Current", "pci/pci_gpu_link_info/pcie_gen/current_link_gen", "pcie.link.gen.current|pcie.link.gen.gpucurrent"),
    Field("link_width", integer, "PCI/GPU Link Info/Link Width/Current", "pci/pci_gpu_link_info/link_widths/current_link_width", "pcie.link.width.current"),
    Field("tx_kb_s", number, "PCI/Tx Throughput", "pci/tx_util", ""),
    Field("rx_kb_s", number, "PCI/Rx Throughput", "pci/rx_util", ""),
)  # fmt: skip

ECC: tuple[Field, ...] = (
    Field("sram_corrected", integer, "SRAM Correctable|SRAM/Correctable", "sram_correctable", "sram"),
    Field("sram_uncorrected", integer, "SRAM Uncorrectable", "sram_uncorrectable", "sram"),
    Field("dram_corrected", integer, "DRAM Correctable", "dram_correctable", "dram|device_memory"),
    Field("dram_uncorrected", integer, "DRAM Uncorrectable", "dram_uncorrectable", "dram|device_memory"),
    Field("total_corrected", integer, "Single Bit/Total", "single_bit/total", "total"),
    Field("total_uncorrected", integer, "Double Bit/Total", "double_bit/total", "total"),
)

#: text of -q -> name in knowledge/tables/throttle_reasons.yaml
REASON_TEXTS = {
    "Idle": "gpu_idle",
    "Applications Clocks Setting": "applications_clocks_setting",
    "SW Power Cap": "sw_power_cap",
    "HW Slowdown": "hw_slowdown",
    "HW Slowdown/HW Thermal Slowdown": "hw_thermal_slowdown",
    "HW Slowdown/HW Power Brake Slowdown": "hw_power_brake_slowdown",
    "Sync Boost": "sync_boost",
    "SW Thermal Slowdown": "sw_thermal_slowdown",
    "Display Clock Setting": "display_clock_setting",
    "HW Thermal Slowdown": "hw_thermal_slowdown",
    "HW Power Brake Slowdown": "hw_power_brake_slowdown",
}
_COUNTERS = {
    "sw_power_cap": ("SW Power Capping", "sw_power_cap"),
    "sync_boost": ("Sync Boost", "sync_boost"),
    "sw_thermal_slowdown": ("SW Thermal Slowdown", "sw_therm_slowdown"),
    "hw_thermal_slowdown": ("HW Thermal Slowdown", "hw_therm_slowdown"),
    "hw_power_brake_slowdown": ("HW Power Braking", "hw_power_brake"),
}
_REASON_SECTIONS = ("Clocks Event Reasons", "Clocks Throttle Reasons")


def _pick(values: Values, spellings: str) -> tuple[str, int] | None:
    """First spelling that has a value; else the first that is printed at all."""
    fallback = None
    for spelling in spellings.split("|"):
        found = values.get(spelling)
        if found is None:
            continue
        if found[0].strip().lower() not in NOT_VALUES:
            return found
        fallback = fallback or found
    return fallback


def put_text(entity: Entity, field: str, convert: Callable[[str], object], text: str, ref: Ref) -> None:
    """Set ``field`` from printed ``text``, or say why it has no value. A "None" of an enum is a value."""
    word = text.strip()
    reason = NOT_VALUES.get(word.lower())
    if reason is not None:
        if reason is not Reason.NOT_COLLECTED:
            entity.lacks(field, reason, f"nvidia-smi prints {word!r}")
            entity.origin.setdefault(field, ref)
        return
    value = convert(word)
    if value is None:
        entity.lacks(field, Reason.NOT_READABLE, f"nvidia-smi prints {word[:60]!r}")
    entity.put(field, value, ref)


def _fill_fields(
    entity: Entity, fields: Iterable[Field], spelling: str, values: Values, fragment: Fragment, prefix: str = ""
) -> None:
    for field in fields:
        spellings: str = getattr(field, spelling)
        if not spellings:
            continue
        if prefix:
            spellings = "|".join(prefix + s for s in spellings.split("|"))
        found = _pick(values, spellings)
        if found is not None:
            put_text(entity, field.name, field.convert, found[0], fragment.ref(found[1]))


def _fill_ecc(accelerator: Accelerator, spelling: str, values: Values, fragment: Fragment) -> None:
    for scope in ("volatile", "aggregate"):
        counts = EccCounts()
        if spelling == "csv":
            for kind, fields in (("corrected", ECC[0::2]), ("uncorrected", ECC[1::2])):
                _fill_fields(counts, fields, "csv", values, fragment, f"ecc.errors.{kind}.{scope}.")
        else:
            prefix = f"ECC Errors/{scope.title()}/" if spelling == "text" else f"ecc_errors/{scope}/"
            _fill_fields(counts, ECC, spelling, values, fragment, prefix)
            if counts.sram_uncorrected is None:  # drivers since R550 print parity and SEC-DED apart
                _sum_sram(counts, values, prefix, spelling, fragment)
        if counts.origin:
            setattr(accelerator, f"ecc_{scope}", counts)


def _sum_sram(counts: EccCounts, values: Values, prefix: str, spelling: str, fragment: Fragment) -> None:
    names = (
        ("SRAM Uncorrectable Parity", "SRAM Uncorrectable SEC-DED")
        if spelling == "text"
        else ("sram_uncorrectable_parity", "sram_uncorrectable_secded")
    )
    parts = [values[prefix + name] for name in names if prefix + name in values]
    numbers = [integer(text) for text, _ in parts]
    if parts and all(n is not None for n in numbers):
        counts.put("sram_uncorrected", sum(n for n in numbers if n is not None), fragment.ref(parts[0][1]))
        counts.missing.pop("sram_uncorrected", None)
    elif parts:
        counts.lacks("sram_uncorrected", Reason.NOT_SUPPORTED, f"nvidia-smi prints {parts[0][0]!r}")
        counts.origin.setdefault("sram_uncorrected", fragment.ref(parts[0][1]))


def _fill_reasons(reading: Reading, spelling: str, values: Values, fragment: Fragment) -> None:
    active: list[str] = []
    line = None
    if spelling == "text":
        for section in _REASON_SECTIONS:
            for text, name in REASON_TEXTS.items():
                found = values.get(f"{section}/{text}")
                if found is not None and found[0].strip() in ("Active", "Not Active"):
                    line = line or found[1]
                    if found[0].strip() == "Active":
                        active.append(name)
    else:
        sections = (
            ("clocks_event_reasons/clocks_event_reason_", "clocks_throttle_reasons/clocks_throttle_reason_")
            if spelling == "xml"
            else ("clocks_event_reasons.", "clocks_throttle_reasons.")
        )
        for key, (text, number_) in values.items():
            for section in sections:
                if key == f"{section}active" and (mask := integer(text)) is not None:
                    line = line or number_
                    active += throttle.names_of_mask(mask)
                elif key.startswith(section) and text.strip() in ("Active", "Not Active"):
                    line = line or number_
                    name = key.removeprefix(section).replace("display_clocks_setting", "display_clock_setting")
                    if text.strip() == "Active":
                        active.append(name)
    if line is not None:
        reading.put("throttle_reasons", list(dict.fromkeys(active)), fragment.ref(line))


def _fill_maps(accelerator: Accelerator, spelling: str, values: Values, fragment: Fragment) -> None:
    for name, (text, xml) in _COUNTERS.items():
        key = {
            "text": f"Clocks Event Reasons Counters/{text}",
            "xml": f"clocks_event_reasons_counters/clocks_event_reasons_counters_{xml}",
            "csv": f"clocks_event_reasons_counters.{name}",
        }[spelling]
        if key in values and (count := integer(values[key][0])) is not None:
            accelerator.throttle_counters_us[name] = count
            accelerator.origin.setdefault("throttle_counters_us", fragment.ref(values[key][1]))
    for name in ("max", "high", "partial", "low", "none"):
        key = {
            "text": f"Remapped Rows/Bank Remap Availability Histogram/{name.title()}",
            "xml": f"remapped_rows/row_remapper_histogram/row_remapper_histogram_{name}",
            "csv": f"remapped_rows.histogram.{name}",
        }[spelling]
        if key in values and (count := integer(values[key][0])) is not None:
            accelerator.remap_banks[name] = count
            accelerator.origin.setdefault("remap_banks", fragment.ref(values[key][1]))
    prefix = {"text": "Fabric/Health/", "xml": "fabric/health/", "csv": "fabric.health."}[spelling]
    for key, (text, line) in values.items():
        if key.startswith(prefix) and text.strip().lower() not in NOT_VALUES:
            accelerator.fabric_health[key.removeprefix(prefix).lower().replace(" ", "_")] = text.strip()
            accelerator.origin.setdefault("fabric_health", fragment.ref(line))


def fill(accelerator: Accelerator, values: Values, spelling: str, fragment: Fragment, time: float | None) -> Reading | None:
    """Set everything that ``values`` of one GPU say. ``spelling``: "text", "xml" or "csv". Returns the reading, if any."""
    _fill_fields(accelerator, STATIC, spelling, values, fragment)
    _fill_ecc(accelerator, spelling, values, fragment)
    _fill_maps(accelerator, spelling, values, fragment)
    if accelerator.recovery_action is None and "recovery_action" in accelerator.missing:
        # The word "Unknown ..." is an action that the tool has no name for, which is not health.
        accelerator.missing.pop("recovery_action")
    reading = Reading(time=time)
    _fill_fields(reading, READING, spelling, values, fragment)
    _fill_reasons(reading, spelling, values, fragment)
    for text, _ in values.values():
        if (lost := _LOST.get(text.strip().lower())) is not None:
            accelerator.error = lost
            break
    if not reading.origin:
        return None
    accelerator.readings.append(reading)
    return reading


_TIMES = ("%a %b %d %H:%M:%S %Y", "%Y/%m/%d %H:%M:%S.%f", "%Y-%m-%d %H:%M:%S", "%d/%m/%Y %H:%M:%S")


def timestamp(text: str) -> float | None:
    """Seconds since the epoch of nvidia-smi's local time, read as if it were UTC; None if it is no time."""
    text = " ".join(text.split())
    for form in _TIMES:
        try:
            return datetime.datetime.strptime(text, form).replace(tzinfo=datetime.timezone.utc).timestamp()
        except ValueError:
            continue
    return None


def put_driver(fragment: Fragment, key: str, value: str, line: int) -> None:
    """Driver and CUDA versions of any header, old ("Driver Version") or new ("KMD Version", "CUDA UMD Version")."""
    word = value.strip()
    if not re.match(r"\d", word):
        return
    name = key.strip().lower().replace("_", " ")
    software = fragment.snapshot.software
    if name in ("driver version", "kmd version"):
        software.put("driver_version", word, fragment.ref(line))
    elif name in ("cuda version", "cuda umd version"):
        software.put("cuda_driver_version", word, fragment.ref(line))
    elif name in ("nvml version", "nvidia-smi version"):
        fragment.source.version = fragment.source.version or word
