"""What DCGM says: its diagnostic, its health watches, its violation counters, and what an old one cannot see."""

from __future__ import annotations

import re
from collections.abc import Iterator

from kilter.diagnose.engine import Context, gpus_of, rule
from kilter.facts.accelerator import Accelerator
from kilter.facts.case import Snapshot
from kilter.facts.event import Event
from kilter.facts.finding import Cause, Evidence, Finding, Subject
from kilter.facts.measure import DiagnosticTest
from kilter.knowledge.table import folded

_SERVICE = "nvidia-dcgm"
_DIAG = "dcgmi diag -r 3"
#: Checks of settings and of what else runs; a failure is no fault of the hardware.
_SETTINGS = {
    "denylist",
    "blacklist",
    "permissions_and_os_blocks",
    "persistence_mode",
    "environment_variables",
    "graphics_processes",
}
_SETTING_TEXT = re.compile(r"persistence mode|environment variable|graphics process|permission|nouveau", re.IGNORECASE)
#: "Max power of 224.1 did not reach desired power minimum target_power_min_ratio of 224.2"
_SHORT_OF_POWER = re.compile(r"power of ([\d.]+) did not reach [^\d]{0,120}([\d.]+)", re.IGNORECASE)
#: Nearer than this to the floor is within what boards of one model differ by.
MARGIN = 0.02
_NO_TIME = re.compile(r"violations totaling 0(?:\.0+)? seconds", re.IGNORECASE)
_BLACKWELL = re.compile(r"\b(?:G?B[123]00|RTX (?:PRO \d{4}|50\d\d))\b|blackwell", re.IGNORECASE)


def _subject(test: DiagnosticTest, ctx: Context) -> Subject:
    """The GPU of a result, with its address where the case knows it; else the test."""
    match = re.fullmatch(r"GPU (\d{1,4})", test.device)
    if match is None:
        return Subject("diagnostic", f"{test.name} {test.device}".strip(), ctx.node)
    index = int(match[1])
    label = next((a.label for a in ctx.snapshot.accelerators or [] if a.index == index), f"GPU{index}")
    return Subject("gpu", label, ctx.node)


def _evidence(test: DiagnosticTest, ctx: Context) -> list[Evidence]:
    text = f"{test.tool}: {test.name} {test.device}".strip() + f": {test.result}"
    lines = [Evidence(text, ctx.where(test))]
    if test.message:
        lines.append(Evidence(test.message[:400] + (f" (error {test.code})" if test.code else ""), ctx.where(test)))
    return lines


@rule(
    "dcgm.diag",
    "Every test of DCGM's diagnostic passes",
    scope="diagnostic",
    family="diagnostic",
    sop="SOP-SLOW",
    hint=_DIAG,
    sources=(
        "NVIDIA/DCGM dcgmi/Diag.cpp",
        "IBM/autopilot#68 (the line 'Successfully ran diagnostic' is no pass)",
        "NVIDIA/DCGM#242",
    ),
    also=("dcgm.diag.*", "dcgm.targeted_power.marginal"),
)
def diag(test: DiagnosticTest, ctx: Context) -> Finding | None:
    """A test of ``dcgmi diag`` failed or warned. Checks of settings (persistence mode, environment) are warnings: no hardware is at fault.

    A targeted-power test that misses its floor by less than 2 % is marginal: boards of one model differ by as much. A result that is none
    of pass, fail, warn or skip is reported, since it is not a pass.
    """
    if test.tool != "dcgmi diag":
        raise ctx.skip("no result of dcgmi diag")
    if test.result in ("pass", "skip"):
        return None
    name, subject, lines = folded(test.name), _subject(test, ctx), _evidence(test, ctx)
    message = test.message or ""
    if name == "targeted_power" and test.result in ("fail", "warn") and (power := _marginal(message)) is not None:
        reached, floor = power
        return ctx.finding(
            "warning",
            f"targeted power reached {reached:g} W of a floor of {floor:g} W: marginal, no sign of a broken board by itself",
            id="dcgm.targeted_power.marginal",
            subject=subject,
            evidence=[*lines, *_others(test, ctx)],
            causes=[
                Cause("spread between boards of one model at their power limit", "likely", "siblings near the floor as well"),
                Cause(
                    "a lower power limit or heat during the test", "possible", "nvidia-smi -q -d POWER,PERFORMANCE during a rerun"
                ),
            ],
            action=f"Run the test again on this GPU alone (dcgmi diag -r targeted_power -i {_index(test)}); drain only if it fails clearly.",
            sop="",
            confidence="medium",
        )
    if test.result not in ("fail", "warn"):
        return ctx.finding(
            "warning",
            f"DCGM's diagnostic gives no result: {test.result}"
            if test.name == "run"
            else f"{test.name}: {test.result}, which is no pass",
            id=f"dcgm.diag.{name}_no_result",
            subject=subject,
            evidence=lines,
            action="Run the diagnostic again once the reason is gone; until then nothing is known from it.",
            confidence="medium",
        )
    setting = name in _SETTINGS or (name == "software" and bool(_SETTING_TEXT.search(message)))
    brief = bool(_NO_TIME.search(message))
    failed = test.result == "fail"
    return ctx.finding(
        "error" if failed and not setting and not brief else "warning",
        f"DCGM's {test.name} test {'failed' if failed else 'warns'}" + (f": {message[:160]}" if message else ""),
        id=f"dcgm.diag.{name}_{'failed' if failed else 'warning'}",
        subject=subject,
        evidence=lines,
        contradicts=["the violation lasted 0.0 s; DCGM fails on any (NVIDIA/DCGM#242)"] if brief else (),
        action="A setting, no hardware: correct it and run the test again."
        if setting
        else "Drain the node, run the test alone on this GPU, and look for XIDs, AER errors and ECC counts of the same time.",
        sop="SOP-SW" if setting else None,
        missing=() if test.message else ("the message of the test: dcgmi diag -v, or -j",),
    )


def _index(test: DiagnosticTest) -> str:
    return test.device.rpartition(" ")[2] or "<gpu>"


def _marginal(message: str) -> tuple[float, float] | None:
    match = _SHORT_OF_POWER.search(message)
    if match is None:
        return None
    try:
        reached, floor = float(match[1].rstrip(".")), float(match[2].rstrip("."))
    except ValueError:
        return None
    return (reached, floor) if floor > 0 and (1 - MARGIN) * floor <= reached <= floor else None


def _others(test: DiagnosticTest, ctx: Context) -> list[Evidence]:
    """What the same test reached on the other GPUs."""
    same = [t for t in ctx.snapshot.diagnostics or [] if t.name == test.name and t is not test and t.device and t.message]
    return [Evidence(f"{t.device}: {t.message}"[:200], ctx.where(t)) for t in same[:7]]


@rule(
    "dcgm.health",
    "DCGM's health watches see nothing",
    scope="diagnostic",
    family="diagnostic",
    sop="SOP-SLOW",
    hint="dcgmi health -c (after dcgmi health -s a)",
    sources=(
        "NVIDIA/DCGM dcgmi/Health.cpp",
        "NVIDIA/DCGM#285 (power), #270 (thermal)",
        "NVIDIA/NVSentinel#1471 and NVIDIA/aicr#2641 (IMEX)",
    ),
    also=("dcgm.health.*", "gpu.throttle.thermal"),
)
def health(test: DiagnosticTest, ctx: Context) -> Finding | None:
    """A health watch of DCGM warns or fails.

    Two warnings say nothing by themselves and are information: power (any busy GPU at its limit gathers violation time, and DCGM warns of
    any) and IMEX (absent on single-node systems, and idle without a compute domain). A thermal one with a modest core temperature points at
    another sensor: memory, hot spot, or a moment before the sample.
    """
    if test.tool != "dcgmi health":
        raise ctx.skip("no result of dcgmi health")
    if test.result == "pass":
        return None
    subject, lines, message = _subject(test, ctx), _evidence(test, ctx), test.message or ""
    low = f"{test.name} {message}".lower()
    if "imex" in low:
        return ctx.finding(
            "info",
            "DCGM calls IMEX unhealthy: without multi-node NVLink, or while no compute domain is active, its daemon does not run",
            id="dcgm.health.imex",
            subject=subject,
            evidence=lines,
            missing=["whether a compute domain or multi-node NVLink job is active"],
            action="On a multi-node NVLink system with an active domain, check nvidia-imex; else nothing.",
            sop="",
            confidence="medium",
        )
    if folded(test.name).startswith("power") and (
        "power violation" in low or "clocks event" in low or "throttl" in low or not message
    ):
        return ctx.finding(
            "info",
            "clocks were held to keep the power limit; DCGM warns of any such time, which every busy GPU has",
            id="dcgm.health.power_violation",
            subject=subject,
            evidence=lines,
            action="Nothing, unless the limit is below its default or the power brake is on (nvidia-smi -q -d POWER,PERFORMANCE).",
            sop="",
        )
    if folded(test.name).startswith("thermal") and ("violation" in low or "clocks event" in low or "throttl" in low):
        return _thermal(test, ctx, subject, lines)
    if test.name == "Overall Health" and any(t.tool == test.tool and t is not test for t in ctx.snapshot.diagnostics or []):
        return None  # the entities below say which
    if test.result not in ("fail", "warn"):
        severity = "info" if test.name == "run" else "warning"
        return ctx.finding(
            severity,
            f"DCGM's health check gives no result: {message or test.result}",
            id="dcgm.health.no_result",
            evidence=lines,
            sop="",
        )
    return ctx.finding(
        "error" if test.result == "fail" else "warning",
        f"DCGM's watch on {test.name} {'fails' if test.result == 'fail' else 'warns'}"
        + (f": {message[:160]}" if message else ""),
        id=f"dcgm.health.{folded(test.name).removesuffix('_system')}",
        subject=subject,
        evidence=lines,
        action="Read the counters that the message names, and the kernel log of the same time.",
    )


def _thermal(test: DiagnosticTest, ctx: Context, subject: Subject, lines: list[Evidence]) -> Finding:
    index = _index(test)
    gpu = next((a for a in ctx.snapshot.accelerators or [] if str(a.index) == index), None)
    core = [r for r in (gpu.readings if gpu else []) if r.temperature_c is not None]
    cool = bool(core) and max(r.temperature_c or 0 for r in core) < 80
    elsewhere = [
        Cause("memory temperature", "likely" if cool else "possible", "nvidia-smi -q -d TEMPERATURE: memory, T.Limit"),
        Cause("fan or pump stopped for a while, or missing", "possible", "BMC: fan speeds and events"),
        Cause("hot spot: heat sink or thermal paste", "possible", "T.Limit margin against siblings at the same power"),
    ]
    air = Cause("air flow or inlet temperature", "possible" if cool else "likely", "siblings and neighbours in the rack")
    return ctx.finding(
        "warning",
        "DCGM saw clocks held down by heat" + (": the core is not hot, so another sensor or an earlier moment" if cool else ""),
        id="gpu.throttle.thermal",
        subject=subject,
        evidence=[*lines, *[ctx.fact(r, "temperature_c") for r in core[-2:]]],
        causes=[*elsewhere, air] if cool else [air, *elsewhere],
        missing=() if core else ("temperatures of core and memory at that time",),
        action="Read memory temperature, T.Limit margin and fans; compare with sister GPUs.",
        sop="SOP-THERM",
        confidence="medium",
    )


def series_labels(text: str) -> dict[str, str]:
    """Labels of a series of ``Snapshot.metrics``; {} for what is none."""
    from kilter.intake.captures.prometheus import sample  # late: only a case with metrics needs the reader

    one = sample(f"m{{{text}}} 0")
    return {} if one is None else one.labels


def gpu_series(snapshot: Snapshot, *names: str) -> dict[str, dict[str, float]]:
    """metric (as the scrape names it) -> GPU index or UUID -> value, of whole GPUs only; the first of ``names`` that there is."""
    found: dict[str, dict[str, float]] = {}
    for name in names:
        for text, value in snapshot.metrics.get(name, {}).items():
            labels = series_labels(text)
            if not labels.get("GPU_I_ID"):
                key = labels.get("gpu") or labels.get("UUID") or labels.get("uuid") or ""
                if key:
                    found.setdefault(name, {})[key] = value
        if name in found:
            break
    return found


def gpu_subject(snapshot: Snapshot, key: str, node: str) -> Subject:
    """Subject of a GPU that a metric's labels name by index or UUID."""
    for gpu in snapshot.accelerators or []:
        if key in (str(gpu.index), gpu.uuid, (gpu.uuid or "").removeprefix("GPU-")):
            return Subject("gpu", gpu.label, node)
    return Subject("gpu", f"GPU{key}" if key.isdecimal() else f"GPU {key}", node)


@rule(
    "dcgm.thermal_violation",
    "No GPU lost more time to heat than its siblings",
    scope="node",
    family="thermal",
    sop="SOP-THERM",
    hint="DCGM_FI_DEV_THERMAL_VIOLATION in dcgm-exporter's list of metrics; nvidia-smi dmon -s v",
    sources=("knowledge: dcgm_fields.yaml (241: ns)", "NVIDIA/DCGM#285: power violation time is normal and not judged"),
    action="Compare temperature, memory temperature and fans with the siblings at the same power.",
    also=("gpu.throttle.thermal",),
)
def thermal_violation(snapshot: Snapshot, ctx: Context) -> Iterator[Finding]:
    """Thermal violation time of one GPU stands out: a minute and more, and ten times the median of two or more siblings.

    The counter runs since the driver was loaded; without that time it is judged against siblings only. In ``nvidia-smi dmon`` a tviol of 1
    says that heat held the clocks at that moment.
    """
    judged = False
    for name, series in gpu_series(snapshot, "DCGM_FI_DEV_THERMAL_VIOLATION").items():
        judged = True
        if len(series) < 3:
            continue
        for key, value in series.items():
            others = sorted(v for k, v in series.items() if k != key)
            median = others[len(others) // 2]
            if value >= 60e9 and value > 10 * median:
                yield ctx.finding(
                    "warning",
                    f"{value / 6e10:.0f} min held down by heat since the driver was loaded, siblings {median / 6e10:.1f} min",
                    id="gpu.throttle.thermal",
                    subject=gpu_subject(snapshot, key, ctx.node),
                    evidence=[Evidence(f"{name}: {value / 1e9:.0f} s", ctx.where(snapshot, f"metrics.{name}"))],
                    missing=["when: a second scrape gives the rate"],
                    confidence="medium",
                )
    name = "nvidia_smi_dmon_tviol"
    for series in gpu_series(snapshot, name).values():
        judged = True
        for key, value in series.items():
            if value > 0:
                yield ctx.finding(
                    "warning",
                    "nvidia-smi dmon shows a thermal violation"
                    + (f" (on {sum(v > 0 for v in series.values())} of {len(series)} GPUs)"),
                    id="gpu.throttle.thermal",
                    subject=gpu_subject(snapshot, key, ctx.node),
                    evidence=[Evidence(f"tviol = {value:g} in at least one row", ctx.where(snapshot, f"metrics.{name}"))],
                )
    if not judged:
        raise ctx.missing("thermal violation time")


def _dcgm_version(snapshot: Snapshot) -> str | None:
    service = snapshot.software.services.get(_SERVICE)
    return service.version if service is not None else None


def _of_exporter(snapshot: Snapshot, ctx: Context, kind: str) -> list[Event]:
    """What a dcgm-exporter of this node logged; its log rarely names the node."""
    return [e for e in ctx.case.events if e.kind == kind and (e.node == snapshot.node or e.node not in ctx.nodes)]


def _is_blackwell(gpu: Accelerator) -> bool:
    return (gpu.architecture or "").lower() == "blackwell" or bool(_BLACKWELL.search(gpu.name or ""))


@rule(
    "monitoring.dcgm_too_old_for_gpu",
    "DCGM knows the GPUs that it watches",
    scope="node",
    family="monitoring",
    sop="SOP-SW",
    hint="a scrape of dcgm-exporter and dcgmi --version",
    sources=("NVIDIA/dcgm-exporter#707",),
    action="Go to an exporter and host engine of DCGM 4; no GPU is at fault.",
)
def too_old(snapshot: Snapshot, ctx: Context) -> Finding | None:
    """Device fields come, profiling fields (DCGM_FI_PROF_*) do not, the GPUs are Blackwell and DCGM is older than 4: a gap of monitoring.

    The exporter's log says the same: "Not collecting DCP metrics". On GPUs before Volta and on most GeForce cards that line is normal.
    """
    names = [name for name in snapshot.metrics if name.startswith("DCGM_FI_")]
    refused = _of_exporter(snapshot, ctx, "container.exporter_no_profiling")
    if not any(name.startswith("DCGM_FI_DEV_") for name in names) and not refused:
        raise ctx.missing("metrics or log of dcgm-exporter")
    if any(name.startswith("DCGM_FI_PROF_") for name in names):
        return None
    new = [gpu for gpu in gpus_of(snapshot) if _is_blackwell(gpu)]
    if not new:
        raise ctx.skip("no GPU that DCGM 3 does not know")
    started = _of_exporter(snapshot, ctx, "container.exporter_version")
    version = _dcgm_version(snapshot) or next((e.fields["version"] for e in started), None)
    if version is None:
        raise ctx.missing("version of DCGM", "dcgmi --version")
    major = re.match(r"\d{1,4}", version)
    if major is None or int(major[0]) >= 4:
        return None
    return ctx.finding(
        "warning",
        f"DCGM {version} does not know {new[0].name}: no profiling metrics (SM and tensor activity) come, device metrics do",
        evidence=[
            Evidence(f"DCGM {version}", ctx.where(snapshot.software.services[_SERVICE], "version"))
            if _dcgm_version(snapshot)
            else started[0],
            ctx.fact(new[0], "name"),
            *refused[:2],
            *([Evidence(f"{len(names)} DCGM_FI_DEV_* metrics, none of DCGM_FI_PROF_*")] if names else []),
        ],
        contradicts=[] if refused else ["the exporter's list of metrics may have none of DCGM_FI_PROF_* switched on"],
        confidence="high" if refused else "medium",
    )
