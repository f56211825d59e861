"""What the kernel log tells of the host itself: memory and CPUs, storage and file servers, tasks that hang, crashes."""

from __future__ import annotations

from collections.abc import Iterator

from kilter.diagnose.engine import Context, NodeEvents, rule, times
from kilter.facts.event import Event, by_device, count_of
from kilter.facts.finding import Cause, Evidence, Finding

_DMESG = "dmesg -T, or journalctl -k -o short-iso"
#: Corrected host errors of one log: more than this is no stray cosmic ray.
MANY_CORRECTED = 100


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
        many = count_of(events)
        yield ctx.finding(
            "warning" if kind == "corrected" and many >= MANY_CORRECTED else severity,
            f"{kind or 'a'} machine check{' of the ' + ', '.join(units) if units else ''} logged{times(events)}",
            id="host.machine_check_corrected" if kind == "corrected" else "host.machine_check",
            evidence=events,
            causes=_parts(units),
        )


def _file_servers(log: NodeEvents, ctx: Context) -> Iterator[Finding]:
    """File servers that stopped answering and, by this log, never came back."""
    for server, events in by_device(log.of("nfs.server")).items():
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
