"""What a job's own log shows: timeouts of the collective watchdog, desyncs, ranks that failed, NCCL RAS. CUDA errors: job_errors.py."""

from __future__ import annotations

import re
from collections.abc import Iterator

from kilter.diagnose.engine import Context, rule
from kilter.facts.case import Case
from kilter.facts.event import Event
from kilter.facts.finding import Cause, Evidence, Finding, Subject
from kilter.facts.measure import CollectiveRecord

_TORCH = "pytorch/pytorch torch/csrc/distributed/c10d/ProcessGroupNCCL.cpp"
MAX_GROUPS = 8
#: Operations whose sizes must be the same on every rank of a group.
_EQUAL = re.compile(r"_?(?:ALL_?REDUCE|BROADCAST|REDUCE|ALL_?GATHER|REDUCE_?SCATTER)(?:_BASE|_SPARSE)?$")


def events_of(case: Case, *kinds: str) -> list[Event]:
    """The events of the given kinds, in the case's order."""
    return [event for event in case.events if event.kind in kinds]


def need_job_log(case: Case, ctx: Context) -> None:
    """End the rule as "not checked" when nothing that was given is a job's log: then silence says nothing."""
    if case.jobs or any(event.kind.startswith(("torch.", "cuda.", "job.")) for event in case.events):
        return
    if not any(tool in ("job log", "NCCL log") for given in case.inputs for tool in given.tools):
        raise ctx.missing("log of the job", "the standard error of every rank")


def rank_names(ranks: list[int] | set[int], most: int = 12) -> str:
    """``rank 3``, ``ranks 0, 1, 2 and 5 more``."""
    known = sorted(rank for rank in ranks if rank >= 0)
    if not known:
        return "rank not named"
    text = ", ".join(str(rank) for rank in known[:most])
    rest = f" and {len(known) - most} more" if len(known) > most else ""
    return f"rank{'s' if len(known) > 1 else ''} {text}{rest}"


def _same(operation: str | None) -> str:
    """ALLREDUCE, ALL_REDUCE and all_reduce are one."""
    return (operation or "").replace("_", "").upper()


def rank_of_event(event: Event) -> int:
    """The rank that an event names; -1 when it names none."""
    text = event.fields.get("rank", "")
    return int(text) if text.isdecimal() else -1


def _members(case: Case, group: str, job: str = "") -> set[int]:
    """The ranks of a group, from Flight Recorder dumps, or of the whole job for the default group. Of a job among others it is not known."""
    if job and not re.fullmatch(r"run \d+", job):
        return set()
    for event in events_of(case, "torch.group"):
        if event.fields.get("group") == group and event.fields.get("members"):
            return {int(word) for word in event.fields["members"].split(",")}
    if group in ("", "0", "default_pg"):
        world = max((job.n_ranks or 0 for job in case.jobs), default=0)
        return set(range(world))
    return set()


class _Stuck:
    """One group's timeout: the first that each rank reported, and how far other ranks came."""

    def __init__(self, case: Case, job: str, group: str, records: list[CollectiveRecord]) -> None:
        self.job, self.group = job, group
        nodes: dict[int, set[str]] = {}
        for record in records:
            if record.node and record.rank >= 0:
                nodes.setdefault(record.rank, set()).add(record.node)
        self.mixed = {rank for rank, names in nodes.items() if len(names) > 1}  # two jobs that nothing tells apart
        self.first: dict[int, CollectiveRecord] = {}
        for record in records:
            known = self.first.get(record.rank)
            if known is None or (record.sequence or 0) < (known.sequence or 0):
                self.first[record.rank] = record
        self.sequences = {record.sequence for record in self.first.values() if record.sequence is not None}
        self.at = max(self.sequences, default=None)
        self.enqueued: dict[int, int] = {}
        for event in events_of(case, "torch.status", "torch.dump_signal", "torch.group"):
            if event.fields.get("job", "") != job:
                continue
            if event.fields.get("group", "") == group and (value := event.fields.get("enqueued", "")).lstrip("-").isdecimal():
                rank = rank_of_event(event)
                self.enqueued[rank] = max(self.enqueued.get(rank, -1), int(value))
        self.members = set() if self.mixed else _members(case, group, job)
        reported = set(self.first) | set(self.enqueued)
        self.silent = self.members - reported if self.members else set()
        behind = {
            rank for rank, seen in self.enqueued.items() if self.at is not None and seen < self.at and rank not in self.first
        }
        lower = {
            r
            for r, record in self.first.items()
            if record.sequence is not None and self.at is not None and record.sequence < self.at
        }
        self.behind = set() if self.mixed else (behind | lower) - {-1}

    @property
    def name(self) -> str:
        """``job train-a``, ``run 2`` where the log tells of several; "job" else."""
        return self.job if self.job.startswith("run ") else f"job {self.job}".strip()

    @property
    def operations(self) -> set[str]:
        return {_same(record.operation) for record in self.first.values() if record.sequence == self.at}


def _timed_out(case: Case) -> dict[tuple[str, str], list[CollectiveRecord]]:
    """(job, group) -> its timeouts."""
    groups: dict[tuple[str, str], list[CollectiveRecord]] = {}
    for record in case.collectives:
        if record.state == "timed out":
            groups.setdefault((record.job, record.group), []).append(record)
    return groups


@rule(
    "torch.watchdog_timeout",
    "No collective of the job timed out",
    scope="case",
    family="job",
    sop="SOP-NCCL",
    hint="the job's log of every rank (standard error)",
    sources=(_TORCH, "PyTorch documentation: Flight Recorder"),
    action="Look first at the rank that is behind or silent: its own log, its GPU (nvidia-smi, kernel log) and its stack (py-spy dump).",
)
def watchdog(case: Case, ctx: Context) -> Iterator[Finding]:
    """PyTorch's watchdog waited for a collective longer than its time limit and ended the job.

    The rank that reports is a victim as a rule: it waits for another. A rank that enqueued fewer collectives than the others, or that never
    reports, is where to look. When all ranks wait in the same collective, the program is in order and the transport is not: link, NIC or GPU.
    "Last enqueued" grows only after NCCL's call returns, so a rank that is behind may also be stuck inside NCCL.
    """
    groups = _timed_out(case)
    if not groups:
        need_job_log(case, ctx)
        return
    order = sorted(groups, key=lambda group: min((r.origin.get("", (0, 0))[1] for r in groups[group]), default=0))
    for key in order[:MAX_GROUPS]:
        yield _timeout(case, ctx, _Stuck(case, *key, groups[key]))


def _timeout(case: Case, ctx: Context, stuck: _Stuck) -> Finding:
    lead = next((r for r in stuck.first.values() if r.sequence == stuck.at), next(iter(stuck.first.values())))
    operation = f"{lead.operation or 'a collective'}" + (f" number {stuck.at}" if stuck.at is not None else "")
    size = f" of {lead.input_elements} elements" if lead.input_elements else ""
    after = f" after {(lead.timeout_ms or lead.duration_ms or 0) / 1000:.0f} s" if lead.timeout_ms or lead.duration_ms else ""
    where = (f" in group {stuck.group}" if stuck.group else "") + (f" of {stuck.name}" if stuck.job else "")
    what = f"{operation}{size}{where} timed out on {rank_names(set(stuck.first))}{after}"
    missing: list[str] = []
    if stuck.behind:
        what += f"; {rank_names(stuck.behind)} never got that far"
        causes = [
            Cause(
                f"{rank_names(stuck.behind)} stopped before this collective: an exception, a hang in data loading, or a stuck GPU",
                "likely",
                "its own log and stack",
            ),
            Cause("it waits inside NCCL's call", "possible", "py-spy dump --native; Flight Recorder"),
        ]
    elif stuck.silent:
        what += f"; {rank_names(stuck.silent)} never reported"
        causes = [
            Cause(f"{rank_names(stuck.silent)} died or hangs without a watchdog", "likely", "its log, the node's kernel log"),
            Cause("the log of these ranks was not given", "possible", "collect every rank's log"),
        ]
    elif stuck.mixed:
        what += f"; {rank_names(stuck.mixed)} reported from two nodes: the log mixes jobs that nothing in it tells apart"
        causes = [Cause("give the log of each job by itself", "likely")]
    elif len(stuck.operations) > 1:
        what += f"; ranks are in different operations ({', '.join(sorted(stuck.operations))})"
        causes = [
            Cause(
                "the program issues collectives in a different order on different ranks (desync)",
                "likely",
                "torchfrtrace on all dumps",
            )
        ]
    elif stuck.members and set(stuck.first) >= stuck.members:
        what += "; all ranks wait in the same operation"
        causes = [
            Cause(
                "the transport stands still: NIC, link, fabric or NVLink", "likely", "port counters, NCCL_DEBUG=INFO, kernel logs"
            ),
            Cause("a GPU that does not execute (XID, clocks)", "possible", "kernel log; nvidia-smi -q"),
        ]
    else:
        causes = [
            Cause(
                "a rank that does not take part: its log was not given, or it hangs", "possible", "logs of all ranks; NCCL RAS"
            ),
            Cause("the transport stands still", "possible", "port counters; kernel logs"),
        ]
        if not stuck.members:
            missing.append("how many ranks the group has (NCCL_DEBUG=INFO, or Flight Recorder dumps)")
    lines = [
        event
        for event in events_of(case, "torch.watchdog")
        if event.fields.get("group", "") == stuck.group and event.fields.get("job", "") == stuck.job
    ]
    others = [
        event
        for event in events_of(case, "torch.status", "torch.dump_signal")
        if rank_of_event(event) in stuck.behind and event.fields.get("job", "") == stuck.job
    ]
    return ctx.finding(
        "error",
        what,
        subject=Subject(
            "job",
            ", ".join(filter(None, (stuck.name if stuck.job else "", f"group {stuck.group}" if stuck.group else ""))) or "job",
        ),
        evidence=[*others[:4], *lines],
        causes=causes,
        missing=missing,
        confidence="low" if stuck.mixed else "high" if stuck.behind or len(stuck.operations) > 1 else "medium",
        next_test="run once more with TORCH_NCCL_TRACE_BUFFER_SIZE=20000 and read the dumps of all ranks",
    )


@rule(
    "torch.desync",
    "All ranks issue the same collectives",
    scope="case",
    family="job",
    sop="SOP-NCCL",
    hint="Flight Recorder dumps, or watchdog messages, of every rank",
    sources=("pytorch/pytorch torch/distributed/flight_recorder/components/utils.py", _TORCH),
    action="Find the branch that differs by rank (a condition on data, an early return, unused parameters); compare the stacks of both ranks.",
    also=("torch.not_joined",),
)
def desync(case: Case, ctx: Context) -> Iterator[Finding]:
    """At one sequence number of a group, ranks are in different operations, or in one with different sizes: an error of the program.

    Sizes are compared only for operations that need equal ones; all-to-all and point-to-point may differ.
    """
    joined = events_of(case, "torch.not_joined")
    if not case.collectives and not joined:
        raise ctx.missing("collectives by rank")
    table: dict[tuple[str, str, int], dict[int, CollectiveRecord]] = {}
    for record in case.collectives:
        if record.sequence is not None and record.rank >= 0 and _same(record.operation) not in ("SEND", "RECV", "COALESCED"):
            table.setdefault((record.job, record.group, record.sequence), {}).setdefault(record.rank, record)
    told: set[tuple[str, str]] = set()
    for (job, group, sequence), ranks in sorted(table.items()):
        # Subgroups of one description (one for each pipeline stage, say) cannot be told apart without their members.
        if len(ranks) < 2 or (job, group) in told:
            continue
        members = _members(case, group, job)
        shared = {rank: record for rank, record in ranks.items() if not members or rank in members}
        ways: dict[str, list[CollectiveRecord]] = {}
        for record in shared.values():
            sizes = (
                f" of {record.input_elements} elements"
                if record.input_elements is not None and _EQUAL.match(record.operation or "")
                else ""
            )
            ways.setdefault(_same(record.operation) + sizes, []).append(record)
        known = [way for way in ways if way]
        if len(known) < 2 or (group not in ("", "0", "default_pg") and not members):
            continue
        told.add((job, group))
        parts = [f"{rank_names([r.rank for r in ways[way]])}: {way}" for way in known[:4]]
        yield ctx.finding(
            "error",
            f"ranks disagree at collective number {sequence}"
            + (f" of group {group}" if group else "")
            + (f" of {job}" if job else "")
            + f": {'; '.join(parts)}",
            subject=Subject("job", ", ".join(filter(None, (job, f"group {group}" if group else ""))) or "job"),
            evidence=[Evidence(part, ctx.where(ways[way][0])) for part, way in zip(parts, known, strict=False)],
            causes=[
                Cause("the program takes different branches on different ranks", "likely"),
                Cause("records of different jobs were given together", "possible"),
            ],
        )
    for event in joined[:MAX_GROUPS]:
        group = event.fields.get("group", "")
        yield ctx.finding(
            "error",
            f"rank(s) {event.fields.get('missing', '?')} did not join {event.fields.get('op') or 'a collective'}"
            + (f" number {event.fields['seq']}" if event.fields.get("seq") else "")
            + (f" of group {group}" if group else ""),
            id="torch.not_joined",
            subject=Subject("job", f"group {group}" if group else "job"),
            evidence=[event],
            causes=[
                Cause("these ranks hang or died before the collective", "likely", "their stacks"),
                Cause("they took another branch", "possible"),
            ],
        )


_SIGNAL_CAUSES = {
    "SIGKILL": (
        Cause(
            "killed for memory: the kernel's OOM killer, or the cgroup's limit",
            "likely",
            "kernel log: 'Out of memory' or 'oom-kill'; memory.events",
        ),
        Cause("killed by the scheduler: time or memory limit, preemption", "possible", "sacct -j JOB -o State,ExitCode,MaxRSS"),
    ),
    "SIGTERM": (Cause("ended by the launcher or the scheduler after another failure", "likely", "the first failure of the job"),),
    "SIGSEGV": (
        Cause(
            "a fault in native code: an extension, a library mismatch, or bad host memory",
            "possible",
            "core dump; kernel log for 'segfault at'",
        ),
    ),
    "SIGABRT": (Cause("an assertion, or the watchdog, ended the process", "likely", "the lines of this rank before it"),),
    "SIGBUS": (Cause("/dev/shm is full, or a mapped file was cut", "likely", "df /dev/shm"),),
}


@rule(
    "torch.rank_failed",
    "No rank of the job failed",
    scope="case",
    family="job",
    sop="SOP-APP",
    hint="the launcher's log (torchrun)",
    sources=("pytorch/pytorch torch/distributed/elastic/multiprocessing/errors/__init__.py",),
    action="Read this rank's log before all others; later failures follow from it.",
)
def rank_failed(case: Case, ctx: Context) -> Finding | None:
    """torchrun reports failed ranks; the first one it observed is the place to start. Its clock is the launcher's: "first" is first noticed."""
    need_job_log(case, ctx)
    events = events_of(case, "torch.rank_failed")
    if not events:
        return None
    first = next((e for e in events if e.fields.get("first")), events[0])
    signal = first.fields.get("signal", "")
    host = f" on {first.node}" if first.node else ""
    code = f"exit code {first.code}" + (f" ({signal})" if signal else "")
    who = first.device or f"local rank {first.fields.get('local_rank', '?')}"
    others = len(events) - 1
    causes = list(_SIGNAL_CAUSES.get(signal, ()))
    if not causes:
        causes = [Cause("an exception in the program or a library", "likely", "the traceback of this rank")]
    ooms = [
        e for e in case.events if e.kind in ("oom", "job.cgroup_oom") and (not first.node or not e.node or e.node == first.node)
    ]
    return ctx.finding(
        "error",
        f"{who}{host} failed first, {code}" + (f"; {others} more failed" if others else ""),
        subject=Subject("job", who, first.node),
        evidence=[first, *(ooms[:2] if signal == "SIGKILL" else []), *[e for e in events if e is not first]],
        causes=causes,
        missing=["the kernel log of this node"]
        if signal == "SIGKILL" and not ooms and first.node not in case.kernel_logs
        else [],
    )


@rule(
    "nccl.ras.lost",
    "NCCL RAS reaches every process",
    scope="case",
    family="job",
    sop="SOP-NCCL",
    hint="ncclras on one node of the job",
    sources=("NVIDIA/nccl src/ras/client_support.cc", "NVIDIA NCCL documentation: RAS"),
    action="Look at the named processes and nodes: dead process, hung node, or a broken out-of-band network.",
    also=("nccl.ras.error", "nccl.ras.mismatch"),
)
def ras(case: Case, ctx: Context) -> Iterator[Finding]:
    """RAS lists processes that are dead (no keep-alive for about 60 s) or gave no data, errors of ranks, and ranks with different counts.

    Counts of a running job differ from rank to rank at any moment, so a difference alone is information: ask twice, and see whether it stays.
    """
    if not case.rank_states and not any(e.kind.startswith("nccl.ras.") for e in case.events):
        raise ctx.missing("NCCL RAS status")
    lost = events_of(case, "nccl.ras.dead", "nccl.ras.missing")
    if lost:
        ranks = {rank_of_event(e) for e in lost} | {s.rank for s in case.rank_states if s.state in ("DEAD", "MISSING")}
        nodes = sorted({e.node for e in lost if e.node})
        named = f" {rank_names(ranks - {-1})}" if ranks - {-1} else ""
        dead = any(e.kind == "nccl.ras.dead" for e in lost)
        yield ctx.finding(
            "error",
            f"{'dead' if dead else 'silent'} processes in the job{named}" + (f" on {', '.join(nodes[:8])}" if nodes else ""),
            subject=Subject("job", "job"),
            evidence=lost,
            causes=[
                Cause("the process ended or its node is gone", "likely", "ps, ping, kernel log of the node"),
                Cause("the process hangs so that its RAS thread does not run", "possible"),
            ],
        )
    if errors := events_of(case, "nccl.ras.error"):
        yield ctx.finding(
            "error",
            f"ranks report NCCL errors: {errors[-1].text[:160]}",
            id="nccl.ras.error",
            subject=Subject("job", "job"),
            evidence=errors,
        )
    if mismatch := events_of(case, "nccl.ras.mismatch"):
        low = _lowest(case)
        yield ctx.finding(
            "info",
            "ranks of a communicator differ in status or operation counts" + (f"; lowest: {rank_names(low)}" if low else ""),
            id="nccl.ras.mismatch",
            subject=Subject("job", "job"),
            evidence=mismatch,
            next_test="ask RAS again after some seconds: counts that stay different show the rank that stands still",
            confidence="low",
        )


def _lowest(case: Case) -> set[int]:
    best: dict[tuple[str, str], int] = {}
    for state in case.rank_states:
        for operation, count in state.counts.items():
            key = (state.communicator, operation)
            best[key] = min(best.get(key, count), count)
    return (
        {s.rank for s in case.rank_states for operation, count in s.counts.items() if count == best[s.communicator, operation]}
        if best
        else set()
    )
