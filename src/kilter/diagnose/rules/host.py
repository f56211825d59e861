"""Host settings that GPU jobs trip over: limits, shared memory, IOMMU, peermem, EDAC."""

from __future__ import annotations

from collections.abc import Iterator

from kilter.diagnose.engine import Context, rule
from kilter.facts.case import Snapshot
from kilter.facts.derived import forces_translation, passes_through
from kilter.facts.finding import Cause, Evidence, Finding
from kilter.facts.host import UNLIMITED, Kernel, Limits, Memory, Software

MIB = 1 << 20


def _has_rdma(snapshot: Snapshot) -> bool:
    return bool(snapshot.rdma) or any(d.vendor_id == 0x15B3 for d in (snapshot.pci or {}).values())


def _has_gpu(snapshot: Snapshot) -> bool:
    return bool(snapshot.accelerators) or any(d.is_accelerator for d in (snapshot.pci or {}).values())


@rule(
    "host.memlock_limit_low",
    "Locked-memory limit allows RDMA",
    scope="node",
    family="host",
    sop="SOP-SW",
    hint="ulimit -l inside the job",
    sources=("NVIDIA/nccl-tests#206", "libibverbs ibv_reg_mr(3): ENOMEM when RLIMIT_MEMLOCK is too low"),
    action="memlock unlimited for the job's service: limits.conf, LimitMEMLOCK of slurmd or containerd, --ulimit memlock=-1.",
)
def memlock(snapshot: Snapshot, ctx: Context) -> Finding | None:
    """RDMA registers (pins) memory; a limit of 64 KiB or 8 MiB makes that fail. It is judged where there is RDMA hardware or an RDMA job.

    Only the limit of a job's own shell counts. kilter's own process says little about a job that another service starts.
    """
    limit = ctx.need(snapshot.limits, Limits.memlock_bytes)
    if (
        not _has_rdma(snapshot)
        and not any(j.ib_devices for j in ctx.case.jobs)
        and not any(e.kind == "nccl.ib.reg_mr" for e in ctx.case.events)
    ):
        raise ctx.skip("no RDMA device is known")
    if limit == UNLIMITED or limit >= 1 << 30:
        return None
    scope = snapshot.limits.scope or ""
    own = scope.startswith("this process") or scope == "kilter"
    return ctx.finding(
        "info" if own else "warning",
        f"locked memory is limited to {limit // 1024} KiB" + (" in this shell; a job may have another limit" if own else ""),
        confidence="low" if own else "high",
    )


@rule(
    "container.shm_small",
    "Shared memory is large enough",
    scope="node",
    family="host",
    sop="SOP-SW",
    hint="df -k /dev/shm",
    sources=("Docker run reference: --shm-size defaults to 64 MB", "PyTorch data loader and NCCL use /dev/shm"),
    action="--shm-size or --ipc=host; in Kubernetes an emptyDir with medium Memory at /dev/shm.",
)
def shm(snapshot: Snapshot, ctx: Context) -> Finding | None:
    """/dev/shm at the container default of 64 MB, or nearly full: NCCL and data loaders fail."""
    size = ctx.need(snapshot.limits, Limits.shm_bytes)
    free = ctx.known(snapshot.limits, Limits.shm_free_bytes)
    if size <= 64 * MIB:
        return ctx.finding("warning" if _has_gpu(snapshot) else "info", f"/dev/shm has {size // MIB} MiB: the container default")
    if free is not None and size and free < 16 * MIB:
        return ctx.finding("warning", f"/dev/shm is full: {free // MIB} MiB of {size // MIB} MiB left")
    return None


@rule(
    "module.nvidia_peermem.not_loaded",
    "GPUDirect RDMA module is there",
    scope="node",
    family="rdma",
    sop="SOP-SW",
    hint="lsmod",
    sources=("NVIDIA/nccl#1412", "NVIDIA GPUDirect RDMA documentation (nvidia-peermem; DMA-BUF with the open modules)"),
    action="modprobe nvidia-peermem and load it at boot; with the open modules and kernel 5.12 or newer DMA-BUF does without it.",
)
def peermem(snapshot: Snapshot, ctx: Context) -> Finding | None:
    """A node with NVIDIA GPUs and RDMA NICs and no peer-memory module. With the open kernel modules DMA-BUF replaces it."""
    modules = ctx.need(snapshot.kernel, Kernel.modules)
    if not (_has_rdma(snapshot) and _has_gpu(snapshot)) or "nvidia" not in modules:
        raise ctx.skip("no GPU together with RDMA")
    if "modules" in snapshot.kernel.missing:
        raise ctx.missing("whole list of modules (only some were given)")
    if any(name in modules for name in ("nvidia_peermem", "nv_peer_mem")):
        return None
    flavour = ctx.known(snapshot.software, Software.driver_flavour)
    if flavour == "open":
        return ctx.finding(
            "info",
            "nvidia-peermem is not loaded; the open modules offer DMA-BUF instead",
            reads=False,
            evidence=[ctx.fact(snapshot.software, "driver_flavour")],
        )
    return ctx.finding(
        "warning",
        "nvidia-peermem is not loaded: RDMA goes through host memory",
        reads=False,
        evidence=[],
        confidence="high" if flavour else "medium",
        missing=[] if flavour else ["whether the driver is open or proprietary"],
    )


@rule(
    "pcie.iommu_translation",
    "IOMMU does not translate peer-to-peer traffic",
    scope="node",
    family="pcie",
    sop="SOP-SW",
    hint="cat /proc/cmdline",
    sources=(
        "NVIDIA/nccl#257",
        "NVIDIA GPUDirect Storage and NCCL troubleshooting guides: disable IOMMU or use passthrough on bare metal",
        "Linux Documentation/admin-guide/kernel-parameters.txt",
    ),
    action="On bare metal boot with iommu=pt (or the IOMMU off in firmware). Keep translation where VMs need it.",
)
def iommu(snapshot: Snapshot, ctx: Context) -> Finding | None:
    """The boot line forces IOMMU translation on bare metal with several GPUs: peer-to-peer writes go through it, are slow or get lost.

    The kernel's default is not judged from the boot line: distributions differ (CONFIG_IOMMU_DEFAULT_PASSTHROUGH). Where the boot log names
    the default domain type, Translated is told as information.
    """
    domain = ctx.known(snapshot.kernel, Kernel.iommu_domain)
    if domain is None:
        ctx.need(snapshot.kernel, Kernel.cmdline)
    if snapshot.host.virtualization not in (None, "none"):
        raise ctx.skip("a guest: the host decides")
    gpus = [d for d in (snapshot.pci or {}).values() if d.is_accelerator] or snapshot.accelerators or []
    if len(gpus) < 2:
        raise ctx.skip("fewer than two GPUs")
    if not forces_translation(snapshot):
        if domain != "Translated" or passes_through(snapshot):
            return None
        return ctx.finding(
            "info",
            "the IOMMU translates by default: peer-to-peer traffic between GPUs and NICs may be slow or refused",
            confidence="medium",
            missing=["P2P and GPUDirect bandwidth: p2pBandwidthLatencyTest, ib_write_bw --use_cuda"],
        )
    return ctx.finding(
        "warning",
        "the boot line turns IOMMU translation on without passthrough (iommu=pt)",
        confidence="medium",
        missing=["whether VMs run on this host"],
    )


@rule(
    "host.edac",
    "Host memory corrects no errors",
    scope="node",
    family="host",
    sop="SOP-HOST",
    hint="grep . /sys/devices/system/edac/mc/mc*/*_count",
    sources=("Linux Documentation/driver-api/edac.rst",),
    action="Find the DIMM (ras-mc-ctl --error-count) and plan its replacement.",
)
def edac(snapshot: Snapshot, ctx: Context) -> Finding | None:
    """EDAC counters of the memory controllers: uncorrected errors, or many corrected ones."""
    uncorrected = ctx.need(snapshot.memory, Memory.edac_ue)
    corrected = ctx.known(snapshot.memory, Memory.edac_ce) or 0
    if uncorrected:
        return ctx.finding("error", f"{uncorrected} uncorrected host memory error(s) since boot")
    return (
        ctx.finding("info" if corrected < 1000 else "warning", f"{corrected} corrected host memory errors since boot")
        if corrected
        else None
    )


@rule(
    "host.numa_unbalanced",
    "Every NUMA node has memory",
    scope="node",
    family="host",
    sop="SOP-HOST",
    hint="numactl -H",
    sources=("Linux Documentation/admin-guide/mm/numaperf.rst",),
    action="Look for a missing DIMM or a memory channel that firmware turned off.",
)
def numa(snapshot: Snapshot, ctx: Context) -> Finding | None:
    """One NUMA node with CPUs has much less memory than its siblings: a DIMM or channel is missing."""
    nodes = [n for n in snapshot.cpu.numa or [] if n.memory_total_bytes is not None and n.cpus]
    if not nodes:
        raise ctx.missing("memory of the NUMA nodes")
    if len(nodes) < 2:
        raise ctx.skip("one NUMA node")
    best = max(n.memory_total_bytes or 0 for n in nodes)
    low = [n for n in nodes if (n.memory_total_bytes or 0) < 0.75 * best]
    if not low:
        return None
    worst = min(low, key=lambda n: n.memory_total_bytes or 0)
    return ctx.finding(
        "warning",
        f"NUMA node {worst.id} has {(worst.memory_total_bytes or 0) >> 30} GiB, others {best >> 30} GiB",
        evidence=[ctx.fact(n, "memory_total_bytes") for n in nodes[:8]],
        causes=[Cause("missing or disabled DIMM", "likely", "dmidecode -t memory; BMC")],
    )


#: Services whose failure keeps jobs or GPUs off a node. Fabric Manager has its own check, since many machines need none.
_SERVICES = {
    "openibd": "the RDMA drivers are not set up",
    "slurmd": "Slurm cannot use this node",
    "munge": "Slurm's messages cannot be checked: the node seems down",
    "kubelet": "Kubernetes cannot use this node",
    "containerd": "no container starts",
    "docker": "no container starts",
    "crio": "no container starts",
    "nvidia-persistenced": "the driver is set up anew by each job, which costs seconds and forgets settings",
    "nvidia-imex": "memory cannot be shared over NVLink between nodes",
}


@rule(
    "host.service_failed",
    "Services that GPU jobs need have not failed",
    scope="node",
    family="host",
    sop="SOP-SW",
    hint="systemctl --failed",
    sources=("systemd: unit states",),
    action="systemctl status and journalctl -u of this service; mend its cause, then start it.",
)
def service_failed(snapshot: Snapshot, ctx: Context) -> Iterator[Finding]:
    """A service that jobs, GPUs or RDMA need is in the state "failed". One that is stopped or not installed may be meant so."""
    states = {name: service for name, service in snapshot.software.services.items() if service.state is not None}
    if not states:
        raise ctx.missing("states of services")
    for name, service in states.items():
        if name in _SERVICES and service.state == "failed":
            yield ctx.finding(
                "warning",
                f"{name} has failed: {_SERVICES[name]}",
                evidence=[Evidence(f"{name} = failed", ctx.where(service, "state"))],
                next_test=f"journalctl -u {name} -b",
            )


@rule(
    "driver.module_on_disk_differs",
    "The loaded driver is the installed one",
    scope="node",
    family="driver",
    sop="SOP-SW",
    hint="modinfo nvidia; cat /proc/driver/nvidia/version",
    sources=("NVIDIA driver README: version of kernel module and user-space libraries must match",),
    action="Drain the node and reboot, or unload all nvidia modules and load the new one.",
)
def module_on_disk(snapshot: Snapshot, ctx: Context) -> Finding | None:
    """The NVIDIA module on disk has another version than the one that is loaded: the driver was updated and the node not rebooted.

    New processes find the new libraries and the old module: "Driver/library version mismatch".
    """
    on_disk = snapshot.software.packages.get("nvidia.ko on disk")
    if on_disk is None:
        raise ctx.missing("version of the NVIDIA module on disk")
    loaded = ctx.need(snapshot.software, Software.driver_version)
    if on_disk == loaded:
        return None
    return ctx.finding(
        "warning",
        f"nvidia.ko on disk is {on_disk}, loaded is {loaded}: updated without a reboot",
        evidence=[Evidence(f"nvidia.ko on disk = {on_disk}", ctx.where(snapshot.software, "packages"))],
    )


@rule(
    "driver.dkms_not_installed",
    "DKMS has the GPU driver for the running kernel",
    scope="node",
    family="driver",
    sop="SOP-SW",
    hint="dkms status; uname -r",
    sources=("dkms manual: status (added, built, installed)",),
    action="dkms autoinstall -k <release>, with the headers of that kernel installed; its make.log tells why a build failed.",
)
def dkms(snapshot: Snapshot, ctx: Context) -> Finding | None:
    """DKMS builds the NVIDIA module for each kernel. After a kernel update whose build failed, the node boots without a GPU driver.

    With a driver at work all the same (a packaged module), it is information.
    """
    mine = {key: state for key, state in snapshot.software.dkms.items() if key.split(" ")[0] == "nvidia"}
    if not mine:
        raise ctx.missing("DKMS status of the GPU driver")
    release = ctx.need(snapshot.kernel, Kernel.release)
    state = mine.get(f"nvidia {release}")
    if state == "installed":
        return None
    others = sorted(key.partition(" ")[2] for key, one in mine.items() if one == "installed" and " " in key)
    return ctx.finding(
        "info" if snapshot.software.driver_version else "error",
        f"the NVIDIA module is {state or 'not built'} for the running kernel {release}"
        + (f", installed for {', '.join(others[:3])}" if others else ""),
        evidence=[Evidence(f"{key}: {one}", ctx.where(snapshot.software, "dkms")) for key, one in list(mine.items())[:6]],
        causes=[
            Cause("kernel updated without its headers, or the build failed", "likely", "/var/lib/dkms/nvidia/*/build/make.log")
        ],
    )
