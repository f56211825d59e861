"""Prometheus text of GPU exporters: dcgm-exporter (old and new field names) and nvidia_gpu_exporter.

Every sample goes to ``snapshot.metrics``; those whose meaning is known also fill the accelerator that their labels name. Sentinels of DCGM
and NaN are no values. dcgm-exporter: metrics ``DCGM_FI_*``, labels gpu, UUID, pci_bus_id, modelName, Hostname, GPU_I_ID (NVIDIA/dcgm-exporter
etc/*.csv). nvidia_gpu_exporter: metrics ``nvidia_smi_<query field>`` in base units (Hz, bytes, ratios, seconds), label uuid
(utkuozdemir/nvidia_gpu_exporter); its fields are read by the table of ``nvidia-smi --query-gpu``.
"""

from __future__ import annotations

import functools
import math
import re
from typing import NamedTuple

from kilter.facts.accelerator import Accelerator, EccCounts, Process, Reading
from kilter.facts.base import Reason, Source
from kilter.facts.pci import pci_address
from kilter.intake.captures import bounded, nvidia_smi
from kilter.intake.fragment import Block, Fragment
from kilter.knowledge import dcgm_fields, throttle

_NAME = re.compile(r"[a-zA-Z_:][a-zA-Z0-9_:]*")
_LABEL = re.compile(r'\s*([a-zA-Z_][a-zA-Z0-9_.]*)\s*=\s*"((?:[^"\\]|\\.)*)"\s*(?:,|(?=\}))')
_VALUE = re.compile(r"\s*([+-]?(?:\d[\d.eE+-]*|Inf|NaN|inf|nan))(?:\s+(-?\d{9,16}))?\s*(?:#.*)?$")
#: More series than this are counted, not kept: a whole cluster's federation, not a node's exporter.
MAX_SERIES = 50_000
#: More hosts than this in one text are not taken apart.
MAX_HOSTS = 10_000
#: Labels that name the host, the first that is there.
_HOST_LABELS = ("Hostname", "hostname", "node", "kubernetes_node", "nodename", "node_name")
#: Exporter pods that stand in the Hostname label when the node's name was not passed on.
_POD = re.compile(r"dcgm|exporter")
_INDEX = re.compile(r"[0-9]{1,4}")


class Sample(NamedTuple):
    name: str
    labels: dict[str, str]
    label_text: str
    value: float
    text: str  # the value as printed
    time: float | None
    line: int


def sample(text: str, line: int = 0) -> Sample | None:
    """One sample line of the Prometheus or OpenMetrics text format; ``None`` if it is none."""
    match = _NAME.match(text)
    if match is None:
        return None
    at, labels, label_text = match.end(), {}, ""
    if text[at : at + 1] == "{":
        start = at = at + 1
        while (pair := _LABEL.match(text, at)) is not None:
            labels[pair[1]] = pair[2].replace("\\n", "\n").replace('\\"', '"').replace("\\\\", "\\")
            at = pair.end()
        if text[at : at + 1] != "}":
            return None
        label_text = text[start:at].rstrip(", ")
        at += 1
    value = _VALUE.match(text, at)
    if value is None:
        return None
    try:
        number = float(value[1])
    except ValueError:
        return None
    time = None if value[2] is None else int(value[2]) / (1000 if len(value[2]) > 11 else 1)
    return Sample(match[0], labels, label_text, number, value[1], time, line)


#: DCGM field (new name) -> field of Reading
_READING: dict[str, str] = {
    "DCGM_FI_DEV_SM_CLOCK": "sm_clock_mhz",
    "DCGM_FI_DEV_MEM_CLOCK": "memory_clock_mhz",
    "DCGM_FI_DEV_GPU_TEMP_CELSIUS": "temperature_c",
    "DCGM_FI_DEV_MEMORY_TEMP_CELSIUS": "memory_temperature_c",
    "DCGM_FI_DEV_GPU_TEMP_MARGIN_CELSIUS": "tlimit_margin_c",
    "DCGM_FI_DEV_BOARD_POWER_WATTS": "power_w",
    "DCGM_FI_DEV_GPU_UTIL_RATIO": "utilization_percent",
    "DCGM_FI_DEV_MEM_COPY_UTIL": "memory_utilization_percent",
    "DCGM_FI_DEV_FB_USED": "memory_used_mib",
    "DCGM_FI_DEV_FAN_SPEED": "fan_percent",
    "DCGM_FI_DEV_PCIE_LINK_GEN": "link_generation",
    "DCGM_FI_DEV_PCIE_LINK_WIDTH": "link_width",
    "DCGM_FI_DEV_PCIE_TX_THROUGHPUT": "tx_kb_s",
    "DCGM_FI_DEV_PCIE_RX_THROUGHPUT": "rx_kb_s",
}
_STATIC: dict[str, str] = {
    "DCGM_FI_DEV_PCIE_REPLAY_TOTAL": "replays",
    "DCGM_FI_DEV_ROW_REMAP_UNCORRECTABLE_TOTAL": "remapped_uncorrectable",
    "DCGM_FI_DEV_ROW_REMAP_CORRECTABLE_TOTAL": "remapped_correctable",
    "DCGM_FI_DEV_PAGE_RETIRED_SBE_TOTAL": "retired_pages_sbe",
    "DCGM_FI_DEV_PAGE_RETIRED_DBE_TOTAL": "retired_pages_dbe",
    "DCGM_FI_DEV_PCIE_MAX_LINK_GEN": "link_generation_max",
    "DCGM_FI_DEV_PCIE_MAX_LINK_WIDTH": "link_width_max",
    "DCGM_FI_DEV_FB_TOTAL": "memory_total_mib",
    "DCGM_FI_DEV_MAX_SM_CLOCK": "sm_clock_max_mhz",
    "DCGM_FI_DEV_BOARD_POWER_LIMIT_REQUESTED_WATTS": "power_limit_requested_w",
    "DCGM_FI_DEV_BOARD_POWER_LIMIT_ENFORCED_WATTS": "power_limit_w",
    "DCGM_FI_DEV_BOARD_POWER_LIMIT_DEFAULT_WATTS": "power_limit_default_w",
    "DCGM_FI_DEV_BOARD_POWER_LIMIT_MIN_WATTS": "power_limit_min_w",
    "DCGM_FI_DEV_BOARD_POWER_LIMIT_MAX_WATTS": "power_limit_max_w",
    "DCGM_FI_DEV_GPU_TEMP_SLOWDOWN_CELSIUS": "slowdown_temperature_c",
    "DCGM_FI_DEV_GPU_TEMP_SHUTDOWN_CELSIUS": "shutdown_temperature_c",
    "DCGM_FI_DEV_GPU_MAX_OP_TEMP_CELSIUS": "max_operating_temperature_c",
    "DCGM_FI_DEV_MEMORY_MAX_OP_TEMP_CELSIUS": "memory_max_operating_temperature_c",
}
_BOOLEAN: dict[str, str] = {
    "DCGM_FI_DEV_ROW_REMAP_FAILED": "remap_failure",
    "DCGM_FI_DEV_ROW_REMAP_PENDING": "remap_pending",
    "DCGM_FI_DEV_PAGE_RETIRED_PENDING": "retired_pages_pending",
    "DCGM_FI_DEV_ECC_MODE": "ecc_mode",
    "DCGM_FI_DEV_MIG_MODE": "mig_mode",
    "DCGM_FI_DEV_GPU_PERSISTENCE_MODE": "persistence_mode",
}
_ECC: dict[str, tuple[str, str]] = {
    "DCGM_FI_DEV_ECC_SBE_VOL_TOTAL": ("ecc_volatile", "total_corrected"),
    "DCGM_FI_DEV_ECC_DBE_VOL_TOTAL": ("ecc_volatile", "total_uncorrected"),
    "DCGM_FI_DEV_ECC_SBE_AGG_TOTAL": ("ecc_aggregate", "total_corrected"),
    "DCGM_FI_DEV_ECC_DBE_AGG_TOTAL": ("ecc_aggregate", "total_uncorrected"),
}
_THROTTLE_NS: dict[str, str] = {
    "DCGM_FI_DEV_CLOCKS_EVENT_REASON_SW_THERM_SLOWDOWN_NS": "sw_thermal_slowdown",
    "DCGM_FI_DEV_CLOCKS_EVENT_REASON_HW_THERM_SLOWDOWN_NS": "hw_thermal_slowdown",
    "DCGM_FI_DEV_CLOCKS_EVENT_REASON_HW_POWER_BRAKE_SLOWDOWN_NS": "hw_power_brake_slowdown",
}
#: Of one MIG instance when the labels name one; all else is the whole GPU's, repeated for each instance.
_OF_INSTANCE = {"utilization_percent", "memory_utilization_percent", "memory_used_mib"}
#: Labels of dcgm-exporter that carry values of text fields.
_TEXT_LABELS = {
    "modelName": "name",
    "DCGM_FI_DEV_VBIOS_VERSION": "firmware",
    "DCGM_FI_DEV_SERIAL": "serial",
    "DCGM_FI_DEV_BOARD_SERIAL": "serial",
}
_FABRIC_STATES = {0: "N/A", 1: "Not Started", 2: "In Progress", 3: "Completed"}  # NVML_GPU_FABRIC_STATE_*


def _fits(field: str, value: float) -> int | float:
    """``value`` as the field's type: counts and degrees are whole numbers."""
    return value if field.endswith(("_w", "_kb_s")) else round(value)


class _Gpus:
    """Accelerators by what the labels say of them."""

    def __init__(self, fragment: Fragment) -> None:
        self.fragment = fragment
        self.known: dict[str, tuple[Accelerator, Reading]] = {}

    def get(self, labels: dict[str, str], line: int) -> tuple[Accelerator, Reading] | None:
        uuid = labels.get("UUID") or labels.get("uuid") or ""
        index = labels.get("gpu", "") if "UUID" in labels or "uuid" not in labels else ""
        key = uuid or index
        if not key or (not uuid and _INDEX.fullmatch(index) is None):
            return None
        pair = self.known.get(key)
        if pair is None:
            gpu, ref = self.fragment.accelerator(line), self.fragment.ref(line)
            pair = self.known[key] = (gpu, Reading())
            if uuid:  # nvidia_gpu_exporter leaves the prefix out
                gpu.put("uuid", uuid if uuid.startswith(("GPU-", "MIG-")) else f"GPU-{uuid}", ref)
            if _INDEX.fullmatch(index) is not None:
                gpu.put("index", int(index), ref)
            elif (device := re.fullmatch(r"nvidia(\d{1,4})", labels.get("device", ""))) is not None:
                gpu.put("index", int(device[1]), ref)
            if (address := pci_address(labels.get("pci_bus_id", ""))) is not None:
                gpu.put("pci_address", address, ref)
            for label, field in _TEXT_LABELS.items():
                text = labels.get(label, "")
                if text and not text.startswith("<<<"):
                    gpu.put(field, text, ref)
        return pair


def _put_dcgm(one: Sample, name: str, gpu: Accelerator, reading: Reading, fragment: Fragment) -> None:
    ref = fragment.ref(one.line)
    instance = bool(one.labels.get("GPU_I_ID"))
    if name in _READING:
        field, value = _READING[name], one.value
        if name == "DCGM_FI_DEV_GPU_UTIL_RATIO" and one.name == name and "." in one.text:
            value *= 100  # from DCGM 4.7 on the new name is a fraction; in 4.6 it is the percentage of old
        if field == "memory_temperature_c" and value == 0:
            reading.lacks(field, Reason.NOT_SUPPORTED, "the exporter prints 0 for a GPU without this sensor")
        elif not (instance and field in _OF_INSTANCE):
            reading.put(field, _fits(field, value), ref)
    elif name == "DCGM_FI_DEV_GPU_PSTATE" and 0 <= one.value <= 15:
        reading.put("performance_state", f"P{one.value:.0f}", ref)
    elif name == "DCGM_FI_DEV_CLOCKS_EVENT_REASONS":
        reading.put("throttle_reasons", throttle.names_of_mask(int(one.value)) if 0 <= one.value < 2**63 else None, ref)
    elif name in _STATIC:
        gpu.put(_STATIC[name], _fits(_STATIC[name], one.value), ref)
    elif name in _BOOLEAN:
        gpu.put(_BOOLEAN[name], one.value != 0, ref)
    elif name in _ECC:
        scope, field = _ECC[name]
        counts = getattr(gpu, scope)
        if counts is None:
            counts = EccCounts()
            setattr(gpu, scope, counts)
        counts.put(field, round(one.value), ref)
    elif name in _THROTTLE_NS:
        gpu.throttle_counters_us[_THROTTLE_NS[name]] = round(one.value / 1000)
        gpu.origin.setdefault("throttle_counters_us", ref)


def _lacks_dcgm(name: str, why: str, gpu: Accelerator, reading: Reading) -> None:
    reason = Reason.NOT_SUPPORTED if why == "not supported" else Reason.NOT_READABLE
    detail = f"DCGM gives no value ({why})"
    if name in _READING:
        reading.lacks(_READING[name], reason, detail)
    elif (field := _STATIC.get(name) or _BOOLEAN.get(name)) is not None:
        gpu.lacks(field, reason, detail)


@functools.cache
def _query_names() -> dict[str, str]:
    """Query fields of nvidia-smi as nvidia_gpu_exporter spells them -> as nvidia-smi does."""
    names = [s for f in (*nvidia_smi.STATIC, *nvidia_smi.READING) for s in f.csv.split("|") if s]
    names += [
        f"ecc.errors.{kind}.{scope}.{part}"
        for kind in ("corrected", "uncorrected")
        for scope in ("volatile", "aggregate")
        for field in nvidia_smi.ECC
        for part in field.csv.split("|")
    ]
    names += [f"remapped_rows.histogram.{word}" for word in ("max", "high", "partial", "low", "none")]
    for reason in throttle.reasons():
        names += [f"clocks_{word}_reasons.{reason.name}" for word in ("event", "throttle")]
        names.append(f"clocks_event_reasons_counters.{reason.name}")
    return {re.sub(r"[^a-z0-9]", "_", name.lower()): name for name in names}


#: Fields whose number is a code or a rest of a text ("NVIDIA H200" becomes 200): their text is in gpu_info or nowhere.
_CODES = {"name", "serial", "uuid", "index", "pci.bus_id", "pci.device_id", "pci.sub_device_id", "driver_version", "vbios_version",
          "compute_mode", "c2c.mode", "compute_cap", "fabric.status", "fabric.clusterUuid", "persistence_mode"}  # fmt: skip
_SUFFIX = re.compile(r"_(?:clock_hz|hz|watts|bytes|ratio|seconds|celsius)$")


def _query_value(metric: str, one: Sample) -> tuple[str, str] | None:
    """(query field, text as nvidia-smi would print it) of a metric of nvidia_gpu_exporter; ``None`` where that is not known."""
    suffix = _SUFFIX.search(metric)
    bare = metric[: suffix.start()] if suffix else metric
    field = _query_names().get(bare)
    if field is None or (field in _CODES and field != "persistence_mode"):
        return None
    unit, value = suffix[0] if suffix else "", one.value
    if unit in ("_clock_hz", "_hz"):
        value /= 1e6
    elif unit == "_bytes":
        value /= 1 << 20
    elif unit == "_ratio":
        value *= 100
    elif unit == "_seconds" and field.startswith("clocks_event_reasons_counters."):
        value *= 1e6
    if field == "pstate":
        return field, f"P{value:.0f}"
    if field == "gpu_recovery_action":  # NVML_GPU_RECOVERY_ACTION_*: 0 is none
        return field, "None" if value == 0 else f"Unknown ({value:.0f})"
    if field == "fabric.state":
        return field, _FABRIC_STATES.get(int(value), f"Unknown ({value:.0f})")
    if field.startswith(("clocks_event_reasons.", "clocks_throttle_reasons.")):
        return field, "Active" if value else "Not Active"
    return field, f"{round(value, 3):g}" if "power" in field else f"{round(value)}"


class _Scrape:
    def __init__(self, fragment: Fragment) -> None:
        self.fragment = fragment
        self.gpus = _Gpus(fragment)
        self.queries: dict[str, nvidia_smi.Values] = {}
        self.series = 0
        self.dropped = 0
        self.blank = 0
        self.time: float | None = None

    def take(self, one: Sample) -> None:
        if one.time is not None:
            self.time = max(self.time or one.time, one.time)
        name = dcgm_fields.canonical(one.name)
        why = dcgm_fields.blank(one.text) if one.name.startswith("DCGM_") else None
        if why is None and (not math.isfinite(one.value) or abs(one.value) >= 2**63):
            why = "blank"
        pair = self.gpus.get(one.labels, one.line) if one.name.startswith(("DCGM_", "nvidia_smi_")) else None
        if why is not None:
            self.blank += 1
            if name is not None and pair is not None:
                _lacks_dcgm(name, why, *pair)
            return
        self.keep(one)
        if name is not None and pair is not None:
            _put_dcgm(one, name, *pair, self.fragment)
            self.software(one)
        elif one.name.startswith("nvidia_smi_"):
            self.query(one, one.name.removeprefix("nvidia_smi_"))

    def keep(self, one: Sample) -> None:
        if self.series >= MAX_SERIES:
            self.dropped += 1
            return
        self.series += 1
        snapshot = self.fragment.snapshot
        known = snapshot.metrics.get(one.name)
        if known is None:
            known = snapshot.metrics[one.name] = {}
            snapshot.origin[f"metrics.{one.name}"] = self.fragment.ref(one.line)
        known[one.label_text] = one.value

    def software(self, one: Sample) -> None:
        version = one.labels.get("DCGM_FI_DRIVER_VERSION") or one.labels.get("DCGM_FI_SYSTEM_DRIVER_VERSION") or ""
        if version and self.fragment.snapshot.software.driver_version is None:
            nvidia_smi.put_driver(self.fragment, "driver_version", version, one.line)

    def query(self, one: Sample, metric: str) -> None:
        uuid = one.labels.get("uuid", "")
        if not uuid:
            return
        values = self.queries.setdefault(uuid, {})
        if metric == "gpu_info":
            for label, field in (
                ("name", "name"),
                ("pci_bus_id", "pci.bus_id"),
                ("index", "index"),
                ("vbios_version", "vbios_version"),
            ):
                if one.labels.get(label):
                    values[field] = (one.labels[label], one.line)
            for label in ("driver_version", "cuda_version"):
                if one.labels.get(label):
                    nvidia_smi.put_driver(self.fragment, label, one.labels[label], one.line)
        elif metric == "compute_app_used_memory_bytes":
            self.process(one)
        elif (found := _query_value(metric, one)) is not None:
            values[found[0]] = (found[1], one.line)

    def process(self, one: Sample) -> None:
        pair = self.gpus.get(one.labels, one.line)
        if pair is None or re.fullmatch(r"[0-9]{1,9}", one.labels.get("pid", "")) is None:
            return
        process = Process(
            pid=int(one.labels["pid"]), name=one.labels.get("process_name"), memory_mib=round(one.value / (1 << 20))
        )
        process.origin[""] = self.fragment.ref(one.line)
        pair[0].processes = [*(pair[0].processes or []), process]

    def finish(self) -> None:
        fragment = self.fragment
        if self.time is not None and fragment.source.time is None:
            fragment.source.time = self.time
        for uuid, values in self.queries.items():
            pair = self.gpus.get({"uuid": uuid}, 0)
            if pair is not None and values:
                nvidia_smi.fill(pair[0], values, "csv", fragment, self.time)
        for gpu, reading in self.gpus.known.values():
            if reading.origin:
                reading.time = self.time
                gpu.readings.append(reading)
        if self.dropped:
            fragment.note(f"{self.dropped} series after the first {MAX_SERIES} were not kept")
        if self.blank:
            fragment.note(f"{self.blank} samples are blank (DCGM's sentinels or NaN): no values")


def _named(labels: dict[str, str]) -> str:
    """The host that labels name, "" if they name none; a pod of the exporter is none."""
    return next((name for key in _HOST_LABELS if (name := labels.get(key, "")) and not _POD.search(name)), "")


def _instance(labels: dict[str, str]) -> str:
    """Where Prometheus scraped a sample from, without the port."""
    text = labels.get("instance") or labels.get("exported_instance") or ""
    host, colon, port = text.rpartition(":")
    return host.strip("[]") if colon and port.isdigit() else text


class _Hosts:
    """Which host each sample belongs to: by its labels, or by the instance that another sample of that host names."""

    def __init__(self, samples: list[Sample]) -> None:
        self._by_instance: dict[str, str] = {}
        for one in samples:
            if not one.name.startswith("kube_") and (host := _named(one.labels)) and (instance := _instance(one.labels)):
                self._by_instance.setdefault(instance, host)
        instances = {instance for one in samples if (instance := _instance(one.labels))}
        self._several = len(instances) > 1

    def of(self, one: Sample) -> str:
        """The host's name; "" where the text tells of one nameless host. Metrics of kube-state-metrics name nodes that they do not come from."""
        if one.name.startswith("kube_"):
            return ""
        instance = _instance(one.labels)
        return _named(one.labels) or self._by_instance.get(instance, instance if self._several else "")


def _more(fragment: Fragment) -> Fragment:
    """A further fragment of the same text, for another node."""
    source = fragment.source
    other = Fragment(Source(name=source.name, tool=source.tool, command=source.command))
    fragment.more.append(other)
    return other


def parse(block: Block, fragment: Fragment) -> None:
    """All samples into ``snapshot.metrics`` (metric -> label text as printed -> value); known ones also into accelerators.

    The samples of several hosts (a federation, a dump of Prometheus) go to one fragment a host; what names no host then, to none.
    """
    samples: list[Sample] = []
    for line, text in bounded.lines(block, fragment):
        body = text.strip()
        if not body or body.startswith("#"):
            continue
        one = sample(body, line)
        if one is None:
            fragment.unparsed(line, text)
        else:
            samples.append(one)
    hosts = _Hosts(samples)
    owners = [hosts.of(one) for one in samples]
    named = list(dict.fromkeys(owner for owner in owners if owner))
    scrapes: dict[str, _Scrape] = {}
    nobody = 0
    for one, owner in zip(samples, owners, strict=True):
        if not owner and len(named) > 1:
            nobody += 1
            continue
        owner = owner or (named[0] if named else "")
        if owner not in scrapes:
            if len(scrapes) >= MAX_HOSTS:
                nobody += 1
                continue
            scrapes[owner] = _Scrape(fragment if not scrapes else _more(fragment))
        scrapes[owner].take(one)
    for owner, scrape in scrapes.items():
        scrape.finish()
        if owner and (len(scrapes) > 1 or not scrape.fragment.source.node):
            scrape.fragment.source.node = scrape.fragment.snapshot.node = owner
    if nobody:
        fragment.note(
            f"metrics of {len(named)} hosts: {nobody} samples name no host, or one beyond {MAX_HOSTS} hosts, and were not read"
        )
