"""What ``nvidia-smi`` says when it cannot work: lost device, no driver, mismatching versions, no permission."""

from __future__ import annotations

import re

from kilter.facts.pci import pci_address
from kilter.intake.captures.bounded import lines
from kilter.intake.fragment import Block, Fragment

_HANDLE = re.compile(r"Unable to determine the device handle for (?:gpu |GPU ?)([0-9A-Fa-f:.]+): {0,16}(.*?)\.?$", re.I)
_SOFTWARE = re.compile(r"(?:Failed to initialize NVML: .*|NVIDIA-SMI has failed because .*|No devices were found.*)")
_VERSION = re.compile(r"NVML library version: ([\d.]+)")


def parse(block: Block, fragment: Fragment) -> None:
    """A device that cannot be opened becomes an accelerator with ``error``; anything else is ``software.driver_error``."""
    for number, line in lines(block, fragment):
        ref = fragment.ref(number)
        if match := _HANDLE.match(line.strip()):
            accelerator = fragment.accelerator(number)
            accelerator.put("pci_address", pci_address(match.group(1)), ref)
            accelerator.put("error", f"Unable to determine the device handle: {match.group(2)}", ref)
        elif _SOFTWARE.match(line.strip()):
            fragment.snapshot.software.put("driver_error", line.strip(), ref)
        elif match := _VERSION.match(line.strip()):
            fragment.snapshot.software.put("driver_library_version", match.group(1), ref)
        else:
            fragment.unparsed(number, line)
