"""``kubectl get nodes|pods|events -o json`` or ``-o yaml``: lists, single objects, several documents; also ``get --raw`` of the API server.

The facts are those of ``describe`` and of the tables. Objects of other kinds, and manifests without a status, are passed over. Each object is
decoded by itself, so that a document that is cut off gives the objects it holds whole. Fields: Kubernetes API reference, core/v1 Node, Pod, Event.
"""

from __future__ import annotations

import datetime
import json
import re
from collections.abc import Iterator
from typing import Any

import yaml

from kilter.facts.base import Ref
from kilter.facts.cluster import ClusterJob, ClusterNode
from kilter.facts.event import Clock
from kilter.intake.captures import kubectl_tables
from kilter.intake.captures.kubectl import GPU, WHY, settle
from kilter.intake.captures.slurm_json import elements
from kilter.intake.fragment import Block, Fragment

Object = dict[str, Any]

#: An object of Kubernetes is at most 1.5 MiB in etcd; YAML of a list beyond the total is not read.
MAX_OBJECT = 4 << 20
MAX_YAML = 64 << 20
_ITEMS = re.compile(r'"items"\s*:\s*\[')
_ENTRY = re.compile(r"^(?: {0,4}- |---[ \t]*$)", re.M)
#: States of a container that say nothing of a fault.
_QUIET = {"Completed", "Started", "PodInitializing", "ContainerCreating"}


def parse(block: Block, fragment: Fragment) -> None:
    """Nodes go to ``fragment.cluster_nodes``, pods to ``fragment.cluster_jobs``; events become a pod's reason or an event."""
    text = "\n".join(block.lines)
    is_json = text.lstrip().startswith("{")
    found = 0
    for one, offset in _json(text, fragment) if is_json else _yaml(text, fragment):
        found += 1
        _take(
            one, fragment, fragment.ref(block.first_line + text.count("\n", 0, offset) if is_json else block.first_line + offset)
        )
    if not found:
        fragment.note("kubectl: no whole object was found (cut short?)")


def _json(text: str, fragment: Fragment) -> Iterator[tuple[Object, int]]:
    """(object, offset) of each object."""
    at = 0
    while (at := text.find("{", at)) >= 0:
        try:
            whole, end = json.JSONDecoder().raw_decode(text, at)
        except (json.JSONDecodeError, RecursionError):
            fragment.note("kubectl: the JSON is cut short or has other text in it")
            if match := _ITEMS.search(text, at):
                yield from elements(text, match.end())
            return
        if isinstance(whole.get("items"), list):
            match = _ITEMS.search(text, at)
            yield from elements(text, match.end()) if match else ()
        else:
            yield whole, at
        at = end


def _yaml(text: str, fragment: Fragment) -> Iterator[tuple[Object, int]]:
    """(object, line offset) of each document, or of each entry of a list."""
    if len(text) > MAX_YAML:
        fragment.note(f"kubectl: YAML of more than {MAX_YAML >> 20} MiB; the rest was not read (kubectl -o json is read whole)")
        text = text[:MAX_YAML]
    lines = text.split("\n")
    width = next((len(line) - len(line.lstrip()) for line in lines[:50] if line.lstrip().startswith("- apiVersion:")), None)
    mark = "---" if width is None else " " * width + "- "
    start = 0
    for at in range(1, len(lines) + 1):
        if at < len(lines) and not (lines[at].startswith(mark) or lines[at].startswith("---")):
            continue
        piece = "\n".join(line for line in lines[start:at] if line.strip("-. "))
        if width is None or piece.startswith(mark):
            body = piece if width is None else _outdented(piece, width)
            one = _load(body, fragment, start)
            if one is not None:
                yield one, start
        start = at


def _outdented(piece: str, width: int) -> str:
    """An entry of a list as a document of its own; what follows the list, at its own level, is left away."""
    lines = [" " * (width + 2) + piece[width + 2 :].split("\n", 1)[0], *piece.split("\n")[1:]]
    kept = []
    for line in lines:
        if line.strip() and len(line) - len(line.lstrip()) < width + 2:
            break
        kept.append(line[width + 2 :])
    return "\n".join(kept)


def _load(body: str, fragment: Fragment, line: int) -> Object | None:
    if not body.strip() or len(body) > MAX_OBJECT:
        return None
    try:
        one = yaml.load(body, Loader=getattr(yaml, "CSafeLoader", yaml.SafeLoader))  # noqa: S506  both are safe loaders
    except (yaml.YAMLError, RecursionError, ValueError):  # ValueError: a date that is none
        fragment.note(f"kubectl: the object at line {line + 1} of the YAML is damaged")
        return None
    return one if isinstance(one, dict) else None


def _dict(value: object) -> Object:
    return value if isinstance(value, dict) else {}


def _list(value: object) -> list[Object]:
    return [one for one in value if isinstance(one, dict)] if isinstance(value, list) else []


def _text(value: object) -> str:
    return value if isinstance(value, str) else ""


def _time(value: object) -> float | None:
    if isinstance(value, str):
        try:
            value = datetime.datetime.fromisoformat(value.replace("Z", "+00:00"))
        except ValueError:
            return None
    if not isinstance(value, datetime.datetime):
        return None
    if value.tzinfo is None:
        value = value.replace(tzinfo=datetime.timezone.utc)
    return value.timestamp()


def _kind(one: Object) -> str:
    """The object's kind; entries of the API server's own lists (NodeList, PodList) do not print it."""
    spec, status = _dict(one.get("spec")), _dict(one.get("status"))
    if one.get("kind"):
        return _text(one["kind"])
    if "involvedObject" in one or "regarding" in one:
        return "Event"
    return "Pod" if "containers" in spec else "Node" if "nodeInfo" in status or "capacity" in status else ""


def _take(one: Object, fragment: Fragment, ref: Ref) -> None:
    kind, name = _kind(one), _text(_dict(one.get("metadata")).get("name"))
    if kind == "Event":
        _event(one, fragment, ref)
    elif kind in ("Node", "Pod") and name and isinstance(one.get("status"), dict):
        (_node if kind == "Node" else _pod)(one, name, fragment, ref)


def _amount(resources: object) -> int | None:
    """GPUs of a list of resources; None where it names none."""
    found = None
    for name, count in _dict(resources).items():
        if GPU.match(str(name)) and re.fullmatch(r"\d{1,9}", str(count)):
            found = (found or 0) + int(count)
    return found


def _node(one: Object, name: str, fragment: Fragment, ref: Ref) -> None:
    meta, spec, status = _dict(one.get("metadata")), _dict(one.get("spec")), _dict(one.get("status"))
    node = ClusterNode(name=name, scheduler="kubernetes", origin={"": ref})
    labels = {str(key): str(value) for key, value in list(_dict(meta.get("labels")).items())[:2000]}
    node.put("labels", labels or None, ref)
    node.put("gpu_type", labels.get("nvidia.com/gpu.product"), ref)
    for taint in _list(spec.get("taints"))[:200]:
        value = f"={taint['value']}" if taint.get("value") else ""
        node.put("taints", [*node.taints, f"{taint.get('key')}{value}:{taint.get('effect')}"], ref)
    for condition in _list(status.get("conditions"))[:200]:
        why = " ".join(filter(None, (_text(condition.get("reason")), _text(condition.get("message")))))[:300]
        text = str(condition.get("status")) + (f": {why}" if why else "")
        node.put("conditions", {**node.conditions, str(condition.get("type")): text}, ref)
    seen = {"Conditions"} if "conditions" in status else set()
    if "capacity" in status and "allocatable" in status:
        seen |= {"Allocatable", "System Info"}
    node.put("gpus_total", _amount(status.get("capacity")), ref)
    node.put("gpus_allocatable", _amount(status.get("allocatable")), ref)
    capacity = _dict(status.get("capacity"))
    if re.fullmatch(r"\d{1,6}", str(capacity.get("cpu"))):
        node.put("cpus_total", int(capacity["cpu"]), ref)
    if match := re.fullmatch(r"(\d{1,15})Ki", str(capacity.get("memory"))):
        node.put("memory_total_mib", int(match[1]) // 1024, ref)
    settle(node, seen, spec.get("unschedulable") is True, fragment, ref[1])
    fragment.cluster_nodes.append(node)


def _containers(pod: ClusterJob, statuses: object, prefix: str, ref: Ref) -> None:
    for container in _list(statuses):
        state, last = _dict(container.get("state")), _dict(container.get("lastState"))
        waiting, ended = _dict(state.get("waiting")), _dict(state.get("terminated"))
        before = _dict(last.get("terminated"))
        word = _text(waiting.get("reason")) or _text(ended.get("reason"))
        if word and word not in _QUIET:
            pod.put("state", prefix + word, ref)
        restarts = container.get("restartCount")
        if isinstance(restarts, int) and 0 <= restarts < 1 << 31:
            pod.put("restarts", max(restarts, pod.restarts or 0), ref)
        for one in (before, ended):
            code = one.get("exitCode")
            if isinstance(code, int) and 0 <= code < 256 and (code or pod.exit_code is None):
                pod.put("exit_code", code, ref)
        message = _text(waiting.get("message")) or _text(ended.get("message"))
        cause = _text(before.get("reason"))
        if pod.reason is None and word and word not in _QUIET:
            pod.put("reason", (message or (f"last ended: {cause}" if cause else ""))[:1000] or None, ref)


def _pod(one: Object, name: str, fragment: Fragment, ref: Ref) -> None:
    meta, spec, status = _dict(one.get("metadata")), _dict(one.get("spec")), _dict(one.get("status"))
    space = _text(meta.get("namespace"))
    pod = ClusterJob(id=f"{space}/{name}" if space else name, name=name, scheduler="kubernetes", origin={"": ref})
    pod.put("nodes", [node] if (node := _text(spec.get("nodeName"))) else None, ref)
    pod.put("state", _text(status.get("phase")) or None, ref)
    pod.put("submitted", _time(meta.get("creationTimestamp")), ref)
    pod.put("started", _time(status.get("startTime")), ref)
    why, message = _text(status.get("reason")), _text(status.get("message"))
    if why == "UnexpectedAdmissionError":
        pod.put("state", why, ref)
    pod.put("reason", f"{why}: {message}".strip(": ")[:1000] or None, ref)
    for condition in _list(status.get("conditions")):
        if condition.get("type") == "PodScheduled" and condition.get("status") == "False" and pod.reason is None:
            pod.put("reason", f"FailedScheduling: {_text(condition.get('message'))}"[:1000], ref)
    containers = _list(spec.get("containers"))
    gpus = [n for c in containers if (n := _amount(_dict(c.get("resources")).get("limits"))) is not None]
    pod.put("gpus", sum(gpus) if gpus else None, ref)
    _containers(pod, status.get("initContainerStatuses"), "Init:", ref)
    _containers(pod, status.get("containerStatuses"), "", ref)
    ready = [c.get("ready") is True for c in _list(status.get("containerStatuses"))]
    if pod.state == "Running" and not all(ready) and pod.reason is None:
        pod.put("reason", f"{sum(ready)} of {len(ready)} containers are ready", ref)
    fragment.cluster_jobs.append(pod)


def _event(one: Object, fragment: Fragment, ref: Ref) -> None:
    target = _dict(one.get("involvedObject") or one.get("regarding"))
    row = {
        "TYPE": _text(one.get("type")),
        "REASON": _text(one.get("reason")),
        "MESSAGE": (_text(one.get("message")) or _text(one.get("note"))).replace("\n", " ")[:4000],
        "OBJECT": f"{_text(target.get('kind')).lower()}/{_text(target.get('name'))}",
        "NAMESPACE": _text(target.get("namespace")),
    }
    if row["REASON"] not in WHY and row["TYPE"] == "Normal":
        return
    before = len(fragment.events)
    kubectl_tables.event_row(row, ref[1], fragment)
    count = one.get("count") or _dict(one.get("series")).get("count") or one.get("deprecatedCount")
    last = _time(one.get("lastTimestamp")) or _time(one.get("eventTime")) or _time(one.get("deprecatedLastTimestamp"))
    for event in fragment.events[before:]:
        event.time = _time(one.get("firstTimestamp")) or last
        event.last_time, event.clock = last, Clock.UTC if event.time is not None else event.clock
        event.count = count if isinstance(count, int) and 0 < count < 1 << 31 else 1
