"""Paths between GPUs and their peers: why direct transfers hang, fall back to host memory, or go the long way."""

from __future__ import annotations

import re
from collections.abc import Iterator

from kilter.diagnose.engine import Context, rule
from kilter.diagnose.rules.thermal import all_spin
from kilter.facts.case import Case, Snapshot
from kilter.facts.derived import forces_translation, redirecting_paths
from kilter.facts.finding import Cause, Evidence, Finding, Subject
from kilter.facts.nccl import NcclJob
from kilter.facts.pci import MELLANOX
from kilter.knowledge import gpus

_PEERMEM = ("nvidia_peermem", "nv_peer_mem")
#: CPUs on which RDMA without relaxed ordering was measured far below the link: (vendor, family, model), source.
_NEEDS_RELAXED = {("GenuineIntel", 6, 207): "openucx/ucx#10955: Emerald Rapids, 16 GB/s without it, over 40 GB/s with it"}
_AMD = "openucx/ucx#8062: AMD EPYC, 150 of 200 Gbit/s without it"


def snapshots_of(ctx: Context, job: NcclJob) -> Iterator[Snapshot]:
    """Snapshots of the job's nodes; those without a name when the case has one node only."""
    nodes = set(job.nodes)
    named = [p for p in ctx.profiles if p.node in nodes]
    for profile in named or [p for p in ctx.profiles if not p.node or len(ctx.profiles) == 1]:
        yield ctx.case.snapshots[profile.position]


def _uses_nvlink(snapshot: Snapshot) -> bool:
    """Whether the GPUs reach each other over NVLink, so that PCIe settings do not matter to them."""
    for gpu in snapshot.accelerators or []:
        if any(link.state == "active" for link in gpu.nvlinks or []):
            return True
        expected = gpus.expected_nvlinks(pci_device_id=gpu.pci_device_id, name=gpu.name)
        if expected is not None and expected.count and not expected.optional and not gpu.nvlinks_inactive:
            return True
    return any(
        word.startswith("NV") for row in (snapshot.topology.links if snapshot.topology else {}).values() for word in row.values()
    )


@rule(
    "nccl.hang.p2p",
    "No job hangs in PCIe peer-to-peer transfers",
    scope="case",
    family="nccl",
    sop="SOP-NCCL",
    hint="the job's NCCL log and watchdog messages, lspci -vvv (as root), cat /proc/cmdline",
    sources=(
        "NVIDIA/nccl#2079 (ACS redirect)",
        "NVIDIA/nccl#257 (IOMMU translation)",
        "NVIDIA NCCL documentation: troubleshooting, PCI ACS",
    ),
    action="Turn ACS redirect off on the bridges above the GPUs, or boot with iommu=pt; NCCL_P2P_DISABLE=1 proves it and is a stopgap.",
)
def p2p_hang(case: Case, ctx: Context) -> Iterator[Finding]:
    """A job that talks peer to peer over PCIe hangs on a node that sends such traffic through the IOMMU: its writes get lost.

    All three must be seen: connections over P2P, a hang (a collective timed out, or all GPUs busy without memory traffic), and ACS
    redirect or forced IOMMU translation on that node. GPUs with NVLink do not take this way.
    """
    if not case.jobs:
        raise ctx.missing("NCCL log of the job")
    for job in case.jobs:
        direct = [c for c in job.connections if c.via.startswith("P2P")]
        if not direct:
            continue
        for snapshot in snapshots_of(ctx, job):
            timed_out = [r for r in case.collectives if r.state == "timed out"]
            if not (timed_out or all_spin(snapshot)) or _uses_nvlink(snapshot):
                continue
            paths = redirecting_paths(snapshot).on_path
            translation = forces_translation(snapshot)
            if not paths and not translation:
                continue
            why = []
            if paths:
                why.append(f"ACS redirects it at {', '.join(sorted(paths)[:4])}")
            if translation:
                why.append("the boot line forces IOMMU translation")
            yield ctx.finding(
                "error",
                f"the job hangs and its GPUs talk peer to peer over PCIe, while {' and '.join(why)}",
                subject=Subject("job", job.source),
                evidence=[
                    *[Evidence(f"via {c.via}: {c.count} connections", f"{job.source}:{c.origin[''][1]}") for c in direct[:2]],
                    *[Evidence(f"{r.operation} timed out on rank {r.rank}", case.where(r.ref(""))) for r in timed_out[:2]],
                    *([] if timed_out else [Evidence("all GPUs are 100 % busy without memory traffic")]),
                    *[
                        Evidence(
                            f"{a} ACSCtl: {' '.join(b + '+' for b in (snapshot.pci or {})[a].acs_enabled or [])}",
                            snapshot.where((snapshot.pci or {})[a].ref("acs_enabled")),
                        )
                        for a in sorted(paths)[:4]
                    ],
                    *(
                        [Evidence(f"boot line: {snapshot.kernel.cmdline}", snapshot.where(snapshot.kernel.ref("cmdline")))]
                        if translation
                        else []
                    ),
                ],
                causes=[
                    Cause("peer-to-peer writes go through the IOMMU and are lost", "likely", "it runs with NCCL_P2P_DISABLE=1")
                ],
                confidence="medium",
                next_test="run once with NCCL_P2P_DISABLE=1: if that ends the hang, this is the cause",
            )


def _version(text: str | None) -> tuple[int, int] | None:
    match = re.match(r"(\d{1,3})\.(\d{1,3})", text or "")
    return None if match is None else (int(match[1]), int(match[2]))


@rule(
    "module.nvidia_peermem.loaded_but_unused",
    "A loaded peer-memory module is in use",
    scope="job",
    family="rdma",
    sop="SOP-SW",
    hint="lsmod on the job's nodes, and the job's log with NCCL_DEBUG=INFO",
    sources=("NVIDIA/nccl#1939, #1537", "NVIDIA/nccl#1676 (NCCL up to 2.22 looks for nv_peer_mem only)"),
    action="Prove it with ib_write_bw --use_cuda=0 on both ends; rebuild the driver after OFED, or use DMA-BUF with the open modules.",
)
def peermem_unused(job: NcclJob, ctx: Context) -> Finding | None:
    """The module is loaded, and NCCL says that GPUDirect RDMA is off or uses it on no connection between nodes.

    Loaded is no proof: it must have registered with the ib_core of the running OFED. Connections that NCCL stages because GPU and NIC are
    far apart say "enabled" for the adapter and are not meant; nor are jobs that turn it off by NCCL_NET_GDR_LEVEL.
    """
    known, loaded = False, None
    for snapshot in snapshots_of(ctx, job):
        known = known or snapshot.kernel.modules is not None
        name = next((name for name in _PEERMEM if name in (snapshot.kernel.modules or {})), "")
        if name:
            loaded = snapshot, name
            break
    if not known:
        raise ctx.missing("modules of the job's nodes", "lsmod")
    if loaded is None:
        raise ctx.skip("no peer-memory module is loaded")
    if job.environment.get("NCCL_NET_GDR_LEVEL", "").upper() in ("0", "LOC"):
        raise ctx.skip("NCCL_NET_GDR_LEVEL turns GPUDirect RDMA off")
    off = [hca for hca, word in job.gdr.items() if word == "disabled"]
    staged = [c for c in job.connections if c.via.startswith("NET/IB") and "GDRDMA" not in c.via]
    direct = any("GDRDMA" in c.via for c in job.connections)
    if not job.gdr and not staged and not direct:
        raise ctx.missing("what NCCL says of GPUDirect RDMA")
    if direct or "enabled" in job.gdr.values() or not (off or staged):
        return None
    snapshot, name = loaded
    version = _version(job.version)
    old = version is not None and version < (2, 23) and name == "nvidia_peermem"
    return ctx.finding(
        "warning",
        f"{name} is loaded, yet NCCL uses no GPUDirect RDMA" + (f" (disabled for {', '.join(off[:4])})" if off else ""),
        evidence=[
            Evidence(f"module {name} is loaded on {snapshot.node or 'the node'}", snapshot.where(snapshot.kernel.ref("modules"))),
            *[Evidence(f"GPU Direct RDMA disabled for {hca}", ctx.where(job, "gdr")) for hca in off[:4]],
            *[Evidence(f"via {c.via}: {c.count} connections", f"{job.source}:{c.origin[''][1]}") for c in staged[:2]],
        ],
        causes=[
            *([Cause(f"NCCL {job.version} looks for nv_peer_mem only", "likely", "NCCL 2.23 or newer")] if old else []),
            Cause(
                "the module was built against another ib_core than the running OFED's",
                "possible" if old else "likely",
                "/sys/kernel/mm/memory_peers/nv_mem/version is missing; rebuild the driver after OFED",
            ),
            Cause("GPU and NIC are far apart for NCCL_NET_GDR_LEVEL", "possible", "nvidia-smi topo -m"),
        ],
        confidence="high" if off else "medium",
    )


def _wants_relaxed(snapshot: Snapshot) -> str | None:
    """Where it was measured that this CPU needs relaxed ordering; None where it was not."""
    cpu = snapshot.cpu
    if (cpu.vendor, cpu.family, cpu.model_number) in _NEEDS_RELAXED:
        return _NEEDS_RELAXED[cpu.vendor or "", cpu.family or 0, cpu.model_number or 0]
    return _AMD if cpu.vendor == "AuthenticAMD" and "EPYC" in (cpu.model or "") else None


@rule(
    "pcie.relaxed_ordering_off",
    "RDMA adapters may reorder their writes",
    scope="node",
    family="pcie",
    sop="SOP-SW",
    hint="lspci -vvv (as root); lscpu",
    sources=("openucx/ucx#10955, #11532", "openucx/ucx#8062", "NVIDIA NCCL documentation: NCCL_IB_PCI_RELAXED_ORDERING"),
    action="Turn it on in firmware (PCIe relaxed ordering; mlxconfig PCI_WR_ORDERING=force_relax), and leave UCX_IB_PCI_RELAXED_ORDERING and NCCL_IB_PCI_RELAXED_ORDERING at auto.",
)
def relaxed_ordering(snapshot: Snapshot, ctx: Context) -> Finding | None:
    """PCIe relaxed ordering is off in the control register of RDMA adapters (DevCtl RlxdOrd-), or turned off by a variable.

    A warning on CPUs where RDMA was measured far below the link without it; information elsewhere. In guests the host decides.
    """
    if snapshot.host.virtualization not in (None, "none"):
        raise ctx.skip("a guest: the host decides")
    nics = [
        d
        for d in (snapshot.pci or {}).values()
        if d.is_nic and d.vendor_id == MELLANOX and not d.physical_function and d.relaxed_ordering is not None
    ]
    variables = snapshot.environment.variables or {}
    names = [
        n
        for n in ("UCX_IB_PCI_RELAXED_ORDERING", "NCCL_IB_PCI_RELAXED_ORDERING")
        if variables.get(n, "").lower() in ("0", "n", "no", "off")
    ]
    if not nics and not names:
        raise ctx.missing("device control of the RDMA adapters")
    off = [d for d in nics if d.relaxed_ordering is False]
    if not off and not names:
        return None
    source = _wants_relaxed(snapshot)
    slow = [s for s in snapshot.samples if s.tool in ("perftest", "ib_write_bw") and s.metric == "bandwidth"]
    what = (
        f"PCIe relaxed ordering is off on {len(off)} of {len(nics)} RDMA adapters"
        if off
        else f"{' and '.join(names)} turn it off"
    )
    return ctx.finding(
        "warning" if source else "info",
        what + (f"; this CPU needs it ({snapshot.cpu.model})" if source else ""),
        evidence=[
            *[Evidence(f"{d.address} {d.description or ''} DevCtl: RlxdOrd-", ctx.where(d, "relaxed_ordering")) for d in off[:8]],
            *[Evidence(f"{n}={variables[n]}", ctx.where(snapshot.environment, "variables")) for n in names],
            *[Evidence(f"measured {s.value:g} {s.unit}", ctx.where(s)) for s in slow[:2]],
        ],
        sources=[source] if source else [],
        confidence="medium",
        next_test="ib_write_bw between two nodes, with and without --disable_pcie_relaxed",
    )
