"""What Slurm's accounting, its controller and its daemons' logs say: jobs that nodes ended, nodes lost, prologs that fail, a busy controller."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator

from kilter.diagnose.engine import Context, rule
from kilter.facts.case import Case
from kilter.facts.cluster import ClusterJob
from kilter.facts.event import Event
from kilter.facts.finding import Cause, Evidence, Finding, Subject

_SACCT = "sacct -P -S <time> -o JobID,JobName,State,ExitCode,Elapsed,NodeList,AllocTRES"
_LOG = "/var/log/slurm/slurmctld.log; journalctl -u slurmd on the node"
_MAN = "Slurm manual: sacct, JOB STATE CODES"


def _by_node(jobs: list[ClusterJob]) -> str:
    """The nodes that several of the jobs share; "" when none does."""
    counts = Counter(name for job in jobs for name in set(job.nodes))
    return ", ".join(f"{name} in {number} of them" for name, number in counts.most_common(3) if number > 1)


@rule(
    "slurm.jobs_lost_to_nodes",
    "No job was lost to a node",
    scope="case",
    family="slurm",
    sop="SOP-HOST",
    hint=_SACCT,
    sources=(_MAN,),
    action="Look at the nodes of these jobs: kernel log, BMC log, slurmctld's log at that time; drain one that several jobs share.",
)
def jobs_lost(case: Case, ctx: Context) -> Finding | None:
    """Jobs ended as NODE_FAIL or BOOT_FAIL: a node of theirs went away. Which one, accounting does not say; one that several lost jobs share is
    the suspect."""
    jobs = [job for job in case.cluster_jobs or [] if job.scheduler == "slurm"]
    if not jobs:
        raise ctx.missing("jobs")
    lost = [job for job in jobs if job.state in ("NODE_FAIL", "BOOT_FAIL")]
    if not lost:
        return None
    shared = _by_node(lost)
    return ctx.finding(
        "error" if len(lost) > 1 and shared else "warning",
        f"{len(lost)} job{'s' if len(lost) > 1 else ''} ended for a failed node" + (f"; {shared}" if shared else ""),
        subject=Subject("case", "Slurm"),
        evidence=[
            Evidence(
                f"job {job.id} {job.name or ''}: {job.state} on {', '.join(job.nodes[:8]) or 'nodes not shown'}",
                case.where(job.ref("state")),
            )
            for job in lost
        ],
        causes=[Cause("a node crashed, hung or lost its network", "likely", "kernel and BMC logs of its nodes")],
        missing=[] if shared else ["which of the nodes failed: slurmctld's log"],
    )


@rule(
    "slurm.job_out_of_memory",
    "Jobs have enough host memory",
    scope="cluster_job",
    family="slurm",
    sop="SOP-APP",
    hint=_SACCT,
    sources=(_MAN,),
    action="Ask for more (--mem, --mem-per-gpu), or use fewer data loader workers; compare MaxRSS with ReqMem.",
)
def out_of_memory(job: ClusterJob, ctx: Context) -> Finding | None:
    """The kernel killed a process of the job for exceeding the job's share of host memory. It is not the GPU's memory."""
    if job.scheduler != "slurm":
        raise ctx.skip("not Slurm")
    if ctx.need(job, ClusterJob.state) != "OUT_OF_MEMORY":
        return None
    return ctx.finding(
        "warning",
        f"job {job.id}{f' ({job.name})' if job.name else ''} ran out of host memory"
        + (f" on {', '.join(job.nodes[:4])}" if job.nodes else ""),
    )


@rule(
    "slurm.job_timed_out",
    "Jobs end before their time limit",
    scope="case",
    family="slurm",
    sop="SOP-APP",
    hint=_SACCT,
    sources=(_MAN,),
    action="See in its log whether the job still went forward at its end; if so it needs more time or checkpoints, if not it hung.",
)
def timed_out(case: Case, ctx: Context) -> Finding | None:
    """Jobs ran into their time limit. That is how many jobs are planned; a hung job ends so as well."""
    jobs = [job for job in case.cluster_jobs or [] if job.scheduler == "slurm"]
    if not jobs:
        raise ctx.missing("jobs")
    late = [job for job in jobs if job.state in ("TIMEOUT", "DEADLINE")]
    if not late:
        return None
    return ctx.finding(
        "info",
        f"{len(late)} job{'s' if len(late) > 1 else ''} ran into the time limit",
        subject=Subject("case", "Slurm"),
        evidence=[Evidence(f"job {job.id} {job.name or ''}: {job.state}", case.where(job.ref("state"))) for job in late],
        missing=["whether they still went forward: their logs"],
        confidence="low",
    )


#: slurmctld's default number of threads for requests (MAX_SERVER_THREADS), and the least of MaxDBDMsgs
_THREADS, _DATABASE = 256, 10_000


@rule(
    "slurm.controller_busy",
    "Slurm's controller keeps up",
    scope="case",
    family="slurm",
    sop="SOP-HOST",
    hint="sdiag, some times a minute",
    sources=("Slurm manual: sdiag (Server thread count, DBD Agent queue size); slurm.conf, MaxDBDMsgs",),
    action="Find who sends the requests (sdiag: statistics by user); squeue in loops is the usual one. See Slurm's high throughput guide.",
    also=("slurm.database_behind",),
)
def controller_busy(case: Case, ctx: Context) -> Iterator[Finding]:
    """Threads near slurmctld's limit of 256, or messages to the database queued up to half of MaxDBDMsgs (at least 10000): accounting is lost
    when it is full. Below that, numbers of sdiag say nothing."""
    if not case.scheduler_loads:
        raise ctx.missing("sdiag")
    for load in case.scheduler_loads:
        users = sorted(load.user_requests.items(), key=lambda one: -one[1])[:3]
        total = sum(load.user_requests.values())
        if load.server_threads is not None and load.server_threads >= 0.8 * _THREADS:
            yield ctx.finding(
                "warning",
                f"{load.server_threads} of {_THREADS} threads of slurmctld are at work"
                + (f"; most requests by {', '.join(f'{user} ({100 * n // total}%)' for user, n in users)}" if total else ""),
                subject=Subject("case", "Slurm"),
                evidence=[Evidence(f"Server thread count: {load.server_threads}", case.where(load.ref("server_threads")))],
                causes=[Cause("a user or a monitor asks too often", "likely", "sdiag: Remote Procedure Call statistics by user")],
                missing=["a second reading: threads come and go within seconds"],
                confidence="medium",
            )
        if load.database_queue is not None and load.database_queue >= _DATABASE // 2:
            yield ctx.finding(
                "error" if load.database_queue >= _DATABASE else "warning",
                f"{load.database_queue} messages wait for slurmdbd; accounting is lost when the queue is full (MaxDBDMsgs, 10000 or more)",
                id="slurm.database_behind",
                subject=Subject("case", "Slurm"),
                evidence=[Evidence(f"DBD Agent queue size: {load.database_queue}", case.where(load.ref("database_queue")))],
                causes=[Cause("slurmdbd or its database is down or slow", "likely", "systemctl status slurmdbd; sacctmgr ping")],
                action="Mend slurmdbd and its database; do not restart slurmctld before the queue is empty.",
            )


def _events(case: Case, ctx: Context, *kinds: str) -> dict[str, list[Event]]:
    """Node -> its events of these kinds; says "not checked" without a log of Slurm."""
    known = [event for event in case.events if event.kind.startswith("slurm.")]
    if not known:
        raise ctx.missing("log of slurmctld or slurmd")
    found: dict[str, list[Event]] = {}
    for event in known:
        if event.kind in kinds:
            found.setdefault(event.node, []).append(event)
    return dict(sorted(found.items()))


@rule(
    "slurm.log_node_lost",
    "Slurm's controller reaches its nodes",
    scope="case",
    family="slurm",
    sop="SOP-HOST",
    hint=_LOG,
    sources=("Slurm 22.05: slurmctld, ping_nodes and node_mgr messages", "Slurm manual: slurm.conf, SlurmdTimeout"),
    action="Look at the node's kernel and BMC logs of that time; if it is up: systemctl status slurmd, munge, its clock.",
    also=("slurm.log_node_rebooted",),
)
def log_node_lost(case: Case, ctx: Context) -> Iterator[Finding]:
    """slurmctld's log says that a node stopped answering and was set down, or came back from a reboot that nobody asked for.

    A node that was silent for a moment and answered again is information.
    """
    found = _events(case, ctx, "slurm.node_lost", "slurm.job_lost", "slurm.node_rebooted")
    back = _events(case, ctx, "slurm.node_back")
    for node, events in found.items():
        rebooted = [e for e in events if e.kind == "slurm.node_rebooted"]
        lost = [e for e in events if e.kind != "slurm.node_rebooted"]
        if rebooted:
            yield ctx.finding(
                "error",
                "the node rebooted though nobody asked for it: its jobs are lost",
                id="slurm.log_node_rebooted",
                subject=Subject("cluster_node", "", node),
                evidence=rebooted,
                causes=[Cause("crash, power loss or watchdog", "likely", "BMC log; kernel log before the boot; pstore")],
            )
        if not lost:
            continue
        down = any("down" in e.fields or e.kind == "slurm.job_lost" for e in lost)
        again = back.get(node, [])
        jobs = sorted({e.fields["job"] for e in lost if "job" in e.fields})
        yield ctx.finding(
            "error" if down else "info" if again else "warning",
            ("did not answer and was set down" if down else "did not answer")
            + (f"; killed job{'s' if len(jobs) > 1 else ''} {', '.join(jobs[:6])}" if jobs else "")
            + ("; it answered again later" if again else ""),
            subject=Subject("cluster_node", "", node),
            evidence=lost[:6] + again[:1],
            causes=[
                Cause("node crashed or hung", "likely" if down else "possible", "its kernel and BMC logs"),
                Cause("slurmd stopped, or its network is down", "possible", "systemctl status slurmd"),
            ],
            confidence="high" if down else "medium",
        )


@rule(
    "slurm.log_gpu_missing",
    "Every configured GPU is there for slurmd",
    scope="case",
    family="slurm",
    sop="SOP-BUS",
    hint=_LOG,
    sources=("Slurm 22.05: gres.c (count reported lower than configured; gres.conf file)",),
    action="nvidia-smi -L and ls /dev/nvidia* on the node against gres.conf; then scontrol reconfigure and resume.",
)
def log_gpu_missing(case: Case, ctx: Context) -> Iterator[Finding]:
    """slurmd registered with fewer GPUs than configured, or does not find a GPU's device file: a GPU was lost, or the driver is not loaded."""
    for node, events in _events(case, ctx, "slurm.gpu_count", "slurm.gpu_file").items():
        count = next((e for e in events if e.kind == "slurm.gpu_count"), None)
        files = sorted({e.fields["file"] for e in events if "file" in e.fields})
        none = count is not None and count.fields.get("have") == "0"
        yield ctx.finding(
            "error",
            (
                f"{count.fields['have']} of {count.fields['want']} configured GPUs are there"
                if count
                else "device files of GPUs are missing"
            )
            + (f"; missing: {', '.join(files[:8])}" if files else ""),
            subject=Subject("cluster_node", "", node),
            evidence=events[:6],
            causes=[
                Cause("a GPU fell off the bus", "possible" if none else "likely", "kernel log: XID 79; lspci"),
                Cause(
                    "driver not loaded when slurmd started",
                    "likely" if none else "possible",
                    "systemctl status nvidia-persistenced; lsmod",
                ),
                Cause("gres.conf names more than the node has", "possible", "slurmd -C"),
            ],
        )


@rule(
    "slurm.log_prolog_failed",
    "Prologs and epilogs succeed",
    scope="case",
    family="slurm",
    sop="SOP-HOST",
    hint=_LOG,
    sources=("Slurm manual: prolog and epilog guide (a failed prolog drains the node)", "Slurm 22.05: slurmd/req.c"),
    action="Run the prolog by hand on that node; its exit status and output say which check failed. Then resume the node.",
    also=("slurm.log_kill_task_failed", "slurm.log_drained"),
)
def log_prolog_failed(case: Case, ctx: Context) -> Iterator[Finding]:
    """A prolog or epilog (where sites put their GPU health checks) failed and drained the node; or processes of a job could not be killed,
    which is what a hung GPU driver or file system does."""
    for node, events in _events(case, ctx, "slurm.prolog", "slurm.kill_task", "slurm.drained", "slurm.reason").items():
        subject = Subject("cluster_node", "", node)
        prolog = [e for e in events if e.kind == "slurm.prolog"]
        reasons = [e for e in events if e.kind == "slurm.reason"]
        words = " ".join(e.fields.get("reason", "") for e in reasons)
        hung = [e for e in events if e.kind == "slurm.kill_task" or "Kill task failed" in e.fields.get("reason", "")]
        if prolog:
            jobs = sorted({e.fields["job"] for e in prolog if "job" in e.fields})
            which = "epilog" if all(e.fields.get("which", "").lower() == "epilog" for e in prolog) else "prolog"
            yield ctx.finding(
                "warning",
                f"{which} failed {sum(e.count for e in prolog)} time{'s' if sum(e.count for e in prolog) > 1 else ''}"
                + (f" (job {', '.join(jobs[:4])})" if jobs else ""),
                subject=subject,
                evidence=[*prolog[:5], *reasons[:2]],
                causes=[Cause("a health check of the prolog found a fault", "likely", "the prolog's own log")],
                missing=[] if words else ["what the prolog found: its log"],
            )
        if hung:
            yield ctx.finding(
                "warning",
                "processes of a job could not be killed",
                id="slurm.log_kill_task_failed",
                subject=subject,
                evidence=hung[:4],
                causes=[
                    Cause(
                        "processes hang in the GPU driver or in a file system (state D)",
                        "likely",
                        "ps -eo state,pid,wchan:30,cmd | grep ^D",
                    ),
                    Cause("the job dumps a large core", "possible", "UnkillableStepTimeout"),
                ],
                action="Look for processes in state D and the kernel log before the node is resumed; often only a reboot helps.",
            )
        told = [e for e in events if e.kind in ("slurm.drained", "slurm.reason")]
        if told and not prolog and not hung:
            yield ctx.finding(
                "info",
                f"was drained or set down{f': {words}' if words else ''}",
                id="slurm.log_drained",
                subject=subject,
                evidence=told[:4],
                confidence="medium",
            )
