"""Slurm's outputs: real ones of 22.05 (tests/data/slurm-22.05), those of a large site (corpus s051 to s053), and forms of other versions."""

from __future__ import annotations

import json
from pathlib import Path

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from kilter.intake.captures import slurm_values as values
from kilter.intake.fragment import Fragment
from mangle import long_lines, mangled, parse_text

DATA = Path(__file__).parents[2] / "data"
SLURM = DATA / "slurm-22.05"
NODE_FILES = [
    "sinfo-N-l.txt",
    "sinfo-l.txt",
    "sinfo-o.txt",
    "sinfo-O.txt",
    "sinfo-mix.txt",
    "sinfo.txt",
    "scontrol-node.txt",
    "scontrol-node-o.txt",
    "sinfo.json",
]
JOB_FILES = [
    "squeue.txt",
    "squeue-l.txt",
    "squeue-o.txt",
    "squeue-O.txt",
    "scontrol-job.txt",
    "scontrol-job-o.txt",
    "squeue.json",
]
ALL_FILES = sorted(p.name for p in SLURM.iterdir() if p.suffix in (".txt", ".json"))


def read(name: str) -> Fragment:
    return parse_text("slurm", (SLURM / name).read_text())


@pytest.mark.parametrize("name", NODE_FILES)
def test_every_form_names_each_node_once_and_its_trouble(name: str) -> None:
    fragment = read(name)
    nodes = {node.name: node for node in fragment.cluster_nodes}
    assert len(nodes) == len(fragment.cluster_nodes) == 9
    assert "dr" in (nodes["gpu03"].state or "")
    assert (nodes["gpu06"].state or "").startswith("down")
    assert nodes["gpu07"].partitions in ([], ["train", "debug"], ["debug", "train"])
    assert not fragment.unplaced


@pytest.mark.parametrize(
    "name", [n for n in NODE_FILES if n in ("sinfo-mix.txt", "scontrol-node.txt", "scontrol-node-o.txt", "sinfo.json")]
)
def test_reason_user_and_time_are_read(name: str) -> None:
    (node,) = [n for n in read(name).cluster_nodes if n.name == "gpu03"]
    assert node.reason == "XID 79 on GPU 3, case 12345"
    assert node.reason_user in ("root", None)
    assert node.reason_time == 1796085546.0


def test_gpus_in_use_come_from_gres_used() -> None:
    nodes = {node.name: node for node in read("sinfo-O.txt").cluster_nodes}
    assert [(nodes[n].gpus_total, nodes[n].gpus_allocated, nodes[n].gpu_type) for n in ("gpu01", "gpu02", "gpu05")] == [
        (8, 8, "h100"),
        (8, 6, "h100"),
        (8, 0, "h100"),
    ]
    assert (nodes["gpu02"].cpus_allocated, nodes["gpu02"].cpus_total) == (64, 64)
    assert nodes["cpu01"].gpus_total == 0


def test_memory_cut_to_six_signs_is_no_value() -> None:  # sinfo -N -l prints 1000000 as 100000
    assert all(node.memory_total_mib is None for node in read("sinfo-N-l.txt").cluster_nodes)


def test_sinfo_R_gives_reasons_without_states() -> None:
    nodes = {node.name: node for node in read("sinfo-R.txt").cluster_nodes}
    assert nodes["gpu04"].reason == "ECC errors: row rema"
    assert nodes["gpu04"].state is None
    assert {n.name: n.state for n in read("sinfo-R-l.txt").cluster_nodes}["gpu06"] == "down*"


@pytest.mark.parametrize("name", JOB_FILES)
def test_every_form_of_the_queue_tells_states_and_reasons(name: str) -> None:
    jobs = {job.id: job for job in read(name).cluster_jobs}
    assert jobs["1"].state == "RUNNING"
    assert jobs["1"].nodes == ["gpu01"]
    assert jobs["5"].state == "PENDING"
    assert jobs["5"].reason == "DependencyNeverSatisfied"
    assert jobs["6"].n_nodes == 4
    assert jobs["6"].nodes == []
    assert jobs["8"].reason == "JobHeldUser"


@pytest.mark.parametrize("name", ["squeue-o.txt", "squeue-O.txt", "scontrol-job.txt", "squeue.json"])
def test_gpus_a_node_are_multiplied_by_nodes(name: str) -> None:
    jobs = {job.id: job for job in read(name).cluster_jobs}
    assert jobs["6"].gpus == 32
    assert jobs["5"].gpus is None


def test_a_header_that_follows_a_table_begins_a_new_one() -> None:
    text = (SLURM / "sinfo-mix.txt").read_text() + (SLURM / "squeue-o.txt").read_text()
    fragment = parse_text("slurm", text)
    assert len(fragment.cluster_nodes) == 9
    assert len(fragment.cluster_jobs) == 11


def test_a_node_in_two_partitions_counts_once() -> None:  # corpus s051
    header = "STATE|NODELIST|GRES|PARTITION|REASON|STATE"
    fragment = parse_text("slurm", f"{header}\ndrain*|n1|gpu:gen:8|a|replace|drained*\ndrain*|n1|gpu:gen:8|b|replace|drained*\n")
    (node,) = fragment.cluster_nodes
    assert (node.state, node.gpus_total, node.partitions) == ("drained*", 8, ["a", "b"])


def test_without_a_header_the_columns_are_told_by_content() -> None:  # corpus s052, s053
    rows = [
        f"node{i}   |gpu:ampere:8   |gpu:ampere:{used}(IDX:N/A)  |256  |0/256/0/256 |{state} |learn"
        for i, used, state in ((1, 0, "idle"), (2, 8, "mixed"))
    ]
    fragment = parse_text("slurm", "\n".join(rows))
    assert [(n.name, n.gpus_total, n.gpus_allocated, n.state) for n in fragment.cluster_nodes] == [
        ("node1", 8, 0, "idle"),
        ("node2", 8, 8, "mixed"),
    ]
    assert fragment.notes
    queue = (DATA / "s053-slurm-queue-dependency-never" / "squeue.txt").read_text()
    jobs = {job.id: job for job in parse_text("slurm", queue).cluster_jobs}
    assert jobs["45704744"].run_time_s == 17 * 3600 + 22 * 60 + 49
    assert jobs["45704744"].time_limit_s == 14 * 86400
    assert (jobs["45704744"].name, jobs["45704744"].gpus, jobs["45704744"].nodes) == ("bash", 2, ["node1321"])
    assert jobs["22783212"].reason == "DependencyNeverSatisfied"
    assert len(jobs["42956774_3"].nodes) == 32


def test_squeue_with_a_name_of_two_words_goes_by_position() -> None:
    text = (
        "             JOBID PARTITION     NAME     USER ST       TIME  NODES NODELIST(REASON)\n"
        "                 5     train   my job      ann PD       0:00      1 (Resources)\n"
        "                 6     train     solo      bob  R    1:02:03      2 gpu[01-02]\n"
    )
    a, b = parse_text("slurm", text).cluster_jobs
    assert (a.name, a.user, a.state, a.reason) == ("my job", "ann", "PENDING", "Resources")
    assert (b.nodes, b.run_time_s) == (["gpu01", "gpu02"], 3723.0)


def test_json_of_23_11_and_later_is_read() -> None:
    def number(value: int, *, is_set: bool = True) -> dict[str, object]:
        return {"set": is_set, "infinite": False, "number": value}

    document = {
        "nodes": [
            {
                "name": "n1",
                "state": ["IDLE", "DRAIN"],
                "reason": "xid",
                "reason_changed_at": number(1700000000),
                "cpus": 64,
                "alloc_cpus": 0,
            }
            | {"gres": "gpu:h100:4(S:0-1)", "gres_used": "gpu:h100:0(IDX:N/A)", "partitions": ["train"], "real_memory": 1000}
        ]
    }
    (node,) = parse_text("slurm", json.dumps(document, indent=2)).cluster_nodes
    assert (node.state, node.gpus_total, node.gpus_allocated, node.reason_time) == ("idle+drain", 4, 0, 1700000000.0)
    jobs = {
        "jobs": [
            {
                "job_id": 7,
                "job_state": ["PENDING"],
                "node_count": number(2),
                "cpus": number(8),
                "tres_per_node": "gres/gpu:2",
                "time_limit": number(0, is_set=False),
            }
        ]
    }
    (job,) = parse_text("slurm", json.dumps(jobs, indent=1)).cluster_jobs
    assert (job.state, job.gpus, job.time_limit_s) == ("PENDING", 4, None)
    grouped = {
        "sinfo": [
            {
                "node": {"state": ["DOWN"]},
                "nodes": {"nodes": ["n1", "n2"]},
                "gres": {"total": "gpu:8", "used": "gpu:0"},
                "partition": {"name": "p"},
                "reason": {"description": "dead", "user": "root"},
            }
        ]
    }
    nodes = parse_text("slurm", json.dumps(grouped, indent=1)).cluster_nodes
    assert [(n.name, n.state, n.reason, n.gpus_total) for n in nodes] == [("n1", "down", "dead", 8), ("n2", "down", "dead", 8)]


def test_json_that_is_cut_off_gives_what_it_holds_and_says_so() -> None:
    text = (SLURM / "sinfo.json").read_text()
    fragment = parse_text("slurm", text[: text.index('"gpu04"')])
    assert [n.name for n in fragment.cluster_nodes] == ["cpu01", "gpu01", "gpu02", "gpu03"]
    assert any("cut short" in note for note in fragment.notes)


def test_a_line_of_slurm_conf_is_not_a_node() -> None:
    fragment = parse_text("slurm", "NodeName=gpu[01-08] CoresPerSocket=32 Sockets=2 RealMemory=1000000 Gres=gpu:h100:8\n")
    assert not fragment.cluster_nodes
    assert fragment.unplaced


@pytest.mark.parametrize(
    ("text", "count"),
    [
        ("gpu:h100:8(S:0-1)", (8, "h100")),
        ("gpu:8", (8, "")),
        ("gres:gpu:2", (2, "")),
        ("gres/gpu:a100=4", (4, "a100")),
        ("cpu=24,node=1,gres/gpu=2", (2, "")),
        ("gres/gpu=8,gres/gpu:h100=8", (8, "h100")),
        ("gpu:1080ti:1(IDX:0),gpu:980gtx:1(IDX:1)", (2, "1080ti")),
        ("gpu:h100:0(IDX:N/A)", (0, "h100")),
        ("gres/gpu", (1, "")),
        ("(null)", None),
        ("N/A", None),
        ("mps:400", None),
    ],
)
def test_gpu_counts(text: str, count: tuple[int, str] | None) -> None:
    assert values.gpus(text) == count


@pytest.mark.parametrize(
    ("text", "seconds"),
    [
        ("13-06:37:11", 1147031.0),
        ("17:22:49", 62569.0),
        ("4:59", 299.0),
        ("0:00", 0.0),
        ("UNLIMITED", None),
        ("7", None),
        ("1-0", 86400.0),
    ],
)
def test_durations(text: str, seconds: float | None) -> None:
    assert values.duration(text) == seconds


@pytest.mark.parametrize(
    ("text", "names"),
    [
        ("gpu[01-03,07],login1", ["gpu01", "gpu02", "gpu03", "gpu07", "login1"]),
        ("r[1-2]n[8-9]", ["r1n8", "r1n9", "r2n8", "r2n9"]),
        ("n[1-999999999]", None),
        ("n[3-1]", None),
        ("n[1-", None),
        ("(null)", None),
    ],
)
def test_host_lists(text: str, names: list[str] | None) -> None:
    assert values.hosts(text) == names


@settings(max_examples=60, deadline=None)
@given(st.data())
def test_no_damage_breaks_the_reader(data: st.DataObject) -> None:
    name = data.draw(st.sampled_from(ALL_FILES))
    text = data.draw(mangled((SLURM / name).read_text()[:12000]))
    fragment = parse_text("slurm", text)
    last = max(len(text.splitlines()), 1)
    for entity in (*fragment.cluster_nodes, *fragment.cluster_jobs):
        assert all(0 <= line <= last for _, line in entity.origin.values())


@settings(max_examples=40, deadline=None)
@given(
    long_lines(
        "NodeName=a Arch=x State=",
        "JobId=1 JobName=",
        "NODELIST STATE\n",
        "NODELIST|STATE|REASON\n",
        "a|b|idle|",
        '{"nodes": [',
        "JOBID ST\n",
    )
)
def test_long_lines_do_no_harm(text: str) -> None:
    parse_text("slurm", text)


def test_a_header_longer_than_any_screen_is_read_by_words() -> None:
    header = "JOBID" + " " * 5000 + "PARTITION STATE NODELIST"
    fragment = parse_text("slurm", f"{header}\n1 gpu RUNNING gpu-1\n")
    assert len(fragment.cluster_jobs) <= 1
