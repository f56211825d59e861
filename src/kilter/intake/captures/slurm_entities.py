"""Rows of named cells -> cluster nodes and jobs. The names are those that sinfo and squeue print as headers."""

from __future__ import annotations

import re

from kilter.facts.base import Ref
from kilter.facts.cluster import ClusterJob, ClusterNode
from kilter.intake.captures import slurm_values as values
from kilter.intake.fragment import Fragment

Cells = dict[str, list[str]]  # header -> cells under it; a format may name a column twice


class Nodes:
    """The nodes of one block, each once: sinfo repeats a node for every partition and state."""

    def __init__(self, fragment: Fragment) -> None:
        self.fragment = fragment
        self.by_name: dict[str, ClusterNode] = {node.name: node for node in fragment.cluster_nodes}

    def get(self, name: str, ref: Ref) -> ClusterNode:
        node = self.by_name.get(name)
        if node is None:
            node = self.by_name[name] = ClusterNode(name=name, origin={"": ref})
            self.fragment.cluster_nodes.append(node)
        return node


def _first(cells: Cells, *names: str) -> str:
    """The first cell under one of ``names`` that holds a value."""
    return next((cell for name in names for cell in cells.get(name, ()) if not values.nothing(cell)), "")


def _longest(cells: Cells, *names: str) -> str:
    """The longest cell: a format may ask for a state in short and long form."""
    return max((cell for name in names for cell in cells.get(name, ())), key=len, default="")


def _put_gpus(node: ClusterNode, text: str, field: str, ref: Ref) -> None:
    counted = values.gpus(text)
    if counted is not None:
        node.put(field, counted[0], ref)
        node.put("gpu_type", counted[1] or None, ref)
    elif text.strip() in ("(null)", "null", "") and field == "gpus_total":
        node.put(field, 0, ref)


_HOST = re.compile(r"[A-Za-z0-9][\w.-]{0,252}")


def add_node_row(cells: Cells, nodes: Nodes, line: int) -> bool:
    """One row of sinfo; False when it names no node."""
    ref = nodes.fragment.ref(line)
    names = values.hosts(_first(cells, "NODELIST") or _first(cells, "HOSTNAMES", "NODE_ADDR"))
    state = _longest(cells, "STATE", "STATECOMPACT", "STATELONG").strip().lower()
    # Text that follows a table on a page may have as many words as it has columns.
    if not names or not all(_HOST.fullmatch(name) for name in names) or (state and not state[0].isalpha()):
        return False
    reason = _longest(cells, "REASON").strip()
    for name in names:
        node = nodes.get(name, ref)
        if values.is_node_state(state):
            node.put("state", state, ref)
        elif state and len(state) < 40:
            node.put("state", state, ref)  # a state that is not known yet is kept as printed
        if not values.nothing(reason):
            node.put("reason", reason, ref)
            user = _first(cells, "USER").partition("(")[0].strip()
            node.put("reason_user", user or None, ref)
            node.put("reason_time", values.moment(_first(cells, "TIMESTAMP")), ref)
        for partition in cells.get("PARTITION", ()):
            partition = partition.strip().rstrip("*")
            if partition and partition not in node.partitions and not values.nothing(partition):
                node.put("partitions", [*node.partitions, partition], ref)
        for column, field in (("GRES", "gpus_total"), ("GRES_USED", "gpus_allocated")):
            for cell in cells.get(column, ()):
                _put_gpus(node, cell, field, ref)
        node.put("memory_total_mib", values.number(_first(cells, "MEMORY")), ref)
        if len(names) == 1:  # sums over the nodes of a row otherwise
            _put_cpus(node, cells, ref)
            node.put("memory_allocated_mib", values.number(_first(cells, "ALLOCMEM", "ALLOC_MEM")), ref)
    return True


def _put_cpus(node: ClusterNode, cells: Cells, ref: Ref) -> None:
    parts = _first(cells, "CPUS(A/I/O/T)", "CPUS(A/I/O/T) ").split("/")
    if len(parts) == 4 and all(values.number(part) is not None for part in parts):
        node.put("cpus_allocated", values.number(parts[0]), ref)
        node.put("cpus_total", values.number(parts[3]), ref)
    else:
        node.put("cpus_total", values.number(_first(cells, "CPUS")), ref)


def put_job_gpus(job: ClusterJob, *, total: str = "", per_node: str = "", ref: Ref) -> None:
    """GPUs of a job: the sum that TRES tells, else GPUs a node times nodes."""
    if (counted := values.gpus(total)) is not None:
        job.put("gpus", counted[0], ref)
    elif (counted := values.gpus(per_node)) is not None and job.n_nodes:
        job.put("gpus", counted[0] * job.n_nodes, ref)


def add_job_row(cells: Cells, fragment: Fragment, line: int) -> bool:
    """One row of squeue; False when it has no job number."""
    identities = [cell.strip() for name in ("JOBID", "JOB_ID", "ARRAY_JOB_ID") for cell in cells.get(name, ())]
    identity = next((one for one in identities if "_" in one), identities[0] if identities else "")
    if not identity[:1].isdecimal():
        return False
    ref = fragment.ref(line)
    job = ClusterJob(id=identity, origin={"": ref})
    state = _longest(cells, "STATE", "ST").strip().upper()
    job.put("state", values.JOB_STATES.get(state, state) or None, ref)
    job.put("name", _longest(cells, "NAME").strip() or None, ref)
    job.put("user", _first(cells, "USER").strip() or None, ref)
    job.put("partition", _first(cells, "PARTITION").strip() or None, ref)
    job.put("n_nodes", values.number(_first(cells, "NODES")), ref)
    job.put("cpus", values.number(_first(cells, "CPUS")), ref)
    job.put("run_time_s", values.duration(_first(cells, "TIME", "TIME_USED")), ref)
    job.put("time_limit_s", values.duration(_first(cells, "TIME_LIMIT", "TIME_LIMI", "TIMELIMIT")), ref)
    job.put("submitted", values.moment(_first(cells, "SUBMIT_TIME")), ref)
    if job.state != "PENDING":  # the start of a pending job is a guess of the scheduler
        job.put("started", values.moment(_first(cells, "START_TIME")), ref)
    where = _first(cells, "NODELIST(REASON)").strip()
    reason = where[1:].rstrip(")") if where.startswith("(") else ""
    reason = _first(cells, "REASON").strip() or reason
    job.put("reason", None if values.nothing(reason) else reason, ref)
    job.put("nodes", values.hosts(_first(cells, "NODELIST") or ("" if where.startswith("(") else where)), ref)
    tres = _first(cells, "TRES_ALLOC", "TRES", "TRES-ALLOC")
    if job.cpus is None:
        job.put("cpus", values.tres_cpus(tres), ref)
    put_job_gpus(job, total=tres, per_node=_first(cells, "TRES_PER_NODE", "GRES"), ref=ref)
    fragment.cluster_jobs.append(job)
    return True
