"""Power capping that is not the normal one at full power, and GPUs that are slower than their siblings at like power."""

from __future__ import annotations

import statistics
from collections.abc import Iterator

from kilter.diagnose.engine import Context, gpus_of, rule
from kilter.facts.accelerator import Accelerator, Reading
from kilter.facts.case import Snapshot
from kilter.facts.finding import Cause, Finding, Subject

_Q = "nvidia-smi -q -d PERFORMANCE,POWER,CLOCK under load"
_SOURCES = ("knowledge: throttle_reasons.yaml (0x4 SW power cap)", "research: section 3, throttle 0x4")
#: Below this share of the limit the cap does not come from the limit that is shown.
EARLY = 0.8
#: Boards of one model differ by some percent at one power; this is more.
SLOWER = 0.85


def _busy(gpu: Accelerator) -> list[Reading]:
    return [
        r
        for r in gpu.readings
        if (r.utilization_percent or 0) >= 90
        and r.power_w is not None
        and r.throttle_reasons is not None
        and r.performance_state in ("P0", "P1")
    ]


@rule(
    "gpu.throttle.power_cap_early",
    "Power capping only at the power limit",
    scope="gpu",
    family="power",
    sop="SOP-PWR",
    hint=_Q,
    sources=_SOURCES,
    action="Look for another limit: module or rack power cap, power smoothing, BMC's GPU power limit; compare with siblings.",
)
def early_cap(gpu: Accelerator, ctx: Context) -> Finding | None:
    """SW power cap while the GPU draws less than 80 % of its limit, in every busy reading. At the limit it is normal and not reported.

    Peaks shorter than the reading's average also cap: so one reading alone is information.
    """
    limit = ctx.need(gpu, Accelerator.power_limit_w)
    busy = _busy(gpu)
    if not busy:
        raise ctx.missing("throttle reasons and power under load")
    early = [r for r in busy if "sw_power_cap" in (r.throttle_reasons or []) and (r.power_w or 0.0) < EARLY * limit]
    if len(early) < len(busy) or not early:
        return None
    siblings = [r for g in ctx.snapshot.accelerators or [] if g is not gpu and g.name == gpu.name for r in _busy(g)]
    alone = len(siblings) >= 3 and not any(
        "sw_power_cap" in (r.throttle_reasons or []) and (r.power_w or 0.0) < EARLY * limit for r in siblings
    )
    return ctx.finding(
        "warning" if alone or len(early) > 1 else "info",
        f"power cap at {early[0].power_w:.0f} W of a limit of {limit:.0f} W",
        evidence=[ctx.fact(early[0], "power_w"), ctx.fact(early[0], "throttle_reasons")],
        causes=[
            Cause(
                "another limit than the one shown: module, chassis or rack cap",
                "likely" if not alone else "possible",
                "the same on all GPUs; nvidia-smi -q Module Power Readings; BMC",
            ),
            Cause("power delivery or sensor of this board", "likely" if alone else "possible", "the same card in another slot"),
            Cause("peaks shorter than the averaged reading", "possible", "instantaneous power; nvidia-smi -lms 100"),
        ],
        contradicts=[] if len(early) > 1 else ["one reading: a peak may lie between"],
        missing=["readings over time"] if len(early) == 1 else [],
        confidence="medium" if len(early) > 1 else "low",
    )


@rule(
    "gpu.slower_than_siblings",
    "No GPU is slower than its siblings at like power",
    scope="node",
    family="siblings",
    sop="SOP-THERM",
    hint=_Q,
    sources=_SOURCES,
    action="Compare temperature and memory temperature; run dcgmi diag -r targeted_stress on this GPU and on a sibling.",
)
def slower(snapshot: Snapshot, ctx: Context) -> Iterator[Finding]:
    """SM clock 15 % below the median of three and more siblings that are as busy and draw as much power: this chip does less with the same power."""
    rows = [(g, r) for g in gpus_of(snapshot) for r in _busy(g)[-1:] if r.sm_clock_mhz]
    if len(rows) < 4:
        raise ctx.missing("clocks and power under load of four GPUs")
    for gpu, reading in rows:
        power = reading.power_w or 0.0
        peers = [
            r.sm_clock_mhz or 0
            for g, r in rows
            if g is not gpu and g.name == gpu.name and abs((r.power_w or 0.0) - power) <= 0.07 * power
        ]
        if len(peers) < 3:
            continue
        usual = statistics.median(peers)
        if (reading.sm_clock_mhz or 0) < SLOWER * usual:
            yield ctx.finding(
                "warning",
                f"SM clock {reading.sm_clock_mhz} MHz at {power:.0f} W, siblings {usual:.0f} MHz at like power",
                subject=Subject("gpu", gpu.label, snapshot.node),
                evidence=[
                    ctx.fact(reading, n)
                    for n in ("sm_clock_mhz", "power_w", "throttle_reasons", "temperature_c")
                    if getattr(reading, n) is not None
                ],
                causes=[
                    Cause(
                        "this GPU: leakage, heat, bad contact of the heat sink",
                        "likely",
                        "temperature against siblings; the same after a swap",
                    ),
                    Cause("another kind of work on it", "possible", "the same program on all GPUs"),
                ],
                missing=["whether all GPUs do the same work"],
                confidence="medium",
            )
