"""``scontrol show node`` and ``scontrol show job`` (blocks or one line each), and ``sdiag``.

Format: Slurm's manual pages and outputs of 22.05. A value may hold blanks (``OS=``, ``Reason=``); it ends where the next ``Key=`` begins.
"""

from __future__ import annotations

import re
from collections.abc import Iterator

from kilter.facts.base import Ref
from kilter.facts.cluster import ClusterJob, ClusterNode, SchedulerLoad
from kilter.intake.captures import slurm_entities as entities
from kilter.intake.captures import slurm_values as values
from kilter.intake.captures.bounded import lines as bounded
from kilter.intake.fragment import Block, Fragment

_KEY = re.compile(r"(?:^|(?<=\s))([A-Z][A-Za-z_/:.]{0,60})=")
_REASON = re.compile(r"(?P<text>.*?)\s{0,32}(?:\[(?P<user>[^\[\]@]*)@(?P<time>[^\[\]]*)\])?$", re.S)
_MAX_LINE = 1 << 16  # show -o prints a job on one line

Pairs = dict[str, tuple[str, int]]


def _pairs(line: str) -> Iterator[tuple[str, str]]:
    keys = list(_KEY.finditer(line))
    for match, follower in zip(keys, [*keys[1:], None], strict=False):  # no key: nothing
        yield match.group(1), line[match.end() : follower.start() if follower else len(line)].strip()


def _records(block: Block, fragment: Fragment, first: str) -> Iterator[tuple[Pairs, int]]:
    """The records of a block; each begins with ``first``."""
    record: Pairs = {}
    start = 0
    for number, line in bounded(block, fragment, limit=_MAX_LINE):
        pairs = list(_pairs(line))
        if not pairs:
            if record and "Reason" in record and "Comment" not in record and line.startswith(" ") and line.strip():
                text, at = record["Reason"]
                record["Reason"] = (f"{text} {line.strip()}", at)  # a reason of several lines
            else:
                fragment.unparsed(number, line[:200])
            continue
        if pairs[0][0] == first:
            if record:
                yield record, start
            record, start = {}, number
        elif not record:
            fragment.unparsed(number, line[:200])
            continue
        for key, value in pairs:
            record.setdefault(key, (value, number))
    if record:
        yield record, start


def parse_nodes(block: Block, fragment: Fragment) -> None:
    """``NodeName=`` records. One without a state is a line of slurm.conf, not of scontrol."""
    nodes = entities.Nodes(fragment)
    for record, start in _records(block, fragment, "NodeName"):
        name = record["NodeName"][0].split(" ")[0]
        if "State" not in record:
            if "[" in name or len(record) < 6:
                fragment.unparsed(start, f"NodeName={name} (no State: not an answer of scontrol show node)")
                continue
            fragment.note(f"node {name} is cut short before its state (line {start})")
        node = nodes.get(name, fragment.ref(start))
        get = _Getter(record, fragment)
        for key, field in (("CPUTot", "cpus_total"), ("CPUAlloc", "cpus_allocated"), ("RealMemory", "memory_total_mib")):
            text, ref = get(key)
            node.put(field, values.number(text), ref)
        text, ref = get("AllocMem")
        node.put("memory_allocated_mib", values.number(text), ref)
        text, ref = get("State")
        node.put("state", text.split(" ")[0].lower() or None, ref)
        text, ref = get("Partitions")
        node.put("partitions", [one for one in text.split(",") if one] or None, ref)
        _node_gpus(node_record=record, node=node, fragment=fragment)
        text, ref = get("Reason")
        match = _REASON.match(text[:4096].strip())
        if match and match["text"] and not values.nothing(match["text"]):
            node.put("reason", match["text"], ref)
            node.put("reason_user", match["user"] or None, ref)
            node.put("reason_time", values.moment(match["time"] or ""), ref)


def _node_gpus(*, node_record: Pairs, node: ClusterNode, fragment: Fragment) -> None:
    get = _Getter(node_record, fragment)
    text, ref = get("Gres")
    counted = values.gpus(text) or values.gpus(get("CfgTRES")[0])
    if counted:
        node.put("gpus_total", counted[0], ref)
        node.put("gpu_type", counted[1] or None, ref)
    elif text == "(null)":
        node.put("gpus_total", 0, ref)
    used = values.gpus(get("GresUsed")[0])
    tres = values.gpus(get("CfgTRES")[0])
    if used:
        node.put("gpus_allocated", used[0], get("GresUsed")[1])
    elif tres:  # GPUs are accounted for (AccountingStorageTRES): what AllocTRES does not name is free
        allocated = values.gpus(get("AllocTRES")[0])
        node.put("gpus_allocated", allocated[0] if allocated else 0, get("AllocTRES")[1])


class _Getter:
    """``get("Key")`` -> (text, reference); "" when it is not there."""

    def __init__(self, record: Pairs, fragment: Fragment) -> None:
        self.record, self.fragment = record, fragment

    def __call__(self, key: str) -> tuple[str, Ref]:
        text, line = self.record.get(key, ("", 0))
        return text, self.fragment.ref(line)


def parse_jobs(block: Block, fragment: Fragment) -> None:
    """``JobId=`` records."""
    for record, start in _records(block, fragment, "JobId"):
        get = _Getter(record, fragment)
        identity = record["JobId"][0].split(" ")[0]
        array, task = get("ArrayJobId")[0], get("ArrayTaskId")[0]
        if array and task and not values.nothing(task):
            identity = f"{array}_{task if values.number(task) is not None else f'[{task}]'}"
        if not identity[:1].isdecimal():
            fragment.unparsed(start, f"JobId={identity}"[:200])
            continue
        job = ClusterJob(id=identity, origin={"": fragment.ref(start)})
        _fill_job(job, get)
        if job.state is None:
            fragment.note(f"job {identity} is cut short before its state (line {start})")
        fragment.cluster_jobs.append(job)


def _fill_job(job: ClusterJob, get: _Getter) -> None:
    for key, field in (("JobName", "name"), ("JobState", "state"), ("Partition", "partition")):
        text, ref = get(key)
        job.put(field, None if values.nothing(text) else text, ref)
    text, ref = get("UserId")
    job.put("user", text.partition("(")[0] or None, ref)
    text, ref = get("Reason")
    if not values.nothing(text):
        # scontrol joins the words of a description by underscores; one-word reasons have none.
        job.put("reason", text.replace("_", " "), ref)
    text, ref = get("NumNodes")
    job.put("n_nodes", values.number(text.partition("-")[0]), ref)
    text, ref = get("NumCPUs")
    job.put("cpus", values.number(text.partition("-")[0]), ref)
    for key, field in (("RunTime", "run_time_s"), ("TimeLimit", "time_limit_s")):
        text, ref = get(key)
        job.put(field, values.duration(text), ref)
    text, ref = get("SubmitTime")
    job.put("submitted", values.moment(text), ref)
    if job.state != "PENDING":
        text, ref = get("StartTime")
        job.put("started", values.moment(text), ref)
        text, ref = get("ExitCode")
        job.put("exit_code", values.number(text.partition(":")[0]), ref)
    text, ref = get("Restarts")
    job.put("restarts", values.number(text), ref)
    text, ref = get("NodeList")
    job.put("nodes", values.hosts(text), ref)
    tres = next((get(key)[0] for key in ("AllocTRES", "TRES", "ReqTRES") if values.gpus(get(key)[0])), "")
    per_node, ref = get("TresPerNode")
    if not tres and not per_node:
        per_job, at = get("TresPerJob")
        tres, ref = (per_job, at) if per_job else (tres, ref)
    entities.put_job_gpus(job, total=tres, per_node=per_node or get("Gres")[0], ref=ref)


_SDIAG = re.compile(r"\s*(?P<key>[A-Z][A-Za-z ]{2,40}):\s+(?P<n>\d{1,15})\s*$")
_SDIAG_FIELDS = {
    "Server thread count": "server_threads",
    "Agent queue size": "agent_queue",
    "DBD Agent queue size": "database_queue",
    "Jobs pending": "jobs_pending",
    "Jobs running": "jobs_running",
    "Mean cycle": "mean_cycle_us",
    "Max cycle": "max_cycle_us",
}
_SDIAG_TIME = re.compile(r"(?P<what>sdiag output at|Data since) .{20,40}\((?P<time>\d{9,11})\)")
_SDIAG_USER = re.compile(r"\s*(?P<user>\S{1,64})\s*\(\s*\d{1,10}\)\s+count:(?P<n>\d{1,15})\b")


def parse_sdiag(block: Block, fragment: Fragment) -> None:
    """``sdiag`` -> ``fragment.scheduler_loads``: threads, queues, cycles of the main scheduler (microseconds), RPCs of each user."""
    load = SchedulerLoad(origin={"": fragment.ref(block.first_line)})
    by_user = False
    for number, line in bounded(block, fragment):
        ref = fragment.ref(number)
        if "statistics by user" in line:
            by_user = True
        elif line.startswith(("Pending RPC", "Remote Procedure Call statistics by message")):
            by_user = False
        if match := _SDIAG_TIME.match(line):
            load.put("time" if match["what"].startswith("sdiag") else "since", float(match["time"]), ref)
        elif by_user and (match := _SDIAG_USER.match(line)) and len(load.user_requests) < 1000:
            load.user_requests[match["user"]] = int(match["n"])
            load.origin.setdefault("user_requests", ref)
        elif (match := _SDIAG.match(line)) and (field := _SDIAG_FIELDS.get(match["key"])) and getattr(load, field) is None:
            load.put(field, int(match["n"]), ref)  # the backfill's cycles come later and are not the main scheduler's
    if load.server_threads is None and load.agent_queue is None:
        fragment.note("sdiag: neither threads nor queues are shown (cut short?)")
        return
    fragment.scheduler_loads.append(load)
