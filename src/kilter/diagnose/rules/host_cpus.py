"""CPUs and NUMA nodes of a GPU host: isolation that hits the job or the devices, NUMA nodes that part GPU and NIC, stack size, peermem."""

from __future__ import annotations

from collections.abc import Iterator

from kilter.diagnose.engine import Context, rule
from kilter.facts.case import Snapshot
from kilter.facts.finding import Cause, Evidence, Finding
from kilter.facts.host import UNLIMITED, Cpu, Kernel, Limits

_ISOLCPUS = "torvalds/linux Documentation/admin-guide/kernel-parameters.txt: isolcpus=, nohz_full=, irqaffinity="
#: A host with as many CPUs and fewer left for everything else is short of them.
MANY_CPUS, FEW_HOUSEKEEPING = 16, 2
#: glibc gives threads 2 MiB where the limit is "unlimited"; NCCL's search needed more on rack-scale systems.
SMALL_STACK = 2 << 20


def cpu_set(text: str | None) -> set[int]:
    """CPUs of a list in the kernel's format; an unreadable part counts as none."""
    found: set[int] = set()
    for part in (text or "").split(","):
        low, _, high = part.strip().partition("-")
        if low.isdigit() and (high or low).isdigit() and len(low) < 6 and len(high) < 6:
            found.update(range(int(low), int(high or low) + 1))
    return found


def _device_nodes(snapshot: Snapshot) -> dict[int, list[str]]:
    """NUMA node -> GPUs and NICs that belong to it."""
    found: dict[int, list[str]] = {}
    for device in (snapshot.pci or {}).values():
        if (device.is_accelerator or device.is_nic) and not device.physical_function and device.numa_node not in (None, -1):
            found.setdefault(device.numa_node or 0, []).append(device.address)
    for gpu in snapshot.accelerators or []:
        if gpu.numa_node not in (None, -1) and gpu.pci_address not in found.get(gpu.numa_node or 0, []):
            found.setdefault(gpu.numa_node or 0, []).append(gpu.label)
    return found


@rule(
    "host.isolated_cpus",
    "CPU isolation spares the job and the devices",
    scope="node",
    family="host",
    sop="SOP-SW",
    hint="cat /sys/devices/system/cpu/{isolated,nohz_full}; grep Cpus_allowed_list /proc/<pid>/status; cat /proc/interrupts",
    sources=(_ISOLCPUS, "torvalds/linux Documentation/timers/no_hz.rst"),
    action="Shrink isolcpus and nohz_full, or leave them out: they suit one pinned thread a CPU, not data loaders. Keep CPUs of each NUMA node free.",
)
def isolated(snapshot: Snapshot, ctx: Context) -> Iterator[Finding]:
    """Isolated CPUs are left out of load balancing: threads that may only run there pile up on one. And near each GPU or NIC some CPU must
    stay for interrupts and the driver's threads."""
    cpu = snapshot.cpu
    lone, tickless = ctx.known(cpu, Cpu.isolated), ctx.known(cpu, Cpu.nohz_full)
    if lone is None and tickless is None:
        options = snapshot.kernel.cmdline_options()
        if snapshot.kernel.cmdline is None:
            raise ctx.missing("isolated CPUs")
        lone = ",".join(part for part in (options.get("isolcpus") or "").split(",") if part[:1].isdigit())
        tickless = options.get("nohz_full", "")
    apart = cpu_set(lone)
    if not apart and not cpu_set(tickless):
        return
    origin = [Evidence(f"isolated: {lone or 'none'}; nohz_full: {tickless or 'none'}", ctx.where(cpu, "isolated"))]
    troubles: list[tuple[str, str, Evidence]] = []
    allowed = cpu_set(snapshot.limits.cgroup_cpus)
    if allowed and apart and allowed <= apart:
        fact = Evidence(f"CPUs of this process: {snapshot.limits.cgroup_cpus}", ctx.where(snapshot.limits, "cgroup_cpus"))
        troubles.append(
            ("warning", f"all {len(allowed)} CPUs that the job may use are isolated: its threads are not spread", fact)
        )
    devices = _device_nodes(snapshot)
    for node in cpu.numa or []:
        own = cpu_set(node.cpus)
        if own and own <= apart and node.id in devices:
            fact = Evidence(
                f"NUMA node {node.id}: CPUs {node.cpus}; devices {', '.join(devices[node.id][:4])}", ctx.where(node, "cpus")
            )
            troubles.append(
                (
                    "warning",
                    f"all CPUs of NUMA node {node.id} are isolated, and {len(devices[node.id])} GPUs or NICs are there",
                    fact,
                )
            )
    for name, served in cpu.device_interrupts.items():
        hit = cpu_set(served) & apart
        if hit:
            fact = Evidence(f"interrupts of {name} arrive on CPUs {served}", ctx.where(cpu, "device_interrupts"))
            troubles.append(("warning", f"interrupts of {name} arrive on {len(hit)} isolated CPUs", fact))
    online = cpu_set(cpu.online)
    left = online - (apart | cpu_set(tickless))
    if len(online) >= MANY_CPUS and len(left) < FEW_HOUSEKEEPING:
        troubles.append(
            (
                "warning",
                f"{len(left)} of {len(online)} CPUs are left for everything else (housekeeping)",
                Evidence(f"online: {cpu.online}", ctx.where(cpu, "online")),
            )
        )
    if troubles:
        yield ctx.finding(
            "warning",
            "; ".join(text for _, text, _ in troubles[:3]),
            evidence=[*origin, *(line for _, _, line in troubles[:6])],
            causes=[
                Cause(
                    "a boot line made for another kind of work (latency, DPDK, virtual machines)", "likely", "cat /proc/cmdline"
                )
            ],
            reads=False,
        )


@rule(
    "topo.numa_parts_gpu_and_nic",
    "NUMA nodes keep GPU and NIC together",
    scope="node",
    family="topology",
    sop="SOP-SW",
    hint="lspci -vv (NUMA node); numactl -H; lscpu",
    sources=(
        "AMD EPYC tuning guides: NUMA nodes per socket (NPS)",
        "Intel: sub-NUMA clustering",
        "NVIDIA/nccl src/graph/topo.cc: PIX to SYS by NUMA node",
    ),
    action="Bind by PCIe distance, not by NUMA node; where software takes the NUMA node for the distance, set NPS1 (or sub-NUMA clustering off) in firmware.",
)
def numa_parts(snapshot: Snapshot, ctx: Context) -> Finding | None:
    """Several NUMA nodes a socket (AMD's NPS2 and NPS4, Intel's SNC), and GPUs whose node has no NIC while another node of their socket has.

    Software that calls a device near by its NUMA node then sends traffic over the socket's own fabric or another GPU's NIC. A setting, no fault.
    """
    sockets = ctx.need(snapshot.cpu, Cpu.sockets)
    nodes = [n.id for n in snapshot.cpu.numa or [] if n.cpus]
    if not nodes:
        raise ctx.missing("NUMA nodes with CPUs")
    if sockets < 1 or len(nodes) % sockets or len(nodes) == sockets:
        raise ctx.skip("one NUMA node a socket")
    each = len(nodes) // sockets
    pci = [d for d in (snapshot.pci or {}).values() if not d.physical_function and d.numa_node in nodes]
    gpus = {d.address: d.numa_node or 0 for d in pci if d.is_accelerator}
    gpus |= {g.pci_address: g.numa_node or 0 for g in snapshot.accelerators or [] if g.pci_address and g.numa_node in nodes}
    nics = {d.numa_node or 0 for d in pci if d.is_nic} | {d.numa_node or 0 for d in snapshot.rdma or [] if d.numa_node in nodes}
    if not gpus or not nics:
        raise ctx.missing("NUMA nodes of GPUs and NICs", "lspci -vv")
    parted = {
        address: node for address, node in gpus.items() if node not in nics and any(n // each == node // each for n in nics)
    }
    if not parted:
        return None
    kind = f"NPS{each}" if "AMD" in (snapshot.cpu.vendor or snapshot.cpu.model or "") else f"{each} NUMA nodes a socket"
    return ctx.finding(
        "info",
        f"{kind}: {len(parted)} of {len(gpus)} GPUs have no NIC in their NUMA node, and one in another node of their socket",
        evidence=[
            Evidence(f"{address}: NUMA node {node}; NICs in {', '.join(map(str, sorted(nics)))}")
            for address, node in list(parted.items())[:4]
        ],
        missing=["PCIe distance: nvidia-smi topo -m (PIX or PXB is near, whatever the NUMA node)"]
        if snapshot.topology is None
        else [],
        confidence="medium",
    )


@rule(
    "host.stack_limit",
    "Threads get a stack of 8 MiB",
    scope="node",
    family="host",
    sop="SOP-SW",
    hint="ulimit -s inside the job",
    sources=(
        "NVIDIA/nccl#2186 (crash with unlimited on NVL72, gone with 8192 KiB)",
        "NVIDIA NCCL documentation: troubleshooting, stack size",
    ),
    action="ulimit -s 8192 for the job; or NCCL 2.28 or newer, which sets the size itself (NCCL_SET_CPU_STACK_SIZE).",
)
def stack(snapshot: Snapshot, ctx: Context) -> Finding | None:
    """ "unlimited" gives threads 2 MiB in glibc, not more: NCCL's topology search crashed with it on rack-scale NVLink systems. Elsewhere it
    is information."""
    limit = ctx.need(snapshot.limits, Limits.stack_bytes)
    if not snapshot.accelerators and not any(d.is_accelerator for d in (snapshot.pci or {}).values()):
        raise ctx.skip("no GPU")
    if limit != UNLIMITED and limit > SMALL_STACK:
        return None
    rack = any(word in (g.name or "") for g in snapshot.accelerators or [] for word in ("GB200", "GB300"))
    return ctx.finding(
        "warning" if rack else "info",
        "the stack limit is unlimited: glibc then gives threads 2 MiB"
        if limit == UNLIMITED
        else f"the stack limit is {limit // 1024} KiB",
        confidence="medium",
        missing=["the NCCL version of the job"],
    )


@rule(
    "rdma.peermem.not_registered",
    "The peer-memory module is in use by the RDMA core",
    scope="node",
    family="rdma",
    sop="SOP-SW",
    hint="lsmod | grep -E 'peermem|peer_mem|ib_uverbs|ib_core'",
    sources=(
        "NVIDIA/open-gpu-kernel-modules kernel-open/nvidia-peermem/nvidia-peermem.c (ib_register_peer_memory_client)",
        "Mellanox/nv_peer_memory",
    ),
    action="Rebuild and reload nvidia-peermem after the OFED (dkms, or reinstall the driver); with the open modules use DMA-BUF instead.",
)
def not_registered(snapshot: Snapshot, ctx: Context) -> Finding | None:
    """nvidia-peermem is loaded, but neither ib_core nor ib_uverbs is used by it: it found no peer-memory interface, and GPUDirect RDMA stays off."""
    modules = ctx.need(snapshot.kernel, Kernel.modules)
    name = next((n for n in ("nvidia_peermem", "nv_peer_mem") if n in modules), None)
    if name is None:
        raise ctx.skip("no peer-memory module is loaded")
    cores = [modules[n] for n in ("ib_core", "ib_uverbs") if n in modules]
    if not cores or all(core.used_by is None for core in cores):
        raise ctx.missing("who uses ib_core", "lsmod (whole list)")
    if any(name in (core.used_by or []) for core in cores):
        return None
    return ctx.finding(
        "warning",
        f"{name} is loaded and not registered with the RDMA core: GPUDirect RDMA cannot use it",
        reads=False,
        evidence=[
            Evidence(f"{core.name} is used by {', '.join(core.used_by or []) or 'nothing'}", ctx.where(core)) for core in cores
        ],
        causes=[
            Cause(
                "the module was built against another OFED or inbox RDMA core",
                "likely",
                "modinfo nvidia-peermem; order of installation",
            ),
            Cause("an RDMA core without peer-memory clients (inbox)", "possible", "ofed_info -s"),
        ],
        confidence="medium",
    )
