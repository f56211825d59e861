"""``/proc/driver/nvidia/gpus/*/information`` and ``params``; ``modinfo nvidia`` (the module on disk); ``dkms status``; ``ofed_info -s``.

Sources of the formats: NVIDIA/open-gpu-kernel-modules, kernel-open/nvidia/nv-procfs.c; kmod, tools/modinfo.c; dkms,
its status command; Mellanox OFED, ofed_info.
"""

from __future__ import annotations

import re

from kilter.facts.accelerator import Accelerator
from kilter.facts.base import Missing, Reason
from kilter.facts.host import Module
from kilter.facts.pci import pci_address
from kilter.intake.captures.bounded import lines
from kilter.intake.fragment import Block, Fragment

_PAIR = re.compile(r"([A-Za-z][\w ]{1,40}):[ \t]*(.*)$")
_GPU_KEYS = {
    "Model",
    "IRQ",
    "GPU UUID",
    "Video BIOS",
    "Bus Type",
    "DMA Size",
    "DMA Mask",
    "Bus Location",
    "Device Minor",
    "GPU Firmware",
    "GPU Excluded",
}
_TEXTS = {"Model": "name", "GPU UUID": "uuid", "Video BIOS": "firmware", "GPU Firmware": "gsp_firmware"}
_PARAMETER = re.compile(r"(\w{3,60}): (\S.{0,400}|\"\")$")
_OFED = re.compile(r"(MLNX_OFED_LINUX|OFED-internal|DOCA[\w-]{0,20}?|MLNX_EN)-(\d[\w.-]{2,40}):?$")
_DKMS = re.compile(
    r"(?P<module>[\w.-]{2,60})(?:/|, )(?P<version>[\w.+~-]{1,60})(?:, (?P<kernel>[\w.+~-]{3,80}), [\w-]{2,20})?: (?P<state>added|built|installed)\b"
)
_DISK = "nvidia.ko on disk"


def _information(fragment: Fragment, gpu: Accelerator, key: str, value: str, line: int) -> None:
    ref = fragment.ref(line)
    if "?" in value or value in ("", "N/A", "Unknown"):
        return  # the driver could not ask the GPU
    if field := _TEXTS.get(key):
        gpu.put(field, value, ref)
    elif key == "Bus Location":
        gpu.put("pci_address", pci_address(value), ref)
    elif key == "Device Minor" and re.fullmatch(r"\d{1,5}", value):
        gpu.put("minor", int(value), ref)
    elif key == "GPU Excluded" and value == "Yes":
        fragment.note(f"line {line}: the driver is told to leave this GPU out (NVreg_ExcludedGpus)")


def _parameter(fragment: Fragment, name: str, value: str, line: int) -> None:
    kernel = fragment.snapshot.kernel
    if kernel.modules is None:
        kernel.put("modules", {"nvidia": Module(name="nvidia", origin={"": fragment.ref(line)})}, fragment.ref(line))
        kernel.missing["modules"] = Missing(Reason.NOT_COLLECTED, "only parameters of nvidia were given", "lsmod")
    assert kernel.modules is not None
    module = kernel.modules.setdefault("nvidia", Module(name="nvidia"))
    module.parameters = {**module.parameters, name: value.strip('"')}


def parse(block: Block, fragment: Fragment) -> None:
    """Accelerators by PCI address; parameters of the loaded module; version of the module on disk and of OFED in ``software.packages``."""
    gpu: Accelerator | None = None
    on_disk = False
    for line, raw in lines(block, fragment):
        text = raw.strip()
        if not text:
            continue
        pair = _PAIR.match(text)
        if text.startswith("filename:"):
            on_disk = text.split(".ko")[0].endswith("/nvidia")
        elif match := _OFED.match(text):
            fragment.snapshot.software.packages[match[1]] = match[2]
        elif match := _DKMS.match(text):
            software = fragment.snapshot.software
            software.dkms[f"{match['module']} {match['kernel'] or ''}".strip()] = match["state"]
            software.origin.setdefault("dkms", fragment.ref(line))
        elif pair and pair[1] in _GPU_KEYS:
            if pair[1] == "Model":
                gpu = fragment.accelerator(line)
            if gpu is not None:
                _information(fragment, gpu, pair[1], pair[2].strip(), line)
        elif on_disk and pair and pair[1] == "version":
            fragment.snapshot.software.packages[_DISK] = pair[2].strip()
            fragment.snapshot.software.origin["packages"] = fragment.ref(line)
        elif block.lines[0].startswith("filename:"):
            continue  # aliases, parameters and signatures of modinfo
        elif (match := _PARAMETER.match(text)) and gpu is None:
            _parameter(fragment, match[1], match[2], line)
        else:
            fragment.unparsed(line, raw)
