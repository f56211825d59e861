"""``nvidia-smi --version``."""

from __future__ import annotations

from kilter.intake.captures.bounded import lines
from kilter.intake.captures.nvidia_smi import put_driver
from kilter.intake.fragment import Block, Fragment


def parse(block: Block, fragment: Fragment) -> None:
    """Driver and CUDA version; from R610 on they are called KMD and CUDA UMD version."""
    for number, line in lines(block, fragment):
        key, colon, value = line.partition(":")
        if colon and key.strip().lower().endswith("version"):
            put_driver(fragment, key, value, number)
        else:
            fragment.unparsed(number, line)
