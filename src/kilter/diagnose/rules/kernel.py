"""What else the kernel log tells of devices: initialisation, AER, hot plug, NIC firmware, unknown fault lines. The host itself: host_log.py."""

from __future__ import annotations

from collections.abc import Iterator

from kilter.diagnose.engine import Context, NodeEvents, rule, times
from kilter.diagnose.xid_causes import few, near
from kilter.facts.event import Event, by_device, count_of
from kilter.facts.finding import Cause, Finding, Subject
from kilter.knowledge import aer

_DMESG = "dmesg -T, or journalctl -k -o short-iso"
#: What follows a slot that was switched off by hand within this time was asked for, s.
ASKED_S = 30.0


@rule(
    "gpu.init_failed",
    "Every GPU was initialised",
    scope="log",
    family="gpu",
    sop="SOP-GSP",
    hint=_DMESG,
    sources=("NVIDIA open modules: RmInitAdapter", "research: failure mode 22"),
    action="Cold power cycle; if it returns, update firmware and driver, then inspect the GPU.",
    also=(
        "driver.version_mismatch",
        "gpu.bar_invalid",
        "gpu.gsp_slow",
        "gpu.probe_failed",
        "gpu.watchdog",
    ),
)
def init_failed(log: NodeEvents, ctx: Context) -> Iterator[Finding]:
    """The driver could not bring a GPU up: RmInitAdapter, GSP boot, failed probe, invalid BAR, or module and library of different versions."""
    for device, events in by_device(log.of("gpu.init_failed", "gpu.gsp_boot_failed")).items():
        status = next((e.fields["status"] for e in events if "status" in e.fields), "")
        yield ctx.finding(
            "critical",
            f"driver could not initialise the GPU{f' (status {status})' if status else ''}{times(events)}",
            subject=Subject("gpu", log.gpu_name(device), log.node),
            evidence=events,
        )
    probe = log.of("gpu.probe_failed")
    if probe:
        yield ctx.finding("error", f"the driver's probe failed{times(probe)}", id="gpu.probe_failed", evidence=probe)
    bars = log.of("gpu.bar_invalid")
    if bars:
        yield ctx.finding(
            "error",
            "firmware gave a GPU no valid PCI region (BAR)",
            id="gpu.bar_invalid",
            evidence=bars,
            action="Turn on Above 4G Decoding; boot with pci=realloc as a test.",
            sop="SOP-SW",
        )
    mismatch = log.of("driver.api_mismatch")
    if mismatch:
        yield ctx.finding(
            "error",
            "driver library and kernel module have different versions (API mismatch)",
            id="driver.version_mismatch",
            evidence=mismatch,
            action="Reload the module or reboot after the package update.",
            sop="SOP-SW",
        )
    locked = log.of("gpu.watchdog")
    if locked:
        yield ctx.finding(
            "warning",
            f"the driver's watchdog found the GPU locked up{times(locked)}",
            id="gpu.watchdog",
            evidence=locked,
            action="Look for the XID that follows (8, 109, 119); reset the GPU when it stays.",
        )
    slow = log.of("gpu.gsp_slow")
    if slow:
        yield ctx.finding(
            "warning",
            f"GSP firmware answers slowly{times(slow)}: often before XID 119",
            id="gpu.gsp_slow",
            evidence=slow,
            action="Watch for XID 119; collect nvidia-bug-report.sh.",
        )


@rule(
    "rdma.peermem.invalid_context",
    "nvidia-peermem keeps its contexts",
    scope="log",
    family="rdma",
    sop="SOP-NCCL",
    hint=_DMESG,
    sources=("NVIDIA open modules: kernel-open/nvidia-peermem/nvidia-peermem.c",),
    action="Restart the job that used GPUDirect RDMA; if it returns, reload nvidia-peermem or use DMA-BUF.",
)
def peermem(log: NodeEvents, ctx: Context) -> Finding | None:
    """nvidia-peermem found pinned GPU memory without its context: mostly the GPU process died before its RDMA user."""
    events = log.of("peermem.invalid_context", "peermem.error")
    if not events:
        return None
    return ctx.finding(
        "warning",
        f"nvidia-peermem lost the context of pinned GPU memory{times(events)}",
        evidence=events,
        causes=[
            Cause("the GPU process died first", "likely", "job log at that time"),
            Cause("nvidia-peermem of another driver or OFED build", "possible", "rebuild after OFED"),
        ],
    )


#: Errors by which one end tells that the other was silent.
_TARGET_SILENT = {"CmpltTO", "UnsupReq", "CmpltAbrt", "UnxCmplt"}
_TARGET_S = 60.0


def _silent_target(events: list[Event], log: NodeEvents) -> tuple[str, Event] | None:
    """The GPU or NIC that hung or was lost near a completion timeout, and the line that says so (research: failure mode 32)."""
    for other in log.of("xid", "gpu.off_bus", "mlx5.health"):
        lost = other.kind != "xid" or other.code in (79, 119, 120)
        if lost and any(near(other, e, _TARGET_S) for e in few(events)):
            if other.kind == "mlx5.health":
                return f"the NIC {other.device} (firmware health)", other
            return f"{log.gpu_name(other.device)} (XID {other.code or 79})", other
    return None


_LINK_ERRORS = {"RxErr", "BadTLP", "BadDLLP", "Rollover", "Timeout", "DLP", "SDES"}
_SWAP = "swap the card with a sibling's slot: the errors follow the card, or stay with slot, riser and port; sysfs reads 0 where firmware handles AER"


def _link_ends(device: str, names: list[str], log: NodeEvents) -> list[Cause]:
    """Hypotheses on a bad link: who reports it is the receiver, and the sender or the lanes are as likely (research: section 3, AER reporter)."""
    if not set(names) & _LINK_ERRORS:
        return []
    pci = (log.snapshot.pci if log.snapshot is not None else None) or {}
    known = pci.get(device)
    others = {e.device for e in log.of("aer") if set(e.fields.get("errors", "").split()) & _LINK_ERRORS} - {device}
    partner = next((o for o in others if (known is not None and known.parent == o) or (o in pci and pci[o].parent == device)), "")
    lanes = Cause(
        "lanes between both ends: contact, riser, retimer or cable",
        "likely" if partner else "possible",
        f"both ends report ({partner})" if partner else "errors at both ends",
    )
    return [
        lanes,
        Cause(
            "transmitter of the link partner",
            "unlikely" if partner else "possible",
            "only this end reports; gone behind another port",
        ),
        Cause(
            f"receiver of {device or 'this device'}",
            "unlikely" if partner else "possible",
            "the errors follow the card into another slot",
        ),
    ]


@rule(
    "pcie.aer.*",
    "No PCIe error in the kernel log",
    scope="log",
    family="pcie",
    sop="SOP-BUS",
    hint=_DMESG,
    sources=("Linux Documentation/PCI/pcieaer-howto.rst", "knowledge: aer.yaml"),
    action="Look at both ends of the link (lspci -vvv), reseat card, riser or cable.",
)
def aer_log(log: NodeEvents, ctx: Context) -> Iterator[Finding]:
    """AER messages by device. Uncorrected ones lost a transaction; corrected ones matter by their rate.

    The device named is the one that noticed. For receiver errors the sender or the lanes between are as likely at fault.
    """
    roots = log.of("aer.root")
    for device, events in by_device(log.of("aer")).items():
        names = sorted({name for e in events for name in e.fields.get("errors", "").split()})
        uncorrected = [e for e in events if "ncorrect" in e.severity or "Fatal" in e.severity]
        entries = [entry for name in names if (entry := aer.lookup(name)) is not None]
        causes = [Cause(f"{entry.name}: {entry.cause}") for entry in entries[:3]]
        subject = Subject("pci", device, log.node)
        if names and set(names) <= _TARGET_SILENT and (silent := _silent_target(events, log)) is not None:
            causes.insert(0, Cause(f"{silent[0]} did not answer; the reporter is its victim", "likely", "order of the lines"))
            events = [*events, silent[1]]
        ends = _link_ends(device, names, log)
        causes += ends
        test = _SWAP if ends else ""
        if uncorrected:
            fatal = any("(Fatal" in e.severity or e.severity == "Fatal" for e in uncorrected)
            yield ctx.finding(
                "error" if fatal else "warning",
                f"uncorrected PCIe error{times(uncorrected)}: {', '.join(names) or uncorrected[0].fields.get('type', '')}",
                id="pcie.aer.uncorrected",
                subject=subject,
                evidence=events,
                causes=causes,
                next_test=test,
            )
            continue
        count = count_of(events)
        span = max((e.last_time or e.time or 0.0) for e in events) - min((e.time or 0.0) for e in events)
        rate = count / max(span / 60, 1.0)
        if count >= 10 and rate >= 1.0:
            yield ctx.finding(
                "warning",
                f"{count} corrected PCIe errors, {rate:.0f} a minute: {', '.join(names)}",
                id="pcie.aer.corrected_storm",
                subject=subject,
                evidence=events,
                causes=causes,
                next_test=test,
            )
        else:
            yield ctx.finding(
                "info",
                f"{count} corrected PCIe error(s): {', '.join(names)}",
                id="pcie.aer.corrected",
                subject=subject,
                evidence=events,
                causes=causes,
                next_test=test,
                action="Watch the rate.",
            )
    if roots and not log.of("aer"):
        bad = [e for e in roots if "ncorrect" in e.severity]
        if bad:
            yield ctx.finding(
                "warning",
                f"root port received uncorrectable errors{times(bad)}, the device's own lines are missing",
                id="pcie.aer.uncorrected",
                evidence=bad,
                confidence="medium",
            )


@rule(
    "pcie.hotplug.link_down",
    "No slot lost its link",
    scope="log",
    family="pcie",
    sop="SOP-BUS",
    hint=_DMESG,
    sources=("Linux drivers/pci/hotplug/pciehp_ctrl.c, drivers/pci/pcie/dpc.c",),
    action="Look for what sat in the slot; power, cable and riser of that slot.",
    also=("pcie.dpc",),
)
def hotplug(log: NodeEvents, ctx: Context) -> Iterator[Finding]:
    """pciehp saw a link go down or a card vanish without anybody asking for it (attention button, slot power), or a port cut its link off
    after an error (DPC)."""
    asked = [e for e in log.of("pcie.hotplug") if e.fields.get("what") == "Powering off due to button press"]
    events = [
        e
        for e in log.of("pcie.hotplug")
        if e.fields.get("what") in ("Link Down", "Card not present", "Failed to check link status", "Surprise Removal")
        and not any(a.fields.get("slot") == e.fields.get("slot") and 0 <= (e.time or 0) - (a.time or 0) <= ASKED_S for a in asked)
    ]
    if events:
        yield ctx.finding(
            "error",
            f"PCIe hot plug: {events[0].fields['what']} in slot {events[0].fields.get('slot', '?')}{times(events)}",
            evidence=events,
            causes=[
                Cause("contact, riser or cable of the slot", "possible", "AER lines before it; the same slot again"),
                Cause("the device lost power or died", "possible", "BMC's event log; XID 79 of a GPU there"),
                Cause("somebody pulled it or turned the slot off", "possible", "who worked there"),
            ],
        )
    for device, cut in by_device(log.of("pcie.dpc")).items():
        yield ctx.finding(
            "error",
            f"a port cut its link off after an uncorrectable error (downstream port containment){times(cut)}",
            id="pcie.dpc",
            subject=Subject("pci", device, log.node),
            evidence=cut,
            causes=[
                Cause("the link or the device below it", "likely", "AER lines of that time; lspci -t: what is below this port"),
                Cause("a surprise removal or loss of power of the device", "possible", "BMC's event log"),
            ],
        )


@rule(
    "pcie.device_inaccessible",
    "PCI functions answer",
    scope="log",
    family="pcie",
    sop="SOP-BUS",
    hint=_DMESG,
    sources=("Linux drivers/pci/pci.c: pci_power_up, pci_dev_wait",),
    action="Look at the port above it (lspci -vvv: LnkSta, SltSta), then at slot power, riser and seat; a cold boot tells a hung device from a dead one.",
)
def inaccessible(log: NodeEvents, ctx: Context) -> Iterator[Finding]:
    """The kernel could not bring a function to D0 or waited in vain for it after a reset: its configuration space does not answer."""
    for device, events in by_device(log.of("pcie.inaccessible")).items():
        driver = events[0].fields.get("driver", "")
        yield ctx.finding(
            "error",
            f"PCI function does not answer{f' (driver {driver})' if driver else ''}{times(events)}",
            subject=Subject("pci", device, log.node),
            evidence=events,
            causes=[
                Cause(
                    "the device fell off the bus or never trained",
                    "likely",
                    "lspci shows revision ff, or nothing at this address",
                ),
                Cause("its slot or port is powered off", "possible", "SltSta and LnkSta of the port above"),
            ],
        )


@rule(
    "nic.mlx5.*",
    "NIC firmware is healthy",
    scope="log",
    family="rdma",
    sop="SOP-IB",
    hint=_DMESG,
    sources=("Linux drivers/net/ethernet/mellanox/mlx5/core/health.c, port.c", "research: failure mode 35"),
    also=(
        "ib.link_flapping",
        "nic.*",
    ),
)
def mlx5(log: NodeEvents, ctx: Context) -> Iterator[Finding]:
    """mlx5: firmware health, command time-outs, module and cable errors, temperature, power."""
    texts = {
        "mlx5.health": (
            "error",
            "firmware health compromised",
            "Reset the NIC (mlxfwreset) or reboot; collect mstdump; update firmware.",
        ),
        "mlx5.timeout": ("error", "firmware commands time out", "Check PCIe errors of the NIC; reset the NIC or reboot."),
        "mlx5.module": ("error", "cable or module error", "Reseat or swap the cable or transceiver."),
        "mlx5.temperature": ("warning", "over temperature", "Check air flow over the NIC and the transceiver."),
        "mlx5.power": (
            "warning",
            "slot gives too little power for the NIC",
            "Check the auxiliary power and the slot's power limit.",
        ),
    }
    for kind, (severity, what, action) in texts.items():
        for device, events in by_device(log.of(kind)).items():
            yield ctx.finding(
                severity,
                f"NIC {what}{times(events)}",
                id=f"nic.{kind}",
                subject=Subject("pci", device, log.node),
                evidence=events,
                action=action,
            )
    for device, events in by_device(log.of("mlx5.link_down")).items():
        count = count_of(events)
        if count >= 3:
            yield ctx.finding(
                "warning",
                f"link went down {count} times",
                id="ib.link_flapping",
                subject=Subject("port", events[0].fields.get("netdev", device), log.node),
                evidence=events,
                action="Inspect cable and transceiver of this port; look at the switch side.",
                disagreement="gpud calls 3 flaps in 12 h a fault, Azure's health checks 5 in 24 h.",
            )


@rule(
    "log.unknown_fault",
    "No driver line that kilter does not know smells of a fault",
    scope="log",
    family="log",
    hint=_DMESG,
    sources=("kilter: silence is never health; a fault-like line that nothing parses is itself reported",),
    action="Read the lines. If they are a fault kilter should know, report them.",
)
def unknown(log: NodeEvents, ctx: Context) -> Finding | None:
    """Lines of the GPU, NVSwitch or NIC driver with words of failure that no rule reads."""
    events = log.of("unknown_fault", "nvrm.failure")
    if not events:
        return None
    return ctx.finding(
        "info", f"{count_of(events)} driver line(s) look like faults and are not understood", evidence=events, confidence="low"
    )
