"""Objects of Kubernetes as kubectl prints them in JSON and YAML."""

from __future__ import annotations

import json
from pathlib import Path

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from kilter.diagnose.engine import diagnose
from kilter.intake.merge import assemble
from kilter.intake.paste import read_text
from mangle import long_lines, mangled, parse_text

DATA = Path(__file__).parents[2] / "data" / "kubernetes"
FORMS = ["json", "yaml"]


def text_of(name: str) -> str:
    return (DATA / name).read_text()


def as_list(what: str, form: str) -> str:
    """The documents of a file as the list that ``kubectl get`` prints of several objects."""
    if form == "yaml":
        items = [doc.strip("\n").split("\n") for doc in text_of(f"get-{what}.yaml").split("---\n")]
        body = "\n".join("\n".join("- " + line if not n else "  " + line for n, line in enumerate(item)) for item in items)
        return f'apiVersion: v1\nitems:\n{body}\nkind: List\nmetadata:\n  resourceVersion: ""\n'
    decoder, text, items = json.JSONDecoder(), text_of(f"get-{what}.json"), []
    at = 0
    while (at := text.find("{", at)) >= 0:
        one, at = decoder.raw_decode(text, at)
        items.append(one)
    return json.dumps({"apiVersion": "v1", "items": items, "kind": "List"}, indent=4)


@pytest.mark.parametrize("form", FORMS)
@pytest.mark.parametrize("listed", [False, True])
def test_nodes(form: str, listed: bool) -> None:
    fragment = parse_text("kubectl_objects", as_list("nodes", form) if listed else text_of(f"get-nodes.{form}"))
    a, b, c = fragment.cluster_nodes
    assert (a.name, a.state, a.gpus_total, a.gpus_allocatable, a.cpus_total, a.memory_total_mib) == (
        "gpu-a",
        "Ready",
        8,
        7,
        192,
        2064006,
    )
    assert (a.taints, a.gpu_type) == (["nvidia.com/gpu=present:NoSchedule"], "NVIDIA-H100-80GB-HBM3")
    assert a.conditions["GpuXid"] == "True: Xid79 GPU has fallen off the bus"
    assert (b.state, b.taints) == ("NotReady", ["node.kubernetes.io/unreachable:NoExecute"])
    assert c.state == "Ready,SchedulingDisabled"
    assert fragment.notes == []


@pytest.mark.parametrize("form", FORMS)
@pytest.mark.parametrize("listed", [False, True])
def test_pods(form: str, listed: bool) -> None:
    fragment = parse_text("kubectl_objects", as_list("pods", form) if listed else text_of(f"get-pods.{form}"))
    pods = {pod.id: pod for pod in fragment.cluster_jobs}
    assert (pods["train/llm-0"].state, pods["train/llm-0"].gpus, pods["train/llm-0"].reason) == ("Running", 4, None)
    assert (pods["train/llm-1"].reason or "").startswith("FailedScheduling: 0/6 nodes are available: 3 Insufficient")
    crash = pods["train/llm-2"]
    assert (crash.state, crash.restarts, crash.exit_code, crash.nodes) == ("CrashLoopBackOff", 12, 137, ["gpu-a"])
    assert pods["train/done"].state == "Succeeded"
    assert pods["gpu-operator/nvidia-driver-daemonset-x1"].state == "Init:CrashLoopBackOff"
    assert pods["train/llm-0"].submitted == 1793689200.0


@pytest.mark.parametrize("form", FORMS)
def test_events_have_counts_and_times(form: str) -> None:
    fragment = parse_text("kubectl_objects", text_of(f"get-events.{form}"))
    (waiting,) = [pod for pod in fragment.cluster_jobs if pod.id == "train/llm-3"]
    assert (waiting.state, (waiting.reason or "")[:24]) == ("Pending", "FailedScheduling: 0/6 no")
    (event,) = fragment.events
    assert (event.kind, event.count, event.time, event.last_time) == (
        "container.driver_not_loaded",
        5,
        1793689200.0,
        1793692800.0,
    )


@pytest.mark.parametrize("form", FORMS)
def test_what_the_rules_say(form: str) -> None:
    fragments = [one for what in ("nodes", "pods", "events") for one in read_text(what, as_list(what, form), year=2026)[0]]
    found = {f.id for f in diagnose(assemble(fragments, [])).findings}
    assert {"k8s.node_not_ready", "k8s.device_plugin.stale_unhealthy", "k8s.node_condition", "k8s.node_cordoned"} <= found
    assert {"k8s.pod_unschedulable_gpu", "k8s.crash_loop", "k8s.driver_daemonset"} <= found


def test_entries_of_the_api_servers_lists_have_no_kind() -> None:
    document = json.loads(as_list("nodes", "json"))
    for one in document["items"]:
        del one["kind"], one["apiVersion"]
    text = json.dumps({"kind": "NodeList", **document})
    assert len(parse_text("kubectl_objects", text).cluster_nodes) == 3


@pytest.mark.parametrize("form", FORMS)
def test_a_list_that_is_cut_off_gives_its_whole_objects(form: str) -> None:
    whole = as_list("nodes", form)
    fragment = parse_text("kubectl_objects", whole[: whole.index("gpu-c")])
    assert [node.name for node in fragment.cluster_nodes] == ["gpu-a", "gpu-b"]


def test_manifests_and_other_kinds_say_nothing() -> None:
    text = "apiVersion: v1\nkind: Pod\nmetadata:\n  name: x\nspec:\n  containers: []\n---\napiVersion: v1\nkind: ConfigMap\nmetadata:\n  name: y\n"
    fragment = parse_text("kubectl_objects", text)
    assert (fragment.cluster_jobs, fragment.cluster_nodes, fragment.notes) == ([], [], [])


def test_no_yaml_tag_is_executed_and_no_alias_grows() -> None:
    for evil in ('x: !!python/object/apply:os.system ["false"]\n', "a: &a [x,x]\nb: &b [*a,*a]\nc: [*b,*b]\n", "t: 2026-99-99\n"):
        text = f"apiVersion: v1\nkind: Node\nmetadata:\n  name: n\n{evil}status:\n  capacity: {{}}\n"
        parse_text("kubectl_objects", text)


@pytest.mark.parametrize("name", ["get-nodes", "get-pods", "get-events"])
@pytest.mark.parametrize("form", FORMS)
@given(data=st.data())
@settings(max_examples=40, deadline=None)
def test_damaged_texts_raise_nothing(name: str, form: str, data: st.DataObject) -> None:
    parse_text("kubectl_objects", data.draw(mangled(text_of(f"{name}.{form}"))))
    parse_text("kubectl_objects", data.draw(mangled(as_list(name[4:], form))))


@given(
    long_lines(
        "{",
        "apiVersion: v1\n",
        "apiVersion: v1\nitems:\n- apiVersion: v1\n  x: ",
        '{"apiVersion": "v1", "items": [',
        "apiVersion: v1\nx: ",
    )
)
@settings(max_examples=40, deadline=2000)
def test_long_lines_take_no_time(text: str) -> None:
    parse_text("kubectl_objects", text)
