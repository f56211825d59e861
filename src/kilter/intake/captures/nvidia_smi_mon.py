"""``nvidia-smi dmon`` and ``nvidia-smi pmon``: one row a GPU, or a process, and moment.

Header lines name the columns (``# gpu pwr gtemp ...``) and return every screen; a second one names the units. Which columns there are
depends on ``-s`` and the driver (``jpg``, ``ofa``, ``ccpm`` came later), so columns are taken by name. "-" is no value. ``-o DT`` puts date
and time in front; ``--format csv`` separates by commas. Formats read off outputs of drivers 450 to 595.
"""

from __future__ import annotations

import re
from collections.abc import Callable

from kilter.facts.accelerator import Accelerator, EccCounts, Process, Reading
from kilter.facts.base import Reason
from kilter.intake.captures import bounded
from kilter.intake.captures.nvidia_smi import integer, number, timestamp
from kilter.intake.fragment import Block, Fragment

_HEADER = re.compile(r"#\s*(?:(?:Date|Time)[,\s]+){0,2}gpu(?:[,\s]|$)")
#: Second header line: units.
_UNITS = re.compile(r"#\s*(?:YYYYMMDD|HH:MM:SS|Idx)(?:[,\s]|$)")
_SPLIT = re.compile(r"\s*,\s*|\s+")
#: More rows than this are counted, not kept: two days of one GPU at a row a second.
MAX_READINGS = 200_000


def _mb_s(text: str) -> float | None:
    """dmon rounds to MB/s; readings are in KB/s."""
    value = number(text)
    return None if value is None else value * 1000


#: dmon column -> (field of Reading, how to read it)
_READING: dict[str, tuple[str, Callable[[str], object]]] = {
    "pwr": ("power_w", number),
    "gtemp": ("temperature_c", integer),
    "temp": ("temperature_c", integer),  # before driver 387
    "mtemp": ("memory_temperature_c", integer),
    "sm": ("utilization_percent", integer),
    "mem": ("memory_utilization_percent", integer),
    "mclk": ("memory_clock_mhz", integer),
    "pclk": ("graphics_clock_mhz", integer),
    "fb": ("memory_used_mib", integer),
    "rxpci": ("rx_kb_s", _mb_s),
    "txpci": ("tx_kb_s", _mb_s),
}
#: Readings that belong to one MIG instance when the row names one.
_OF_INSTANCE = {"sm", "mem", "fb"}
_IDENTITY = {"gpu", "date", "time", "gi", "ci"}


class _Monitor:
    def __init__(self, fragment: Fragment) -> None:
        self.fragment = fragment
        self.columns: list[str] = []
        self.gpus: dict[int, Accelerator] = {}
        self.seen: dict[int, set[tuple[int, str]]] = {}
        self.readings = 0
        self.dropped = 0

    def gpu(self, index: int, line: int) -> Accelerator:
        known = self.gpus.get(index)
        if known is None:
            known = self.gpus[index] = self.fragment.accelerator(line)
            known.put("index", index, self.fragment.ref(line))
        return known

    def header(self, text: str) -> None:
        words = [word for word in _SPLIT.split(text.lstrip("# \t").strip()) if word]
        self.columns = [word.lower() for word in words]

    def row(self, line: int, text: str) -> bool:
        """Whether the row was understood."""
        columns = self.columns
        words = text.strip().split(",") if "," in text else text.split()
        words = [word.strip() for word in words]
        if "command" in columns:
            at = columns.index("command")
            words = [*words[:at], " ".join(words[at:])]
        if len(words) != len(columns) or any(len(word) > 20 for word in words[:-1]):
            return False
        if "command" not in columns and len(words[-1]) > 20:
            return False
        values = dict(zip(columns, words, strict=True))
        index = integer(values.get("gpu", ""))
        if index is None or not 0 <= index < 1024:
            return False
        if "pid" in values:
            return self.process(index, values, line)
        self.reading(index, values, line)
        return True

    def process(self, index: int, values: dict[str, str], line: int) -> bool:
        gpu = self.gpu(index, line)
        if gpu.processes is None:
            gpu.put("processes", [], self.fragment.ref(line))
        if values["pid"] == "-":
            return True
        pid = integer(values["pid"])
        if pid is None:
            return False
        name, kind = values.get("command", ""), values.get("type", "")
        known = self.seen.setdefault(index, set())
        if (pid, kind) in known:
            return True  # pmon repeats its rows; the first one stands
        known.add((pid, kind))
        process = Process(pid=pid, origin={"": self.fragment.ref(line)})
        process.name = name if name not in ("", "-") else None
        process.type = kind if kind not in ("", "-") else None
        process.memory_mib = integer(values.get("fb", ""))
        if gpu.processes is not None:
            gpu.processes.append(process)
        return True

    def reading(self, index: int, values: dict[str, str], line: int) -> None:
        gpu, ref = self.gpu(index, line), self.fragment.ref(line)
        instance = any(values.get(name, "-") != "-" for name in ("gi", "ci"))
        if self.readings >= MAX_READINGS:
            self.dropped += 1
            return
        reading = Reading(time=_time(values))
        for column, text in values.items():
            if column in _IDENTITY or (instance and column in _OF_INSTANCE):
                continue
            if column in _READING:
                field, convert = _READING[column]
                value = None if text == "-" else convert(text)
                if value is None:
                    reading.lacks(field, Reason.NOT_SUPPORTED, f"nvidia-smi dmon prints {text[:20]!r}")
                else:
                    reading.put(field, value, ref)
            elif text != "-":
                self.counter(gpu, index, column, text, line)
        if reading.origin:
            gpu.readings.append(reading)
            self.readings += 1

    def counter(self, gpu: Accelerator, index: int, column: str, text: str, line: int) -> None:
        """Columns that are no reading: error counts of the GPU; the rest (violations, GPM metrics) becomes a metric, its highest value."""
        value = number(text)
        if value is None:
            return
        ref = self.fragment.ref(line)
        if column == "pci":
            gpu.put("replays", int(value), ref)
        elif column in ("sbecc", "dbecc"):
            if gpu.ecc_volatile is None:
                gpu.ecc_volatile = EccCounts()
            gpu.ecc_volatile.put("total_corrected" if column == "sbecc" else "total_uncorrected", int(value), ref)
        else:
            name = f"nvidia_smi_dmon_{column}"
            series = self.fragment.snapshot.metrics.setdefault(name, {})
            label = f'gpu="{index}"'
            if label not in series or value > series[label]:
                series[label] = value
                self.fragment.snapshot.origin[f"metrics.{name}"] = ref


def _time(values: dict[str, str]) -> float | None:
    date, time = values.get("date", ""), values.get("time", "")
    if not date or not time:
        return None
    digits = re.sub(r"\D", "", date)
    return timestamp(f"{digits[:4]}-{digits[4:6]}-{digits[6:]} {time}") if len(digits) == 8 else None


def parse(block: Block, fragment: Fragment) -> None:
    """Readings (dmon) and processes (pmon) of each GPU index. Rows before any header line cannot be placed."""
    monitor = _Monitor(fragment)
    for line, text in bounded.lines(block, fragment):
        if not text.strip():
            continue
        if _HEADER.match(text.lstrip()):
            monitor.header(text)
        elif not _UNITS.match(text.lstrip()) and not (monitor.columns and monitor.row(line, text)):
            fragment.unparsed(line, text)
    if monitor.dropped:
        fragment.note(f"nvidia-smi dmon: {monitor.dropped} rows after the first {MAX_READINGS} were not kept")
    times = [r.time for gpu in monitor.gpus.values() for r in gpu.readings if r.time is not None]
    if times and fragment.source.time is None:
        fragment.source.time = max(times)
