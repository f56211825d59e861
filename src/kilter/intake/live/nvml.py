"""NVIDIA GPUs of this host, through NVML in a child process with a time limit.

A driver that hangs or crashes its callers costs one time limit and names the call; what was read before stays.
"""

from __future__ import annotations

import importlib.util
import json
import sys
import time
from typing import Any

import msgspec

from kilter.facts.accelerator import Accelerator, Reading
from kilter.facts.base import Entity, Missing, Reason, Ref, Source
from kilter.facts.case import Snapshot
from kilter.facts.pci import KUNLUNXIN, NVIDIA, pci_address
from kilter.intake.live.child import ChildResult, run_limited

#: Runs the child without the user's PYTHON* variables, user site or current directory, but with this interpreter's own path, so
#: that it also works from a zipapp or a source tree. The package that the child lies in stays unopened: it would import all
#: readers of the host, for a third of the child's time.
_BOOT = (
    "import json, sys, types\n"
    "path, package, stall, library = json.loads(sys.argv[1])\n"
    "sys.path += [p for p in path if p not in sys.path]\n"
    "sys.modules['kilter.intake.live'] = live = types.ModuleType('kilter.intake.live')\n"
    "live.__path__ = package\n"
    "from kilter.intake.live.nvml_child import main\n"
    "main(stall, library)\n"
)

#: A node of 16 GPUs needs about 1 MB.
_MAX_BYTES = 16 << 20

#: What the child can fill; after a hang or crash each of these that is still open gets that as its reason.
_OTHERS = {"origin", "missing", "vendor", "index", "error", "readings", "part_number", "link_generation_host_max"}
FIELDS = tuple(field for field in Accelerator.__struct_fields__ if field not in _OTHERS | {"mig_devices", "nvlinks_inactive"})
READING_FIELDS = tuple(field for field in Reading.__struct_fields__ if field not in ("origin", "missing", "source", "time"))
#: NVML has no call for these, though nvidia-smi prints them.
_NO_CALL = {
    "part_number": "NVML has no public call for it",
    "link_generation_host_max": "NVML has no public call for it",
}

#: What helps with an nvmlReturn_t of nvmlInit.
_INIT_HINTS = {
    4: "run as root, or give the container /dev/nvidiactl and the /dev/nvidia* nodes",
    9: "load the driver: modprobe nvidia; then: dmesg | grep NVRM",
    18: "the kernel module and the library are of different releases: reload the module or reboot",
    28: "dmesg | grep NVRM",
    999: "in a container, the device cgroup may have lost /dev/nvidia* (systemctl daemon-reload does that): restart it",
}


class _Lines:
    """What the child wrote, sorted."""

    def __init__(self, output: bytes) -> None:
        self.absent = ""
        self.system: dict[str, Any] | None = None
        self.values: dict[int, dict[str, Any]] = {}
        self.missing: dict[int, dict[str, tuple[str, str, str]]] = {}
        self.readings: dict[int, dict[str, Any]] = {}
        self.pending: dict[int, tuple[str, float]] = {}  # device -> call begun last, and when (monotonic)
        self.done: set[int] = set()
        self.broken: dict[int, str] = {}
        self.ended = False
        for line in output.decode("utf-8", "replace").splitlines():
            try:
                self._take(line)
            except (ValueError, TypeError, KeyError, AttributeError):
                continue  # cut off by the time limit

    def _take(self, line: str) -> None:
        if line.startswith("> "):
            _, moment, number, call = line.split(" ", 3)
            self.pending[int(number)] = call, float(moment)
            return
        record = json.loads(line)
        if "d" in record:
            device = int(record["d"])
            self.values.setdefault(device, {}).update(record["v"])
            self.missing.setdefault(device, {}).update(record["m"])
            self.readings.setdefault(device, {}).update(record["r"])
        elif "s" in record:
            self.system = record["s"]
            self.pending.pop(-1, None)
        elif "idle" in record:
            self.pending.pop(record["idle"], None)
        elif "done" in record:
            self.done.add(record["done"])
            self.pending.pop(record["done"], None)
        elif "broken" in record:
            self.broken[record["broken"]] = record["why"]
        elif "absent" in record:
            self.absent = record["absent"]
        elif "end" in record:
            self.ended = True

    def open_calls(self) -> list[tuple[int, str, float]]:
        """(device, call, when it began) of the calls that have not returned, longest first; device -1 = the library itself."""
        return sorted(((device, call, since) for device, (call, since) in self.pending.items()), key=lambda item: item[2])


def _missing(reason: tuple[str, str, str]) -> Missing:
    return Missing(Reason(reason[0]), reason[1], reason[2])


def _fill(entity: Entity, values: dict[str, Any], ref: Ref) -> None:
    """Takes each value that has the type of its field; another becomes a reason."""
    kind = type(entity)
    for field, value in values.items():
        try:
            checked = msgspec.convert({field: value}, kind)
        except msgspec.ValidationError as error:
            entity.lacks(field, Reason.NOT_READABLE, f"NVML gave {value!r}: {error}")
            continue
        entity.put(field, getattr(checked, field, None), ref)


def _accelerator(device: int, lines: _Lines, ref: Ref) -> Accelerator:
    accelerator = Accelerator(index=device, origin={"": ref, "index": ref})
    values = dict(lines.values.get(device, {}))
    if "pci_address" in values:
        values["pci_address"] = pci_address(values["pci_address"])
    for link in values.get("nvlinks") or ():
        link["remote"] = pci_address(link.get("remote") or "") or link.get("remote")
    _fill(accelerator, values, ref)
    reading = Reading(source=ref[0])
    _fill(reading, lines.readings.get(device, {}), ref)
    for field, reason in lines.missing.get(device, {}).items():
        entity, name = (reading, field[2:]) if field.startswith("r.") else (accelerator, field)
        if getattr(entity, name, None) in (None, {}):
            entity.missing[name] = _missing(reason)
    if any(field != "time" for field in reading.origin) or reading.missing:
        accelerator.readings = [reading]
    for field, detail in _NO_CALL.items():
        accelerator.lacks(field, Reason.NOT_COLLECTED, detail, "nvidia-smi -q")
    return accelerator


def _close(accelerator: Accelerator, detail: str, hint: str) -> None:
    """Gives every field that is still open ``detail`` as its reason."""
    reading = accelerator.readings[0] if accelerator.readings else Reading()
    for entity, fields in ((accelerator, FIELDS), (reading, READING_FIELDS)):
        for field in fields:
            if getattr(entity, field) in (None, {}) and field not in entity.missing:
                entity.lacks(field, Reason.NOT_READABLE, detail, hint)


def _verdict(lines: _Lines, result: ChildResult, now: float) -> tuple[str, dict[int, str]]:
    """Why the child did not come to its end: one text for all, and one for each device whose call did not return."""
    if lines.ended:
        return "", {}
    calls = lines.open_calls()

    def where(device: int, call: str) -> str:
        return f"NVML call {call}" if device < 0 else f"NVML call {call} on GPU {device}"

    if result.timed_out:
        texts = {
            device: f"{where(device, call)} hung for {max(now - since, 0.0):.0f} s (driver sick?)"
            for device, call, since in calls
        }
        first = texts[calls[0][0]] if calls else f"the NVML reader did not end within {result.duration_s:.0f} s"
        return first, texts
    if result.truncated:
        how = f"wrote more than {_MAX_BYTES >> 20} MiB and was ended"
    elif result.signal_name:
        how = f"was ended by {result.signal_name}"
    else:
        last = result.stderr.decode("utf-8", "replace").strip().splitlines()
        how = f"ended with status {result.returncode}: {last[-1][:300] if last else 'no message'}"
    inside = [where(device, call) for device, call, _ in calls[-1:]]
    return f"the NVML reader {how}{' in ' + inside[0] if inside else ''}", {
        device: f"the NVML reader {how} in {where(device, call)}" for device, call, _ in calls
    }


def _place_lost(accelerators: list[Accelerator], snapshot: Snapshot) -> None:
    """Finds the PCI address of GPUs that do not answer: NVML counts in the order of PCI addresses.

    Only where that order holds for every GPU that does answer, and NVML counts as many as the bus has.
    """
    bus = sorted(
        (device.address for device in (snapshot.pci or {}).values() if device.vendor_id == NVIDIA and device.is_accelerator),
        key=lambda address: [int(part, 16) for part in address.replace(".", ":").split(":")],
    )
    if len(bus) != len(accelerators):
        return
    if all(a.pci_address in (None, bus[a.index]) for a in accelerators if a.index is not None):
        for accelerator in accelerators:
            if accelerator.pci_address is None and accelerator.index is not None:
                accelerator.put("pci_address", bus[accelerator.index], accelerator.origin[""])
                accelerator.missing.pop("pci_address", None)


def _no_nvml(snapshot: Snapshot, detail: str, ref: Ref) -> None:
    software = snapshot.software
    software.lacks("driver_version", Reason.ABSENT, f"libnvidia-ml.so.1 not found: {detail}", "install the NVIDIA driver")
    software.lacks("cuda_driver_version", Reason.ABSENT, "libnvidia-ml.so.1 not found")
    bus = snapshot.pci
    if bus is not None and snapshot.accelerators is None and not any(device.is_accelerator for device in bus.values()):
        snapshot.accelerators = []
        snapshot.origin["accelerators"] = ref


def _put_system(snapshot: Snapshot, system: dict[str, Any], ref: Ref) -> None:
    software = snapshot.software
    for field in ("driver_version", "cuda_driver_version", "driver_library_version", "driver_error"):
        value = system.get(field)
        if isinstance(value, str) and value:
            software.put(field, value, ref)
    for field, reason in system.get("missing", {}).items():
        if field in ("driver_version", "cuda_driver_version", "driver_library_version"):
            software.missing[field] = _missing(reason)
    if isinstance(count := system.get("count"), int):
        snapshot.put("accelerators_attached", count, ref)
    elif "count" in system.get("missing", {}):
        software.put("driver_error", system["missing"]["count"][1], ref)
    if software.driver_error and "code" in system:
        for field in ("driver_version", "cuda_driver_version"):
            software.lacks(field, Reason.NOT_READABLE, software.driver_error, _INIT_HINTS.get(system["code"], ""))


def read_nvml(snapshot: Snapshot, *, timeout_s: float = 10.0, library: str | None = None) -> None:
    """Adds the NVIDIA GPUs, the driver's versions and one reading for each GPU to ``snapshot``.

    ``library`` names the NVML to load; without it the dynamic linker chooses, then the usual places of containers. Takes at most
    ``timeout_s`` and the 1.5 s in which a hung child may be ended. Never raises for what the driver does: an NVML that does not
    start is ``software.driver_error``, a GPU that is lost has ``error``, and every field that could not be read says why.
    """
    source = Source(name="live:NVML", tool="NVML", time=time.time(), node=snapshot.node)
    ref: Ref = (len(snapshot.sources), 0)
    snapshot.sources.append(source)
    if importlib.util.find_spec("pynvml") is None:
        missing = Missing(Reason.NOT_READABLE, "the Python module pynvml is not installed", "pip install nvidia-ml-py")
        snapshot.software.missing["driver_version"] = missing
        return
    package = sys.modules[__name__.rpartition(".")[0]].__path__
    arguments = [[entry for entry in sys.path if entry], list(package), timeout_s / 4, library or ""]
    argv = [sys.executable, "-I", "-c", _BOOT, json.dumps(arguments)]
    result = run_limited(argv, timeout_s=timeout_s, max_bytes=_MAX_BYTES)
    lines = _Lines(result.stdout)
    overall, by_device = _verdict(lines, result, time.monotonic())
    if lines.absent:
        _no_nvml(snapshot, lines.absent, ref)
        return
    hint = "dmesg | grep -e NVRM -e 'blocked for more than'; GPUs without persistence mode may also need longer to start"
    if result.error:
        overall = f"the NVML reader could not be started: {result.error}"
    if lines.system is not None:
        _put_system(snapshot, lines.system, ref)
        source.version = str(lines.system.get("driver_library_version") or "")
    if overall:
        snapshot.software.put("driver_error", overall, ref)
    if lines.system is None:
        for field in ("driver_version", "cuda_driver_version"):
            snapshot.software.lacks(field, Reason.NOT_READABLE, overall, hint)
        return
    count = snapshot.accelerators_attached if "count" in lines.system else None
    if count is None:
        return
    accelerators = []
    for device in range(min(count, 256)):
        accelerator = _accelerator(device, lines, ref)
        if accelerator.error is not None and device in lines.done:
            _close(accelerator, f"GPU {device}: {accelerator.error}", "dmesg | grep -i xid")
        elif device in lines.broken:
            _close(accelerator, f"the NVML reader failed: {lines.broken[device]}", "please report this")
        elif overall and device not in lines.done:
            reached = device in lines.values or device in by_device
            _close(accelerator, by_device.get(device, overall) if reached else f"not reached: {overall}", hint)
        accelerators.append(accelerator)
    _place_lost(accelerators, snapshot)
    others = any(device.vendor_id in KUNLUNXIN for device in (snapshot.pci or {}).values())
    if accelerators or snapshot.accelerators is not None or not others:
        snapshot.accelerators = [*(snapshot.accelerators or []), *accelerators]
        snapshot.origin["accelerators"] = ref
