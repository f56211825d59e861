"""Slurm, Kubernetes and container rules: each with a fault and its healthy twin."""

from __future__ import annotations

from pathlib import Path

import pytest

import kilter.diagnose.rules.container
import kilter.diagnose.rules.kubernetes
import kilter.diagnose.rules.slurm  # noqa: F401 - rules register on import
from kilter.diagnose.engine import RULES, diagnose
from kilter.facts.case import Case
from kilter.facts.cluster import ClusterJob, ClusterNode
from kilter.facts.event import Event
from kilter.facts.finding import Finding
from kilter.intake.merge import assemble
from kilter.knowledge import sops
from mangle import parse_text

DATA = Path(__file__).parents[1] / "data"


def findings(case: Case) -> list[Finding]:
    return [f for f in diagnose(case).findings if f.id.startswith(("slurm.", "k8s.", "container."))]


def ids(case: Case) -> dict[str, str]:
    return {f.id: f.severity.value for f in findings(case)}


def slurm(*names: str) -> Case:
    return assemble([parse_text("slurm", (DATA / name).read_text()) for name in names], [])


def kube(*names: str) -> Case:
    return assemble(
        [
            parse_text("container_logs" if name.endswith(".log") else "kubectl", (DATA / "kubernetes" / name).read_text())
            for name in names
        ],
        [],
    )


def nodes(*given: ClusterNode) -> Case:
    return Case(cluster_nodes=list(given))


def jobs(*given: ClusterJob) -> Case:
    return Case(cluster_jobs=list(given))


def node(name: str = "n1", state: str = "idle", **fields: object) -> ClusterNode:
    return ClusterNode(name=name, state=state, **fields)  # type: ignore[arg-type]


def test_every_sop_exists() -> None:
    for rule in RULES.values():
        assert not rule.sop or rule.sop in sops.all_ids()


# -- Slurm ----------------------------------------------------------------------------------------------------------------------------


def test_drained_node_is_one_warning_with_reason_and_owner() -> None:
    (finding,) = findings(
        nodes(node(state="drained*", reason="replace", reason_user="root", reason_time=1654149274.0, gpus_total=8))
    )
    assert (finding.id, finding.severity.value) == ("slurm.node_drained", "warning")
    assert all(part in finding.what for part in ("replace", "root", "2022-06-02", "8 GPUs", "does not answer"))


@pytest.mark.parametrize(
    ("state", "reason"),
    [("drained$", ""), ("maint", ""), ("drained", "reboot ASAP"), ("idle+drain", "scheduled maintenance"), ("drain@", "x")],
)
def test_planned_maintenance_is_information(state: str, reason: str) -> None:
    assert set(ids(nodes(node(state=state, reason=reason or None))).values()) <= {"info"}


@pytest.mark.parametrize(
    "reason", ["XID 119, driver upgrade wanted", "unexpected reboot", "fails after maintenance", "unplanned downtime", "replace"]
)
def test_a_reason_that_names_a_fault_is_not_planned(reason: str) -> None:
    assert ids(nodes(node(state="drained", reason=reason)))["slurm.node_drained"] == "warning"


def test_most_of_a_partition_drained_is_an_error() -> None:
    bad = [node(f"n{i}", "drained", reason="fire", partitions=["p"]) for i in range(3)]
    assert ids(nodes(*bad, node("n9", partitions=["p"])))["slurm.node_drained"] == "error"
    good = [node(f"m{i}", partitions=["p"]) for i in range(4)]
    assert ids(nodes(*bad, *good))["slurm.node_drained"] == "warning"


def test_a_list_of_reasons_alone_never_says_most_of_the_partition() -> None:
    assert ids(slurm("slurm-22.05/sinfo-R.txt"))["slurm.node_drained"] == "warning"


@pytest.mark.parametrize(
    ("state", "expected"),
    [
        ("down*", "slurm.node_down"),
        ("idle*", "slurm.node_not_responding"),
        ("inval", "slurm.node_invalid"),
        ("fail", "slurm.node_down"),
    ],
)
def test_nodes_that_are_gone_are_errors(state: str, expected: str) -> None:
    assert ids(nodes(node(state=state))) == {expected: "error"}


@pytest.mark.parametrize(
    "state", ["idle", "mixed", "alloc", "allocated", "idle~", "idle#", "resv", "comp", "planned", "mix-", "powered_down"]
)
def test_states_in_order_are_silent(state: str) -> None:
    assert ids(nodes(node(state=state))) == {}


def test_lost_gpus_of_an_invalid_node_lead_to_the_bus() -> None:
    (finding,) = findings(slurm("slurm-22.05/scontrol-node-inval.txt"))
    assert (finding.id, finding.sop) == ("slurm.node_invalid", "SOP-BUS")


def test_a_reason_that_names_an_xid_says_where_to_read_on() -> None:
    found = {f.id: f for f in findings(nodes(node(state="drained", reason="Xid 79 GPU3")))}
    assert found["slurm.reason_names_gpu_fault"].sop == "SOP-BUS"
    assert "xid 79" in found["slurm.reason_names_gpu_fault"].what
    assert "slurm.reason_names_gpu_fault" not in ids(nodes(node(state="drained", reason="replace PSU")))
    assert "slurm.reason_names_gpu_fault" not in ids(nodes(node(state="idle", reason="Xid 79 GPU3")))


def test_free_gpus_are_told_with_those_beside_full_cpus() -> None:
    (finding,) = [f for f in findings(slurm("slurm-22.05/sinfo.json", "slurm-22.05/squeue.json")) if f.id == "slurm.idle_gpus"]
    assert finding.severity.value == "info"
    assert finding.what.startswith("6 of 64 GPUs are free on 2 nodes in service; 2 of them stand beside CPUs that are all taken")
    assert "2 jobs wait for 40 GPUs" in finding.what


def test_free_gpus_are_in_order_when_nobody_waits() -> None:
    free = node(gpus_total=8, gpus_allocated=0)
    assert "slurm.idle_gpus" in ids(nodes(free))
    case = Case(cluster_nodes=[free], cluster_jobs=[ClusterJob(id="1", state="RUNNING", gpus=8, cpus=64)])
    assert ids(case) == {}
    assert ids(nodes(node(state="mixed", gpus_total=8, gpus_allocated=8))) == {}


def test_a_job_that_waits_for_a_limit_is_no_shortage() -> None:  # corpus s053
    waits = ClusterJob(id="1", state="PENDING", reason="JobArrayTaskLimit", gpus=160)
    assert ids(jobs(waits)) == {}
    assert ids(jobs(ClusterJob(id="2", state="PENDING", reason="Resources", gpus=8))) == {"slurm.no_gpu_capacity": "info"}


def test_a_queue_with_a_dead_dependency_and_a_long_shell() -> None:  # corpus s053
    found = ids(slurm("s053-slurm-queue-dependency-never/squeue.txt"))
    assert found["slurm.job_dependency_never_satisfied"] == "warning"
    assert found["slurm.interactive_gpu_hold"] == "info"
    assert "slurm.no_gpu_capacity" not in found
    assert {i for i, severity in found.items() if severity != "info"} == {"slurm.job_dependency_never_satisfied"}


def test_a_batch_job_or_a_short_session_is_no_hold() -> None:
    def job(name: str, hours: float) -> Case:
        return jobs(ClusterJob(id="1", state="RUNNING", name=name, gpus=2, cpus=24, run_time_s=hours * 3600))

    assert "slurm.interactive_gpu_hold" in ids(job("interactive", 30))
    assert ids(job("bash", 2)) == {}
    assert ids(job("train.sh-run", 300)) == {}
    assert ids(job("shuffle", 300)) == {}


def test_few_cpus_a_gpu_are_told_with_the_number() -> None:
    (finding,) = findings(jobs(ClusterJob(id="1", state="RUNNING", name="x", gpus=8, cpus=8)))
    assert (finding.id, finding.severity.value) == ("slurm.cpu_underallocated", "info")
    assert "8 CPUs for 8 GPUs: 1 a GPU" in finding.what
    assert ids(jobs(ClusterJob(id="1", state="RUNNING", name="x", gpus=8, cpus=64))) == {}


# -- Kubernetes -----------------------------------------------------------------------------------------------------------------------


def test_fewer_allocatable_than_capacity_is_a_mark_not_a_bad_gpu() -> None:  # corpus i18
    (finding,) = findings(kube("describe-node-7-of-8.txt"))
    assert (finding.id, finding.severity.value) == ("k8s.device_plugin.stale_unhealthy", "warning")
    assert "never takes the mark back" in finding.causes[0].text
    assert any(e.role == "missing" and "nvidia-smi" in e.text for e in finding.evidence)


def test_the_plugins_log_becomes_evidence() -> None:
    found = {f.id: f for f in findings(kube("describe-node-7-of-8.txt", "device-plugin.log"))}
    assert any("Xid=74" in e.text for e in found["k8s.device_plugin.stale_unhealthy"].evidence)
    assert found["k8s.device_plugin.marked_unhealthy"].severity.value == "warning"


def k8s(state: str = "Ready", **fields: object) -> Case:
    return nodes(node("n1", state, scheduler="kubernetes", **fields))


def test_a_healthy_node_is_silent() -> None:
    conditions = {"Ready": "True: KubeletReady", "MemoryPressure": "False: x", "KernelDeadlock": "False: y"}
    assert ids(k8s(gpus_total=8, gpus_allocatable=8, conditions=conditions)) == {}


def test_no_gpu_allocatable_means_that_the_plugin_is_gone() -> None:
    assert ids(k8s(gpus_total=8, gpus_allocatable=0)) == {"k8s.device_plugin.gone": "error"}
    assert ids(k8s(gpus_total=0, labels={"nvidia.com/gpu.present": "true"})) == {"k8s.device_plugin.missing": "warning"}
    assert ids(k8s(gpus_total=0)) == {}


def test_not_ready_is_an_error_and_cordoned_is_information() -> None:
    assert ids(kube("get-nodes-wide.txt")) == {"k8s.node_not_ready": "error", "k8s.node_cordoned": "info"}


def test_pressure_and_conditions_of_health_checkers() -> None:
    assert ids(k8s(conditions={"DiskPressure": "True: x"})) == {"k8s.pressure": "warning"}
    assert ids(k8s(conditions={"GpuXidError": "True: XID 79"})) == {"k8s.node_condition": "warning"}
    assert ids(k8s(conditions={"MemoryPressure": "Unknown: x"})) == {}


def test_the_schedulers_counts_are_decoded() -> None:
    (finding,) = findings(kube("describe-pod-pending.txt"))
    assert finding.id == "k8s.pod_unschedulable_gpu"
    assert "8 GPUs; 0 of 6 nodes fit: 1 had untolerated taint" in finding.what
    assert "4 lack nvidia.com/gpu" in finding.what


def pod(state: str, **fields: object) -> Case:
    return jobs(ClusterJob(id="a/b", name="b", scheduler="kubernetes", state=state, **fields))  # type: ignore[arg-type]


def test_a_pod_that_waits_for_memory_is_not_a_gpu_matter() -> None:
    assert ids(pod("Pending", reason="FailedScheduling: 0/3 nodes are available: 3 Insufficient memory.")) == {}
    assert ids(pod("Running")) == {}
    assert ids(pod("Completed")) == {}


def test_crash_loops_of_the_gpu_operator_are_errors() -> None:
    assert ids(kube("describe-pod-crash.txt")) == {"k8s.driver_daemonset": "error"}
    assert ids(kube("get-pods-wide.txt")) == {"k8s.driver_daemonset": "error", "k8s.crash_loop": "warning"}


# -- containers -----------------------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("kind", "expected"),
    [
        ("container.runtime_missing", "container.runtime_missing_nvidia"),
        ("container.driver_not_loaded", "container.driver_unusable"),
        ("container.driver_mismatch", "container.driver_mismatch"),
        ("container.library_missing", "container.driver_library_missing"),
        ("container.device_missing", "container.device_missing"),
        ("container.requirement", "container.requirement_unmet"),
        ("container.device_access_lost", "container.device_access_lost"),
        ("container.no_rdma", "container.no_rdma_devices"),
        ("k8s.plugin_xid", "k8s.device_plugin.marked_unhealthy"),
    ],
)
def test_each_kind_of_message_has_its_finding(kind: str, expected: str) -> None:
    assert list(ids(Case(events=[Event(kind=kind, text="x", node="n", device="GPU-1")]))) == [expected]


def test_a_mark_that_was_taken_back_is_information() -> None:
    events = [
        Event(kind="k8s.plugin_unhealthy", text="x", device="GPU-1"),
        Event(kind="k8s.plugin_healthy", text="y", device="GPU-1"),
    ]
    assert ids(Case(events=events)) == {"k8s.device_plugin.marked_unhealthy": "info"}


def test_without_a_container_log_the_checks_are_not_made() -> None:
    (check,) = [c for c in diagnose(Case()).checks if c.rule == "container.runtime_missing_nvidia"]
    assert check.outcome.value == "not checked"
