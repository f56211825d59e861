"""Readers of the linter: where a setting holds, what is no setting, and that a fix leaves a text that is whole."""

from __future__ import annotations

import shutil
import subprocess
from pathlib import Path

import pytest
import yaml
from hypothesis import given
from hypothesis import settings as limits
from hypothesis import strategies as st

from kilter.tune.lint.fix import fixed
from kilter.tune.lint.judge import Target, judge
from kilter.tune.lint.settings import KINDS, settings

NEWEST = Target(nccl="2.30.7")


def reports(text: str, file: str = "x.sh") -> list[tuple[str, int]]:
    return [(r.id, r.setting.line) for r in judge(settings(text, file), NEWEST) if r.severity != "note"]


def mended(text: str, file: str = "x.sh") -> str:
    return "".join(fixed(text, [r for r in judge(settings(text, file), NEWEST) if r.fix is not None and r.severity != "note"])[1])


# --- what is set, and where it holds


def test_two_arms_of_an_if_do_not_meet() -> None:
    text = "if has_ib; then\n  export NCCL_IB_HCA==mlx5_0\nelse\n  export NCCL_IB_DISABLE=1\nfi\n"
    assert reports(text) == []
    assert reports("export NCCL_IB_DISABLE=1\nexport NCCL_IB_HCA==mlx5_0\n") == [("env.conflict", 2)]


def test_two_arms_of_a_case_do_not_override_each_other() -> None:
    text = "case $x in\n a) export NCCL_SOCKET_IFNAME=eth0 ;;\n b)\n export NCCL_SOCKET_IFNAME=eth1\n ;;\nesac\n"
    assert [s.branch for s in settings(text, "x.sh")] == [("1:0",), ("1:1",)]
    assert [r.id for r in judge(settings(text, "x.sh"), NEWEST)] == []


def test_what_one_line_sets_only_sometimes() -> None:
    text = "if tcp; then export NCCL_IB_DISABLE=1; fi\n[ -z $x ] || export NCCL_IB_DISABLE=1\nexport NCCL_IB_HCA==mlx5_0\n"
    assert reports(text) == []


def test_containers_do_not_share_variables() -> None:
    text = """kind: Pod
spec:
  containers:
  - name: a
    env:
    - {name: NCCL_IB_DISABLE, value: "1"}
  - name: b
    env:
    - name: NCCL_IB_HCA
      value: "=mlx5_0"
"""
    assert reports(text, "pod.yaml") == []


@pytest.mark.parametrize(
    "text",
    [
        'echo "NCCL_IB_TIMOUT=22 is old"',
        "grep NCCL_IB_TIMOUT=22 log",
        'log "set NCCL_IB_TIMOUT=22 or NCCL_IB_RETRY_CNT=13 yourself"',
        "if [ NCCL_IB_TIMOUT=22 ]; then :; fi",
    ],
)
def test_what_is_only_said_is_not_set(text: str) -> None:
    assert settings(text, "x.sh") == []


def test_a_sentence_in_a_manifest_sets_nothing() -> None:
    assert settings("note: it went away with NCCL_NET_GDR_LEVEL=0. NCCL_P2P_LEVEL=9 did not help\n", "case.yaml") == []
    assert settings("note: >-\n  first this;\n  setting NCCL_P2P_LEVEL=9 did not help\n", "case.yaml") == []


@pytest.mark.parametrize(
    ("text", "file", "line"),
    [
        ("echo NCCL_IB_TIMOUT=22 >> /etc/nccl.conf", "x.sh", 1),
        ("cat > /etc/nccl.conf <<EOF\nNCCL_IB_TIMOUT=22\nEOF", "x.sh", 2),
        ("export NCCL_IB_TIMOUT=$TIMEOUT", "x.sh", 1),
        ("export NCCL_IB_TIMOUT=${T:-22}", "x.sh", 1),
        (": ${NCCL_IB_TIMOUT:=22}", "x.sh", 1),
        ('RUN echo "NCCL_IB_TIMOUT=22" | tee -a /etc/nccl.conf', "Dockerfile", 1),
        ("args:\n- |\n  set -e\n  export NCCL_IB_TIMOUT=22\n", "x.yaml", 4),
        ('command: ["bash", "-c", "export NCCL_IB_TIMOUT=22 && run"]', "x.yaml", 1),
        ("env:\n- name: NCCL_IB_TIMOUT\n  value: {{ .Values.timeout }}\n", "x.yaml", 2),
        ("mpirun -np 8 \\\n  -x NCCL_IB_TIMOUT=22 \\\n  ./a", "x.sh", 2),
        ("NCCL_IB_TIMOUT=22\nNCCL_DEBUG=WARN\n", "job.env", 1),
    ],
)
def test_a_misspelt_name_is_found_wherever_it_is_set(text: str, file: str, line: int) -> None:
    assert reports(text, file) == [("env.misspelt", line)]


def test_ncclconf_knows_no_shell() -> None:
    text = "# fine\nexport NCCL_DEBUG=WARN\nNCCL_SOCKET_IFNAME = eth0\nNCCL_IB_TIMEOUT=22 # long\nNCCL_IB_HCA==mlx5_0\n"
    assert reports(text, "/etc/nccl.conf") == [("env.syntax", 2), ("env.syntax", 3), ("env.syntax", 4)]
    assert mended(text, "nccl.conf").splitlines() == [
        "# fine",
        "NCCL_DEBUG=WARN",
        "NCCL_SOCKET_IFNAME=eth0",
        "NCCL_IB_TIMEOUT=22",
        "NCCL_IB_HCA==mlx5_0",
    ]


# --- fixes


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("docker run --env=NCCL_TREE_THRESHOLD=0 img\n", "docker run img\n"),
        ('docker run -e "NCCL_TREE_THRESHOLD=0" img\n', "docker run img\n"),
        ("srun --export=ALL,NCCL_TREE_THRESHOLD=0 ./a\n", "srun --export=ALL ./a\n"),
        ("srun --export=ALL,NCCL_TREE_THRESHOLD=0,X=1 ./a\n", "srun --export=ALL,X=1 ./a\n"),
        ("mpirun -np 2 \\\n  -x NCCL_TREE_THRESHOLD=0 \\\n  ./a\n", "mpirun -np 2 \\\n  ./a\n"),
        ("if x; then\n  export NCCL_TREE_THRESHOLD=0\nfi\n", "if x; then\n  :\nfi\n"),
        ("export A=1 NCCL_TREE_THRESHOLD=0 B=2\n", "export A=1 B=2\n"),
        ("export NCCL_TREE_THRESHOLD=0 && run\n", "run\n"),
        ('export NCCL_IB_HCA="mlx5_1"\n', 'export NCCL_IB_HCA="=mlx5_1"\n'),
    ],
)
def test_fixes_of_a_script(text: str, expected: str) -> None:
    assert mended(text) == expected
    subprocess.run(["bash", "-n"], input=mended(text), text=True, check=True)


def test_fixes_of_a_dockerfile_leave_no_open_line() -> None:
    text = "FROM x\nENV NCCL_DEBUG=INFO \\\n    NCCL_TREE_THRESHOLD=0 \\\n    NCCL_CHECKS_DISABLE=1\nRUN a\n"
    assert mended(text, "Dockerfile") == "FROM x\nENV NCCL_DEBUG=INFO\nRUN a\n"


def test_fixes_of_a_manifest_give_the_manifest_without_what_was_wrong() -> None:
    text = """env:
- name: A
  value: "1"
- name: NCCL_TREE_THRESHOLD
  value: "0"
- name: NCCL_BLOCKING_WAIT
  value: "1"
data:
  NCCL_TREE_THRESHOLD: "0"
  NCCL_DESYNC_DEBUG: "1"
"""
    assert yaml.safe_load(mended(text, "x.yaml")) == {
        "env": [{"name": "A", "value": "1"}, {"name": "TORCH_NCCL_BLOCKING_WAIT", "value": "1"}],
        "data": {"TORCH_NCCL_DESYNC_DEBUG": "1"},
    }


SHELL = [
    "export NCCL_TREE_THRESHOLD=0",
    "NCCL_IB_HCA=mlx5_1 ",
    "-x NCCL_CHECKS_DISABLE=1 ",
    " \\\n",
    "\n",
    "; ",
    "a ",
    "if a; then\n",
    "\nfi\n",
]
OTHER = [
    "<<EOF\n",
    "EOF\n",
    "case x in\n",
    "x) ",
    ";;\n",
    "esac\n",
    "'",
    '"',
    "&& ",
    "ENV ",
    "- name: ",
    "value: 1",
    "{",
    "}",
    "$(",
    ")",
    "#",
]
PIECES = st.sampled_from(SHELL + OTHER)


@limits(max_examples=300, deadline=None)
@given(st.lists(PIECES, max_size=25).map("".join) | st.text(max_size=200), st.sampled_from(sorted(KINDS)))
def test_any_text_in_any_reader(text: str, kind: str) -> None:
    found = settings(text, "x", kind)
    assert all(1 <= s.line <= len(text.splitlines()) for s in found)
    wrong = [r for r in judge(found, NEWEST) if r.fix is not None]
    old, new = fixed(text, wrong)
    assert "".join(old) == text
    assert len(new) <= len(old)


@limits(max_examples=60, deadline=None)
@given(st.lists(PIECES, max_size=14).map("".join))
def test_a_script_that_bash_takes_is_still_one_after_the_fix(text: str) -> None:
    if shutil.which("bash") is None:
        pytest.skip("bash is not installed")
    new = mended(text)
    if new != text and subprocess.run(["bash", "-n"], input=text, text=True, capture_output=True, check=False).returncode == 0:
        assert subprocess.run(["bash", "-n"], input=new, text=True, capture_output=True, check=False).returncode == 0


@pytest.mark.parametrize("piece", ["[", "{a: ", "- ", "if a; then\n", "f() {\n", "cat <<EOF\n"])
def test_deep_nesting_is_survived(piece: str) -> None:
    for file in ("x.yaml", "x.sh"):
        settings(piece * 20_000 + "export NCCL_ALGO=Ring", file)


def test_a_link_that_leads_nowhere_does_not_end_a_folder(tmp_path: Path) -> None:
    from click.testing import CliRunner

    from kilter.cli.lint import command

    (tmp_path / "gone.sh").symlink_to(tmp_path / "nothing")
    (tmp_path / "job.sh").write_text("export NCCL_IB_TIMOUT=22\n")
    result = CliRunner().invoke(command, [str(tmp_path)])
    assert result.exit_code == 1
    assert "env.misspelt" in result.output
