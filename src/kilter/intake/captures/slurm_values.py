"""Values that Slurm's tools share: GPU counts, durations, times, host lists, states.

Forms: Slurm's manual pages (sinfo, squeue, scontrol), outputs of Slurm 20.11 and 22.05, and src/common/hostlist.c for host lists.
"""

from __future__ import annotations

import datetime
import re

#: More names than this in one block are not expanded: "node[1-999999999]" is one line.
MAX_HOSTS = 100_000
#: Words that stand for no value.
NOTHING = frozenset(
    {"", "n/a", "(null)", "null", "none", "unknown", "invalid", "n/s", "not_set", "partition_limit", "none assigned", "(none)"}
)

_PARENS = re.compile(r"\([^()]*\)")
_GPU_PART = re.compile(r"(?:gres[:/])?gpu(?:[:/](?P<type>[^:=,]+?))??(?:[:=](?P<count>\d{1,6}))?$", re.I)
_DURATION = re.compile(r"(?:(\d{1,6})-)?(\d{1,8})(?::(\d{1,2}))?(?::(\d{1,2}))?$")
_BRACKETS = re.compile(r"(?<![^\[\],])([^\[\],]*)\[([^\[\]]*)\]")


def nothing(text: str) -> bool:
    """Whether a cell holds no value."""
    return text.strip().lower() in NOTHING


def gpus(text: str) -> tuple[int, str] | None:
    """(number of GPUs, their type) of a GRES or TRES text, None when it names no GPU.

    ``gpu:h100:8(S:0-1)``, ``gpu:8``, ``gres:gpu:2``, ``gres/gpu:a100=4``, ``cpu=24,gres/gpu=2``. A TRES text may name the sum and the
    types (``gres/gpu=8,gres/gpu:h100=8``): with a sum, the types are not added to it.
    """
    total: int | None = None
    whole: int | None = None
    kind = ""
    for part in _PARENS.sub("", text[:4000]).split(","):
        match = _GPU_PART.match(part.strip())
        if match is None:
            continue
        count = int(match["count"]) if match["count"] else 1
        kind = kind or match["type"] or ""
        if match["type"] is None and "=" in part:
            whole = count
        else:
            total = (total or 0) + count
    if whole is not None:
        return whole, kind
    return None if total is None else (total, kind)


def tres_cpus(text: str) -> int | None:
    """CPUs of a TRES text (``cpu=24,mem=10G``)."""
    match = re.search(r"(?:^|,)cpu=(\d{1,9})(?![\d.])", text[:4000])
    return int(match.group(1)) if match else None


def number(text: str) -> int | None:
    """A plain whole number; ``64+`` (sinfo: at least) and ranges are none."""
    text = text.strip()
    return int(text) if text.isascii() and text.isdecimal() and len(text) < 16 else None


def duration(text: str) -> float | None:
    """Seconds of ``days-hh:mm:ss``, ``hh:mm:ss`` or ``mm:ss``; None for UNLIMITED, INVALID and the like."""
    match = _DURATION.match(text.strip())
    if match is None:
        return None
    days, first, second, third = match.groups()
    if second is None and days is None:
        return None  # a bare number could be anything
    if days is not None:
        hours, minutes, seconds = int(first), int(second or 0), int(third or 0)
    elif third is not None:
        hours, minutes, seconds = int(first), int(second), int(third)
    else:
        hours, minutes, seconds = 0, int(first), int(second)
    return float(int(days or 0) * 86400 + hours * 3600 + minutes * 60 + seconds)


def moment(text: str) -> float | None:
    """Seconds of ``2026-12-01T00:39:06`` (the controller's local time, read as if it were UTC), None for Unknown."""
    text = text.strip()[:19]
    try:
        return datetime.datetime.strptime(text, "%Y-%m-%dT%H:%M:%S").replace(tzinfo=datetime.timezone.utc).timestamp()
    except ValueError:
        return None


def printed_at(text: str) -> float | None:
    """The time that ``sinfo -l`` and ``squeue -l`` print first: ``Tue Dec 01 00:39:41 2026``."""
    try:
        found = datetime.datetime.strptime(" ".join(text.split()), "%a %b %d %H:%M:%S %Y")
    except ValueError:
        return None
    return found.replace(tzinfo=datetime.timezone.utc).timestamp()


def _top_level(text: str) -> list[str]:
    parts, depth, start = [], 0, 0
    for index, char in enumerate(text):
        if char == "[":
            depth += 1
        elif char == "]":
            depth = max(depth - 1, 0)
        elif char == "," and depth == 0:
            parts.append(text[start:index])
            start = index + 1
    return [*parts, text[start:]]


def _ranges(text: str, limit: int) -> list[str] | None:
    out: list[str] = []
    for span in text.split(","):
        low, dash, high = span.strip().partition("-")
        if not low.isdecimal() or (dash and not high.isdecimal()) or len(low) > 12 or len(high) > 12:
            return None
        first, last = int(low), int(high or low)
        if last < first or last - first + len(out) >= limit:
            return None
        width = len(low)
        out += [str(value).zfill(width) for value in range(first, last + 1)]
    return out


def hosts(text: str) -> list[str] | None:
    """The names of a host list (``gpu[01-04,07],login1``), in order; None when it is none, is cut off or is too long."""
    text = text.strip()
    if nothing(text) or len(text) > 100_000 or text.count("[") != text.count("]"):
        return None
    names: list[str] = []
    for part in _top_level(text):
        part = part.strip()
        if not part or any(char.isspace() for char in part):
            return None
        expanded = [""]
        end = 0
        for match in _BRACKETS.finditer(part):
            ranges = _ranges(match.group(2), MAX_HOSTS)
            if ranges is None or match.start() != end or len(expanded) * len(ranges) + len(names) > MAX_HOSTS:
                return None
            expanded = [head + match.group(1) + one for head in expanded for one in ranges]
            end = match.end()
        tail = part[end:]
        if "[" in tail or "]" in tail or len(names) + len(expanded) > MAX_HOSTS:
            return None
        names += [head + tail for head in expanded]
    return names


#: squeue's short codes (%t) and what %T prints for them.
JOB_STATES = {
    "BF": "BOOT_FAIL",
    "CA": "CANCELLED",
    "CD": "COMPLETED",
    "CF": "CONFIGURING",
    "CG": "COMPLETING",
    "DL": "DEADLINE",
    "F": "FAILED",
    "NF": "NODE_FAIL",
    "OOM": "OUT_OF_MEMORY",
    "PD": "PENDING",
    "PR": "PREEMPTED",
    "R": "RUNNING",
    "RD": "RESV_DEL_HOLD",
    "RF": "REQUEUE_FED",
    "RH": "REQUEUE_HOLD",
    "RQ": "REQUEUED",
    "RS": "RESIZING",
    "RV": "REVOKED",
    "S": "SUSPENDED",
    "SE": "SPECIAL_EXIT",
    "SI": "SIGNALING",
    "SO": "STAGE_OUT",
    "ST": "STOPPED",
    "TO": "TIMEOUT",
}

#: Words of sinfo's states, compact and long.
_NODE_STATES_WORDS = (
    "alloc allocated boot blocked comp completing down drain drained draining drng fail failing failg future futr idle "
    "inval maint mix mixed npc no_respond perfctrs plnd planned pow_dn pow_up power_down power_up powered_down "
    "powering_down powering_up power_down reboot reboot_issued rebooting reserved resv unk unknown error err not_responding "
    "dynamic_norm"
)
NODE_STATES = frozenset(_NODE_STATES_WORDS.split())


def is_node_state(text: str) -> bool:
    """Whether ``text`` is a state as sinfo or scontrol prints it: ``drained*``, ``mix-``, ``IDLE+DRAIN``."""
    words = text.strip().lower().split("+")
    return bool(words) and all(word.rstrip("*~#!%$@^-") in NODE_STATES for word in words)


def is_job_state(text: str) -> bool:
    return text.strip() in _LONG_STATES


_LONG_STATES = frozenset(JOB_STATES.values())
