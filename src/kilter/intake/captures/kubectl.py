"""``kubectl describe node``, ``describe pod``, ``get nodes|pods|events`` (also ``-o wide``, ``-A``).

Format: kubectl's describers and printers (kubernetes/kubectl: pkg/describe/describe.go; kubernetes: pkg/printers/internalversion) and real
outputs in issues of NVIDIA/k8s-device-plugin. Sections go by their headings, so text that lost its indentation is read too.
"""

from __future__ import annotations

import re
from collections.abc import Callable

from kilter.facts.cluster import ClusterJob, ClusterNode
from kilter.intake.captures import kubectl_tables
from kilter.intake.captures.bounded import lines as bounded
from kilter.intake.fragment import Block, Fragment

#: Resources that stand for a GPU: whole ones, MIG slices in the "single" strategy, shared ones, and those of other vendors.
GPU = re.compile(r"(?:nvidia\.com/(?:gpu(?:\.shared)?|mig-[\w.]+)|amd\.com/gpu|kunlunxin\.com/\S+|baidu\.com/\S*(?:gpu|xpu)\S*)$")
_PAIR = re.compile(r"(?P<indent>\s*)(?P<key>[A-Za-z][\w ./()-]{0,80}?):(?:\s+(?P<value>\S(?:.*\S)?))?\s*$")
_RESOURCE = re.compile(r"\s*(?P<name>[a-z][\w./-]{0,120}):\s+(?P<count>\d{1,12}[a-zA-Z]*)\s*$")
_REQUEST = re.compile(r"\s*(?P<name>[a-z][\w./-]{0,120})\s+(?P<requests>\d{1,12})\S{0,16}(?:\s{1,16}\(\d{1,6}%\))?\s+\d")
_CONDITION = re.compile(r"\s*(?P<type>[A-Z][\w./-]{1,80})\s+(?P<status>True|False|Unknown)(?:\s+(?P<rest>\S.*))?$")
_DATE = re.compile(r"[A-Z][a-z]{2}, \d\d [A-Z][a-z]{2} \d{4} [\d:]{8} [+-]\d{4}\s*")
_EVENT = re.compile(r"\s*(?P<type>Normal|Warning)\s+(?P<reason>[A-Z]\w{1,60})\s+(?P<rest>\S.*)$")
_SECTION_NAMES = (
    "Labels|Annotations|Taints|Conditions|Addresses|Capacity|Allocatable|System Info|Non-terminated Pods|Lease|Allocated resources|"
    "Events|Containers|Init Containers|Volumes|Tolerations|Node-Selectors|IPs|PodCIDRs"
)
_SECTIONS = frozenset(_SECTION_NAMES.split("|"))
#: Sections of a pod below which its own fields go on.
_TOP = ("", "Labels", "Annotations", "IPs")
_TABLE_RULE = re.compile(r"[\s-]+$")


def parse(block: Block, fragment: Fragment) -> None:
    """Nodes go to ``fragment.cluster_nodes``, pods to ``fragment.cluster_jobs``; messages of the scheduler become a pod's reason."""
    lines = list(bounded(block, fragment))
    first = next((text for _, text in lines if text.strip()), "")
    if not first.lstrip().startswith("Name:"):
        kubectl_tables.parse(lines, fragment)
        return
    record: list[tuple[int, str]] = []
    for number, text in lines:
        if re.match(r"Name: +\S", text) and any(re.match(r"\s*(?:Roles|Namespace|Labels|Status):", line) for _, line in record):
            _describe(record, fragment)
            record = []
        record.append((number, text))
    _describe(record, fragment)


def _describe(record: list[tuple[int, str]], fragment: Fragment) -> None:
    heads = {match["key"] for _, text in record[:40] if (match := _PAIR.match(text))}
    if "Roles" in heads or "PodCIDR" in heads or "Unschedulable" in heads or "Capacity" in heads:
        _node(record, fragment)
    elif "Namespace" in heads or "Status" in heads:
        _pod(record, fragment)
    else:
        for number, text in record:
            fragment.unparsed(number, text[:200])


def _name(record: list[tuple[int, str]]) -> tuple[str, int]:
    for number, text in record:
        if match := re.match(r"\s*Name:\s+(\S+)", text):
            return match.group(1), number
    return "", record[0][0] if record else 0


def _node(record: list[tuple[int, str]], fragment: Fragment) -> None:
    name, line = _name(record)
    node = ClusterNode(name=name, scheduler="kubernetes", origin={"": fragment.ref(line)})
    section = ""
    read = {
        "Labels": _label,
        "Taints": _taint,
        "Conditions": _condition,
        "Capacity": _amount("gpus_total"),
        "Allocatable": _amount("gpus_allocatable"),
        "Allocated resources": _request,
        "Events": _node_event,
    }
    unschedulable = False
    seen = set()
    for number, text in record:
        match = _PAIR.match(text)
        if match and (
            match["key"] in _SECTIONS or match["key"] in ("Name", "Roles", "CreationTimestamp", "Unschedulable", "PodCIDR")
        ):
            section = match["key"]
            seen.add(section)
            if section == "Unschedulable":
                unschedulable = match["value"] == "true"
            text = match["value"] or ""
        if section in read and text.strip():
            read[section](node, text, number, fragment)
    settle(node, seen, unschedulable, fragment, line)
    fragment.cluster_nodes.append(node)


def settle(node: ClusterNode, seen: set[str], unschedulable: bool, fragment: Fragment, line: int) -> None:
    """The state in kubectl's words, and zero where a whole list of resources names no GPU."""
    ready = node.conditions.get("Ready")
    if ready is not None:
        state = "Ready" if ready.startswith("True") else "NotReady"
        node.put("state", state + (",SchedulingDisabled" if unschedulable else ""), node.ref("conditions"))
    elif "Conditions" not in seen:
        fragment.note(f"node {node.name}: no conditions were given (cut short?)")
    if "Allocatable" in seen and node.gpus_total is None:
        node.put("gpus_total", 0, fragment.ref(line))
    if {"Allocatable", "System Info"} <= seen and node.gpus_allocatable is None:
        node.put("gpus_allocatable", 0, fragment.ref(line))
    if "Allocated resources" in seen and node.gpus_total and node.gpus_allocated is None and "Events" in seen:
        node.put("gpus_allocated", 0, fragment.ref(line))


def _label(node: ClusterNode, text: str, number: int, fragment: Fragment) -> None:
    key, equals, value = text.strip().partition("=")
    if equals and " " not in key and len(node.labels) < 2000:
        node.put("labels", {**node.labels, key: value} if len(node.labels) < 1 else node.labels, fragment.ref(number))
        node.labels[key] = value
        if key == "nvidia.com/gpu.product":
            node.put("gpu_type", value, fragment.ref(number))


def _taint(node: ClusterNode, text: str, number: int, fragment: Fragment) -> None:
    taint = text.strip()
    if taint != "<none>" and len(node.taints) < 200:
        node.put("taints", [*node.taints, taint], fragment.ref(number))


def _condition(node: ClusterNode, text: str, number: int, fragment: Fragment) -> None:
    match = _CONDITION.match(text)
    if match is None or match["type"] in ("Type",):
        if not _TABLE_RULE.match(text) and not text.strip().startswith("Type"):
            fragment.unparsed(number, text[:200])
        return
    words = _DATE.sub("", match["rest"] or "").split(None, 1)
    reason = " ".join(words)[:300]
    node.put(
        "conditions",
        {**node.conditions, match["type"]: f"{match['status']}: {reason}" if reason else match["status"]},
        fragment.ref(number),
    )


def _amount(field: str) -> Callable[[ClusterNode, str, int, Fragment], None]:
    def read(node: ClusterNode, text: str, number: int, fragment: Fragment) -> None:
        match = _RESOURCE.match(text)
        if match is None:
            return
        if GPU.match(match["name"]) and match["count"].isdecimal():
            node.put(field, (getattr(node, field) or 0) + int(match["count"]), fragment.ref(number))
        elif match["name"] == "cpu" and field == "gpus_total" and match["count"].isdecimal():
            node.put("cpus_total", int(match["count"]), fragment.ref(number))
        elif match["name"] == "memory" and field == "gpus_total" and match["count"].endswith("Ki"):
            node.put("memory_total_mib", int(match["count"][:-2]) // 1024, fragment.ref(number))

    return read


def _request(node: ClusterNode, text: str, number: int, fragment: Fragment) -> None:
    match = _REQUEST.match(text)
    if match and GPU.match(match["name"]):
        node.put("gpus_allocated", (node.gpus_allocated or 0) + int(match["requests"]), fragment.ref(number))


def _node_event(node: ClusterNode, text: str, number: int, fragment: Fragment) -> None:
    if match := _EVENT.match(text):
        kubectl_tables.container_event(kubectl_tables.event_message(match["rest"]), number, fragment, node=node.name)


def _pod(record: list[tuple[int, str]], fragment: Fragment) -> None:
    name, line = _name(record)
    pod = ClusterJob(id=name, name=name, scheduler="kubernetes", origin={"": fragment.ref(line)})
    section = state = limits = ""
    gpus = 0
    for number, text in record:
        ref = fragment.ref(number)
        match = _PAIR.match(text)
        key, value = (match["key"], match["value"] or "") if match else ("", "")
        if key in _SECTIONS:
            section = key
        if section == "Events":
            _pod_event(pod, text, number, fragment)
            continue
        if key in ("State", "Last State"):
            state = key
        elif key in ("Limits", "Requests"):
            limits = key
        elif key and match and not GPU.match(key) and key not in ("cpu", "memory", "ephemeral-storage") and "/" not in key:
            limits = "" if key not in ("Reason", "Exit Code") else limits
        if key == "Namespace" and value:
            pod.id = f"{value}/{name}"
        elif key == "Node" and value not in ("", "<none>"):
            pod.put("nodes", [value.partition("/")[0]], ref)
        elif key == "Status" and section in _TOP and value:
            pod.put("state", value.split()[0], ref)
        elif key == "Reason" and state == "State" and section in ("Containers", "Init Containers"):
            if value and value not in ("Completed", "Started", "PodInitializing", "ContainerCreating"):
                pod.put("state", value, ref)
        elif key == "Reason" and section in _TOP and value:
            pod.put("reason", value, ref)
        elif key == "Exit Code" and value.isdecimal():
            pod.put("exit_code", int(value), ref)
        elif key == "Restart Count" and value.isdecimal():
            pod.put("restarts", max(int(value), pod.restarts or 0), ref)
        elif (
            limits == "Limits"
            and (counted := _RESOURCE.match(text))
            and GPU.match(counted["name"])
            and counted["count"].isdecimal()
        ):
            gpus += int(counted["count"])
            pod.put("gpus", gpus, ref)
    if pod.state is None:
        fragment.note(f"pod {pod.id}: no status was given (cut short?)")
    fragment.cluster_jobs.append(pod)


#: Events that say why a pod does not run, the strongest last.
WHY = ("BackOff", "Unhealthy", "FailedMount", "FailedCreatePodSandBox", "Failed", "UnexpectedAdmissionError", "FailedScheduling")


def _pod_event(pod: ClusterJob, text: str, number: int, fragment: Fragment) -> None:
    match = _EVENT.match(text)
    if match is None:
        return
    why, rest = match["reason"], match["rest"]
    message = kubectl_tables.event_message(rest)
    kubectl_tables.container_event(message, number, fragment, node=pod.nodes[0] if pod.nodes else "")
    if why in WHY:
        known = (pod.reason or "").partition(":")[0]
        if pod.reason is None or known not in WHY or WHY.index(why) >= WHY.index(known):
            pod.put("reason", f"{why}: {message}"[:1000], fragment.ref(number))
