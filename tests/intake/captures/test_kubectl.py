"""kubectl's outputs and logs of container runtimes."""

from __future__ import annotations

from pathlib import Path

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from kilter.facts.event import Clock
from kilter.intake.captures.container_logs import event_of
from mangle import long_lines, mangled, parse_text

DATA = Path(__file__).parents[2] / "data" / "kubernetes"


def text_of(name: str) -> str:
    return (DATA / name).read_text()


def test_describe_node_gives_capacity_allocatable_and_requests() -> None:
    (node,) = parse_text("kubectl", text_of("describe-node-7-of-8.txt")).cluster_nodes
    assert (node.gpus_total, node.gpus_allocatable, node.gpus_allocated) == (8, 7, 4)
    assert node.state == "Ready"
    assert node.taints == ["nvidia.com/gpu=present:NoSchedule"]
    assert node.labels["nvidia.com/gpu.product"] == "NVIDIA-H100-80GB-HBM3"
    assert node.conditions["DiskPressure"].startswith("False: KubeletHasNoDiskPressure")
    assert (node.cpus_total, node.memory_total_mib) == (192, 2064006)


def test_describe_node_reads_the_same_without_indentation() -> None:
    text = "\n".join(line.strip() for line in text_of("describe-node-7-of-8.txt").splitlines())
    (node,) = parse_text("kubectl", text).cluster_nodes
    assert (node.gpus_total, node.gpus_allocatable, node.gpus_allocated, node.state) == (8, 7, 4, "Ready")


def test_several_nodes_described_in_a_row_stay_apart() -> None:
    nodes = parse_text(
        "kubectl", text_of("describe-node-7-of-8.txt") + "\n\n" + text_of("describe-node-not-ready.txt")
    ).cluster_nodes
    assert [(n.name, n.state, n.gpus_total) for n in nodes] == [("gpu-a", "Ready", 8), ("gpu-b", "NotReady", 8)]


def test_a_node_without_gpus_has_zero_and_a_cut_one_has_none() -> None:
    whole = text_of("describe-node-7-of-8.txt")
    without = "\n".join(line for line in whole.splitlines() if not line.strip().startswith("nvidia.com/gpu:"))
    (node,) = parse_text("kubectl", without).cluster_nodes
    assert node.gpus_total == 0
    cut = parse_text("kubectl", whole[: whole.index("Capacity:")])
    assert cut.cluster_nodes[0].gpus_total is None
    assert parse_text("kubectl", whole[: whole.index("Conditions:")]).notes


def test_mig_slices_count_as_devices() -> None:
    text = text_of("describe-node-7-of-8.txt").replace("nvidia.com/gpu: ", "nvidia.com/mig-1g.10gb: ")
    (node,) = parse_text("kubectl", text).cluster_nodes
    assert (node.gpus_total, node.gpus_allocatable) == (8, 7)


def test_describe_pod_keeps_the_schedulers_message() -> None:
    (pod,) = parse_text("kubectl", text_of("describe-pod-pending.txt")).cluster_jobs
    assert (pod.id, pod.state, pod.gpus, pod.nodes) == ("train/llm-1", "Pending", 8, [])
    assert (pod.reason or "").startswith("FailedScheduling: 0/6 nodes are available: 1 node(s) had")


def test_state_of_a_container_outweighs_the_status_of_its_pod() -> None:
    (pod,) = parse_text("kubectl", text_of("describe-pod-crash.txt")).cluster_jobs
    assert (pod.state, pod.restarts, pod.exit_code, pod.nodes) == ("CrashLoopBackOff", 12, 1, ["gpu-c"])


def test_tables_of_nodes_and_pods() -> None:
    nodes = parse_text("kubectl", text_of("get-nodes-wide.txt")).cluster_nodes
    assert [(n.name, n.state) for n in nodes] == [
        ("cp-1", "Ready"),
        ("gpu-a", "Ready"),
        ("gpu-b", "NotReady"),
        ("gpu-c", "Ready,SchedulingDisabled"),
    ]
    pods = {pod.id: pod for pod in parse_text("kubectl", text_of("get-pods-wide.txt")).cluster_jobs}
    assert (pods["train/serve-5d9c"].state, pods["train/serve-5d9c"].restarts, pods["train/serve-5d9c"].nodes) == (
        "CrashLoopBackOff",
        15,
        ["gpu-a"],
    )
    assert pods["train/llm-1"].nodes == []


def test_events_give_a_pods_reason_and_the_runtimes_error() -> None:
    fragment = parse_text("kubectl", text_of("get-events.txt"))
    assert [(p.id, p.state) for p in fragment.cluster_jobs] == [("llm-1", "Pending")]
    assert [e.kind for e in fragment.events] == ["container.driver_not_loaded"]


@pytest.mark.parametrize(
    ("text", "kind"),
    [
        (
            'docker: Error response from daemon: could not select device driver "" with capabilities: [[gpu]].',
            "container.runtime_missing",
        ),
        (
            'docker: Error response from daemon: could not select device driver "nvidia" with capabilities: [[gpu utility compute]].',
            "container.runtime_missing",
        ),
        ("Error response from daemon: unknown or invalid runtime name: nvidia", "container.runtime_missing"),
        ("docker: Error response from daemon: Unknown runtime specified nvidia.", "container.runtime_missing"),
        ('failed to get sandbox runtime: no runtime for "nvidia" is configured', "container.runtime_missing"),
        ('msg="failed" error="no runtime for \\"nvidia\\" is configured"', "container.runtime_missing"),
        ("could not apply CDI: unresolvable CDI devices nvidia.com/gpu=all", "container.runtime_missing"),
        ("nvidia-container-cli: initialization error: nvml error: driver not loaded: unknown.", "container.driver_not_loaded"),
        (
            "nvidia-container-cli: initialization error: driver rpc error: failed to process request: unknown.",
            "container.driver_not_loaded",
        ),
        ("nvidia-container-cli: detection error: nvml error: unknown error: unknown", "container.driver_not_loaded"),
        (
            "nvidia-container-cli: initialization error: nvml error: driver/library version mismatch: unknown",
            "container.driver_mismatch",
        ),
        (
            "nvidia-container-cli: initialization error: load library failed: libnvidia-ml.so.1: cannot open shared object file: no such file or directory: unknown",
            "container.library_missing",
        ),
        (
            "nvidia-container-cli: requirement error: unsatisfied condition: cuda>=12.4, please update your driver",
            "container.requirement",
        ),
        (
            "nvidia-container-cli: mount error: stat failed: /dev/nvidia-modeset: no such file or directory: unknown",
            "container.device_missing",
        ),
        ("nvidia-container-cli: device error: GPU-7540a9b3: unknown device: unknown", "container.device_missing"),
        ("2025-01-06T10:00:00Z worker Failed to initialize NVML: Unknown Error", "container.device_access_lost"),
        ("bpf_prog_query(BPF_CGROUP_DEVICE) failed: operation not permitted nvidia", "container.device_rules"),
        (
            "libibverbs: Warning: no userspace device-specific driver found for /sys/class/infiniband_verbs/uverbs0",
            "container.no_rdma",
        ),
        (
            "2020/08/10 19:09:42 XidCriticalError: Xid=69 on Device=GPU-7540a9b3-eeb9, the device will go unhealthy.",
            "k8s.plugin_xid",
        ),
        ("I0802 19:09:42.2 1 server.go:245] 'nvidia.com/gpu' device marked unhealthy: GPU-0", "k8s.plugin_unhealthy"),
    ],
)
def test_messages_of_runtimes_and_plugins(text: str, kind: str) -> None:
    event = event_of(text)
    assert event is not None
    assert event.kind == kind


@pytest.mark.parametrize(
    "text",
    [
        'time="2025-01-06T10:00:02Z" level=info msg="loading plugin nvidia-container-runtime"',
        "I0729 10:22:38.101223 1 server.go:117] Registered device plugin for 'nvidia.com/gpu' with Kubelet",
        "nvidia-container-cli: using driver 550.54.15",
    ],
)
def test_ordinary_messages_are_no_events(text: str) -> None:
    assert event_of(text) is None


def test_plugin_log_has_times_and_devices() -> None:
    events = parse_text("container_logs", text_of("device-plugin.log")).events
    assert [(e.kind, e.code, e.device[:4]) for e in events] == [
        ("k8s.plugin_xid", 74, "GPU-"),
        ("k8s.plugin_unhealthy", None, "GPU-"),
    ]
    assert events[0].clock is Clock.LOCAL
    (event,) = parse_text("container_logs", text_of("containerd.log")).events
    assert (event.node, event.kind) == ("gpu-c", "container.runtime_missing")
    assert event.time is not None


def test_an_unknown_error_about_gpus_is_shown_not_lost() -> None:
    fragment = parse_text("container_logs", "E0729 10:22:37.963223       1 main.go:154] nvidia frobnication failed\n")
    assert not fragment.events
    assert len(fragment.unplaced) == 1


@settings(max_examples=60, deadline=None)
@given(st.data())
def test_no_damage_breaks_the_readers(data: st.DataObject) -> None:
    name = data.draw(st.sampled_from(sorted(p.name for p in DATA.iterdir() if p.suffix in (".txt", ".log"))))
    text = data.draw(mangled(text_of(name)))
    for module in ("kubectl", "container_logs"):
        fragment = parse_text(module, text)
        last = max(len(text.splitlines()), 1)
        for entity in (*fragment.cluster_nodes, *fragment.cluster_jobs):
            assert all(0 <= line <= last for _, line in entity.origin.values())


@settings(max_examples=40, deadline=None)
@given(
    long_lines(
        "Name: a\nRoles: b\nConditions:\n  Ready ",
        "NAME STATUS ROLES\n",
        "nvidia-container-cli: ",
        "nvidia open /dev/nvidia",
        'could not select device driver "',
    )
)
def test_long_lines_do_no_harm(text: str) -> None:
    for module in ("kubectl", "container_logs"):
        parse_text(module, text)
