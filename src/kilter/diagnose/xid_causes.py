"""What stands behind an XID: the lines around it, the other GPUs and nodes, the GPU's own flags.

One function a group of codes; each returns a :class:`Reading` that the rule lays over the table's entry. Hypotheses are ranked; what speaks
against the first one and what is missing is told. Sources: knowledge xid.yaml (``tell_apart``), research: sections 2 and 3.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterable
from typing import NamedTuple

from kilter.diagnose.engine import NodeEvents
from kilter.facts.accelerator import Accelerator
from kilter.facts.case import Case
from kilter.facts.event import Clock, Event, count_of
from kilter.facts.finding import Cause
from kilter.facts.pci import PciDevice

BEFORE_S = 60.0
FEW = 16
FOLLOW_S = 10.0
#: Jobs that fail within this are one: ranks of one program do not fault in the same second.
AT_ONCE_S = 120.0
#: A fault that comes back after longer than this came back after somebody had tried again.
AGAIN_S = 600.0
#: A BMC's clock and the host's differ by seconds to minutes where nobody set them together.
BMC_S = 300.0
_WALL = (Clock.UTC, Clock.LOCAL)
_POWER = {"psu_failed", "psu_input_lost", "redundancy_lost", "power_lost"}
#: AER errors of the link itself; a completion timeout or an unsupported request tells of the other end's silence.
_LINK_ERRORS = {"SDES", "DLP", "RxErr", "BadTLP", "BadDLLP", "Rollover", "Timeout"}
_SM = re.compile(r"\(GPC (\d{1,2}), TPC (\d{1,2})(?:, SM (\d{1,2}))?\)")
_LINK_WORDS = re.compile(r"\blink (\d{1,2}) ?\((0x[0-9a-fA-F]{1,8})")


class Reading(NamedTuple):
    """What the surroundings of an XID say. Empty fields leave the table's word."""

    causes: list[Cause] = []
    contradicts: list[str] = []
    missing: list[str] = []
    evidence: list[Event] = []
    severity: str = ""
    note: str = ""  # appended to the finding's text
    sop: str = ""
    action: str = ""
    next_test: str = ""
    confidence: str = ""
    facts: list[str] = []  # fields of the accelerator that the reading rests on


def near(a: Event, b: Event, seconds: float) -> bool:
    """Whether two events are within ``seconds``; events without comparable times count as near (they are in one log)."""
    if a.time is None or b.time is None or a.clock != b.clock:
        return True
    first = max(a.time - (b.last_time or b.time), b.time - (a.last_time or a.time), 0.0)
    return first <= seconds + a.uncertainty_s + b.uncertainty_s


def before(a: Event, b: Event, seconds: float) -> bool:
    """Whether ``a`` came in the ``seconds`` before ``b``. Where the stamps leave it open, the order of the lines of one file decides."""
    in_order = a.source != b.source or a.line <= b.line
    if a.time is None or b.time is None or a.clock != b.clock:
        return in_order
    slack = a.uncertainty_s + b.uncertainty_s
    gap = b.time - a.time
    if gap < -slack or (gap <= slack and not in_order):
        return False
    return b.time - (a.last_time or a.time) <= seconds + slack


def few(events: list[Event]) -> list[Event]:
    """The first and last of a long row of repeats: what stands around those stands around all, at bounded cost."""
    return events if len(events) <= 2 * FEW else [*events[:FEW], *events[-FEW:]]


def gpu_of(log: NodeEvents, device: str) -> Accelerator | None:
    """The facts of the GPU at an address, where they were given."""
    gpus = (log.snapshot.accelerators if log.snapshot is not None else None) or []
    return next((g for g in gpus if device and g.pci_address == device), None)


def _seconds(events: list[Event]) -> float:
    """From the first to the last of them; 0 when the times are not known."""
    times = [t for e in events for t in (e.time, e.last_time) if t is not None]
    return max(times) - min(times) if times else 0.0


def _xids(events: Iterable[Event], *codes: int) -> list[Event]:
    return [
        e
        for e in events
        if (e.kind == "xid" and e.code in codes and "caused_by" not in e.fields) or (e.kind == "gpu.off_bus" and 79 in codes)
    ]


def _above(log: NodeEvents, device: str) -> set[str] | None:
    """Addresses of the bridges above a GPU; None when the tree was not given."""
    pci: dict[str, PciDevice] = (log.snapshot.pci if log.snapshot is not None else None) or {}
    found: set[str] = set()
    one = pci.get(device)
    while one is not None and one.parent and one.parent not in found:
        found.add(one.parent)
        one = pci.get(one.parent)
    return found or None


def _on_path(event: Event, device: str, above: set[str] | None) -> bool:
    """Whether a PCIe event can be of this GPU's link: the GPU itself, or a port above it (any port where the tree is not known)."""
    if event.device == device or event.fields.get("from") == device:
        return True
    if event.kind == "aer" and event.fields.get("driver", "pcieport") != "pcieport":
        return False
    if event.kind == "aer.root" and event.fields.get("from", event.device) not in (event.device, ""):
        source = event.fields.get("from", "")
        return above is not None and source in above
    return above is None or event.device in above or not event.device


def link_lines(device: str, events: list[Event], log: NodeEvents) -> list[Event]:
    """AER errors of the link and hot-plug losses of this GPU's slot in the minute before."""
    above = _above(log, device)
    found = []
    for event in log.events:
        if event.kind == "aer":
            names = set(event.fields.get("errors", "").split())
            of_link = bool(names & _LINK_ERRORS) or (not names and "Transaction" not in event.fields.get("type", ""))
        elif event.kind == "pcie.dpc":
            of_link = True
        elif event.kind == "pcie.hotplug":
            of_link = event.fields.get("what") in ("Link Down", "Card not present")
        else:
            of_link = event.kind == "aer.root" and not any(e.kind == "aer" and near(e, event, 1.0) for e in log.events)
        if of_link and _on_path(event, device, above) and any(before(event, x, BEFORE_S) for x in few(events)):
            found.append(event)
    return found


def _power_lines(events: list[Event], log: NodeEvents) -> list[Event]:
    """Entries of the BMC on lost power near the events, by wall clocks."""
    return [
        b
        for b in log.of("bmc")
        if b.fields.get("what") in _POWER
        and b.fields.get("direction") != "deasserted"
        and b.time is not None
        and b.clock in _WALL
        and any(x.time is not None and x.clock in _WALL and abs(x.time - b.time) <= BMC_S for x in few(events))
    ]


def off_bus(device: str, events: list[Event], log: NodeEvents, case: Case) -> Reading:
    """XID 79: what came in the 60 s before tells firmware from link from power (research: rows 1-3)."""
    gsp = [e for e in _xids(log.events, 62, 119, 120) if e.device == device and any(before(e, x, BEFORE_S) for x in few(events))]
    link = link_lines(device, events, log)
    power = _power_lines(events, log)
    lost = {e.device for e in _xids(log.events, 79) if any(near(e, x, 5.0) for x in few(events))}
    causes: list[Cause] = []
    sops: list[tuple[str, str]] = []
    if gsp:
        causes.append(Cause(f"GSP or PMU firmware died first (XID {gsp[0].code})", "likely", "same driver on other nodes"))
        sops.append(("SOP-GSP", "Drain; collect nvidia-bug-report.sh --safe-mode; reboot; update or roll back the driver."))
    if power or len(lost) > 1:
        text = "power supply or power board: the BMC logged lost power at that time" if power else ""
        text = text or f"power or a shared switch: {len(lost)} GPUs left at once"
        causes.append(Cause(text, "likely", "BMC power events; supplies, power board and cables of the tray"))
        sops.append(("SOP-PWR", "Drain and inspect power supplies, power board and cables; then reboot, cold."))
    if link:
        causes.append(
            Cause(
                "PCIe link: riser, retimer, slot or cable (AER or hot-plug lines just before)",
                "likely" if not causes else "possible",
                "swap the GPU with its neighbour: the fault follows the GPU or stays with the slot",
            )
        )
        sops.append(("SOP-BUS", ""))
    missing = []
    if not log.of("bmc"):
        missing.append("the BMC's event log (ipmitool sel elist): power events")
    elif not power and all(x.clock not in _WALL for x in few(events)):
        missing.append("the wall time of XID 79: its line counts from boot (dmesg -T shows it)")
    if causes:
        sop, action = sops[0]
        return Reading(causes, missing=missing if not power else [], evidence=[*gsp, *power, *link][:6], sop=sop, action=action)
    causes = [
        Cause("PCIe link or seating", "possible", "AER lines, lspci of both ends"),
        Cause("power delivery", "possible", "BMC event log, all GPUs of the tray"),
        Cause("heat or the GPU itself", "possible", "temperature before the event; the same card in another slot"),
    ]
    said = "no AER, hot-plug, GSP or power line in the minute before it in this log: the cause is not known from here"
    return Reading(causes, [said], missing)


def application(code: int, device: str, events: list[Event], log: NodeEvents, case: Case) -> Reading:
    """XID 13 and 31: matrix of jobs and GPUs. Many GPUs in one job: the program. One GPU in many jobs: the GPU. Once: undecided."""
    every = [e for e in case.events if e.kind == "xid" and e.code == code and "caused_by" not in e.fields]
    at_once = {(e.node, e.device) for e in every if any(_same_moment(e, x) for x in few(events))}
    elsewhere = {(e.node, e.device) for e in every} - {(log.node, device)}
    pids = {e.fields["pid"] for e in events if "pid" in e.fields}
    names = {e.fields["name"] for e in events if "name" in e.fields}
    units = {m.groups() for e in events if (m := _SM.search(e.text))}
    program = Cause("the program: out-of-range access, bad kernel", "likely", "the same job fails on other GPUs too")
    silicon = Cause("a bad SM or memory of this GPU", "possible", "one GPU, many different jobs; the same GPC/TPC every time")
    test = "run the failing program under compute-sanitizer; run the same job on another node"
    if code == 31:
        gone = [e for e in _xids(log.events, 74, 79, *range(144, 151), 155) if e.device != device]
        gone = [e for e in gone if any(near(e, x, FOLLOW_S) for x in few(events))]
        if gone:
            peer = Cause(
                f"memory of a peer vanished: XID {gone[0].code or 79} on {log.gpu_name(gone[0].device)}",
                "likely",
                "which line came first",
            )
            return Reading(
                [peer, Cause(program.text, "possible", program.decider)],
                evidence=gone[:4],
                note="; a peer failed at that moment",
                next_test=test,
            )
    if len(at_once) >= 2:
        return Reading(
            [program, Cause(silicon.text, "unlikely", silicon.decider)],
            contradicts=[],
            note=f"; {len(at_once)} GPUs at that moment: one job, so the program",
            action="Restart the application; give its owner the line and compute-sanitizer. Do not drain the node.",
            next_test=test,
            confidence="high",
        )
    if len(pids) >= 2 and not elsewhere and (_seconds(events) >= AGAIN_S or not any(e.time for e in events)):
        same_unit = len(units) == 1 and sum(1 for e in events if _SM.search(e.text)) >= 2
        sure = same_unit or len(names) >= 2
        unit = next(iter(units)) if same_unit else ()
        where = f", always GPC {unit[0]} TPC {unit[1]}" if unit else ""
        return Reading(
            [
                Cause(
                    f"a bad SM or memory of this GPU: {len(pids)} processes over time{where}",
                    "likely" if sure else "possible",
                    "dcgmi diag -r 3; the same jobs on another GPU",
                ),
                Cause(program.text, "possible", "one faulty program that was run again and again"),
            ],
            missing=[] if sure else ["whether these processes were different programs (scheduler's job ids)"],
            note=f"; {len(pids)} processes on this GPU alone{where}",
            action="Keep jobs off this GPU; dcgmi diag -r 3, then the vendor's field diagnostic (EUD). Replace when it fails.",
            next_test="dcgmi diag -r 3 on this GPU alone",
            confidence="medium" if sure else "low",
        )
    return Reading(
        [program, silicon],
        missing=["the same job on other GPUs, and other jobs on this GPU"] if len(pids) <= 1 else [],
        next_test=test,
        confidence="medium",
    )


def _same_moment(a: Event, b: Event) -> bool:
    if a.time is None or b.time is None or a.clock != b.clock:
        return a.node == b.node
    if a.node != b.node and (a.clock is Clock.BOOT or a.fields.get("name") != b.fields.get("name")):
        return False  # two jobs of a large fleet may fail in one minute
    return near(a, b, AT_ONCE_S)


def cleanup(device: str, events: list[Event], log: NodeEvents, case: Case) -> Reading | None:
    """XID 45 that nothing on the GPU explains. A killed process is normal; a lost Fabric Manager or switch port repeats without a job's end."""
    pids = {e.fields["pid"] for e in events if "pid" in e.fields}
    killed = [e for e in log.of("oom.kill") if e.fields.get("pid") in pids]
    if killed:
        return Reading(
            [Cause("the process was killed for want of host memory", "likely", "kernel log: Out of memory")],
            evidence=killed[:3],
            severity="info",
            note=": the process was killed by the OOM killer",
        )
    ended = [e for e in case.events if e.kind in ("job.signal", "job.cgroup_oom", "torch.rank_failed")]
    ended = [e for e in ended if e.node in ("", log.node) and any(near(e, x, AT_ONCE_S) for x in few(events))]
    fabric = [
        e
        for e in log.of("sxid", "fabric_manager.error", "fabric_manager.version_mismatch")
        if any(near(e, x, BEFORE_S) for x in few(events))
    ]
    services = log.snapshot.software.services if log.snapshot is not None else {}
    manager = services.get("nvidia-fabricmanager")
    dead = manager is not None and manager.state not in (None, "active")
    if fabric or dead:
        why = "SXid or Fabric Manager errors at that time" if fabric else f"the service is {manager.state if manager else ''}"
        return Reading(
            [
                Cause(f"Fabric Manager or an NVSwitch port was lost ({why})", "likely", "Fabric Manager's log and state"),
                Cause("jobs killed by users or the scheduler", "possible", "job ends at these times"),
            ],
            evidence=fabric[:4],
            severity="warning",
            note=": Fabric Manager or a switch port is the suspect",
            sop="SOP-NVL",
            action="Restart Fabric Manager (of the driver's version) once the node is drained; then look at the fabric state of all GPUs.",
            confidence="medium",
        )
    count = count_of(events)
    if ended:
        return Reading(
            [Cause("the job ended or was cancelled", "likely", "time of the job's end")],
            evidence=ended[:3],
            severity="info",
            note=": the job ended at that time",
        )
    if count >= 5:
        return Reading(
            [
                Cause("jobs killed by users or the scheduler", "likely", "job ends at these times"),
                Cause("Fabric Manager or an NVSwitch port lost", "possible", "SXids, Fabric Manager log"),
            ],
            missing=["ends of jobs (sacct) and Fabric Manager's log of that time"],
            severity="warning",
            confidence="medium",
        )
    return None


def memory(code: int, present: set[int], device: str, log: NodeEvents) -> Reading:
    """48, 63, 64, 94, 95, 171, 172: one error told by several codes; then the GPU's flags decide (research: rows 5-10)."""
    gpu = gpu_of(log, device)
    pending = gpu.remap_pending if gpu else None
    failure = gpu.remap_failure if gpu else None
    threshold = gpu.sram_threshold_exceeded if gpu else None
    facts = [name for name in ("remap_pending", "remap_failure") if gpu is not None and getattr(gpu, name) is not None]
    replace = "Drain; run the vendor's field diagnostics; replace the GPU (RMA criterion)."
    flags = "remap pending and failure flags: nvidia-smi -q -d ROW_REMAPPER"
    if failure:
        cause = Cause(
            "spare rows of an HBM bank are used up: row remapping failed", "likely", "bank remap availability histogram"
        )
        return Reading([cause], action=replace, facts=facts, note="; row remapping failed")
    if code == 64:
        return Reading(
            [
                Cause("spare rows of an HBM bank are used up", "likely", "Remapping Failure Occurred: Yes; banks with none left"),
                Cause("the InfoROM could not be written", "possible", "failure flag stays No after a reset"),
            ],
            contradicts=["Remapping Failure Occurred reads No"] if failure is False else [],
            missing=[flags] if failure is None else [],
            action="Drain and reset the GPU, then read the remap flags: failure = Yes means replacement (RMA).",
            facts=facts,
        )
    if code == 172 or (172 in present and code == 48):
        facts = ["sram_threshold_exceeded"] if threshold is not None else []
        return Reading(
            [Cause("an SRAM cell: SRAM has no spare rows, so only the count decides", "likely", "SRAM Threshold Exceeded")],
            missing=[] if threshold is not None else ["SRAM threshold flag: nvidia-smi -q -d ECC"],
            action=replace if threshold else "Drain and reset the GPU; replace it when 'SRAM Threshold Exceeded' reads Yes.",
            facts=facts,
        )
    if code in (48, 94) and 94 in present:
        return Reading(
            [
                Cause(
                    "bit failure in HBM, contained: only the process that owned the data was hit",
                    "likely",
                    "remap pending Yes, failure No",
                )
            ],
            missing=[flags] if pending is None else [],
            note="; contained" if code == 48 else "",
            action="Restart the application; the GPU stays usable. Reset it at the next drain so that the row is remapped.",
            facts=facts,
        )
    if code == 48:
        dram = Cause("bit failure in HBM", "likely" if 171 in present else "possible", "XID 171 with it; remap pending")
        sram = Cause("an on-chip SRAM cell", "possible", "XID 172 with it; SRAM counts of nvidia-smi -q")
        return Reading([dram] if 171 in present else [dram, sram], missing=[flags] if pending is None else [], facts=facts)
    if code == 63:
        if pending is False:
            return Reading(
                severity="info",
                note="; no remapping is pending any more",
                action="Nothing: the reset has been done.",
                facts=facts,
            )
        return Reading(missing=[flags] if pending is None else [], facts=facts)
    if code == 95:
        return Reading(
            [Cause("uncontained memory error: all jobs on this GPU are hit", "likely", "repeats after a reset")], facts=facts
        )
    if code == 92:
        return Reading(
            [Cause("weak cells of HBM, corrected so far", "likely", "aggregate against volatile counts; one bank or many")],
            missing=["ECC counts: nvidia-smi -q -d ECC"] if gpu is None or gpu.ecc_aggregate is None else [],
        )
    return Reading(facts=facts)


def nvlink(code: int, device: str, events: list[Event], log: NodeEvents, case: Case) -> Reading:
    """XID 74 and 144-150: a peer that died first makes this GPU a witness; else the link, the GPU or the switch."""
    peers = [e for e in _xids(log.events, 48, 79, 95, 119, 120) if e.device != device]
    peers = [e for e in peers if any(before(e, x, BEFORE_S) for x in few(events))]
    if peers:
        first = peers[0]
        number = first.code or 79
        return Reading(
            [
                Cause(
                    f"the peer died first: XID {number} on {log.gpu_name(first.device)}; this GPU is its victim",
                    "likely",
                    "order of the lines",
                ),
                Cause("the link between them", "possible", "NVLink errors that return after the peer's repair"),
            ],
            evidence=peers[:4],
            note="; a peer failed first",
            action=f"Follow XID {number} of the peer; reset all GPUs of the node afterwards.",
            sop="SOP-GSP" if number in (119, 120) else "SOP-BUS" if number == 79 else "SOP-MEM",
        )
    switch = [e for e in log.of("sxid") if any(near(e, x, FOLLOW_S) for x in few(events))]
    words = [m for e in events if (m := _LINK_WORDS.search(e.text))]
    links = sorted({int(m[1]) for m in words} | {int(e.fields["link"]) for e in events if e.fields.get("link", "").isdigit()})
    bits = 0
    for match in words:
        bits |= int(match[2], 16)
    si = Cause(
        "signal integrity of the link: connector, cable, baseboard",
        "likely" if bits & 0x600000 else "possible",
        "the same link again after a reset; error counters of both ends",
    )
    ecc = Cause(
        "ECC or parity error inside the GPU's link unit",
        "likely" if bits & 0x30 else "possible",
        "returns on this GPU in another slot",
    )
    far = Cause("the NVSwitch port at the far end", "likely" if switch else "possible", "SXid of that port")
    causes = sorted([si, ecc, far], key=lambda c: c.likelihood != "likely")
    missing = [] if switch else ["the far end: SXid lines, Fabric Manager's log, XIDs of the peer"]
    where = f"; link {', '.join(map(str, links))}" if links and code == 74 else ""
    return Reading(causes, missing=missing, evidence=switch[:4], note=where)


def firmware(code: int, device: str, events: list[Event], log: NodeEvents, case: Case) -> Reading:
    """XID 119/120: nodes with the same function tell a driver bug from one sick GPU; AER before it tells of the bus."""
    functions = {e.fields["function"] for e in events if "function" in e.fields}
    same = [e for e in _xids(case.events, 119, 120) if e.fields.get("function", "") in (functions or {""})]
    nodes = {e.node for e in same}
    drivers = {log.drivers[node] for node in nodes if node in log.drivers}
    link = link_lines(device, events, log)
    driver = f" with driver {next(iter(drivers))}" if len(drivers) == 1 else ""
    bug = Cause(
        "GSP firmware or driver bug",
        "likely" if len(nodes) > 1 else "possible",
        "same function on several nodes with one driver version",
    )
    sick = Cause("this GPU", "possible", "returns on this GPU alone after a reset")
    if link:
        bus = Cause("the PCIe link: AER or hot-plug lines just before", "likely", "lspci -vvv of both ends")
        return Reading([bus, Cause(bug.text, "possible", bug.decider), sick], evidence=link[:4])
    if len(nodes) >= 3 and len(drivers) <= 1:
        return Reading(
            [
                Cause(
                    f"GSP firmware or driver bug: the same on {len(nodes)} nodes{driver}", "likely", "gone with another driver"
                ),
                Cause(sick.text, "unlikely", sick.decider),
            ],
            missing=[] if drivers else ["driver version of these nodes"],
            action="Reset the GPU or reboot; update or roll back the driver on all of these nodes.",
            note=f"; on {len(nodes)} nodes",
            confidence="high",
        )
    watched = set(case.kernel_logs)
    if len(watched) >= 3 and len(nodes) == 1 and _seconds(events) >= AGAIN_S:
        return Reading(
            [
                Cause(
                    f"this GPU: it came back here, and {len(watched) - 1} other nodes have none",
                    "likely",
                    "returns after a reset or swap",
                ),
                Cause(bug.text, "possible", bug.decider),
            ],
            action="Reset the GPU; when it returns, replace it.",
        )
    missing = [] if len(watched) >= 3 else ["kernel logs of other nodes with this driver: does the same function hang there"]
    return Reading([bug, sick], missing=missing)


def halted(code: int, device: str, events: list[Event], log: NodeEvents, case: Case) -> Reading:
    """XID 62: once, a reset; back after one, the hardware."""
    if _seconds(events) >= AGAIN_S:
        return Reading(
            [
                Cause("hardware: it came back after the GPU was in use again", "likely", "the same card in another slot"),
                Cause("driver", "possible", "only under one driver version"),
            ],
            note="; it came back",
            action="Drain; when it returns after a reset or power cycle, replace the GPU (RMA).",
        )
    return Reading(
        [
            Cause("micro-controller firmware or driver", "possible", "only under one driver version"),
            Cause("hardware", "possible", "back at once after a reset"),
            Cause("heat", "possible", "temperature before it"),
        ],
        missing=["whether it returns after a reset"],
        action="Drain the node, then reset the GPU; when it returns, replace it (RMA).",
    )


def context_switch(code: int, device: str, events: list[Event], log: NodeEvents, case: Case) -> Reading:
    """XID 109: with 13, 31 or 43 around it the program's; repeated with different processes the GPU's."""
    program = [
        e
        for e in log.of("xid")
        if e.code in (13, 31, 43) and e.device == device and any(near(e, x, FOLLOW_S) for x in few(events))
    ]
    pids = {e.fields["pid"] for e in events if "pid" in e.fields}
    if len(pids) >= 2 and _seconds(events) >= AGAIN_S:
        return Reading(
            [
                Cause("this GPU: it repeats with different processes", "likely", "dcgmi diag -r 3 after a reset"),
                Cause("one program that hangs the GPU", "possible", "the same job each time"),
            ],
            note=f"; {len(pids)} processes",
        )
    if program:
        return Reading(
            [
                Cause(f"the program (XID {program[0].code} with it)", "likely", "the same job on another node"),
                Cause("this GPU", "possible", "repeats with other jobs"),
            ],
            evidence=program[:3],
            severity="warning",
            action="Restart the application; reset the GPU only when it repeats.",
            note="; with a fault of the program",
        )
    return Reading(
        [
            Cause("the program: a kernel that does not yield", "possible", "the same job on another node"),
            Cause("this GPU or its firmware", "possible", "repeats with other jobs"),
        ],
        missing=["whether it repeats with other jobs"],
    )


def fabric(code: int, device: str, events: list[Event], log: NodeEvents, case: Case) -> Reading:
    """XID 136 and 155: links that did not come up. All GPUs at once: Fabric Manager or switch tray; one GPU: itself; one link: cable."""
    services = log.snapshot.software.services if log.snapshot is not None else {}
    manager = services.get("nvidia-fabricmanager")
    driver = log.snapshot.software.driver_version if log.snapshot is not None else None
    versions = manager is not None and manager.version is not None and driver is not None and manager.version != driver
    dead = manager is not None and manager.state not in (None, "active")
    said = log.of("fabric_manager.version_mismatch")
    gpus = {e.device for e in _xids(log.events, 136, 155) if any(near(e, x, BEFORE_S) for x in few(events))}
    everywhere = len(gpus) >= 4
    why = "its version differs from the driver's" if versions or said else "it does not run" if dead else ""
    causes = [
        Cause(
            "Fabric Manager" + (f": {why}" if why else " not running or of another version than the driver"),
            "likely" if why or everywhere else "possible",
            "systemctl status nvidia-fabricmanager; nv-fabricmanager --version",
        ),
        Cause("switch tray, cable cartridge or baseboard", "possible", "the same link index on both peers"),
        Cause("this GPU", "possible" if not everywhere else "unlikely", "all links of one GPU"),
    ]
    return Reading(
        causes,
        evidence=said[:2],
        action="Start Fabric Manager of exactly the driver's version, then reset the GPUs." if why else "",
        missing=[] if manager is not None else ["state and version of Fabric Manager"],
    )


_BY_CODE: dict[int, Callable[[int, str, list[Event], NodeEvents, Case], Reading]] = {
    62: halted,
    74: nvlink,
    109: context_switch,
    119: firmware,
    120: firmware,
    136: fabric,
    155: fabric,
    **dict.fromkeys(range(144, 151), nvlink),
    13: application,
    31: application,
}


def read(code: int, present: set[int], device: str, events: list[Event], log: NodeEvents, case: Case) -> Reading:
    """The reading of one code on one GPU; ``present`` are the codes that were merged into it, itself included."""
    if code == 79:
        return off_bus(device, events, log, case)
    if code in (48, 63, 64, 92, 94, 95, 171, 172):
        return memory(code, present, device, log)
    one = _BY_CODE.get(code)
    return one(code, device, events, log, case) if one is not None else Reading()
