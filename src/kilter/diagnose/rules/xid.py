"""XIDs and SXids of the kernel log, with their consequences told from their causes."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterator

from kilter.diagnose.engine import Context, NodeEvents, rule
from kilter.facts.event import Event
from kilter.facts.finding import Cause, Finding, Subject
from kilter.knowledge import drivers, sxid, xid

#: XIDs that mostly follow another one on the same GPU: what kills the channel comes first.
FOLLOWERS = (43, 45)
#: One memory error tells of itself by several codes within seconds; the worst of them is the verdict (health.md section 3).
MEMORY_ORDER = (64, 95, 48, 94, 63)
FOLLOW_S = 10.0
MERGE_S = 30.0
BEFORE_OFF_BUS_S = 60.0
_SEVERITY = {"info": "info", "warning": "warning", "error": "error", "fatal": "critical", "unknown": "warning"}


def _near(a: Event, b: Event, seconds: float) -> bool:
    """Whether two events are within ``seconds``; events without comparable times count as near (they are in one log)."""
    if a.time is None or b.time is None or a.clock != b.clock:
        return True
    first = max(a.time - (b.last_time or b.time), b.time - (a.last_time or a.time), 0.0)
    return first <= seconds + a.uncertainty_s + b.uncertainty_s


def _root_of(event: Event, events: list[Event]) -> int | None:
    """The XID that ``event`` follows: what the line itself says, else another one on the same GPU just before."""
    if "caused_by" in event.fields:
        return int(event.fields["caused_by"])
    roots = [
        e.code
        for e in events
        if e.kind == "xid"
        and e.device == event.device
        and e.code not in FOLLOWERS
        and e.code != 154
        and _near(e, event, FOLLOW_S)
    ]
    return roots[0] if roots else None


@rule(
    "gpu.xid.*",
    "No XID in the kernel log",
    scope="log",
    family="xid",
    hint="dmesg -T | grep -i nvrm, or journalctl -k",
)
def xids(log: NodeEvents, ctx: Context) -> Iterator[Finding]:
    """XIDs by GPU and code, repeats merged. ``kilter explain xid <code>`` tells of each.

    43 and 45 are consequences: they are information when another XID on the GPU (or "caused by previous Xid") explains them.
    48, 63, 64, 94 and 95 within seconds are one memory error: the worst names it, the others are its evidence.
    """
    by_device: dict[str, dict[int, list[Event]]] = defaultdict(lambda: defaultdict(list))
    for event in log.of("xid"):
        by_device[event.device][event.code if event.code is not None else -1].append(event)
    for event in log.of("gpu.off_bus"):
        by_device[event.device][79].append(event)
    for device, codes in by_device.items():
        merged = _merge_memory(codes)
        for code, events in sorted(codes.items()):
            if code in merged:
                continue
            extra = [e for other in merged.values() for e in other] if code == next(iter(_memory_worst(codes)), None) else []
            yield _finding(code, device, events, extra, log, ctx)


def _memory_worst(codes: dict[int, list[Event]]) -> list[int]:
    return [code for code in MEMORY_ORDER if code in codes]


def _merge_memory(codes: dict[int, list[Event]]) -> dict[int, list[Event]]:
    """Memory codes that are part of a worse one's event: code -> events."""
    present = _memory_worst(codes)
    if len(present) < 2:
        return {}
    worst = codes[present[0]]
    return {code: codes[code] for code in present[1:] if all(any(_near(e, w, MERGE_S) for w in worst) for e in codes[code])}


def _finding(code: int, device: str, events: list[Event], extra: list[Event], log: NodeEvents, ctx: Context) -> Finding:
    entry = xid.lookup(code)
    subject = Subject("gpu", log.gpu_name(device), log.node)
    count = sum(e.count for e in events)
    times = f", {count} times" if count > 1 else ""
    causes: list[Cause] = []
    contradicts: list[str] = []
    next_test = ""
    if entry is None:
        return ctx.finding(
            "warning",
            f"XID {code} is in no table that kilter knows{times}",
            id=f"gpu.xid.{code}",
            subject=subject,
            evidence=events,
            confidence="low",
            sop="SOP-GSP",
            action="Look the code up in NVIDIA's XID catalog; treat the GPU as suspect until then.",
        )
    severity = _SEVERITY[entry.severity]
    what = f"XID {code}: {entry.meaning.rstrip('.')}{times}"
    confidence = entry.confidence
    if code in FOLLOWERS:
        root = _root_of(events[0], log.events)
        if root is not None:
            severity = "info"
            what = f"XID {code} follows XID {root} on this GPU: a consequence, no fault of its own{times}"
        elif code == 45 and count >= 5:
            severity, confidence = "warning", "medium"
            causes = [
                Cause("jobs killed by users or the scheduler", "likely", "job ends at these times"),
                Cause("Fabric Manager or an NVSwitch port lost", "possible", "SXids, Fabric Manager log"),
            ]
    elif code == 13 or code == 31:
        severity = "warning"
        causes = [
            Cause("the program: out-of-range access, bad kernel", "likely", "the same job fails on other GPUs too"),
            Cause("a bad SM or memory of this GPU", "possible", "one GPU, many different jobs; the same GPC/TPC every time"),
        ]
        next_test = "run the failing program under compute-sanitizer; run the same job on another node"
    elif code == 79:
        causes, contradicts = _off_bus(device, events, log)
        next_test = f"lspci -vvv -s {device or '<address>'} (rev ff = gone); BMC event log; riser and power cables"
    elif code == 154:
        action = xid.recovery_action(events[-1].fields.get("action", ""))
        severity = "info" if action is None or action.healthy else "error"
        what = f"XID 154: driver's recovery action became {events[-1].fields.get('action', 'unknown')!r}"
    elif 144 <= code <= 150:
        severity, note = _nvlink5(code, events, ctx, log)
        what = f"{what} ({note})" if note else what
    elif code in (119, 120):
        functions = sorted({e.fields["function_name"] for e in events if "function_name" in e.fields})
        if functions:
            what += f" (waiting for {', '.join(functions)})"
        causes = [
            Cause("GSP firmware or driver bug", "likely", "same function on several nodes with one driver version"),
            Cause("this GPU", "possible", "returns on this GPU alone after a reset"),
        ]
        if log.snapshot is None or log.snapshot.software.driver_version is None:
            next_test = "cat /proc/driver/nvidia/version (asks no GPU); leave nvidia-smi alone until the GPU is reset"
    disagreement = " ".join(xid.disagreements(code))
    return ctx.finding(
        severity,
        what,
        id=f"gpu.xid.{code}",
        subject=subject,
        evidence=[*events, *extra],
        causes=causes,
        contradicts=contradicts,
        confidence=confidence,
        action=_action(entry),
        sop=xid.sop(code),
        next_test=next_test,
        sources=xid_sources(entry),
        disagreement=disagreement,
    )


def xid_sources(entry: xid.Xid) -> list[str]:
    return [f"knowledge: xid.yaml code {entry.code} ({', '.join(entry.sources)})"]


_ACTIONS = {
    "contact_support": "Collect nvidia-bug-report.sh and open a case with the vendor.",
    "decode_subcode": "Decode the unit and status of the line; Fatal means drain and reset, Nonfatal means watch.",
    "drain_and_reset_gpu": "Drain the node, then reset the GPU.",
    "follow_other_xid": "Follow the XID that came with it.",
    "follow_recovery_action": "Do what the recovery action says.",
    "inspect_hw": "Drain and inspect the hardware.",
    "none": "Nothing to do.",
    "reboot_node": "Drain; save dmesg and nvidia-bug-report.sh --safe-mode; reboot, cold if the GPU stays away.",
    "reset_gpu": "Drain the node, then reset the GPU (nvidia-smi -r) or reboot.",
    "reset_gpu_at_next_drain": "Reset the GPU at the next drain; nothing has to stop now.",
    "reset_gpu_then_inspect": "Reset the GPU; if it returns, inspect or replace.",
    "restart_app": "Restart the application; the node can stay in service.",
    "restart_vm": "Restart the VM.",
    "update_software": "Update driver or firmware.",
    "watch": "Watch; act when it repeats.",
}


def _action(entry: xid.Xid) -> str:
    return _ACTIONS[entry.action]


def _off_bus(device: str, events: list[Event], log: NodeEvents) -> tuple[list[Cause], list[str]]:
    """What came in the 60 s before an XID 79 tells its cause (health.md rows 1-3)."""
    before = [e for e in log.events if any(_near(e, x, BEFORE_OFF_BUS_S) for x in events)]
    gsp = [e for e in before if e.kind == "xid" and e.code in (62, 119, 120) and e.device == device]
    link = [
        e
        for e in before
        if (e.kind in ("aer", "aer.root") and "orrect" in e.severity)
        or (e.kind == "pcie.hotplug" and "Down" in e.fields.get("what", ""))
    ]
    lost = {
        e.device
        for e in log.events
        if (e.kind == "gpu.off_bus" or (e.kind == "xid" and e.code == 79)) and any(_near(e, x, 5.0) for x in events)
    }
    causes: list[Cause] = []
    if gsp:
        causes.append(Cause(f"GSP or PMU firmware died first (XID {gsp[0].code})", "likely", "same driver on other nodes"))
    if link:
        causes.append(
            Cause(
                "PCIe link: riser, retimer, slot or cable (AER or hot-plug lines just before)",
                "likely",
                "swap the GPU with its neighbour: the fault follows the GPU or stays with the slot",
            )
        )
    if len(lost) > 1:
        causes.append(Cause(f"power or a shared switch: {len(lost)} GPUs left at once", "likely", "BMC power events"))
    if causes:
        return causes, []
    return [
        Cause("PCIe link or seating", "possible", "AER lines, lspci of both ends"),
        Cause("power delivery", "possible", "BMC event log, all GPUs of the tray"),
        Cause("heat or the GPU itself", "possible", "temperature before the event; the same card in another slot"),
    ], ["no AER, hot-plug, GSP or power line near it in this log: the cause is not known from here"]


def _nvlink5(code: int, events: list[Event], ctx: Context, log: NodeEvents) -> tuple[str, str]:
    """Severity and decode of NVLink5 XIDs; the word in the line outranks the table."""
    driver = log.snapshot.software.driver_version if log.snapshot is not None else None
    notes: list[str] = []
    fatal = False
    for event in events:
        fatal = fatal or event.severity.lower() == "fatal"
        registers = [int(word, 16) for word in event.fields.get("regs", "").split()]
        decoded = xid.decode_nvlink5(code, event.fields.get("unit", ""), registers, driver) if registers else None
        where = f"{event.fields.get('unit', 'unit not printed')} link {event.fields.get('link', '?')}"
        if decoded is None:
            notes.append(f"{where}: {event.severity or 'severity not printed'}, no decode rule")
        else:
            notes.append(
                f"{where}: {decoded.severity}, sub-code {decoded.sub_code}"
                + (", victim of the far end" if decoded.victim_hint == "remote" else "")
            )
            if not event.severity and "fatal" in decoded.severity and "non" not in decoded.severity:
                fatal = True
    words = {e.severity.lower() for e in events if e.severity}
    severity = "critical" if fatal else "warning" if words and words <= {"nonfatal", "non-fatal"} else "error"
    return severity, "; ".join(dict.fromkeys(notes[:3]))


_SXID_SEVERITY = {
    "always_fatal": "critical",
    "fatal_for_port": "error",
    "likely_fatal_for_port": "error",
    "non_fatal": "warning",
    "corrected": "info",
    "corrected_or_rate": "info",
    "unknown": "warning",
}


@rule(
    "driver.known_bad_version",
    "The driver has the fix of a bug that shows",
    scope="log",
    family="driver",
    sop="SOP-GSP",
    hint="cat /proc/driver/nvidia/version, with the kernel log",
    sources=("knowledge: driver_bugs.yaml",),
)
def known_bad_driver(log: NodeEvents, ctx: Context) -> Iterator[Finding]:
    """An XID in the log is the sign of a bug that the running driver still has and a later release of its branch fixed."""
    events = log.of("xid")
    if not events:
        return
    version = log.snapshot.software.driver_version if log.snapshot is not None else None
    if version is None:
        raise ctx.missing("driver version")
    for code in sorted({e.code for e in events if e.code is not None}):
        bug = drivers.known_bug(version, code)
        if bug is None:
            continue
        yield ctx.finding(
            "warning",
            f"driver {version} has a known bug that shows as XID {code}: {bug.what}; {bug.below} has the fix",
            subject=Subject("node", "", log.node),
            evidence=[ctx.fact(log.snapshot.software, "driver_version"), *[e for e in events if e.code == code][:4]]
            if log.snapshot is not None
            else [],
            causes=[Cause(bug.what, "likely", f"returns with {bug.below} or later: another cause")],
            action=f"Go to {bug.below} or later." + (f" Until then: {bug.workaround}." if bug.workaround else ""),
            sources=[bug.source],
            confidence=bug.confidence,
        )


@rule(
    "nvswitch.sxid.*",
    "No SXid of an NVSwitch",
    scope="log",
    family="nvlink",
    sop="SOP-NVL",
    hint="dmesg -T | grep SXid; /var/log/fabricmanager.log",
    sources=("knowledge: sxid.yaml (Fabric Manager guide DU-09883-001, driver header)",),
)
def sxids(log: NodeEvents, ctx: Context) -> Iterator[Finding]:
    """NVSwitch errors by switch and code. The word Fatal or Non-fatal of the line outranks the table.

    A switch port complains when the GPU behind it dies: with XID 79 or 119 at that time the switch is a witness.
    """
    groups: dict[tuple[str, int], list[Event]] = defaultdict(list)
    for event in log.of("sxid"):
        groups[event.device, event.code or 0].append(event)
    dead = [e for e in log.events if e.kind in ("gpu.off_bus",) or (e.kind == "xid" and e.code in (79, 119, 120))]
    for (device, code), events in sorted(groups.items()):
        entry = sxid.lookup(code)
        count = sum(e.count for e in events)
        severity = _SXID_SEVERITY[entry.severity] if entry is not None else "warning"
        words = {e.severity.lower() for e in events if e.severity}
        if "fatal" in words:
            severity = "critical" if severity == "critical" else "error"
        elif words and words <= {"non-fatal", "nonfatal"}:
            severity = "warning"
        ports = sorted({e.fields["link"] for e in events if "link" in e.fields}, key=lambda p: (len(p), p))
        witness = [e for e in dead if any(_near(e, x, FOLLOW_S) for x in events)]
        causes = (
            [
                Cause(
                    f"the GPU at {witness[0].device} died (XID {witness[0].code or 79}); the switch is the witness",
                    "likely",
                    "order of the lines",
                )
            ]
            if witness
            else []
        )
        name = entry.name if entry is not None else f"not in the table ({sxid.unit(code) or 'unit unknown'})"
        yield ctx.finding(
            severity,
            f"SXid {code} {name}" + (f" on port {', '.join(ports)}" if ports else "") + (f", {count} times" if count > 1 else ""),
            id=f"nvswitch.sxid.{code}",
            subject=Subject("nvswitch", device or "NVSwitch", log.node),
            evidence=[*events, *witness],
            causes=causes,
            confidence="low" if entry is None or entry.inferred else "high",
            action=entry.action
            if entry is not None and severity != "warning"
            else "Note switch, port and time; act when it repeats or comes with fatal SXids or XID 74.",
            disagreement=""
            if entry is None or not entry.inferred
            else "severity is inferred from the name; no document tells it",
        )
