"""What is asked of one NVIDIA GPU through NVML, call by call. Runs in the child process of :mod:`nvml_child` only.

Each field's value, or the reason why it has none, is written in the spelling of ``facts.Accelerator``; so the
parent has only to check and take it. Only ``Get`` calls are made. The meaning of calls, structs and field identifiers is that
of the public NVML API as nvidia-ml-py 13.615 declares it.
"""

from __future__ import annotations

import ctypes
import json
import os
import threading
import time
from collections.abc import Callable
from typing import Any

import pynvml as nv

from kilter.intake.live import nvml_names as names
from kilter.intake.live.nvml_names import name_of

NOT_SUPPORTED, NOT_READABLE, ABSENT = "not supported", "not readable", "absent"

# nvmlReturn_t
_INVALID_ARGUMENT, _NOT_SUPPORTED, _NO_PERMISSION, _NOT_FOUND = 2, 3, 4, 6
_FUNCTION_NOT_FOUND, _GPU_IS_LOST, _RESET_REQUIRED = 13, 15, 16
_VGPU_ECC_NOT_SUPPORTED, _FREQ_NOT_SUPPORTED, _VERSION_MISMATCH, _DEPRECATED = 22, 23, 25, 26
_UNSUPPORTED = {_INVALID_ARGUMENT, _NOT_SUPPORTED, _VGPU_ECC_NOT_SUPPORTED, _FREQ_NOT_SUPPORTED, _DEPRECATED}

Convert = Callable[[Any], Any]
MIB = 1 << 20
_BANKS = ("max", "high", "partial", "low", "none")

# NVML_FI_DEV_*
_FI_MEMORY_TEMP, _FI_NVLINK_COMMON_SPEED, _FI_NVLINK_COUNT, _FI_REPLAY_ROLLOVER, _FI_RECOVERY_ACTION = 82, 90, 91, 95, 230
_FI_NVLINK_SPEED, _FI_NVLINK_STATE = 164, 165
_FI_NVLINK_REPLAY, _FI_NVLINK_RECOVERY, _FI_NVLINK_CRC = 161, 162, 163


class Output:
    """Writes lines to the parent, whole and at once, from several threads."""

    def __init__(self, fd: int) -> None:
        self._fd = fd
        self._lock = threading.Lock()
        self.begun: dict[int, float] = {}  # device -> when its present call began

    def _write(self, line: str) -> None:
        data = line.encode() + b"\n"
        with self._lock:
            while data:
                data = data[os.write(self._fd, data) :]

    def mark(self, device: int, call: str) -> None:
        self.begun[device] = now = time.monotonic()
        self._write(f"> {now:.3f} {device} {call}")

    def emit(self, record: dict[str, Any]) -> None:
        self._write(json.dumps(record))


class Lost(Exception):
    """The GPU does not answer any more; nothing else is asked of it."""


def error_text(code: int) -> str:
    """NVML's own text of a return code."""
    try:
        text = nv.nvmlErrorString(code)
    except Exception:
        text = str(nv.NVMLError(code))
    return text or f"NVML error {code}"


def why(error: BaseException, call: str) -> tuple[str, str, str]:
    """Reason, detail and hint of a field whose call failed."""
    if not isinstance(error, nv.NVMLError):
        return NOT_READABLE, f"{call}: {type(error).__name__}: {error}", ""
    code = error.value
    if code == _FUNCTION_NOT_FOUND:
        return NOT_SUPPORTED, f"driver too old: its NVML has no {call}", ""
    if code == _VERSION_MISMATCH:
        return NOT_SUPPORTED, f"driver too old: its {call} knows other versions of the struct", ""
    detail = f"{call}: {error_text(code)}"
    if code in _UNSUPPORTED:
        return NOT_SUPPORTED, detail, ""
    if code == _NOT_FOUND:
        return ABSENT, detail, ""
    return NOT_READABLE, detail, "run as root" if code == _NO_PERMISSION else ""


class Device:
    """One device's calls, and what they brought since the last :meth:`flush`."""

    def __init__(self, out: Output, index: int) -> None:
        self.out = out
        self.index = index
        self.handle: Any = None
        self.mig = False
        self.values: dict[str, Any] = {}
        self.missing: dict[str, tuple[str, str, str]] = {}
        self.reading: dict[str, Any] = {}
        self.error = ""

    def flush(self) -> None:
        if self.values or self.missing or self.reading:
            self.out.emit({"d": self.index, "v": self.values, "m": self.missing, "r": self.reading})
            self.values, self.missing, self.reading = {}, {}, {}

    def call(self, function: str, *args: Any) -> Any:
        """Makes one NVML call; raises NVMLError, AttributeError when nvidia-ml-py has no such function, or Lost."""
        self.out.mark(self.index, function)
        try:
            return getattr(nv, function)(*args)
        except nv.NVMLError as error:
            if error.value == _GPU_IS_LOST:
                raise Lost(error_text(error.value)) from error
            if error.value == _RESET_REQUIRED and not self.error:
                self.error = self.values["error"] = error_text(error.value)
            raise

    def ask(self, fields: str, function: str, *args: Any, to: dict[str, Any] | None = None) -> Any:
        """As :meth:`call` with the device's handle first; a failure is noted for ``fields`` (space between) and gives None."""
        try:
            return self.call(function, self.handle, *args)
        except Lost:
            raise
        except Exception as error:  # what a binding raises for bad data is as little a value as an NVML error
            for field in fields.split():
                self.missing[field] = why(error, function)
            return None

    def get(self, field: str, function: str, *args: Any, convert: Convert | None = None, reading: bool = False) -> None:
        """Sets one field from one call."""
        value = self.ask(f"r.{field}" if reading else field, function, *args)
        if value is not None:
            (self.reading if reading else self.values)[field] = convert(value) if convert else value

    def fields(self, ids: list[int], scope: int = 0) -> dict[int, tuple[int | float | None, tuple[str, str, str]]]:
        """Values of field identifiers; (None, why) for those that have none."""
        self.out.mark(self.index, "nvmlDeviceGetFieldValues")
        try:
            found = nv.nvmlDeviceGetFieldValues(self.handle, [(field, scope) for field in ids])
        except nv.NVMLError as error:
            if error.value == _GPU_IS_LOST:
                raise Lost(error_text(error.value)) from error
            return {field: (None, why(error, "nvmlDeviceGetFieldValues")) for field in ids}
        result: dict[int, tuple[int | float | None, tuple[str, str, str]]] = {}
        members = ("dVal", "uiVal", "ulVal", "ullVal", "sllVal", "siVal", "usVal")  # by nvmlValueType_t
        for field, item in zip(ids, found, strict=True):
            if item.nvmlReturn:
                result[field] = None, why(nv.NVMLError(item.nvmlReturn), f"NVML field {field}")
            elif item.valueType >= len(members):
                result[field] = None, (NOT_READABLE, f"NVML field {field} has an unknown type {item.valueType}", "")
            else:
                result[field] = getattr(item.value, members[item.valueType]), ("", "", "")
        return result


def bus_address(pci: Any) -> str:
    """Bus address of an nvmlPciInfo; nvidia-ml-py hands out its texts as str or bytes, by version."""
    address = pci.busId or pci.busIdLegacy
    return address.decode("ascii", "replace") if isinstance(address, bytes) else str(address)


def identity(d: Device) -> None:
    pci = d.ask("pci_address pci_device_id pci_subsystem_id", "nvmlDeviceGetPciInfo")
    if pci is not None:
        d.values["pci_address"] = bus_address(pci)
        d.values["pci_device_id"] = pci.pciDeviceId >> 16
        d.values["pci_subsystem_id"] = pci.pciSubSystemId >> 16
        # Kunlunxin's runtime brings an NVML of its own that lists XPUs.
        if pci.pciDeviceId & 0xFFFF in (0x1D22, 0x2057):
            d.values["vendor"] = "kunlunxin"
    d.get("uuid", "nvmlDeviceGetUUID")
    d.get("name", "nvmlDeviceGetName")
    d.get("serial", "nvmlDeviceGetSerial")
    d.get("brand", "nvmlDeviceGetBrand", convert=lambda value: name_of(names.BRANDS, value))
    d.get("architecture", "nvmlDeviceGetArchitecture", convert=lambda value: name_of(names.ARCHITECTURES, value))
    d.get("compute_capability", "nvmlDeviceGetCudaComputeCapability", convert=lambda pair: f"{pair[0]}.{pair[1]}")
    d.get("minor", "nvmlDeviceGetMinorNumber")
    d.get("board_part_number", "nvmlDeviceGetBoardPartNumber", convert=lambda text: text or None)
    d.get("firmware", "nvmlDeviceGetVbiosVersion")
    # nvidia-ml-py shares the default output argument of these two between threads: pass our own.
    module, version = ctypes.c_uint(), (ctypes.c_char * 64)()
    code = d.ask("module_id", "nvmlDeviceGetModuleId", ctypes.byref(module))
    if code == 0:
        d.values["module_id"] = module.value
    elif code is not None:
        d.missing["module_id"] = why(nv.NVMLError(code), "nvmlDeviceGetModuleId")
    if d.ask("gsp_firmware", "nvmlDeviceGetGspFirmwareVersion", version) is not None:
        d.values["gsp_firmware"] = version.value.decode("ascii", "replace")


def modes(d: Device) -> None:
    d.get("persistence_mode", "nvmlDeviceGetPersistenceMode", convert=bool)
    d.get("compute_mode", "nvmlDeviceGetComputeMode", convert=lambda value: name_of(names.COMPUTE_MODES, value))
    if (mode := d.ask("mig_mode mig_mode_pending", "nvmlDeviceGetMigMode")) is not None:
        d.values["mig_mode"], d.values["mig_mode_pending"] = bool(mode[0]), bool(mode[1])
        d.mig = bool(mode[0])
    d.get("virtualization", "nvmlDeviceGetVirtualizationMode", convert=lambda value: name_of(names.VIRTUALIZATION, value))
    d.get("c2c_mode", "nvmlDeviceGetC2cModeInfoV", convert=lambda info: "Enabled" if info.isC2cEnabled else "Disabled")
    words = max(16, os.sysconf("SC_NPROCESSORS_CONF") // 64 + 1)
    if (mask := d.ask("cpu_affinity", "nvmlDeviceGetCpuAffinity", words)) is not None:
        d.values["cpu_affinity"] = names.cpu_list(list(mask)) or None
    if (mask := d.ask("numa_node", "nvmlDeviceGetMemoryAffinity", 16, 0)) is not None:
        nodes = names.cpu_list(list(mask))
        if nodes.isdecimal():
            d.values["numa_node"] = int(nodes)
        else:
            d.missing["numa_node"] = (NOT_SUPPORTED, f"NVML names not one NUMA node but {nodes or 'none'}", "")
    try:
        state = d.call("nvmlSystemGetConfComputeState")
        on = "ON" if state.ccFeature else "OFF"
        d.values["confidential_compute"] = f"{on}, devtools" if state.devToolsMode else on
    except (nv.NVMLError, AttributeError) as error:
        d.missing["confidential_compute"] = why(error, "nvmlSystemGetConfComputeState")


def memory(d: Device) -> None:
    try:
        info = d.call("nvmlDeviceGetMemoryInfo", d.handle, nv.nvmlMemory_v2)  # the older call counts reserved memory as used
    except (nv.NVMLError, AttributeError):
        info = d.ask("memory_total_mib r.memory_used_mib", "nvmlDeviceGetMemoryInfo")
    if info is not None:
        d.values["memory_total_mib"] = info.total // MIB
        d.reading["memory_used_mib"] = info.used // MIB
    d.get("bar1_total_mib", "nvmlDeviceGetBAR1MemoryInfo", convert=lambda info: info.bar1Total // MIB)
    if (mode := d.ask("ecc_mode ecc_mode_pending", "nvmlDeviceGetEccMode")) is not None:
        d.values["ecc_mode"], d.values["ecc_mode_pending"] = bool(mode[0]), bool(mode[1])
    status = None
    if hasattr(nv, "c_nvmlEccSramErrorStatus_v1_t"):
        status = nv.c_nvmlEccSramErrorStatus_v1_t()
        if d.ask("sram_threshold_exceeded", "nvmlDeviceGetSramEccErrorStatus", ctypes.byref(status)) is None:
            status = None
        else:
            d.values["sram_threshold_exceeded"] = bool(status.bThresholdExceeded)
    for counter, scope in enumerate(("volatile", "aggregate")):
        ecc_counts(d, counter, scope, status)
    if (pair := d.ask("channel_repair_pending tpc_repair_pending", "nvmlDeviceGetRepairStatus")) is not None:
        d.values["channel_repair_pending"], d.values["tpc_repair_pending"] = bool(pair[0]), bool(pair[1])
    d.get("unrepairable_memory", "nvmlDeviceGetUnrepairableMemoryFlag_v1", convert=bool)
    for cause, name in enumerate(("retired_pages_sbe", "retired_pages_dbe")):
        d.get(name, "nvmlDeviceGetRetiredPages", cause, convert=len)
    d.get("retired_pages_pending", "nvmlDeviceGetRetiredPagesPendingStatus", convert=bool)
    rows = d.ask("remapped_correctable remapped_uncorrectable remap_pending remap_failure", "nvmlDeviceGetRemappedRows")
    if rows is not None:
        d.values["remapped_correctable"], d.values["remapped_uncorrectable"] = rows[0], rows[1]
        d.values["remap_pending"], d.values["remap_failure"] = bool(rows[2]), bool(rows[3])
    d.get(
        "remap_banks", "nvmlDeviceGetRowRemapperHistogram", convert=lambda banks: {name: getattr(banks, name) for name in _BANKS}
    )


def ecc_counts(d: Device, counter: int, scope: str, status: Any) -> None:
    """ECC counts of one scope (0 volatile, 1 aggregate); ``status`` fills in for SRAM where the counter is not supported."""
    counts: dict[str, Any] = {}
    missing: dict[str, tuple[str, str, str]] = {}
    for kind, word in enumerate(("corrected", "uncorrected")):
        for name, function, args in (
            ("sram", "nvmlDeviceGetMemoryErrorCounter", (kind, counter, 7)),
            ("dram", "nvmlDeviceGetMemoryErrorCounter", (kind, counter, 2)),
            ("total", "nvmlDeviceGetTotalEccErrors", (kind, counter)),
        ):
            try:
                counts[f"{name}_{word}"] = d.call(function, d.handle, *args)
            except (nv.NVMLError, AttributeError) as error:
                missing[f"{name}_{word}"] = why(error, function)
    if status is not None and "sram_corrected" not in counts:
        counts["sram_corrected"] = getattr(status, f"{scope}Cor")
    if status is not None and "sram_uncorrected" not in counts:
        counts["sram_uncorrected"] = getattr(status, f"{scope}UncParity") + getattr(status, f"{scope}UncSecDed")
    if counts:
        gone = {name: as_missing(reason) for name, reason in missing.items() if name not in counts}
        d.values[f"ecc_{scope}"] = counts | ({"missing": gone} if gone else {})
    else:
        d.missing[f"ecc_{scope}"] = next(iter(missing.values()))


def as_missing(reason: tuple[str, str, str]) -> dict[str, str]:
    return dict(zip(("reason", "detail", "hint"), reason, strict=True))


def bus_and_limits(d: Device) -> None:
    d.get("link_generation_max", "nvmlDeviceGetMaxPcieLinkGeneration")
    d.get("link_generation_device_max", "nvmlDeviceGetGpuMaxPcieLinkGeneration")
    d.get("link_width_max", "nvmlDeviceGetMaxPcieLinkWidth")
    d.get("replays", "nvmlDeviceGetPcieReplayCounter")
    for field, function in (
        ("power_limit_w", "nvmlDeviceGetEnforcedPowerLimit"),
        ("power_limit_requested_w", "nvmlDeviceGetPowerManagementLimit"),
        ("power_limit_default_w", "nvmlDeviceGetPowerManagementDefaultLimit"),
    ):
        d.get(field, function, convert=lambda milliwatts: milliwatts / 1000)
    if (pair := d.ask("power_limit_min_w power_limit_max_w", "nvmlDeviceGetPowerManagementLimitConstraints")) is not None:
        d.values["power_limit_min_w"], d.values["power_limit_max_w"] = pair[0] / 1000, pair[1] / 1000
    d.get("sm_clock_max_mhz", "nvmlDeviceGetMaxClockInfo", 1)
    d.get("memory_clock_max_mhz", "nvmlDeviceGetMaxClockInfo", 2)
    d.get("application_sm_clock_mhz", "nvmlDeviceGetApplicationsClock", 0)
    d.get("application_sm_clock_default_mhz", "nvmlDeviceGetDefaultApplicationsClock", 0)
    d.get("shutdown_temperature_c", "nvmlDeviceGetTemperatureThreshold", 0)
    d.get("slowdown_temperature_c", "nvmlDeviceGetTemperatureThreshold", 1)
    d.get("memory_max_operating_temperature_c", "nvmlDeviceGetTemperatureThreshold", 2)
    d.get("max_operating_temperature_c", "nvmlDeviceGetTemperatureThreshold", 3)


def reading(d: Device) -> None:
    found = d.fields([_FI_MEMORY_TEMP, _FI_REPLAY_ROLLOVER, _FI_RECOVERY_ACTION, *names.THROTTLE_COUNTERS])
    for field, where, name in (
        (_FI_MEMORY_TEMP, d.reading, "memory_temperature_c"),
        (_FI_REPLAY_ROLLOVER, d.values, "replay_rollovers"),
        (_FI_RECOVERY_ACTION, d.values, "recovery_action"),
    ):
        value, reason = found[field]
        if value is None:
            d.missing[f"r.{name}" if where is d.reading else name] = reason
        else:
            where[name] = name_of(names.RECOVERY, int(value)) if field == _FI_RECOVERY_ACTION else value
    counters = {name: found[field][0] for field, name in names.THROTTLE_COUNTERS.items()}
    if any(value is not None for value in counters.values()):
        d.values["throttle_counters_us"] = {name: int(value) // 1000 for name, value in counters.items() if value is not None}
    else:
        d.missing["throttle_counters_us"] = found[74][1]
    d.reading["time"] = time.time()

    def now(field: str, function: str, *args: Any, convert: Convert | None = None) -> None:
        d.get(field, function, *args, convert=convert, reading=True)

    now("performance_state", "nvmlDeviceGetPerformanceState", convert=lambda n: f"P{n}" if n < 16 else f"unknown ({n})")
    if (rates := d.ask("r.utilization_percent r.memory_utilization_percent", "nvmlDeviceGetUtilizationRates")) is not None:
        d.reading["utilization_percent"], d.reading["memory_utilization_percent"] = rates.gpu, rates.memory
    now("power_w", "nvmlDeviceGetPowerUsage", convert=lambda milliwatts: milliwatts / 1000)
    now("temperature_c", "nvmlDeviceGetTemperature", 0)
    now("tlimit_margin_c", "nvmlDeviceGetMarginTemperature")
    now("fan_percent", "nvmlDeviceGetFanSpeed")
    now("graphics_clock_mhz", "nvmlDeviceGetClockInfo", 0)
    now("sm_clock_mhz", "nvmlDeviceGetClockInfo", 1)
    now("memory_clock_mhz", "nvmlDeviceGetClockInfo", 2)
    now("link_generation", "nvmlDeviceGetCurrPcieLinkGeneration")
    now("link_width", "nvmlDeviceGetCurrPcieLinkWidth")
    now("throttle_reasons", "nvmlDeviceGetCurrentClocksEventReasons", convert=names.throttle_names)
    if "throttle_reasons" not in d.reading:  # the name before R535
        del d.missing["r.throttle_reasons"]
        now("throttle_reasons", "nvmlDeviceGetCurrentClocksThrottleReasons", convert=names.throttle_names)


def fabric(d: Device) -> None:
    fields = "fabric_state fabric_status fabric_clique_id fabric_cluster_uuid fabric_health"
    info = None
    for struct in ("c_nvmlGpuFabricInfo_v3_t", "c_nvmlGpuFabricInfo_v2_t"):  # v3 brings the summary
        if hasattr(nv, struct):
            candidate = getattr(nv, struct)()
            if d.ask(fields, "nvmlDeviceGetGpuFabricInfoV", ctypes.byref(candidate)) is not None:
                info = candidate
                break
    if info is None:
        candidate = nv.c_nvmlGpuFabricInfo_t()
        if d.ask(fields, "nvmlDeviceGetGpuFabricInfo", ctypes.byref(candidate)) is None:
            return
        info = candidate
    for name in fields.split():
        d.missing.pop(name, None)
    state = {1: "Not Started", 2: "In Progress", 3: "Completed"}
    if info.state == 0:  # nvidia-smi prints N/A
        for name in fields.split():
            d.missing[name] = (NOT_SUPPORTED, "this GPU is not on an NVLink fabric", "")
        return
    d.values["fabric_state"] = name_of(state, info.state)
    if info.state == 3:
        d.values["fabric_status"] = "Success" if info.status == 0 else error_text(info.status)
        d.values["fabric_clique_id"] = info.cliqueId
        digits = bytes(info.clusterUuid).hex()
        d.values["fabric_cluster_uuid"] = "-".join((digits[:8], digits[8:12], digits[12:16], digits[16:20], digits[20:]))
    else:
        for name in ("fabric_status", "fabric_clique_id", "fabric_cluster_uuid"):
            d.missing[name] = (NOT_SUPPORTED, "not valid before the fabric state is Completed", "")
    mask = getattr(info, "healthMask", 0)
    health = {
        name: name_of(texts, mask >> shift & bits) for name, shift, bits, texts in names.FABRIC_HEALTH if mask >> shift & bits
    }
    if summary := getattr(info, "healthSummary", 0):
        health["summary"] = name_of(names.FABRIC_SUMMARY, summary)
    if health:
        d.values["fabric_health"] = health
    else:
        d.missing["fabric_health"] = (NOT_SUPPORTED, "the driver reports no fabric health for this GPU", "")


def nvlinks(d: Device) -> None:
    count, _ = d.fields([_FI_NVLINK_COUNT])[_FI_NVLINK_COUNT]
    links: list[dict[str, Any]] = []
    failure: tuple[str, str, str] | None = None
    for number in range(36 if count is None else min(int(count), 64)):
        try:
            state = d.call("nvmlDeviceGetNvLinkState", d.handle, number)
        except (nv.NVMLError, AttributeError) as error:
            code = getattr(error, "value", 0)
            if code not in (_NOT_SUPPORTED, _INVALID_ARGUMENT) or count:
                failure = why(error, "nvmlDeviceGetNvLinkState")
            if count is None:
                break
            continue
        links.append(nvlink(d, number, state))
    if d.mig and not links:  # nvidia-smi says the same: "Nvlink queries are not supported for Devices in MIG mode"
        failure = (NOT_SUPPORTED, "NVLink cannot be queried in MIG mode", "")
    if failure is not None and not links:
        d.missing["nvlinks"] = failure
        return
    d.values["nvlinks"] = links
    if links:
        d.values["nvlinks_inactive"] = all(link["state"] == "inactive" for link in links)


def nvlink(d: Device, number: int, state: int) -> dict[str, Any]:
    """One link, in the spelling of facts.NvLink."""
    link: dict[str, Any] = {"id": number, "state": name_of(names.NVLINK_STATES, state)}
    common = [_FI_NVLINK_SPEED, _FI_NVLINK_STATE, _FI_NVLINK_REPLAY, _FI_NVLINK_RECOVERY, _FI_NVLINK_CRC]
    found = {
        field: value for field, (value, _) in d.fields([*common, *names.NVLINK_COUNTERS], number).items() if value is not None
    }
    if _FI_NVLINK_STATE in found:
        link["state"] = name_of(names.NVLINK_STATES, int(found[_FI_NVLINK_STATE]))
    speed = found.get(_FI_NVLINK_SPEED)
    if speed is None and link["state"] == "active":  # before R525: one identifier a link, or one for all
        own = 84 + number if number < 6 else 126 + number if number < 12 else _FI_NVLINK_COMMON_SPEED
        older = d.fields([own, _FI_NVLINK_COMMON_SPEED])
        speed = older[own][0] if older[own][0] is not None else older[_FI_NVLINK_COMMON_SPEED][0]
    if speed is not None:
        link["speed_gb_s"] = speed / 1000
    for field, identifier, counter in (
        ("replay_errors", _FI_NVLINK_REPLAY, 0),
        ("recovery_errors", _FI_NVLINK_RECOVERY, 1),
        ("crc_errors", _FI_NVLINK_CRC, 2),
    ):
        if identifier in found:
            link[field] = int(found[identifier])
            continue
        try:
            link[field] = d.call("nvmlDeviceGetNvLinkErrorCounter", d.handle, number, counter)
        except (nv.NVMLError, AttributeError) as error:
            link.setdefault("missing", {})[field] = as_missing(why(error, "nvmlDeviceGetNvLinkErrorCounter"))
    errors = {name: int(found[field]) for field, name in names.NVLINK_COUNTERS.items() if field in found}
    if errors:
        link["errors"] = errors
    try:
        link["version"] = name_of(names.NVLINK_VERSIONS, d.call("nvmlDeviceGetNvLinkVersion", d.handle, number))
        pci = d.call("nvmlDeviceGetNvLinkRemotePciInfo", d.handle, number)
        address = bus_address(pci)
        if any(character in "123456789abcdefABCDEF" for character in address):
            link["remote"] = address
        else:
            link["remote"] = name_of(names.NVLINK_REMOTES, d.call("nvmlDeviceGetNvLinkRemoteDeviceType", d.handle, number))
    except (nv.NVMLError, AttributeError):
        pass  # an inactive link has no far end
    return link


def mig_devices(d: Device) -> None:
    if not d.mig:
        return
    count = d.ask("mig_devices", "nvmlDeviceGetMaxMigDeviceCount")
    if count is None:
        return
    found = []
    for number in range(min(count, 64)):
        try:
            handle = d.call("nvmlDeviceGetMigDeviceHandleByIndex", d.handle, number)
        except (nv.NVMLError, AttributeError) as error:
            if getattr(error, "value", 0) not in (_NOT_FOUND, _INVALID_ARGUMENT):
                d.missing["mig_devices"] = why(error, "nvmlDeviceGetMigDeviceHandleByIndex")
            continue
        mig: dict[str, Any] = {}
        for field, function, convert in (
            ("gpu_instance", "nvmlDeviceGetGpuInstanceId", int),
            ("compute_instance", "nvmlDeviceGetComputeInstanceId", int),
            ("uuid", "nvmlDeviceGetUUID", str),
            ("profile", "nvmlDeviceGetName", lambda name: name.rpartition("MIG ")[2]),
            ("memory_total_mib", "nvmlDeviceGetMemoryInfo", lambda info: info.total // MIB),
        ):
            try:
                mig[field] = convert(d.call(function, handle))
            except (nv.NVMLError, AttributeError, ValueError) as error:
                mig.setdefault("missing", {})[field] = as_missing(why(error, function))
        found.append(mig)
    d.values["mig_devices"] = found


def processes(d: Device) -> None:
    found: dict[int, dict[str, Any]] = {}
    for kind in ("Compute", "Graphics", "MPSCompute"):
        infos = None
        for version in ("_v3", "_v2"):
            infos = d.ask("processes", f"nvmlDeviceGet{kind}RunningProcesses{version}")
            if infos is not None or "too old" not in d.missing["processes"][1]:
                break
        if infos is None:
            if kind == "Compute":
                return
            continue
        d.missing.pop("processes", None)
        for info in infos[:4096]:
            process = found.setdefault(info.pid, {"pid": info.pid, "type": ""})
            if kind == "MPSCompute":
                process["type"] = "M+C"
            elif kind[0] not in process["type"]:
                process["type"] = f"{process['type']}+{kind[0]}".lstrip("+")
            if info.usedGpuMemory is not None:
                process["memory_mib"] = info.usedGpuMemory // MIB
    d.missing.pop("processes", None)
    for pid, process in found.items():
        try:
            process["name"] = d.call("nvmlSystemGetProcessName", pid)
        except (nv.NVMLError, AttributeError, ValueError):
            continue  # it has ended, or runs in another PID namespace
    d.values["processes"] = list(found.values())


def throughput(d: Device) -> None:
    """Each of the two calls measures for 20 ms, so these run for all devices at once."""
    d.get("tx_kb_s", "nvmlDeviceGetPcieThroughput", 0, reading=True)
    d.get("rx_kb_s", "nvmlDeviceGetPcieThroughput", 1, reading=True)


#: What most devices answer from memory comes first, what wakes firmware or walks links last.
GROUPS = (identity, modes, memory, bus_and_limits, reading, fabric, mig_devices, processes, nvlinks)
