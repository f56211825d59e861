"""``python -m torch.utils.collect_env``, and vLLM's version of it: versions of PyTorch, CUDA, cuDNN, NCCL, the driver; GPUs.

The CPU part is lscpu's own output and is read by that reader. pytorch/pytorch: torch/utils/collect_env.py.
"""

from __future__ import annotations

import re

from kilter.facts.base import Reason
from kilter.intake.captures.bounded import lines
from kilter.intake.fragment import Block, Fragment

_LINE = re.compile(r"([A-Za-z][\w ./()-]{1,60}?)\s*:\s*(.{0,2000})$")
_GPU = re.compile(r"GPU (\d{1,3}): (.{1,100}?)(?: \(UUID: (\S{1,60})\))?\s*$")
_MIG = re.compile(r"\s+MIG .{1,200}")
_PACKAGE = re.compile(r"\[(pip3?|conda|uv)\] (\S{1,100}?)(?:==|\s+)(\S{1,100})")
_LIBCUDNN = re.compile(r"libcudnn\.so\.(\d{1,2}\.\d{1,3}(?:\.\d{1,3})?)")
_OS = re.compile(r"(.{1,80}?) \((\w{2,12})\)\s*$")
_PLATFORM = re.compile(r"Linux-(\S{1,120}?)-(?:x86_64|aarch64|ppc64le|arm64)")
_NOTHING = {"N/A", "Could not collect", "None", ""}
#: Lines that carry no fact of ours, by their names.
_KNOWN = {
    "Is debug build", "ROCM used to build PyTorch", "GCC version", "Clang version", "CMake version", "Libc version", "Python version",
    "Is CUDA available", "CUDA_MODULE_LOADING set to", "GPU models and configuration", "HIP runtime version", "MIOpen runtime version",
    "Is XNNPACK available", "Is XPU available", "XPU used to build PyTorch", "CPU", "Versions of relevant libraries", "Caching allocator config",
    "Intel GPU driver version", "Intel GPU models onboard", "Intel GPU models detected", "Neuron SDK Version", "vLLM Version", "vLLM Build Flags",
    "GPU Topology", "ROCM Version", "CUDA Archs", "Level Zero version", "oneAPI version",
}  # fmt: skip


def parse(block: Block, fragment: Fragment) -> None:
    """Software, kernel and GPU names. "Could not collect" is no value."""
    snapshot = fragment.snapshot
    software = snapshot.software
    cudnn = False
    for number, line in lines(block, fragment):
        text = line.strip()
        ref = fragment.ref(number)
        if not text or set(text) <= set("=-") or text.startswith(("Collecting environment", "INFO ", "WARNING")):
            continue
        if found := _PACKAGE.match(text):
            software.packages.setdefault(found.group(2), found.group(3))
            if found.group(2).startswith("nvidia-nccl-") and software.nccl_version is None:
                software.put("nccl_version", found.group(3), ref)
            continue
        if cudnn and text.startswith("/"):
            if found := _LIBCUDNN.search(text):
                software.put("cudnn_version", found.group(1), ref)
            continue
        cudnn = False
        if found := _GPU.match(text):
            gpu = fragment.accelerator(number)
            gpu.put("index", int(found.group(1)), ref)
            gpu.put("name", found.group(2), ref)
            gpu.put("uuid", found.group(3), ref)
            continue
        if _MIG.match(line) and "Device" in line:
            continue
        match = _LINE.match(text)
        if match is None:
            if not text.endswith(("Info", "Variables", "Probably one of the following:")) and not text.startswith(
                ("[pip", "[conda")
            ):
                fragment.unparsed(number, line)
            continue
        name, value = match.group(1).strip(), match.group(2).strip()
        if name == "cuDNN version":
            cudnn = "one of the following" in value or not value
            if not cudnn:
                _cudnn(fragment, value, number)
        elif not _field(fragment, name, value, number) and name not in _KNOWN:
            fragment.unparsed(number, line)


def _cudnn(fragment: Fragment, value: str, number: int) -> None:
    software = fragment.snapshot.software
    if found := _LIBCUDNN.search(value):
        software.put("cudnn_version", found.group(1), fragment.ref(number))
    elif value.isdecimal() and len(value) in (4, 5):
        # CUDNN_VERSION: 1000 x major + 100 x minor + patch up to 8.x, 10000 x major + 100 x minor + patch from 9.0
        scale = 1000 if len(value) == 4 else 10000
        code = int(value)
        software.put("cudnn_version", f"{code // scale}.{code % scale // 100}.{code % 100}", fragment.ref(number))
    elif value in _NOTHING:
        software.lacks("cudnn_version", Reason.NOT_READABLE, "collect_env could not collect it")


def _field(fragment: Fragment, name: str, value: str, number: int) -> bool:
    snapshot, ref = fragment.snapshot, fragment.ref(number)
    software = snapshot.software
    have = value not in _NOTHING
    if name == "PyTorch version":
        if have:
            software.packages["torch"] = value
    elif name == "CUDA used to build PyTorch":
        if have:
            software.packages["torch-cuda"] = value
    elif name == "CUDA runtime version":
        software.put("cuda_toolkit_version", value.split()[0] if have else None, ref)
        if not have:
            software.lacks("cuda_toolkit_version", Reason.NOT_READABLE, "collect_env could not collect it")
    elif name == "Nvidia driver version":
        software.put("driver_version", value if re.fullmatch(r"\d{1,4}(?:\.\d{1,4}){1,2}", value) else None, ref)
    elif name == "OS":
        found = _OS.match(value)
        snapshot.host.put("os_name", found.group(1) if found else value if have else None, ref)
        snapshot.kernel.put("arch", found.group(2) if found else None, ref)
    elif name == "Python platform":
        found = _PLATFORM.match(value)
        snapshot.kernel.put("release", found.group(1) if found else None, ref)
    else:
        return False
    return True
