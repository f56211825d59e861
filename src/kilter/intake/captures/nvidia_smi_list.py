"""Outputs that list GPUs by "GPU 0: name (UUID: ...)": ``nvidia-smi -L``, ``nvlink --status``, ``nvlink -e``, ``nvlink -c``, ``nvlink -R``."""

from __future__ import annotations

import re

from kilter.facts.accelerator import Accelerator, MigDevice, NvLink
from kilter.facts.base import Reason
from kilter.facts.pci import pci_address
from kilter.intake.captures.bounded import lines
from kilter.intake.fragment import Block, Fragment

_GPU = re.compile(r"GPU (\d{1,4}): (.{1,200}?) \(UUID: ([^)]{0,200})\)?\s{0,64}$")
_MIG = re.compile(r"\s+MIG (\S+)\s+Device\s+\d+: \(UUID: ([^)]*)\)?")
_LINK = re.compile(r"\s+Link (\d{1,4})[:,]? *(\S?.{0,200}?)\s{0,64}$")
_SPEED = re.compile(r"(\d{1,6}(?:\.\d{1,6})?) GB/s$")
_ERROR = re.compile(r"(?:(.*?)(?: Errors?)?): (\d+)$")
#: ``nvlink -c``: what a link can do, not how it is
_CAPABILITY = re.compile(
    r"(?:P2P|Access to system memory|P2P atomics|System memory atomics|SLI|Link)(?: is)? supported: (?:true|false)$", re.I
)
_FEC = re.compile(r"FEC Errors - (\d{1,2}): (\d{1,20})$")
_BER = re.compile(r"(?:Effective|Symbol) BER: \S+$")
_INACTIVE = re.compile(r".*Unable to retrieve NVLink information as all links are in\s?active", re.I)
_NONE = re.compile(r".*(?:Device does not have or support NVLink|NVLink (?:is )?not supported)", re.I)
_MIG_NOTE = re.compile(r".*Nvlink queries are not supported for Devices in MIG mode", re.I)


def _links(gpu: Accelerator) -> list[NvLink]:
    if gpu.nvlinks is None:
        gpu.nvlinks = []
    return gpu.nvlinks


def _link(gpu: Accelerator, number: int) -> NvLink:
    links = _links(gpu)
    for link in reversed(links):
        if link.id == number:
            return link
    link = NvLink(id=number)
    links.append(link)
    return link


def _put_link(link: NvLink, text: str) -> bool:
    """Read what stands behind "Link 3:"; False if it says nothing known."""
    if match := _SPEED.match(text):
        speed = float(match.group(1))
        link.speed_gb_s = speed
        link.state = "active" if speed > 0 else "inactive"
    elif text.strip("<> ").lower() in ("inactive", "disabled", "off"):
        link.state = text.strip("<> ").lower()
    elif text.lower().startswith("remote device "):
        remote = text[len("remote device ") :].split(":", 1)[-1] if text.count(":") > 3 else text[len("remote device ") :]
        link.remote = pci_address(remote.split(",")[0].split()[0]) or remote
    elif _CAPABILITY.match(text) or _BER.match(text):
        pass
    elif match := _FEC.match(text):
        link.errors[f"FEC Errors - {match[1]}"] = int(match[2])
    elif match := _ERROR.match(text):
        name, count = match.group(1).strip(), int(match.group(2))
        field = {"Replay": "replay_errors", "Recovery": "recovery_errors", "CRC": "crc_errors", "CRC FLIT": "crc_errors"}.get(
            name
        )
        if field is not None:
            setattr(link, field, count)
        else:
            link.errors[name] = count
    elif text:
        link.errors.setdefault(text, 0)
        return False
    return True


def parse(block: Block, fragment: Fragment) -> None:
    """Formats: real outputs of drivers 535-610; counters of ``nvlink -e`` as in NVIDIA's nvidia-smi manual."""
    gpu: Accelerator | None = None
    for number, line in lines(block, fragment):
        ref = fragment.ref(number)
        if match := _GPU.match(line):
            gpu = fragment.accelerator(number)
            gpu.put("index", int(match.group(1)), ref)
            gpu.put("name", match.group(2), ref)
            gpu.put("uuid", match.group(3) or None, ref)
            if match.group(3).startswith("XPU"):
                gpu.vendor = "kunlunxin"
        elif gpu is None:
            fragment.unparsed(number, line)
        elif match := _MIG.match(line):
            gpu.mig_devices = [*(gpu.mig_devices or []), MigDevice(profile=match.group(1), uuid=match.group(2))]
        elif match := _LINK.match(line):
            link = _link(gpu, int(match.group(1)))
            link.origin.setdefault("", ref)
            gpu.origin.setdefault("nvlinks", ref)
            if not _put_link(link, match.group(2)):
                link.errors.clear()
                fragment.unparsed(number, line)
        elif _INACTIVE.match(line):
            gpu.put("nvlinks_inactive", True, ref)
        elif _NONE.match(line):
            gpu.put("nvlinks", [], ref)
            gpu.put("nvlinks_inactive", False, ref)
        elif _MIG_NOTE.match(line):
            gpu.lacks("nvlinks", Reason.NOT_SUPPORTED, "nvidia-smi shows no NVLink of a GPU in MIG mode")
            gpu.put("mig_mode", True, ref)
        else:
            fragment.unparsed(number, line)
    for accelerator in fragment.snapshot.accelerators or []:
        if any(link.state == "active" for link in accelerator.nvlinks or []):
            accelerator.nvlinks_inactive = False
