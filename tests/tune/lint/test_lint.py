"""The linter: the stale script of many tutorials, clean scripts of vendors, every form in which a variable is set."""

from __future__ import annotations

import subprocess
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import settings as limits
from hypothesis import strategies as st

from kilter.facts.workload import Layout, Workload
from kilter.intake.workload.read import read_sources
from kilter.knowledge import env_variables, tunables
from kilter.tune.lint.flags import judge_flags
from kilter.tune.lint.judge import SEVERITIES, Target, judge
from kilter.tune.lint.output import patch, sarif
from kilter.tune.lint.settings import settings

DATA = Path(__file__).parents[2] / "data" / "lint"
EXAMPLES = Path(__file__).parents[3] / "examples"
LINES = [
    (
        "vllm serve meta-llama/Llama-3.1-70B -tp 4 --max-num-seqs 128 --kv-cache-dtype fp8 --gpu-memory-utilization 0.9 --host 0.0.0.0 --port 8000",
    ),
    (
        "python3 -m vllm.entrypoints.openai.api_server --model Qwen/Qwen3-8B --tensor-parallel-size 2 --data-parallel-size 4 --enable-chunked-prefill",
    ),
    (
        "python -m sglang.launch_server --model-path x/y --tp 16 --nnodes 2 --node-rank 0 --dist-init-addr a:1 --trust-remote-code --host 0.0.0.0",
    ),
]
NEWEST = Target(nccl="2.30.7")


def lint(text: str, target: Target = NEWEST, file: str = "job.sh", workload: Workload | None = None):
    return judge(settings(text, file), target, workload)


def ids(text: str, target: Target = NEWEST, **more: object) -> list[str]:
    return [r.id for r in lint(text, target, **more)]


# --- S8


STALE = {
    "NCCL_IB_GID_INDEX": ("env.obsolete", "warning", "2.21"),
    "NCCL_IB_TIMEOUT": ("env.above-default", "note", "default 20"),
    "NCCL_IB_RETRY_CNT": ("env.range", "error", "0 to 7"),
    "NCCL_CHECKS_DISABLE": ("env.removed", "warning", "removed"),
    "NCCL_MIN_CHANNELS": ("env.misspelt", "warning", "NCCL_MIN_NCHANNELS (deprecated"),
    "NCCL_TREE_THRESHOLD": ("env.removed", "warning", "removed in 2.5"),
    "NCCL_ASYNC_ERROR_HANDLING": ("env.renamed", "warning", "TORCH_NCCL_ASYNC_ERROR_HANDLING"),
    "NCCL_IB_HCA": ("env.prefix", "warning", "mlx5_10"),
    "NCCL_NET_GDR_LEVEL": ("env.legacy-value", "warning", "SYS"),
    "NCCL_ALGO": ("env.algorithm", "warning", "2.24"),
}


def test_s8_the_stale_script_line_by_line() -> None:
    found = lint((EXAMPLES / "stale-job.sh").read_text())
    assert {r.setting.name: (r.id, r.severity) for r in found} == {name: (i, s) for name, (i, s, _) in STALE.items()}
    assert len(found) == 10
    for report in found:
        assert STALE[report.setting.name][2] in report.message
    assert [r.setting.line for r in found] == list(range(2, 12))


def test_s8_the_patch_applies(tmp_path: Path) -> None:
    text = (EXAMPLES / "stale-job.sh").read_text()
    made = patch({"stale.sh": text}, judge(settings(text, "stale.sh"), NEWEST))
    (tmp_path / "stale.sh").write_text(text)
    (tmp_path / "fix.patch").write_text(made)
    subprocess.run(["git", "apply", "fix.patch"], cwd=tmp_path, check=True)
    fixed = (tmp_path / "stale.sh").read_text()
    assert fixed.splitlines() == [
        "#!/bin/bash",
        "export NCCL_IB_TIMEOUT=22",
        "export NCCL_MIN_NCHANNELS=8",
        "export TORCH_NCCL_ASYNC_ERROR_HANDLING=1",
        "export NCCL_IB_HCA==mlx5_1,mlx5_2",
    ]
    assert {r.severity for r in lint(fixed)} == {"note"}


def test_without_a_version_only_what_holds_for_all_is_said() -> None:
    found = {r.setting.name: r.id for r in lint((EXAMPLES / "stale-job.sh").read_text(), Target())}
    assert {"NCCL_IB_GID_INDEX", "NCCL_IB_TIMEOUT", "NCCL_ALGO"} & found.keys() <= {"NCCL_ALGO"}
    assert found["NCCL_TREE_THRESHOLD"] == "env.removed"


@pytest.mark.parametrize("path", sorted(DATA.glob("clean-*")), ids=lambda p: p.name)
@pytest.mark.parametrize("version", ["", "2.18.3", "2.27.5", "2.30.7"])
def test_clean_scripts_of_vendors_are_clean(path: Path, version: str) -> None:
    found = judge(settings(path.read_text(), path.name), Target(nccl=version))
    assert [(r.id, r.message) for r in found if r.severity != "note"] == []


# --- versions


@pytest.mark.parametrize(
    ("text", "version", "expected"),
    [
        ("export NCCL_IB_GID_INDEX=3", "2.20.5", []),
        ("export NCCL_IB_GID_INDEX=3", "2.21.5", ["env.obsolete"]),
        ("export NCCL_IB_TIMEOUT=22", "2.22.3", []),
        ("export NCCL_IB_TIMEOUT=20", "2.23.4", ["env.redundant"]),
        ("export NCCL_IB_TIMEOUT=18", "2.18.3", ["env.redundant"]),
        ("export NCCL_ALGO=Tree", "2.23.4", ["env.debug"]),
        ("export NCCL_ALGO=Tree,Ring", "2.27.5", ["env.debug"]),
        ("export NCCL_ALGO='allreduce:tree;broadcast:ring'", "2.27.5", ["env.debug"]),
        ("export NCCL_ALGO=Tee", "2.27.5", ["env.range"]),
        ("export NCCL_CTA_POLICY=1", "2.20.5", ["env.too-new"]),
        ("export NCCL_WORK_FIFO_DEPTH=4", "2.20.5", []),
        ("export NCCL_WORK_FIFO_DEPTH=4", "2.27.5", ["env.removed"]),
        ("export NCCL_CHUNK_SIZE=1048576", "", ["env.dangerous"]),
        ("export NCCL_IB_HCA='^=mlx5_1,^=mlx5_2'", "", ["env.syntax"]),
        ("export NCCL_IB_HCA==mlx5_1,mlx5_2", "", []),
        ("export NCCL_IB_HCA=mlx5", "", []),
        ("export NCCL_P2P_DISABLE=true", "", ["env.range"]),
        ("export NCCL_IB_TIMOUT=22", "", ["env.misspelt"]),
        ("export NCCL_NVSL_ENABLE=0", "", ["env.misspelt"]),
        ("export NCCL_FASTRAK_NUM_FLOWS=2", "", []),
        ("NCCL_HOME=/opt/nccl", "", []),
        ("NCCL_DEBUG_FLAG=1", "", []),
        ("export NCCL_SOMETHING_ELSE_ENTIRELY=1", "", ["env.unknown"]),
        ("export NCCL_IB_DISABLE=1 NCCL_IB_HCA==mlx5_0", "", ["env.debug", "env.conflict"]),
        ("export NCCL_PROTO=Simple NCCL_TUNER_PLUGIN=libnccl-ofi-tuner.so", "", ["env.debug", "env.conflict"]),
        ("export NCCL_PROTO=Simple NCCL_TUNER_PLUGIN=libnccl-tuner.so", "", ["env.debug"]),
        ("export CUDA_LAUNCH_BLOCKING=1", "", ["env.debug"]),
        ("export NCCL_DEBUG=INFO\nexport NCCL_DEBUG=WARN", "", ["env.overridden"]),
        ("export NCCL_IB_RETRY_CNT=13\nunset NCCL_IB_RETRY_CNT", "", []),
    ],
)
def test_rules(text: str, version: str, expected: list[str]) -> None:
    assert sorted(ids(text, Target(nccl=version))) == sorted(expected)


def test_every_variable_of_the_catalogue_is_known() -> None:
    """No documented variable is called unknown."""
    for id_ in tunables.names():
        layer, _, name = id_.partition(".")
        if layer != "nccl" or name in ("NCCL_MIN_CHANNELS", "NCCL_EXCLUDE_IB_HCA"):
            continue
        assert "env.unknown" not in ids(f"export {name}=1", Target()), name
        assert "env.misspelt" not in ids(f"export {name}=1", Target()), name
    assert len(env_variables.variables()) > 290
    assert sum(bool(v.section) for v in env_variables.variables().values()) >= 112


def test_s9_by_framework_and_architecture() -> None:
    text = "export CUDA_DEVICE_MAX_CONNECTIONS=1"
    megatron = Workload(kind="pretrain", framework="megatron", layout=Layout(tp=8, sharding="ddp"))
    torchtitan = Workload(kind="pretrain", framework="torchtitan", layout=Layout(tp=8, sharding="fsdp2"))
    fsdp = Workload(kind="pretrain", framework="megatron", layout=Layout(tp=8, sharding="megatron_fsdp"))
    hopper, blackwell = Target(gpu_sm=90), Target(gpu_sm=100)
    assert ids(text, hopper, workload=megatron) == []
    assert ids(text, blackwell, workload=megatron) == []
    assert ids(text, hopper, workload=torchtitan) == ["env.framework"]
    assert ids(text, hopper, workload=fsdp) == ["env.framework"]
    assert ids(text, hopper) == []


# --- where variables are set


@pytest.mark.parametrize(
    ("text", "file", "name", "value"),
    [
        ("export NCCL_ALGO=Ring", "x.sh", "NCCL_ALGO", "Ring"),
        ("  NCCL_ALGO='Ring' python x.py", "x.sh", "NCCL_ALGO", "Ring"),
        ('declare -x NCCL_ALGO="Ring"', "x.sh", "NCCL_ALGO", "Ring"),
        ("mpirun -x NCCL_ALGO=Ring -np 8 x", "x.sh", "NCCL_ALGO", "Ring"),
        ("docker run -e NCCL_ALGO=Ring image", "x.sh", "NCCL_ALGO", "Ring"),
        ("docker run --env=NCCL_ALGO=Ring image", "x.sh", "NCCL_ALGO", "Ring"),
        ("srun --export=ALL,NCCL_ALGO=Ring,X=1 x", "x.sh", "NCCL_ALGO", "Ring"),
        ("#SBATCH --export=ALL,NCCL_ALGO=Ring", "x.sh", "NCCL_ALGO", "Ring"),
        ("setenv NCCL_ALGO Ring", "x.csh", "NCCL_ALGO", "Ring"),
        ("ENV NCCL_ALGO=Ring", "Dockerfile", "NCCL_ALGO", "Ring"),
        ("ENV NCCL_ALGO Ring", "Dockerfile", "NCCL_ALGO", "Ring"),
        ("NCCL_ALGO=Ring", "/etc/nccl.conf", "NCCL_ALGO", "Ring"),
        ('    - name: NCCL_ALGO\n      value: "Ring"', "x.yaml", "NCCL_ALGO", "Ring"),
        ("    - {name: NCCL_ALGO, value: Ring}", "x.yaml", "NCCL_ALGO", "Ring"),
        ("  NCCL_ALGO: Ring  # why", "x.yaml", "NCCL_ALGO", "Ring"),
        ('  "NCCL_ALGO": "Ring",', "x.json", "NCCL_ALGO", "Ring"),
        ('os.environ["NCCL_ALGO"] = "Ring"', "x.py", "NCCL_ALGO", "Ring"),
        ("n1:12:34 [0] NCCL INFO NCCL_ALGO set by environment to Ring.", "x.log", "NCCL_ALGO", "Ring"),
    ],
)
def test_forms(text: str, file: str, name: str, value: str) -> None:
    assert [(s.name, s.value) for s in settings(text, file)] == [(name, value)]


@pytest.mark.parametrize(
    "text",
    [
        "# export NCCL_ALGO=Ring",
        "echo $NCCL_ALGO",
        "ARG NCCL_REPO=x",
        'echo "set ${NCCL_ALGO:-none}"',
        "NCCL_ALGO: null",
        "x  # NCCL_ALGO=Ring",
    ],
)
def test_what_sets_nothing(text: str) -> None:
    assert settings(text, "x.sh") == []


def test_sarif_has_places(tmp_path: Path) -> None:
    text = (EXAMPLES / "stale-job.sh").read_text()
    made = sarif(judge(settings(text, "stale.sh"), NEWEST), "1")
    run = made["runs"][0]
    assert len(run["results"]) == 10
    assert {r["ruleId"] for r in run["results"]} == {r["id"] for r in run["tool"]["driver"]["rules"]}
    assert run["results"][0]["locations"][0]["physicalLocation"]["region"] == {"startLine": 2, "startColumn": 8, "endColumn": 27}


PIECES = st.sampled_from(
    [
        "export ",
        "NCCL_IB_HCA=",
        "NCCL_ALGO=Tree",
        "=",
        ",",
        "^",
        "'",
        '"',
        "\n",
        " ",
        "-x ",
        "- name: NCCL_PROTO",
        "value: LL",
        "#",
        "mlx5_1",
        "$(",
        "\\",
        "NCCL_IB_TIMEOUT=99",
        "unset NCCL_ALGO",
        "{",
        "}",
        "\x00",
    ]
)


@limits(max_examples=200, deadline=None)
@given(st.lists(PIECES, max_size=30).map("".join) | st.text(max_size=200), st.sampled_from(["x.sh", "nccl.conf", "x.yaml"]))
def test_anything_gives_reports_and_a_patch_that_only_takes_lines_it_shows(text: str, file: str) -> None:
    found = lint(text, file=file)
    assert all(r.severity in SEVERITIES and 1 <= r.setting.line <= len(text.splitlines()) for r in found)
    patch({file: text}, found)


def test_a_line_of_many_megabytes_is_passed_over() -> None:
    assert settings("x" * (8 << 20) + " NCCL_ALGO=Ring\nexport NCCL_ALGO=Tree", "x.sh")[0].line == 2


# --- flags of engines


@pytest.mark.parametrize(
    ("line", "version", "expected"),
    [
        ("vllm serve a/b --num-scheduler-steps 8", "0.9.2", []),
        ("vllm serve a/b --num-scheduler-steps 8", "0.10.2", ["flag.removed"]),
        ("vllm serve a/b --num-scheduler-steps 8", "", []),
        ("vllm serve a/b --swap-space 4", "0.18.0", ["flag.removed"]),
        ("vllm serve a/b --enable-expert-parallel", "0.6.6", ["flag.too-new"]),
        ("vllm serve a/b --enable-expert-parallel --max-num-seqs 8", "0.10.2", []),
        ("vllm serve a/b --max-num-seq 8", "", ["flag.misspelt"]),
        ("vllm serve a/b --max_num_seqs 8 --no-enable-prefix-caching -tp 8", "0.10.2", []),
        ("vllm serve a/b --some-plugin-flag x", "0.10.2", []),
        ("docker run vllm/vllm-openai:v0.10.2 --model a/b --num-scheduler-steps 8", "", ["flag.removed"]),
        ("python -m sglang.launch_server --model-path a/b --disable-mla", "0.4.7", ["flag.removed"]),
        ("python -m sglang.launch_server --model-path a/b --tp 8 --mem-fraction-static 0.8", "0.5.9", []),
    ],
)
def test_engine_flags(line: str, version: str, expected: list[str]) -> None:
    found = list(judge_flags(read_sources([], line), line, "x.sh", version))
    assert [r.id for r in found] == expected
    assert all(r.setting.line == 1 and r.setting.name in line for r in found)


@pytest.mark.parametrize("line", [one for one, *_ in LINES if "vllm" in one or "sglang" in one])
def test_launch_lines_of_today_are_clean(line: str) -> None:
    for version in ("", "0.10.2" if "vllm" in line else "0.5.9"):
        assert list(judge_flags(read_sources([], line), line, "x.sh", version)) == []
