"""Values of NCCL's variables: out of range, in an old form, the default of this version, for diagnosis only."""

from __future__ import annotations

import re
from collections.abc import Iterator

from kilter.knowledge import env_variables as table
from kilter.knowledge import tunables
from kilter.tune.expression import version_key
from kilter.tune.lint.report import MANUAL, Report, Target, at_least, say
from kilter.tune.lint.setting import Setting

#: Variable of NCCL -> (pattern of its values, what they are). Source: NVIDIA/nccl docs/userguide/source/env.rst.
_VALUES: dict[str, tuple[re.Pattern[str], str]] = {
    "NCCL_IB_RETRY_CNT": (re.compile(r"[0-7]$"), "0 to 7: the field has three bits"),
    "NCCL_IB_TIMEOUT": (re.compile(r"(?:[0-9]|1\d|2\d|30|31)$"), "0 to 31: the time is 4.096 us x 2^value"),
    "NCCL_DEBUG": (re.compile(r"(?:NONE|VERSION|WARN|INFO|ABORT|TRACE|\d)$", re.I), "VERSION, WARN, INFO or TRACE"),
    "NCCL_SOCKET_FAMILY": (re.compile(r"AF_INET6?$"), "AF_INET or AF_INET6"),
    "NCCL_IB_ADDR_FAMILY": (re.compile(r"AF_INET6?$"), "AF_INET or AF_INET6"),
    "NCCL_P2P_LEVEL": (re.compile(r"(?:LOC|NVL|PIX|PXB|P2C|PXN|PHB|SYS|NODE|[0-6])$"), "LOC, NVL, PIX, PXB, PHB or SYS"),
    "NCCL_NET_GDR_LEVEL": (re.compile(r"(?:LOC|PIX|PXB|P2C|PXN|PHB|SYS|NODE|[0-6])$"), "LOC, PIX, PXB, PHB or SYS"),
    "NCCL_CROSS_NIC": (re.compile(r"[012]$"), "0, 1 or 2"),
    "NCCL_LAUNCH_MODE": (re.compile(r"(?:PARALLEL|GROUP)$", re.I), "PARALLEL or GROUP"),
}
_SWITCH = re.compile(r"NCCL_(?:\w+_DISABLE|\w+_ENABLE)$")
_WORD = re.compile(r"(?:true|false|yes|no|on|off)$", re.I)
#: In the manual's section Debugging, and right in production all the same.
_FINE = {
    "NCCL_DEBUG",
    "NCCL_DEBUG_FILE",
    "NCCL_DEBUG_SUBSYS",
    "NCCL_CUMEM_ENABLE",
    "NCCL_MNNVL_ENABLE",
    "NCCL_RAS_ENABLE",
    "NCCL_TOPO_FILE",
}
_DANGEROUS = {
    "NCCL_CHUNK_SIZE": ("from 1 MiB on it gives wrong results without an error; a figure above the rail's rate (49 GB/s for 400G) is no gain. "
                        "Safe neighbours: NCCL_P2P_NET_CHUNKSIZE with NCCL_BUFFSIZE", "NVIDIA/nccl#2408, #1496"),
}  # fmt: skip
_ALGORITHMS = {"ring", "tree", "collnet", "collnetchain", "collnetdirect", "nvls", "nvlstree", "pat"}


def dangerous(setting: Setting) -> Iterator[Report]:
    if setting.name in _DANGEROUS:
        why, source = _DANGEROUS[setting.name]
        yield say("env.dangerous", "error", setting, why, "", source)


def conf_reports(setting: Setting) -> Iterator[Report]:
    """Of a line of NCCL's own file, which is taken as it stands: no ``export``, no quotes, no comment behind a value
    (NVIDIA/nccl src/misc/param.cc)."""
    name, value = setting.name, setting.value or ""
    plain = re.sub(r"^\s*export\s+", "", name).strip()
    said = value.partition(" #")[0].strip().strip("\"'")
    if name != plain:
        message = f"NCCL takes all that stands before '=' as the name, so that {plain} is not set"
    elif value != said:
        message = f"NCCL takes all that stands after '=' as the value, quotes, blanks and comments too: {value!r}"
    else:
        return
    yield say("env.syntax", "error", setting, message, f"{plain}={said}", "NVIDIA/nccl src/misc/param.cc")


def value_reports(setting: Setting, variable: table.Variable, target: Target, *, profile: bool) -> Iterator[Report]:
    """Of a variable that this version reads. ``profile``: it belongs to a cloud's own set, whose values are tested together."""
    name, value = setting.name, setting.value or ""
    wrong = list(_wrong(setting, target, profile=profile))
    yield from wrong
    if wrong:
        return
    default = _default(variable, target.nccl)
    if default is not None and number(value) == number(default) and name not in _FINE:
        yield say("env.redundant", "note", setting, f"{value} is the default of NCCL {target.nccl}", "", MANUAL)
    elif variable.deprecated and at_least(target.nccl, variable.deprecated):
        yield say("env.deprecated", "note", setting, f"deprecated since {variable.deprecated}", None, MANUAL)
    elif variable.section == "debug" and name not in _FINE and not profile:
        entry = tunables.lookup(f"nccl.{name}")
        risk = f": {entry.risk}" if entry is not None and entry.risk not in ("", "-", "None known.") else ""
        yield say("env.debug", "note", setting, f"the manual lists it for debugging, not for production{risk}", "", MANUAL)


def number(text: str) -> str | int:
    return int(text, 0) if re.fullmatch(r"-?(?:0x[0-9a-fA-F]{1,16}|[1-9]\d{0,18}|0)", text) else text


def _default(variable: table.Variable, version: str) -> str | None:
    """The default of a version; None where it is not known or stands for a choice of NCCL's own (-2, -1)."""
    if not version:
        return None
    known = [value for since, value in variable.default if version_key(since) <= version_key(version)]
    return known[-1] if known and not known[-1].startswith("-") else None


def _wrong(setting: Setting, target: Target, *, profile: bool) -> Iterator[Report]:
    name, value = setting.name, setting.value or ""
    if name in ("NCCL_IB_HCA", "NCCL_SOCKET_IFNAME"):
        yield from _list(setting)
    elif name in _VALUES and value and not _VALUES[name][0].match(value):
        severity = "warning" if name == "NCCL_DEBUG" else "error"  # an unknown level is no level, and stops nothing
        yield say("env.range", severity, setting, f"{value!r} is out of range; expected {_VALUES[name][1]}", "", MANUAL)
    elif name in ("NCCL_NET_GDR_LEVEL", "NCCL_P2P_LEVEL") and value.isdecimal():
        words = "SYS" if int(value) >= 5 else "PIX, PXB, PHB or SYS"
        message = f"numbers are the old form; use the string ({words}) or unset it"
        yield say("env.legacy-value", "warning", setting, message, "", MANUAL)
    elif name == "NCCL_IB_GID_INDEX" and at_least(target.nccl, "2.21") and not profile:
        message = "since 2.21 NCCL finds the RoCE GID itself; a fixed index breaks where a table differs"
        yield say("env.obsolete", "warning", setting, message, "", MANUAL)
    elif name == "NCCL_IB_TIMEOUT" and at_least(target.nccl, "2.23") and value.isdecimal() and int(value) > 20:
        message = f"{value} is above the default 20; acceptable, failures are seen later"
        yield say("env.above-default", "note", setting, message, None, MANUAL)
    elif name == "NCCL_ALGO":
        yield from _algorithm(setting, target)
    elif name == "NCCL_PROTO" and ":" not in value and not _protocols(value):
        yield say("env.range", "error", setting, f"{value!r}; expected LL, LL128 or Simple", "", MANUAL)
    elif _SWITCH.match(name) and _WORD.match(value):
        digit = "1" if value.lower() in ("true", "yes", "on") else "0"
        message = f"{value!r} is no number and reads as 0; expected 0 or 1"
        yield say("env.range", "error", setting, message, f"{name}={digit}", MANUAL)


def _protocols(value: str) -> bool:
    return all(part.strip().lstrip("^").upper() in ("LL", "LL128", "SIMPLE") for part in value.split(","))


def _algorithm(setting: Setting, target: Target) -> Iterator[Report]:
    value = setting.value or ""
    if ":" in value or ";" in value:
        return  # by function, since 2.24
    names = [part.strip().lstrip("^").lower() for part in value.split(",") if part.strip()]
    unknown = [part for part in names if part not in _ALGORITHMS]
    if unknown:
        message = f"no algorithm {unknown[0]!r}; expected {', '.join(sorted(_ALGORITHMS))}"
        yield say("env.range", "error", setting, message, "", MANUAL)
    elif names and not value.startswith("^") and "ring" not in names and at_least(target.nccl, "2.24"):
        message = f"since 2.24 a function that has no {value} fails instead of taking ring; add ring or unset it"
        yield say("env.algorithm", "warning", setting, message, "", MANUAL)


def _list(setting: Setting) -> Iterator[Report]:
    name, value = setting.name, setting.value or ""
    if re.search(r",\s*[\^=]", value):
        fixed = f"{name}={re.sub(r',[^^=]*[=^]+', ',', value)}"
        message = "'^' and '=' stand once, before the whole list ('^=a,b')"
        yield say("env.syntax", "error", setting, message, fixed, "NVIDIA/nccl-tests#150")
        return
    if value.startswith(("=", "^=")) or name != "NCCL_IB_HCA":
        return
    plain = [part.partition(":")[0] for part in value.lstrip("^").split(",")]
    exact = [part for part in plain if re.search(r"_\d$", part)]
    if exact:
        first = exact[0]
        fixed = f"{name}={'^=' if value.startswith('^') else '='}{value.lstrip('^')}"
        yield say(
            "env.prefix", "warning", setting, f"add '=' before the list: {first} also matches {first}0 to {first}9", fixed, MANUAL
        )
