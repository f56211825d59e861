"""The default table of ``nvidia-smi``: new layout (three-line cells since R450) and the older two-line one."""

from __future__ import annotations

import re

from kilter.facts.accelerator import Accelerator, EccCounts, MigDevice, Process, Reading
from kilter.facts.pci import pci_address
from kilter.intake.captures.bounded import lines
from kilter.intake.captures.nvidia_smi import put_driver, timestamp
from kilter.intake.fragment import Block, Fragment

_HEADER = re.compile(r"((?:NVIDIA-SMI|Driver Version|KMD Version|CUDA Version|CUDA UMD Version)):? *([\w./]+)")
_DEVICE = re.compile(
    r"\|\s{1,16}(\d{1,4})\s{1,16}(.{0,80}?)\s{1,64}(On|Off|N/A|ERR!)\s{0,32}\|\s{0,32}([0-9A-Fa-f]{4,8}:[0-9A-Fa-f]{2}:[0-9A-Fa-f]{2}\.[0-7])\s{1,32}(\S+)\s{0,32}\|\s{0,32}(.{0,60}?)\s{0,64}\|\s*$"
)
_STATE = re.compile(
    r"\|\s*(\S+)\s+(N/A|ERR!|\d+C)\s+(P\d+|N/A|ERR!)\s+(\S+)\s*/\s*(\S+)\s*\|\s*(\S+)\s*/\s*(\S+)\s*\|\s*(N/A|ERR!|\d+%)\s{1,16}(\S?.{0,80}?)\s{0,64}\|\s*$"
)
_MIG_MODE = re.compile(r"\|[^|]*\|[^|]*\|\s*(Enabled|Disabled|N/A)(\*?)\s*\|\s*$")
_MIG_ROW = re.compile(r"\|\s+(\d+)\s+(\d+)\s+(\d+)\s+(\d+)\s*\|\s*\S+\s*/\s*(\d+)MiB\s*\|")
_PROCESS = re.compile(
    r"\|\s{1,16}(\d{1,4})\s{1,16}(?:(?:N/A|\d{1,4})\s{1,16}(?:N/A|\d{1,4})\s{1,16})?(\d{1,10})\s{1,16}(C\+G|M\+C|C|G)\s{1,16}(.{0,200}?)\s{1,64}(\d+MiB|N/A)\s*\|\s*$"
)
_TIME = re.compile(r"[A-Z][a-z]{2} [A-Z][a-z]{2} +\d+ \d\d:\d\d:\d\d \d{4}\s*$")


def _number(text: str, unit: str) -> float | None:
    text = text.removesuffix(unit)
    try:
        return float(text)
    except ValueError:
        return None


def _int(text: str, unit: str) -> int | None:
    value = _number(text, unit)
    return None if value is None else int(value)


def parse(block: Block, fragment: Fragment) -> None:
    """Fill accelerators, one reading each, and processes. Names cut with "..." are not taken as names."""
    if block.source.time is None and fragment.source.time is None:
        fragment.source.time = next((timestamp(line) for line in block.lines if _TIME.match(line)), None)
    gpus: dict[int, Accelerator] = {}
    current: Accelerator | None = None
    reading: Reading | None = None
    for number, line in lines(block, fragment):
        ref = fragment.ref(number)
        if "NVIDIA-SMI" in line and line.startswith("|"):
            for key, value in _HEADER.findall(line):
                put_driver(fragment, "nvidia-smi version" if key == "NVIDIA-SMI" else key, value, number)
        elif match := _DEVICE.match(line):
            index, name, persistence, address, _, ecc = match.groups()
            current = fragment.accelerator(number)
            gpus[int(index)] = current
            reading = Reading(time=fragment.source.time, origin={"": ref})
            current.readings.append(reading)
            current.put("index", int(index), ref)
            current.put("pci_address", pci_address(address), ref)
            if name and not name.endswith("...") and name != "ERR!":
                current.put("name", name, ref)
            if persistence in ("On", "Off"):
                current.put("persistence_mode", persistence == "On", ref)
            if "ERR!" in (persistence, name, ecc):
                current.put("error", "nvidia-smi prints ERR!", ref)
            if ecc.isdecimal():
                current.put("ecc_mode", True, ref)
                # The column is headed "Volatile Uncorr. ECC"; nvidia-smi prints the total since the driver was loaded.
                current.put("ecc_volatile", EccCounts(total_uncorrected=int(ecc[:18]), origin={"": ref}), ref)
            elif ecc == "Off":
                current.put("ecc_mode", False, ref)
        elif (match := _STATE.match(line)) and current is not None and reading is not None:
            fan, temperature, state, power, cap, used, total, utilization, compute = match.groups()
            reading.put("fan_percent", _int(fan, "%"), ref)
            reading.put("temperature_c", _int(temperature, "C"), ref)
            reading.put("performance_state", state if state.startswith("P") else None, ref)
            reading.put("power_w", _number(power, "W"), ref)
            reading.put("memory_used_mib", _int(used, "MiB"), ref)
            reading.put("utilization_percent", _int(utilization, "%"), ref)
            current.put("power_limit_w", _number(cap, "W"), ref)
            current.put("memory_total_mib", _int(total, "MiB"), ref)
            current.put("compute_mode", compute or None, ref)
            if "ERR!" in (fan, temperature, state, power, utilization):
                current.put("error", "nvidia-smi prints ERR!", ref)
        elif (match := _MIG_MODE.match(line)) and current is not None:
            if match.group(1) != "N/A":
                enabled = match.group(1) == "Enabled"
                current.put("mig_mode", enabled, ref)
                current.put("mig_mode_pending", enabled != bool(match.group(2)), ref)
        elif match := _MIG_ROW.match(line):
            owner = gpus.get(int(match.group(1)))
            if owner is not None:
                mig = MigDevice(
                    gpu_instance=int(match.group(2)), compute_instance=int(match.group(3)), memory_total_mib=int(match.group(5))
                )
                owner.mig_devices = [*(owner.mig_devices or []), mig]
        elif match := _PROCESS.match(line):
            owner = gpus.get(int(match.group(1)))
            if owner is not None:
                process = Process(
                    pid=int(match.group(2)), type=match.group(3), name=match.group(4), memory_mib=_int(match.group(5), "MiB")
                )
                owner.processes = [*(owner.processes or []), process]
        elif "No MIG devices found" in line:
            for gpu in gpus.values():
                if gpu.mig_mode:
                    gpu.put("mig_devices", [], ref)
        elif "No running processes found" in line:
            for gpu in gpus.values():
                gpu.processes = gpu.processes or []
        elif not line.startswith(("|", "+")) and not _TIME.match(line):
            fragment.unparsed(number, line)
