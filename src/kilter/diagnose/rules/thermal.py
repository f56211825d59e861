"""Clocks, throttling, heat and power of GPUs."""

from __future__ import annotations

from collections.abc import Iterator

from kilter.diagnose.engine import Context, rule
from kilter.facts.accelerator import Accelerator, Reading
from kilter.facts.case import Snapshot
from kilter.facts.finding import Cause, Evidence, Finding, Subject

_Q = "nvidia-smi -q -d PERFORMANCE,TEMPERATURE,POWER,CLOCK"
_SOURCES = ("knowledge: throttle_reasons.yaml (nvidia-ml-py nvmlClocksEventReason*)",)


def _with_reasons(gpu: Accelerator, ctx: Context) -> list[Reading]:
    readings = [r for r in gpu.readings if r.throttle_reasons is not None]
    if not readings:
        raise ctx.missing("clocks event (throttle) reasons")
    return readings


def _active(readings: list[Reading], name: str) -> list[Reading]:
    return [r for r in readings if name in (r.throttle_reasons or [])]


def _facts(ctx: Context, readings: list[Reading]) -> list[Evidence]:
    names = ("throttle_reasons", "temperature_c", "tlimit_margin_c", "power_w", "sm_clock_mhz")
    return [ctx.fact(r, n) for r in readings[:2] for n in names if getattr(r, n) is not None]


def _share(ctx: Context, name: str) -> int:
    """How many GPUs of the node show the reason."""
    return sum(1 for a in ctx.snapshot.accelerators or [] if _active(a.readings, name))


@rule(
    "gpu.throttle.thermal",
    "No GPU is slowed down by heat",
    scope="gpu",
    family="thermal",
    sop="SOP-THERM",
    hint=_Q,
    sources=(*_SOURCES, "research: failure modes 25 and 26"),
)
def thermal(gpu: Accelerator, ctx: Context) -> Finding | None:
    """Hardware or software thermal slowdown is active. One GPU: its own cooling; all GPUs of a node: air flow or inlet."""
    readings = _with_reasons(gpu, ctx)
    hard, soft = _active(readings, "hw_thermal_slowdown"), _active(readings, "sw_thermal_slowdown")
    if not hard and not soft:
        return None
    name = "hw_thermal_slowdown" if hard else "sw_thermal_slowdown"
    many = _share(ctx, name)
    total = len(ctx.snapshot.accelerators or [])
    everywhere = many == total and total > 1
    causes = (
        [
            Cause(
                "air flow, fan wall or inlet temperature: all GPUs of the node are hot",
                "likely",
                "inlet temperature, neighbours in the rack",
            )
        ]
        if everywhere
        else [
            Cause("heat sink, pump or air path of this GPU", "likely", "temperature against siblings at the same power"),
            Cause("inlet temperature", "possible", "all GPUs of the node, other nodes of the rack"),
        ]
    )
    return ctx.finding(
        "error" if hard else "warning",
        ("hardware thermal slowdown: clocks are halved or worse" if hard else "the driver lowers clocks because of heat")
        + (f" (on {many} of {total} GPUs)" if many > 1 else ""),
        evidence=_facts(ctx, hard or soft),
        causes=causes,
        action="Drain and inspect cooling; after it is mended, a return means replacement."
        if hard
        else "Check fans, inlet temperature and heat sink; compare with the same slot of other nodes.",
    )


@rule(
    "gpu.throttle.power_brake",
    "No GPU is under the power brake",
    scope="gpu",
    family="power",
    sop="SOP-PWR",
    hint=_Q,
    sources=(*_SOURCES, "research: failure mode 27"),
    action="Read the BMC's power-supply events; restore redundancy; look for a rack power cap.",
    also=("gpu.throttle.hw_slowdown",),
)
def power_brake(gpu: Accelerator, ctx: Context) -> Finding | None:
    """The external power-brake signal is asserted, or an unspecific hardware slowdown without heat: power supply or rack cap."""
    readings = _with_reasons(gpu, ctx)
    brake = _active(readings, "hw_power_brake_slowdown")
    if brake:
        many = _share(ctx, "hw_power_brake_slowdown")
        return ctx.finding(
            "error",
            "power brake: the system tells the GPU to halve its clocks" + (f" (on {many} GPUs)" if many > 1 else ""),
            evidence=_facts(ctx, brake),
            causes=["power supply lost or redundancy lost", "rack power cap"],
        )
    bare = [
        r
        for r in _active(readings, "hw_slowdown")
        if not {"hw_thermal_slowdown", "hw_power_brake_slowdown"} & set(r.throttle_reasons or [])
    ]
    if bare:
        return ctx.finding(
            "warning",
            "hardware slowdown without a thermal or power-brake bit: an external pin, or a driver that does not tell",
            id="gpu.throttle.hw_slowdown",
            evidence=_facts(ctx, bare),
            confidence="medium",
        )
    return None


@rule(
    "gpu.throttle.unknown",
    "Every active throttle reason is known",
    scope="gpu",
    family="thermal",
    hint=_Q,
    sources=(*_SOURCES, "kilter: an unknown value is reported, never taken for health"),
    action="Look the bit up in nvml.h of this driver; compare the clocks with siblings until then.",
)
def unknown_reason(gpu: Accelerator, ctx: Context) -> Finding | None:
    """A bit of the throttle mask that the table does not name."""
    names = sorted({n for r in _with_reasons(gpu, ctx) for n in r.throttle_reasons or [] if n.startswith("unknown_")})
    return ctx.finding("info", f"throttle reason not known: {', '.join(names)}", confidence="low") if names else None


@rule(
    "gpu.throttle.counters",
    "No time was lost to heat or power brake",
    scope="gpu",
    family="thermal",
    sop="SOP-THERM",
    hint="nvidia-smi -q -d PERFORMANCE (R555 or newer prints the counters)",
    sources=_SOURCES,
    action="Look at temperature and power over time; the counters run since the driver was loaded.",
)
def counters(gpu: Accelerator, ctx: Context) -> Iterator[Finding]:
    """Microseconds lost to hardware thermal slowdown or power brake since driver load. Power capping is normal at full load and not judged.

    Without the time since driver load there is no share: a minute and more is worth knowing, less is not.
    """
    if not gpu.throttle_counters_us:
        raise ctx.missing("clocks event reason counters")
    uptime = ctx.snapshot.host.uptime_s
    for name, word in (("hw_thermal_slowdown", "hardware thermal slowdown"), ("hw_power_brake_slowdown", "power brake")):
        lost_s = gpu.throttle_counters_us.get(name, 0) / 1e6
        if lost_s < 60:
            continue
        share = lost_s / uptime if uptime else None
        severity = "warning" if share is not None and share > 0.05 else "info"
        yield ctx.finding(
            severity,
            f"{lost_s / 60:.0f} min spent in {word}"
            + (f", {share:.1%} of the uptime" if share is not None else " since the driver was loaded"),
            evidence=[ctx.fact(gpu, "throttle_counters_us")],
        )


@rule(
    "gpu.temperature_high",
    "Temperature below its limit",
    scope="gpu",
    family="thermal",
    sop="SOP-THERM",
    hint=_Q,
    sources=("nvidia-smi -q: Slowdown and T.Limit temperatures",),
    action="Check cooling before the GPU slows down.",
)
def temperature(gpu: Accelerator, ctx: Context) -> Finding | None:
    """At or above the temperature at which the card slows down; newer cards print the margin left (T.Limit)."""
    judged = False
    for reading in gpu.readings:
        if reading.tlimit_margin_c is not None:
            judged = True
            if reading.tlimit_margin_c <= 0:
                return ctx.finding(
                    "warning", f"no thermal margin left (T.Limit {reading.tlimit_margin_c} C)", evidence=_facts(ctx, [reading])
                )
        elif reading.temperature_c is not None and gpu.slowdown_temperature_c is not None:
            judged = True
            if reading.temperature_c >= gpu.slowdown_temperature_c:
                return ctx.finding(
                    "warning",
                    f"{reading.temperature_c} C, slows down at {gpu.slowdown_temperature_c} C",
                    evidence=_facts(ctx, [reading]),
                )
    if not judged:
        raise ctx.missing("temperature with its limit")
    return None


@rule(
    "gpu.power_limit_below_default",
    "Power limit at its default",
    scope="gpu",
    family="power",
    sop="SOP-SW",
    hint="nvidia-smi -q -d POWER",
    sources=("nvidia-smi -q: Current and Default Power Limit",),
    action="Nothing, if the owner chose it; else nvidia-smi -pl <default>.",
)
def power_limit(gpu: Accelerator, ctx: Context) -> Finding | None:
    """A power limit below the default costs clocks at full load. A setting of the owner, so information."""
    limit, default = ctx.need(gpu, Accelerator.power_limit_w), ctx.need(gpu, Accelerator.power_limit_default_w)
    return ctx.finding("info", f"power limit {limit:g} W, default {default:g} W") if limit < default - 0.5 else None


@rule(
    "gpu.clock_low",
    "A busy GPU runs at its clocks",
    scope="gpu",
    family="thermal",
    sop="SOP-THERM",
    hint=_Q,
    sources=("research: failure mode 28",),
    action="nvidia-smi -rgc and -rac; if the clock stays low, reset the GPU.",
)
def clock_low(gpu: Accelerator, ctx: Context) -> Finding | None:
    """A GPU at work in P0 with its SM clock below half of the maximum, no throttle reason and power to spare: locked or stuck clock."""
    best = ctx.need(gpu, Accelerator.sm_clock_max_mhz)
    busy = [
        r
        for r in gpu.readings
        if (r.utilization_percent or 0) >= 50 and r.performance_state == "P0" and r.sm_clock_mhz is not None
    ]
    if not busy:
        raise ctx.missing("SM clock under load")
    for reading in busy:
        capped = set(reading.throttle_reasons or []) - {"gpu_idle", "applications_clocks_setting"}
        near_limit = reading.power_w is not None and gpu.power_limit_w is not None and reading.power_w > 0.9 * gpu.power_limit_w
        if (
            reading.sm_clock_mhz is not None
            and reading.sm_clock_mhz < 0.5 * best
            and reading.throttle_reasons is not None
            and not capped
            and not near_limit
        ):
            return ctx.finding(
                "warning",
                f"SM clock {reading.sm_clock_mhz} of {best} MHz under load without a throttle reason",
                evidence=_facts(ctx, [reading]),
                causes=["locked clocks (nvidia-smi -lgc) or application clocks", "stuck power state"],
                confidence="medium",
            )
    return None


def all_spin(snapshot: Snapshot, limit_w: float = 0.0) -> bool:
    """Whether each of two or more GPUs is fully busy without memory traffic and below 45 % of its power limit (``limit_w`` where unknown)."""
    gpus = snapshot.accelerators or []
    return len(gpus) >= 2 and all(
        bool(gpu.readings)
        and all(
            (r.utilization_percent or 0) >= 99
            and r.memory_utilization_percent == 0
            and r.power_w is not None
            and r.power_w < 0.45 * (gpu.power_limit_w or limit_w)
            for r in gpu.readings
        )
        for gpu in gpus
    )


@rule(
    "gpu.spinning",
    "A busy GPU does work",
    scope="gpu",
    family="thermal",
    sop="SOP-NCCL",
    hint="nvidia-smi -q while the job runs; DCGM tensor activity",
    sources=("NVIDIA/nccl#2428 (100 % SM, 0 % memory, 118 of 400 W)", "research: section 3, GPU_UTIL 100 %"),
    action="Look at the job: py-spy dump or the flight recorder of the rank with the lowest sequence number.",
    also=("nccl.hang.spinning",),
)
def spinning(gpu: Accelerator, ctx: Context) -> Finding | None:
    """100 % utilisation with no memory traffic and low power on every GPU of the node: kernels that wait in a collective, a hang.

    Needs all busy GPUs of the node to look alike; a single one can be a small kernel.
    """
    busy = [
        r
        for r in gpu.readings
        if r.utilization_percent is not None and r.memory_utilization_percent is not None and r.power_w is not None
    ]
    limit = ctx.need(gpu, Accelerator.power_limit_w)
    if not busy:
        raise ctx.missing("utilisation with memory utilisation and power")
    if not all_spin(ctx.snapshot, limit):
        return None
    return ctx.finding(
        "warning",
        "100 % busy, 0 % memory traffic and low power on all GPUs: kernels spin in a collective (hang)",
        id="nccl.hang.spinning",
        subject=Subject("node", "", ctx.node),
        evidence=_facts(ctx, busy),
        confidence="medium",
    )
