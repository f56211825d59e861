"""``sinfo --json``, ``squeue --json``, ``scontrol show node|job --json`` of Slurm 21.08 to 24.11.

What changed: states were a word with flags beside it (to 22.05), then lists; numbers became ``{"set": true, "infinite": false, "number": 5}``;
sinfo groups nodes under ``"sinfo"`` (from 23.02). Elements are decoded one by one, so that a document that is cut off gives what it holds.
"""

from __future__ import annotations

import json
import re
from collections.abc import Iterator

from kilter.facts.base import Ref
from kilter.facts.cluster import ClusterJob, ClusterNode
from kilter.intake.captures import slurm_entities as entities
from kilter.intake.captures import slurm_values as values
from kilter.intake.fragment import Block, Fragment

_LIST = re.compile(r'^\s{0,16}"(nodes|jobs|sinfo)"\s*:\s*\[', re.M)
_COMPACT = re.compile(r'"(nodes|jobs|sinfo)"\s*:\s*\[(?=\s*\{)')
Json = dict[str, object]


def elements(text: str, start: int) -> Iterator[tuple[Json, int]]:
    """(object, offset) of an array whose bracket ends at ``start``; ends at the first element that is cut off."""
    decoder = json.JSONDecoder()
    at = start
    while True:
        while at < len(text) and text[at] in " \t\r\n,":
            at += 1
        if at >= len(text) or text[at] != "{":
            return
        try:
            value, end = decoder.raw_decode(text, at)
        except (json.JSONDecodeError, RecursionError):
            return
        if isinstance(value, dict):
            yield value, at
        at = end


def parse(block: Block, fragment: Fragment) -> None:
    """The first list of nodes, jobs or groups of nodes in the document."""
    text = "\n".join(block.lines)
    match = _LIST.search(text) or _COMPACT.search(text)
    if match is None:
        fragment.note("JSON of Slurm without a list of nodes or jobs")
        return
    kind = match.group(1)
    nodes = entities.Nodes(fragment)
    line, counted = block.first_line, 0
    for element, at in elements(text, match.end()):
        line += text.count("\n", counted, at)
        counted = at
        ref = fragment.ref(line)
        if kind == "jobs":
            _job(element, fragment, ref)
        elif kind == "nodes":
            _node(element, nodes, ref)
        else:
            _group(element, nodes, ref)
    try:
        json.loads(text)
    except (json.JSONDecodeError, RecursionError):
        fragment.note(f'JSON of Slurm is cut short or has other text in it: "{kind}" was read up to line {line}')


def _number(value: object) -> int | None:
    """A number, also as ``{"set": ..., "infinite": ..., "number": ...}``; None when it is not set or infinite."""
    if isinstance(value, dict):
        if value.get("set") is False or value.get("infinite") is True:
            return None
        value = value.get("number")
    if isinstance(value, bool) or not isinstance(value, (int, float)):
        return None
    return int(value) if abs(value) < 1 << 62 else None


def _text(value: object) -> str:
    return value.strip() if isinstance(value, str) else ""


def _words(value: object) -> list[str]:
    if isinstance(value, str):
        return [value] if value else []
    return [one for one in value if isinstance(one, str)] if isinstance(value, list) else []


def _dict(value: object) -> Json:
    return value if isinstance(value, dict) else {}


def _fill_gpus(node: ClusterNode, total: str, used: str, ref: Ref) -> None:
    if counted := values.gpus(total):
        node.put("gpus_total", counted[0], ref)
        node.put("gpu_type", counted[1] or None, ref)
        if in_use := values.gpus(used):
            node.put("gpus_allocated", in_use[0], ref)
    else:
        node.put("gpus_total", 0, ref)


def _node(element: Json, nodes: entities.Nodes, ref: Ref) -> None:
    name = _text(element.get("name"))
    if not name:
        return
    node = nodes.get(name, ref)
    state = "+".join([*_words(element.get("state")), *_words(element.get("state_flags"))]).lower()
    node.put("state", state or None, ref)
    reason = _text(element.get("reason"))
    if not values.nothing(reason):
        node.put("reason", reason, ref)
        node.put("reason_user", _text(element.get("reason_set_by_user")) or None, ref)
        node.put("reason_time", float(_number(element.get("reason_changed_at")) or 0) or None, ref)
    for key, field in (("cpus", "cpus_total"), ("alloc_cpus", "cpus_allocated"), ("real_memory", "memory_total_mib")):
        node.put(field, _number(element.get(key)), ref)
    node.put("memory_allocated_mib", _number(element.get("alloc_memory")), ref)
    node.put("partitions", _words(element.get("partitions")) or None, ref)
    _fill_gpus(node, _text(element.get("gres")), _text(element.get("gres_used")), ref)


def _group(element: Json, nodes: entities.Nodes, ref: Ref) -> None:
    """A row of sinfo: nodes that are alike."""
    names = [one for one in _words(_dict(element.get("nodes")).get("nodes")) if one]
    names = [host for one in names for host in (values.hosts(one) or [one])]
    states = _words(_dict(element.get("node")).get("state")) or _words(element.get("state"))
    reason = element.get("reason")
    told = _dict(reason)
    partition = _text(_dict(element.get("partition")).get("name")) or _text(element.get("partition"))
    gres, cpus = _dict(element.get("gres")), _dict(element.get("cpus"))
    for name in names:
        node = nodes.get(name, ref)
        node.put("state", "+".join(states).lower() or None, ref)
        text = _text(reason) or _text(told.get("description"))
        if not values.nothing(text):
            node.put("reason", text, ref)
            node.put("reason_user", _text(told.get("user")) or None, ref)
            node.put("reason_time", float(_number(told.get("time")) or 0) or None, ref)
        if partition and partition not in node.partitions:
            node.put("partitions", [*node.partitions, partition], ref)
        _fill_gpus(node, _text(gres.get("total")), _text(gres.get("used")) if len(names) == 1 else "", ref)
        if len(names) == 1:
            node.put("cpus_total", _number(cpus.get("total")), ref)
            node.put("cpus_allocated", _number(cpus.get("allocated")), ref)


def _identity(element: Json) -> str:
    number = _number(element.get("job_id"))
    array = _number(element.get("array_job_id"))
    if array:
        task = _number(element.get("array_task_id"))
        tasks = _text(element.get("array_task_string"))
        if task is not None:
            return f"{array}_{task}"
        return f"{array}_[{tasks}]" if tasks else str(array)
    return "" if number is None else str(number)


def _job(element: Json, fragment: Fragment, ref: Ref) -> None:
    identity = _identity(element)
    if not identity:
        return
    job = ClusterJob(id=identity, origin={"": ref})
    state = _words(element.get("job_state"))
    job.put("state", state[0] if state else None, ref)
    for key, field in (("name", "name"), ("user_name", "user"), ("partition", "partition")):
        job.put(field, _text(element.get(key)) or None, ref)
    reason = _text(element.get("state_reason"))
    job.put("reason", None if values.nothing(reason) else reason, ref)
    job.put("n_nodes", _number(element.get("node_count")), ref)
    job.put("cpus", _number(element.get("cpus")), ref)
    job.put("nodes", values.hosts(_text(element.get("nodes"))), ref)
    job.put("submitted", float(_number(element.get("submit_time")) or 0) or None, ref)
    if job.state != "PENDING":
        job.put("started", float(_number(element.get("start_time")) or 0) or None, ref)
    limit = _number(element.get("time_limit"))
    job.put("time_limit_s", limit * 60.0 if limit else None, ref)  # minutes
    job.put("restarts", _number(element.get("restart_cnt")), ref)
    tres = _text(element.get("tres_alloc_str")) or _text(element.get("tres_req_str"))
    if values.gpus(tres) is None:
        tres = _text(element.get("tres_per_job"))
    entities.put_job_gpus(job, total=tres, per_node=_text(element.get("tres_per_node")), ref=ref)
    fragment.cluster_jobs.append(job)
