"""What several nodes have in common because it stands in the room: cooling and power."""

from __future__ import annotations

from typing import NamedTuple

from kilter.diagnose.engine import Context, gather, gpus_of, rule
from kilter.diagnose.fleet.profile import Profile
from kilter.facts.case import Case, Snapshot
from kilter.facts.finding import Cause, Evidence, Finding, Subject

_HOT = {"hw_thermal_slowdown", "sw_thermal_slowdown"}
#: So many nodes whose GPUs all throttle are no coincidence of heat sinks.
NODES = 2


_BRAKE = {"hw_power_brake_slowdown"}


class _Throttled(NamedTuple):
    """How many GPUs of a node show heat, the power brake, and tell their reasons at all."""

    hot: int
    braked: int
    known: int
    where: str


@gather
def throttled(snapshot: Snapshot) -> _Throttled | None:
    """Throttle reasons of a node of two GPUs and more."""
    known = [g for g in gpus_of(snapshot) if any(r.throttle_reasons is not None for r in g.readings)]
    if len(known) < 2:
        return None

    def showing(reasons: set[str]) -> int:
        return sum(any(reasons & set(r.throttle_reasons or []) for r in g.readings) for g in known)

    return _Throttled(showing(_HOT), showing(_BRAKE), len(known), snapshot.where(known[0].ref("")))


def _rows(ctx: Context) -> list[tuple[Profile, _Throttled]]:
    rows = ctx.gathered(throttled)
    if len(rows) < NODES:
        raise ctx.missing("throttle reasons of the GPUs of two nodes")
    return rows


@rule(
    "facility.cooling",
    "Nodes are not hot together",
    scope="case",
    family="thermal",
    sop="SOP-THERM",
    hint="nvidia-smi -q -d PERFORMANCE,TEMPERATURE of all nodes of the rack; ipmitool sdr type Temperature",
    sources=("research: failure mode 26", "knowledge: throttle_reasons.yaml"),
    action="Call the facility: inlet temperature, cooling distribution, doors and blanking of the rack. Changing GPUs helps nothing.",
)
def cooling(case: Case, ctx: Context) -> Finding | None:
    """All GPUs of two or more nodes are slowed down by heat: what they share is the air or water, not a heat sink."""
    known = _rows(ctx)
    hot = [row for row in known if row[1].hot == row[1].known]
    if len(hot) < NODES:
        return None
    names = [p.node or "node not named" for p, _ in hot]
    inlet = [
        e
        for e in case.events
        if e.kind == "bmc" and e.fields.get("what") == "inlet_hot" and e.fields.get("direction") != "deasserted"
    ]
    cool = [p.node for p, gpus in known if not gpus.hot]
    return ctx.finding(
        "error",
        f"all GPUs of {len(hot)} nodes are slowed down by heat: {', '.join(names[:6])}{' ...' if len(names) > 6 else ''}",
        subject=Subject("case", f"{len(hot)} nodes"),
        evidence=[Evidence(f"{p.node}: {gpus.hot} of {gpus.known} GPUs in thermal slowdown", gpus.where) for p, gpus in hot[:6]]
        + [Evidence(f"{e.node}: {e.text}", e.where) for e in inlet[:4]],
        causes=[
            Cause("cooling of the rack or room", "likely", "inlet temperatures; whether the hot nodes are neighbours"),
            Cause("fans of these nodes", "possible" if not inlet else "unlikely", "ipmitool sdr type Fan"),
        ],
        contradicts=[f"{len(cool)} other nodes are cool: {', '.join(cool[:4])}"] if cool else [],
        missing=[] if inlet else ["inlet temperature: ipmitool sdr type Temperature"],
        confidence="high" if inlet else "medium",
    )


@rule(
    "facility.power",
    "Nodes are not under the power brake together",
    scope="case",
    family="power",
    sop="SOP-PWR",
    hint="nvidia-smi -q -d PERFORMANCE of all nodes of the rack; ipmitool sel elist",
    sources=("research: failure mode 27", "knowledge: throttle_reasons.yaml"),
    action="Call the facility: rack feed, PDU and the rack's power cap; the GPUs and their boards are not at fault.",
)
def power(case: Case, ctx: Context) -> Finding | None:
    """All GPUs of two or more nodes are under the power brake: the rack's feed or cap, not one node's supply."""
    braked = [row for row in _rows(ctx) if row[1].braked == row[1].known]
    if len(braked) < NODES:
        return None
    supplies = [e for e in case.events if e.kind == "bmc" and e.fields.get("what") in ("psu_failed", "psu_input_lost")]
    lost = {e.node for e in supplies} & {p.node for p, _ in braked}
    return ctx.finding(
        "error",
        f"all GPUs of {len(braked)} nodes are under the power brake: {', '.join(p.node or 'node not named' for p, _ in braked[:6])}",
        subject=Subject("case", f"{len(braked)} nodes"),
        evidence=[
            Evidence(f"{p.node}: {gpus.braked} of {gpus.known} GPUs under the power brake", gpus.where) for p, gpus in braked[:6]
        ]
        + [Evidence(f"{e.node}: {e.text}", e.where) for e in supplies[:4]],
        causes=[
            Cause(
                "a feed or PDU of the rack" if lost else "the rack's power cap, or its feed",
                "likely",
                "PDU readings; whether these nodes share it",
            ),
            Cause("supplies of each node", "unlikely", "BMC's event log of each node"),
        ],
        missing=[] if supplies else ["event logs of the BMCs: ipmitool sel elist"],
        confidence="high" if len(lost) >= NODES else "medium",
    )
