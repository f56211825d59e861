"""XIDs and SXids of the kernel log, with their consequences told from their causes."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterator

from kilter.diagnose import xid_causes
from kilter.diagnose.engine import Context, NodeEvents, rule
from kilter.diagnose.xid_causes import FOLLOW_S, few, near
from kilter.facts.event import Event, count_of
from kilter.facts.finding import Cause, Evidence, Finding, Subject
from kilter.knowledge import drivers, sxid, xid

#: XIDs that mostly follow another one on the same GPU: what kills the channel comes first.
FOLLOWERS = (43, 45)
#: One memory error tells of itself by several codes within seconds; the worst of them is the verdict (health.md section 3).
MEMORY_ORDER = (64, 95, 48, 94, 172, 171, 63)
MERGE_S = 30.0
_SEVERITY = {"info": "info", "warning": "warning", "error": "error", "fatal": "critical", "unknown": "warning"}


def _root_of(event: Event, others: list[Event]) -> int | None:
    """The XID that ``event`` follows: what the line itself says, else one of the other XIDs on the same GPU at that time."""
    if "caused_by" in event.fields:
        return int(event.fields["caused_by"])
    return next((e.code for e in others if near(e, event, FOLLOW_S)), None)


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
    return {code: codes[code] for code in present[1:] if all(any(near(e, w, MERGE_S) for w in worst) for e in codes[code])}


def _finding(code: int, device: str, events: list[Event], extra: list[Event], log: NodeEvents, ctx: Context) -> Finding:
    entry = xid.lookup(code)
    subject = Subject("gpu", log.gpu_name(device), log.node)
    count = count_of(events)
    times = f", {count} times" if count > 1 else ""
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
    what = f"XID {code}: {entry.meaning.rstrip('.')}{times}"
    severity = "warning" if code in (13, 31) else _SEVERITY[entry.severity]
    present = {code, *(e.code for e in extra if e.code is not None)}
    reading = xid_causes.read(code, present, device, events, log, ctx.case)
    next_test = reading.next_test or _decider(reading.causes)
    if code in FOLLOWERS:
        others = [e for e in log.of("xid") if e.device == device and e.code not in (*FOLLOWERS, 154)]
        alone = [e for e in events if _root_of(e, others) is None]
        if not alone:
            root = _root_of(events[0], others)
            severity = "info"
            what = f"XID {code} follows XID {root} on this GPU: a consequence, no fault of its own{times}"
        elif code == 45:
            reading = xid_causes.cleanup(device, alone, log, ctx.case) or reading
            next_test = reading.next_test or _decider(reading.causes)
    elif code == 79:
        next_test = f"lspci -vvv -s {device or '<address>'} (rev ff = gone); BMC event log; riser and power cables"
    elif code == 154:
        action = xid.recovery_action(events[-1].fields.get("action", ""))
        severity = "info" if action is None or action.healthy else "error"
        what = f"XID 154: driver's recovery action became {events[-1].fields.get('action', 'unknown')!r}"
    elif 144 <= code <= 150:
        severity, note = _nvlink5(code, events, log)
        what = f"{what} ({note})" if note else what
    elif code in (119, 120):
        functions = sorted({e.fields["function_name"] for e in events if "function_name" in e.fields})
        if functions:
            what += f" (waiting for {', '.join(functions)})"
        if log.snapshot is None or log.snapshot.software.driver_version is None:
            next_test = "cat /proc/driver/nvidia/version (asks no GPU); leave nvidia-smi alone until the GPU is reset"
    gpu = xid_causes.gpu_of(log, device)
    facts = [ctx.fact(gpu, name) for name in reading.facts] if gpu is not None else []
    return ctx.finding(
        reading.severity or severity,
        what + reading.note,
        id=f"gpu.xid.{code}",
        subject=subject,
        evidence=[*events, *extra, *facts, *_beside(reading.evidence)],
        causes=reading.causes,
        contradicts=reading.contradicts,
        missing=reading.missing,
        confidence=reading.confidence or entry.confidence,
        action=reading.action or _action(entry),
        sop=reading.sop or xid.sop(code),
        next_test=next_test,
        sources=xid_sources(entry),
        disagreement=" ".join(xid.disagreements(code)),
    )


def _decider(causes: list[Cause]) -> str:
    """The cheapest test that splits the first two hypotheses."""
    return causes[0].decider if len(causes) > 1 else ""


def _beside(events: list[Event]) -> list[Evidence]:
    """Lines of other events as evidence: they are neither counted nor do their times become the finding's."""
    return [Evidence(text, where) for text, where in dict.fromkeys((e.text, e.where) for e in events)]


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


def _nvlink5(code: int, events: list[Event], log: NodeEvents) -> tuple[str, str]:
    """Severity and decode of NVLink5 XIDs; the word in the line outranks the table. Without a driver version both layouts are told."""
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
                f"{where}: {_decoded(decoded)}" + ("" if driver else _only_layout(code, event.fields.get("unit", ""), registers))
            )
            if not event.severity and "fatal" in decoded.severity and "non" not in decoded.severity:
                fatal = True
    words = {e.severity.lower() for e in events if e.severity}
    severity = "critical" if fatal else "warning" if words and words <= {"nonfatal", "non-fatal"} else "error"
    return severity, "; ".join(dict.fromkeys(notes[:3]))


def _decoded(one: xid.NvLink5Decode) -> str:
    """One reading, or both where the driver's version is not known and the layouts of R575 differ (NVIDIA/NVSentinel#748)."""

    def text(part: xid.NvLink5Decode) -> str:
        return f"{part.severity}, sub-code {part.sub_code}" + (", victim of the far end" if part.victim_hint == "remote" else "")

    if one.other is None:
        return text(one) + (f" ({one.notes[-1]})" if one.notes and one.confidence == "low" else "")
    old = f"before R575 {text(one.other)}, {' / '.join(one.other.vendor_actions)}"
    return f"driver version not known: R575 and later {text(one)}, {' / '.join(one.vendor_actions)}; {old}"


def _only_layout(code: int, unit: str, registers: list[int]) -> str:
    """Which layout a line was read by, where the driver's version is not known and only one of them fits."""
    fits = [one for version in ("575.0", "570.0") if (one := xid.decode_nvlink5(code, unit, registers, version)) is not None]
    layouts = {one.layout for one in fits}
    return f" (driver version not known; only the layout of drivers {layouts.pop()} fits)" if len(layouts) == 1 else ""


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
    scope="switch_log",
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
        count = count_of(events)
        severity = _SXID_SEVERITY[entry.severity] if entry is not None else "warning"
        words = {e.severity.lower() for e in events if e.severity}
        if "fatal" in words:
            severity = "critical" if severity == "critical" else "error"
        elif words and words <= {"non-fatal", "nonfatal"}:
            severity = "warning"
        ports = sorted({e.fields["link"] for e in events if "link" in e.fields}, key=lambda p: (len(p), p))
        witness = [e for e in dead if any(near(e, x, FOLLOW_S) for x in few(events))]
        reading = _switch(code, events, witness, severity, entry.cause_class if entry is not None else [], log)
        name = entry.name if entry is not None else f"not in the table ({sxid.unit(code) or 'unit unknown'})"
        usual = (
            entry.action
            if entry is not None and severity != "warning"
            else "Note switch, port and time; act when it repeats or comes with fatal SXids or XID 74."
        )
        yield ctx.finding(
            severity,
            f"SXid {code} {name}" + (f" on port {', '.join(ports)}" if ports else "") + (f", {count} times" if count > 1 else ""),
            id=f"nvswitch.sxid.{code}",
            subject=Subject("nvswitch", device or "NVSwitch", log.node),
            evidence=[*events, *_beside([*witness, *reading.evidence])],
            causes=reading.causes,
            missing=reading.missing,
            confidence="low" if entry is None or entry.inferred else "high",
            action=reading.action or usual,
            next_test=_decider(reading.causes),
            sop=reading.sop or None,
            disagreement=""
            if entry is None or not entry.inferred
            else "severity is inferred from the name; no document tells it",
        )


#: Requests that the switch could not route: a wrong partition of Fabric Manager, or a GPU that is gone (Fabric Manager guide, research: row 17).
_PARTITION = (11001, 12028)


_CAUSE_OF_CLASS = {
    "link_signal_or_cable": Cause(
        "the link of that port: signal, connector or cable",
        "possible",
        "XID 74 or 144-150 of the GPU behind it; error counters of both ends",
    ),
    "switch_hardware_or_protocol": Cause("the NVSwitch itself", "possible", "returns after a power cycle"),
    "switch_memory_hardware": Cause("a memory of the NVSwitch", "possible", "its rate; returns after a power cycle"),
    "switch_hardware": Cause("the NVSwitch itself", "possible", "returns after a power cycle"),
    "partition_or_fabric_manager_config": Cause(
        "a Fabric Manager partition or a GPU that is gone", "possible", "Fabric Manager's log"
    ),
    "stalled_traffic_victim_possible": Cause(
        "traffic that stands still behind another fault", "possible", "earlier XIDs and SXids"
    ),
    "thermal": Cause("heat of the NVSwitch", "likely", "temperature of the switch; fans"),
}


def _switch(
    code: int, events: list[Event], witness: list[Event], severity: str, classes: list[str], log: NodeEvents
) -> xid_causes.Reading:
    """What stands behind an SXid: a GPU that died behind the port, a partition that does not fit, the switch, or a link."""
    if witness:
        number = witness[0].code or 79
        return xid_causes.Reading(
            [
                Cause(
                    f"the GPU at {witness[0].device} died (XID {number}); the switch is the witness",
                    "likely",
                    "order of the lines",
                )
            ],
            action=f"Follow XID {number} of that GPU; the switch needs nothing of its own.",
            sop="SOP-BUS" if number == 79 else "SOP-GSP",
        )
    if code in _PARTITION:
        jobs = [e for e in log.of("xid") if e.code == 45 and any(near(e, x, FOLLOW_S) for x in few(events))]
        return xid_causes.Reading(
            [
                Cause(
                    "a wrong Fabric Manager partition", "likely" if jobs else "possible", "Fabric Manager's list of partitions"
                ),
                Cause("a GPU of the partition is gone", "possible", "nvidia-smi -L; XID 79 or 119 earlier"),
            ],
            evidence=jobs[:3],
            missing=["Fabric Manager's partitions and log"],
            action="Drain; restart Fabric Manager and check its partitions against the GPUs that answer." if jobs else "",
        )
    if severity == "critical":
        return xid_causes.Reading(
            [
                Cause("the NVSwitch itself", "likely", "returns after a power cycle"),
                Cause("a link micro-controller or GPU behind it", "possible", "always the same port"),
            ],
            missing=["XIDs of the GPUs behind it"] if not log.of("xid") else [],
        )
    if severity == "info":
        return xid_causes.Reading()
    return xid_causes.Reading([_CAUSE_OF_CLASS[name] for name in classes if name in _CAUSE_OF_CLASS])
