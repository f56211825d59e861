"""``nvidia-smi -q`` (text), whole or by section (``-d``)."""

from __future__ import annotations

import re

from kilter.facts.accelerator import Accelerator, MigDevice, Process
from kilter.facts.pci import pci_address
from kilter.intake.captures.bounded import lines
from kilter.intake.captures.nvidia_smi import Values, fill, integer, put_driver, timestamp
from kilter.intake.fragment import Block, Fragment

_GPU = re.compile(r"GPU ([0-9A-Fa-f]{4,8}:[0-9A-Fa-f]{2}:[0-9A-Fa-f]{2}\.[0-7])\s*$")
_PAIR = re.compile(r"(\s*)([^\s:][^:]{0,120}?)\s{0,64}: ?(.*)$")
_SECTION = re.compile(r"(\s+)(\S(?:.*\S)?)\s*$")
_LOST = re.compile(r"(?:Unable to determine|GPU is lost|.*Unknown Error)", re.I)


class _Gpu:
    """One GPU's lines, flattened: "Section/Key" -> (value, line)."""

    def __init__(self, accelerator: Accelerator) -> None:
        self.accelerator = accelerator
        self.values: Values = {}
        self.stack: list[tuple[int, str]] = []
        self.processes: list[Process] = []
        self.migs: list[MigDevice] = []
        self.in_processes = False
        self.instance = ""

    def path(self, indent: int, key: str) -> str:
        while self.stack and self.stack[-1][0] >= indent:
            self.stack.pop()
        return "/".join([name for _, name in self.stack] + [key])

    def section(self, indent: int, name: str) -> None:
        self.path(indent, name)
        self.stack.append((indent, name))


def _process(gpu: _Gpu, key: str, value: str) -> None:
    if key in ("Process ID", "Process Id"):
        pid = integer(value)
        if pid is not None:
            gpu.processes.append(Process(pid=pid))
    elif gpu.processes:
        process = gpu.processes[-1]
        if key == "Type":
            process.type = value.strip()
        elif key == "Name":
            process.name = value.strip()
        elif key.startswith("Used GPU Memory"):
            process.memory_mib = integer(value)


def _mig(gpu: _Gpu, path: str, value: str) -> None:
    key = path.rsplit("/", 1)[-1]
    if key == "Index":
        gpu.migs.append(MigDevice())
    elif gpu.migs:
        mig = gpu.migs[-1]
        if key == "GPU Instance ID":
            mig.gpu_instance = integer(value)
        elif key == "Compute Instance ID":
            mig.compute_instance = integer(value)
        elif path.endswith(("FB MIG Memory Usage/Total", "FB Memory Usage/Total")):
            mig.memory_total_mib = integer(value)


def _finish(gpu: _Gpu | None, fragment: Fragment, time: float | None) -> None:
    if gpu is None:
        return
    fill(gpu.accelerator, gpu.values, "text", fragment, time)
    if gpu.in_processes:
        gpu.accelerator.processes = gpu.processes
    if gpu.migs:
        gpu.accelerator.mig_devices = gpu.migs
    elif gpu.accelerator.mig_mode and "FB Memory Usage/Total" in gpu.values:  # the whole listing, which has a section an instance
        gpu.accelerator.put("mig_devices", [], gpu.accelerator.ref("mig_mode") or fragment.ref(1))


def parse(block: Block, fragment: Fragment) -> None:
    """Fill one accelerator a "GPU <address>" line. Format: real outputs of drivers 515-610."""
    time = fragment.source.time
    gpu: _Gpu | None = None
    gpus: list[_Gpu] = []
    attached: int | None = None
    for number, line in lines(block, fragment):
        if match := _GPU.match(line):
            _finish(gpu, fragment, time)
            accelerator = fragment.accelerator(number)
            accelerator.put("pci_address", pci_address(match.group(1)), fragment.ref(number))
            gpu = _Gpu(accelerator)
            gpus.append(gpu)
            continue
        if not line.strip() or line.startswith("===="):
            continue
        match = _PAIR.match(line)
        if gpu is None:
            if match is None:
                fragment.unparsed(number, line)
            elif match.group(2) == "Timestamp":
                time = timestamp(match.group(3))
                fragment.source.time = time
            elif match.group(2) == "Attached GPUs":
                attached = integer(match.group(3))
                fragment.snapshot.put("accelerators_attached", attached, fragment.ref(number))
            else:
                put_driver(fragment, match.group(2), match.group(3), number)
            continue
        if not line[0].isspace():
            # Nothing of a GPU starts at the margin: this is the next output, or text pasted below.
            fragment.unparsed(number, line)
            continue
        if match is None:
            section = _SECTION.match(line)
            assert section is not None
            if section.group(2) == "Processes":
                gpu.in_processes = True
            gpu.section(len(section.group(1)), section.group(2))
            continue
        indent, key, value = len(match.group(1)), match.group(2), match.group(3)
        if not value.strip():
            gpu.section(indent, key)
            continue
        path = gpu.path(indent, key)
        if key == "Processes":
            gpu.in_processes = True
        elif path.startswith("Processes/") or (gpu.in_processes and gpu.stack and gpu.stack[0][1] == "Processes"):
            _process(gpu, key, value)
        elif path.startswith("MIG Device"):
            _mig(gpu, path, value)
        else:
            gpu.values.setdefault(path, (value, number))
            # A key that has a value can also head a section ("HW Slowdown : Not Active" above its two kinds).
            gpu.stack.append((indent, key))
    _finish(gpu, fragment, time)
    # nvidia-smi prints GPUs in index order; when all attached ones are printed, position is the index.
    if attached is not None and attached == len(gpus):
        for index, one in enumerate(gpus):
            one.accelerator.put("index", index, one.accelerator.ref(""))
    elif attached is not None and gpus and attached > len(gpus):
        fragment.note(f"nvidia-smi -q: {attached} GPUs attached, {len(gpus)} printed")
