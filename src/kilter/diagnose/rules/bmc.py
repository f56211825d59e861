"""What the BMC's event log and sensor tables tell: power supplies, fans, inlet heat, memory, PCIe, processors, power cycles.

An entry counts as standing when nothing later in the log takes it back (a deassertion, or a return to normal of the same sensor). What was taken
back, and what happened long before the newest known time, is information only.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import NamedTuple

from kilter.diagnose.engine import Context, NodeEvents, rule
from kilter.facts.accelerator import Accelerator
from kilter.facts.event import Clock, Event
from kilter.facts.finding import Cause, Evidence, Finding, Subject

_SEL = "ipmitool sel elist; ipmitool sdr elist"
_SOURCES = ("IPMI 2.0 specification, tables 42-2 and 42-3", "DMTF Redfish LogEntry")
#: What happened longer ago than this before the newest known time, and was never repeated, is history.
_RECENT_S = 30 * 86400.0
#: A BMC's clock and the host's differ by seconds to minutes where nobody set them together.
_NEAR_S = 300.0
_WALL = (Clock.UTC, Clock.LOCAL)
#: Over as they happen: no later entry takes them back.
_MOMENTARY = frozenset(
    {"memory_ue", "memory_ce_limit", "memory_ce", "pcie_fatal", "pcie_correctable", "cpu_ierr", "thermal_trip", "power_lost"}
    | {"power_cycle", "watchdog_reset", "os_stop"}
)
_SKEW = "clocks of the BMC and of the host are not known to agree"


class _Trouble(NamedTuple):
    sensor: str
    events: list[Event]
    standing: bool  # nothing took it back, and it is not long ago


def _bmc(log: NodeEvents, ctx: Context) -> list[Event]:
    """Entries of the BMC in order. Without any, the check cannot be made."""
    events = log.of("bmc")
    if not events:
        raise ctx.missing("entries of the BMC's event log")
    # A SEL's own order beats its times, since a BMC's clock is set back and forth; Redfish lists entries in any order.
    by_source: dict[str, list[Event]] = {}
    for event in sorted(events, key=lambda e: (e.source, e.line)):
        by_source.setdefault(event.source, []).append(event)
    ordered: list[tuple[float, list[Event]]] = []
    for group in by_source.values():
        if any(e.fields.get("log") == "redfish" for e in group):
            group.sort(key=lambda e: e.time or 0.0)
        times = [e.time for e in group if e.time is not None]
        ordered.append((max(times, default=0.0), group[::-1] if times and times[-1] < times[0] else group))
    return [event for _, group in sorted(ordered, key=lambda item: item[0]) for event in group]


def _now(log: NodeEvents) -> float | None:
    """The newest wall-clock time that anything says of the node."""
    times = [t for e in log.events if e.clock in _WALL for t in (e.time, e.last_time) if t is not None]
    if log.snapshot is not None and log.snapshot.time is not None:
        times.append(log.snapshot.time)
    return max(times, default=None)


def _troubles(log: NodeEvents, ctx: Context, *kinds: str) -> list[_Trouble]:
    """Troubles of these kinds by sensor, with what became of each."""
    now = _now(log)
    found: dict[tuple[str, str], list[Event]] = {}
    on: dict[tuple[str, str], bool] = {}
    for event in _bmc(log, ctx):
        what, sensor, direction = (event.fields.get(name, "") for name in ("what", "sensor", "direction"))
        key = (what, sensor)
        if what == "over":
            if direction != "deasserted":
                on.update({known: False for known in on if known[1] == sensor and known[0] not in _MOMENTARY})
        elif what in kinds and direction == "deasserted":
            if what not in _MOMENTARY:
                on[key] = False
            if key in found:
                found[key].append(event)
        elif what in kinds:
            found.setdefault(key, []).append(event)
            on[key] = True
    return [_Trouble(sensor, events, on[what, sensor] and _is_recent(events, now)) for (what, sensor), events in found.items()]


def _is_recent(events: list[Event], now: float | None) -> bool:
    times = [e.last_time or e.time for e in events if e.time is not None]
    return now is None or not times or now - max(t for t in times if t is not None) <= _RECENT_S


def _near(event: Event, others: list[Event]) -> list[Event]:
    """Those of ``others`` within some minutes of ``event``, by wall clocks."""
    if event.time is None or event.clock not in _WALL:
        return []
    return [o for o in others if o.time is not None and o.clock in _WALL and abs(o.time - event.time) <= _NEAR_S]


def _split(
    ctx: Context,
    troubles: list[_Trouble],
    severity: str,
    text: str,
    *,
    id: str = "",
    action: str = "",
    causes: tuple[Cause, ...] = (),
) -> Iterator[Finding]:
    """One finding for what stands, else one for what is over (information)."""
    standing = [t for t in troubles if t.standing]
    chosen = standing or troubles
    if not chosen:
        return
    sensors = ", ".join(dict.fromkeys(t.sensor for t in chosen))
    events = [e for t in chosen for e in t.events]
    undated = all(e.time is None for e in events) and not any(e.fields.get("direction") == "state" for e in events)
    yield ctx.finding(
        severity if standing else "info",
        f"{text}: {sensors}" if standing else f"{text}, over or long ago: {sensors}",
        id=id,
        action=action,
        causes=causes if standing else (),
        evidence=events,
        missing=["a time: the BMC had none when it logged this"] if standing and undated else [],
        confidence="medium" if standing and undated else "high",
    )


def _braked(log: NodeEvents) -> list[Accelerator]:
    gpus = (log.snapshot.accelerators if log.snapshot else None) or []
    return [g for g in gpus if any("hw_power_brake_slowdown" in (r.throttle_reasons or []) for r in g.readings)]


@rule(
    "power.psu_failed",
    "No power supply has failed",
    scope="bmc",
    family="power",
    sop="SOP-PWR",
    hint=_SEL,
    sources=(*_SOURCES, "SOP-PWR"),
    action="Check the feed and cord of that supply, then replace it; keep load off the node while redundancy is gone.",
)
def psu_failed(log: NodeEvents, ctx: Context) -> Iterator[Finding]:
    """A power supply reports failure or lost input, and nothing took it back. With GPUs under the power brake, this is why they are slow."""
    troubles = _troubles(log, ctx, "psu_failed", "psu_input_lost", "psu_predictive")
    standing = [t for t in troubles if t.standing]
    kinds = {e.fields.get("what") for t in standing for e in t.events}
    braked = _braked(log) if standing else []
    text = "power supply lost its input" if kinds == {"psu_input_lost"} else "power supply failed"
    severity = "warning" if kinds == {"psu_predictive"} else "error"
    if kinds == {"psu_predictive"}:
        text = "power supply predicts its failure"
    stale = kinds == {"psu_input_lost"} and all(e.fields.get("boot_after") for t in standing for e in t.events) and not braked
    if stale:
        severity, text = "warning", "power supply lost its input, and the host has started since"
    if braked:
        text += f"; it is why {len(braked)} GPU{'s are' if len(braked) > 1 else ' is'} under the power brake"
    causes = (
        Cause(
            "the feed: PDU, breaker or cord",
            "likely" if "psu_input_lost" in kinds else "possible",
            "PDU outlet and LED of the supply",
        ),
        Cause(
            "the supply itself",
            "likely" if "psu_failed" in kinds else "possible",
            "swap it with its neighbour: does the fault move",
        ),
    )
    for finding in _split(ctx, troubles, severity, text, causes=causes):
        if stale:
            finding.confidence, finding.next_test = "low", "ipmitool sdr type 'Power Supply' shows whether it has input now"
        finding.evidence += [
            Evidence(f"{g.label}: power brake active", log.snapshot.where(g.ref("")) if log.snapshot else "") for g in braked[:4]
        ]
        yield finding


@rule(
    "power.redundancy_lost",
    "Power is redundant",
    scope="bmc",
    family="power",
    sop="SOP-PWR",
    hint=_SEL,
    sources=_SOURCES,
    action="Find the supply or feed that is gone; GPU nodes may cap or brake power until it is back.",
)
def redundancy_lost(log: NodeEvents, ctx: Context) -> Iterator[Finding]:
    """The power supplies are no longer redundant, and no later entry says that they are again."""
    yield from _split(ctx, _troubles(log, ctx, "redundancy_lost"), "warning", "power supply redundancy is lost")


@rule(
    "host.fan_failed",
    "Every fan turns",
    scope="bmc",
    family="thermal",
    sop="SOP-THERM",
    hint=_SEL,
    sources=_SOURCES,
    action="Replace the fan; watch the GPUs' temperatures and throttle reasons until then.",
)
def fan_failed(log: NodeEvents, ctx: Context) -> Iterator[Finding]:
    """A fan reports failure or a speed below its critical limit, or the fans are no longer redundant."""
    failed = _troubles(log, ctx, "fan_failed")
    if any(t.standing for t in failed):
        yield from _split(ctx, failed, "error", "fan failed or turns below its limit")
    else:
        lost = _troubles(log, ctx, "fan_redundancy_lost")
        yield from _split(ctx, lost + failed, "warning", "fans are not redundant, or one was below its limit")


@rule(
    "host.inlet_hot",
    "Inlet air and host temperatures are below their limits",
    scope="bmc",
    family="thermal",
    sop="SOP-THERM",
    hint=_SEL,
    sources=_SOURCES,
    action="Check the room, containment and neighbours of the rack; the GPUs of this node will throttle first.",
    also=("host.temperature_critical",),
)
def inlet_hot(log: NodeEvents, ctx: Context) -> Iterator[Finding]:
    """A temperature sensor stands above its critical limit: the inlet means the room or the rack, others mean the node's own cooling."""
    yield from _split(ctx, _troubles(log, ctx, "inlet_hot"), "error", "inlet air is above the critical limit")
    yield from _split(
        ctx,
        _troubles(log, ctx, "temperature_critical", "thermal_trip"),
        "error",
        "temperature above the critical limit",
        id="host.temperature_critical",
        action="Find which fan, heat sink or duct cools that sensor.",
    )


@rule(
    "host.bmc_memory_error",
    "The BMC saw no memory error",
    scope="bmc",
    family="memory",
    sop="SOP-HOST",
    hint=_SEL,
    sources=_SOURCES,
    action="Drain the node and replace the named DIMM; for corrected errors, at the next maintenance.",
)
def memory_error(log: NodeEvents, ctx: Context) -> Iterator[Finding]:
    """Uncorrectable host memory errors, or a DIMM that reached its limit of corrected ones. Single corrected errors are normal: information."""
    hard = _troubles(log, ctx, "memory_ue", "memory_fault")
    limit = _troubles(log, ctx, "memory_ce_limit")
    if any(t.standing for t in hard):
        yield from _split(ctx, hard, "error", "uncorrectable host memory error or failed DIMM")
    elif any(t.standing for t in limit):
        yield from _split(ctx, limit, "warning", "a DIMM reached its limit of corrected errors")
    else:
        yield from _split(ctx, hard + limit + _troubles(log, ctx, "memory_ce"), "info", "host memory errors in the BMC's log")


@rule(
    "host.bmc_pcie_error",
    "The BMC saw no PCIe error",
    scope="bmc",
    family="pcie",
    sop="SOP-BUS",
    hint=_SEL,
    sources=(*_SOURCES, "SOP-BUS"),
    action="Look at card, riser and cable of that slot; compare with AER and XID lines of the kernel log.",
)
def pcie_error(log: NodeEvents, ctx: Context) -> Iterator[Finding]:
    """The firmware logged a PCIe error, by slot or address. Near an XID 79 (within 5 minutes by both clocks) it is a second witness of that loss."""
    for trouble in _troubles(log, ctx, "pcie_fatal", "pcie_correctable"):
        fatal = any(e.fields.get("what") == "pcie_fatal" for e in trouble.events)
        device = next((e.device for e in trouble.events if e.device), "")
        slot = next((e.fields["slot"] for e in trouble.events if "slot" in e.fields), "")
        place = " ".join(part for part in (f"slot {slot}" if slot else "", device) if part) or trouble.sensor
        xids = [x for x in log.of("xid", "gpu.off_bus") if x.kind == "gpu.off_bus" or x.code == 79]
        near = [x for x in xids if any(x in _near(e, xids) for e in trouble.events) or (device and x.device == device)]
        missing = []
        if xids and not near and all(x.clock not in _WALL for x in xids):
            missing.append("the wall time of XID 79: its line counts from boot (dmesg -T shows it)")
        text = f"BMC logged a {'fatal' if fatal else 'corrected'} PCIe error at {place}"
        if near:
            text += f"; a GPU fell off the bus near it ({log.gpu_name(near[0].device)})"
        severity = ("error" if fatal else "warning") if trouble.standing else "info"
        yield ctx.finding(
            severity if fatal or near else "info",
            text,
            subject=Subject("pci", device, log.node) if device else Subject("node", place, log.node),
            evidence=[*trouble.events, *near],
            contradicts=[_SKEW] if near else [],
            missing=missing,
            confidence="high" if device or slot else "medium",
        )


@rule(
    "host.cpu_ierr",
    "No processor reported an internal error",
    scope="bmc",
    family="host",
    sop="SOP-HOST",
    hint=_SEL,
    sources=_SOURCES,
    action="Save the BMC's crash dump and the machine check records, then update BIOS and microcode; swap the processor if it returns.",
)
def cpu_ierr(log: NodeEvents, ctx: Context) -> Iterator[Finding]:
    """CATERR, IERR or an uncorrectable machine check: often the end of a chain that began elsewhere (a PCIe completion timeout, memory)."""
    causes = (
        Cause("a PCIe device that stopped answering", "possible", "PCIe entries of the BMC and AER in the seconds before"),
        Cause("memory", "possible", "memory entries of the BMC"),
        Cause("the processor or its firmware", "possible", "does it stay with the socket after a swap"),
    )
    yield from _split(
        ctx, _troubles(log, ctx, "cpu_ierr"), "error", "processor internal error (IERR, CATERR or machine check)", causes=causes
    )


@rule(
    "host.unexpected_power_cycle",
    "The host was not reset without being asked",
    scope="bmc",
    family="host",
    sop="SOP-HOST",
    hint=_SEL,
    sources=_SOURCES,
    action="Read the entries just before it in the BMC's log, and the previous boot's journal or pstore.",
)
def unexpected_power_cycle(log: NodeEvents, ctx: Context) -> Iterator[Finding]:
    """The node lost power, its watchdog reset it, or the system stopped. A power cycle that somebody may have commanded is information."""
    hard = _troubles(log, ctx, "power_lost", "watchdog_reset", "os_stop")
    if any(t.standing for t in hard):
        yield from _split(ctx, hard, "warning", "the host lost power or was reset")
    else:
        asked = _troubles(log, ctx, "power_cycle")
        yield from _split(
            ctx, hard + [t._replace(standing=False) for t in asked], "info", "the host lost power, was reset or power cycled"
        )


@rule(
    "host.drive_fault",
    "The BMC saw no drive fault",
    scope="bmc",
    family="host",
    sop="SOP-HOST",
    hint=_SEL,
    sources=_SOURCES,
    action="Replace the drive in that bay; check the array and what jobs write there.",
)
def drive_fault(log: NodeEvents, ctx: Context) -> Iterator[Finding]:
    """A drive bay reports a fault, a predicted failure or a failed array."""
    yield from _split(ctx, _troubles(log, ctx, "drive_fault"), "warning", "drive fault")
