"""What Slurm says: nodes out of service, GPUs that no job can use, jobs that cannot start or hold GPUs without need."""

from __future__ import annotations

import datetime
import functools
import re

from kilter.diagnose.engine import Context, rule
from kilter.facts.case import Case
from kilter.facts.cluster import ClusterJob, ClusterNode
from kilter.facts.finding import Cause, Evidence, Finding, Subject

#: Words of a state, compact or long, with Slurm's flags behind them.
_DRAIN = frozenset({"drain", "drained", "draining", "drng"})
#: Registered with less than configured.
_INVALID = frozenset({"inval", "invalid_reg"})
_DOWN = frozenset({"down", "fail", "failing", "failg", "error", "err", "not_responding", "no_respond"})
_PLANNED_WORDS = (
    "maint maintenance reboot reboot_issued reboot_requested rebooting boot pow_dn pow_up power_down power_up powered_down "
    "powering_down powering_up planned plnd resv reserved futr future blocked"
)
_PLANNED = frozenset(_PLANNED_WORDS.split())
_FREE = frozenset({"idle", "mix", "mixed", "alloc", "allocated", "comp", "completing"})
_PLANNED_REASON = re.compile(
    r"\b(?:maint\w*|scheduled|planned|upgrad\w*|(?:firmware|fw|bios|driver|kernel|os) (?:update|upgrade|roll\w*)|patching|reserved|downtime)\b"
    r"|\breboot[ _-]?(?:asap|required|requested|pending|issued)\b|^reboot$|维护|升级",
    re.I,
)
_UNPLANNED = re.compile(r"\b(?:un(?:planned|scheduled)|fail\w*|crash\w*|broken|dead|hung|error\w*|unexpected\w*)\b", re.I)
_GPU_FAULT = (
    (
        re.compile(r"\bX[Ii][Dd]\s{0,8}[:=#]?\s{0,8}(?:\w{1,32}\s)?(\d{1,3})?\b|\bxid\b|fall(?:en|ing)? off|off the bus", re.I),
        "SOP-BUS",
        "an XID or a GPU lost from the bus",
    ),
    (
        re.compile(r"\b(?:ecc|dbe|sbe|uncorrectable|row.?remap\w*|retired pages?|hbm|page retirement)\b", re.I),
        "SOP-MEM",
        "GPU memory errors",
    ),
    (re.compile(r"nv.?link|nv.?switch|fabric.?manager|\bsxid\b", re.I), "SOP-NVL", "NVLink or NVSwitch"),
    (re.compile(r"\b(?:gpu|nvidia.smi|dcgm\w*|nvml|cuda)\b|掉卡", re.I), "SOP-GSP", "a GPU or its driver"),
    (re.compile(r"\b(?:infiniband|mlx5\w*|ib\d|ib (?:link|port)|hca)\b", re.I), "SOP-IB", "the InfiniBand fabric"),
    (re.compile(r"\b(?:thermal|overheat\w*|temperature)\b", re.I), "SOP-THERM", "temperature"),
)
_CLUSTER = Subject("case", "Slurm")
_WAITS_FOR_NODES = re.compile(r"^(?:Resources|ReqNodeNotAvail|NodeDown|NodesBusy|Nodes[ _]required)")
#: Below this many CPUs a GPU, data loading and kernel launches of several GPUs commonly share a core.
MIN_CPUS_PER_GPU = 4
#: An interactive shell that holds GPUs longer than a working day is worth a question.
INTERACTIVE_S = 8 * 3600
_INTERACTIVE = re.compile(
    r"(?:(?:/usr)?/bin/)?(?:ba|z|c|tc|fi|k|da)?sh$|interactive$|salloc$|tmux|screen$|jupyter|.*/dashboard|vscode|code-server|ood|notebook",
    re.I,
)
_DAY = 86400.0


@functools.lru_cache(1024)
def words(state: str) -> frozenset[str]:
    """The words of a state without Slurm's one-character flags: ``drained*`` -> {drained}, ``idle+drain`` -> {idle, drain}."""
    found = {part.rstrip("*~#!%$@^-") for part in state.lower().split("+")}
    if state.endswith("$"):
        found.add("maintenance")
    if state.endswith(("@", "^")):
        found.add("reboot")
    if "*" in state:
        found.add("not_responding")
    return frozenset(found)


def is_out(state: str) -> bool:
    """Whether no new job can start on a node in this state."""
    found = words(state)
    return bool(found & (_DRAIN | _DOWN | _INVALID | {"unk", "unknown"}))


class _View:
    """The last case whose nodes were put together, so that rules of single nodes stay linear in their number."""

    case: Case | None = None
    count = 0
    nodes: dict[str, ClusterNode] = {}
    partitions: dict[str, tuple[int, int]] = {}  # (nodes whose state is known, those out for no planned reason)


def _by_name(case: Case) -> dict[str, ClusterNode]:
    """One entry a Slurm node: what several outputs tell of it, put together (the first that knows a field)."""
    if _View.case is case and _View.count == len(case.cluster_nodes or []):
        return _View.nodes
    found: dict[str, ClusterNode] = {}
    for node in case.cluster_nodes or []:
        if node.scheduler != "slurm":
            continue
        known = found.get(node.name)
        if known is None:
            found[node.name] = ClusterNode(**{name: getattr(node, name) for name in node.__struct_fields__})
            found[node.name].origin = dict(node.origin)
            continue
        for name in node.__struct_fields__:
            if name not in ("origin", "missing") and getattr(known, name) in (None, []) and getattr(node, name) not in (None, []):
                known.put(name, getattr(node, name), node.ref(name))
    shares: dict[str, tuple[int, int]] = {}
    for node in found.values():
        out = bool(node.state) and is_out(node.state or "") and not _planned(node)
        for partition in node.partitions if node.state else ():
            known_nodes, gone = shares.get(partition, (0, 0))
            shares[partition] = (known_nodes + 1, gone + out)
    _View.case, _View.count, _View.nodes, _View.partitions = case, len(case.cluster_nodes or []), found, shares
    return found


def _merged(case: Case) -> list[ClusterNode]:
    return list(_by_name(case).values())


def _jobs(case: Case) -> list[ClusterJob]:
    """Slurm's jobs, each once."""
    by_id: dict[str, ClusterJob] = {}
    for job in case.cluster_jobs or []:
        if job.scheduler != "slurm":
            continue
        known = by_id.setdefault(job.id, job)
        if known is not job and known.gpus is None and job.gpus is not None:
            by_id[job.id] = job
    return list(by_id.values())


def _slurm(node: ClusterNode | ClusterJob, ctx: Context) -> None:
    if node.scheduler != "slurm":
        raise ctx.skip("not Slurm")


def _age(node: ClusterNode, ctx: Context) -> str:
    """``since 2026-12-01 00:39 (35 s before the listing)``, "" without a time."""
    since = ctx.known(node, ClusterNode.reason_time)
    if since is None:
        return ""
    text = datetime.datetime.fromtimestamp(since, tz=datetime.timezone.utc).strftime(" since %Y-%m-%d %H:%M")
    ref = node.ref("")
    taken = ctx.case.sources[ref[0]].time if ref and ref[0] < len(ctx.case.sources) else None
    if taken is not None and taken >= since:
        days = (taken - since) / _DAY
        text += f" ({days:.0f} days before the listing)" if days >= 2 else f" ({(taken - since) / 3600:.1f} h before the listing)"
    return text


def _gpu_text(node: ClusterNode, ctx: Context) -> str:
    total = ctx.known(node, ClusterNode.gpus_total)
    return f": {total} GPUs out of service" if total else ""


def _planned(node: ClusterNode) -> bool:
    """Maintenance by the state, or by a reason that says so and names no fault ("XID 119, firmware update wanted" is none)."""
    if words(node.state or "") & _PLANNED:
        return True
    reason = node.reason or ""
    return bool(_PLANNED_REASON.search(reason)) and _UNPLANNED.search(reason) is None and _fault(reason) is None


def _fault(reason: str) -> tuple[str, str] | None:
    """(procedure, what it is about) where a reason names a hardware fault."""
    return next(((sop, what) for pattern, sop, what in _GPU_FAULT if pattern.search(reason)), None)


def _partition_out(node: ClusterNode, case: Case) -> str:
    """The partition of this node that has at least four nodes of which more than half are out for no planned reason, "" without."""
    _by_name(case)
    for partition in node.partitions:
        known, out = _View.partitions.get(partition, (0, 0))
        if known >= 4 and 2 * out > known:
            return f"{partition} ({out} of {known} nodes)"
    return ""


@rule(
    "slurm.node_drained",
    "Slurm nodes are in service",
    scope="cluster_node",
    family="slurm",
    sop="SOP-HOST",
    hint="sinfo -R -l; scontrol show node <node>",
    sources=("Slurm manual: sinfo, NODE STATE CODES; scontrol, update node",),
    action="Look at the reason, mend it, then scontrol update nodename=<node> state=resume. A node drained without an owner stays so for ever.",
)
def node_drained(node: ClusterNode, ctx: Context) -> Finding | None:
    """The node takes no new jobs because somebody, or a health check, drained it. It counts once, however many partitions list it.

    Maintenance (state ``$``, ``maint``, or a reason that says so: maintenance, reboot ASAP, scheduled, upgrade, firmware) is information.
    When most nodes of a partition are out without such a reason, it is an error. A listing of drained nodes only (``sinfo -R``) tells
    nothing of the share.
    """
    _slurm(node, ctx)
    whole = _by_name(ctx.case).get(node.name, node)
    if node.state is None and whole.state is not None:
        raise ctx.skip("another output tells its state")
    state = ctx.need(node, ClusterNode.state) if node.state or not node.reason else ""
    found = words(state)
    if state and (not found & _DRAIN or found & _INVALID):
        return None
    reason = ctx.known(node, ClusterNode.reason)
    user = ctx.known(node, ClusterNode.reason_user)
    if not state:
        what = "drained or down (sinfo -R lists both)"
    elif found & {"draining", "drng", "mixed", "allocated", "completing"}:
        what = "draining: running jobs may end, no new one starts"
    else:
        what = "drained"
    what += _gpu_text(node, ctx)
    what += f'; reason "{reason}"' if reason else "; no reason is given"
    what += _age(node, ctx) + (f" by {user}" if user else "")
    if "not_responding" in found or "down" in found:
        what += "; slurmd does not answer"
    planned = _planned(node)
    share = "" if planned else _partition_out(whole, ctx.case)
    if share:
        what += f"; most of partition {share} is out"
    return ctx.finding(
        "info" if planned else "error" if share else "warning",
        what + (" (planned)" if planned else ""),
        missing=([] if reason else ["the reason: scontrol show node"]) + ([] if state else ["its state: sinfo -R -l"]),
        next_test=f"scontrol show node {node.name}",
    )


def _invalid(node: ClusterNode, ctx: Context) -> Finding:
    reason = ctx.known(node, ClusterNode.reason)
    tail = (f'; reason "{reason}"' if reason else "") + _age(node, ctx)
    gpus = bool(reason and "gres/gpu" in reason)
    return ctx.finding(
        "error",
        "registered with less than its configuration says" + tail,
        id="slurm.node_invalid",
        causes=[
            Cause(
                "a GPU is lost or its device node is missing",
                "likely" if gpus else "possible",
                "nvidia-smi -L and slurmd -C on the node",
            ),
            Cause("slurm.conf or gres.conf names more than the node has", "possible", "the count was never reached"),
        ],
        sop="SOP-BUS" if gpus else None,
    )


@rule(
    "slurm.node_down",
    "Slurm nodes answer",
    scope="cluster_node",
    family="slurm",
    sop="SOP-HOST",
    hint="sinfo -N -l",
    sources=("Slurm manual: sinfo, NODE STATE CODES; slurm.conf, ReturnToService, SlurmdTimeout",),
    action="Reach the node by SSH or BMC; if it is up, look at slurmd (systemctl status slurmd, its log, munge, time), then resume it.",
    also=("slurm.node_not_responding", "slurm.node_invalid"),
)
def node_down(node: ClusterNode, ctx: Context) -> Finding | None:
    """Down, failed, or not answering (``*``) while nobody drained it: jobs on it are lost or about to be.

    ``inval`` means that the node registered with less than its configuration says, such as fewer GPUs: often a lost GPU.
    Nodes that a power saving plan switched off (``~``, ``#``, ``%``) or that are being rebooted are in order.
    """
    _slurm(node, ctx)
    state = ctx.need(node, ClusterNode.state)
    found = words(state)
    if found & _INVALID:
        return _invalid(node, ctx)
    if found & _DRAIN or _planned(node) or state.rstrip("*").endswith(("~", "#", "%", "!")):
        return None
    reason = ctx.known(node, ClusterNode.reason)
    tail = (f'; reason "{reason}"' if reason else "") + _age(node, ctx)
    if found & _DOWN - {"not_responding", "no_respond"}:
        return ctx.finding(
            "error", f"state {state}" + _gpu_text(node, ctx) + tail, next_test=f"scontrol show node {node.name}; ping {node.name}"
        )
    if found & {"not_responding", "no_respond"}:
        return ctx.finding(
            "error",
            f"slurmd does not answer (state {state})" + _gpu_text(node, ctx) + tail,
            id="slurm.node_not_responding",
            next_test=f"systemctl status slurmd on {node.name}",
        )
    return None


@rule(
    "slurm.reason_names_gpu_fault",
    "No node's reason names a hardware fault",
    scope="cluster_node",
    family="slurm",
    hint="sinfo -R -l",
    sources=("Slurm manual: scontrol update node reason=",),
)
def reason_names_fault(node: ClusterNode, ctx: Context) -> Finding | None:
    """The reason of a node that is out names a fault of a GPU, NVLink or the fabric: it links to what to do about that one.

    The reason is somebody's word, maybe an old one; the node's own logs decide.
    """
    _slurm(node, ctx)
    reason = ctx.known(node, ClusterNode.reason)
    if reason is None or not is_out(node.state or "drained") or words(node.state or "") & _INVALID:
        return None
    fault = _fault(reason)
    if fault is None:
        return None
    sop, what = fault
    number = re.search(r"\bxid\D{0,12}(\d{1,3})\b", reason, re.I)
    return ctx.finding(
        "info",
        f'the reason of the drain names {what}: "{reason}"' + (f"; see kilter explain xid {number.group(1)}" if number else ""),
        sop=sop,
        confidence="medium",
        action="Give kilter the node's kernel log and nvidia-smi -q before it is resumed.",
        next_test="kilter diagnose on a kilter snapshot of the node",
    )


def _stranded(node: ClusterNode) -> bool:
    return None not in (node.cpus_total, node.cpus_allocated) and (node.cpus_allocated or 0) >= (node.cpus_total or 0) > 0


@rule(
    "slurm.idle_gpus",
    "GPUs in service are at work",
    scope="case",
    family="slurm",
    hint='sinfo -N -O "NodeList,StateLong,Gres:40,GresUsed:60,CPUsState,AllocMem,Memory"; squeue',
    sources=("Slurm manual: sinfo -O Gres, GresUsed, CPUsState",),
    action="Compare what waits with what is free: GPUs beside full CPUs or memory need jobs with fewer CPUs a GPU; single GPUs need backfill of small jobs.",
)
def idle_gpus(case: Case, ctx: Context) -> Finding | None:
    """GPUs of nodes in service that no job holds, and whether jobs wait meanwhile. GPUs beside CPUs that are all taken are told apart.

    A fleet needs some slack; this is information. With a queue that has no waiting GPU job, free GPUs are in order.
    """
    nodes = [node for node in _merged(case) if node.gpus_total]
    if not nodes:
        raise ctx.missing("GPUs (GRES) of Slurm's nodes")
    free: list[tuple[ClusterNode, int]] = []
    unknown = 0
    for node in nodes:
        if not node.state or is_out(node.state) or words(node.state) & _PLANNED or not words(node.state) & _FREE:
            continue
        used = node.gpus_allocated if node.gpus_allocated is not None else 0 if words(node.state) == {"idle"} else None
        if used is None:
            unknown += 1
        elif used < (node.gpus_total or 0):
            free.append((node, (node.gpus_total or 0) - used))
    if not free:
        if unknown:
            raise ctx.missing(f"GPUs in use on {unknown} nodes")
        return None
    jobs = _jobs(case)
    waiting = [job for job in jobs if job.state == "PENDING" and job.gpus and _could_run(job)]
    if jobs and not waiting:
        return None
    count = sum(n for _, n in free)
    stranded = sum(n for node, n in free if _stranded(node))
    out = sum(node.gpus_total or 0 for node in nodes if node.state and is_out(node.state))
    what = f"{count} of {sum(node.gpus_total or 0 for node in nodes)} GPUs are free on {len(free)} nodes in service"
    what += f"; {stranded} of them stand beside CPUs that are all taken" if stranded else ""
    what += f"; {out} more are on nodes out of service" if out else ""
    if waiting:
        smallest = min(job.gpus or 0 for job in waiting)
        what += f", while {len(waiting)} jobs wait for {sum(job.gpus or 0 for job in waiting)} GPUs (the smallest for {smallest})"
    return ctx.finding(
        "info",
        what,
        subject=_CLUSTER,
        evidence=[
            Evidence(f"{node.name} {node.state}: {n} of {node.gpus_total} GPUs free", case.where(node.ref("state")))
            for node, n in free
        ],
        missing=([] if jobs else ["whether jobs wait: squeue"]) + ([f"GPUs in use on {unknown} nodes"] if unknown else []),
        causes=[
            Cause("CPUs or memory of the nodes are given away without GPUs", "likely", "CPUsState and AllocMem of these nodes")
        ]
        if stranded
        else [],
        confidence="high" if not unknown else "medium",
    )


def _could_run(job: ClusterJob) -> bool:
    """Whether a pending job waits for room, not for a limit, a time or another job."""
    reason = (job.reason or "").strip("()")
    return reason in ("", "Priority", "None") or bool(_WAITS_FOR_NODES.match(reason))


@rule(
    "slurm.no_gpu_capacity",
    "GPU jobs do not wait for room",
    scope="case",
    family="slurm",
    hint="squeue -o '%i|%j|%u|%T|%M|%l|%D|%C|%b|%R'; sinfo -N -l",
    sources=("Slurm manual: squeue, JOB REASON CODES",),
    action="Nothing is broken: mend nodes that are out of service first, then look at priorities, limits and long-held GPUs.",
)
def no_gpu_capacity(case: Case, ctx: Context) -> Finding | None:
    """GPU jobs wait for nodes (Resources, ReqNodeNotAvail, nodes DOWN or DRAINED). Jobs that wait for a limit, a time, a hold or another
    job do not count: no further GPU would start them."""
    jobs = _jobs(case)
    if not jobs:
        raise ctx.missing("queue")
    waiting = [
        job for job in jobs if job.state == "PENDING" and job.gpus and _WAITS_FOR_NODES.match((job.reason or "").strip("()"))
    ]
    if not waiting:
        if any(job.state == "PENDING" and job.gpus is None and _WAITS_FOR_NODES.match(job.reason or "") for job in jobs):
            raise ctx.missing("GPUs that the waiting jobs ask for")
        return None
    behind = sum(1 for job in jobs if job.state == "PENDING" and job.gpus and job.reason == "Priority")
    out = [node for node in _merged(case) if node.gpus_total and node.state and is_out(node.state)]
    what = f"{len(waiting)} jobs wait for {sum(job.gpus or 0 for job in waiting)} GPUs" + (
        f", {behind} more behind them" if behind else ""
    )
    what += f"; {sum(node.gpus_total or 0 for node in out)} GPUs are on {len(out)} nodes out of service" if out else ""
    return ctx.finding(
        "info",
        what,
        subject=_CLUSTER,
        evidence=[
            Evidence(f"job {job.id} {job.name or ''}: {job.gpus} GPUs, {job.reason}", case.where(job.ref("reason")))
            for job in waiting
        ],
    )


@rule(
    "slurm.job_dependency_never_satisfied",
    "No job waits for ever",
    scope="cluster_job",
    family="slurm",
    sop="SOP-APP",
    hint="squeue -o '%i|%T|%r|%E'",
    sources=("Slurm manual: squeue, JOB REASON CODES; slurm.conf, DependencyParameters=kill_invalid_depend",),
    action="scancel the job, or give it a dependency that can still come true (scontrol update jobid=<job> dependency=...).",
)
def dependency_never(job: ClusterJob, ctx: Context) -> Finding | None:
    """A job depends on another's success that failed: it stays in the queue for ever and hides behind ordinary waiting."""
    _slurm(job, ctx)
    state = ctx.need(job, ClusterJob.state)
    if state != "PENDING" or ctx.known(job, ClusterJob.reason) is None:
        return None
    if "dependencyneversatisfied" not in (job.reason or "").replace(" ", "").lower():
        return None
    return ctx.finding(
        "warning", f"job {job.id}{f' ({job.name})' if job.name else ''} can never start: what it depends on has failed"
    )


@rule(
    "slurm.interactive_gpu_hold",
    "No shell holds GPUs for long",
    scope="cluster_job",
    family="slurm",
    sop="SOP-APP",
    hint="squeue -O JobID,Name,UserName,State,TimeUsed,tres-alloc:80",
    sources=("Slurm manual: squeue; salloc's default job name is interactive, srun --pty takes the program's",),
    action="Ask the owner whether the session still works; a GPU partition for sessions with a short limit avoids it.",
)
def interactive_hold(job: ClusterJob, ctx: Context) -> Finding | None:
    """An interactive session (named bash, sh, interactive, jupyter, a dashboard's session) holds GPUs for more than 8 hours.

    Whether the GPUs work is not known from the queue; only the name tells that it is a session.
    """
    _slurm(job, ctx)
    if ctx.need(job, ClusterJob.state) != "RUNNING" or not job.gpus:
        return None
    name = ctx.known(job, ClusterJob.name)
    if name is None or not _INTERACTIVE.match(name):
        return None
    held = ctx.need(job, ClusterJob.run_time_s)
    gpus = ctx.need(job, ClusterJob.gpus)
    if held < INTERACTIVE_S:
        return None
    time = f"{held / _DAY:.1f} days" if held >= 2 * _DAY else f"{held / 3600:.0f} h"
    return ctx.finding(
        "info",
        f'session "{name}" has held {gpus} GPU{"s" if gpus > 1 else ""} for {time}',
        confidence="medium",
        missing=["whether its GPUs are at work: nvidia-smi on the node"],
    )


@rule(
    "slurm.cpu_underallocated",
    "GPU jobs have CPUs",
    scope="cluster_job",
    family="slurm",
    sop="SOP-SLOW",
    hint="squeue -O JobID,State,NumCPUs,tres-per-node,tres-alloc:80",
    sources=("Slurm manual: sbatch --cpus-per-gpu, --cpus-per-task; slurm.conf DefCpuPerGPU",),
    action="Ask for more (--cpus-per-gpu), or set DefCpuPerGPU for the partition to CPUs / GPUs of a node.",
)
def cpu_underallocated(job: ClusterJob, ctx: Context) -> Finding | None:
    """A running GPU job with fewer than 4 CPUs a GPU: data loading and the launching of kernels may starve its GPUs.

    A hint, not a fault: inference with little on the host runs well with one. Whether the GPUs do wait shows their utilisation.
    """
    _slurm(job, ctx)
    if ctx.need(job, ClusterJob.state) != "RUNNING" or not job.gpus:
        return None
    cpus, gpus = ctx.need(job, ClusterJob.cpus), ctx.need(job, ClusterJob.gpus)
    if cpus >= MIN_CPUS_PER_GPU * gpus:
        return None
    node = next((n for name in job.nodes[:1] if (n := _by_name(ctx.case).get(name)) and n.cpus_total and n.gpus_total), None)
    share = f"; its node has {(node.cpus_total or 0) / (node.gpus_total or 1):g} a GPU" if node else ""
    return ctx.finding(
        "info",
        f"{cpus} CPU{'s' if cpus != 1 else ''} for {gpus} GPU{'s' if gpus > 1 else ''}: {cpus / gpus:.3g} a GPU{share}",
        confidence="low",
        missing=["whether its GPUs wait: utilisation over time"],
    )
