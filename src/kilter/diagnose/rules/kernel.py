"""What else the kernel log tells: initialisation, AER, hot plug, NIC firmware, memory and hardware errors of the host, unknown fault lines."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterator

from kilter.diagnose.engine import Context, NodeEvents, rule, times
from kilter.diagnose.xid_causes import few, near
from kilter.facts.event import Event
from kilter.facts.finding import Cause, Evidence, Finding, Subject
from kilter.knowledge import aer

_DMESG = "dmesg -T, or journalctl -k -o short-iso"
#: Corrected host errors of one log: more than this is no stray cosmic ray.
MANY_CORRECTED = 100
#: What follows a slot that was switched off by hand within this time was asked for, s.
ASKED_S = 30.0


def _count(events: list[Event]) -> int:
    return sum(e.count for e in events)


def _by_device(events: list[Event]) -> dict[str, list[Event]]:
    groups: dict[str, list[Event]] = defaultdict(list)
    for event in events:
        groups[event.device].append(event)
    return groups


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
    for device, events in _by_device(log.of("gpu.init_failed", "gpu.gsp_boot_failed")).items():
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
    for device, events in _by_device(log.of("aer")).items():
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
        count = _count(events)
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
    for device, cut in _by_device(log.of("pcie.dpc")).items():
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
    by_device: dict[str, list[Event]] = defaultdict(list)
    for event in log.of("pcie.inaccessible"):
        by_device[event.device].append(event)
    for device, events in by_device.items():
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
        for device, events in _by_device(log.of(kind)).items():
            yield ctx.finding(
                severity,
                f"NIC {what}{times(events)}",
                id=f"nic.{kind}",
                subject=Subject("pci", device, log.node),
                evidence=events,
                action=action,
            )
    for device, events in _by_device(log.of("mlx5.link_down")).items():
        count = _count(events)
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
    "host.oom_kill",
    "Nothing was killed for want of memory",
    scope="log",
    family="host",
    sop="SOP-HOST",
    hint=_DMESG,
    sources=("Linux mm/oom_kill.c", "research: failure mode 50"),
    action="Raise the job's memory limit or lower its data-loader workers; a rank that vanished without an XID died here.",
)
def oom(log: NodeEvents, ctx: Context) -> Finding | None:
    """The kernel killed processes: of the whole host, or of one cgroup (container, Slurm job)."""
    events = log.of("oom.kill")
    if not events:
        return None
    names = ", ".join(dict.fromkeys(e.fields.get("name", "?") for e in events))
    cgroup = any("cgroup" in e.fields.get("scope", "") for e in events)
    return ctx.finding(
        "warning",
        f"out of memory: killed {names}{times(events)}" + (" (limit of a cgroup)" if cgroup else " (whole host)"),
        evidence=events,
    )


@rule(
    "host.stuck",
    "No task or CPU hangs in the kernel",
    scope="log",
    family="host",
    sop="SOP-HOST",
    hint=_DMESG,
    sources=("Linux kernel/hung_task.c, kernel/watchdog.c", "research: failure mode 51"),
    action="Find what the task waits for (its stack follows in the log): GPU driver, NFS or Lustre, disk. Reboot when it does not come back.",
    also=(
        "host.file_server_silent",
        "host.hung_task",
        "host.kernel_crash",
        "host.lockup",
    ),
)
def stuck(log: NodeEvents, ctx: Context) -> Iterator[Finding]:
    """Hung tasks, soft and hard lockups, RCU stalls. With XID 119/120 near them the GPU driver is what they wait for."""
    hung = log.of("hung_task")
    if hung:
        yield _blocked(hung, log, ctx)
    yield from _file_servers(log, ctx)
    locked = log.of("lockup", "rcu_stall")
    if locked:
        yield ctx.finding("error", f"CPU lockup or RCU stall{times(locked)}", id="host.lockup", evidence=locked)
    dead = log.of("kernel.panic", "kernel.oops")
    if dead:
        yield ctx.finding("critical", "kernel panic or oops", id="host.kernel_crash", evidence=dead)


#: What a call trace waits in: modules, beginnings of functions -> cause, what tells.
_WAITS_FOR: tuple[tuple[tuple[str, ...], tuple[str, ...], str, str], ...] = (
    (("nvidia", "nvidia_uvm", "nvidia_modeset"), ("nv_", "nvidia_", "uvm_", "os_acquire"), "the GPU driver", "XIDs and NVRM lines before it"),
    (("lustre", "ptlrpc", "obdclass", "osc", "lov", "mdc", "lmv", "ldlm", "lnet", "ksocklnd", "ko2iblnd"), ("ll_", "cl_sync_io", "ptlrpc_", "ldlm_"), "a Lustre server", "lctl get_param *.*.state; LustreError lines"),
    (("nfs", "nfsv3", "nfsv4", "sunrpc", "lockd"), ("nfs_", "nfs4_", "rpc_", "nfs3_"), "an NFS server", "nfsstat -m; 'nfs: server ... not responding'"),
    (("mmfs26", "mmfslinux", "tracedev"), ("mmfs", "cxiWait"), "GPFS", "mmdiag --waiters"),
    (("ceph", "libceph"), ("ceph_",), "Ceph", "ceph -s"),
    (("beegfs",), ("FhgfsOps", "beegfs"), "BeeGFS", "beegfs-ctl --listnodes"),
    (("wekafsio", "wekafsgw"), ("weka",), "WekaFS", "weka status"),
    (("fuse",), ("fuse_", "request_wait_answer"), "a FUSE file system", "the daemon behind the mount"),
    (("mlx5_core", "mlx5_ib", "ib_core", "ib_uverbs", "rdma_cm"), ("mlx5_", "ib_", "rdma_", "uverbs_"), "the RDMA stack", "mlx5 lines of the kernel log"),
    ((), ("percpu_rwsem_wait", "sb_start_write", "freeze_super"), "a frozen file system (snapshot or fsfreeze)", "findmnt; who froze it"),
    (("xfs", "ext4", "jbd2", "dm_mod", "nvme", "nvme_core", "raid1", "md_mod"), ("xfs_", "ext4_", "jbd2_", "blk_", "nvme_", "submit_bio", "wait_on_page", "folio_wait"), "a local disk", "nvme, I/O error and EXT4/XFS lines; smartctl"),
    ((), ("shrink_", "try_to_free", "__alloc_pages_slowpath", "mem_cgroup_oom"), "free memory (reclaim)", "free, numastat, memory cgroup limits"),
)  # fmt: skip


def _waits_for(event: Event) -> tuple[str, str] | None:
    """(what a blocked task waits for, what tells), from the innermost frame of its call trace that says."""
    modules = set(event.fields.get("modules", "").split())
    for function in event.fields.get("stack", "").split():
        for _, beginnings, cause, decider in _WAITS_FOR:
            if function.startswith(beginnings):
                return cause, decider
    return next(((cause, decider) for names, _, cause, decider in _WAITS_FOR if modules & set(names)), None)


def _blocked(hung: list[Event], log: NodeEvents, ctx: Context) -> Finding:
    longest: dict[str, int] = {}
    for event in hung:
        name = event.fields.get("name", "?")
        longest[name] = max(longest.get(name, 0), int(event.fields.get("seconds", "0")[:6]))
    causes = []
    if any(e.code in (119, 120) for e in log.of("xid")):
        causes.append(Cause("the GPU driver waits for GSP firmware (XID 119/120)", "likely"))
    waits = dict.fromkeys(found for event in hung if (found := _waits_for(event)))
    causes += [Cause(f"waits for {cause}", "likely", decider) for cause, decider in waits]
    silent = [e for e in log.of("nfs.server") if e.fields.get("what") != "OK"]
    if silent:
        names = ", ".join(dict.fromkeys(e.device for e in silent[:4]))
        causes.insert(0, Cause(f"the file server {names} does not answer", "likely", "df and ls on that mount; the server"))
    if not causes:
        causes = [
            Cause("storage or network file system", "possible", "the call trace below the line"),
            Cause("a driver", "possible"),
        ]
    what = ", ".join(f"{name} (over {seconds} s)" for name, seconds in list(longest.items())[:6])
    more = f" and {len(longest) - 6} more" if len(longest) > 6 else ""
    stacks = [
        Evidence(f"call trace of {e.fields.get('name', '?')}: {' < '.join(e.fields['stack'].split()[:6])}", e.where)
        for e in hung
        if "stack" in e.fields
    ]
    return ctx.finding(
        "warning",
        f"tasks blocked in the kernel: {what}{more}",
        id="host.hung_task",
        evidence=[*hung, *stacks[:2], *(Evidence(e.text, e.where) for e in silent[:2])],
        causes=causes,
        missing=[] if stacks else ["the call trace of the task"],
    )


def _parts(units: list[str]) -> list[Cause]:
    """Which part a machine check points to."""
    dimm = Cause(
        "DIMM or its channel", "likely" if units == ["memory controller"] else "possible", "ras-mc-ctl --errors; BMC log"
    )
    cpu = Cause(
        "CPU",
        "likely" if units and "memory controller" not in units else "possible",
        "the same bank again after a swap of sockets",
    )
    return [cpu] if units and "memory controller" not in units else [dimm, cpu]


def _machine_checks(log: NodeEvents, ctx: Context) -> Iterator[Finding]:
    """Uncorrected ones are errors; corrected ones are information until they are many; those whose status is not shown are warnings."""
    checks = [e for e in log.of("machine_check") if e.fields.get("severity", "") not in ("corrected", "recoverable", "info")]
    for kind, severity in (("uncorrected", "error"), ("", "warning"), ("corrected", "info")):
        events = [e for e in checks if e.severity.replace("fatal", "uncorrected") == kind]
        if not events:
            continue
        units = sorted({e.fields["unit"] for e in events if "unit" in e.fields})
        many = sum(e.count for e in events)
        yield ctx.finding(
            "warning" if kind == "corrected" and many >= MANY_CORRECTED else severity,
            f"{kind or 'a'} machine check{' of the ' + ', '.join(units) if units else ''} logged{times(events)}",
            id="host.machine_check_corrected" if kind == "corrected" else "host.machine_check",
            evidence=events,
            causes=_parts(units),
        )


def _file_servers(log: NodeEvents, ctx: Context) -> Iterator[Finding]:
    """File servers that stopped answering and, by this log, never came back."""
    for server, events in _by_device(log.of("nfs.server")).items():
        last = max(events, key=lambda e: (e.last_time or e.time or 0.0, e.line))
        if last.fields.get("what") != "OK":
            yield ctx.finding(
                "warning",
                f"file server {server} does not answer{times(events)}",
                id="host.file_server_silent",
                evidence=events,
                causes=[
                    Cause("the server or the network to it", "likely", "the same on other clients"),
                    Cause("this node's own network", "possible", "link and bond of this node"),
                ],
                action="Look at the server and the network; jobs that read or write there wait until it answers.",
            )


@rule(
    "host.hardware_error",
    "No machine check or memory error of the host",
    scope="log",
    family="host",
    sop="SOP-HOST",
    hint=f"{_DMESG}; ras-mc-ctl --summary",
    sources=("Linux drivers/edac, arch/x86/kernel/cpu/mce", "research: failure mode 52"),
    action="Find the DIMM or CPU (ras-mc-ctl, BMC log) and replace it.",
    also=(
        "host.clock_unstable",
        "host.iommu_fault",
        "host.machine_check",
        "host.machine_check_corrected",
        "host.memory_corrected",
        "host.storage_error",
    ),
)
def hardware(log: NodeEvents, ctx: Context) -> Iterator[Finding]:
    """Machine checks and EDAC counts. Corrected host memory errors are information until they are many."""
    edac = log.of("edac")
    bad = [e for e in edac if e.severity == "UE" or e.fields.get("severity") == "UE"]
    corrected = [e for e in edac if e not in bad]
    if bad:
        yield ctx.finding("error", f"uncorrected host memory error{times(bad)}", evidence=bad)
    if corrected:
        many = sum(int(e.fields.get("count", "1")) * e.count for e in corrected)
        yield ctx.finding(
            "warning" if many >= MANY_CORRECTED else "info",
            f"{many} corrected host memory error(s)",
            id="host.memory_corrected",
            evidence=corrected,
        )
    yield from _machine_checks(log, ctx)
    disks = log.of("filesystem.read_only", "filesystem.error", "nvme.timeout", "disk.io_error")
    if disks:
        yield ctx.finding(
            "error",
            f"storage error: {disks[0].text}{times(disks)}",
            id="host.storage_error",
            evidence=disks,
            action="Check the disk (smartctl, nvme smart-log) and the file system.",
        )
    clocks = log.of("clock.unstable")
    if clocks:
        yield ctx.finding(
            "warning",
            f"the kernel gave up a clock source: {', '.join(dict.fromkeys(e.device for e in clocks))}",
            id="host.clock_unstable",
            evidence=clocks,
            causes=[
                Cause(
                    "firmware (SMIs, unsynchronised TSC) or a stalled host",
                    "possible",
                    "cat /sys/devices/system/clocksource/*/current_clocksource",
                )
            ],
            action="Update the BIOS; reading the time is slower now, and times of this node are less sure.",
        )
    iommu = log.of("iommu.fault")
    if iommu:
        yield ctx.finding(
            "warning",
            f"IOMMU fault{times(iommu)}: a device touched memory it may not",
            id="host.iommu_fault",
            evidence=iommu,
            sop="SOP-SW",
            action="On bare metal try iommu=pt; with peer-to-peer traffic this breaks transfers.",
        )


@rule(
    "process.segfault",
    "No GPU process crashed in a library",
    scope="log",
    family="software",
    sop="SOP-APP",
    hint=_DMESG,
    sources=("Linux arch/x86/mm/fault.c: show_signal_msg",),
    action="Collect NCCL_DEBUG logs of all ranks and the library versions of each rank; no hardware action.",
    also=("nccl.process_segfault",),
)
def segfault(log: NodeEvents, ctx: Context) -> Iterator[Finding]:
    """A process crashed inside libnccl, the CUDA libraries or a training process. A symptom, often after a peer died or with mixed builds."""
    libraries = (
        "libnccl",
        "libcuda",
        "libcudart",
        "libnvidia",
        "libtorch",
        "libcudnn",
        "libmlx5",
        "libibverbs",
        "libucp",
        "libbkcl",
    )
    for event in log.of("segfault"):
        library = event.fields.get("library", "")
        if library.startswith("libnccl"):
            yield ctx.finding(
                "warning",
                f"{event.fields.get('name', 'a process')} crashed inside {library}{times([event])}",
                id="nccl.process_segfault",
                evidence=[event],
                causes=["a peer died or the communicator was torn down", "ranks with different NCCL builds"],
                sop="SOP-NCCL",
            )
        elif library.startswith(libraries) or event.fields.get("name", "").startswith(("python", "pt_", "nv", "vllm", "sglang")):
            yield ctx.finding(
                "info",
                f"{event.fields.get('name', 'a process')} crashed" + (f" inside {library}" if library else "") + times([event]),
                evidence=[event],
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
        "info", f"{_count(events)} driver line(s) look like faults and are not understood", evidence=events, confidence="low"
    )
