"""Kunlunxin's ``xpu-smi``: ``-q`` text, the default table (generation 3 and the older ``xpu_smi``), ``-m`` rows and ``-L``.

Intel ships another tool by the same name; its output is told apart and not read. Layouts were read off real outputs: ``-q`` of
driver 5.0.21 (zstack agent sources), the table of drivers 5.0.21 and 5.19 (yunionio/cloudpods test data, ERNIE and PaddlePaddle
guides), the older table of runtimes 4.0 and 4.31 (PaddlePaddle/docs and PaddlePaddle/Paddle-Lite guides), ``-m`` by the tool's
own help and a capture of runtime 5.0.21.
"""

from __future__ import annotations

import re
from collections.abc import Callable
from typing import NamedTuple

from kilter.facts.accelerator import Accelerator, EccCounts, Process, Reading
from kilter.facts.base import Entity, Reason
from kilter.facts.pci import pci_address
from kilter.intake.captures.nvidia_smi import NOT_VALUES, boolean, device_ids, integer, number, timestamp, verbatim
from kilter.intake.fragment import Block, Fragment

#: No line of any of these outputs is as long.
_MAX_LINE = 600

_INTEL = re.compile(r"Intel(?:\(R\))? (?:XPU|Data ?[Cc]enter|Arc|Iris|Graphics)|Level Zero|Timestamp, +DeviceId|\| Device ID +\|")
_LOG = re.compile(r"=+ ?XPU-?SMI LOG ?=+$")
_HEAD = re.compile(r"\| XPU-SMI +(?:\S+ +)?Driver Version: *(\S+) +XPU-RT Version: *(\S+)")
_DEVICE = re.compile(r"XPU ([0-9A-Fa-f]{4,8}:[0-9A-Fa-f]{2}:[0-9A-Fa-f]{2}\.[0-7])$")
_LIST = re.compile(r"XPU (\d{1,4}): (.*)$")
_LIST_UUID = re.compile(r"^(.{0,200}?) {0,32}\(?(?:UUID: )?((?:GPU|XPU|VXPU)-[0-9A-Fa-f-]{8,})\)?$")
_ROW = re.compile(r"[0-9A-Fa-f]{4,8}:[0-9A-Fa-f]{2}:[0-9A-Fa-f]{2}\.[0-7]\s+\d+\s+\d+\s")
_TOKEN = re.compile(r'"[^"]*"|\S+')
_OLD_VERSION = re.compile(r"(Runtime|Driver) Version: *(\S+)$")
_SECTION = re.compile(r"(DEVICES|VIDEO|PROCESSES)$")
_RULE = re.compile(r"[-+=|\s]+$")
_DATE = re.compile(r"[A-Z][a-z]{2} [A-Z][a-z]{2} +\d")
#: ``xpu-smi`` answers this when it finds no driver below it, e.g. in a container; it is no version.
_NO_DRIVER = "515.58"


class _Field(NamedTuple):
    name: str
    convert: Callable[[str], object]
    reading: bool = False


#: path in ``-q`` -> fact
_QUERY = {
    "Product Name": _Field("name", verbatim),
    "Product Brand": _Field("brand", verbatim),
    "Product Architecture": _Field("architecture", verbatim),
    "Persistence Mode": _Field("persistence_mode", boolean),
    "Serial Number": _Field("serial", verbatim),
    "XPU UUID": _Field("uuid", verbatim),
    "Minor Number": _Field("minor", integer),
    "PCIe Id": _Field("module_id", integer),
    "OAM Id": _Field("module_id", integer),
    "XPU Part Number": _Field("part_number", verbatim),
    "Firmware Version/SBL Version": _Field("firmware", verbatim),
    "PCI/Bus Id": _Field("pci_address", pci_address),
    "PCI/Device Id": _Field("pci_device_id", device_ids),
    "PCI/Sub System Id": _Field("pci_subsystem_id", device_ids),
    "PCI/XPU Link Info/PCIe Generation/Max": _Field("link_generation_max", integer),
    "PCI/XPU Link Info/PCIe Generation/Current": _Field("link_generation", integer, True),
    "PCI/XPU Link Info/Link Width/Max": _Field("link_width_max", integer),
    "PCI/XPU Link Info/Link Width/Current": _Field("link_width", integer, True),
    "Memory Usage/Total": _Field("memory_total_mib", integer),
    "Memory Usage/Used": _Field("memory_used_mib", integer, True),
    "Utilization/Xpu": _Field("utilization_percent", integer, True),
    "Ecc Mode/Current": _Field("ecc_mode", boolean),
    "Ecc Mode/Pending": _Field("ecc_mode_pending", boolean),
    "Temperature/XPU Current Temp": _Field("temperature_c", integer, True),
    "Temperature/Memory Current Temp": _Field("memory_temperature_c", integer, True),
    "Power Readings/Enforced Power Limit": _Field("power_limit_w", number),
    "Power Readings/Power Draw": _Field("power_w", number, True),
    "Clocks/Cluster": _Field("sm_clock_mhz", integer, True),
}
_ECC = {
    "SRAM Correctable": "sram_corrected",
    "SRAM Uncorrectable": "sram_uncorrected",
    "DRAM Correctable": "dram_corrected",
    "DRAM Uncorrectable": "dram_uncorrected",
}
#: Known lines without a place in the facts (path or its first part).
_KNOWN = {
    "Firmware Version", "PCI/Bus", "PCI/Device", "PCI/Function", "PCI/Domain", "Memory Usage/Reserved", "Memory Usage/Free",
    "L3 Usage", "Clocks/CDNN", "Processes/XPU instance ID", "Processes/GPU instance ID", "Processes/Compute instance ID",
    "SR-IOV Mode",
}  # fmt: skip


def _put(entity: Entity, field: str, text: str, convert: Callable[[str], object], fragment: Fragment, line: int) -> bool:
    """Set ``field`` from ``text``, or say why not; False if the text is neither a value nor a known word for "none"."""
    word = text.strip()
    reason = NOT_VALUES.get(word.lower())
    if reason is not None:
        entity.lacks(field, reason, f"xpu-smi prints {word!r}")
        return True
    value = convert(word)
    entity.put(field, value, fragment.ref(line))
    return value is not None


class _Reader:
    """Reads one block line by line; the layouts may follow each other in one capture."""

    def __init__(self, fragment: Fragment) -> None:
        self.fragment = fragment
        self.mode = ""  # query, table, processes, old
        self.time: float | None = None
        self.device: Accelerator | None = None
        self.by_index: dict[int, Accelerator] = {}
        self.queried: list[Accelerator] = []
        self.ended: set[int] = set()  # id() of queried devices whose last section was seen
        self.path: list[tuple[int, str]] = []
        self.row = 0  # line of a device inside the table
        self.section = ""
        self.columns: list[str] = []
        self.driver = ("", 0)  # driver version of -q and its line: told from "no driver" by the line that follows

    def new(self, line: int, index: int | None = None) -> Accelerator:
        """A device; one that an earlier layout of this block counted by the same index is used again."""
        if index is not None and index in self.by_index:
            return self.by_index[index]
        device = self.fragment.accelerator(line)
        device.vendor = "kunlunxin"
        if index is not None:
            device.put("index", index, self.fragment.ref(line))
            self.by_index[index] = device
        return device

    def reading(self, device: Accelerator) -> Reading:
        if not device.readings:
            device.readings = [Reading(time=self.time)]
        return device.readings[0]

    def put_versions(self, driver: str, runtime: str, line: int) -> None:
        software = self.fragment.snapshot.software
        ref = self.fragment.ref(line)
        if runtime:
            if runtime.lower() in NOT_VALUES:
                software.lacks("xpu_runtime_version", Reason.NOT_READABLE, f"xpu-smi prints {runtime!r}")
            else:
                software.put("xpu_runtime_version", runtime, ref)
        if not driver:
            return
        if driver.lower() in NOT_VALUES or (driver == _NO_DRIVER and software.xpu_runtime_version is None):
            text = f"xpu-smi does not reach the driver: it prints driver version {driver!r}"
            software.put("driver_error", text, ref)
            software.lacks(
                "driver_version", Reason.NOT_READABLE, text, "give the container /dev/xpuctrl, /dev/xpu* and the host's tool"
            )
        else:
            software.put("driver_version", driver, ref)

    # -q

    def query(self, line: int, text: str) -> bool:
        stripped = text.strip()
        if match := _DEVICE.match(stripped):
            self.device = self.new(line)
            self.device.put("pci_address", pci_address(match.group(1)), self.fragment.ref(line))
            self.queried.append(self.device)
            self.path = []
            return True
        key, colon, value = stripped.partition(":")
        key, value = key.strip(), value.strip()
        if self.device is None:
            return bool(colon) and self.header(line, key, value)
        indent = len(text) - len(text.lstrip())
        while self.path and self.path[-1][0] >= indent:
            self.path.pop()
        path = "/".join([name for _, name in self.path[:8]] + [key])
        if path.startswith("Processes"):
            self.ended.add(id(self.device))
        if not colon:
            self.path.append((indent, key))
            if path == "Processes" and self.device.processes is None:
                self.device.put("processes", [], self.fragment.ref(line))
            return True
        return self.fact(line, path, value)

    def header(self, line: int, key: str, value: str) -> bool:
        if key == "Timestamp":
            self.time = self.fragment.source.time = timestamp(value)
        elif key == "Driver Version":
            self.driver = (value, line)
        elif key == "XPU-RT Version":
            self.put_versions("", value, line)
            self.put_versions(self.driver[0], "", self.driver[1])
            self.driver = ("", 0)
        elif key == "Attached XPUs":
            self.fragment.snapshot.put("accelerators_attached", integer(value), self.fragment.ref(line))
        else:
            return False
        return True

    def fact(self, line: int, path: str, value: str) -> bool:
        device = self.device
        assert device is not None
        if field := _QUERY.get(path):
            entity: Entity = self.reading(device) if field.reading else device
            return _put(entity, field.name, value, field.convert, self.fragment, line)
        if path == "Processes":
            if value == "None":
                device.put("processes", [], self.fragment.ref(line))
                return True
            device.lacks("processes", Reason.NOT_READABLE, f"xpu-smi prints {value!r}")
            return value.lower() in NOT_VALUES
        if path.startswith("ECC Errors/"):
            return self.ecc(line, path, value)
        if path.startswith("Processes/"):
            return self.process(line, path.partition("/")[2], value)
        return path in _KNOWN or path.partition("/")[0] in _KNOWN

    def ecc(self, line: int, path: str, value: str) -> bool:
        assert self.device is not None
        _, scope, name = (*path.split("/", 2), "")[:3]
        if scope not in ("Volatile", "Aggregate") or name not in _ECC:
            return False
        field = f"ecc_{scope.lower()}"
        counts: EccCounts | None = getattr(self.device, field)
        if counts is None:
            counts = EccCounts()
            self.device.put(field, counts, self.fragment.ref(line))
        return _put(counts, _ECC[name], value, integer, self.fragment, line)

    def process(self, line: int, key: str, value: str) -> bool:
        device = self.device
        assert device is not None
        if device.processes is None:
            device.put("processes", [], self.fragment.ref(line))
        processes = device.processes
        assert processes is not None
        if key == "Process ID":
            pid = integer(value)
            if pid is None:
                return False
            processes.append(Process(pid=pid, origin={"": self.fragment.ref(line)}))
            return True
        if f"Processes/{key}" in _KNOWN:
            return True
        if not processes:
            return False
        if key == "Type":
            return _put(processes[-1], "type", value, verbatim, self.fragment, line)
        if key == "Name":
            return _put(processes[-1], "name", value, verbatim, self.fragment, line)
        if key in ("Used XPU Memory", "Used GPU Memory"):
            return _put(processes[-1], "memory_mib", value, integer, self.fragment, line)
        return False

    # the table of generation 3

    def table(self, line: int, text: str) -> bool:
        cells = [cell.strip() for cell in text.strip().strip("|").split("|")]
        if cells[0].startswith("Processes:"):
            self.mode = "processes"
            self.device = None
            return True
        if len(cells) != 3:
            return False
        if match := re.match(r"(\d+)\s+(\S.*)$", cells[0]):
            self.device = device = self.new(line, int(match.group(1)))
            name, _, persistence = match.group(2).rpartition(" ")
            _put(device, "name", name, verbatim, self.fragment, line)
            _put(device, "persistence_mode", persistence, boolean, self.fragment, line)
            address = cells[1].split()[0] if cells[1] else ""
            device.put("pci_address", pci_address(address), self.fragment.ref(line))
            if device.ecc_volatile is None:
                device.ecc_volatile = EccCounts()
            _put(device.ecc_volatile, "total_uncorrected", cells[2], integer, self.fragment, line)
            self.row = 1
            return bool(name)
        if self.device is None:
            return cells[0].startswith(("XPU  Name", "Fan  Temp")) or not cells[0]
        self.row += 1
        return self.second_row(line, cells) if self.row == 2 else self.third_row(line, cells)

    def second_row(self, line: int, cells: list[str]) -> bool:
        device = self.device
        assert device is not None
        reading = self.reading(device)
        words = cells[0].replace(" / ", " ").split()
        memory = cells[1].split("/")
        usage = cells[2].split(None, 1)
        if len(words) != 5 or len(memory) != 2 or len(usage) != 2:
            return False
        fan, temperature, performance, power, limit = words
        for entity, field, value, convert in (
            (reading, "fan_percent", fan, integer),
            (reading, "temperature_c", temperature, integer),
            (reading, "performance_state", performance, verbatim),
            (reading, "power_w", power, number),
            (device, "power_limit_w", limit, number),
            (reading, "memory_used_mib", memory[0], integer),
            (device, "memory_total_mib", memory[1], integer),
            (reading, "utilization_percent", usage[0], integer),
            (device, "compute_mode", usage[1], verbatim),
        ):
            _put(entity, field, value, convert, self.fragment, line)
        return True

    def third_row(self, line: int, cells: list[str]) -> bool:
        assert self.device is not None
        if self.row != 3 or cells[0]:
            return False
        if cells[2] == "Enabled":
            self.device.put("virtualization", "SR-IOV", self.fragment.ref(line))
        return True

    def process_row(self, line: int, text: str) -> bool:
        words = text.strip().strip("|").split()
        if not words or words[0] in ("XPU", "ID"):
            return True
        if text.strip("| ").startswith("No running processes found"):
            for device in self.by_index.values():
                device.put("processes", [], self.fragment.ref(line))
            return True
        if len(words) < 6 or not words[0].isdecimal() or not words[3].isdecimal() or len(words[3]) > 9:
            return False
        owner = self.by_index.get(int(words[0][:6]))
        if owner is None:
            return False
        name = " ".join(words[5:-1]) if words[-1].endswith("MiB") else " ".join(words[5:])
        process = Process(pid=int(words[3]), type=words[4], name=name or None, origin={"": self.fragment.ref(line)})
        if words[-1].endswith("MiB"):
            process.memory_mib = integer(words[-1])
        owner.put("processes", [*(owner.processes or []), process], self.fragment.ref(line))
        return True

    # the table of generations 1 and 2: columns by name

    def old(self, line: int, text: str) -> bool:
        if match := _SECTION.match(text.strip()):
            self.section, self.columns = match.group(1), []
            return True
        if not text.lstrip().startswith("|"):
            return False
        cells = [cell.strip() for cell in text.strip().strip("|").split("|")]
        if cells[0] == "DevID":
            self.columns = cells
            if "PCI Addr" in cells:
                self.section = "DEVICES"
            return True
        if self.section == "VIDEO":
            return True
        if not self.columns or not cells[0].isdecimal() or len(cells[0]) > 4:
            return False
        values = dict(zip(self.columns, cells, strict=False))
        device = self.new(line, int(cells[0]))
        return self.old_process(line, device, values) if self.section == "PROCESSES" else self.old_device(line, device, values)

    def old_device(self, line: int, device: Accelerator, values: dict[str, str]) -> bool:
        reading = self.reading(device)
        used, _, total = values.get("Memory", "").partition("/")
        for entity, field, text, convert in (
            (device, "pci_address", values.get("PCI Addr"), pci_address),
            (device, "name", values.get("Model"), verbatim),
            (device, "serial", values.get("SN"), verbatim),
            (device, "firmware", values.get("Firmware Version"), verbatim),
            (device, "minor", values.get("INODE", "").rpartition("/dev/xpu")[2] or None, integer),
            (device, "memory_total_mib", total or None, integer),
            (reading, "memory_used_mib", used or None, integer),
            (reading, "utilization_percent", values.get("UseRate"), integer),
            (reading, "power_w", values.get("Power(W)"), number),
            (reading, "temperature_c", values.get("Temp"), integer),
            (reading, "sm_clock_mhz", values.get("Freq(MHz)"), integer),
        ):
            if text is not None and text != "...":
                _put(entity, field, text, convert, self.fragment, line)
        if device.name and (match := re.search(r"-(PF|VF)\b", device.name)):
            device.put("virtualization", f"SR-IOV {match.group(1)}", self.fragment.ref(line))
        # N: normal, R: running. The other letters are not documented; the kernel's word for a broken device is ERROR.
        if values.get("State", "N") not in ("N", "R", "...", ""):
            device.put("error", f"xpu_smi prints state {values['State']}", self.fragment.ref(line))
        return True

    def old_process(self, line: int, device: Accelerator, values: dict[str, str]) -> bool:
        pid = integer(values.get("PID", ""))
        if pid is None:
            return False
        process = Process(pid=pid, name=values.get("Command") or None, origin={"": self.fragment.ref(line)})
        process.memory_mib = integer(values.get("Memory", ""))
        device.put("processes", [*(device.processes or []), process], self.fragment.ref(line))
        return True

    # -m and -L

    def machine(self, line: int, text: str) -> bool:
        """One row of 32 items: address, board, device, serial, °C, 0, memory °C, 0, W, MHz (6), L3 and memory MB, %, ..."""
        items = _TOKEN.findall(text)
        if len(items) < 22:
            return False
        extra = len(items) - 32  # a model of several words without quotes
        if extra > 0:
            items[21 : 22 + extra] = [" ".join(items[21 : 22 + extra])]
        device = self.new(line, integer(items[2]))
        reading = self.reading(device)
        firmware = items[20].split(":")
        if len(firmware) == 3 and firmware[2].count(".") == 3:  # v_main.v_cpld
            firmware[2] = ".".join(firmware[2].split(".")[:2])
        power = number(items[8])
        for entity, field, value, convert in (
            (device, "pci_address", items[0], pci_address),
            (device, "serial", items[3], verbatim),
            (device, "name", items[21].strip('"'), verbatim),
            (device, "firmware", firmware[-1], verbatim),
            (device, "memory_total_mib", items[18], integer),
            (reading, "memory_used_mib", items[17], integer),
            (reading, "temperature_c", items[4], integer),
            (reading, "utilization_percent", items[19], integer),
            (reading, "sm_clock_mhz", items[9], integer),
        ):
            _put(entity, field, value, convert, self.fragment, line)
        if integer(items[6]):
            reading.put("memory_temperature_c", integer(items[6]), self.fragment.ref(line))
        else:  # 0 where there is no sensor
            reading.lacks("memory_temperature_c", Reason.NOT_SUPPORTED, "xpu-smi -m prints 0")
        if power is not None:
            # The help says W, and P800 prints W; runtime 4.33 prints mW for a K200. No card draws 2000 W.
            reading.put("power_w", power / 1000 if power >= 2000 else power, self.fragment.ref(line))
        return True

    def listed(self, line: int, index: int, rest: str) -> bool:
        device = self.new(line, index)
        if match := _LIST_UUID.match(rest.strip()):
            device.put("name", match.group(1).strip() or None, self.fragment.ref(line))
            device.put("uuid", match.group(2), self.fragment.ref(line))
            return True
        address = pci_address(rest)
        device.put("pci_address", address, self.fragment.ref(line))
        return address is not None

    def line(self, line: int, text: str) -> bool:
        """Takes one line; False if it has no place."""
        stripped = text.strip()
        if not stripped or (self.mode != "query" and _RULE.match(stripped)):
            return True
        if _LOG.match(stripped):
            self.mode, self.device = "query", None
            return True
        if match := _HEAD.match(stripped):
            self.mode, self.device = "table", None
            self.put_versions(match.group(1), match.group(2), line)
            return True
        if match := _OLD_VERSION.match(stripped):
            if self.mode != "query":
                self.mode = "old"
                driver = match.group(1) == "Driver"
                self.put_versions(match.group(2) if driver else "", "" if driver else match.group(2), line)
                return True
        elif self.mode != "query" and (stripped.startswith(("| DevID", "|DevID")) or _SECTION.match(stripped)):
            self.mode = "old"
        if _ROW.match(stripped):
            return self.machine(line, stripped)
        if self.mode != "query" and (match := _LIST.match(stripped)):
            return self.listed(line, int(match.group(1)), match.group(2))
        if self.mode == "query":
            return self.query(line, text)
        if self.mode == "old":
            return self.old(line, text)
        if self.mode == "processes":
            return self.process_row(line, text)
        if self.mode == "table" and stripped.startswith("|"):
            return self.table(line, text)
        if _DATE.match(stripped) and (moment := timestamp(stripped)) is not None:
            self.time = self.fragment.source.time = moment
            return True
        return False

    def finish(self) -> None:
        attached = self.fragment.snapshot.accelerators_attached
        if attached is not None and attached == len(self.queried):
            for index, device in enumerate(self.queried):  # the tool counts in this order
                device.put("index", index, device.origin[""])
        self.put_versions(self.driver[0], "", self.driver[1])
        last = self.queried[-1] if self.queried else None
        if last is not None and last.name is not None and id(last) not in self.ended:
            self.fragment.note(f"cut short inside XPU {last.pci_address}")
        if self.mode == "table" and self.device is not None and self.row < 3:
            self.fragment.note(f"cut short inside {self.device.label}")


def parse(block: Block, fragment: Fragment) -> None:
    """Accelerators of vendor ``kunlunxin``, driver and runtime versions. Lines without a place are kept as unparsed."""
    for line in block.lines[:60]:
        if len(line) < _MAX_LINE and _INTEL.search(line):
            fragment.note(f"this is the output of Intel's xpu-smi, which kilter does not read ({len(block.lines)} lines)")
            return
    reader = _Reader(fragment)
    for number_, text in block.numbered():
        if len(text) > _MAX_LINE or not reader.line(number_, text.expandtabs(8)):
            fragment.unparsed(number_, text)
    reader.finish()
