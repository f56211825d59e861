"""What an NCCL log shows: the network and transports that were chosen, and warnings with a known meaning."""

from __future__ import annotations

from collections.abc import Iterator

import msgspec

from kilter.diagnose import two_ends
from kilter.diagnose.engine import Context, rule, times
from kilter.facts.event import Event
from kilter.facts.finding import Cause, Evidence, Finding
from kilter.facts.nccl import NcclJob

_DEBUG = "run the job with NCCL_DEBUG=INFO"
_DOC = "NVIDIA NCCL documentation"


def _events(job: NcclJob, ctx: Context, *kinds: str) -> list[Event]:
    return [e for e in ctx.case.events if e.source == job.source and e.kind in kinds]


def _many_nodes(job: NcclJob) -> bool | None:
    """Whether the job spans nodes; None when the log does not tell."""
    if job.n_nodes is not None:
        return job.n_nodes > 1
    if len(job.nodes) > 1:
        return True
    if job.n_ranks is not None and len(job.ranks) == job.n_ranks:
        return len({r.node for r in job.ranks}) > 1
    return None


def _via(job: NcclJob, *prefixes: str) -> int:
    return sum(c.count for c in job.connections if c.via.startswith(prefixes))


@rule(
    "nccl.transport.shm_instead_of_p2p",
    "GPUs of a node talk peer to peer",
    scope="job",
    family="nccl",
    sop="SOP-NCCL",
    hint=_DEBUG,
    sources=(f"{_DOC}: NCCL_P2P_LEVEL, NCCL_P2P_DISABLE", "NVIDIA/nccl src/transport/p2p.cc, shm.cc"),
    action="Check P2P support and topology (nvidia-smi topo -m, topo -p2p r), ACS and IOMMU; unset NCCL_P2P_DISABLE.",
)
def shm(job: NcclJob, ctx: Context) -> Finding | None:
    """Connections inside a node go through shared host memory: peer to peer was not possible or was turned off.

    Across sockets without NVLink this is NCCL's choice and costs bandwidth all the same. The network is not involved.
    """
    if not job.connections:
        raise ctx.missing("transport of the connections ('via ...' lines)")
    through_host = [c for c in job.connections if c.via.startswith("SHM")]
    count = sum(c.count for c in through_host)
    if not count:
        return None
    peer = _via(job, "P2P")
    disabled = job.environment.get("NCCL_P2P_DISABLE") == "1"
    causes = (
        [Cause("NCCL_P2P_DISABLE=1 is set", "likely")]
        if disabled
        else [
            Cause("GPUs under different sockets without NVLink (SYS)", "likely", "nvidia-smi topo -m"),
            Cause("P2P refused: ACS, IOMMU, or a GPU model without it", "possible", "nvidia-smi topo -p2p r; lspci -vvv"),
        ]
    )
    if any(g.mig_mode for s in ctx.case.snapshots for g in s.accelerators or []):
        causes.insert(0, Cause("MIG is on: instances have no peer to peer and no NVLink", "likely", "nvidia-smi -q -d MIG"))
    return ctx.finding(
        "warning",
        f"{count} connections go through host memory ({', '.join(c.via for c in through_host)}), {peer} are peer to peer",
        evidence=[
            Evidence(f"via {c.via}: {c.count} connections", ctx.where(c) or f"{job.source}:{c.origin[''][1]}")
            for c in through_host
        ],
        causes=causes,
        contradicts=[]
        if job.all_direct_p2p is None
        else [f"isAllDirectP2p {int(job.all_direct_p2p)}"]
        if job.all_direct_p2p
        else [],
    )


@rule(
    "nccl.net.fallback_to_socket",
    "Nodes talk over RDMA",
    scope="job",
    family="nccl",
    sop="SOP-NCCL",
    hint=_DEBUG,
    sources=(f"{_DOC}: NCCL_NET, NCCL_IB_HCA, NCCL_IB_DISABLE", "areal-project/AReaL#639", "research: failure mode 47"),
    action="Give the job /dev/infiniband, libibverbs and memlock; check NCCL_IB_HCA, NCCL_IB_DISABLE and the plugin.",
)
def socket(job: NcclJob, ctx: Context) -> Finding | None:
    """A job over several nodes uses TCP sockets. On one node "Using network Socket" is harmless and not reported.

    A site without RDMA NICs has no choice: "No device found" together with no HCA in the facts is information.
    """
    if not job.networks and not job.connections:
        raise ctx.missing("'Using network' line")
    sockets = any(n.startswith("Socket") for n in job.networks) or _via(job, "NET/Socket") > 0
    if not sockets:
        return None
    many = _many_nodes(job)
    if many is False:
        return None
    disabled = job.environment.get("NCCL_IB_DISABLE") == "1" or job.environment.get("NCCL_NET", "").lower() == "socket"
    no_rdma = bool(ctx.case.snapshots) and all(s.rdma == [] for s in ctx.case.snapshots)
    causes = (
        [Cause("NCCL_IB_DISABLE=1 or NCCL_NET=Socket is set", "likely")]
        if disabled
        else [
            Cause("HCA not visible in the container (/dev/infiniband, libibverbs)", "likely", "ibv_devinfo inside the container"),
            Cause("NCCL_IB_HCA names another device, or ports are down", "possible", "ibstat"),
        ]
    )
    severity = "info" if many is None or no_rdma else "warning"
    evidence = [Evidence(f"network {name}: {count} rank(s)", ctx.where(job, "networks")) for name, count in job.networks.items()]
    if job.ib_devices == []:
        evidence.append(Evidence("NET/IB : No device found", ctx.where(job, "ib_devices")))
    return ctx.finding(
        severity,
        "NCCL uses TCP sockets between nodes"
        if many
        else "NCCL uses TCP sockets; harmless if the job has one node, which the log does not tell",
        evidence=evidence,
        causes=causes,
        confidence="high" if many else "low",
    )


def _only_on(job: NcclJob) -> str:
    """The nodes that stage all their connections through host memory while others go directly; "" when it is not told by node."""
    with_it = {node for c in job.connections if "GDRDMA" in c.via for node in c.by_node}
    without = {
        node for c in job.connections if c.via.startswith("NET/IB") and "GDRDMA" not in c.via for node in c.by_node
    } - with_it
    if not with_it or not without:
        return ""
    names = sorted(without)
    return f": none on {', '.join(names[:4])}{' ...' if len(names) > 4 else ''}"


@rule(
    "nccl.net.gdr_disabled",
    "RDMA goes directly to GPU memory",
    scope="job",
    family="nccl",
    sop="SOP-NCCL",
    hint=_DEBUG,
    sources=("NVIDIA/nccl#1412, #897, #1939", f"{_DOC}: NCCL_NET_GDR_LEVEL"),
    action="Load nvidia-peermem on every node (or use DMA-BUF with the open modules), check the GPU-NIC distance and ACS.",
)
def gdr(job: NcclJob, ctx: Context) -> Finding | None:
    """Connections over NET/IB without GDRDMA: data is staged through host memory on that side."""
    staged = [c for c in job.connections if c.via.startswith("NET/IB") and "GDRDMA" not in c.via]
    direct = sum(c.count for c in job.connections if c.via.startswith("NET/") and "GDRDMA" in c.via)
    if not any(c.via.startswith("NET/") for c in job.connections):
        if not job.connections:
            raise ctx.missing("transport of the connections ('via ...' lines)")
        raise ctx.skip("no connection between nodes")
    count = sum(c.count for c in staged)
    if not count:
        return None
    said = [f"{hca}: {word}" for hca, word in job.gdr.items() if word == "disabled"]
    causes = [
        Cause(
            "nvidia-peermem not loaded, or not bound to the running OFED",
            "likely",
            "lsmod | grep peermem; ib_write_bw --use_cuda",
        ),
        Cause("GPU and NIC too far apart for NCCL_NET_GDR_LEVEL", "possible", "nvidia-smi topo -m"),
    ]
    return ctx.finding(
        "warning",
        f"{count} network connections without GPUDirect RDMA, {direct} with it{_only_on(job)}",
        evidence=[Evidence(f"via {c.via}: {c.count} connections", f"{job.source}:{c.origin[''][1]}") for c in staged]
        + [Evidence(f"GPU Direct RDMA {text}", ctx.where(job, "gdr")) for text in said],
        causes=causes,
    )


@rule(
    "nccl.net.device_count_differs",
    "All nodes of a job have as many RDMA devices",
    scope="job",
    family="nccl",
    sop="SOP-NCCL",
    hint=_DEBUG,
    sources=("NVIDIA/nccl#2428", f"{_DOC}: NCCL_IB_HCA"),
    action="Count the devices on the nodes that have fewer (ibv_devinfo inside the container); exclude the odd one on all nodes by NCCL_IB_HCA until it is back.",
)
def device_count(job: NcclJob, ctx: Context) -> Finding | None:
    """Nodes of one job name different numbers of RDMA devices: channels on the extra ones have no peer, and NCCL may hang without a message."""
    sets = job.ib_devices_by_node
    if not sets:
        raise ctx.missing("'NET/IB : Using' lines of the nodes")
    if len(sets) < 2:
        raise ctx.skip("one node tells its devices")
    most = max(len(names) for names in sets.values())
    fewer = sorted(node for node, names in sets.items() if len(names) < most)
    if not fewer:
        return None
    shown = [*fewer[:2], next(node for node, names in sets.items() if len(names) == most)]
    return ctx.finding(
        "warning",
        f"{', '.join(fewer[:4])}{' ...' if len(fewer) > 4 else ''} {'has' if len(fewer) == 1 else 'have'} {len(sets[fewer[0]])} RDMA device(s), other nodes {most}",
        evidence=[Evidence(f"{node}: {', '.join(sets[node])}", ctx.where(job, f"ib_devices_by_node/{node}")) for node in shown],
        causes=[
            Cause("a device cannot be opened there (container, cgroup)", "possible", "NCCL WARN lines; ls /dev/infiniband"),
            Cause("a port is down or a NIC is lost there", "possible", "ibstat; lspci"),
        ],
        confidence="medium",
    )


@rule(
    "nccl.env",
    "No NCCL variable turns off what is fast",
    scope="job",
    family="nccl",
    sop="SOP-NCCL",
    hint=_DEBUG,
    sources=(f"{_DOC}: environment variables (debug-only ones)", "NVIDIA/nccl#2428"),
    action="Unset what was set for a test long ago.",
    also=(
        "nccl.env.ignore_mismatch",
        "nccl.env.transport_off",
    ),
)
def env(job: NcclJob, ctx: Context) -> Iterator[Finding]:
    """Variables in force that hide errors or turn off transports. A test setting that stayed is a common cause of a slow job."""
    hides = [
        n
        for n in job.environment
        if n.startswith("NCCL_IGNORE_") and n.endswith("_MISMATCH") and job.environment[n] not in ("0", "")
    ]
    for name in hides:
        yield ctx.finding(
            "warning",
            f"{name}={job.environment[name]} hides a disagreement between ranks: they can hang without a message",
            id="nccl.env.ignore_mismatch",
            evidence=[Evidence(f"{name} set to {job.environment[name]}", ctx.where(job, f"environment/{name}"))],
        )
    off = [
        n
        for n in ("NCCL_P2P_DISABLE", "NCCL_SHM_DISABLE", "NCCL_IB_DISABLE", "NCCL_NVLS_ENABLE", "NCCL_COLLNET_ENABLE")
        if n in job.environment
    ]
    for name in off:
        value = job.environment[name]
        if value == ("1" if name.endswith("DISABLE") else "never"):
            yield ctx.finding(
                "info",
                f"{name}={value} turns a transport off",
                id="nccl.env.transport_off",
                evidence=[Evidence(f"{name} set to {value}", ctx.where(job, f"environment/{name}"))],
            )


@rule(
    "nccl.version_mismatch",
    "All ranks use one NCCL version",
    scope="job",
    family="nccl",
    sop="SOP-NCCL",
    hint=_DEBUG,
    sources=(f"{_DOC}: all ranks must use the same version",),
    action="Install one NCCL version on all ranks.",
)
def versions(job: NcclJob, ctx: Context) -> Finding | None:
    """Ranks of one log print different NCCL versions."""
    if not job.versions:
        raise ctx.missing("NCCL version line")
    return (
        ctx.finding(
            "error", f"several NCCL versions in one job: {', '.join(sorted(job.versions))}", evidence=[ctx.fact(job, "versions")]
        )
        if len(job.versions) > 1
        else None
    )


#: ibv_wc_status -> in words, causes, source
COMPLETION = {
    "4": ("local protection error", [Cause("GPUDirect RDMA blocked: ACS between GPU and NIC", "likely", "works with NCCL_NET_GDR_LEVEL=0")], "NVIDIA/nccl#928"),
    "5": ("work request flushed: an earlier error on this connection", [Cause("consequence of the first error", "likely")], ""),
    "10": ("remote access error", [Cause("peer restarted or unregistered its memory", "likely", "the peer's log")], ""),
    "11": ("remote operation error", [Cause("peer's NIC or memory", "likely", "the peer's log")], ""),
    "12": ("retry exceeded: the peer never answered", [Cause("peer or link dead", "likely", "port counters of both ends; is the peer alive?"), Cause("GID index that cannot be routed (RoCE)", "possible", "show_gids; NCCL_IB_GID_INDEX")], "NVIDIA/nccl#426"),
    "13": ("receiver not ready (RNR)", [Cause("peer is slow or restarted", "likely", "the peer's log")], ""),
}  # fmt: skip


@rule(
    "nccl.net.ib.completion_error_*",
    "No RDMA completion error",
    scope="job",
    family="nccl",
    sop="SOP-NCCL",
    hint="NCCL_DEBUG=WARN",
    sources=("libibverbs ibv_wc_status", "research: failure modes 42 and 43"),
    action="Find the first rank that complained; look at the port counters and logs of both ends at that time.",
)
def completion(job: NcclJob, ctx: Context) -> Iterator[Finding]:
    """RDMA work completed with an error. The status tells who failed: 12 = the peer did not answer, 4 = access to local memory."""
    by_code: dict[str, list[Event]] = {}
    for event in _events(job, ctx, "nccl.ib.completion"):
        by_code.setdefault(str(event.code), []).append(event)
    for code, events in by_code.items():
        text, causes, source = COMPLETION.get(code, (f"status {code}", [], ""))
        severity = "warning" if code == "5" else "error"
        lines: list[Evidence] = []
        missing: list[str] = []
        if code == "12":
            causes, lines, missing = _ends(events, causes, ctx)
        yield ctx.finding(
            severity,
            f"RDMA completion status {code}: {text}{times(events)}",
            id=f"nccl.net.ib.completion_error_{code}",
            evidence=[*events[:8], *lines],
            causes=causes,
            missing=missing,
            sources=[source] if source else [],
        )


def _ends(events: list[Event], causes: list[Cause], ctx: Context) -> tuple[list[Cause], list[Evidence], list[str]]:
    """Ranked hypotheses of a retry exceeded: this end, that end, or not to be told (research: section 3, status=12)."""
    ends = two_ends.look(ctx.case, events)
    complaining, named = {a for a, _ in ends.pairs}, {b for _, b in ends.pairs}
    mine, theirs = sorted(complaining & set(ends.sick)), sorted(named & set(ends.sick))
    here = Cause(
        f"link or NIC of {', '.join(mine[:3]) or 'the node that complains'}",
        "possible",
        "its own link_downed, symbol errors, kernel log",
    )
    there = Cause(
        f"peer or link dead: {', '.join((theirs or sorted(named))[:3]) or 'the peer'}",
        "possible",
        "port counters of both ends; is the peer alive?",
    )
    target, source = ends.many_to_one(), ends.one_to_many()
    ranked = [there, here]
    if (theirs and not mine) or (target and not mine):
        ranked = [msgspec.structs.replace(there, likelihood="likely"), msgspec.structs.replace(here, likelihood="unlikely")]
    elif (mine and not theirs) or source:
        ranked = [msgspec.structs.replace(here, likelihood="likely"), there]
    elif not ends.sick:
        ranked = [msgspec.structs.replace(there, likelihood="likely"), here]
    lines = [line for node in [*theirs, *mine] for line in ends.sick[node][:2]]
    missing = [] if ends.sick else ["port counters and kernel logs of both ends at that time"]
    return [*ranked, *causes[1:]], lines, missing


_WARNINGS: dict[str, tuple[str, str, str, list[Cause | str], str]] = {
    "nccl.shm": ("container.shm_too_small", "error", "NCCL cannot create its shared memory: /dev/shm is full or too small", ["the container's default /dev/shm of 64 MB"], "Mount an emptyDir with medium Memory at /dev/shm, or use --shm-size / --ipc=host."),
    "nccl.ib.reg_mr": ("nccl.net.ib.reg_mr_failed", "error", "RDMA memory registration failed", [Cause("locked-memory limit too low", "likely", "ulimit -l inside the job"), Cause("GPUDirect RDMA: nvidia-peermem or BAR1", "possible", "fails only with GPU memory")], "Set memlock to unlimited for the job's service (limits.conf, LimitMEMLOCK, --ulimit memlock=-1)."),
    "nccl.ib.open_device": ("nccl.net.device_open_failed", "error", "NCCL cannot open an RDMA device", ["the container admits only some of /dev/infiniband/uverbs*", "NIC in error"], "Give the container all uverbs devices, or exclude the NIC on all ranks alike."),
    "nccl.ib.async_event": ("nccl.net.ib.async_event", "warning", "the NIC raised an asynchronous event", ["port went down", "NIC firmware error"], "Look at the port state and the kernel log of that node."),
    "nccl.ib.call_failed": ("nccl.net.ib.verbs_failed", "error", "a verbs call failed", ["limit of the NIC or of locked memory", "wrong GID index or port"], "Read which call failed and with what error; check memlock, GID index and port state."),
    "nccl.no_interface": ("nccl.net.no_interface", "error", "NCCL found no network interface for its bootstrap", ["NCCL_SOCKET_IFNAME matches nothing"], "Check NCCL_SOCKET_IFNAME against ip link."),
    "nccl.peer_gone": ("nccl.peer_gone", "warning", "a connection to a peer broke: this rank is mostly a victim", [Cause("the peer crashed or was killed first", "likely", "find the first rank that stopped")], "Find the first rank that failed; this message follows it."),
    "nccl.cuda": ("nccl.cuda_error", "error", "a CUDA call inside NCCL failed", [Cause("an earlier error of the application on this GPU", "likely", "XIDs at that time"), Cause("out of GPU memory", "possible", "error text")], "Look for the first CUDA error and for XIDs on that node."),
    "nccl.mismatch": ("nccl.mismatch", "error", "ranks disagree on what they do or have", ["different code path or sizes per rank", "different HCA sets or versions"], "Compare the ranks: code path, NCCL_IB_HCA, versions."),
    "nccl.duplicate_gpu": ("nccl.duplicate_gpu", "error", "two ranks use the same GPU", ["CUDA_VISIBLE_DEVICES or local rank wrong"], "Give each rank its own GPU."),
    "nccl.timeout": ("nccl.timeout", "error", "an operation timed out", ["a rank is missing, slow or in another operation"], "Compare the last operation of all ranks."),
    "nccl.ras_port": ("nccl.ras_port_in_use", "info", "NCCL's RAS port is taken by another job: only RAS is lost", ["several jobs on one node"], "Nothing; or NCCL_RAS_ADDR per job."),
}  # fmt: skip


@rule(
    "nccl.warnings",
    "No NCCL warning",
    scope="job",
    family="nccl",
    sop="SOP-NCCL",
    hint="NCCL_DEBUG=WARN",
    sources=("NVIDIA/nccl src/misc, src/transport", "research: failure modes 42-47"),
    also=(
        "container.shm_too_small",
        "nccl.cuda_error",
        "nccl.duplicate_gpu",
        "nccl.init_failed",
        "nccl.mismatch",
        "nccl.net.device_open_failed",
        "nccl.net.ib.async_event",
        "nccl.net.ib.reg_mr_failed",
        "nccl.net.ib.verbs_failed",
        "nccl.net.no_interface",
        "nccl.peer_gone",
        "nccl.ras_port_in_use",
        "nccl.timeout",
        "nccl.warn",
    ),
)
def warnings(job: NcclJob, ctx: Context) -> Iterator[Finding]:
    """NCCL WARN lines with a known meaning, by kind; others are shown as they are, as information."""
    for kind, (id, severity, what, causes, action) in _WARNINGS.items():
        events = _events(job, ctx, kind)
        if events:
            nodes = sorted({e.node for e in events if e.node})
            where = f" on {', '.join(nodes[:4])}{' ...' if len(nodes) > 4 else ''}" if nodes else ""
            yield ctx.finding(severity, f"{what}{where}", id=id, evidence=events, causes=causes, action=action)
    failed = _events(job, ctx, "nccl.init_failed")
    if failed:
        yield ctx.finding(
            "error",
            f"NCCL initialisation failed with code {failed[0].code}",
            id="nccl.init_failed",
            evidence=failed[:4],
            causes=["see the warning just before it"],
            action="The first warning of the rank tells why.",
        )
    other = _events(job, ctx, "nccl.warn", "nccl.ras")
    if other:
        yield ctx.finding("info", f"{len(other)} further NCCL warning(s)", id="nccl.warn", evidence=other, action="Read them.")
