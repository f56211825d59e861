"""``sysctl -a``, ``sysctl key ...`` and ``/etc/sysctl.d`` style lines: ``key = value``.

Values keep their text, with each run of blanks as one blank (the kernel separates several numbers with tabs).
Source of the format: procps-ng/procps, src/sysctl.c.
"""

from __future__ import annotations

import re

from kilter.facts.base import Reason
from kilter.intake.captures.bounded import lines
from kilter.intake.fragment import Block, Fragment

_LINE = re.compile(r"([a-z][a-z0-9_-]*[./][^\s=]+) ?= ?(.*)$")
_DENIED = re.compile(r"sysctl: (?:permission denied on key|reading key|error: permission denied on key) ['\"]([^'\"]+)['\"]")
_ABSENT = re.compile(r"sysctl: (?:cannot stat|error:) /proc/sys/(\S+?):")


def parse(block: Block, fragment: Fragment) -> None:
    """``snapshot.kernel.sysctls``; a key that could not be read gets its reason under ``sysctls.<key>``."""
    kernel = fragment.snapshot.kernel
    for line, raw in lines(block, fragment):
        text = raw.strip()
        if not text or text.startswith(("#", ";")):
            continue
        if match := _LINE.match(text):
            key = match[1]
            if "/" in key.partition(".")[0]:  # net/ipv4/ip_forward = 1
                key = key.replace(".", "\0").replace("/", ".").replace("\0", "/")
            kernel.sysctls[key] = " ".join(match[2].split())
            kernel.origin[f"sysctls.{key}"] = fragment.ref(line)
        elif match := _DENIED.match(text):
            kernel.lacks(f"sysctls.{match[1]}", Reason.NOT_READABLE, "sysctl: permission denied", "run sysctl as root")
        elif match := _ABSENT.match(text):
            kernel.lacks(f"sysctls.{match[1].replace('/', '.')}", Reason.ABSENT, f"/proc/sys/{match[1]} does not exist")
        else:
            fragment.unparsed(line, raw)
