"""Processes of a job that a signal or a limit ended, stuck watchdogs, and errors of cuDNN and cuBLAS."""

from __future__ import annotations

from collections.abc import Iterator

from kilter.diagnose.engine import Context, rule
from kilter.diagnose.rules.job import need_job_log
from kilter.facts.case import Case
from kilter.facts.event import Event
from kilter.facts.finding import Cause, Finding, Subject


def _by_node(case: Case, kind: str) -> dict[str, list[Event]]:
    found: dict[str, list[Event]] = {}
    for event in case.events:
        if event.kind == kind:
            found.setdefault(event.node, []).append(event)
    return found


@rule(
    "job.process_killed",
    "No process of the job was ended by a signal",
    scope="case",
    family="job",
    sop="SOP-APP",
    sources=("SchedMD/slurm src/srun", "signal(7)"),
    action="Find what happened first on this node: kernel log, cgroup memory events, the lines of the task before it.",
    also=("job.cgroup_oom",),
)
def killed(case: Case, ctx: Context) -> Iterator[Finding]:
    """Tasks that ended by a signal, as the launcher reports, and out-of-memory kills in the job's cgroup.

    When torchrun or the watchdog already says why, the signal is its consequence and information.
    """
    need_job_log(case, ctx)
    known = any(e.kind in ("torch.rank_failed", "torch.watchdog", "cuda.error") for e in case.events)
    for node, events in _by_node(case, "job.cgroup_oom").items():
        yield ctx.finding(
            "error",
            f"the job's memory limit was reached: {events[0].text}",
            id="job.cgroup_oom",
            subject=Subject("job", "job", node),
            evidence=events,
            causes=[Cause("host memory of the step: data loading, checkpoints, pinned buffers", "likely", "sacct -o MaxRSS")],
            action="Ask for more memory (--mem), or lower the use of host memory.",
        )
    for node, events in _by_node(case, "job.signal").items():
        yield ctx.finding(
            "info" if known else "warning",
            f"processes ended by a signal: {events[0].text}",
            subject=Subject("job", "job", node),
            evidence=events,
        )


@rule(
    "torch.heartbeat_stuck",
    "PyTorch's watchdog threads make progress",
    scope="case",
    family="job",
    sop="SOP-NCCL",
    sources=("pytorch/pytorch torch/csrc/distributed/c10d/ProcessGroupNCCL.cpp (HeartbeatMonitor)",),
    action="Take the stack of this process (py-spy dump --native): a CUDA call that does not return, or the GIL held for minutes.",
)
def heartbeat(case: Case, ctx: Context) -> Finding | None:
    """The watchdog thread itself stands still: a CUDA or NCCL call does not return, often behind a GPU or driver that hangs, or the GIL is held."""
    need_job_log(case, ctx)
    events = [e for e in case.events if e.kind == "torch.heartbeat"]
    if not events:
        return None
    causes = [
        Cause(
            "a CUDA call that does not return: sick GPU or driver",
            "possible",
            "kernel log of the node; nvidia-smi with a time limit",
        ),
        Cause("a deadlock on the GIL, or an extremely busy host", "possible", "py-spy dump"),
    ]
    return ctx.finding(
        "error",
        f"{events[0].text} ({events[0].device or 'rank not named'})",
        subject=Subject("job", "job"),
        evidence=events,
        causes=causes,
    )


@rule(
    "cuda.library_error",
    "cuDNN and cuBLAS gave no error",
    scope="case",
    family="job",
    sop="SOP-APP",
    sources=("NVIDIA cuDNN and cuBLAS documentation: status types",),
    action="Look at free GPU memory first, then at versions (python3 -m torch.utils.collect_env), then at earlier CUDA errors.",
)
def library(case: Case, ctx: Context) -> Finding | None:
    """A library call failed. ALLOC_FAILED and NOT_INITIALIZED are want of GPU memory as a rule; EXECUTION_FAILED follows an earlier CUDA error."""
    need_job_log(case, ctx)
    events = [e for e in case.events if e.kind == "cuda.library"]
    if not events:
        return None
    memory = any("ALLOC" in e.text or "NOT_INITIALIZED" in e.text for e in events)
    cause = (
        Cause("GPU memory is used up", "likely", "nvidia-smi")
        if memory
        else Cause("an earlier CUDA error, or unfit versions", "likely")
    )
    return ctx.finding("error", events[0].text, subject=Subject("job", "job"), evidence=events, causes=[cause])
