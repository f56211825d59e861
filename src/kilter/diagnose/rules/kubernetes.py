"""What Kubernetes says of its GPU nodes and pods."""

from __future__ import annotations

import re
from collections.abc import Iterator

from kilter.diagnose.engine import Context, rule
from kilter.diagnose.rules.container import by_node
from kilter.facts.case import Case
from kilter.facts.cluster import ClusterJob, ClusterNode
from kilter.facts.event import Event
from kilter.facts.finding import Cause, Finding, Subject

_PRESSURE = {
    "MemoryPressure": "memory is short: kubelet evicts pods",
    "DiskPressure": "disk space or inodes are short: kubelet evicts pods and deletes images",
    "PIDPressure": "process numbers are short",
    "NetworkUnavailable": "the pod network is not set up",
}
#: Conditions whose "True" is good; all others are trouble when true (node-problem-detector and vendors add theirs).
_GOOD = frozenset({"Ready", "EtcdIsVoter", "Schedulable", "GpuReady", "GPUReady", "RdmaReady", "NetworkReady"})
_GPU_PODS = re.compile(
    r"(?:^|-)(?:nvidia-driver-daemonset|nvidia-container-toolkit|nvidia-device-plugin|nvidia-operator-validator|nvidia-cuda-validator|"
    r"nvidia-dcgm|nvidia-mig-manager|gpu-feature-discovery|gpu-operator|nvdp-nvidia-device-plugin|nvidia-gpu-driver|"
    r"nvidia-vgpu-manager|network-operator|mofed-|doca-driver)"
)
_STOPPED_WORDS = (
    "CrashLoopBackOff Error ImagePullBackOff ErrImagePull CreateContainerError CreateContainerConfigError RunContainerError "
    "OOMKilled Failed InvalidImageName StartError ContainerCannotRun Init:CrashLoopBackOff Init:Error Init:ImagePullBackOff "
    "Init:ErrImagePull UnexpectedAdmissionError"
)
_STOPPED = frozenset(_STOPPED_WORDS.split())
_NODES = re.compile(r"(?P<free>\d{1,7})/(?P<all>\d{1,7}) nodes are available")
_PART = re.compile(
    r"(?P<n>\d{1,7}) (?P<why>Insufficient [\w./-]+|node\(s\) [^,.{]{1,120}(?:\{[^}]{0,200}\})?|Too many pods|[Pp]reemption[^,.]{1,80})"
)


#: Codes of DCGM's health watches that are no fault by themselves -> why.
_NO_FAULT = {
    "DCGM_FR_IMEX_UNHEALTHY": "DCGM calls IMEX unhealthy, which is normal on single-node systems and while no compute domain is active",
    "DCGM_FR_CLOCK_THROTTLE_POWER": "DCGM warns of any time at the power limit, which every busy GPU has",
}
#: Numbers of the same codes (NVIDIA/DCGM dcgmlib/dcgm_errors.h), where an agent prints these (aws/eks-node-monitoring-agent#63).
_NUMBERED = {"122": "DCGM_FR_IMEX_UNHEALTHY"}


def _no_fault(text: str) -> str:
    """Why a condition that a health checker set is no fault; "" when it names another code, or none that is known."""
    codes = set(re.findall(r"\bDCGM_FR_\w{1,60}", text))
    numbers = set(re.findall(r"\bDCGMHealthCode(\d{1,4})\b", text))
    codes |= {_NUMBERED.get(number, number) for number in numbers}
    return "; ".join(_NO_FAULT[code] for code in sorted(codes)) if codes and codes <= set(_NO_FAULT) else ""


def _kubernetes(entity: ClusterNode | ClusterJob, ctx: Context) -> None:
    if entity.scheduler != "kubernetes":
        raise ctx.skip("not Kubernetes")


def _cordoned(node: ClusterNode) -> bool:
    return "SchedulingDisabled" in (node.state or "")


@rule(
    "k8s.node_not_ready",
    "Kubernetes nodes are ready",
    scope="cluster_node",
    family="kubernetes",
    sop="SOP-HOST",
    hint="kubectl describe node <node>",
    sources=("Kubernetes documentation: node status, node conditions",),
    action="Reach the node by SSH or BMC; if it is up: systemctl status kubelet containerd, its log, disk space, time.",
    also=("k8s.node_cordoned",),
)
def node_not_ready(node: ClusterNode, ctx: Context) -> Finding | None:
    """Kubelet does not report, or reports that the node cannot run pods: pods on it are evicted after five minutes.

    A node that is ready but cordoned takes no new pods; that is somebody's decision, and information.
    """
    _kubernetes(node, ctx)
    state = ctx.need(node, ClusterNode.state)
    ready = node.conditions.get("Ready", "")
    why = f" ({ready})" if ready and not ready.startswith("True") else ""
    gpus = f": {node.gpus_total} GPUs out of service" if node.gpus_total else ""
    if not state.startswith("Ready"):
        silent = ready.startswith("Unknown")
        return ctx.finding(
            "error",
            f"state {state}{gpus}{why}",
            causes=[
                Cause(
                    "node is off, hung or cut off from the API server", "likely" if silent else "possible", "ping, BMC console"
                ),
                Cause(
                    "kubelet or the container runtime is stopped or full",
                    "possible" if silent else "likely",
                    "systemctl status kubelet containerd; df",
                ),
            ],
        )
    if _cordoned(node):
        taints = ", ".join(ctx.known(node, ClusterNode.taints) or []) or "no taint listed"
        return ctx.finding(
            "info",
            f"cordoned: takes no new pods{gpus} ({taints})",
            id="k8s.node_cordoned",
            action="kubectl uncordon once its reason is gone.",
        )
    return None


@rule(
    "k8s.pressure",
    "Kubernetes nodes have no bad condition",
    scope="cluster_node",
    family="kubernetes",
    sop="SOP-HOST",
    hint="kubectl describe node <node>",
    sources=("Kubernetes documentation: node conditions, node-pressure eviction", "kubernetes/node-problem-detector: conditions"),
    action="Free what is short; for conditions of a health checker, its message names the fault.",
    also=("k8s.node_condition",),
)
def pressure(node: ClusterNode, ctx: Context) -> Iterator[Finding]:
    """Memory, disk or PID pressure, a missing pod network, or any other condition that a health checker (node-problem-detector, NVSentinel,
    a cloud's agent) set to true; or one whose "True" is good that it set to false.

    Two codes of DCGM say nothing by themselves and are information: IMEX (NVIDIA/aicr#2641, NVIDIA/NVSentinel#1471) and time at the power
    limit (NVIDIA/DCGM#285)."""
    _kubernetes(node, ctx)
    if not node.conditions:
        raise ctx.missing("conditions of the node", f"kubectl describe node {node.name}")
    for kind, text in ctx.need(node, ClusterNode.conditions).items():
        good = kind in _GOOD or kind.endswith(("Ready", "Healthy", "OK"))
        if kind == "Ready" or not text.startswith("False" if good else "True"):
            continue
        detail, subject = text.partition(": ")[2], Subject("cluster_node", kind, node.name)
        if reason := _no_fault(text):
            yield ctx.finding(
                "info",
                f"condition {kind} is {text[:5].strip(' :').lower()}: {reason}",
                id="k8s.node_condition",
                subject=subject,
                action="Nothing.",
                sop="",
            )
            continue
        if kind in _PRESSURE:
            yield ctx.finding("warning", f"{kind}: {_PRESSURE[kind]}" + (f" ({detail})" if detail else ""), subject=subject)
        else:
            yield ctx.finding(
                "warning",
                f"condition {kind} is {'false' if good else 'true'}" + (f": {detail}" if detail else ""),
                id="k8s.node_condition",
                subject=subject,
                confidence="medium",
            )


def _marked(node: ClusterNode, ctx: Context) -> list[Event]:
    """What device plugins logged of GPUs that they marked; their logs rarely name the node."""
    nodes = {n.name for n in ctx.case.cluster_nodes or [] if n.scheduler == "kubernetes"}
    return [
        e
        for e in ctx.case.events
        if e.kind in ("k8s.plugin_xid", "k8s.plugin_unhealthy") and (e.node == node.name or (not e.node or e.node not in nodes))
    ]


@rule(
    "k8s.gpu_allocatable_below_capacity",
    "Every GPU of a node can be given out",
    scope="cluster_node",
    family="kubernetes",
    sop="SOP-SW",
    hint="kubectl describe node <node>",
    sources=("NVIDIA/k8s-device-plugin#234", "NVIDIA/k8s-device-plugin: internal/rm/health.go", "kubernetes/kubernetes#57241"),
    also=("k8s.device_plugin.stale_unhealthy", "k8s.device_plugin.gone", "k8s.device_plugin.missing"),
)
def allocatable_below_capacity(node: ClusterNode, ctx: Context) -> Finding | None:
    """Allocatable GPUs are fewer than capacity: the device plugin marked some unhealthy.

    It does so at a critical XID, and many versions never take the mark back: only a restart of the plugin does. So a low count is no proof
    that a GPU is bad now; the GPU's own state decides. With none allocatable at all, the plugin has stopped or lost kubelet.
    """
    _kubernetes(node, ctx)
    total = ctx.need(node, ClusterNode.gpus_total)
    if total == 0:
        present = node.labels.get("nvidia.com/gpu.present") == "true" or "nvidia.com/gpu.product" in node.labels
        if not present:
            raise ctx.skip("no GPU on this node")
        return ctx.finding(
            "warning",
            "labels say that the node has GPUs, but it offers none (no nvidia.com/gpu in its capacity)",
            id="k8s.device_plugin.missing",
            causes=[
                Cause(
                    "device plugin does not run here or finds no driver",
                    "likely",
                    "kubectl get pods -A -o wide | grep device-plugin; its log",
                )
            ],
            action="Look at the device plugin's pod on this node and at its log.",
        )
    allocatable = ctx.need(node, ClusterNode.gpus_allocatable)
    if allocatable >= total:
        return None
    restart = "Look at the GPUs on the node (nvidia-smi -q, kernel log). If all are well: delete the device plugin's pod of this node so that it starts anew."
    if allocatable == 0:
        return ctx.finding(
            "error",
            f"none of {total} GPUs can be given out",
            id="k8s.device_plugin.gone",
            causes=[
                Cause(
                    "device plugin is not running, or did not register after kubelet restarted",
                    "likely",
                    "its pod on this node; kubelet's log",
                ),
                Cause("all GPUs are marked unhealthy (driver gone)", "possible", "nvidia-smi on the node; the plugin's log"),
            ],
            action=restart,
        )
    marked = _marked(node, ctx)
    return ctx.finding(
        "warning",
        f"{allocatable} of {total} GPUs can be given out: the device plugin marked {total - allocatable} unhealthy, maybe long ago",
        id="k8s.device_plugin.stale_unhealthy",
        evidence=marked[:6],
        causes=[
            Cause(
                "a past XID; the plugin never takes the mark back",
                "likely",
                "nvidia-smi -q shows all GPUs well and the kernel log has no XID since the plugin started",
            ),
            Cause("the GPU is bad now", "possible", "nvidia-smi misses it or shows errors, or new XIDs in the kernel log"),
            Cause("capacity is counted wrongly after a MIG or sharing change", "unlikely", "the plugin's log since its start"),
        ],
        missing=([] if marked else ["the device plugin's log: kubectl logs of its pod on this node"])
        + ["state of the GPUs themselves: nvidia-smi -q of the node"],
        action=restart,
        confidence="medium",
        next_test="nvidia-smi -q; dmesg -T | grep -i xid",
    )


def _decoded(message: str) -> str:
    """``0 of 5 nodes fit: 3 lack nvidia.com/gpu, 2 have an untolerated taint ...``"""
    head = _NODES.search(message)
    first = message.partition("preemption:")[0].partition("Preemption:")[0]
    parts = [f"{m['n']} {m['why'].replace('Insufficient', 'lack').replace('node(s)', '').strip()}" for m in _PART.finditer(first)]
    return (f"{head['free']} of {head['all']} nodes fit" if head else "no node fits") + (
        ": " + ", ".join(" ".join(p.split()) for p in parts) if parts else ""
    )


@rule(
    "k8s.pod_unschedulable_gpu",
    "GPU pods find a node",
    scope="cluster_job",
    family="kubernetes",
    sop="SOP-SW",
    hint="kubectl describe pod <pod>",
    sources=("Kubernetes: pkg/scheduler/framework, messages of the NodeResourcesFit and TaintToleration plugins",),
    also=("k8s.pod_admission_failed",),
)
def pod_unschedulable(pod: ClusterJob, ctx: Context) -> Finding | None:
    """A pod waits since too few GPUs are free on any single node, or nodes with GPUs have taints that it does not tolerate.

    The counts in the scheduler's message are decoded; a pod's GPUs must all be free on one node, so free GPUs spread over nodes do not help.
    """
    _kubernetes(pod, ctx)
    state = ctx.need(pod, ClusterJob.state)
    reason = ctx.known(pod, ClusterJob.reason)
    if state == "UnexpectedAdmissionError" or (reason or "").startswith("UnexpectedAdmissionError"):
        return ctx.finding(
            "warning",
            f"kubelet refused the pod: {reason or state}",
            id="k8s.pod_admission_failed",
            causes=[
                Cause(
                    "device plugin restarted or a GPU became unhealthy between scheduling and start",
                    "likely",
                    "kubectl describe node: allocatable against capacity",
                )
            ],
            action="Delete the pod so that it is scheduled anew; look at the node's allocatable GPUs.",
        )
    if state != "Pending":
        return None
    if reason is None:
        raise ctx.missing("why the pod waits", f"kubectl describe pod {pod.id}")
    if "FailedScheduling" not in reason and "nodes are available" not in reason:
        return None
    if not pod.gpus and not re.search(r"Insufficient (?:nvidia|amd)\.com/|nvidia\.com/(?:gpu|mig)", reason):
        return None
    names = re.search(r"Insufficient ([\w.]+/[\w.-]+)", reason)
    asks = f"{ctx.known(pod, ClusterJob.gpus)} GPUs" if pod.gpus else "GPUs"
    causes = (
        [
            Cause(
                "all GPUs of fitting nodes are in use",
                "likely",
                "kubectl describe nodes: Allocated resources against Allocatable",
            )
        ]
        if names
        else []
    )
    causes.append(
        Cause(
            "GPUs are marked unhealthy or the device plugin is missing",
            "possible",
            "Allocatable against Capacity of nvidia.com/gpu",
        )
    )
    return ctx.finding(
        "warning",
        f"pod waits for {asks}; {_decoded(reason)}",
        causes=causes,
        action="Compare the request with the free GPUs of each node; add a toleration, or mend nodes whose allocatable count is low.",
    )


@rule(
    "k8s.crash_loop",
    "Pods stay up",
    scope="cluster_job",
    family="kubernetes",
    sop="SOP-APP",
    hint="kubectl get pods -A -o wide; kubectl logs --previous <pod>",
    sources=("Kubernetes documentation: pod lifecycle, container states",),
    action="kubectl logs --previous; for images: kubectl describe pod, registry and credentials.",
    also=("k8s.driver_daemonset", "k8s.pod_not_started"),
)
def crash_loop(pod: ClusterJob, ctx: Context) -> Finding | None:
    """A container ends again and again, or does not start. For pods of the GPU operator (driver, toolkit, device plugin, validator) it is an
    error, since no GPU work can start on their node."""
    _kubernetes(pod, ctx)
    state = ctx.need(pod, ClusterJob.state)
    if state not in _STOPPED and not (state.startswith("Init:") and state.rpartition(":")[2] in _STOPPED):
        return None
    restarts, code = ctx.known(pod, ClusterJob.restarts), ctx.known(pod, ClusterJob.exit_code)
    ctx.known(pod, ClusterJob.reason)
    text = (
        f"{state}"
        + (f" after {restarts} restarts" if restarts else "")
        + (f", last exit code {code}{_exit(code)}" if code else "")
    )
    where = f" on {pod.nodes[0]}" if pod.nodes else ""
    if _GPU_PODS.search(pod.name or pod.id):
        return ctx.finding(
            "error",
            f"a pod that the node's GPUs depend on does not run{where}: {text}",
            id="k8s.driver_daemonset",
            sop="SOP-SW",
            causes=[
                Cause(
                    "driver module does not build or load for this kernel",
                    "likely" if "driver" in (pod.name or "") else "possible",
                    "its log; dmesg for NVRM",
                ),
                Cause(
                    "another driver is installed on the host, or the node was updated under it",
                    "possible",
                    "cat /proc/driver/nvidia/version on the host",
                ),
            ],
            action="kubectl logs --previous of this pod, all containers; then the validator's log.",
        )
    if "CrashLoop" in state:
        return ctx.finding("warning", f"container ends again and again{where}: {text}")
    severity = "warning" if state not in ("Error", "Failed") else "info"
    return ctx.finding(severity, f"pod does not run{where}: {text}", id="k8s.pod_not_started")


def _exit(code: int) -> str:
    known = {
        137: "killed, SIGKILL: out of memory or by kubelet",
        139: "SIGSEGV",
        134: "SIGABRT",
        143: "SIGTERM",
        127: "command not found",
        126: "not executable",
    }
    return f" ({known[code]})" if code in known else ""


@rule(
    "k8s.device_plugin.marked_unhealthy",
    "Device plugin marks no GPU",
    scope="case",
    family="kubernetes",
    sop="SOP-BUS",
    hint="kubectl logs of the device plugin's pod",
    sources=("NVIDIA/k8s-device-plugin: internal/rm/health.go", "NVIDIA/k8s-device-plugin#234"),
    action="Judge the GPU by the XID and nvidia-smi -q; if it is well, restart the plugin's pod, else drain the node.",
)
def marked_unhealthy(case: Case, ctx: Context) -> Iterator[Finding]:
    """The plugin's log says that it marked a GPU unhealthy, mostly at an XID. The mark outlives the fault: it stays until the plugin restarts."""
    for subject, events in by_node(case, ctx, "k8s.plugin_xid", "k8s.plugin_unhealthy"):
        devices: dict[str, list[Event]] = {}
        for event in events:
            devices.setdefault(event.device, []).append(event)
        healed = {e.device for e in case.events if e.kind == "k8s.plugin_healthy" and e.node == subject.node}
        for device, found in devices.items():
            codes = sorted({e.code for e in found if e.code is not None})
            text = f" at XID {', '.join(map(str, codes))} (kilter explain xid {codes[0]})" if codes else ""
            back = device in healed
            yield ctx.finding(
                "info" if back else "warning",
                f"device plugin marked {device or 'a GPU'} unhealthy{text}" + ("; it took the mark back later" if back else ""),
                subject=Subject("gpu", device, subject.node),
                evidence=found,
                confidence="medium",
            )
