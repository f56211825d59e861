"""What is wrong with settings, for one set of versions. What depends on a version that is not known is not said."""

from __future__ import annotations

import difflib
import re
from collections.abc import Iterable, Iterator

import msgspec

from kilter.facts.workload import Workload
from kilter.knowledge import env_variables as table
from kilter.knowledge import tunables
from kilter.tune.expression import version_key
from kilter.tune.lint.settings import Setting

SEVERITIES = ("error", "warning", "note")


class Target(msgspec.Struct, omit_defaults=True):
    """What the settings are for; "" or None = not known."""

    nccl: str = ""
    torch: str = ""
    gpu_sm: int | None = None  # compute capability times 10
    nodes: int | None = None


class Report(msgspec.Struct, kw_only=True, omit_defaults=True):
    """One thing to say of one setting. ``fix``: the new text of the setting, "" = take the line away, None = none is known."""

    id: str
    severity: str
    setting: Setting
    message: str
    fix: str | None = None
    source: str = ""


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
#: What marks a cloud's own profile, whose values belong together and are not to be judged one by one.
_PROFILE = re.compile(r"NCCL_(?:FASTRAK|GPUDIRECTTCPX|LLCM|GIB|SHIMNET)_|NCCL_NET=(?:gIB|FasTrak)")
_ALGORITHMS = {"ring", "tree", "collnet", "collnetchain", "collnetdirect", "nvls", "nvlstree", "pat"}


def judge(found: list[Setting], target: Target, workload: Workload | None = None) -> list[Report]:
    """Reports on settings of one job, in their order."""
    last = {s.name: s for s in found}
    vendor = any(_PROFILE.match(s.name) or _PROFILE.match(f"{s.name}={s.value}") for s in found)
    reports: list[Report] = []
    for setting in found:
        if setting.value is None:
            continue
        if last[setting.name] is not setting:
            later = last[setting.name]
            if later.value is not None and later.value != setting.value and later.file == setting.file:
                reports.append(_say("env.overridden", "note", setting, f"set to {later.value!r} again in line {later.line}"))
            continue
        reports += list(_one(setting, target, vendor))
    reports += list(_pairs(last, target))
    reports += list(_connections(last, target, workload))
    return sorted(reports, key=lambda r: (r.setting.file, r.setting.line, r.setting.column, SEVERITIES.index(r.severity)))


def _say(id_: str, severity: str, setting: Setting, message: str, fix: str | None = None, source: str = "") -> Report:
    return Report(id=id_, severity=severity, setting=setting, message=f"{setting.name}: {message}", fix=fix, source=source)


_MANUAL = "NVIDIA/nccl docs/userguide/source/env.rst"


def _at_least(version: str, bound: str) -> bool | None:
    return None if not version else version_key(version) >= version_key(bound)


def _one(setting: Setting, target: Target, vendor: bool) -> Iterator[Report]:
    name, value = setting.name, setting.value or ""
    if name in table.moved():
        new = table.moved()[name]
        yield _say(
            "env.renamed", "warning", setting, f"PyTorch reads {new} since 2.2", f"{new}={value}", "pytorch/pytorch#114077"
        )
        return
    if name in _DANGEROUS:
        why, source = _DANGEROUS[name]
        yield _say("env.dangerous", "error", setting, why, "", source)
        return
    if not name.startswith("NCCL_"):
        yield from _others(setting)
        return
    variable = table.variables().get(name)
    if variable is None:
        yield from _unknown(setting)
        return
    if variable.renamed:
        yield _say(
            "env.renamed", "warning", setting, f"its name is {variable.renamed} now", f"{variable.renamed}={value}", _MANUAL
        )
        return
    if variable.removed and (not target.nccl or _at_least(target.nccl, variable.removed)):
        if target.nccl or version_key(variable.removed) <= version_key("2.5"):
            instead = f"; see {variable.instead}" if variable.instead else ""
            since = (
                f"removed in {variable.removed}"
                if version_key(variable.removed) > version_key("2.4")
                else "removed, no version since 2.4 reads it"
            )
            yield _say("env.removed", "warning", setting, f"{since}{instead}", "", _MANUAL)
        return
    if variable.since and _at_least(target.nccl, variable.since) is False:
        yield _say(
            "env.too-new",
            "warning",
            setting,
            f"NCCL {target.nccl} does not read it; it came with {variable.since}",
            None,
            _MANUAL,
        )
        return
    wrong = list(_value(setting, target))
    yield from wrong
    if wrong:
        return
    default = _default(variable, target.nccl)
    if default is not None and _number(value) == _number(default) and name not in _FINE:
        yield _say("env.redundant", "note", setting, f"{value} is the default of NCCL {target.nccl}", "", _MANUAL)
    elif variable.deprecated and _at_least(target.nccl, variable.deprecated):
        yield _say("env.deprecated", "note", setting, f"deprecated since {variable.deprecated}", None, _MANUAL)
    elif variable.section == "debug" and name not in _FINE and not vendor:
        entry = tunables.lookup(f"nccl.{name}")
        risk = f": {entry.risk}" if entry is not None and entry.risk not in ("", "-", "None known.") else ""
        yield _say("env.debug", "note", setting, f"the manual lists it for debugging, not for production{risk}", "", _MANUAL)


def _number(text: str) -> str | int:
    return int(text, 0) if re.fullmatch(r"-?(?:0x[0-9a-fA-F]+|[1-9]\d{0,18}|0)", text) else text


def _default(variable: table.Variable, version: str) -> str | None:
    """The default of a version; None where it is not known or stands for a choice of NCCL's own (-2, -1)."""
    if not version:
        return None
    known = [value for since, value in variable.default if version_key(since) <= version_key(version)]
    return known[-1] if known and not known[-1].startswith("-") else None


def _unknown(setting: Setting) -> Iterator[Report]:
    if table.owner(setting.name):
        return
    near = table.near(setting.name)
    if not near and not setting.plain:
        yield _say("env.unknown", "note", setting, "NCCL 2.4 to 2.30 has no such variable", None, "NVIDIA/nccl, release tags")
        return
    alike = difflib.SequenceMatcher(None, near, setting.name).ratio()
    if not near or (setting.plain and alike < 0.92):
        return  # a variable of the script itself may be named a little alike
    meant = table.variables()[near]
    fix = f"{near}={setting.value}" if alike >= 0.92 else None  # less alike, it may be another thing
    more = f" (deprecated since {meant.deprecated})" if meant.deprecated else ""
    yield _say(
        "env.misspelt",
        "warning",
        setting,
        f"no such variable; did you mean {near}{more}?",
        fix,
        "NVIDIA/nccl, release tags",
    )


def _value(setting: Setting, target: Target) -> Iterator[Report]:
    name, value = setting.name, setting.value or ""
    if name in ("NCCL_IB_HCA", "NCCL_SOCKET_IFNAME"):
        yield from _list(setting)
        return
    if name in _VALUES and value and not _VALUES[name][0].match(value):
        yield _say("env.range", "error", setting, f"{value!r} is out of range; expected {_VALUES[name][1]}", "", _MANUAL)
    elif name in ("NCCL_NET_GDR_LEVEL", "NCCL_P2P_LEVEL") and value.isdecimal():
        words = "SYS" if int(value) >= 5 else "PIX, PXB, PHB or SYS"
        yield _say(
            "env.legacy-value", "warning", setting, f"numbers are the old form; use the string ({words}) or unset it", "", _MANUAL
        )
    elif name == "NCCL_IB_GID_INDEX" and _at_least(target.nccl, "2.21"):
        yield _say(
            "env.obsolete",
            "warning",
            setting,
            "since 2.21 NCCL finds the RoCE GID itself; a fixed index breaks where a table differs",
            "",
            _MANUAL,
        )
    elif name == "NCCL_IB_TIMEOUT" and _at_least(target.nccl, "2.23") and value.isdecimal() and int(value) > 20:
        yield _say(
            "env.above-default",
            "note",
            setting,
            f"{value} is above the default 20; acceptable, failures are seen later",
            None,
            _MANUAL,
        )
    elif name == "NCCL_ALGO":
        yield from _algorithm(setting, target)
    elif (
        name == "NCCL_PROTO"
        and not all(p.strip().lstrip("^").upper() in ("LL", "LL128", "SIMPLE") for p in value.split(","))
        and ":" not in value
    ):
        yield _say("env.range", "error", setting, f"{value!r}; expected LL, LL128 or Simple", "", _MANUAL)
    elif _SWITCH.match(name) and value and re.fullmatch(r"true|false|yes|no|on|off", value, re.I):
        number = "1" if value.lower() in ("true", "yes", "on") else "0"
        yield _say(
            "env.range", "error", setting, f"{value!r} is no number and reads as 0; expected 0 or 1", f"{name}={number}", _MANUAL
        )


def _algorithm(setting: Setting, target: Target) -> Iterator[Report]:
    value = setting.value or ""
    if ":" in value or ";" in value:
        return  # by function, since 2.24
    names = [part.strip().lstrip("^").lower() for part in value.split(",") if part.strip()]
    unknown = [part for part in names if part not in _ALGORITHMS]
    if unknown:
        yield _say(
            "env.range", "error", setting, f"no algorithm {unknown[0]!r}; expected {', '.join(sorted(_ALGORITHMS))}", "", _MANUAL
        )
    elif not value.startswith("^") and "ring" not in names and _at_least(target.nccl, "2.24"):
        yield _say(
            "env.algorithm",
            "warning",
            setting,
            f"since 2.24 a function that has no {value} fails instead of taking ring; add ring or unset it",
            "",
            _MANUAL,
        )


def _list(setting: Setting) -> Iterator[Report]:
    name, value = setting.name, setting.value or ""
    if re.search(r",\s*[\^=]", value):
        yield _say(
            "env.syntax",
            "error",
            setting,
            "'^' and '=' stand once, before the whole list ('^=a,b')",
            f"{name}={re.sub(r',[^^=]*[=^]+', ',', value)}",
            "NVIDIA/nccl-tests#150",
        )
        return
    if value.startswith(("=", "^=")) or name != "NCCL_IB_HCA":
        return
    plain = [part.partition(":")[0] for part in value.lstrip("^").split(",")]
    exact = [part for part in plain if re.search(r"_\d$", part)]
    if exact:
        first = exact[0]
        fixed = f"{name}={'^=' if value.startswith('^') else '='}{value.lstrip('^')}"
        yield _say(
            "env.prefix",
            "warning",
            setting,
            f"add '=' before the list: {first} also matches {first}0 to {first}9",
            fixed,
            _MANUAL,
        )


def _others(setting: Setting) -> Iterator[Report]:
    name, value = setting.name, setting.value or ""
    if name == "TORCH_NCCL_BLOCKING_WAIT" and value == "1":
        yield _say("env.debug", "note", setting, "for diagnosis: the host waits for every collective", "")
    elif name == "TORCH_NCCL_ASYNC_ERROR_HANDLING" and value == "0":
        yield _say("env.dangerous", "warning", setting, "a failed collective hangs the job instead of ending it", "")
    elif name == "CUDA_LAUNCH_BLOCKING" and value == "1":
        yield _say(
            "env.debug",
            "warning",
            setting,
            "for diagnosis: every kernel launch waits for its end",
            "",
            "CUDA Programming Guide, environment variables",
        )
    elif name == "FI_EFA_USE_DEVICE_RDMA" and value == "0":
        yield _say("env.dangerous", "warning", setting, "switches GPUDirect RDMA off", "")
    elif name == "RDMAV_FORK_SAFE":
        yield _say("env.debug", "note", setting, "breaks registration of large buffers on EFA", "")


def _pairs(last: dict[str, Setting], target: Target) -> Iterator[Report]:
    """Settings that contradict each other."""

    def value(name: str) -> str | None:
        setting = last.get(name)
        return setting.value if setting is not None else None

    if value("NCCL_IB_DISABLE") == "1":
        for name in ("NCCL_IB_HCA", "NCCL_IB_TIMEOUT", "NCCL_IB_QPS_PER_CONNECTION", "NCCL_IB_TC", "NCCL_IB_GID_INDEX"):
            if value(name) is not None:
                yield _say(
                    "env.conflict",
                    "warning",
                    last[name],
                    f"has no effect: NCCL_IB_DISABLE=1 in line {last['NCCL_IB_DISABLE'].line}",
                    None,
                )
    if value("NCCL_PROTO") is not None and value("NCCL_TUNER_PLUGIN") not in (None, "none"):
        yield _say(
            "env.conflict",
            "warning",
            last["NCCL_PROTO"],
            "together with a tuner plugin NCCL may fail to start",
            "",
            "aws/aws-ofi-nccl#982",
        )
    if value("NCCL_GRAPH_STREAM_ORDERING") == "0" and value("NCCL_GRAPH_MIXING_SUPPORT") != "0":
        yield _say(
            "env.conflict",
            "warning",
            last["NCCL_GRAPH_STREAM_ORDERING"],
            "0 is unsupported with graph mixing, which is on by default",
            "",
            _MANUAL,
        )
    if value("NCCL_MIN_NCHANNELS") and value("NCCL_MAX_NCHANNELS"):
        low, high = _number(value("NCCL_MIN_NCHANNELS") or ""), _number(value("NCCL_MAX_NCHANNELS") or "")
        if isinstance(low, int) and isinstance(high, int) and low > high:
            yield _say("env.conflict", "error", last["NCCL_MIN_NCHANNELS"], f"{low} is above NCCL_MAX_NCHANNELS={high}", None)


def _connections(last: dict[str, Setting], target: Target, workload: Workload | None) -> Iterator[Report]:
    """CUDA_DEVICE_MAX_CONNECTIONS by framework and architecture, as the planner decides it."""
    setting = last.get("CUDA_DEVICE_MAX_CONNECTIONS")
    if workload is None or workload.framework is None or setting is None or setting.value is None:
        return
    from kilter.facts.case import Case, Snapshot
    from kilter.facts.plan import Verdict
    from kilter.tune.recommend import advise
    from kilter.tune.view import View

    work = msgspec.structs.replace(workload, answers=dict(workload.answers), environment={setting.name: setting.value})
    if target.gpu_sm is not None:
        work.answers["gpu.sm"] = target.gpu_sm
    advice = advise("fw.CUDA_DEVICE_MAX_CONNECTIONS", View(Case(), Snapshot(), work))
    if advice.verdict in (Verdict.RECOMMEND, Verdict.REFUSE):
        to_be = "unset" if advice.value is None else advice.value
        fix = "" if advice.value is None else f"{setting.name}={advice.value}"
        yield _say(
            "env.framework",
            "warning",
            setting,
            f"should be {to_be}: {advice.why}",
            fix,
            advice.sources[0] if advice.sources else "",
        )


def counts(reports: Iterable[Report]) -> dict[str, int]:
    found = dict.fromkeys(SEVERITIES, 0)
    for report in reports:
        found[report.severity] += 1
    return found
